"""A completion that the store takes before the journal: as the row that children see, and as its event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.definition import Delivery
from weft.core.event import Event, NodeCompleted
from weft.core.row import NodeRow
from weft.core.state import NodeState

if TYPE_CHECKING:
    from typing import TypeGuard

    from weft.core.plan import Plan

# Times beyond this are no times, and not every journal could store them.
_MAX_TIME = 2**53


def is_plain(event: Event, plan: Plan) -> TypeGuard[NodeCompleted]:
    """Say whether an event may wait for a checkpoint: it completes a node, and does nothing else.

    Not where the node must not run again: its result, once lost, could not be had a second time. Not where a
    cache is filled. And nothing that a journal might refuse to store: once children have started on a
    completion, it can no longer become a failure.
    """
    return (
        isinstance(event, NodeCompleted)
        and event.cache_key is None
        and plan.nodes[event.node_id].delivery is not Delivery.AT_MOST_ONCE
        and (event.worker or "").isascii()
        and (event.blob or "").isascii()
        and all(0 <= (at or 0) < _MAX_TIME for at in (event.queued_at, event.started_at, event.finished_at))
    )


def settled_row(event: NodeCompleted) -> NodeRow:
    """Make the row that a completion will be, as far as its dependents see it; no event has made it yet."""
    return NodeRow(
        node_id=event.node_id,
        attempt=event.attempt,
        ended=event.attempt,
        answered=event.attempt,
        state=NodeState.COMPLETED,
        generation=event.generation,
        output=event.output,
        blob=event.blob,
        output_bytes=event.output_bytes,
        worker=event.worker,
        queued_at=event.queued_at,
        started_at=event.started_at,
        finished_at=event.finished_at,
    )


def taken_at(row: NodeRow, now: int) -> NodeRow:
    """Hold queued ≤ started ≤ finished ≤ now, on the clock of the store that takes it.

    What is freed by it is started by that clock, perhaps long before the journal hears of it.
    """
    if row.finished_at is None or row.finished_at <= now:
        return row
    started_at = None if row.started_at is None else min(row.started_at, now)
    queued_at = None if row.queued_at is None else min(row.queued_at, now)
    return replace(row, queued_at=queued_at, started_at=started_at, finished_at=now)


def completion(execution_id: str, row: NodeRow, *, asked: int) -> NodeCompleted:
    """Make the event again that a row was made of, for the journal."""
    assert row.output_bytes is not None
    return NodeCompleted(
        execution_id=execution_id,
        generation=row.generation,
        asked=asked,
        node_id=row.node_id,
        attempt=row.attempt,
        worker=row.worker,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        output=row.output,
        blob=row.blob,
        output_bytes=row.output_bytes,
    )
