"""One process on a PostgreSQL that comes back without its last commits.

The hot state of the process then runs ahead of its journal. Every execution that the database still has ends,
and no result that counts was made of a result that the database lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import asyncpg
import pytest
from tests.operation.calling import layered
from tests.operation.serving import PATIENCE_SECONDS
from tests.support.servers.postgres import PostgresServer

from weft.cli.roles import _note_position, open_engine
from weft.cli.trace import read_journal
from weft.core.payload import decode
from weft.core.state import ExecutionState
from weft.definition.validation import check
from weft.errors import JournalError
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.engine import Engine

GRAPH = layered(6, 3)
BEFORE_SECONDS, LOST_SECONDS, PAUSE_SECONDS, CALL_SECONDS, LONG_SECONDS = 1.0, 1.0, 0.1, 0.1, 5.0


async def give_token(config: Json, context: HandlerContext) -> Json:
    """Put out a token of its own beside those that it was given."""
    await asyncio.sleep(config.get("seconds", CALL_SECONDS))
    return {"token": uuid4().hex, "parents": config["parents"]}


REGISTRY = Registry()
REGISTRY.add(Handler("token", HandlerKind.NATIVE, give_token))


async def submit_for(engine: Engine, seconds: float) -> list[str]:
    """Submit executions for a while, and give their ids."""
    nodes = [
        {
            "id": node.id,
            "handler": "token",
            "dependencies": list(node.parents),
            "config": {"parents": [f"{{{{ {parent}.token }}}}" for parent in node.parents]},
        }
        for node in GRAPH
    ]
    document: dict[str, Any] = {"name": "tokens", "nodes": nodes}
    plan = check(document, handlers=REGISTRY).plan
    assert plan is not None
    until = asyncio.get_running_loop().time() + seconds
    executions = []
    while asyncio.get_running_loop().time() < until:
        executions.append(await engine.submit(plan, document=document))
        await asyncio.sleep(PAUSE_SECONDS)
    return executions


async def flush(url: str) -> None:
    """Have the server write to its disk all that was committed so far."""
    connection = await asyncpg.connect(url)
    await connection.execute("CHECKPOINT")
    await connection.close()


async def left_of(engine: Engine, executions: list[str]) -> list[str]:
    """Return those executions that the database has, once the journal answers again."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await engine.ports.catalog.check()
                rows = [await engine.ports.journal.execution(execution) for execution in executions]
            except JournalError:
                await asyncio.sleep(0.05)
            else:
                return [row.id for row in rows if row is not None]


async def check_ended(engine: Engine, executions: list[str]) -> None:
    """Return once all have ended; hold every result against the recorded results of its parents."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        rows = [await engine.wait(execution) for execution in executions]
    assert {row.state for row in rows} == {ExecutionState.COMPLETED}
    for execution in executions:
        trace = await read_journal(engine.ports.catalog, execution)
        assert [str(violation) for violation in trace.check()] == [], execution
        nodes = await engine.ports.catalog.nodes(execution)
        outputs = {name: decode(row.output or b"") for name, row in nodes.items()}
        for node in GRAPH:
            given = [outputs[parent]["token"] for parent in node.parents]
            assert outputs[node.id]["parents"] == given, (execution, node.id)


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
async def test_a_database_that_comes_back_older_rebuilds_the_hot_state(
    durability: str, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresServer() as server:
        settings = Settings(
            database_url=server.create_database("alone"),
            durability=durability,
            worker_heartbeat_interval_seconds=0.5,
            worker_heartbeat_timeout_seconds=2.0,
            orchestrator_sweep_interval_seconds=0.5,
        )
        async with open_engine(settings, REGISTRY) as engine:
            noting = asyncio.create_task(_note_position(engine))
            executions = await submit_for(engine, BEFORE_SECONDS)
            copy = await asyncio.to_thread(server.snapshot)
            executions += await submit_for(engine, LOST_SECONDS)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.restore, copy)
            await asyncio.to_thread(server.start)
            left = await left_of(engine, executions)
            assert 0 < len(left) < len(executions)
            await check_ended(engine, left)
            assert incarnations(caplog) == 1
            # And it goes on as ever.
            await check_ended(engine, await submit_for(engine, 0.5))
            noting.cancel()


async def test_a_crash_under_relaxed_durability_rebuilds_the_hot_state(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server writes what was committed to its disk only now and then: the last moment may be lost."""
    with PostgresServer(options={"wal_writer_delay": "10s"}) as server:
        settings = Settings(
            database_url=server.create_database("alone"),
            durability="relaxed",
            worker_heartbeat_interval_seconds=0.5,
            worker_heartbeat_timeout_seconds=2.0,
            orchestrator_sweep_interval_seconds=0.5,
        )
        async with open_engine(settings, REGISTRY) as engine:
            executions = await submit_for(engine, BEFORE_SECONDS)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.start)
            left = await left_of(engine, executions)
            assert left
            await check_ended(engine, left)
            assert incarnations(caplog) == 1


async def test_an_attempt_that_runs_meanwhile_is_adopted_and_not_made_again() -> None:
    with PostgresServer() as server:
        url = server.create_database("alone")
        settings = Settings(
            database_url=url,
            durability="relaxed",
            worker_heartbeat_interval_seconds=0.2,
            worker_heartbeat_timeout_seconds=2.0,
            orchestrator_sweep_interval_seconds=0.2,
        )
        async with open_engine(settings, REGISTRY) as engine:
            config = {"seconds": LONG_SECONDS, "parents": []}
            document = {"name": "long", "nodes": [{"id": "a", "handler": "token", "config": config}]}
            plan = check(document, handlers=REGISTRY).plan
            assert plan is not None
            execution = await engine.submit(plan, document=document)
            await flush(url)
            await asyncio.to_thread(server.stop, immediate=True)
            await asyncio.to_thread(server.start)
            assert await left_of(engine, [execution]) == [execution]
            ended = await engine.wait(execution)
            node = (await engine.ports.catalog.nodes(execution))["a"]
            assert (ended.state, ended.epoch, node.attempt) == (ExecutionState.COMPLETED, 2, 1)


async def test_a_restart_in_good_order_drops_nothing_and_loses_no_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with PostgresServer() as server:
        settings = Settings(database_url=server.create_database("alone"))
        async with open_engine(settings, REGISTRY) as engine:
            executions = await submit_for(engine, BEFORE_SECONDS)
            await asyncio.to_thread(server.stop)
            await asyncio.to_thread(server.start)
            assert await left_of(engine, executions) == executions
            await check_ended(engine, executions)
            assert incarnations(caplog) == 0
            for execution in executions:
                nodes = await engine.ports.catalog.nodes(execution)
                assert {row.attempt for row in nodes.values()} == {1}


def incarnations(caplog: pytest.LogCaptureFixture) -> int:
    """Count how often the hot state was dropped because the database had lost commits."""
    return [record.message for record in caplog.records].count("journal.incarnation")
