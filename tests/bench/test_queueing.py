"""The simulated fleet, where arithmetic says what it has to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.costs import ORCHESTRATOR_TRIPS, TRIPS, WORKER_TRIPS, Cost, Costs, fit
from bench.queueing import DIAMOND, Shape, chain, run_once, run_steadily, shape_for

FREE = Cost(batch=0.0, message=0.0)
SLOW = Cost(batch=0.0, message=50.0)
NOTHING = Costs(
    orchestrator=FREE,
    worker=FREE,
    redis=FREE,
    postgres=FREE,
    submit_api=0.0,
    submit_redis=0.0,
    submit_postgres=0.0,
    peer_orchestrator=0.0,
    peer_postgres=0.0,
    partition_orchestrator=0.0,
    partition_worker=0.0,
    partition_redis=0.0,
    sync=0.0,
    trip=0.0,
    wal_bytes=1000.0,
    postgres_bytes=1000.0,
    redis_bytes=500.0,
)
COSTS = replace(
    NOTHING,
    orchestrator=Cost(batch=100.0, message=20.0),
    worker=Cost(batch=80.0, message=10.0),
    redis=Cost(batch=70.0, message=30.0),
    postgres=Cost(batch=120.0, message=30.0),
    submit_api=50.0,
    submit_redis=20.0,
    submit_postgres=40.0,
)


def test_a_hop_of_a_lone_chain_is_the_sum_of_its_steps() -> None:
    shape = Shape(trip_us=40.0, sync_us=200.0)
    outcome = run_once(COSTS, shape, chain(20))
    # Report, read, apply, fetch, start: half of each of these trips to Redis, all of that to PostgreSQL.
    redis = 5 * (100.0 / TRIPS + 40.0 / 2)
    hop = redis + 120.0 + (120.0 + 30.0) + 40.0 + 200.0 + 90.0 / 2
    assert len(outcome.hops) == 19
    assert outcome.hops == pytest.approx([hop * 1e-6] * 19)


@pytest.mark.parametrize(
    ("role", "costs", "messages"),
    [
        # The message that an execution is there is no node's, and no worker has it.
        ("orchestrator", replace(NOTHING, orchestrator=SLOW), 6.0),
        ("postgres", replace(NOTHING, postgres=SLOW), 6.0),
        ("worker", replace(NOTHING, worker=SLOW), 5.0),
        ("redis", replace(NOTHING, redis=SLOW), (6 * ORCHESTRATOR_TRIPS + 5 * WORKER_TRIPS) / TRIPS),
    ],
)
def test_the_slowest_station_alone_says_how_fast_it_goes(role: str, costs: Costs, messages: float) -> None:
    outcome = run_once(costs, Shape(), DIAMOND, 1000)
    assert outcome.rate == pytest.approx(1e6 / SLOW.message * 5 / messages, rel=0.03)
    assert outcome.busy[role] == pytest.approx(1.0, rel=0.03)


def test_a_backlog_shares_what_a_batch_costs() -> None:
    costs = replace(NOTHING, orchestrator=Cost(batch=1000.0, message=10.0))
    outcome = run_once(costs, Shape(), chain(1), 20_000)
    # Two messages a node, 256 of them in a batch: that is as many as are read at once.
    assert outcome.orchestrator_batch == pytest.approx(256, rel=0.05)
    assert outcome.rate == pytest.approx(256 / (1000 + 256 * 10) * 1e6 / 2, rel=0.05)


def test_two_cores_do_as_much_as_two_cores_can() -> None:
    outcome = run_once(COSTS, Shape(cores=2), DIAMOND, 1000)
    assert sum(used for name, used in outcome.busy.items() if name != "disk") == pytest.approx(2.0, rel=0.15)
    assert run_once(COSTS, Shape(), DIAMOND, 1000).rate > 1.1 * outcome.rate


def test_a_fleet_that_is_large_enough_carries_what_it_is_asked_for() -> None:
    fleets, shape = shape_for(COSTS, 20_000)
    assert fleets == 1
    outcome = run_steadily(COSTS, shape, 20_000, seed=3)
    assert outcome.rate == pytest.approx(20_000, rel=0.05)
    assert all(used < 0.8 for name, used in outcome.busy.items() if name != "postgres")


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = (run_steadily(COSTS, Shape(partitions=2), 2000, seed=5) for _ in range(2))
    assert first == second


def test_from_what_a_hop_and_a_node_took_follow_the_costs_it_was_run_with() -> None:
    alone = run_once(COSTS, Shape(), chain(200))
    shared = run_once(COSTS, Shape(), DIAMOND, 2000)
    hop_us, node_us = (one.busy["orchestrator"] / one.rate * 1e6 for one in (alone, shared))
    found = fit(hop_us, node_us, 1 / shared.orchestrator_batch)
    assert found.batch == pytest.approx(COSTS.orchestrator.batch, rel=0.02)
    assert found.message == pytest.approx(COSTS.orchestrator.message, rel=0.02)
