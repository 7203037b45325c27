"""weft embedded: the engine within the program, with its journal in SQLite, by the default settings.

The nodes are ``echo`` nodes that pass a number on by a template, as in the other benchmarks. W4 has an
engine with ten slots. The start and end of a node are those that its worker records.

What is on disk when a node is said to be done: its row, synced (WAL, ``synchronous=FULL``).
"""

from __future__ import annotations

import sqlite3
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import uvloop
from tests.support.hold.handler import HANDLER

from bench import graphs
from bench.peers.programs.contract import Reporter, folder, measure
from weft.core.state import ExecutionState
from weft.definition.validation import check
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence


class OnWeft:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._registry = Registry([HANDLER])
        self._open = AsyncExitStack()
        self._engine: Engine | None = None
        self._slots = 0

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        (execution_id,) = self._run(graphs.chain(length))
        assert self._engine is not None
        rows = self._loop.run_until_complete(self._engine.ports.journal.nodes(execution_id))
        times = []
        for i in range(length):
            row = rows[f"n{i}"]
            assert row.started_at is not None
            assert row.finished_at is not None
            times.append((row.started_at / 1e6, row.finished_at / 1e6))
        return times

    def fan(self, width: int) -> None:
        self._run(graphs.fan(width))

    def diamonds(self, count: int) -> None:
        self._run(graphs.diamond(), count)

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        self._run(graphs.sleepers(count, seconds), slots=slots)

    def _run(self, document: dict[str, Any], executions: int = 1, *, slots: int = 64) -> Sequence[str]:
        return self._loop.run_until_complete(self._run_all(document, executions, slots))

    async def _run_all(self, document: dict[str, Any], executions: int, slots: int) -> Sequence[str]:
        if self._slots != slots:
            await self._open.aclose()
            engine = Engine(
                registry=self._registry, settings=Settings(worker_concurrency=slots), data=folder()
            )
            self._engine = await self._open.enter_async_context(engine)
            self._slots = slots
        assert self._engine is not None
        plan = check(document, handlers=self._registry).plan
        assert plan is not None
        ids = await self._engine.submit_many(plan, document=document, inputs=[None] * executions)
        ended = [await self._engine.wait(execution_id) for execution_id in ids]
        assert all(row.state is ExecutionState.COMPLETED for row in ended)
        return ids

    def close(self) -> None:
        self._loop.run_until_complete(self._open.aclose())


def main() -> None:
    reporter = Reporter()
    peer = OnWeft(uvloop.new_event_loop())
    versions = {"weft": version("weft"), "sqlite": sqlite3.sqlite_version}
    measure(peer, reporter, versions=versions)
    peer.close()


if __name__ == "__main__":
    main()
