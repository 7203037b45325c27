"""What one hop costs in source files and Python calls, in the embedded engine and in a fleet.

A hop is all that happens for one node in the middle of a chain of ``echo`` nodes: the result of its parent is
read and committed, the node's task is made and dispatched, the worker takes it, runs it and reports. It is
traced with a profile function on every thread, as the difference between a chain of 120 nodes and one of 20,
divided by 100: what happens once for an execution falls out. A call is an entry of a function of ``weft``,
and each time that a coroutine of it is resumed. A file counts where at least one call in two hops is in it:
sweeps and heartbeats are left out. In the fleet, orchestrator and worker run in this process on a real Redis
and PostgreSQL, and their calls are summed; the API has no part in a hop.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis import RedisServer

import weft
from bench import graphs
from bench.figure import Figure, at_most
from bench.run import run_loop
from weft.core.payload import encode
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.journal.postgres.connection import SCHEMA, Connection
from weft.journal.postgres.schema import migrate
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, submit
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

_SHORT, _LONG = 20, 120
_PACKAGE = str(Path(weft.__file__).parent)


def hops() -> Iterator[Figure]:
    """Files and calls of one hop, embedded and in a fleet."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path(__file__).parent))
    try:
        yield from _figures("embedded", embedded_hop(folder), files=22, calls=160)
    finally:
        shutil.rmtree(folder)
    with RedisServer() as redis, PostgresServer() as postgres:
        settings = Settings(redis_url=redis.url, database_url=postgres.create_database("weft"))
        yield from _figures("fleet", fleet_hop(settings), files=30, calls=320)


def _figures(where: str, hop: dict[str, float], *, files: int, calls: int) -> Iterator[Figure]:
    yield Figure(workload="hops", what=f"{where}: files", value=len(hop), unit="a hop", target=at_most(files))
    value = sum(hop.values())
    yield Figure(workload="hops", what=f"{where}: calls", value=value, unit="a hop", target=at_most(calls))


def embedded_hop(folder: Path) -> dict[str, float]:
    """Return the calls of one hop of an embedded engine, by file."""
    return _traced(lambda calls: _embedded(folder, calls))


def fleet_hop(settings: Settings) -> dict[str, float]:
    """Return the calls of one hop of a fleet, by file."""
    return _traced(lambda calls: _fleet(settings, calls))


def _traced(work: Callable[[Counter[str]], Awaitable[list[Counter[str]]]]) -> dict[str, float]:
    """Return the calls of one hop, by file below the package."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            calls[frame.f_code.co_filename] += 1

    async def main() -> list[Counter[str]]:
        return await work(calls)

    # Threads that are started from now on, and this one.
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        short, long = run_loop(main())
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    nodes = _LONG - _SHORT
    more = {str(Path(name).relative_to(_PACKAGE)): long[name] - short[name] for name in long}
    return {name: count / nodes for name, count in more.items() if count * 2 >= nodes}


async def _embedded(folder: Path, calls: Counter[str]) -> list[Counter[str]]:
    counts = []
    async with Engine(registry=Registry(), settings=Settings(), data=folder) as engine:
        for length in (_SHORT, _SHORT, _LONG):  # the first loads what is loaded once
            document = graphs.chain(length)
            plan = compile_plan(document)
            before = Counter(calls)
            await engine.wait(await engine.submit(plan, document=document))
            counts.append(calls - before)
    return counts[1:]


async def _fleet(settings: Settings, calls: Counter[str]) -> list[Counter[str]]:
    assert settings.database_url is not None
    await migrate(settings.database_url)
    counts = []
    roles = {"orchestrator", "worker"}
    connection = await asyncpg.connect(settings.database_url)
    async with Fleet(settings, registry=Registry(), roles=roles) as fleet:
        await fleet.started()
        for length in (_SHORT, _SHORT, _LONG):
            document = graphs.chain(length)
            source = ResolvedDefinition(
                plan=compile_plan(document), document=encode(document, max_bytes=10**7)
            )
            submission = make_submission(fleet.ports.new_id(), source, b"{}", SubmitOptions())
            before = Counter(calls)
            await submit([submission], fleet.ports)
            await _end(connection, submission.id)
            counts.append(calls - before)
    await connection.close()
    return counts[1:]


async def _end(connection: Connection, execution_id: str) -> None:
    """Return once an execution is terminal. The query is no call of ``weft``: a slow machine asks often."""
    query = f"SELECT finished_at FROM {SCHEMA}.progress WHERE id = $1"
    while True:
        if await connection.fetchval(query, execution_id) is not None:
            return
        await asyncio.sleep(0.1)
