"""The fence: the one place where a recorded event changes an execution.

A journal only keeps rows. What may change in them is decided here, by pure functions, so that every journal
gives the same verdicts. For each batch an adapter locks the executions concerned, loads their rows, lets a
``Ledger`` record the events, and writes the changes in the same transaction. A batch that does not commit
leaves nothing: the ledger never touches the rows it was given, only its own changes.

An event counts only if its generation is the execution's, the execution is not terminal, and (node, attempt)
is the current, unsettled attempt. The event that leaves no node unsettled also writes verdict, output and
terminal state: there is no later step that a crash could lose or double.

A completion is one row, the node's: its event is derived from the row when the history is read. Only a retry
of the execution overwrites such a row, and its commit stores the event that the row stood for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, assert_never

from msgspec.structs import replace

from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptLost,
    AttemptParked,
    AttemptPolled,
    CallStarted,
    CancelRequested,
    ChildEnded,
    DeadlinePassed,
    Event,
    ExecutionStarted,
    HaltObserved,
    HotStateEvicted,
    NodeCached,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    NotificationEnded,
    ParkedDue,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    SignalReceived,
    WaitAnswered,
    WaitDue,
    WaitStarted,
)
from weft.core.ledger import control, node_events, waits
from weft.core.ledger.changes import Change, Changes, LiveExecution, RecordedEvent, Verdict
from weft.core.ledger.settle import finish, notify
from weft.core.state import TERMINAL, ExecutionState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.core.ledger.changes import LoadDigest
    from weft.core.ledger.waits import Mailboxes
    from weft.core.output import LoadBlob, LoadInput
    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.definition.model import NotifyTarget
    from weft.definition.plan import Plan


# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_ACCEPTED, _STALE, _KNOWN = Verdict.ACCEPTED, Verdict.STALE, Verdict.KNOWN
_PENDING = ExecutionState.PENDING

NodeEvent: TypeAlias = (
    NodeCompleted
    | NodeCached
    | AttemptFailed
    | AttemptPolled
    | AttemptLost
    | NodeFailed
    | NodeSkipped
    | AttemptIssued
    | AttemptParked
    | ParkedDue
    | WaitStarted
    | WaitDue
    | CallStarted
    | ChildEnded
)

# Events that a worker's result becomes.
_RESULTS = (NodeCompleted, AttemptFailed, AttemptPolled, NodeFailed)
_NO_ROWS: Mapping[str, NodeRow] = {}


@dataclass(frozen=True, slots=True)
class Loaders:
    """Reads of a journal that few events need, in the transaction at hand."""

    blob: LoadBlob
    # Of an execution's input, where its row came without a large one.
    input: LoadInput
    # Looked at where a node begins to wait for a signal, and its execution has one in its mailbox.
    mailboxes: Mailboxes
    # True if as many executions of a group count, running or waiting, as its limit says; asked at a retry.
    is_group_busy: Callable[[ExecutionRow, int], bool]
    # For the event that is kept of an overwritten row; None: rows are loaded with their outputs.
    digest: LoadDigest | None = None


class Ledger:
    """Records the events of one batch against executions and gathers the changes.

    ``find`` returns an execution with every row that the events are judged by; None: the journal has no such
    execution. Its row may come without a large input (``b""``). ``notify``: whom the operator wants told of
    every execution; None: nobody is told anything, whatever a workflow says.
    """

    def __init__(
        self,
        find: Callable[[str], LiveExecution | None],
        *,
        loaders: Loaders,
        new_id: Callable[[], str],
        max_payload_bytes: int,
        now: int,
        notify: Sequence[NotifyTarget] | None = None,
    ) -> None:
        self.changes = Changes(now, loaders.digest)
        self._find = find
        self._loaders = loaders
        self._new_id = new_id
        self._max_payload_bytes = max_payload_bytes
        self._notify = notify

    # -- admission ---------------------------------------------------------------------------------

    def admit(
        self,
        execution: ExecutionRow,
        plan: Plan,
        *,
        starts: bool = False,
        actor: str | None = None,
        kept: Sequence[NodeRow] = (),
        lane_slots: int = 0,
    ) -> ExecutionRow:
        """Take in a new execution: one row, whatever the size of its graph, and the rows that a fork keeps.

        ``starts``: it starts in the same commit. ``actor``: who submitted it. An execution that the journal
        has already stays as it is: the answer to its submit was lost, and the submit came again.
        ``lane_slots``: it waits for its turn in its lane; one with a group waits for its turn there.
        """
        known = self._change_of(execution.id)
        if known is not None:
            return known.row
        execution.created_at = execution.updated_at = self.changes.now
        change = Change(LiveExecution(0, execution, plan, {}, is_whole=True), execution, is_new=True)
        self.changes.executions[execution.id] = change
        self.changes.note(execution, "execution.created", actor=actor)
        if starts:
            control.begin(self.changes, change)
        for row in kept:
            node_events.node_reused(self.changes, change, row)
        control.join_group(self.changes, change, lane_slots=lane_slots)
        return execution

    def rebuild(self, execution_id: str, *, seen_epoch: int) -> Change | None:
        """Raise the epoch for a new hot state, if no other builder has since ``seen_epoch`` was read."""
        change = self._change_of(execution_id)
        if change is None or change.row.epoch != seen_epoch:
            return None
        if not change.row.is_terminal:
            change.row.epoch += 1
            change.row.evicted = False
            change.row.updated_at = self.changes.now
        return change

    # -- recording ---------------------------------------------------------------------------------

    def record(self, event: Event) -> RecordedEvent:
        """Judge one event by the fence and, where it is accepted, gather what it changes."""
        change = self._change_of(event.execution_id)
        if change is None:
            return RecordedEvent(event, Verdict.UNKNOWN)
        start = len(self.changes.events)
        match event:
            case (
                NodeCompleted()
                | NodeCached()
                | AttemptFailed()
                | AttemptPolled()
                | AttemptLost()
                | NodeFailed()
                | NodeSkipped()
                | AttemptIssued()
                | AttemptParked()
                | ParkedDue()
                | WaitStarted()
                | WaitDue()
                | CallStarted()
                | ChildEnded()
            ):
                return self._node_event(event, change, start)
            case WaitAnswered() | SignalReceived():
                return self._answer(event, change, start)
            case ExecutionStarted():
                verdict = control.execution_started(self.changes, event, change)
            case DeadlinePassed():
                verdict = control.deadline_passed(self.changes, event, change)
                if verdict is _ACCEPTED and self._notify is not None:
                    notify(self.changes, event, change, self._notify, self._new_id)
            case RetryRequested():
                verdict = control.retry(self.changes, event, change, self._loaders.is_group_busy)
            case CancelRequested() | PauseRequested() | ResumeRequested() if event.generation not in (
                0,
                change.row.generation,
            ):
                verdict = Verdict.STALE
            case CancelRequested():
                verdict = control.cancel(self.changes, event, change)
            case PauseRequested():
                verdict = control.pause(self.changes, event, change.row)
            case ResumeRequested():
                verdict = control.resume(self.changes, event, change.row)
            case HaltObserved():
                verdict = control.halt_observed(event, change.row)
            case HotStateEvicted():
                verdict = control.hot_state_evicted(event, change.row)
            case NotificationEnded():
                verdict = control.notification_ended(self.changes, event, change.row)
            case _:
                assert_never(event)
        return RecordedEvent(event, verdict, change.row, change.plan, (), self._noted(start))

    def _node_event(self, event: NodeEvent, change: Change, start: int) -> RecordedEvent:
        changes, execution, plan = self.changes, change.row, change.plan
        if event.node_id not in plan.nodes:
            return RecordedEvent(event, Verdict.UNKNOWN, execution, plan)
        row = change.row_of(event.node_id)
        verdict = fence(event, execution, row, changes.now)
        if verdict is not _ACCEPTED:
            if verdict is _STALE and isinstance(
                event, NodeCompleted | AttemptFailed | AttemptPolled | NodeFailed
            ):
                node_events.discard_result(changes, event, execution)
            return RecordedEvent(event, verdict, execution, plan, (row,), self._noted(start))
        if execution.state is _PENDING:
            # Something of it has run or was decided, so it was taken up: that record is lost, or on its way.
            control.begin(changes, change)

        rows: tuple[NodeRow, ...]
        match event:
            case NodeCompleted():
                rows = (node_events.node_completed(changes, event, change, row),)
            case NodeCached():
                rows = (node_events.node_cached(changes, event, change, row),)
            case AttemptFailed():
                rows = (node_events.attempt_failed(changes, event, change, row),)
            case AttemptPolled():
                rows = (node_events.attempt_polled(changes, event, change, row),)
            case AttemptLost():
                rows = (node_events.attempt_lost(changes, event, change, row),)
            case NodeFailed():
                rows = node_events.node_failed(changes, event, change, row, self._new_id)
            case NodeSkipped():
                rows = node_events.node_skipped(changes, event, change)
            case AttemptIssued():
                rows = (node_events.attempt_issued(changes, change, row),)
            case AttemptParked():
                rows = (node_events.attempt_parked(changes, event, change, row),)
            case ParkedDue():
                rows = (node_events.parked_due(changes, change, row),)
            case WaitStarted():
                rows = (waits.wait_started(changes, event, change, row, self._loaders.mailboxes),)
            case WaitDue():
                rows = waits.wait_due(changes, event, change, row, self._new_id)
            case CallStarted():
                rows = (waits.call_started(changes, event, change, row),)
                recorded_event = self._recorded(event, change, rows, start)
                return replace(recorded_event, children=(self._open_child(event, change),))
            case ChildEnded():
                rows = waits.child_ended(changes, event, change, row, self._new_id)
            case _:
                assert_never(event)
        return self._recorded(event, change, rows, start)

    def _open_child(self, event: CallStarted, change: Change) -> RecordedEvent:
        """Create the child of a call, or open that of an earlier generation again unless it has completed."""
        start = len(self.changes.events)
        child = self._change_of(event.called.child)
        if child is None:
            row, plan = waits.new_child(event, change.row), event.new.plan
            self.admit(row, plan, starts=event.new.starts, actor=f"execution/{change.row.id}")
            started = ExecutionStarted(execution_id=row.id, generation=row.generation)
            return RecordedEvent(started, _ACCEPTED, row, plan, (), self._noted(start))
        waits.take_over_child(self.changes, event, change, child)
        row = child.row
        retried = RetryRequested(execution_id=row.id, generation=row.generation)
        rows = {**child.live.rows, **child.rows}
        return RecordedEvent(retried, _ACCEPTED, row, child.plan, tuple(rows.values()), self._noted(start))

    def _answer(self, event: WaitAnswered | SignalReceived, change: Change, start: int) -> RecordedEvent:
        """Judge the answer to a wait, or a signal: it names no attempt that the fence could compare."""
        execution = change.row
        verdict, rows = waits.answer(self.changes, event, change)
        if verdict is not _ACCEPTED:
            return RecordedEvent(event, verdict, execution, change.plan, rows, self._noted(start))
        return self._recorded(event, change, rows, start)

    def _recorded(self, event: Event, change: Change, rows: tuple[NodeRow, ...], start: int) -> RecordedEvent:
        """Finish an execution that an event left without unsettled nodes, and note whom to notify."""
        changes, execution, plan = self.changes, change.row, change.plan
        if execution.unsettled == 0 and execution.state not in TERMINAL:
            finish(changes, change, self._loaders.blob, self._loaders.input, self._max_payload_bytes)
        if self._notify is not None and (
            execution.unsettled == 0 or isinstance(event, NodeFailed | WaitDue | WaitStarted)
        ):
            notify(changes, event, change, self._notify, self._new_id)
        kept = change.live.rows if change.live.is_whole else _NO_ROWS
        noted = self._noted(start) if len(changes.events) > start else ()
        return RecordedEvent(event, _ACCEPTED, execution, plan, rows, noted, kept)

    def _noted(self, start: int) -> tuple[History, ...]:
        """Return the events that were stored since there were ``start``, but for completions."""
        return tuple(self.changes.events[start:])

    def _change_of(self, execution_id: str) -> Change | None:
        change = self.changes.executions.get(execution_id)
        if change is None:
            live = self._find(execution_id)
            if live is None:
                return None
            change = self.changes.executions[execution_id] = Change(live, replace(live.row))
        return change


def fence(event: NodeEvent, execution: ExecutionRow, row: NodeRow, now: int) -> Verdict:
    """Judge the event of a node by its generation, its attempt and the states of node and execution."""
    if event.generation != execution.generation:
        return _STALE
    if event.attempt != row.attempt:
        return _KNOWN if _is_recorded(event, row) else _STALE
    if row.state is not None:
        # Settled by this very attempt, or without one (skipped, cancelled) while it was under way.
        if isinstance(event, _RESULTS):
            return _KNOWN if _is_recorded(event, row) else _STALE
        return _KNOWN
    if execution.state in TERMINAL:
        return _STALE
    if isinstance(event, AttemptIssued) and event.epoch != execution.epoch:
        return _STALE
    if isinstance(event, NodeCached) and row.issued == row.attempt:
        # A task of this attempt may be under way.
        return _STALE
    if isinstance(event, AttemptParked | WaitStarted | CallStarted):
        if row.parked is not None:
            # Its time has begun, and does not begin again.
            return _KNOWN
        # The commit of a parked node is its start: nothing starts while the execution is paused.
        is_current = event.epoch == execution.epoch and execution.state is not ExecutionState.PAUSED
        return _ACCEPTED if is_current else _STALE
    if isinstance(event, ChildEnded):
        return _ACCEPTED if waits.is_awaited(event, execution, row, now) else _STALE
    if isinstance(event, ParkedDue | WaitDue):
        if row.parked is None or row.parked.due_at is None:
            return _STALE
        # The clock of the store may be ahead. The row is applied, and the store looks again soon.
        return _ACCEPTED if row.parked.due_at <= now else _KNOWN
    return _ACCEPTED


def _is_recorded(event: NodeEvent, row: NodeRow) -> bool:
    """True if the journal has the event: the attempt's result, or for a lost attempt, only that it ended."""
    is_loss = isinstance(event, AttemptLost) or (isinstance(event, NodeFailed) and event.lost)
    return event.attempt == (row.ended if is_loss else row.answered)
