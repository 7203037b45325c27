"""A PostgreSQL that comes back without its last commits, while Redis and the fleet go on (F39).

The hot state then runs ahead of the journal. Every execution that the database still has ends, and no node of
it has run on a result that the database lost. The rest of the catalogue: docs/faults.md.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.fleet.harness import SHORT_LEASE, RunningFleet, is_wrong
from tests.operation.calling import calling, layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

from weft.cli.trace import read_journal
from weft.errors import JournalError
from weft.journal.postgres.schema import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from tests.tracecheck import DrawnNode

GRAPH = layered(6, 3)
BEFORE_SECONDS, LOST_SECONDS = 2.0, 3.0
PAUSE_SECONDS = 0.1
ANSWER_SECONDS = 0.1


@asynccontextmanager
async def running(
    server: PostgresServer, folder: Path, settings: Mapping[str, str]
) -> AsyncIterator[RunningFleet]:
    """Run a fleet with two of each role that writes on the journal's word."""
    database_url = server.create_database("fleet")
    await migrate(database_url)
    with RedisServer() as redis:
        async with RunningFleet(redis.url, database_url, folder, settings=settings) as fleet:
            await fleet.start(orchestrators=2)
            fleet.service.delay_seconds = ANSWER_SECONDS
            yield fleet


async def submit_for(fleet: RunningFleet, seconds: float) -> list[str]:
    """Submit executions for a while, and give their ids."""
    until = asyncio.get_running_loop().time() + seconds
    executions = []
    while asyncio.get_running_loop().time() < until:
        executions.append(await fleet.api.start({"nodes": calling(GRAPH, fleet.service.url)}))
        await asyncio.sleep(PAUSE_SECONDS)
    return executions


async def ready(fleet: RunningFleet) -> None:
    """Return once the API can use both servers."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await fleet.api.call("GET", "/readyz"))[0] != 200:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


async def left_of(fleet: RunningFleet, executions: Sequence[str]) -> list[str]:
    """Return those executions that the database has, once the fleet can use it."""
    await ready(fleet)
    with suppress(JournalError):
        await fleet.journal.check()  # its connections were lost
    rows = [await fleet.journal.execution(execution) for execution in executions]
    return [row.id for row in rows if row is not None]


async def check(fleet: RunningFleet, executions: Sequence[str]) -> list[Any]:
    """Hold what the journal has against what the service saw, once all executions have ended."""
    shown = await fleet.settle(*executions)
    await fleet.quiet()
    assert {execution["state"] for execution in shown} == {"COMPLETED"}
    for execution in shown:
        trace = await read_journal(fleet.journal, execution["id"])
        assert [str(violation) for violation in trace.check()] == [], execution["id"]
        check_inputs(fleet, execution, GRAPH)
    assert [line for member in fleet.members for line in member.log if is_wrong(line)] == []
    return shown


def check_inputs(fleet: RunningFleet, shown: Mapping[str, Any], graph: Sequence[DrawnNode]) -> None:
    """Fail if a node's recorded result was made of anything but the recorded results of its parents."""
    tokens = {node["id"]: node["output"]["body"]["token"] for node in shown["nodes"]}
    given = {
        call.token: call.request.json()["parents"]
        for call in fleet.service.calls
        if call.execution == shown["id"]
    }
    for node in graph:
        assert given[tokens[node.id]] == [tokens[parent] for parent in node.parents], node.id


def incarnations(fleet: RunningFleet) -> int:
    """Count how often the hot state was dropped because the database had lost commits."""
    lines = [line for member in fleet.members for line in member.log if line.get("event") == "store.wiped"]
    return len(lines)


@pytest.mark.parametrize("options", ["snapshot", "promoted"])
async def test_a_database_that_comes_back_older_rebuilds_all_hot_state(options: str, tmp_path: Path) -> None:
    """F39: restored from a snapshot, or a standby that lagged and was promoted."""
    with PostgresServer() as server:
        async with running(server, tmp_path, SHORT_LEASE) as fleet:
            executions = await submit_for(fleet, BEFORE_SECONDS)
            copy = await asyncio.to_thread(server.snapshot)
            executions += await submit_for(fleet, LOST_SECONDS)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.restore, copy, promoted=options == "promoted")
            await asyncio.to_thread(server.start)
            left = await left_of(fleet, executions)
            assert 0 < len(left) < len(executions)
            await check(fleet, left)
            assert incarnations(fleet) == 1
            # And it goes on as ever.
            await check(fleet, await submit_for(fleet, 1.0))


async def test_a_crash_that_loses_relaxed_commits_rebuilds_all_hot_state(tmp_path: Path) -> None:
    """F39: the server writes what was committed to its disk only now and then."""
    with PostgresServer(options={"wal_writer_delay": "10s"}) as server:
        async with running(server, tmp_path, {**SHORT_LEASE, "WEFT_DURABILITY": "relaxed"}) as fleet:
            executions = await submit_for(fleet, BEFORE_SECONDS)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.start)
            await check(fleet, await left_of(fleet, executions))
            assert incarnations(fleet) == 1


async def test_a_restart_in_good_order_drops_nothing_and_loses_no_attempt(tmp_path: Path) -> None:
    with PostgresServer() as server:
        async with running(server, tmp_path, {}) as fleet:
            executions = await submit_for(fleet, BEFORE_SECONDS)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            await ready(fleet)
            shown = await check(fleet, executions)
            assert incarnations(fleet) == 0
            assert {node["attempt"] for execution in shown for node in execution["nodes"]} == {1}
