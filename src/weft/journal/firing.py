"""Triggers, inbound events and lanes in a journal, and the commits by which triggers start.

The start of an execution and the progress of its trigger are one commit, which compares the trigger with what
the start was decided on: of any number of processes that decide on the same due time, one commits. Of an
inbound event, everything that it starts is in the commit that keeps the event.

A lane is the name of executions that follow one another: those of a trigger, or of a batch of which no more
than some run at once. An execution that waits in its lane is PENDING and in no store; ``active`` does not
list it, so that no recovery starts it before its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.triggers.overlap import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.rows import ExecutionRow
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


def queued_values(
    submissions: Sequence[Submission], numbers: Mapping[str, int]
) -> list[tuple[int, str, str, int]]:
    """Return the values of new executions that wait in their lanes; ``numbers`` of those that are new."""
    return [
        (numbers[one.id], one.namespace, one.lane, one.queue_slots)
        for one in submissions
        if one.queue_slots and one.lane is not None and one.id in numbers
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

    async def release_queued(self, lane: str, *, namespace: str = ...) -> Sequence[str]:
        """Take the executions of a lane whose turn has come out of its queue; return their ids, in order."""

    async def stalled_lanes(self, *, limit: int) -> Sequence[tuple[str, str]]:
        """List (namespace, lane) of lanes whose next execution could run: nobody has released it."""

    async def purge_events(self, *, received_before: int, limit: int) -> int:
        """Remove up to ``limit`` inbound events from before then; return their number."""


class TriggerCatalog(TriggerReader, Protocol):
    """The calls of the API about triggers and inbound events."""

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
