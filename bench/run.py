"""Executions on the embedded engine, timed from the submit to the last terminal state."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop
from tests.support.hold.handler import HANDLER

from weft.core.state import ExecutionState
from weft.definition.validation import check
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from weft.core.rows import NodeRow

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    # Of all threads of the process: what does not depend on who else uses the machine.
    cpu_seconds: float
    nodes: int
    # The rows of each execution, by node.
    rows: Sequence[Mapping[str, NodeRow]]

    @property
    def nodes_per_second(self) -> float:
        return self.nodes / self.seconds

    @property
    def cpu_per_node(self) -> float:
        return self.cpu_seconds / self.nodes


def run(document: dict[str, Any], *, executions: int = 1, durable: bool = True, concurrency: int = 64) -> Run:
    """Run a definition so many times at once. Durable: on a SQLite journal in a folder of its own."""
    # Beside the sources and not in /tmp, which may be a file system in memory.
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path(__file__).parent)) if durable else None
    try:
        return run_loop(_run(document, executions, folder, concurrency))
    finally:
        if folder is not None:
            shutil.rmtree(folder)


def run_loop(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine as ``weft`` does."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def _run(document: dict[str, Any], executions: int, folder: Path | None, concurrency: int) -> Run:
    registry = Registry([HANDLER])
    plan = check(document, handlers=registry).plan
    assert plan is not None
    settings = Settings(worker_concurrency=concurrency)
    async with Engine(registry=registry, settings=settings, data=folder) as engine:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        ids = await engine.submit_many(plan, document=document, inputs=[None] * executions)
        # The waits end in some order; the last of them is the end.
        ended = [await engine.wait(execution_id) for execution_id in ids]
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
        assert all(row.state is ExecutionState.COMPLETED for row in ended)
        rows = [await engine.ports.journal.nodes(execution_id) for execution_id in ids]
    return Run(seconds, cpu_seconds, len(plan.nodes) * executions, rows)
