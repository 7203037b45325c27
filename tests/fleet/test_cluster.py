"""F29: a fleet on a Redis Cluster, whose slots move and whose servers die under load."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from tests.dags_command import AT_ONCE, HANDLER, SLOTS, run_all, runs_of
from tests.fleet.clustered import PARTITIONS, cluster_fleet, of_partitions
from tests.operation.calling import calling, layered
from tests.support.servers.redis_cluster import RedisCluster
from tests.walks.replay import FILES, FOLDER

from weft.redis.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fleet.clustered import ClusterFleet
    from tests.support.servers.postgres import PostgresServer

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Longer than a partition is away when its slot moves; short enough to be waited for when its state is lost.
LEASE_SECONDS = 5.0
SETTINGS = {"WEFT_WORKER_HEARTBEAT_TIMEOUT": str(LEASE_SECONDS), **HANDLER}
# So many that each partition has some.
EXECUTIONS = 4 * PARTITIONS
# Each call takes so long: when something happens to Redis, a part of them is under way.
CALL_SECONDS = 0.05

MIXED = layered(4, 4)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterFleet]:
    """One API, two orchestrators and two workers on three servers, each of which has a replica."""
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster(servers=3, replicas=3) as cluster:
        async with cluster_fleet(cluster, postgres_server, migrated, folder, **SETTINGS) as running:
            await running.start("--concurrency", str(SLOTS // 2), orchestrators=2, workers=2)
            yield running


async def submit(fleet: ClusterFleet, count: int) -> list[str]:
    definition = {"nodes": calling(MIXED, fleet.service.url)}
    return list(await asyncio.gather(*(fleet.api.start(definition) for _ in range(count))))


async def submit_together(fleet: ClusterFleet, count: int) -> list[str]:
    """Submit executions of all partitions in one call."""
    workflow = {"name": "mixed", "nodes": calling(MIXED, fleet.service.url)}
    assert (await fleet.api.call("POST", "/v1/workflows", workflow))[0] == 201
    batch = {"workflow": "mixed", "inputs": [{}] * count}
    status, started, _ = await fleet.api.call("POST", "/v1/batches", batch)
    assert status == 202
    listed = await fleet.api.get(f"/v1/executions?batch={started['id']}&limit={count}")
    return [execution["id"] for execution in listed["items"]]


async def test_every_partition_of_a_cluster_has_its_share_and_no_call_is_led_astray(
    fleet: ClusterFleet,
) -> None:
    executions = await submit(fleet, EXECUTIONS)
    assert all(of_partitions(executions, {number}) for number in range(PARTITIONS))
    shown = await fleet.check(*executions, graph=MIXED)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    for member in fleet.members:
        assert [line for line in member.log if line.get("level") == "warning"] == []


async def test_real_graphs_run_on_a_cluster_as_they_are_drawn(fleet: ClusterFleet) -> None:
    runs = [run for file in FILES[::4] for run in runs_of(FOLDER / file, FOLDER, seed=3)]
    failures = await run_all(runs, fleet.api, slots=SLOTS, at_once=AT_ONCE)
    assert {f"{run.file} ({run.options})": wrong for run, wrong in failures.items()} == {}
    await fleet.check()


async def test_slots_that_move_under_load_cost_their_executions_a_rebuild_and_no_result(
    fleet: ClusterFleet,
) -> None:
    """Each partition goes to the next server, also the one where all who listen are."""
    fleet.service.delay_seconds = CALL_SECONDS
    before = len(fleet.service.calls)
    executions = []
    for partition in range(PARTITIONS):
        executions += await submit(fleet, EXECUTIONS // PARTITIONS)
        await fleet.service.came(before + 2 * len(executions))
        was = fleet.server_of(partition)
        await asyncio.to_thread(fleet.move, partition)
        assert fleet.server_of(partition) is not was
    fleet.service.delay_seconds = 0
    shown = await fleet.check(*executions, graph=MIXED, faults=1)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    # And what begins after that finds its way at once.
    await fleet.check(*await submit(fleet, EXECUTIONS), graph=MIXED)


async def test_while_a_slot_is_on_its_way_the_other_partitions_go_on(fleet: ClusterFleet) -> None:
    """Its keys are on two servers for as long as an operator takes; what is in it waits, and is not lost."""
    partition = 5
    slot = slot_of(f"p{partition}")
    owner = fleet.server_of(partition)
    to = next(server for server in fleet.cluster.owners if server is not owner)
    fleet.cluster.begin_move(slot, to=to)
    executions = await submit(fleet, EXECUTIONS)
    waiting = of_partitions(executions, {partition})
    others = [one for one in executions if one not in waiting]
    assert waiting
    await fleet.settle(*others)
    for execution in waiting:
        assert (await fleet.api.get(f"/v1/executions/{execution}"))["state"] != "COMPLETED"
    await asyncio.to_thread(fleet.cluster.move, slot, to=to)
    await fleet.check(*executions, graph=MIXED, faults=1)


async def test_the_executions_of_a_server_that_died_go_on_where_its_replica_has_taken_over(
    fleet: ClusterFleet,
) -> None:
    """The server of the first partition: all who listen are there, and the workers' announcements."""
    fleet.service.delay_seconds = CALL_SECONDS
    before = len(fleet.service.calls)
    executions = await submit(fleet, EXECUTIONS)
    await fleet.service.came(before + 2 * EXECUTIONS)
    victim = fleet.server_of(0)
    lost = fleet.partitions_on(victim)
    assert of_partitions(executions, lost)
    await asyncio.to_thread(victim.kill)
    executions += await submit(fleet, EXECUTIONS)
    fleet.service.delay_seconds = 0
    shown = await fleet.check(*executions, graph=MIXED, faults=1)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    assert all(fleet.server_of(number) is not victim for number in lost)
    # What comes back follows its successor, and changes nothing.
    await asyncio.to_thread(victim.start)
    await fleet.check(*await submit(fleet, EXECUTIONS), graph=MIXED)


async def test_a_replica_that_has_missed_the_last_is_not_believed(fleet: ClusterFleet) -> None:
    """F18: it takes over with a state in which what has ended still runs, and what runs has not begun."""
    victim = fleet.server_of(0)
    await asyncio.to_thread(fleet.cluster.wait_until_followed, victim)
    fleet.service.delay_seconds = CALL_SECONDS
    before = len(fleet.service.calls)
    early = await submit(fleet, EXECUTIONS)
    await fleet.service.came(before + 2 * EXECUTIONS)
    fleet.cluster.cut_off(victim)
    await fleet.settle(*early[: EXECUTIONS // 2])
    late = await submit(fleet, EXECUTIONS)
    await fleet.service.came(before + EXECUTIONS * len(MIXED) + 2 * EXECUTIONS)
    await asyncio.to_thread(victim.kill)
    fleet.service.delay_seconds = 0
    shown = await fleet.check(*early, *late, graph=MIXED, faults=1)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    assert any(line.get("event") == "store.wiped" for member in fleet.members for line in member.log)
    await asyncio.to_thread(victim.start)
    await asyncio.to_thread(fleet.cluster.wait_until_all_agree)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ClusterFleet]:
    """The same on servers without replicas: whose slots are away with them."""
    folder = tmp_path_factory.mktemp("cluster")
    with RedisCluster(servers=3) as cluster:
        async with cluster_fleet(cluster, postgres_server, migrated, folder, **SETTINGS) as running:
            await running.start("--concurrency", str(SLOTS // 2), orchestrators=2, workers=2)
            yield running


async def test_the_executions_of_a_server_that_comes_back_empty_are_rebuilt(bare: ClusterFleet) -> None:
    bare.service.delay_seconds = CALL_SECONDS
    before = len(bare.service.calls)
    executions = await submit(bare, EXECUTIONS)
    await bare.service.came(before + 2 * EXECUTIONS)
    victim = bare.server_of(1)
    assert of_partitions(executions, bare.partitions_on(victim))
    await asyncio.to_thread(victim.kill)
    executions += await submit(bare, EXECUTIONS)
    await asyncio.to_thread(victim.start)
    bare.service.delay_seconds = 0
    shown = await bare.check(*executions, graph=MIXED, faults=1)
    assert {execution["state"] for execution in shown} == {"COMPLETED"}


async def test_what_is_on_the_other_servers_begins_and_ends_while_one_is_away(bare: ClusterFleet) -> None:
    victim = bare.server_of(1)
    lost = bare.partitions_on(victim)
    await asyncio.to_thread(victim.kill)
    executions = [*await submit(bare, EXECUTIONS), *await submit_together(bare, EXECUTIONS)]
    waiting = of_partitions(executions, lost)
    await bare.settle(*(one for one in executions if one not in waiting))
    shown = [await bare.api.get(f"/v1/executions/{one}?nodes=none") for one in waiting]
    assert {one["state"] for one in shown} == {"PENDING"}
    await asyncio.to_thread(victim.start)
    for execution in await bare.check(*executions, graph=MIXED, faults=1):
        # Nothing of those that waited was in anybody's hand.
        if execution["id"] in waiting:
            assert {node["attempt"] for node in execution["nodes"]} == {1}
