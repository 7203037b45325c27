"""Facts of a context about the execution, read from the journal when a function asks for them.

Most functions never ask, so a task does not carry it: it would make every message and every hop longer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.output import output_of
from weft.core.rows import shown_error
from weft.core.snapshot import RowUpdate
from weft.core.state import NodeState
from weft.errors import HandlerError
from weft.handlers.contract import FactsSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from weft.core.attempt import AttemptRef
    from weft.core.rows import NodeRow
    from weft.core.task import Task
    from weft.journal.contract import Journal


class FactsReader(msgspec.Struct, frozen=True, gc=False):
    """Reads the facts of a task's execution: from rows in this process's memory, or from the journal."""

    task: Task
    at_hand: Callable[[AttemptRef], RowUpdate | None]
    # Waits for the journal.
    read: Callable[[], Awaitable[bytes]]

    def held(self) -> Callable[[], bytes] | None:
        """Return a function that writes the facts as they are now; None: the journal has to be asked."""
        rows = self.at_hand(self.task)
        return None if rows is None else partial(_write_facts, self.task, rows, {})


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
    return _write_facts(task, RowUpdate(execution, plan, tuple(rows.values())), blobs)


def _write_facts(task: Task, rows: RowUpdate, blobs: Mapping[str, bytes]) -> bytes:
    """Write as JSON the facts that are in the rows of an execution and of a node's parents."""
    execution, plan = rows.execution, rows.plan
    by_name = {row.node_id: row for row in rows.rows}
    return msgspec.json.encode(
        {
            "input": msgspec.Raw(execution.input),
            "labels": execution.labels,
            "workflow": execution.workflow or plan.definition.name,
            "version": execution.version,
            "is_last_attempt": task.failures >= plan.nodes[task.node_id].max_retries,
            "parents": {
                parent: _parent(by_name.get(parent), blobs) for parent in plan.graph.parents[task.node_id]
            },
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

    def __init__(self, reader: FactsReader | None) -> None:
        super().__init__()
        self._reader = reader
        self._held: Callable[[], bytes] | None = None
        self._loop = asyncio.get_running_loop()

    async def prefetch(self) -> None:
        """Make the facts ready for a coroutine: it runs on the loop, and cannot wait there for the journal.

        Rows in this process's memory are only held: most functions do not ask.
        """
        if self._reader is not None and self.payload is None:
            self._held = self._reader.held()
            if self._held is None:
                self.payload = await self._reader.read()

    def load(self) -> bytes:
        if self._held is not None:
            return self._held()
        if self._reader is None:
            raise HandlerError("this context knows nothing of an execution")
        reading = _as_coroutine(self._reader.read())
        try:
            on_loop = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            on_loop = False
        if not on_loop:
            return asyncio.run_coroutine_threadsafe(reading, self._loop).result()
        return _without_waiting(reading)


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
