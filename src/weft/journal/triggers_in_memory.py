"""The part of the journal in memory that is about triggers, inbound events and lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.errors import StillRunningError, TriggerChangedError
from weft.journal.contract import DEFAULT_NAMESPACE
from weft.journal.firing import (
    FireAnswer,
    GroupCounts,
    LaneRelease,
    QueuePlace,
    StoredEvent,
    Waiting,
    answered_waits,
    fired,
    next_turns,
    submitted,
)
from weft.journal.rows import encode_json
from weft.triggers.overlap import Step, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow, QueueEntry
    from weft.journal.contract import Claim, NewBatch, Submission
    from weft.journal.firing import Firing
    from weft.triggers.cloudevent import InboundEvent
    from weft.triggers.model import TriggerRow


class MemoryTriggers:
    _now: Callable[[], int]
    _executions: dict[str, ExecutionRow]

    def __init__(self) -> None:
        self._triggers: dict[tuple[str, str], TriggerRow] = {}
        # By (namespace, source, id), in the order of their numbers.
        self._inbound: dict[tuple[str, str, str], StoredEvent] = {}
        self._last_event = 0
        # By execution, in the order in which they wait; and those of groups that are out of the queue.
        self._queued: dict[str, QueueEntry] = {}
        self._in_group: dict[str, str] = {}

    def _store(
        self, submissions: Sequence[Submission], claim: Claim | None, batch: NewBatch | None = None
    ) -> list[ExecutionRow]:
        raise NotImplementedError

    def _refuse_taken(self, claim: Claim | None) -> None:
        raise NotImplementedError

    def _add_change(self, namespace: str, actor: str | None, action: str, **fields: Any) -> None:
        raise NotImplementedError

    def _answer_waits(self, event: InboundEvent) -> list[RecordedEvent]:
        raise NotImplementedError

    # -- firing ------------------------------------------------------------------------------------

    async def fire(
        self, firings: Sequence[Firing], *, event: InboundEvent | None = None, claim: Claim | None = None
    ) -> FireAnswer:
        if event is not None:
            known = await self.stored_event(event.source, event.id, namespace=event.namespace)
            if known is not None:
                return FireAnswer((), known)
        self._refuse_taken(claim)
        steps = [self._step(firing) for firing in firings]
        submissions = submitted(firings, steps)
        self._refuse_busy(submissions)
        for firing, step in zip(firings, steps, strict=True):
            self._move(firing, step)
        rows = self._store(submissions, claim if submissions else None)
        recorded_events = [] if event is None else self._answer_waits(event)
        if event is not None:
            self._keep(event, [row.id for row in rows], answered_waits(recorded_events))
        return FireAnswer(fired(steps, rows), None, recorded_events)

    def _step(self, firing: Firing) -> Step:
        row = self._triggers.get((firing.namespace, firing.trigger))
        if row is None or row.revision != firing.revision or firing.due_at not in (None, row.next_at):
            raise TriggerChangedError(f"trigger {firing.trigger} has changed since its start was decided")
        if firing.submission is None:
            return Step.SKIP
        running, queued = self._in_lane(firing.namespace, firing.submission.lane)
        step = decide(firing.overlap, running=len(running), queued=len(queued))
        if step is Step.CANCEL:
            raise StillRunningError([*running, *queued])
        return step

    def _move(self, firing: Firing, step: Step) -> None:
        row = self._triggers[firing.namespace, firing.trigger]
        if firing.due_at is not None:
            row = replace(row, next_at=firing.next_at, fire_at=firing.fire_at)
        if step is Step.SKIP and firing.submission is not None:
            row = replace(row, skipped=row.skipped + 1, skipped_at=self._now())
        if firing.error is not None:
            row = replace(row, error=firing.error)
        self._triggers[firing.namespace, firing.trigger] = row

    def _keep(self, event: InboundEvent, started: list[str], answered: list[tuple[str, str]]) -> None:
        self._last_event += 1
        self._inbound[event.namespace, event.source, event.id] = StoredEvent(
            number=self._last_event,
            namespace=event.namespace,
            id=event.id,
            source=event.source,
            type=event.type,
            received_at=self._now(),
            body=encode_json(event.body),
            started=tuple(started),
            answered=tuple(answered),
        )

    def _answer_later(self, number: int, execution_id: str, node_id: str) -> None:
        """Note that a wait which looked back has taken an event."""
        for key, event in self._inbound.items():
            if event.number == number:
                later = (*event.answered_later, (execution_id, node_id))
                self._inbound[key] = replace(event, answered_later=later)

    # -- triggers ----------------------------------------------------------------------------------

    async def trigger(self, name: str, *, namespace: str = DEFAULT_NAMESPACE) -> TriggerRow | None:
        return self._triggers.get((namespace, name))

    async def triggers(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        workflow: str | None = None,
        after: str = "",
        limit: int = 50,
    ) -> Sequence[TriggerRow]:
        found = [
            row
            for (place, name), row in sorted(self._triggers.items())
            if place == namespace and name > after and workflow in (None, row.trigger.workflow)
        ]
        return found[:limit]

    async def coming_triggers(
        self, *, namespace: str = DEFAULT_NAMESPACE, limit: int = 10
    ) -> Sequence[TriggerRow]:
        coming = [
            (row.fire_at, name, row)
            for (place, name), row in self._triggers.items()
            if place == namespace and row.fire_at is not None
        ]
        return [row for _, _, row in sorted(coming, key=lambda one: one[:2])][:limit]

    async def due_triggers(self, *, now: int, limit: int) -> Sequence[TriggerRow]:
        due = [(row.fire_at, row) for row in self._triggers.values() if row.fire_at is not None]
        return [row for at, row in sorted(due, key=lambda one: one[0]) if at <= now][:limit]

    async def next_fire_at(self) -> int | None:
        return min((row.fire_at for row in self._triggers.values() if row.fire_at is not None), default=None)

    async def event_triggers(
        self,
        event_type: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        after: str = "",
        limit: int = 50,
    ) -> Sequence[TriggerRow]:
        found = [
            row
            for (place, name), row in sorted(self._triggers.items())
            if place == namespace
            and name > after
            and row.trigger.enabled
            and row.trigger.event is not None
            and row.trigger.event.type == event_type
        ]
        return found[:limit]

    async def put_trigger(
        self, row: TriggerRow, *, seen_revision: int | None, action: str, actor: str | None = None
    ) -> bool:
        stored = self._triggers.get((row.namespace, row.name))
        if (None if stored is None else stored.revision) != seen_revision:
            return False
        if stored is not None:
            row = replace(row, skipped=stored.skipped, skipped_at=stored.skipped_at)
        self._triggers[row.namespace, row.name] = row
        self._add_change(row.namespace, actor, action, workflow=row.trigger.workflow, trigger=row.name)
        return True

    async def delete_trigger(
        self, name: str, *, namespace: str = DEFAULT_NAMESPACE, actor: str | None = None
    ) -> bool:
        if self._triggers.pop((namespace, name), None) is None:
            return False
        self._add_change(namespace, actor, "trigger.deleted", trigger=name)
        return True

    # -- inbound events ----------------------------------------------------------------------------

    async def stored_event(
        self,
        source: str,
        event_id: str,
        *,
        namespace: str = DEFAULT_NAMESPACE,
    ) -> StoredEvent | None:
        return self._inbound.get((namespace, source, event_id))

    async def inbound_events(
        self,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        event_type: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[StoredEvent]:
        found = [
            event
            for event in reversed(self._inbound.values())
            if event.namespace == namespace
            and event_type in (None, event.type)
            and (before is None or event.number < before)
        ]
        return found[:limit]

    async def purge_events(self, *, received_before: int, limit: int) -> int:
        old = [key for key, event in self._inbound.items() if event.received_at < received_before][:limit]
        for key in old:
            del self._inbound[key]
        return len(old)

    # -- lanes -------------------------------------------------------------------------------------

    def _put_turns(self, joined: Sequence[QueueEntry]) -> None:
        for turn in joined:
            self._queued.pop(turn.execution_id, None)
            self._in_group.pop(turn.execution_id, None)
            self._queued[turn.execution_id] = turn

    def _in_lane(self, namespace: str, lane: str | None) -> tuple[list[str], list[str]]:
        """Return the executions of a lane that are not terminal: those that run, and those that wait."""
        running, waiting = [], []
        for row in self._executions.values():
            if row.namespace != namespace or lane is None or lane not in row.lanes or row.is_terminal:
                continue
            turn = self._queued.get(row.id)
            if turn is not None and turn.lane == lane and row.started_at is None:
                waiting.append(row.id)
            elif lane == row.lane or self._in_group.get(row.id) == lane:
                running.append(row.id)
        order = {id_: (turn.since, place) for place, (id_, turn) in enumerate(self._queued.items())}
        return running, sorted(waiting, key=order.__getitem__)

    def _is_group_busy(self, execution: ExecutionRow, limit: int) -> bool:
        return sum(map(len, self._in_lane(execution.namespace, execution.group_lane))) >= limit

    def _refuse_busy(self, submissions: Sequence[Submission]) -> None:
        counts = GroupCounts()
        new = [one for one in submissions if one.id not in self._executions]
        for namespace, lane in counts.missing(new):
            counts.put(namespace, lane, sum(map(len, self._in_lane(namespace, lane))))
        counts.admit(new)

    async def is_queued(self, execution_id: str) -> bool:
        return execution_id in self._queued

    async def place_in_queue(self, execution_id: str) -> QueuePlace | None:
        turn = self._queued.get(execution_id)
        if turn is None:
            return None
        running, waiting = self._in_lane(turn.namespace, turn.lane)
        if execution_id not in waiting:
            return None
        before = waiting.index(execution_id)
        return QueuePlace(lane=turn.lane, slots=turn.slots, running=len(running), before=before)

    async def release_queued(self, lane: str, *, namespace: str = DEFAULT_NAMESPACE) -> LaneRelease:
        running, waiting = self._in_lane(namespace, lane)
        for id_, turn in list(self._queued.items()):
            if (turn.namespace, turn.lane) == (namespace, lane) and id_ not in waiting:
                del self._queued[id_]
        next_ones, doomed = next_turns([self._waiting(id_) for id_ in waiting], running)
        started, lanes = [], []
        for id_ in next_ones:
            turn = self._queued.pop(id_)
            if turn.group_lane is not None:
                going_on = replace(turn, lane=turn.group_lane, slots=turn.group_slots, group_lane=None)
                self._queued[id_] = going_on
                lanes.append(turn.group_lane)
                continue
            started.append(id_)
            if self._executions[id_].group_lane == lane:
                self._in_group[id_] = lane
        return LaneRelease(tuple(started), tuple(doomed), tuple(lanes))

    def _waiting(self, execution_id: str) -> Waiting:
        turn, row = self._queued[execution_id], self._executions[execution_id]
        in_group = turn.lane == row.group_lane
        is_paused = row.state is ExecutionState.PAUSED
        return Waiting(execution_id, turn.slots, turn.cancels and in_group, is_paused)

    async def stalled_lanes(
        self, *, limit: int, after: tuple[str, str] = ("", "")
    ) -> Sequence[tuple[str, str]]:
        lanes = sorted({(turn.namespace, turn.lane) for turn in self._queued.values()})
        return [lane for lane in lanes if lane > after and self._is_stalled(*lane)][:limit]

    def _is_stalled(self, namespace: str, lane: str) -> bool:
        running, waiting = self._in_lane(namespace, lane)
        return any(next_turns([self._waiting(id_) for id_ in waiting], running))
