"""What a context knows of the execution around its attempt, read from the journal when a function asks.

Most functions never ask, so a task does not carry it: it would make every message and every hop longer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.output import output_of
from weft.core.rows import shown_error
from weft.core.state import NodeState
from weft.errors import HandlerError
from weft.handlers.contract import FactsSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from weft.core.rows import NodeRow
    from weft.core.task import Task
    from weft.journal.contract import Journal


async def read_facts(task: Task, journal: Journal) -> bytes:
    """Return, as JSON, the facts of the execution that a task belongs to and of the node's parents."""
    execution = await journal.execution(task.execution_id)
    plan = await journal.plan(task.digest)
    if execution is None or plan is None:
        raise HandlerError(f"execution {task.execution_id} is no longer in the journal")
    parents = plan.graph.parents[task.node_id]
    rows = await journal.nodes(task.execution_id, names=parents) if parents else {}
    names = [row.blob for row in rows.values() if row.blob is not None]
    blobs = await journal.blobs(names) if names else {}
    return msgspec.json.encode(
        {
            "input": msgspec.Raw(execution.input),
            "labels": execution.labels,
            "workflow": execution.workflow or plan.definition.name,
            "version": execution.version,
            "is_last_attempt": task.failures >= plan.nodes[task.node_id].max_retries,
            "parents": {parent: _parent(rows.get(parent), blobs) for parent in parents},
        }
    )


def _parent(row: NodeRow | None, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    if row is None or row.state is None:
        # Not settled, as under `one_success`; where it stands only the store knows.
        return {"state": NodeState.PENDING, "output": None, "error": None}
    output = output_of(row, blobs.__getitem__) if row.state is NodeState.COMPLETED else None
    return {
        "state": row.state,
        "output": None if output is None else msgspec.Raw(output),
        "error": shown_error(row.error),
    }


class LoopFacts(FactsSource):
    """Facts for a call in this process, whose journal answers on the loop of the engine."""

    def __init__(self, read: Callable[[], Awaitable[bytes]] | None) -> None:
        super().__init__()
        self._read = read
        self._loop = asyncio.get_running_loop()

    async def prefetch(self) -> None:
        """Read the facts for a coroutine: it runs on the loop, and cannot wait there for the journal."""
        if self._read is not None and self.payload is None:
            self.payload = await self._read()

    def load(self) -> bytes:
        if self._read is None:
            raise HandlerError("this context knows nothing of an execution")
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if not on_loop:
            return asyncio.run_coroutine_threadsafe(_as_coroutine(self._read()), self._loop).result()
        return _without_waiting(_as_coroutine(self._read()))


async def _as_coroutine(reading: Awaitable[bytes]) -> bytes:
    return await reading


def _without_waiting(reading: Coroutine[Any, Any, bytes]) -> bytes:
    """Run a coroutine that does not suspend, as those of a journal in memory do not."""
    try:
        reading.send(None)
    except StopIteration as ended:
        return bytes(ended.value)
    reading.close()
    raise HandlerError(
        "the context cannot read the journal on the event loop; declare the function with `async def`"
    )
