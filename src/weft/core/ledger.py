"""The fence: the one place where a recorded event changes an execution.

A journal is a place to keep rows; what may change in them is decided here, purely, so that every
journal gives the same verdicts. For each batch an adapter locks the executions concerned, loads their
rows, lets a ``Ledger`` record the events, and writes the changes in the same transaction. A batch that
does not commit leaves nothing: the ledger never touches the rows it was given, only its own changes.

An event counts only if its generation is the execution's, the execution is not terminal, and (node,
attempt) is the current, unsettled attempt. What leaves nothing unsettled also writes verdict, output
and terminal state: there is no later step that a crash could lose or double.

A completion is one row, the node's: its event is derived from the row when the history is read. Only a retry
of the execution overwrites such a row, and its commit stores the event that the row stood for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never

import msgspec
from msgspec.structs import replace

from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptLost,
    CancelRequested,
    DeadlinePassed,
    Event,
    ExecutionStarted,
    HaltObserved,
    NodeCached,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    Running,
    Skip,
)
from weft.core.output import LoadBlob, execution_output
from weft.core.readiness import has_failed
from weft.core.retry_plan import may_have_started, plan_retry
from weft.core.rows import DeadLetter, ExecutionRow, Halt, History, NodeRow, completion_event, digest_of
from weft.core.skip_propagation import skips_behind_failure
from weft.core.state import (
    EXECUTION_MOVES,
    ROW_MOVES,
    TERMINAL,
    ExecutionState,
    IllegalMoveError,
    NodeState,
    Reason,
)
from weft.core.time import micros
from weft.definition.model import FailurePolicy, TriggerRule
from weft.errors import EvaluationError, PayloadError
from weft.lru import Lru

if TYPE_CHECKING:
    from weft.core.attempt import EndedAttempt
    from weft.definition.plan import Plan


class Verdict(StrEnum):
    """How an event stands against the journal."""

    ACCEPTED = "accepted"
    # Recorded before: a redelivery, or a commit whose answer was lost. It goes on to apply all the same.
    KNOWN = "known"
    # Of a superseded attempt, an older generation or a terminal execution: it changes nothing.
    STALE = "stale"
    # A control call that the execution's state forbids.
    REFUSED = "refused"
    # The journal has no such execution or node.
    UNKNOWN = "unknown"


_COMPLETIONS = (NodeCompleted, NodeCached)
# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_ACCEPTED, _STALE, _KNOWN = Verdict.ACCEPTED, Verdict.STALE, Verdict.KNOWN
_PENDING, _COMPLETED, _ONE_FAILED = ExecutionState.PENDING, NodeState.COMPLETED, TriggerRule.ONE_FAILED


class RecordedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event's verdict, with the journal's own rows: these are applied to the store, never the message."""

    event: Event
    verdict: Verdict
    execution: ExecutionRow | None = None
    plan: Plan | None = None
    rows: tuple[NodeRow, ...] = ()
    # What recording it added to the execution's history, but for a completion that its row stands for.
    events: tuple[History, ...] = ()
    # Rows of the execution that the journal keeps in memory; empty where it keeps none, or only parts.
    kept: Mapping[str, NodeRow] = {}

    @property
    def completed_row(self) -> NodeRow | None:
        """The row of the node that the event completed."""
        if self.verdict is _ACCEPTED and isinstance(self.event, _COMPLETIONS):
            return self.rows[0]
        return None

    @property
    def history(self) -> tuple[History, ...]:
        """All that recording the event added to the execution's history, in order.

        A completion is derived here, for those who listen: most completions have no listener.
        """
        row = self.completed_row
        if row is None or row.recorded_at is None:
            return self.events
        assert self.execution is not None
        completion = completion_event(self.execution.id, row, digest_of(row.output))
        return tuple(sorted((completion, *self.events), key=lambda event: event.seq))


# The objects of an execution and of a row, beside their payloads.
_EXECUTION_BYTES, _ROW_BYTES = 1_000, 500


def live_executions(max_bytes: int) -> Lru[str, LiveExecution]:
    """Return a memory of the executions used last, by id."""
    return Lru(max_bytes, LiveExecution.weigh)


class LiveExecution:
    """One execution as its last commit left it: its row, its plan, and rows of its nodes.

    ``number``: by which the journal's tables know it. ``is_whole``: ``rows`` has every row that the journal
    has, so a node without one has none in the journal either.
    """

    __slots__ = ("is_whole", "number", "output_bytes", "plan", "row", "rows")

    def __init__(
        self, number: int, row: ExecutionRow, plan: Plan, rows: dict[str, NodeRow], *, is_whole: bool = False
    ) -> None:
        self.number = number
        self.row = row
        self.plan = plan
        self.rows = rows
        self.is_whole = is_whole
        # The size of all outputs in ``rows``; None until somebody asks for the weight: that takes a look at
        # every row, and a journal in memory makes this object anew for every batch.
        self.output_bytes: int | None = None

    def weigh(self) -> int:
        """Return about how many bytes it takes in memory."""
        if self.output_bytes is None:
            self.output_bytes = sum([len(one.output) for one in self.rows.values() if one.output is not None])
        return _EXECUTION_BYTES + len(self.row.input) + _ROW_BYTES * len(self.rows) + self.output_bytes


class Change:
    """What a batch makes of an execution, which stays as it is until the batch has committed."""

    __slots__ = ("is_new", "live", "plan", "row", "rows")

    def __init__(self, live: LiveExecution, row: ExecutionRow, *, is_new: bool = False) -> None:
        self.live = live
        self.plan = live.plan
        self.row = row
        self.rows: dict[str, NodeRow] = {}
        self.is_new = is_new

    def row_of(self, node_id: str) -> NodeRow:
        """Return the row of a node as it is now; a node without one has the row of its first attempt."""
        return self.rows.get(node_id) or self.live.rows.get(node_id) or NodeRow(node_id=node_id)

    def every_row(self) -> dict[str, NodeRow]:
        return {node_id: self.row_of(node_id) for node_id in self.plan.graph.ids}

    def commit(self) -> None:
        """Make the execution what the batch has made of it: the batch has committed."""
        live = self.live
        live.row = self.row
        if live.output_bytes is not None:
            for node_id, row in self.rows.items():
                if row.output is not None and node_id not in live.rows:
                    live.output_bytes += len(row.output)
        live.rows.update(self.rows)


class Changes:
    """What one transaction is to write."""

    __slots__ = ("cache", "events", "executions", "letter_states", "letters", "overwritten")

    def __init__(self) -> None:
        self.executions: dict[str, Change] = {}
        # Events that get a row of their own; for a plain completion the node's row stands.
        self.events: list[History] = []
        # Events of earlier completions that get a row of their own now: the rows that stood for them change.
        self.overwritten: list[History] = []
        self.letters: list[DeadLetter] = []
        # (execution, node or all, new state) for letters that were open before these
        self.letter_states: list[tuple[str, str | None, str]] = []
        # (key, output, blob, ttl in seconds)
        self.cache: list[tuple[str, bytes | None, str | None, float]] = []


NodeEvent: TypeAlias = (
    NodeCompleted | NodeCached | AttemptFailed | AttemptLost | NodeFailed | NodeSkipped | AttemptIssued
)

# Returns the digest of the output of an execution's node.
LoadDigest: TypeAlias = Callable[[str, str], str]

_NO_ROWS: Mapping[str, NodeRow] = {}


class Ledger:
    """Records the events of one batch against executions and gathers the changes.

    ``find`` returns an execution with every row that the events are judged by; None: the journal has no such
    execution. An adapter that loads rows without their outputs gives ``load_digest``, for the event that is
    kept of an overwritten row.
    """

    def __init__(
        self,
        find: Callable[[str], LiveExecution | None],
        *,
        load_blob: LoadBlob,
        new_id: Callable[[], str],
        max_payload_bytes: int,
        now: int,
        load_digest: LoadDigest | None = None,
    ) -> None:
        self.changes = Changes()
        self._find = find
        self._load_blob = load_blob
        self._load_digest = load_digest
        self._new_id = new_id
        self._max_payload_bytes = max_payload_bytes
        self._now = now

    # -- admission ---------------------------------------------------------------------------------

    def admit(self, execution: ExecutionRow, plan: Plan, *, starts: bool = False) -> ExecutionRow:
        """Take in a new execution: one row, whatever the size of its graph.

        ``starts``: it starts in the same commit. An execution that the journal has already stays as it is:
        the answer to its submit was lost, and the submit came again.
        """
        known = self._change_of(execution.id)
        if known is not None:
            return known.row
        execution.created_at = execution.updated_at = self._now
        change = Change(LiveExecution(0, execution, plan, {}, is_whole=True), execution, is_new=True)
        self.changes.executions[execution.id] = change
        self._note(execution, "execution.created")
        if starts:
            self._begin(change)
        return execution

    def rebuild(self, execution_id: str, *, seen_epoch: int) -> Change | None:
        """Raise the epoch for a new hot state, if nobody else has since ``seen_epoch`` was read."""
        change = self._change_of(execution_id)
        if change is None or change.row.epoch != seen_epoch:
            return None
        if not change.row.is_terminal:
            change.row.epoch += 1
            change.row.updated_at = self._now
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
                | AttemptLost()
                | NodeFailed()
                | NodeSkipped()
                | AttemptIssued()
            ):
                return self._node_event(event, change, start)
            case ExecutionStarted():
                verdict = self._started(event, change)
            case DeadlinePassed():
                verdict = self._deadline_passed(event, change)
            case RetryRequested():
                verdict = self._retry(event, change)
            case CancelRequested() | PauseRequested() | ResumeRequested() if event.generation not in (
                0,
                change.row.generation,
            ):
                verdict = Verdict.STALE
            case CancelRequested():
                verdict = self._cancel(event, change)
            case PauseRequested():
                verdict = self._pause(event, change.row)
            case ResumeRequested():
                verdict = self._resume(event, change.row)
            case HaltObserved():
                verdict = self._halt_observed(event, change.row)
            case _:
                assert_never(event)
        return RecordedEvent(event, verdict, change.row, change.plan, (), self._noted(start))

    def _node_event(self, event: NodeEvent, change: Change, start: int) -> RecordedEvent:
        execution, plan = change.row, change.plan
        if event.node_id not in plan.nodes:
            return RecordedEvent(event, Verdict.UNKNOWN, execution, plan)
        row = change.row_of(event.node_id)
        verdict = self._fence(event, execution, row)
        if verdict is not _ACCEPTED:
            if verdict is _STALE and isinstance(event, NodeCompleted | AttemptFailed | NodeFailed):
                self._discard(event, execution)
            return RecordedEvent(event, verdict, execution, plan, (row,), self._noted(start))
        if execution.state is _PENDING:
            # Something of it has run or was decided, so it was taken up: that record is lost, or on its way.
            self._begin(change)

        rows: tuple[NodeRow, ...]
        match event:
            case NodeCompleted():
                rows = (self._completed(event, change, row),)
            case NodeCached():
                rows = (self._cached(event, change, row),)
            case AttemptFailed():
                rows = (self._failed_once(event, change, row),)
            case AttemptLost():
                rows = (self._lost(event, change, row),)
            case NodeFailed():
                rows = self._failed(event, change, row)
            case NodeSkipped():
                rows = self._skipped(event, change)
            case AttemptIssued():
                rows = (self._issued(change, row),)
            case _:
                assert_never(event)
        if execution.unsettled == 0 and execution.state not in TERMINAL:
            self._finish(change)
        kept = change.live.rows if change.live.is_whole else _NO_ROWS
        noted = self._noted(start) if len(self.changes.events) > start else ()
        return RecordedEvent(event, _ACCEPTED, execution, plan, rows, noted, kept)

    def _noted(self, start: int) -> tuple[History, ...]:
        """Return the events that were stored since there were ``start``, but for completions."""
        return tuple(self.changes.events[start:])

    def _fence(self, event: NodeEvent, execution: ExecutionRow, row: NodeRow) -> Verdict:
        if event.generation != execution.generation:
            return _STALE
        if event.attempt != row.attempt:
            return _KNOWN if _is_recorded(event, row) else _STALE
        if row.state is not None:
            # Settled by this very attempt, or without one (skipped, cancelled) while it was under way.
            if isinstance(event, NodeCompleted | AttemptFailed | NodeFailed):
                return _KNOWN if _is_recorded(event, row) else _STALE
            return _KNOWN
        if execution.state in TERMINAL:
            return _STALE
        if isinstance(event, AttemptIssued) and event.epoch != execution.epoch:
            return _STALE
        if isinstance(event, NodeCached) and row.issued == row.attempt:
            # A task of this attempt may be under way.
            return _STALE
        return _ACCEPTED

    def _completed(self, event: NodeCompleted, change: Change, row: NodeRow) -> NodeRow:
        execution, now = change.row, self._now
        queued_at, started_at, finished_at = self._times(event)
        execution.seq = seq = execution.seq + 1
        execution.updated_at = now
        if row.error is not None or row.retry_at is not None:
            row = replace(row, error=None, retry_at=None)
        # This is most of all events. Not NodeRow(…), and no more keywords: Python packs more than 14 beside
        # an argument into a dict, which takes longer than the rest.
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
            ttl_seconds = change.plan.nodes[event.node_id].cache_ttl_seconds
            assert ttl_seconds is not None
            self.changes.cache.append((event.cache_key, event.output, event.blob, ttl_seconds))
        return self._complete(change, row, done)

    def _cached(self, event: NodeCached, change: Change, row: NodeRow) -> NodeRow:
        execution = change.row
        execution.seq = seq = execution.seq + 1
        execution.updated_at = self._now
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
            queued_at=self._now,
            started_at=self._now,
            finished_at=self._now,
            seq=seq,
            recorded_at=self._now,
        )
        return self._complete(change, row, done)

    def _complete(self, change: Change, row: NodeRow, done: NodeRow) -> NodeRow:
        """Replace the old row of a node with its completed row, which stands for its event if it can.

        A column of text does not take every name of a worker. Then the event gets a row of its own.
        """
        execution = change.row
        if done.worker is not None and not done.worker.isprintable():
            self.changes.events.append(completion_event(execution.id, done, digest_of(done.output)))
            done = replace(done, recorded_at=None)
        self._put(change, row, done)
        execution.unsettled -= 1
        plan = change.plan
        if plan.nodes[done.node_id].trigger_rule is _ONE_FAILED:
            # It handles the failures of its parents.
            for parent in plan.graph.parents[done.node_id]:
                if change.row_of(parent).state is NodeState.FAILED:
                    self._move_letters(execution, parent, "handled")
        return done

    def _failed_once(self, event: AttemptFailed, change: Change, row: NodeRow) -> NodeRow:
        execution, times = change.row, self._attempt_times(event)
        # By this clock, and not by that of whoever judged the result: they may differ by more than the delay.
        due_at = self._now + micros(event.delay_seconds)
        seq = self._note(
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
            **times,
        )
        self._put(change, row, again)
        return again

    def _lost(self, event: AttemptLost, change: Change, row: NodeRow) -> NodeRow:
        execution = change.row
        seq = self._note_lost(event, execution)
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
        )
        self._put(change, row, again)
        return again

    def _failed(self, event: NodeFailed, change: Change, row: NodeRow) -> tuple[NodeRow, ...]:
        execution, times = change.row, self._attempt_times(event)
        ran = event.started_at is not None or event.lost
        if event.lost:
            self._note_lost(event, execution)
        seq = self._note(
            execution,
            "node.failed",
            node=event.node_id,
            attempt=event.attempt if ran else row.ended,
            state=NodeState.FAILED,
            error=event.error,
            **times,
        )
        times["finished_at"] = times["finished_at"] or self._now
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
            **times,
        )
        self._put(change, row, failed)
        execution.unsettled -= 1
        execution.failed += 1
        node = change.plan.nodes[event.node_id]
        self.changes.letters.append(
            DeadLetter(
                id=self._new_id(),
                execution_id=execution.id,
                workflow=execution.workflow,
                node_id=event.node_id,
                generation=execution.generation,
                attempt=failed.ended,
                handler=node.handler,
                queue=node.queue,
                error=event.error,
                state="open",
                created_at=self._now,
            )
        )
        if _has_handler_in(change, event.node_id, NodeState.COMPLETED):
            self._move_letters(execution, event.node_id, "handled")
        rows = (failed, *self._skip(_reached(event, event.node_id, change), change))
        self._stop_if_fatal(event.node_id, change, event.running)
        return rows

    def _skipped(self, event: NodeSkipped, change: Change) -> tuple[NodeRow, ...]:
        own = Skip(event.node_id, event.reason, event.cause)
        behind = event.skips
        if event.reason == Reason.UPSTREAM_FAILED and event.cause is not None:
            behind = _reached(event, event.cause, change)
        rows = self._skip((own, *behind), change)
        self._stop_if_fatal(event.node_id, change, event.running)
        return rows

    def _issued(self, change: Change, row: NodeRow) -> NodeRow:
        issued = replace(row, issued=row.attempt, generation=change.row.generation)
        self._put(change, row, issued)
        return issued

    def _discard(self, event: NodeCompleted | AttemptFailed | NodeFailed, execution: ExecutionRow) -> None:
        if isinstance(event, NodeFailed) and (event.lost or event.started_at is None):
            return  # there was no result: it was lost, or the failure was decided here
        # It changes nothing: an execution that seems to change is taken for one that somebody sees to.
        updated_at = execution.updated_at
        self._note(
            execution,
            "result.discarded",
            generation=event.generation,
            node=event.node_id,
            attempt=event.attempt,
            **self._attempt_times(event),
        )
        execution.updated_at = updated_at

    # -- control -----------------------------------------------------------------------------------

    def _started(self, event: ExecutionStarted, change: Change) -> Verdict:
        if change.row.state is not ExecutionState.PENDING or event.generation != change.row.generation:
            return Verdict.KNOWN
        self._begin(change)
        return Verdict.ACCEPTED

    def _begin(self, change: Change) -> None:
        _move(change.row, ExecutionState.RUNNING)
        self._start_clock(change)
        self._note(change.row, "execution.started", state=ExecutionState.RUNNING)

    def _start_clock(self, change: Change) -> None:
        execution = change.row
        execution.started_at = self._now
        execution.finished_at = None
        limit = change.plan.definition.timeout_seconds
        execution.deadline_at = None if limit is None else self._now + micros(limit)

    def _deadline_passed(self, event: DeadlinePassed, change: Change) -> Verdict:
        execution = change.row
        if execution.is_terminal or event.generation != execution.generation:
            return Verdict.KNOWN
        if execution.deadline_at is None or self._now < execution.deadline_at:
            return Verdict.STALE
        limit = change.plan.definition.timeout_seconds
        error = {
            "code": "deadline_exceeded",
            "message": f"the execution did not finish within {limit:g} s",
            "retryable": False,
        }
        self._stop(change, ExecutionState.FAILED, Reason.DEADLINE, None, error, event.running)
        return Verdict.ACCEPTED

    def _cancel(self, event: CancelRequested, change: Change) -> Verdict:
        if change.row.state is ExecutionState.CANCELLED:
            return Verdict.KNOWN
        if change.row.is_terminal:
            return Verdict.REFUSED
        cancelled = ExecutionState.CANCELLED
        self._stop(change, cancelled, Reason.CANCELLED, None, None, event.running, actor=event.actor)
        return Verdict.ACCEPTED

    def _pause(self, event: PauseRequested, execution: ExecutionRow) -> Verdict:
        if execution.is_terminal:
            return Verdict.REFUSED
        if execution.state is ExecutionState.PAUSED:
            return Verdict.KNOWN
        _move(execution, ExecutionState.PAUSED)
        seq = self._note(execution, "execution.paused", state=ExecutionState.PAUSED, actor=event.actor)
        execution.halt = Halt(execution.epoch, seq)
        return Verdict.ACCEPTED

    def _halt_observed(self, event: HaltObserved, execution: ExecutionRow) -> Verdict:
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
        execution.halt = Halt(event.epoch, paused_seq, event.in_hand)
        return Verdict.ACCEPTED

    def _resume(self, event: ResumeRequested, execution: ExecutionRow) -> Verdict:
        if execution.is_terminal:
            return Verdict.REFUSED
        if execution.state is not ExecutionState.PAUSED:
            return Verdict.KNOWN
        # Paused before it was taken up: an orchestrator still has to start it.
        never_started = execution.started_at is None
        _move(execution, ExecutionState.PENDING if never_started else ExecutionState.RUNNING)
        execution.halt = None
        self._note(execution, "execution.resumed", state=execution.state, actor=event.actor)
        return Verdict.ACCEPTED

    def _retry(self, event: RetryRequested, change: Change) -> Verdict:
        execution, plan = change.row, change.plan
        if 0 < event.generation < execution.generation:
            return Verdict.KNOWN
        if execution.state not in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            return Verdict.REFUSED
        if any(node_id not in plan.nodes for node_id in event.nodes):
            return Verdict.UNKNOWN
        rows = change.every_row()
        again = plan_retry(plan, rows, event.nodes).run
        execution.generation += 1
        execution.epoch += 1
        execution.halt = None
        _move(execution, ExecutionState.RUNNING)
        execution.unsettled = len(again)
        execution.output = execution.error = None
        self._start_clock(change)
        seq = self._note(execution, "execution.retried", state=ExecutionState.RUNNING, actor=event.actor)
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
            )
            self._put(change, old, fresh)
        # Every failed or cancelled node runs again; of the skipped, those that are decided anew.
        execution.failed = execution.cancelled = 0
        execution.skipped -= sum(rows[node_id].state is NodeState.SKIPPED for node_id in again)
        self._move_letters(execution, None, "retried")
        return Verdict.ACCEPTED

    # -- settling ----------------------------------------------------------------------------------

    def _skip(self, skips: Sequence[Skip], change: Change) -> tuple[NodeRow, ...]:
        rows = []
        for skip in skips:
            row = change.row_of(skip.node_id)
            if row.state is None:
                row = self._settle_unrun(change, row, NodeState.SKIPPED, skip.reason, skip.cause)
            rows.append(row)
        return tuple(rows)

    def _settle_unrun(
        self,
        change: Change,
        row: NodeRow,
        state: NodeState,
        reason: str,
        cause: str | None,
        running: Running | None = None,
    ) -> NodeRow:
        """Settle a node without a result; ``running`` is the attempt that was in hand, if one was."""
        execution = change.row
        in_hand = running is not None and running.attempt == row.attempt and running.started_at is not None
        times: dict[str, Any] = {}
        if in_hand:
            assert running is not None
            assert running.started_at is not None
            started_at = min(running.started_at, self._now)
            queued_at = None if running.queued_at is None else min(running.queued_at, started_at)
            times = {
                "worker": running.worker,
                "queued_at": queued_at,
                "started_at": started_at,
                "finished_at": self._now,
            }
        ended = row.attempt if in_hand else row.ended
        seq = self._note(
            execution,
            "node.skipped" if state is NodeState.SKIPPED else "node.cancelled",
            node=row.node_id,
            attempt=ended,
            state=state,
            reason=reason,
            cause=cause,
            **times,
        )
        settled = NodeRow(
            node_id=row.node_id,
            attempt=row.attempt,
            ended=ended,
            answered=row.answered,
            state=state,
            generation=execution.generation,
            reason=reason,
            cause=cause,
            failures=row.failures,
            losses=row.losses,
            issued=row.issued,
            seq=seq,
            **times,
        )
        self._put(change, row, settled)
        execution.unsettled -= 1
        if state is NodeState.SKIPPED:
            execution.skipped += 1
        else:
            execution.cancelled += 1
        return settled

    def _stop_if_fatal(self, node_id: str, change: Change, running: Mapping[str, Running]) -> None:
        """Under ``fail_fast``, stop at a failure that nothing handles and nothing still can."""
        plan = change.plan
        if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST or not change.row.failed:
            return
        suspects = [node_id]
        if plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
            # It was to handle these, and did not complete.
            suspects = [*plan.graph.parents[node_id], node_id]
        fatal = [
            row
            for suspect in suspects
            if (row := change.row_of(suspect)).state is NodeState.FAILED
            and not _has_handler_in(change, suspect, None, NodeState.COMPLETED)
        ]
        if fatal:
            first = min(fatal, key=lambda row: row.seq)
            error = _node_error(first)
            self._stop(change, ExecutionState.FAILED, Reason.FAIL_FAST, first.node_id, error, running)

    def _stop(
        self,
        change: Change,
        state: ExecutionState,
        reason: Reason,
        cause: str | None,
        error: dict[str, Any] | None,
        running: Mapping[str, Running],
        actor: str | None = None,
    ) -> None:
        """Settle all that is unsettled, and the execution with it, in this one commit."""
        for node_id in change.plan.graph.ids:
            row = change.row_of(node_id)
            if row.state is None:
                self._settle_unrun(change, row, NodeState.CANCELLED, reason, cause, running.get(node_id))
        assert change.row.unsettled == 0
        self._close(change.row, state, error, actor)

    def _finish(self, change: Change) -> None:
        """End an execution of which every node is settled."""
        execution = change.row
        if execution.failed:
            failures = [
                row
                for row in change.every_row().values()
                if row.state is NodeState.FAILED
                and not _has_handler_in(change, row.node_id, NodeState.COMPLETED)
            ]
            if failures:
                first = min(failures, key=lambda row: row.seq)
                self._close(execution, ExecutionState.FAILED, _node_error(first))
                return
        error = None
        try:
            execution.output = execution_output(
                change.plan,
                execution,
                change.row_of,
                self._load_blob,
                max_bytes=self._max_payload_bytes,
            )
        except (EvaluationError, PayloadError) as problem:
            error = {"code": "output_error", "message": str(problem), "retryable": False}
        self._close(execution, ExecutionState.COMPLETED, error)

    def _close(
        self,
        execution: ExecutionRow,
        state: ExecutionState,
        error: dict[str, Any] | None,
        actor: str | None = None,
    ) -> None:
        _move(execution, state)
        execution.error = error
        execution.finished_at = self._now
        self._note(execution, f"execution.{state.lower()}", state=state, error=error, actor=actor)

    def _move_letters(self, execution: ExecutionRow, node_id: str | None, state: str) -> None:
        """Set the state of the open dead letters of a node (None: of all nodes)."""
        for index, letter in enumerate(self.changes.letters):
            if letter.execution_id == execution.id:
                self.changes.letters[index] = moved_letter(letter, node_id, state)
        self.changes.letter_states.append((execution.id, node_id, state))

    # -- rows and history --------------------------------------------------------------------------

    def _change_of(self, execution_id: str) -> Change | None:
        change = self.changes.executions.get(execution_id)
        if change is None:
            live = self._find(execution_id)
            if live is None:
                return None
            change = self.changes.executions[execution_id] = Change(live, replace(live.row))
        return change

    def _put(self, change: Change, old: NodeRow, row: NodeRow) -> None:
        # In line: the call would cost more than the check.
        if row.state not in ROW_MOVES[old.state]:
            raise IllegalMoveError(
                f"node {row.node_id}: {old.state or 'unsettled'} → {row.state or 'unsettled'}"
            )
        if old.recorded_at is not None:
            # The event that the old row stands for is stored in the commit that overwrites the row.
            digest = digest_of(old.output)
            if old.output is None and old.blob is None:
                assert self._load_digest is not None
                digest = self._load_digest(change.row.id, old.node_id)
            self.changes.overwritten.append(completion_event(change.row.id, old, digest))
        change.rows[row.node_id] = row

    def _times(self, event: EndedAttempt) -> tuple[int | None, int | None, int | None]:
        """Hold queued ≤ started ≤ finished ≤ now, whatever a worker's clock said."""
        queued_at, started_at, finished_at = event.queued_at, event.started_at, event.finished_at
        if started_at is None:
            return None if queued_at is None else min(queued_at, self._now), None, None
        if finished_at is None or finished_at > self._now:
            finished_at = self._now
        # Compared in line, for every completion comes here.
        if started_at > finished_at:
            started_at = finished_at
        if queued_at is not None and queued_at > started_at:
            queued_at = started_at
        return queued_at, started_at, finished_at

    def _attempt_times(
        self, event: NodeCompleted | AttemptFailed | AttemptLost | NodeFailed
    ) -> dict[str, Any]:
        """Return the fields that the history and the node's row have of an attempt that ended."""
        queued_at, started_at, finished_at = self._times(event)
        return {
            "worker": event.worker,
            "queued_at": queued_at,
            "started_at": started_at,
            "finished_at": finished_at,
        }

    def _note_lost(self, event: AttemptLost | NodeFailed, execution: ExecutionRow) -> int:
        times = self._attempt_times(event)
        return self._note(execution, "node.lost", node=event.node_id, attempt=event.attempt, **times)

    def _note(
        self, execution: ExecutionRow, type_: str, *, generation: int | None = None, **facts: Any
    ) -> int:
        execution.seq += 1
        execution.updated_at = self._now
        event = History(
            seq=execution.seq,
            at=self._now,
            type=type_,
            execution=execution.id,
            generation=execution.generation if generation is None else generation,
            **facts,
        )
        self.changes.events.append(event)
        return execution.seq


def _move(execution: ExecutionRow, state: ExecutionState) -> None:
    if state not in EXECUTION_MOVES[execution.state]:
        raise IllegalMoveError(f"execution {execution.id}: {execution.state} → {state}")
    execution.state = state


def _is_recorded(event: NodeEvent, row: NodeRow) -> bool:
    """True if the journal has the event: the attempt's result, or for a lost attempt, only that it ended."""
    is_loss = isinstance(event, AttemptLost) or (isinstance(event, NodeFailed) and event.lost)
    return event.attempt == (row.ended if is_loss else row.answered)


def is_first_completion(row: NodeRow) -> bool:
    """True if the row says no more than that the first attempt of the execution's node completed."""
    return (
        row.attempt == row.answered == row.generation == 1
        and row.recorded_at is not None
        # Not in a blob, and its attempt was issued by no commit.
        and row.output is not None
        and not row.issued
    )


def moved_letter(letter: DeadLetter, node_id: str | None, state: str) -> DeadLetter:
    """Return the dead letter, in the new state if the letter is open and of this node (None: of any)."""
    if letter.state != "open" or node_id not in (None, letter.node_id):
        return letter
    return replace(letter, state=state)


def _reached(event: NodeFailed | NodeSkipped, cause: str, change: Change) -> tuple[Skip, ...]:
    """Hold the walk behind a failure against the rows: who walked it did not know all that is settled.

    A node that was skipped for another reason stops a failure, and what is behind it may be running.
    """
    for skip in event.skips:
        row = change.row_of(skip.node_id)
        if row.state is not None and not has_failed(row):
            unsettled = {skip.node_id for skip in event.skips if change.row_of(skip.node_id).state is None}
            return skips_behind_failure(change.plan, event.node_id, cause=cause, among=unsettled)
    return event.skips


def _has_handler_in(change: Change, node_id: str, *states: NodeState | None) -> bool:
    """True if a node that handles the failure of this one is in one of the states."""
    handlers = change.plan.failure_handlers.get(node_id, ())
    return any(change.row_of(handler).state in states for handler in handlers)


def _node_error(row: NodeRow) -> dict[str, Any]:
    cause = row.error or {}
    return {
        "code": "node_failed",
        "message": f"node {row.node_id} failed: {cause.get('message', '')}",
        "retryable": False,
        "node": row.node_id,
        "details": {"code": cause.get("code")},
    }
