"""The changes of one batch of events: rows of executions and nodes, events of the history, dead letters.

Every change of a state goes through ``Changes.put`` (nodes) or ``move_execution`` (executions), which hold it
against the tables of ``core.state``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from weft.core.event import (
    ChildEnded,
    NodeCached,
    NodeCompleted,
    ParkedDue,
    SignalReceived,
    WaitAnswered,
    WaitDue,
    WaitStarted,
)
from weft.core.rows import (
    LARGE_INPUT_BYTES,
    DeadLetter,
    ExecutionRow,
    History,
    NodeRow,
    Notification,
    completion_event,
    digest_of,
)
from weft.core.state import EXECUTION_MOVES, ROW_MOVES, ExecutionState, IllegalMoveError, NodeState
from weft.lru import Lru

if TYPE_CHECKING:
    from weft.core.attempt import EndedAttempt
    from weft.core.event import (
        AttemptFailed,
        AttemptLost,
        AttemptPolled,
        Event,
        NodeFailed,
        NotificationEnded,
    )
    from weft.core.rows import QueueEntry, Signal
    from weft.definition.plan import Plan


class Verdict(StrEnum):
    """The ledger's judgement of an event against the journal."""

    ACCEPTED = "accepted"
    # Recorded before: a redelivery, or a commit whose answer was lost. It goes on to apply all the same.
    KNOWN = "known"
    # Of a superseded attempt, an older generation or a terminal execution: it changes nothing.
    STALE = "stale"
    # A control call that the execution's state forbids.
    REFUSED = "refused"
    # The journal has no such execution or node.
    UNKNOWN = "unknown"


_COMPLETIONS = (NodeCompleted, NodeCached, ParkedDue)
# Events of waits, which may complete their nodes.
_WAITS = (WaitStarted, WaitDue, WaitAnswered, SignalReceived, ChildEnded)
# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_ACCEPTED, _COMPLETED = Verdict.ACCEPTED, NodeState.COMPLETED


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
    # A child that the event has created, or opened again: ``rows`` are all of its rows.
    children: tuple[RecordedEvent, ...] = ()

    @property
    def completed_row(self) -> NodeRow | None:
        """The row of the node that the event completed."""
        if self.verdict is not _ACCEPTED:
            return None
        if isinstance(self.event, _COMPLETIONS):
            return self.rows[0]
        if isinstance(self.event, _WAITS) and self.rows and self.rows[0].state is _COMPLETED:
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


def live_executions(
    max_bytes: int, weigh: Callable[[LiveExecution], int] | None = None
) -> Lru[str, LiveExecution]:
    """Return a memory of the executions used last, by id."""
    return Lru(max_bytes, weigh or LiveExecution.weigh)


def _held_bytes(row: NodeRow) -> int:
    """Return the size of the output that a row holds, or will have when it is no longer parked."""
    output = row.output if row.parked is None else row.parked.output
    return 0 if output is None else len(output)


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
        # The size of all outputs in ``rows``; None until the weight is asked for: that takes a look at every
        # row, and a journal in memory makes this object anew for every batch.
        self.output_bytes: int | None = None

    def drop_large_input(self) -> None:
        """Leave the input out of the row if it is large: few need it, and they read it."""
        if len(self.row.input) > LARGE_INPUT_BYTES:
            self.row = replace(self.row, input=b"")

    def weigh(self) -> int:
        """Return about how many bytes it takes in memory."""
        return _EXECUTION_BYTES + _ROW_BYTES * len(self.rows) + self.weigh_payloads()

    def weigh_payloads(self) -> int:
        """Return how many bytes its input and outputs take in memory."""
        if self.output_bytes is None:
            self.output_bytes = sum(map(_held_bytes, self.rows.values()))
        return len(self.row.input) + self.output_bytes


class Change:
    """An execution as a batch changes it; the row in the journal stays until the batch has committed."""

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
                if node_id not in live.rows:
                    live.output_bytes += _held_bytes(row)
        live.rows.update(self.rows)


# Returns the digest of the output of an execution's node.
LoadDigest: TypeAlias = Callable[[str, str], str]


class Changes:
    """The rows and events that one transaction writes, at the time ``now``.

    An adapter that loads rows without their outputs gives ``load_digest``, for the event that is kept of an
    overwritten row.
    """

    __slots__ = (
        "_load_digest",
        "cache",
        "children_told",
        "events",
        "events_taken",
        "executions",
        "joined",
        "letter_states",
        "letters",
        "notification_ends",
        "notifications",
        "now",
        "overwritten",
        "signals_kept",
        "signals_read",
        "signals_taken",
        "untold",
        "waits_ended",
        "waits_started",
    )

    def __init__(self, now: int, load_digest: LoadDigest | None = None) -> None:
        self.now = now
        self._load_digest = load_digest
        self.executions: dict[str, Change] = {}
        # Executions that begin to wait for their turn in a lane.
        self.joined: list[QueueEntry] = []
        # Events that get a row of their own; for a plain completion the node's row stands.
        self.events: list[History] = []
        # Events of earlier completions that get a row of their own now: the rows that stood for them change.
        self.overwritten: list[History] = []
        self.letters: list[DeadLetter] = []
        # (execution, node or all, new state) for letters that were open before these
        self.letter_states: list[tuple[str, str | None, str]] = []
        self.notifications: list[Notification] = []
        # Notifications of earlier commits that were delivered, or are not sent any more.
        self.notification_ends: list[NotificationEnded] = []
        # By execution and node: waits that began, and those that ended. Of the latter, whether whoever
        # ended it still has to tell the store: nothing that is in the store leads to it.
        self.waits_started: dict[tuple[str, str], NodeRow] = {}
        self.waits_ended: dict[tuple[str, str], bool] = {}
        # Nodes whose waits end in this batch by an answer or by their time.
        self.untold: set[tuple[str, str]] = set()
        # Signals that nobody waits for yet; and those of earlier commits that were read, by their numbers.
        self.signals_kept: list[Signal] = []
        self.signals_taken: list[tuple[str, int]] = []
        # Earlier inbound events that end waits which begin in this batch: (number, execution, node).
        self.events_taken: list[tuple[int, str, str]] = []
        # By execution and name: the last signal that was taken.
        self.signals_read: dict[tuple[str, str], int] = {}
        # Children whose ends their parents know: what a parent has ended itself is no news to it.
        # By child, the execution that knows.
        self.children_told: dict[str, str] = {}
        # (key, output, blob, ttl in seconds)
        self.cache: list[tuple[str, bytes | None, str | None, float]] = []

    @property
    def touches_waits(self) -> bool:
        """True if a wait begins or ends, or a signal is kept or read: nearly no transaction does."""
        return bool(self.waits_started or self.waits_ended or self.signals_kept or self.signals_taken)

    def put(self, change: Change, old: NodeRow, row: NodeRow) -> None:
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
            self.overwritten.append(completion_event(change.row.id, old, digest))
        change.rows[row.node_id] = row
        if old.parked is not None or row.parked is not None:
            self._count_wait(change.row, old, row)

    def _count_wait(self, execution: ExecutionRow, old: NodeRow, row: NodeRow) -> None:
        """Note that a wait begins or ends with the row of its node."""
        key = (execution.id, row.node_id)
        if old.wait is not None and row.wait is None:
            execution.waiting -= 1
            # What follows on the end of a wait needs the hot state.
            execution.evicted = False
            self.waits_ended[key] = key in self.untold
        elif old.wait is None and row.wait is not None:
            execution.waiting += 1
            self.waits_started[key] = row
            self.waits_ended.pop(key, None)

    @property
    def touches_children(self) -> bool:
        """True if a child is among the changes, or the end of one."""
        if self.children_told:
            return True
        return any(change.row.parent is not None for change in self.executions.values())

    def ended_children(self) -> dict[str, bool]:
        """Return the children whose ends these changes change: True if the parent is still to be told."""
        moved = {
            id_: change.row.is_terminal and id_ not in self.children_told
            for id_, change in self.executions.items()
            if change.row.parent is not None
            and not change.is_new
            and (change.row.is_terminal, change.row.parent)
            != (change.live.row.is_terminal, change.live.row.parent)
        }
        return {**dict.fromkeys(self.children_told, False), **moved}

    def note(
        self, execution: ExecutionRow, type_: str, *, generation: int | None = None, **facts: Any
    ) -> int:
        execution.seq += 1
        execution.updated_at = self.now
        event = History(
            seq=execution.seq,
            at=self.now,
            type=type_,
            execution=execution.id,
            generation=execution.generation if generation is None else generation,
            **facts,
        )
        self.events.append(event)
        return execution.seq

    def note_lost(self, event: AttemptLost | NodeFailed, execution: ExecutionRow) -> int:
        times = self.attempt_times(event)
        return self.note(execution, "node.lost", node=event.node_id, attempt=event.attempt, **times)

    def attempt_times(
        self, event: NodeCompleted | AttemptFailed | AttemptPolled | AttemptLost | NodeFailed
    ) -> dict[str, Any]:
        """Return the fields that the history and the node's row have of an attempt that ended."""
        queued_at, started_at, finished_at = self.times(event)
        return {
            "worker": event.worker,
            "queued_at": queued_at,
            "started_at": started_at,
            "finished_at": finished_at,
        }

    def times(self, event: EndedAttempt) -> tuple[int | None, int | None, int | None]:
        """Return the times of an attempt, corrected to queued ≤ started ≤ finished ≤ now."""
        queued_at, started_at, finished_at = event.queued_at, event.started_at, event.finished_at
        if started_at is None:
            return None if queued_at is None else min(queued_at, self.now), None, None
        if finished_at is None or finished_at > self.now:
            finished_at = self.now
        # Compared in line, for every completion comes here.
        if started_at > finished_at:
            started_at = finished_at
        if queued_at is not None and queued_at > started_at:
            queued_at = started_at
        return queued_at, started_at, finished_at

    def move_letters(self, execution: ExecutionRow, node_id: str | None, state: str) -> None:
        """Set the state of the open dead letters of a node (None: of all nodes)."""
        for index, letter in enumerate(self.letters):
            if letter.execution_id == execution.id:
                self.letters[index] = moved_letter(letter, node_id, state)
        self.letter_states.append((execution.id, node_id, state))


def move_execution(execution: ExecutionRow, state: ExecutionState) -> None:
    """Change the state of an execution, if the table allows the move; raises IllegalMoveError."""
    if state not in EXECUTION_MOVES[execution.state]:
        raise IllegalMoveError(f"execution {execution.id}: {execution.state} → {state}")
    execution.state = state


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
