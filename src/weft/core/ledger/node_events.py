"""Applies accepted events to the rows of their nodes: a result, a lost attempt, a skip, an issued attempt.

The fence has accepted the event: the attempt is current and the node is unsettled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.event import NodeFailed, NodeSkipped, Skip
from weft.core.ledger.settle import has_handler_in, skip_nodes, stop_if_fatal
from weft.core.readiness import has_failed
from weft.core.rows import DeadLetter, NodeRow, Parked, Polled, completion_event, digest_of
from weft.core.skip_propagation import skips_behind_failure
from weft.core.state import NodeState, Reason
from weft.core.time import micros
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.event import (
        AttemptFailed,
        AttemptLost,
        AttemptParked,
        AttemptPolled,
        NodeCached,
        NodeCompleted,
    )
    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import ExecutionRow

# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_COMPLETED, _ONE_FAILED = NodeState.COMPLETED, TriggerRule.ONE_FAILED


def node_completed(changes: Changes, event: NodeCompleted, change: Change, row: NodeRow) -> NodeRow:
    execution, now = change.row, changes.now
    queued_at, started_at, finished_at = changes.times(event)
    execution.seq = seq = execution.seq + 1
    execution.updated_at = now
    if row.error is not None or row.retry_at is not None or row.parked is not None:
        row = replace(row, error=None, retry_at=None, parked=None, polled=None)
    # Most events are completions. Not NodeRow(…), and no more keywords: Python packs more than 14 beside an
    # argument into a dict, which takes longer than the rest.
    done = replace(
        row,
        ended=event.attempt,
        answered=event.attempt,
        state=_COMPLETED,
        generation=execution.generation,
        output=event.output,
        blob=event.blob,
        output_bytes=event.output_bytes,
        worker=event.worker,
        queued_at=queued_at,
        started_at=started_at,
        finished_at=finished_at,
        seq=seq,
        recorded_at=now,
    )
    if event.cache_key is not None:
        _put_cache(changes, change, event.cache_key, done)
    return _complete(changes, change, row, done)


def node_cached(changes: Changes, event: NodeCached, change: Change, row: NodeRow) -> NodeRow:
    execution = change.row
    execution.seq = seq = execution.seq + 1
    execution.updated_at = changes.now
    done = replace(
        row,
        state=NodeState.COMPLETED,
        generation=execution.generation,
        output=event.output,
        output_bytes=len(event.output),
        cached=True,
        # Of an attempt that failed before the hit.
        error=None,
        retry_at=None,
        worker=None,
        queued_at=changes.now,
        started_at=changes.now,
        finished_at=changes.now,
        seq=seq,
        recorded_at=changes.now,
    )
    return _complete(changes, change, row, done)


def node_reused(changes: Changes, change: Change, kept: NodeRow) -> None:
    """Settle a node of a new execution as it is settled in the execution that was forked."""
    execution, node_id = change.row, kept.node_id
    new = NodeRow(node_id=node_id)
    if kept.state is NodeState.SKIPPED:
        seq = changes.note(
            execution, "node.skipped", node=node_id, state=kept.state, reason=kept.reason, cause=kept.cause
        )
        skipped = replace(new, state=kept.state, reason=kept.reason, cause=kept.cause, reused=True, seq=seq)
        changes.put(change, new, skipped)
        execution.unsettled -= 1
        execution.skipped += 1
        return
    assert kept.state is NodeState.COMPLETED
    execution.seq = seq = execution.seq + 1
    done = replace(
        new,
        state=kept.state,
        output=kept.output,
        blob=kept.blob,
        output_bytes=kept.output_bytes,
        reused=True,
        queued_at=changes.now,
        started_at=changes.now,
        finished_at=changes.now,
        seq=seq,
        recorded_at=changes.now,
    )
    changes.put(change, new, done)
    execution.unsettled -= 1


def _put_cache(changes: Changes, change: Change, cache_key: str, done: NodeRow) -> None:
    """Keep the output of a completed row for nodes with the same key."""
    ttl_seconds = change.plan.nodes[done.node_id].cache_ttl_seconds
    assert ttl_seconds is not None
    changes.cache.append((cache_key, done.output, done.blob, ttl_seconds))


def _complete(changes: Changes, change: Change, row: NodeRow, done: NodeRow) -> NodeRow:
    """Replace the old row of a node with its completed row, which stands for its event if it can.

    A column of text does not take every name of a worker. Then the event gets a row of its own.
    """
    execution = change.row
    if done.worker is not None and not done.worker.isprintable():
        changes.events.append(completion_event(execution.id, done, digest_of(done.output)))
        done = replace(done, recorded_at=None)
    changes.put(change, row, done)
    execution.unsettled -= 1
    plan = change.plan
    if plan.nodes[done.node_id].trigger_rule is _ONE_FAILED:
        # A node of this rule handles the failures of its parents.
        for parent in plan.graph.parents[done.node_id]:
            if change.row_of(parent).state is NodeState.FAILED:
                changes.move_letters(execution, parent, "handled")
    return done


def attempt_failed(changes: Changes, event: AttemptFailed, change: Change, row: NodeRow) -> NodeRow:
    execution, times = change.row, changes.attempt_times(event)
    # By this clock, and not by that of the process that judged the result: they may differ by more than the
    # delay.
    due_at = changes.now + micros(event.delay_seconds)
    seq = changes.note(
        execution,
        "node.retrying",
        node=event.node_id,
        attempt=event.attempt,
        error=event.error,
        due_at=due_at,
        **times,
    )
    again = NodeRow(
        node_id=event.node_id,
        attempt=event.attempt + 1,
        ended=event.attempt,
        answered=event.attempt,
        generation=execution.generation,
        error=event.error,
        failures=row.failures + 1,
        # Losses are counted in a row: an attempt that gave a result ends the row.
        losses=0,
        retry_at=due_at,
        seq=seq,
        polled=row.polled,
        **times,
    )
    changes.put(change, row, again)
    return again


def attempt_polled(changes: Changes, event: AttemptPolled, change: Change, row: NodeRow) -> NodeRow:
    execution, times = change.row, changes.attempt_times(event)
    due_at = changes.now + micros(event.delay_seconds)
    seq = changes.note(
        execution, "node.polled", node=event.node_id, attempt=event.attempt, due_at=due_at, **times
    )
    before = row.polled or Polled(event.queued_at or changes.now, 0)
    again = NodeRow(
        node_id=event.node_id,
        attempt=event.attempt + 1,
        ended=event.attempt,
        answered=event.attempt,
        generation=execution.generation,
        retry_at=due_at,
        seq=seq,
        polled=Polled(before.since, before.looks + 1),
        **times,
    )
    changes.put(change, row, again)
    return again


def attempt_lost(changes: Changes, event: AttemptLost, change: Change, row: NodeRow) -> NodeRow:
    execution = change.row
    seq = changes.note_lost(event, execution)
    again = NodeRow(
        node_id=event.node_id,
        attempt=event.attempt + 1,
        ended=event.attempt,
        answered=row.answered,
        generation=execution.generation,
        error=row.error,
        failures=row.failures,
        losses=row.losses + 1 if event.counted else row.losses,
        worker=event.worker,
        seq=seq,
        polled=row.polled,
    )
    changes.put(change, row, again)
    return again


def node_failed(
    changes: Changes,
    event: NodeFailed,
    change: Change,
    row: NodeRow,
    new_id: Callable[[], str],
    *,
    has_letter: bool = True,
) -> tuple[NodeRow, ...]:
    """Settle a node as failed. ``has_letter``: with a dead letter, unless there is another one to retry."""
    execution, times = change.row, changes.attempt_times(event)
    ran = event.started_at is not None or event.lost
    if event.lost:
        changes.note_lost(event, execution)
    seq = changes.note(
        execution,
        "node.failed",
        node=event.node_id,
        attempt=event.attempt if ran else row.ended,
        state=NodeState.FAILED,
        error=event.error,
        **times,
    )
    times["finished_at"] = times["finished_at"] or changes.now
    failed = NodeRow(
        node_id=event.node_id,
        attempt=event.attempt,
        ended=event.attempt if ran else row.ended,
        answered=row.answered if event.lost else event.attempt,
        state=NodeState.FAILED,
        generation=execution.generation,
        error=event.error,
        failures=row.failures + (0 if event.lost else 1),
        losses=row.losses + (1 if event.lost else 0),
        issued=row.issued,
        seq=seq,
        called=row.called,
        **times,
    )
    changes.put(change, row, failed)
    execution.unsettled -= 1
    execution.failed += 1
    if has_letter:
        _add_letter(changes, event, change, failed.ended, new_id)
    rows = (failed, *skip_nodes(changes, _reached(event, event.node_id, change), change))
    stop_if_fatal(changes, event.node_id, change, event.running)
    return rows


def _add_letter(
    changes: Changes, event: NodeFailed, change: Change, attempt: int, new_id: Callable[[], str]
) -> None:
    """Add the dead letter of a node that has failed for good."""
    execution, node = change.row, change.plan.nodes[event.node_id]
    changes.letters.append(
        DeadLetter(
            id=new_id(),
            execution_id=execution.id,
            workflow=execution.workflow,
            node_id=event.node_id,
            generation=execution.generation,
            attempt=attempt,
            handler=node.handler,
            queue=node.queue,
            error=event.error,
            state="open",
            created_at=changes.now,
        )
    )
    if has_handler_in(change, event.node_id, NodeState.COMPLETED):
        changes.move_letters(execution, event.node_id, "handled")


def node_skipped(changes: Changes, event: NodeSkipped, change: Change) -> tuple[NodeRow, ...]:
    own = Skip(event.node_id, event.reason, event.cause)
    behind = event.skips
    if event.reason == Reason.UPSTREAM_FAILED and event.cause is not None:
        behind = _reached(event, event.cause, change)
    rows = skip_nodes(changes, (own, *behind), change)
    stop_if_fatal(changes, event.node_id, change, event.running)
    return rows


def attempt_issued(changes: Changes, change: Change, row: NodeRow) -> NodeRow:
    issued = replace(row, issued=row.attempt, generation=change.row.generation)
    changes.put(change, row, issued)
    return issued


def attempt_parked(changes: Changes, event: AttemptParked, change: Change, row: NodeRow) -> NodeRow:
    now = changes.now
    # By this clock, as the due time of a retry: the process that decided it may have another.
    due_at = now + micros(event.seconds)
    parked = replace(
        row,
        issued=row.attempt,
        generation=change.row.generation,
        blob=event.blob,
        output_bytes=event.output_bytes,
        queued_at=now,
        started_at=now,
        parked=Parked(due_at, event.output, event.cache_key),
    )
    changes.put(change, row, parked)
    return parked


def parked_due(changes: Changes, change: Change, row: NodeRow) -> NodeRow:
    """Complete a parked node whose time has come."""
    parked = row.parked
    assert parked is not None
    done = complete_parked(changes, change, row, output=parked.output)
    if parked.cache_key is not None:
        _put_cache(changes, change, parked.cache_key, done)
    return done


def complete_parked(
    changes: Changes, change: Change, row: NodeRow, *, output: bytes | None, **fields: Any
) -> NodeRow:
    """Complete a parked node with this output; ``fields``: what changes of its row besides."""
    execution = change.row
    execution.seq = seq = execution.seq + 1
    execution.updated_at = changes.now
    done = replace(
        row,
        ended=row.attempt,
        answered=row.attempt,
        state=_COMPLETED,
        output=output,
        finished_at=changes.now,
        seq=seq,
        recorded_at=changes.now,
        parked=None,
        **fields,
    )
    return _complete(changes, change, row, done)


def discard_result(
    changes: Changes,
    event: NodeCompleted | AttemptFailed | AttemptPolled | NodeFailed,
    execution: ExecutionRow,
) -> None:
    if isinstance(event, NodeFailed) and (event.lost or event.started_at is None):
        return  # there was no result: it was lost, or the failure was decided here
    # ``updated_at`` stays: an execution whose row changes is taken for one that somebody sees to.
    updated_at = execution.updated_at
    changes.note(
        execution,
        "result.discarded",
        generation=event.generation,
        node=event.node_id,
        attempt=event.attempt,
        **changes.attempt_times(event),
    )
    execution.updated_at = updated_at


def _reached(event: NodeFailed | NodeSkipped, cause: str, change: Change) -> tuple[Skip, ...]:
    """Return the skips behind a failure that still hold: the judge did not know all rows.

    A node that was skipped for another reason stops a failure, and what is behind it may be running.
    """
    for skip in event.skips:
        row = change.row_of(skip.node_id)
        if row.state is not None and not has_failed(row):
            unsettled = {skip.node_id for skip in event.skips if change.row_of(skip.node_id).state is None}
            return skips_behind_failure(change.plan, event.node_id, cause=cause, among=unsettled)
    return event.skips
