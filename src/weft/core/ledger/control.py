"""Events that start, stop and reopen an execution: start, deadline, cancel, pause, resume, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.ledger.changes import Verdict, move_execution
from weft.core.ledger.settle import stop
from weft.core.retry_plan import may_have_started, plan_retry
from weft.core.rows import Halt, NodeRow, QueueEntry
from weft.core.state import ExecutionState, NodeState, Reason
from weft.core.time import micros
from weft.definition.model import OnConflict

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.event import (
        CancelRequested,
        DeadlinePassed,
        ExecutionStarted,
        HaltObserved,
        HotStateEvicted,
        NotificationEnded,
        PauseRequested,
        ResumeRequested,
        RetryRequested,
    )
    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import ExecutionRow
    from weft.definition.model import Concurrency


def execution_started(changes: Changes, event: ExecutionStarted, change: Change) -> Verdict:
    if change.row.state is not ExecutionState.PENDING or event.generation != change.row.generation:
        return Verdict.KNOWN
    begin(changes, change)
    return Verdict.ACCEPTED


def begin(changes: Changes, change: Change) -> None:
    move_execution(change.row, ExecutionState.RUNNING)
    _start_clock(changes, change)
    changes.note(change.row, "execution.started", state=ExecutionState.RUNNING)


def _start_clock(changes: Changes, change: Change) -> None:
    execution = change.row
    execution.started_at = changes.now
    execution.finished_at = None
    limit = change.plan.definition.timeout_seconds
    execution.deadline_at = None if limit is None else changes.now + micros(limit)
    parent = execution.parent
    if parent is not None and parent.deadline_at is not None:
        execution.deadline_at = min(parent.deadline_at, execution.deadline_at or parent.deadline_at)


def deadline_passed(changes: Changes, event: DeadlinePassed, change: Change) -> Verdict:
    execution = change.row
    if execution.is_terminal or event.generation != execution.generation:
        return Verdict.KNOWN
    if execution.deadline_at is None or changes.now < execution.deadline_at:
        return Verdict.STALE
    if execution.has_inherited_deadline:
        # The parent is over, too, and says why.
        cancelled = ExecutionState.CANCELLED
        stop(changes, change, cancelled, Reason.PARENT, None, None, event.running)
        return Verdict.ACCEPTED
    limit = change.plan.definition.timeout_seconds
    error = {
        "code": "deadline_exceeded",
        "message": f"the execution did not finish within {limit:g} s",
        "retryable": False,
    }
    stop(changes, change, ExecutionState.FAILED, Reason.DEADLINE, None, error, event.running)
    return Verdict.ACCEPTED


def cancel(changes: Changes, event: CancelRequested, change: Change) -> Verdict:
    if change.row.state is ExecutionState.CANCELLED:
        return Verdict.KNOWN
    if change.row.is_terminal:
        return Verdict.REFUSED
    reason = Reason.CANCELLED
    if event.by_parent:
        reason = Reason.PARENT
        assert change.row.parent is not None
        changes.children_told[change.row.id] = change.row.parent.execution
    cancelled = ExecutionState.CANCELLED
    stop(changes, change, cancelled, reason, None, None, event.running, actor=event.actor)
    return Verdict.ACCEPTED


def pause(changes: Changes, event: PauseRequested, execution: ExecutionRow) -> Verdict:
    if execution.is_terminal:
        return Verdict.REFUSED
    if execution.state is ExecutionState.PAUSED:
        return Verdict.KNOWN
    move_execution(execution, ExecutionState.PAUSED)
    seq = changes.note(execution, "execution.paused", state=ExecutionState.PAUSED, actor=event.actor)
    execution.halt = Halt(execution.epoch, seq, None, event.by_parent)
    return Verdict.ACCEPTED


def halt_observed(event: HaltObserved, execution: ExecutionRow) -> Verdict:
    """Keep what the store said of the attempts in hand; it adds nothing to the history."""
    halt = execution.halt
    if execution.is_terminal or event.epoch != execution.epoch:
        return Verdict.STALE
    # Another pause since then: between the two, attempts may have started.
    if event.paused_seq and (halt is None or halt.paused_seq != event.paused_seq):
        return Verdict.STALE
    if execution.started_at is None:
        return Verdict.KNOWN
    paused_seq = 0 if halt is None else halt.paused_seq
    by_parent = halt is not None and halt.by_parent
    execution.halt = Halt(event.epoch, paused_seq, event.in_hand, by_parent)
    return Verdict.ACCEPTED


def hot_state_evicted(event: HotStateEvicted, execution: ExecutionRow) -> Verdict:
    """Let an execution leave the hot state, if nothing of it has changed since the store was asked.

    Nothing was ready then but what waits, and whatever gets ready needs another commit. So no attempt is in
    anybody's hand, and none can be handed out by the store of the earlier epoch any more.
    """
    if (
        execution.is_terminal
        or execution.waiting == 0
        or (event.generation, event.epoch, event.seq)
        != (execution.generation, execution.epoch, execution.seq)
    ):
        return Verdict.STALE
    execution.epoch += 1
    execution.evicted = True
    paused_seq = 0 if execution.halt is None else execution.halt.paused_seq
    execution.halt = Halt(execution.epoch, paused_seq, {})
    return Verdict.ACCEPTED


def resume(changes: Changes, event: ResumeRequested, execution: ExecutionRow) -> Verdict:
    if execution.is_terminal:
        return Verdict.REFUSED
    if execution.state is not ExecutionState.PAUSED:
        return Verdict.KNOWN
    # Paused before it was taken up: an orchestrator still has to start it.
    never_started = execution.started_at is None
    move_execution(execution, ExecutionState.PENDING if never_started else ExecutionState.RUNNING)
    execution.halt = None
    changes.note(execution, "execution.resumed", state=execution.state, actor=event.actor)
    return Verdict.ACCEPTED


def join_group(changes: Changes, change: Change, *, lane_slots: int = 0) -> None:
    """Let an execution wait for its turn: in its lane if it has ``lane_slots``, then in its group."""
    execution, terms = change.row, change.plan.definition.concurrency
    group_lane, group_slots, cancels = execution.group_lane, 0, False
    if group_lane is not None:
        assert terms is not None
        group_slots, cancels = terms.limit, terms.on_conflict is OnConflict.CANCEL_RUNNING
    lane = execution.lane if lane_slots else group_lane
    if lane is None:
        return
    changes.joined.append(
        QueueEntry(
            execution_id=execution.id,
            namespace=execution.namespace,
            lane=lane,
            slots=lane_slots or group_slots,
            cancels=cancels,
            since=changes.now,
            group_lane=group_lane if lane_slots else None,
            group_slots=group_slots if lane_slots else 0,
        )
    )


def retry(
    changes: Changes, event: RetryRequested, change: Change, is_busy: Callable[[ExecutionRow, int], bool]
) -> Verdict:
    """Open the next generation, at once or when its turn in its group has come."""
    execution, plan = change.row, change.plan
    if 0 < event.generation < execution.generation:
        return Verdict.KNOWN
    if execution.state not in (ExecutionState.FAILED, ExecutionState.CANCELLED):
        return Verdict.REFUSED
    if execution.parent is not None:
        # Its parent opens it again.
        return Verdict.REFUSED
    if any(node_id not in plan.nodes for node_id in event.nodes):
        return Verdict.UNKNOWN
    terms = None if execution.group_name is None else plan.definition.concurrency
    if terms is not None and terms.on_conflict is OnConflict.REJECT and is_busy(execution, terms.limit):
        return Verdict.REFUSED
    reopen(changes, change, event.nodes, terms=terms, actor=event.actor)
    return Verdict.ACCEPTED


def reopen(
    changes: Changes,
    change: Change,
    nodes: tuple[str, ...] = (),
    *,
    terms: Concurrency | None = None,
    actor: str | None = None,
) -> None:
    """Open the next generation of an execution that has failed or was cancelled.

    ``terms``: of its group, in which it waits for its turn anew.
    """
    execution, plan = change.row, change.plan
    rows = change.every_row()
    again = plan_retry(plan, rows, nodes).run
    execution.generation += 1
    execution.epoch += 1
    execution.halt = None
    execution.evicted = False
    move_execution(execution, ExecutionState.RUNNING if terms is None else ExecutionState.PENDING)
    execution.unsettled = len(again)
    execution.output = execution.error = None
    if terms is None:
        _start_clock(changes, change)
    else:
        execution.started_at = execution.finished_at = execution.deadline_at = None
        join_group(changes, change)
    seq = changes.note(execution, "execution.retried", state=execution.state, actor=actor)
    for node_id in again:
        old = rows[node_id]
        attempt = old.attempt + 1 if may_have_started(plan, rows, node_id) else old.attempt
        fresh = NodeRow(
            node_id=node_id,
            attempt=attempt,
            ended=old.ended,
            # A failure that was decided without an attempt is no answer to the one that takes its number.
            answered=min(old.answered, attempt - 1),
            generation=execution.generation,
            seq=seq,
            called=None if node_id in nodes else old.called,
        )
        changes.put(change, old, fresh)
    # Every failed or cancelled node runs again; of the skipped, those that are decided anew.
    execution.failed = execution.cancelled = 0
    execution.skipped -= sum(rows[node_id].state is NodeState.SKIPPED for node_id in again)
    changes.move_letters(execution, None, "retried")


def notification_ended(changes: Changes, event: NotificationEnded, execution: ExecutionRow) -> Verdict:
    """Add to the history that a notification was delivered or given up; the execution's state stays."""
    # ``updated_at`` stays: an execution whose row changes is taken for one that somebody sees to.
    updated_at = execution.updated_at
    error = None
    if event.error is not None:
        error = {
            "code": "notification_failed",
            "message": event.error,
            "retryable": False,
            "details": {"notification": event.notification_id, "attempts": event.attempts},
        }
    type_ = "notification.delivered" if error is None else "notification.failed"
    changes.note(execution, type_, generation=event.generation, reason=event.on, error=error)
    execution.updated_at = updated_at
    changes.notification_ends.append(event)
    return Verdict.ACCEPTED
