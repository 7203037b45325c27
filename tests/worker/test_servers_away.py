"""A worker whose PostgreSQL is away keeps its attempts; a member whose Redis is away stops all the same."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from tests.journal.sqlite.test_journal import file_size_limit
from tests.support.fault_proxy import FaultProxy
from tests.support.hold.handler import HANDLER

from weft.clock import new_id
from weft.core.payload import encode
from weft.core.state import ExecutionState
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.fleet import Fleet
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, submit
from weft.settings import Settings
from weft.worker.service import begin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from tests.support.servers.redis import RedisServer

    from weft.core.rows import ExecutionRow
    from weft.worker.service import Worker

PATIENCE_SECONDS = 30.0
LEASE_SECONDS = 1.5
# More than travels in a message: it lies in PostgreSQL.
LARGE = "x" * 300_000


class Members:
    """An orchestrator and a worker behind proxies for Redis; the worker also has one for PostgreSQL."""

    def __init__(self, fleets: Mapping[str, Fleet], proxies: Mapping[str, FaultProxy]) -> None:
        self.fleets = fleets
        self.orchestrator = fleets["orchestrator"]
        # Before Redis, by role.
        self.proxies = proxies
        self.postgres = proxies["postgres"]
        # The nodes whose handler ``counted`` was called, in order.
        self.calls: list[str] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def gated(self, config: Any, context: HandlerContext) -> None:
        self.begun.set()
        await self.gate.wait()

    async def counted(self, config: Any, context: HandlerContext) -> str:
        """Return what is too large for a message."""
        self.calls.append(context.node_id)
        return LARGE

    @property
    def worker(self) -> Worker:
        worker = self.fleets["worker"].worker
        assert worker is not None
        return worker

    async def start(self, *nodes: dict[str, Any], execution_id: str | None = None) -> str:
        document = {"name": "flow", "nodes": list(nodes)}
        source = ResolvedDefinition(plan=compile_plan(document), document=encode(document, max_bytes=10**6))
        ports = self.orchestrator.ports
        submission = make_submission(execution_id or ports.new_id(), source, b"{}", SubmitOptions())
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
    given = {
        "worker_heartbeat_interval_seconds": 0.2,
        "worker_heartbeat_timeout_seconds": LEASE_SECONDS,
        "orchestrator_sweep_interval_seconds": 0.2,
        "worker_grace_seconds": 0.1,
        **settings,
    }
    urls = {"postgres": journal_url, "orchestrator": redis_url, "worker": redis_url}
    async with AsyncExitStack() as ends:
        proxies = {name: ends.enter_context(FaultProxy(url)) for name, url in urls.items()}
        registry = Registry()
        registry.add(HANDLER)
        fleets = {}
        for role, postgres_url in (("orchestrator", journal_url), ("worker", proxies["postgres"].url)):
            member = Settings(redis_url=proxies[role].url, database_url=postgres_url, **given)
            fleet = Fleet(member, registry=registry, roles={role})
            fleets[role] = await ends.enter_async_context(fleet)
        members = Members(fleets, proxies)
        registry.add(Handler("counted", HandlerKind.NATIVE, members.counted))
        registry.add(Handler("gated", HandlerKind.NATIVE, members.gated))
        for proxy in proxies.values():
            # Before the members stop.
            ends.callback(proxy.heal)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for fleet in fleets.values():
                await fleet.started()
        yield members


class TestPostgresAway:
    async def test_a_large_config_is_read_again_for_as_long_as_the_lease_holds(
        self, members: Members
    ) -> None:
        """Two leases pass without PostgreSQL, and the attempt is still the first."""
        members.postgres.refuse()
        members.postgres.reset()
        execution = await members.start(
            {"id": "a", "handler": "hold", "config": {"seconds": 0, "text": LARGE}}
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
            {"id": "a", "handler": "hold", "config": {"seconds": 0.2}},
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


# Redis is taken to be away when it has not answered for ten seconds: a stop does not wait for that.
GRACE_SECONDS, STOP_SECONDS = 1.0, 8.0
GATED = {"id": "a", "handler": "gated"}


class TestStopWithoutRedis:
    @pytest.fixture
    async def members(self, private_redis: RedisServer, journal_url: str) -> AsyncIterator[Members]:
        long = {"worker_heartbeat_timeout_seconds": 20.0, "worker_grace_seconds": GRACE_SECONDS}
        async with having(private_redis.url, journal_url, **long) as members:
            yield members

    @pytest.mark.parametrize("role", ["orchestrator", "worker"])
    async def test_a_member_whose_redis_is_silent_ends_within_the_grace_time(
        self, members: Members, role: str
    ) -> None:
        await members.start(GATED)
        await members.begun.wait()
        members.proxies[role].blackhole()
        assert await ends_in_time(members.fleets[role])

    async def test_a_worker_whose_start_is_refused_ends_within_the_grace_time(
        self, members: Members, private_redis: RedisServer
    ) -> None:
        """The worker asks for a start until there is an answer, but not beyond its own end."""
        execution_id = new_id()
        asked = members.proxies["worker"].reset_on(execution_id.encode(), delivered=False)
        await members.start(GATED, execution_id=execution_id)
        await until(asked.is_set)
        refuse_writes(private_redis)
        assert await ends_in_time(members.fleets["worker"])
        assert not members.begun.is_set()

    async def test_an_orchestrator_whose_writes_are_refused_ends_within_the_grace_time(
        self, members: Members, private_redis: RedisServer
    ) -> None:
        await members.start(GATED)
        await members.begun.wait()
        refuse_writes(private_redis)
        assert await ends_in_time(members.orchestrator)


async def test_a_result_is_reported_by_a_worker_that_stops_once_redis_takes_writes_again(
    private_redis: RedisServer, journal_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The grace time is for this too: the attempt has ended, and only its report is refused."""
    long = {"worker_heartbeat_timeout_seconds": 20.0, "worker_grace_seconds": 20.0}
    async with having(private_redis.url, journal_url, **long) as members:
        execution = await members.start(GATED)
        await members.begun.wait()
        stopping = asyncio.create_task(members.fleets["worker"].drain())
        await until(lambda: members.worker.fault() is not None)
        refuse_writes(private_redis)
        members.gate.set()
        await until(lambda: any(one.name == "weft.worker" for one in caplog.records))
        private_redis.execute("CONFIG", "SET", "maxmemory", "0")
        await stopping
        assert (await members.ended(execution)).state is ExecutionState.COMPLETED
        assert await members.attempts(execution) == {"a": 1}


@pytest.mark.parametrize("delivered", [False, True])
async def test_the_result_of_an_instant_handler_is_reported_again_where_its_report_is_lost(
    members: Members, delivered: bool
) -> None:
    """The worker holds the attempt until Redis has its result; the number of the attempt stays."""
    cut = members.proxies["worker"].reset_on(b"in the report alone", delivered=delivered)
    execution = await members.start(
        {"id": "a", "handler": "echo", "config": "in the report alone"},
        {"id": "b", "handler": "echo", "dependencies": ["a"], "config": "{{ a }}"},
    )
    assert (await members.ended(execution)).state is ExecutionState.COMPLETED
    assert cut.is_set()
    assert await members.attempts(execution) == {"a": 1, "b": 1}


async def test_what_was_started_beside_an_unknown_execution_is_kept_where_its_wake_is_lost(
    redis_url: str, journal_url: str
) -> None:
    """The store does not know the second execution, and Redis is gone when its rebuild is asked for."""
    unknown = "0" * 64
    with FaultProxy(redis_url) as proxy:
        settings = Settings(redis_url=proxy.url, database_url=journal_url)
        async with Fleet(settings, registry=Registry(), roles={"orchestrator"}) as fleet:
            await fleet.started()
            ports, members = fleet.ports, Members({"orchestrator": fleet}, {"postgres": proxy})
            await members.start({"id": "a", "handler": "echo"})
            fetch = partial(ports.transport.fetch, "w", queues=None, limit=10, wait_seconds=PATIENCE_SECONDS)
            (known,) = await fetch()
            await ports.transport.send([replace(known.task, execution_id=new_id(), digest=unknown)])
            cut = proxy.reset_on(unknown.encode(), delivered=False)
            ours = await begin([known, *await fetch()], ports, worker="w")
            assert cut.is_set()
            assert [task for task, _, _ in ours] == [known.task]


async def ends_in_time(fleet: Fleet) -> bool:
    """True if a member that is told to stop has stopped long before Redis is taken to be away."""
    # A timeout would not do: whoever stops swallows the cancellation of what it waits for.
    done, _ = await asyncio.wait([asyncio.create_task(fleet.drain())], timeout=STOP_SECONDS)
    return bool(done)


def refuse_writes(server: RedisServer) -> None:
    """Have Redis answer every write that needs memory with an error, as it does when it is full."""
    server.execute("CONFIG", "SET", "maxmemory", "1")


async def test_an_engine_whose_disk_is_full_holds_its_leases_and_goes_on_with_the_rest(
    tmp_path: Path,
) -> None:
    """The output of an instant handler that is too large for a row waits beside the fetch loop, not in it."""
    filled, begun = asyncio.Event(), asyncio.Event()

    async def hold(config: Any, context: Any) -> None:
        await filled.wait()

    async def begin(config: Any, context: Any) -> None:
        begun.set()

    registry = Registry()
    registry.add(Handler("hold", HandlerKind.NATIVE, hold))
    registry.add(Handler("begin", HandlerKind.NATIVE, begin))
    document: dict[str, Any] = {
        "name": "flow",
        "nodes": [
            {"id": "gate", "handler": "hold"},
            {"id": "large", "handler": "echo", "dependencies": ["gate"], "config": ["{{ input.text }}"] * 10},
            {"id": "small", "handler": "begin", "dependencies": ["gate"]},
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
            compile_plan(document), document=document, input={"text": "x" * 600_000}
        )
        # No file has room for an output of 6 MB; the log has room for small rows.
        with file_size_limit(4_000_000):
            filled.set()
            await begun.wait()
            # Three leases: the sweep has looked for what is lost.
            await asyncio.sleep(1.5)
            assert "large" not in await engine.ports.journal.nodes(execution)
        assert (await engine.wait(execution)).state is ExecutionState.COMPLETED
        rows = await engine.ports.journal.nodes(execution)
        assert {name: row.attempt for name, row in rows.items()} == dict.fromkeys(rows, 1)
