"""Deaths and races of a fleet once more, on a Redis Cluster with its partitions on three servers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from tests.fleet import test_death as deaths
from tests.fleet import test_races as races
from tests.fleet.clustered import cluster_fleet
from tests.support.servers.redis_cluster import RedisCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.fleet.clustered import ClusterFleet
    from tests.fleet.harness import RunningFleet
    from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

DEATHS: list[Callable[[RunningFleet], Awaitable[None]]] = [
    *(
        partial(deaths.test_what_an_orchestrator_leaves_when_it_dies_is_done_once_by_its_peer, crash)
        for crash in ("journal.record:after:3", "store.apply:after:3", "transport.ack:before:3")
    ),
    partial(
        deaths.test_a_submit_without_an_answer_is_repeated_at_another_api_and_made_once,
        "journal.submit:after:1",
        True,
        2,
    ),
    deaths.test_what_a_worker_was_doing_when_it_was_killed_is_done_by_another,
    partial(
        deaths.test_a_worker_that_dies_around_its_result_has_it_counted_once, "store.report:after:1", 1, 1
    ),
    deaths.test_a_worker_that_is_asked_to_stop_ends_what_is_short_and_hands_back_the_rest,
]

RACES: list[Callable[[RunningFleet], Awaitable[None]]] = [
    races.test_the_result_of_a_worker_that_stood_still_too_long_is_discarded,
    races.test_of_the_last_two_parents_that_end_together_one_sends_the_child,
    races.test_an_execution_is_moved_forward_by_three_orchestrators_at_once,
    races.test_of_many_cancels_each_is_done_and_one_is_recorded,
    races.test_of_many_retries_one_opens_a_generation,
    races.test_cancels_and_retries_end_in_a_state_that_one_of_them_left,
    races.test_a_cancel_and_a_result_that_meet_leave_one_outcome,
    races.test_a_backlog_longer_than_a_lease_is_worked_off_without_doing_anything_twice,
]


def name_of(case: Any) -> str:
    function = getattr(case, "func", case)
    return " ".join([function.__name__.removeprefix("test_"), *map(str, getattr(case, "args", ()))])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mortal(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterFleet]:
    """As that of the deaths on one server: one of each role that stays."""
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster() as cluster:
        async with cluster_fleet(cluster, postgres_server, migrated, folder) as running:
            await running.start(*deaths.ORDINARY)
            yield running


@pytest.mark.parametrize("case", DEATHS, ids=name_of)
async def test_a_death_costs_on_a_cluster_what_it_costs_on_one_server(
    case: Callable[[RunningFleet], Awaitable[None]], mortal: ClusterFleet
) -> None:
    await case(mortal)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def racing(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterFleet]:
    """As that of the races on one server: three orchestrators that read one message at a time."""
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster() as cluster:
        async with cluster_fleet(cluster, postgres_server, migrated, folder) as running:
            readers = [await running.launch("orchestrator", batch=1, has_metrics=True) for _ in range(3)]
            await running.start(*races.ORDINARY, apis=2, orchestrators=0, workers=2)
            await asyncio.gather(*(member.ready() for member in readers))
            yield running


@pytest.mark.parametrize("case", RACES, ids=name_of)
async def test_a_race_ends_on_a_cluster_as_on_one_server(
    case: Callable[[RunningFleet], Awaitable[None]], racing: ClusterFleet
) -> None:
    await case(racing)
