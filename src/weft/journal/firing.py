"""Triggers, inbound events and lanes in a journal, and the commits by which triggers start.

The start of an execution and the progress of its trigger are one commit, which compares the trigger with what
the start was decided on: of any number of processes that decide on the same due time, one commits. Of an
inbound event, everything that it starts is in the commit that keeps the event.

A lane is the name of executions that follow one another: those of a trigger, of a batch, or of a group of
which no more than some run at once. An execution that waits in its lane is PENDING and in no store, and
``active`` does not list it, so that no recovery starts it before its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.rows import GROUP_LANE
from weft.core.state import ExecutionState
from weft.definition.model import OnConflict
from weft.errors import NotAllowedError
from weft.triggers.overlap import Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.rows import ExecutionRow, QueueEntry
    from weft.journal.submission import Claim, Submission
    from weft.triggers.cloudevent import InboundEvent
    from weft.triggers.model import Overlap, TriggerError, TriggerRow


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a trigger, or a step past due times that start nothing."""

    namespace: str
    trigger: str
    # Of the trigger that this was decided on.
    revision: int
    overlap: Overlap
    # Of a schedule: the due time that the trigger showed, and what it shows behind this. None: the start is
    # not by the schedule, which stays where it is.
    due_at: int | None = None
    next_at: int | None = None
    fire_at: int | None = None
    # None: nothing starts. ``error`` then says why, where that is an error.
    submission: Submission | None = None
    error: TriggerError | None = None


class Fired(msgspec.Struct, frozen=True):
    """The end of a firing; ``execution`` is there where one was started or queued."""

    step: Step
    execution: ExecutionRow | None = None


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An inbound event as it is kept, with what it did."""

    # In the order of their commits.
    number: int
    namespace: str
    id: str
    source: str
    type: str
    received_at: int
    # All of it as JSON: nothing reads it but whoever it is shown to.
    body: bytes
    started: tuple[str, ...] = ()
    # Executions with the nodes that waited for it.
    answered: tuple[tuple[str, str], ...] = ()
    # Waits that began behind the event and looked back. They are no part of what the event is answered with.
    answered_later: tuple[tuple[str, str], ...] = ()


class FireAnswer(msgspec.Struct, frozen=True):
    """The answer to a commit of firings, in their order. ``known``: the event, where it came before.

    ``answered``: what the event did to waits.
    """

    fired: Sequence[Fired]
    known: StoredEvent | None = None
    answered: Sequence[RecordedEvent] = ()


def answered_waits(recorded_events: Sequence[RecordedEvent]) -> list[tuple[str, str]]:
    """Return the executions with the nodes whose waits these events have ended."""
    return [
        (one.event.execution_id, one.rows[0].node_id)
        for one in recorded_events
        if one.verdict is Verdict.ACCEPTED and one.rows
    ]


def submitted(firings: Sequence[Firing], steps: Sequence[Step]) -> list[Submission]:
    """Return the submissions of those firings that start something, or queue it."""
    found = []
    for firing, step in zip(firings, steps, strict=True):
        if firing.submission is not None and step is Step.START:
            found.append(firing.submission)
        elif firing.submission is not None and step is Step.QUEUE:
            found.append(replace(firing.submission, queue_slots=1))
    return found


def fired(steps: Sequence[Step], rows: Sequence[ExecutionRow]) -> list[Fired]:
    """Return what became of firings; ``rows``: those of ``submitted``."""
    left = iter(rows)
    return [Fired(step, next(left) if step in (Step.START, Step.QUEUE) else None) for step in steps]


class Waiting(NamedTuple):
    """An execution in the queue of a lane."""

    execution_id: str
    slots: int
    cancels: bool
    is_paused: bool


class LaneRelease(msgspec.Struct, frozen=True):
    """The outcome of a look at the queue of a lane.

    ``started``: their turn has come, and a rebuild starts them. ``doomed``: they are to be cancelled, so that
    the turn of one that takes their place comes. ``lanes``: the queues to which some have gone on.
    """

    started: tuple[str, ...] = ()
    doomed: tuple[str, ...] = ()
    lanes: tuple[str, ...] = ()


NOTHING_RELEASED = LaneRelease()


class QueuePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place of an execution in the queue of a lane: how many run, of how many, and are before it."""

    lane: str
    slots: int
    running: int
    before: int


def next_turns(waiting: Sequence[Waiting], running: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the executions of a queue whose turn has come, and those to cancel first.

    ``running``: those of the lane that are out of the queue and not terminal, the oldest first. A paused one
    is passed over and keeps its turn; nobody else is overtaken.
    """
    takes_over = max((place for place, one in enumerate(waiting) if _takes_over(one)), default=0)
    if takes_over:
        # It starts when those before it are terminal, and none of them starts.
        return [], [one.execution_id for one in waiting[:takes_over]]
    doomed: Sequence[str] = ()
    started: list[str] = []
    for one in waiting:
        if one.is_paused:
            continue
        too_many = len(running) + len(started) + 1 - one.slots
        if too_many > 0:
            if one.cancels:
                doomed = running[:too_many]
            break
        started.append(one.execution_id)
    return started, [*doomed]


def _takes_over(one: Waiting) -> bool:
    return one.cancels and not one.is_paused


class GroupCounts:
    """The executions that count in groups, running or waiting, while a journal stores new ones."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def missing(self, submissions: Iterable[Submission]) -> list[tuple[str, str]]:
        """Return (namespace, lane) of the groups that have to be counted: those that refuse newcomers."""
        lanes = {key for one in submissions if (key := rejecting_group(one)) is not None}
        return sorted(lanes - self._counts.keys())

    def put(self, namespace: str, lane: str, count: int) -> None:
        self._counts[namespace, lane] = count

    def admit(self, submissions: Sequence[Submission]) -> None:
        """Count the executions of a call; raises NotAllowedError, and counts none, where a group is full."""
        counts = dict(self._counts)
        for one in submissions:
            key = rejecting_group(one)
            if key is None:
                continue
            terms = one.plan.definition.concurrency
            assert terms is not None
            if counts[key] >= terms.limit:
                raise group_busy(one.group_name or "", terms.limit)
            counts[key] += 1
        self._counts = counts


def rejecting_group(one: Submission) -> tuple[str, str] | None:
    """Return (namespace, lane) of the group of a new execution, if the group refuses newcomers."""
    terms = one.plan.definition.concurrency
    if one.group_name is None or terms is None or terms.on_conflict is not OnConflict.REJECT:
        return None
    return one.namespace, f"{GROUP_LANE}{one.workflow}/{one.group_name}"


def group_busy(name: str, limit: int) -> NotAllowedError:
    """Return the refusal of an execution whose group has as many as may run at once."""
    count = "1 execution" if limit == 1 else f"{limit:,} executions"
    message = f"group {name!r} has {count} already, as many as it may have (on_conflict: reject)"
    return NotAllowedError(message, state=ExecutionState.RUNNING, code="group_busy")


def turn_values(joined: Iterable[QueueEntry], numbers: Mapping[str, int]) -> list[tuple[Any, ...]]:
    """Return the values of executions that begin to wait for their turn, by their numbers."""
    return [
        (
            numbers[one.execution_id],
            one.namespace,
            one.lane,
            one.slots,
            int(one.cancels),
            one.since,
            one.group_lane,
            one.group_slots,
        )
        for one in joined
    ]


class TriggerReader(Protocol):
    """The read that the engine and the API share."""

    async def trigger(self, name: str, *, namespace: str = ...) -> TriggerRow | None:
        """Read a trigger by its name."""


class TriggerEngine(TriggerReader, Protocol):
    """The calls of the engine about triggers, inbound events and lanes."""

    async def fire(
        self, firings: Sequence[Firing], *, event: InboundEvent | None = None, claim: Claim | None = None
    ) -> FireAnswer:
        """Commit starts of triggers of one namespace, all or none, and the event that they start at.

        The event also answers the waits that it matches, of each execution one.

        TriggerChangedError: a trigger is not any more as it was when its start was decided.
        StillRunningError: its running executions are to be cancelled first. ClaimedError as in ``submit``;
        of a firing that starts nothing, the claim is not taken.
        """

    async def due_triggers(self, *, now: int, limit: int) -> Sequence[TriggerRow]:
        """List triggers that fire at or before ``now``, of all namespaces, those first that fire first."""

    async def next_fire_at(self) -> int | None:
        """Return when the next trigger fires; None: no trigger has a due time."""

    async def event_triggers(
        self, event_type: str, *, namespace: str = ..., after: str = ..., limit: int = ...
    ) -> Sequence[TriggerRow]:
        """List the enabled triggers of inbound events of a type, by name, behind ``after``."""

    async def stored_event(self, source: str, event_id: str, *, namespace: str = ...) -> StoredEvent | None:
        """Return an inbound event that is kept."""

    async def is_queued(self, execution_id: str) -> bool:
        """True if an execution waits for its turn in a lane."""

    async def release_queued(self, lane: str, *, namespace: str = ...) -> LaneRelease:
        """Take the executions of a lane whose turn has come out of its queue.

        One that has a group, and whose turn in another lane has come, goes on to the queue of its group.
        """

    async def stalled_lanes(
        self, *, limit: int, after: tuple[str, str] = ("", "")
    ) -> Sequence[tuple[str, str]]:
        """List (namespace, lane), in order, of lanes whose next execution could run: nobody has released it.

        ``after``: the last one that was listed. A lane may be listed though nothing of it can run.
        """

    async def purge_events(self, *, received_before: int, limit: int) -> int:
        """Remove up to ``limit`` inbound events from before then; return their number."""


class TriggerCatalog(TriggerReader, Protocol):
    """The calls of the API about triggers and inbound events."""

    async def place_in_queue(self, execution_id: str) -> QueuePlace | None:
        """Return where an execution waits for its turn; None: it does not."""

    async def put_trigger(
        self, row: TriggerRow, *, seen_revision: int | None, action: str, actor: str | None = None
    ) -> bool:
        """Store a trigger as ``row`` has it, in the place of the one with ``seen_revision`` (None: of none).

        False where the stored trigger has another revision: somebody was quicker. ``action`` and ``actor``
        go into the list of changes.
        """

    async def delete_trigger(self, name: str, *, namespace: str = ..., actor: str | None = None) -> bool:
        """Delete a trigger; False where there is none. Its executions stay."""

    async def triggers(
        self, *, namespace: str = ..., workflow: str | None = None, after: str = "", limit: int = 50
    ) -> Sequence[TriggerRow]:
        """List triggers by name, all or those of a workflow. ``after``: the name of the last one shown."""

    async def coming_triggers(self, *, namespace: str = ..., limit: int = 10) -> Sequence[TriggerRow]:
        """List the triggers with a due time, those first that fire first."""

    async def inbound_events(
        self,
        *,
        namespace: str = ...,
        event_type: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[StoredEvent]:
        """List inbound events, newest first. ``before``: the number of the last one that was shown."""
