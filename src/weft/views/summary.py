"""Executions and batches without their nodes: what is shown of one costs the same, whatever its size."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.core.payload import decode
from weft.core.rows import shown_error
from weft.core.state import NodeState
from weft.core.time import rfc3339
from weft.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.rows import ExecutionRow, NodeProgress
    from weft.journal.contract import Batch
    from weft.ports import ApiPorts, Ports

# How a payload is shown: read into a value, or as the text it is, where that goes into JSON again.
Show: TypeAlias = Callable[[bytes], Any]

# Of an execution that was submitted just now, and of one that the store has nothing of.
NOTHING_IN_FLIGHT = (0, 0)


async def summarise(
    execution_id: str, ports: ApiPorts, *, namespace: str | None = None, show: Show = decode
) -> dict[str, Any] | None:
    """Show an execution without its nodes; None where there is none."""
    # The store first: a node that leaves it meanwhile is counted as settled by then.
    (in_flight,) = await in_flight_of([execution_id], ports)
    row = await ports.catalog.execution(execution_id, namespace=namespace)
    return None if row is None else summary(row, in_flight, trace_id=ports.trace_id(row), show=show)


async def summarise_all(rows: Sequence[ExecutionRow], ports: Ports) -> list[dict[str, Any]]:
    """Show executions as a list does: without nodes, input and output."""
    in_flight = await in_flight_of([row.id for row in rows], ports)
    return [
        summary(row, counted, trace_id=ports.trace_id(row), show=None)
        for row, counted in zip(rows, in_flight, strict=True)
    ]


async def in_flight_of(execution_ids: Sequence[str], ports: Ports) -> Sequence[tuple[int, int] | None]:
    """Count what the store has in flight of each; without the store nothing is known, and nothing fails."""
    try:
        return await ports.store.in_flight(execution_ids)
    except StoreError:
        return [None] * len(execution_ids)


def summary(
    row: ExecutionRow, in_flight: tuple[int, int] | None, *, trace_id: str | None, show: Show | None
) -> dict[str, Any]:
    """Show a row; ``in_flight`` is what the store counts, ``show`` how payloads are shown (None: not)."""
    live = row.is_terminal or in_flight is not None
    counts = counts_of(row, in_flight or NOTHING_IN_FLIGHT)
    return execution_fields(row, counts, trace_id=trace_id, live=live, show=show)


def execution_fields(
    row: ExecutionRow,
    counts: Mapping[NodeState, int],
    *,
    trace_id: str | None,
    live: bool,
    show: Show | None,
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": row.id,
        "workflow": row.workflow,
        "version": row.version,
        "digest": row.digest,
        "generation": row.generation,
        "state": row.state,
        "live": live,
    }
    if show is not None:
        shown["input"] = show(row.input)
        shown["output"] = None if row.output is None else show(row.output)
    shown["error"] = shown_error(row.error)
    shown["labels"] = row.labels
    shown["priority"] = row.priority
    shown["batch"] = row.batch
    shown["trigger"] = row.trigger
    shown["group"] = row.group_name
    shown["parent"] = _parent(row)
    shown["forked_from"] = row.forked_from
    shown["trace_id"] = trace_id
    shown["created_at"] = time_of(row.created_at)
    shown["started_at"] = time_of(row.started_at)
    shown["finished_at"] = time_of(row.finished_at)
    shown["counts"] = counts
    return shown


def _parent(row: ExecutionRow) -> dict[str, Any] | None:
    """Show for which node an execution runs; None: it is no child."""
    if row.parent is None:
        return None
    return {
        "execution": row.parent.execution,
        "node": row.parent.node,
        "index": row.parent.index,
        "generation": row.parent.generation,
    }


def counts_of(row: ExecutionRow, in_flight: tuple[int, int]) -> dict[NodeState, int]:
    """Count nodes by state: they add up, also where row and store were read at different moments."""
    queued, running = in_flight
    waiting = min(row.waiting, row.unsettled)
    running = min(running, row.unsettled - waiting)
    queued = min(queued, row.unsettled - waiting - running)
    return {
        NodeState.PENDING: row.unsettled - queued - running - waiting,
        NodeState.QUEUED: queued,
        NodeState.RUNNING: running,
        NodeState.WAITING: waiting,
        NodeState.COMPLETED: row.completed,
        NodeState.FAILED: row.failed,
        NodeState.SKIPPED: row.skipped,
        NodeState.CANCELLED: row.cancelled,
    }


def batch_fields(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.id,
        "workflow": batch.workflow,
        "version": batch.version,
        "state": "RUNNING" if batch.finished_at is None else "COMPLETED",
        "total": batch.total,
        "counts": batch.counts,
        "retried": batch.retried,
        "created_at": time_of(batch.created_at),
        "finished_at": time_of(batch.finished_at),
    }


def result_fields(index: int, row: ExecutionRow, *, show: Show = decode) -> dict[str, Any]:
    """Show what came of one input of a batch."""
    return {
        "index": index,
        "execution": row.id,
        "state": row.state,
        "output": None if row.output is None else show(row.output),
        "error": shown_error(row.error),
    }


def time_of(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)


def progress_of(progress: NodeProgress) -> dict[str, Any]:
    """Show how far an attempt has come."""
    return {
        "done": progress.done,
        "total": progress.total,
        "message": progress.message,
        "at": time_of(progress.at),
    }
