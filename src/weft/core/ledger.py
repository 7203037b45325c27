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

from weft.core.consequence import skips_behind_failure
from weft.core.definition import FailurePolicy, TriggerRule
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
from weft.core.generation import may_have_started, plan_retry
from weft.core.output import LoadBlob, execution_output
from weft.core.readiness import has_failed
from weft.core.row import DeadLetter, ExecutionRow, Halt, History, NodeRow, completion_event, digest_of
from weft.core.state import (
    EXECUTION_MOVES,
    ROW_MOVES,
    SETTLED,
    TERMINAL,
    ExecutionState,
    IllegalMoveError,
    NodeState,
    Reason,
)
from weft.core.time import micros
from weft.errors import EvaluationError, PayloadError

if TYPE_CHECKING:
    from weft.core.plan import Plan


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


class Standing(msgspec.Struct, frozen=True, gc=False):
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
        if self.verdict is Verdict.ACCEPTED and isinstance(self.event, NodeCompleted | NodeCached):
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


class Changes:
    """What one transaction is to write."""

    __slots__ = ("cache", "events", "executions", "letter_states", "letters", "nodes")

    def __init__(self) -> None:
        self.executions: dict[str, ExecutionRow] = {}
        self.nodes: dict[str, dict[str, NodeRow]] = {}
        # Events that get a row of their own; for a plain completion the node's row stands.
        self.events: list[History] = []
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

_NO_ROWS: dict[str, NodeRow] = {}


class Ledger:
    """Records events against the rows at hand and gathers the changes.

    ``executions`` and ``nodes`` are what the adapter has loaded (every row of an execution, or at
    least those the events name); they are read, never written. ``keeps``: the adapter keeps whole rows in
    memory and adds those of this commit. An adapter that loads rows without their outputs gives
    ``load_digest``, for the event that is kept of an overwritten row.
    """

    def __init__(
        self,
        *,
        executions: Mapping[str, ExecutionRow],
        nodes: Mapping[str, Mapping[str, NodeRow]],
        plan_of: Callable[[str], Plan],
        load_blob: LoadBlob,
        new_id: Callable[[], str],
        max_payload_bytes: int,
        now: int,
        load_digest: LoadDigest | None = None,
        keeps: bool = False,
    ) -> None:
        self.changes = Changes()
        self._executions = executions
        self._nodes = nodes
        self._plan_of = plan_of
        self._load_blob = load_blob
        self._load_digest = load_digest
        self._keeps = keeps
        self._new_id = new_id
        self._max_payload_bytes = max_payload_bytes
        self._now = now
        # The events of this batch in the order of commit, but for completions that their rows stand for.
        self._history: list[History] = []

    # -- admission ---------------------------------------------------------------------------------

    def admit(self, execution: ExecutionRow, *, starts: Plan | None = None) -> ExecutionRow:
        """Take in a new execution: one row, whatever the size of its graph.

        ``starts``: the plan of an execution that starts in the same commit. An execution that the journal has
        already stays as it is: the answer to its submit was lost, and the submit came again.
        """
        known = self.changes.executions.get(execution.id) or self._executions.get(execution.id)
        if known is not None:
            return known
        execution.created_at = execution.updated_at = self._now
        self.changes.executions[execution.id] = execution
        self._note(execution, "execution.created")
        if starts is not None:
            self._begin(execution, starts)
        return execution

    def rebuild(self, execution_id: str, *, seen_epoch: int) -> ExecutionRow | None:
        """Raise the epoch for a new hot state, if nobody else has since ``seen_epoch`` was read."""
        execution = self._take(execution_id)
        if execution is None or execution.epoch != seen_epoch:
            return None
        if not execution.is_terminal:
            execution.epoch += 1
            execution.updated_at = self._now
        return execution

    # -- recording ---------------------------------------------------------------------------------

    def record(self, event: Event) -> Standing:
        """Judge one event by the fence and, where it is accepted, gather what it changes."""
        execution = self._take(event.execution_id)
        if execution is None:
            return Standing(event, Verdict.UNKNOWN)
        plan = self._plan_of(execution.digest)
        start = len(self._history)
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
                return self._node_event(event, execution, plan)
            case ExecutionStarted():
                verdict = self._started(event, execution, plan)
            case DeadlinePassed():
                verdict = self._deadline_passed(event, execution, plan)
            case RetryRequested():
                verdict = self._retry(event, execution, plan)
            case CancelRequested() | PauseRequested() | ResumeRequested() if event.generation not in (
                0,
                execution.generation,
            ):
                verdict = Verdict.STALE
            case CancelRequested():
                verdict = self._cancel(event, execution, plan)
            case PauseRequested():
                verdict = self._pause(event, execution)
            case ResumeRequested():
                verdict = self._resume(event, execution)
            case HaltObserved():
                verdict = self._halt_observed(event, execution)
            case _:
                assert_never(event)
        return Standing(event, verdict, execution, plan, (), tuple(self._history[start:]))

    def _node_event(
        self,
        event: NodeEvent,
        execution: ExecutionRow,
        plan: Plan,
    ) -> Standing:
        if event.node_id not in plan.nodes:
            return Standing(event, Verdict.UNKNOWN, execution, plan)
        start = len(self._history)
        row = self._row(execution, event.node_id)
        verdict = self._fence(event, execution, row)
        if verdict is not Verdict.ACCEPTED:
            if verdict is Verdict.STALE and isinstance(event, NodeCompleted | AttemptFailed | NodeFailed):
                self._discard(event, execution)
            return Standing(event, verdict, execution, plan, (row,), tuple(self._history[start:]))
        if execution.state is ExecutionState.PENDING:
            # Something of it has run or was decided, so it was taken up: that record is lost, or on its way.
            self._begin(execution, plan)

        match event:
            case NodeCompleted():
                rows = self._completed(event, execution, row, plan)
            case NodeCached():
                rows = self._cached(event, execution, row, plan)
            case AttemptFailed():
                rows = self._failed_once(event, execution, row)
            case AttemptLost():
                rows = self._lost(event, execution, row)
            case NodeFailed():
                rows = self._failed(event, execution, row, plan)
            case NodeSkipped():
                rows = self._skipped(event, execution, row, plan)
            case AttemptIssued():
                rows = self._issued(execution, row)
            case _:
                assert_never(event)
        self._finish_if_settled(execution, plan)
        kept = self._nodes.get(execution.id, _NO_ROWS) if self._keeps else _NO_ROWS
        return Standing(event, Verdict.ACCEPTED, execution, plan, rows, tuple(self._history[start:]), kept)

    def _fence(
        self,
        event: NodeEvent,
        execution: ExecutionRow,
        row: NodeRow,
    ) -> Verdict:
        if event.generation != execution.generation:
            return Verdict.STALE
        if event.attempt != row.attempt:
            return Verdict.KNOWN if _is_recorded(event, row) else Verdict.STALE
        if row.state is not None:
            # Settled by this very attempt, or without one (skipped, cancelled) while it was under way.
            if isinstance(event, NodeCompleted | AttemptFailed | NodeFailed):
                return Verdict.KNOWN if _is_recorded(event, row) else Verdict.STALE
            return Verdict.KNOWN
        if execution.state in TERMINAL:
            return Verdict.STALE
        if isinstance(event, AttemptIssued) and event.epoch != execution.epoch:
            return Verdict.STALE
        return Verdict.ACCEPTED

    def _completed(
        self, event: NodeCompleted, execution: ExecutionRow, row: NodeRow, plan: Plan
    ) -> tuple[NodeRow, ...]:
        queued_at, started_at, finished_at = self._times(event)
        execution.seq = seq = execution.seq + 1
        execution.updated_at = self._now
        if row.error is not None or row.retry_at is not None:
            row = replace(row, error=None, retry_at=None)
        # This is most of all events. Not NodeRow(…), and no more keywords: Python packs more than 14 beside
        # an argument into a dict, which takes longer than the rest.
        done = replace(
            row,
            ended=event.attempt,
            answered=event.attempt,
            state=NodeState.COMPLETED,
            generation=execution.generation,
            output=event.output,
            blob=event.blob,
            output_bytes=event.output_bytes,
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
            seq=seq,
            recorded_at=self._now,
        )
        done = self._with_event(execution, done)
        self._put(execution, row, done)
        execution.unsettled -= 1
        if event.cache_key is not None:
            ttl_seconds = plan.nodes[event.node_id].cache_ttl_seconds
            assert ttl_seconds is not None
            self.changes.cache.append((event.cache_key, event.output, event.blob, ttl_seconds))
        self._mark_handled(event.node_id, execution, plan)
        return (done,)

    def _mark_handled(self, node_id: str, execution: ExecutionRow, plan: Plan) -> None:
        """Say of the dead letters that a completed node handles that they are."""
        if plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
            for parent in plan.graph.parents[node_id]:
                if self._row(execution, parent).state is NodeState.FAILED:
                    self._move_letters(execution, parent, "handled")

    def _cached(
        self, event: NodeCached, execution: ExecutionRow, row: NodeRow, plan: Plan
    ) -> tuple[NodeRow, ...]:
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
        done = self._with_event(execution, done)
        self._put(execution, row, done)
        execution.unsettled -= 1
        self._mark_handled(event.node_id, execution, plan)
        return (done,)

    def _failed_once(
        self, event: AttemptFailed, execution: ExecutionRow, row: NodeRow
    ) -> tuple[NodeRow, ...]:
        queued_at, started_at, finished_at = self._times(event)
        # By this clock, and not by that of whoever judged the result: they may differ by more than the delay.
        due_at = self._now + micros(event.delay_seconds)
        seq = self._note(
            execution,
            "node.retrying",
            node=event.node_id,
            attempt=event.attempt,
            error=event.error,
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
            due_at=due_at,
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
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
            seq=seq,
        )
        self._put(execution, row, again)
        return (again,)

    def _lost(self, event: AttemptLost, execution: ExecutionRow, row: NodeRow) -> tuple[NodeRow, ...]:
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
        self._put(execution, row, again)
        return (again,)

    def _failed(
        self, event: NodeFailed, execution: ExecutionRow, row: NodeRow, plan: Plan
    ) -> tuple[NodeRow, ...]:
        queued_at, started_at, finished_at = self._times(event)
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
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
        )
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
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at if finished_at is not None else self._now,
            seq=seq,
        )
        self._put(execution, row, failed)
        execution.unsettled -= 1
        execution.failed += 1
        node = plan.nodes[event.node_id]
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
        if self._is_handled(execution, event.node_id, plan):
            self._move_letters(execution, event.node_id, "handled")
        rows = (failed, *self._skip(self._reached(event, event.node_id, execution, plan), execution))
        self._stop_if_fatal(event.node_id, execution, plan, event.running)
        return rows

    def _skipped(
        self, event: NodeSkipped, execution: ExecutionRow, row: NodeRow, plan: Plan
    ) -> tuple[NodeRow, ...]:
        own = Skip(event.node_id, event.reason, event.cause)
        behind = event.skips
        if event.reason == Reason.UPSTREAM_FAILED and event.cause is not None:
            behind = self._reached(event, event.cause, execution, plan)
        rows = self._skip((own, *behind), execution)
        self._stop_if_fatal(event.node_id, execution, plan, event.running)
        return rows

    def _issued(self, execution: ExecutionRow, row: NodeRow) -> tuple[NodeRow, ...]:
        issued = replace(row, issued=row.attempt, generation=execution.generation)
        self._put(execution, row, issued)
        return (issued,)

    def _discard(self, event: NodeCompleted | AttemptFailed | NodeFailed, execution: ExecutionRow) -> None:
        if isinstance(event, NodeFailed) and (event.lost or event.started_at is None):
            return  # there was no result: it was lost, or the failure was decided here
        queued_at, started_at, finished_at = self._times(event)
        # It changes nothing: an execution that seems to change is taken for one that somebody sees to.
        updated_at = execution.updated_at
        self._note(
            execution,
            "result.discarded",
            generation=event.generation,
            node=event.node_id,
            attempt=event.attempt,
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
        )
        execution.updated_at = updated_at

    # -- control -----------------------------------------------------------------------------------

    def _started(self, event: ExecutionStarted, execution: ExecutionRow, plan: Plan) -> Verdict:
        if execution.state is not ExecutionState.PENDING or event.generation != execution.generation:
            return Verdict.KNOWN
        self._begin(execution, plan)
        return Verdict.ACCEPTED

    def _begin(self, execution: ExecutionRow, plan: Plan) -> None:
        _move(execution, ExecutionState.RUNNING)
        self._start_clock(execution, plan)
        self._note(execution, "execution.started", state=ExecutionState.RUNNING)

    def _start_clock(self, execution: ExecutionRow, plan: Plan) -> None:
        execution.started_at = self._now
        execution.finished_at = None
        limit = plan.definition.timeout_seconds
        execution.deadline_at = None if limit is None else self._now + micros(limit)

    def _deadline_passed(self, event: DeadlinePassed, execution: ExecutionRow, plan: Plan) -> Verdict:
        if execution.is_terminal or event.generation != execution.generation:
            return Verdict.KNOWN
        if execution.deadline_at is None or self._now < execution.deadline_at:
            return Verdict.STALE
        limit = plan.definition.timeout_seconds
        error = {
            "code": "deadline_exceeded",
            "message": f"the execution did not finish within {limit:g} s",
            "retryable": False,
        }
        self._stop(execution, plan, ExecutionState.FAILED, Reason.DEADLINE, None, error, event.running)
        return Verdict.ACCEPTED

    def _cancel(self, event: CancelRequested, execution: ExecutionRow, plan: Plan) -> Verdict:
        if execution.state is ExecutionState.CANCELLED:
            return Verdict.KNOWN
        if execution.is_terminal:
            return Verdict.REFUSED
        self._stop(
            execution,
            plan,
            ExecutionState.CANCELLED,
            Reason.CANCELLED,
            None,
            None,
            event.running,
            actor=event.actor,
        )
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

    def _retry(self, event: RetryRequested, execution: ExecutionRow, plan: Plan) -> Verdict:
        if 0 < event.generation < execution.generation:
            return Verdict.KNOWN
        if execution.state not in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            return Verdict.REFUSED
        if any(node_id not in plan.nodes for node_id in event.nodes):
            return Verdict.UNKNOWN
        rows = self.rows_of(execution, plan)
        again = plan_retry(plan, rows, event.nodes).run
        execution.generation += 1
        execution.epoch += 1
        execution.halt = None
        _move(execution, ExecutionState.RUNNING)
        execution.unsettled = len(again)
        execution.output = execution.error = None
        self._start_clock(execution, plan)
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
            self._put(execution, old, fresh)
        # Every failed or cancelled node runs again; of the skipped, those that are decided anew.
        execution.failed = execution.cancelled = 0
        execution.skipped -= sum(rows[node_id].state is NodeState.SKIPPED for node_id in again)
        self._move_letters(execution, None, "retried")
        return Verdict.ACCEPTED

    # -- settling ----------------------------------------------------------------------------------

    def _reached(
        self, event: NodeFailed | NodeSkipped, cause: str, execution: ExecutionRow, plan: Plan
    ) -> tuple[Skip, ...]:
        """Hold the walk behind a failure against the rows: who walked it did not know all that is settled.

        A node that was skipped for another reason stops a failure, and what is behind it may be running.
        """
        for skip in event.skips:
            row = self._row(execution, skip.node_id)
            if row.state is not None and not has_failed(row):
                unsettled = {
                    skip.node_id for skip in event.skips if self._row(execution, skip.node_id).state is None
                }
                return skips_behind_failure(plan, event.node_id, cause=cause, among=unsettled)
        return event.skips

    def _skip(self, skips: Sequence[Skip], execution: ExecutionRow) -> tuple[NodeRow, ...]:
        rows = []
        for skip in skips:
            row = self._row(execution, skip.node_id)
            if row.state is None:
                row = self._settle_unrun(execution, row, NodeState.SKIPPED, skip.reason, skip.cause)
            rows.append(row)
        return tuple(rows)

    def _settle_unrun(
        self,
        execution: ExecutionRow,
        row: NodeRow,
        state: NodeState,
        reason: str,
        cause: str | None,
        running: Running | None = None,
    ) -> NodeRow:
        """Settle a node without a result; ``running`` is the attempt that was in hand, if one was."""
        in_hand = running is not None and running.attempt == row.attempt and running.started_at is not None
        queued_at = started_at = finished_at = worker = None
        if in_hand:
            assert running is not None
            assert running.started_at is not None
            finished_at, worker = self._now, running.worker
            started_at = min(running.started_at, finished_at)
            queued_at = None if running.queued_at is None else min(running.queued_at, started_at)
        ended = row.attempt if in_hand else row.ended
        seq = self._note(
            execution,
            "node.skipped" if state is NodeState.SKIPPED else "node.cancelled",
            node=row.node_id,
            attempt=ended,
            state=state,
            reason=reason,
            cause=cause,
            worker=worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
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
            worker=worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
            seq=seq,
        )
        self._put(execution, row, settled)
        execution.unsettled -= 1
        if state is NodeState.SKIPPED:
            execution.skipped += 1
        else:
            execution.cancelled += 1
        return settled

    def _stop_if_fatal(
        self, node_id: str, execution: ExecutionRow, plan: Plan, running: Mapping[str, Running]
    ) -> None:
        """Under ``fail_fast``, stop at a failure that nothing handles and nothing still can."""
        if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST or not execution.failed:
            return
        suspects = [node_id]
        if plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
            # It was to handle these, and did not complete.
            suspects = [*plan.graph.parents[node_id], node_id]
        fatal = [
            row
            for suspect in suspects
            if (row := self._row(execution, suspect)).state is NodeState.FAILED
            and not self._may_be_handled(execution, suspect, plan)
        ]
        if fatal:
            first = min(fatal, key=lambda row: row.seq)
            error = self._node_error(first)
            self._stop(
                execution, plan, ExecutionState.FAILED, Reason.FAIL_FAST, first.node_id, error, running
            )

    def _may_be_handled(self, execution: ExecutionRow, node_id: str, plan: Plan) -> bool:
        return any(
            self._row(execution, handler).state in (None, NodeState.COMPLETED)
            for handler in plan.failure_handlers.get(node_id, ())
        )

    def _is_handled(self, execution: ExecutionRow, node_id: str, plan: Plan) -> bool:
        return any(
            self._row(execution, handler).state is NodeState.COMPLETED
            for handler in plan.failure_handlers.get(node_id, ())
        )

    def _stop(
        self,
        execution: ExecutionRow,
        plan: Plan,
        state: ExecutionState,
        reason: Reason,
        cause: str | None,
        error: dict[str, Any] | None,
        running: Mapping[str, Running],
        actor: str | None = None,
    ) -> None:
        """Settle all that is unsettled, and the execution with it, in this one commit."""
        for node_id in plan.graph.ids:
            row = self._row(execution, node_id)
            if row.state is None:
                self._settle_unrun(execution, row, NodeState.CANCELLED, reason, cause, running.get(node_id))
        assert execution.unsettled == 0
        self._close(execution, state, error, actor)

    def _finish_if_settled(self, execution: ExecutionRow, plan: Plan) -> None:
        if execution.unsettled > 0 or execution.state in TERMINAL:
            return
        if execution.failed:
            failures = [
                row
                for row in self.rows_of(execution, plan).values()
                if row.state is NodeState.FAILED and not self._is_handled(execution, row.node_id, plan)
            ]
            if failures:
                first = min(failures, key=lambda row: row.seq)
                self._close(execution, ExecutionState.FAILED, self._node_error(first))
                return
        error = None
        try:
            execution.output = execution_output(
                plan,
                execution,
                _Rows(self, execution),
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

    @staticmethod
    def _node_error(row: NodeRow) -> dict[str, Any]:
        cause = row.error or {}
        return {
            "code": "node_failed",
            "message": f"node {row.node_id} failed: {cause.get('message', '')}",
            "retryable": False,
            "node": row.node_id,
            "details": {"code": cause.get("code")},
        }

    def _move_letters(self, execution: ExecutionRow, node_id: str | None, state: str) -> None:
        """Give the open letters of a node (None: of all) their next state."""
        for index, letter in enumerate(self.changes.letters):
            if letter.execution_id == execution.id:
                self.changes.letters[index] = moved_letter(letter, node_id, state)
        self.changes.letter_states.append((execution.id, node_id, state))

    # -- rows and history --------------------------------------------------------------------------

    def rows_of(self, execution: ExecutionRow, plan: Plan) -> dict[str, NodeRow]:
        """List every node's row, a missing one as what it means."""
        return {node_id: self._row(execution, node_id) for node_id in plan.graph.ids}

    def _take(self, execution_id: str) -> ExecutionRow | None:
        execution = self.changes.executions.get(execution_id)
        if execution is None:
            stored = self._executions.get(execution_id)
            if stored is None:
                return None
            execution = self.changes.executions[execution_id] = replace(stored)
        return execution

    def _row(self, execution: ExecutionRow, node_id: str) -> NodeRow:
        row = self.changes.nodes.get(execution.id, _NO_ROWS).get(node_id)
        if row is None:
            row = self._nodes.get(execution.id, _NO_ROWS).get(node_id)
            if row is None:
                return NodeRow(node_id=node_id)
        return row

    def _put(self, execution: ExecutionRow, old: NodeRow, row: NodeRow) -> None:
        # In line: the call would cost more than the check.
        if row.state not in ROW_MOVES[old.state]:
            raise IllegalMoveError(
                f"node {row.node_id}: {old.state or 'unsettled'} → {row.state or 'unsettled'}"
            )
        if old.recorded_at is not None:
            self._keep_completion(execution, old)
        changed = self.changes.nodes.get(execution.id)
        if changed is None:
            changed = self.changes.nodes[execution.id] = {}
        changed[row.node_id] = row

    def _times(
        self, event: NodeCompleted | AttemptFailed | AttemptLost | NodeFailed
    ) -> tuple[int | None, int | None, int | None]:
        """Hold queued ≤ started ≤ finished ≤ now, whatever a worker's clock said."""
        if event.started_at is None:
            return None if event.queued_at is None else min(event.queued_at, self._now), None, None
        finished_at = min(self._now if event.finished_at is None else event.finished_at, self._now)
        started_at = min(event.started_at, finished_at)
        queued_at = None if event.queued_at is None else min(event.queued_at, started_at)
        return queued_at, started_at, finished_at

    def _note_lost(self, event: AttemptLost | NodeFailed, execution: ExecutionRow) -> int:
        queued_at, started_at, finished_at = self._times(event)
        return self._note(
            execution,
            "node.lost",
            node=event.node_id,
            attempt=event.attempt,
            worker=event.worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
        )

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
        self._history.append(event)
        self.changes.events.append(event)
        return execution.seq

    def _with_event(self, execution: ExecutionRow, row: NodeRow) -> NodeRow:
        """Return a completed row, which stands for its event if it can.

        A column of text does not take every name of a worker. Then the event gets a row of its own.
        """
        if row.worker is None or row.worker.isprintable():
            return row
        event = completion_event(execution.id, row, digest_of(row.output))
        self._history.append(event)
        self.changes.events.append(event)
        return replace(row, recorded_at=None)

    def _keep_completion(self, execution: ExecutionRow, row: NodeRow) -> None:
        """Store the event that a row stands for, in the commit that overwrites the row."""
        digest = digest_of(row.output)
        if row.output is None and row.blob is None:
            assert self._load_digest is not None
            digest = self._load_digest(execution.id, row.node_id)
        self.changes.events.append(completion_event(execution.id, row, digest))


def _move(execution: ExecutionRow, state: ExecutionState) -> None:
    if state not in EXECUTION_MOVES[execution.state]:
        raise IllegalMoveError(f"execution {execution.id}: {execution.state} → {state}")
    execution.state = state


def _is_recorded(event: NodeEvent, row: NodeRow) -> bool:
    """Say whether the journal has this: an attempt's own result, or only that it ended without one."""
    is_loss = isinstance(event, AttemptLost) or (isinstance(event, NodeFailed) and event.lost)
    return event.attempt == (row.ended if is_loss else row.answered)


def moved_letter(letter: DeadLetter, node_id: str | None, state: str) -> DeadLetter:
    """Give an open letter its new state, if it is of this node (None: of any)."""
    if letter.state != "open" or node_id not in (None, letter.node_id):
        return letter
    return replace(letter, state=state)


class _Rows(Mapping[str, NodeRow]):
    """An execution's rows by id, read where they are asked for."""

    def __init__(self, ledger: Ledger, execution: ExecutionRow) -> None:
        self._ledger, self._execution = ledger, execution

    def __getitem__(self, node_id: str) -> NodeRow:
        return self._ledger._row(self._execution, node_id)

    def __iter__(self) -> Any:
        raise TypeError("rows are looked up by id")

    def __len__(self) -> int:
        raise TypeError("rows are looked up by id")


__all__ = ["SETTLED", "Changes", "Ledger", "Standing", "Verdict", "moved_letter"]
