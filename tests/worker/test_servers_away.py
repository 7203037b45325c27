"""A worker whose PostgreSQL is away keeps its attempts; a member whose Redis is away stops all the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.journal.test_sqlite import file_size_limit

from weft.core.payload import encode
from weft.core.plan import compile_plan
from weft.core.state import ExecutionState
from weft.embedded import Engine
from weft.fleet import Fleet
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.orchestrator.submit import Manner, Source, make_submission, submit
from weft.settings import Settings
from weft.testing.fault_proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from weft.core.row import ExecutionRow

PATIENCE_SECONDS = 30.0
LEASE_SECONDS = 1.5
# More than travels in a message: it lies in PostgreSQL.
LARGE = "x" * 300_000


class Members:
    """An orchestrator, and a worker that reaches PostgreSQL and Redis through proxies."""

    def __init__(self, orchestrator: Fleet, worker: Fleet, postgres: FaultProxy, redis: FaultProxy) -> None:
        self.orchestrator = orchestrator
        self.worker = worker
        self.postgres = postgres
        self.redis = redis
        # The nodes whose handler ``counted`` was called, in order.
        self.calls: list[str] = []

    async def counted(self, config: Any, context: HandlerContext) -> str:
        """Return what is too large for a message."""
        self.calls.append(context.node_id)
        return LARGE

    async def start(self, *nodes: dict[str, Any]) -> str:
        document = {"name": "flow", "nodes": list(nodes)}
        source = Source(plan=compile_plan(document), document=encode(document, max_bytes=10**6))
        ports = self.orchestrator.ports
        submission = make_submission(ports.new_id(), source, b"{}", Manner())
        (row,) = await submit([submission], ports)
        return row.id

    async def ended(self, execution_id: str) -> ExecutionRow:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                row = await self.orchestrator.ports.journal.execution(execution_id)
                assert row is not None
                if row.is_terminal:
                    return row
                await asyncio.sleep(0.01)

    async def attempts(self, execution_id: str) -> dict[str, int]:
        rows = await self.orchestrator.ports.journal.nodes(execution_id)
        return {name: row.attempt for name, row in rows.items()}


async def until(is_true: Callable[[], bool]) -> None:
    """Return once something is true that no event announces."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110 - the proxy's thread and the worker are looked at
            await asyncio.sleep(0.01)


@pytest.fixture
async def members(redis_url: str, journal_url: str) -> AsyncIterator[Members]:
    async with having(redis_url, journal_url) as members:
        yield members


@asynccontextmanager
async def having(redis_url: str, journal_url: str, **settings: Any) -> AsyncIterator[Members]:
    async with AsyncExitStack() as ends:
        postgres = ends.enter_context(FaultProxy(journal_url))
        redis = ends.enter_context(FaultProxy(redis_url))
        # The proxies pass everything on before the members stop.
        given = {
            "worker_heartbeat_interval_seconds": 0.2,
            "worker_heartbeat_timeout_seconds": LEASE_SECONDS,
            "orchestrator_sweep_interval_seconds": 0.2,
            "worker_grace_seconds": 0.1,
            **settings,
        }
        fleets = []
        registry = Registry()
        for role, redis_at, postgres_at in (
            ("orchestrator", redis_url, journal_url),
            ("worker", redis.url, postgres.url),
        ):
            fleet = Fleet(
                Settings(redis_url=redis_at, database_url=postgres_at, **given),
                registry=registry,
                roles={role},
            )
            fleets.append(await ends.enter_async_context(fleet))
        ends.callback(postgres.heal)
        ends.callback(redis.heal)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for fleet in fleets:
                await fleet.started()
        members = Members(fleets[0], fleets[1], postgres, redis)
        registry.add(Handler("counted", HandlerKind.NATIVE, members.counted))
        yield members


class TestPostgresAway:
    async def test_a_large_config_is_read_again_for_as_long_as_the_lease_holds(
        self, members: Members
    ) -> None:
        """Two leases pass without PostgreSQL, and the attempt is still the first."""
        members.postgres.refuse()
        members.postgres.reset()
        execution = await members.start(
            {"id": "a", "handler": "sleep", "config": {"seconds": 0, "text": LARGE}}
        )
        tried = len(members.postgres.attempts)
        await until(lambda: len(members.postgres.attempts) > tried + 3)
        members.postgres.heal()
        assert (await members.ended(execution)).state is ExecutionState.COMPLETED
        assert await members.attempts(execution) == {"a": 1}

    async def test_a_large_output_is_written_again_for_as_long_as_the_lease_holds(
        self, members: Members
    ) -> None:
        """The handler ran once; what it returned waits in the worker until PostgreSQL takes it."""
        execution = await members.start(
            {"id": "a", "handler": "sleep", "config": {"seconds": 0.2}},
            {"id": "b", "handler": "counted", "dependencies": ["a"]},
        )
        members.postgres.refuse()
        members.postgres.reset()
        tried = len(members.postgres.attempts)
        await until(lambda: len(members.postgres.attempts) > tried + 3)
        members.postgres.heal()
        assert (await members.ended(execution)).state is ExecutionState.COMPLETED
        assert await members.attempts(execution) == {"a": 1, "b": 1}
        assert members.calls == ["b"]


async def test_an_engine_whose_disk_is_full_holds_its_leases_and_goes_on_with_the_rest(
    tmp_path: Path,
) -> None:
    """The output of an instant handler that is too large for a row waits beside the fetch loop, not in it."""
    filled = asyncio.Event()

    async def wait(config: Any, context: Any) -> None:
        await filled.wait()

    registry = Registry()
    registry.add(Handler("wait", HandlerKind.NATIVE, wait))
    document: dict[str, Any] = {
        "name": "flow",
        "nodes": [
            {"id": "gate", "handler": "wait"},
            {"id": "large", "handler": "echo", "dependencies": ["gate"], "config": ["{{ input.text }}"] * 7},
            {"id": "small", "handler": "echo", "dependencies": ["gate"]},
            {"id": "after", "handler": "echo", "dependencies": ["small"]},
        ],
    }
    settings = Settings(
        worker_heartbeat_interval_seconds=0.1,
        worker_heartbeat_timeout_seconds=0.5,
        orchestrator_sweep_interval_seconds=0.1,
        worker_grace_seconds=0.0,
    )
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        Engine(registry=registry, settings=settings, data=tmp_path) as engine,
    ):
        execution = await engine.submit(
            compile_plan(document), document=document, input={"text": "x" * 100_000}
        )
        # No file has room for an output of 700,000 bytes; the log has room for small rows.
        with file_size_limit(600_000):
            filled.set()
            settled: set[str] = set()
            while "after" not in settled:
                await asyncio.sleep(0.01)
                settled = set(await engine.ports.journal.nodes(execution))
            # Three leases: the sweep has looked for what is lost.
            await asyncio.sleep(1.5)
            assert "large" not in await engine.ports.journal.nodes(execution)
        assert (await engine.wait(execution)).state is ExecutionState.COMPLETED
        rows = await engine.ports.journal.nodes(execution)
        assert {name: row.attempt for name, row in rows.items()} == dict.fromkeys(rows, 1)
