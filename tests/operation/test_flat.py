"""A fleet holds no more for having worked, and a wide execution does not fill it.

``./dev bench soak`` and ``./dev bench beside`` show the same at scale.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.fleet.harness import RunningFleet
from tests.operation.serving import PATIENCE_SECONDS
from tests.support.servers.redis import RedisServer

from weft.core.state import TERMINAL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from tests.support.servers.postgres import PostgresServer

    Fleets = Callable[..., AbstractAsyncContextManager[RunningFleet]]

# What is removed with its execution.
HISTORY = (
    *("executions", "progress", "nodes", "recorded_events", "labels", "dead_letters", "purging", "batches"),
    "idempotency_keys",
)
# Of an execution that has ended a mark stays for a minute.
MARK, MARK_SECONDS = "weft:{p0}:x:*", 60
LOOK_SECONDS = 0.05
WINDOW = 20
WIDE = 160


@pytest.fixture
def fleets(journal_url: str, tmp_path: Path) -> Fleets:
    """Return a way to have one process of each role, on a Redis and a database of their own."""

    @asynccontextmanager
    async def fleet(**settings: str) -> AsyncIterator[RunningFleet]:
        with RedisServer() as server:
            async with RunningFleet(server.url, journal_url, tmp_path, settings=settings) as running:
                await running.start(has_metrics=True)
                yield running

    return fleet


def echo(node_id: str, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "echo", "dependencies": parents, "config": {"value": 1}, **fields}


DIAMOND = [echo("a"), echo("b", "a"), echo("c", "a"), echo("d", "b", "c")]


async def work(fleet: RunningFleet, count: int) -> int:
    """Run executions of all kinds to their ends; give their number."""
    api = fleet.api
    await api.call("POST", "/v1/workflows", {"name": "diamond", "nodes": DIAMOND})
    batch = {"workflow": "diamond", "inputs": [{}] * count, "labels": {"of": "many"}}
    status, body, _ = await api.call("POST", "/v1/batches", batch)
    assert status == 202, body
    failing = echo("a", config={"value": "{{ input.missing.entirely }}"})
    for number in range(3):
        await api.start({"nodes": [failing, echo("b", "a")]}, key=f"{count}-{number}")
        # Its timer goes when it would have been due.
        nap = await api.start({"nodes": [{"id": "nap", "handler": "sleep", "config": {"seconds": 5}}]})
        await api.call("POST", f"/v1/executions/{nap}/cancel")
    return count + 6


async def ended(fleet: RunningFleet, count: int) -> None:
    """Return once so many executions have ended, all of them counted; their history may be gone by then."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await counted(fleet) < count:  # noqa: ASYNC110 - it is other processes that are asked
            await asyncio.sleep(LOOK_SECONDS)
    await fleet.quiet()


async def counted(fleet: RunningFleet) -> float:
    members = fleet.having("orchestrator") + fleet.having("api")
    return sum([await member.metric("weft_executions_finished_total") for member in members])


def keys(fleet: RunningFleet) -> set[Any]:
    return set(fleet.redis.keys("*")) - set(fleet.redis.keys(MARK))


def connections(fleet: RunningFleet, server: PostgresServer) -> tuple[int, int]:
    redis = [one for one in fleet.redis.client_list() if one["name"].startswith("weft-")]
    sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    return len(redis), server.execute(sql, url=fleet.database_url)


async def test_what_has_ended_leaves_no_keys_no_entries_no_connections_and_no_rows_behind(
    fleets: Fleets, postgres_server: PostgresServer
) -> None:
    async with fleets(WEFT_RETENTION="1s") as fleet:
        count = await work(fleet, 30)
        await ended(fleet, count)
        keys_before, connections_before = keys(fleet), connections(fleet, postgres_server)

        count += await work(fleet, 150)
        # That nothing is pending and no stream has an entry is what this waits for.
        await ended(fleet, count)
        assert await counted(fleet) == count
        assert keys(fleet) == keys_before
        assert len(fleet.redis.keys(MARK)) == count
        assert all(0 < fleet.redis.ttl(key) <= MARK_SECONDS for key in fleet.redis.keys(MARK))
        # A process opens the few that it may have when it needs them.
        for now, before in zip(connections(fleet, postgres_server), connections_before, strict=True):
            assert now <= before + len(fleet.members)

        tables = " UNION ALL ".join(f"SELECT '{name}' AS name FROM weft.{name}" for name in HISTORY)
        filled = f"SELECT count(DISTINCT name) FROM ({tables}) AS rows"
        async with asyncio.timeout(PATIENCE_SECONDS):
            while postgres_server.execute(filled, url=fleet.database_url):  # noqa: ASYNC110 - a server is asked
                await asyncio.sleep(LOOK_SECONDS)


async def test_a_wide_execution_has_no_more_than_its_window_under_way_and_a_small_one_passes_it(
    fleets: Fleets,
) -> None:
    nodes = [{"id": f"n{i}", "handler": "hold", "config": {"seconds": 0.05}} for i in range(WIDE)]
    async with fleets(WEFT_EXECUTION_WINDOW=str(WINDOW), WEFT_WORKER_CONCURRENCY="4") as fleet:
        wide = await fleet.api.start({"nodes": nodes})
        lane = "weft:{p0}:tasks:hold|hold|1"
        seen: list[int] = []

        async def look() -> None:
            while True:
                seen.append(fleet.redis.xlen(lane))
                await asyncio.sleep(LOOK_SECONDS)

        looking = asyncio.create_task(look())
        while not any(seen):  # noqa: ASYNC110 - it is Redis that is waited for
            await asyncio.sleep(LOOK_SECONDS)
        small = await fleet.api.terminal(await fleet.api.start({"nodes": nodes[:1]}))
        shown = await fleet.api.get(f"/v1/executions/{wide}?nodes=none")
        assert small["state"] == "COMPLETED"
        assert shown["state"] not in TERMINAL
        assert shown["counts"]["COMPLETED"] < WIDE / 2
        assert shown["counts"]["QUEUED"] + shown["counts"]["RUNNING"] <= WINDOW
        assert (await fleet.api.terminal(wide))["state"] == "COMPLETED"
        looking.cancel()
        # One more is the small one's.
        assert WINDOW / 2 < max(seen) <= WINDOW + 1
