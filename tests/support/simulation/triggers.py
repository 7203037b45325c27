"""What must hold of inbound events and triggers: a second account, kept from the commits that fire."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.simulation.drawing import EVENT_TYPES, plan_of
from tests.support.simulation.violation import Violation

from weft.core.ledger.changes import Verdict
from weft.core.payload import decode
from weft.core.time import micros, parse_rfc3339
from weft.triggers.due import changed_row
from weft.triggers.model import CatchUp, EventFilter, Overlap, Schedule, Trigger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.support.simulation.world import World

    from weft.journal.firing import FireAnswer, Firing
    from weft.triggers.cloudevent import InboundEvent

_EVERY_SECONDS = 4
_DOCUMENT: dict[str, Any] = {
    "name": "started",
    "nodes": [
        {
            "id": "n0",
            "handler": "work",
            "dependencies": [],
            "config": {"node": "n0", "parents": {}},
        }
    ],
}


@dataclass(frozen=True, slots=True)
class _Effect:
    """What an event did in the commit that kept it."""

    started: tuple[str, ...]
    answered: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Triggers:
    """The triggers of one run, and what they and the events have done."""

    world: World
    # No due time behind this fires: the faults are over, and a run has to end.
    last_at: int = 0
    # All due times.
    due: set[int] = field(default_factory=set)
    # By the id of an event.
    effects: dict[str, _Effect] = field(default_factory=dict)
    # By trigger and due time, or event: the executions that were started.
    started: Counter[tuple[str, int | str]] = field(default_factory=Counter)

    def store(self) -> None:
        """Store a workflow, a schedule that starts it, and a trigger for events."""
        world = self.world
        plan = plan_of(_DOCUMENT)
        _now(world.journal.put_version("started", plan, b"{}"))
        self.last_at = world.scheduler.start + micros(world.faults_end_seconds)
        schedule = Schedule(every_seconds=_EVERY_SECONDS, catch_up=CatchUp.ALL)
        for trigger in (
            Trigger(
                name="tick",
                workflow="started",
                input={"due": "{{ trigger.due_at }}", "draw": 0},
                schedule=schedule,
                # By the seed: starts that wait for their turn, too.
                overlap=Overlap.QUEUE if world.seed % 3 == 0 else Overlap.ALLOW,
            ),
            Trigger(
                name="on_event",
                workflow="started",
                input={"event": "{{ event.id }}", "draw": 0},
                event=EventFilter(type=EVENT_TYPES[0], when="event.data.n == 1"),
            ),
        ):
            row = changed_row(None, trigger, namespace="default", now=world.scheduler.now)
            _now(world.journal.put_trigger(row, seen_revision=None, action="trigger.created"))
        every = micros(_EVERY_SECONDS)
        self.due = set(range(world.scheduler.start + every, self.last_at + 1, every))

    # -- commits -----------------------------------------------------------------------------------

    def fired(self, firings: list[Firing], event: InboundEvent | None, answer: FireAnswer) -> None:
        """Look at a commit that starts triggers, or that keeps an event."""
        for one in answer.fired:
            if one.execution is not None:
                self._count(one.execution.trigger, decode(one.execution.input))
        if event is None:
            return
        done = tuple(one.execution.id for one in answer.fired if one.execution is not None)
        accepted = [one for one in answer.answered if one.verdict is Verdict.ACCEPTED]
        answered = tuple(
            (one.rows[0].node_id, one.execution.id) for one in accepted if one.execution is not None
        )
        if answer.known is not None:
            return
        if event.id in self.effects:
            raise Violation(f"I33 event {event.id} was kept twice")
        wants_start = event.type == EVENT_TYPES[0] and event.body["data"]["n"] == 1
        if len(done) != wants_start:
            raise Violation(f"I33 event {event.id} started {done}")
        self.effects[event.id] = _Effect(done, tuple((id_, node_id) for node_id, id_ in answered))

    def _count(self, trigger: str | None, given: dict[str, Any]) -> None:
        assert trigger is not None
        key = (trigger, parse_rfc3339(given["due"]) if trigger == "tick" else given["event"])
        self.started[key] += 1
        self.world.hits[f"trigger: {trigger}"] += 1
        if self.started[key] > 1:
            raise Violation(f"I34 {key} started two executions")

    # -- answers -----------------------------------------------------------------------------------

    def check_answer(self, event: InboundEvent, answer: FireAnswer) -> None:
        """Check that whoever sent an event is told what it did, also the second time."""
        effect = self.effects.get(event.id)
        if effect is None:
            raise Violation(f"I33 event {event.id} was answered, and the journal does not have it")
        if answer.known is not None and (answer.known.started, answer.known.answered) != (
            effect.started,
            effect.answered,
        ):
            raise Violation(f"I33 event {event.id} did {effect}, and is answered with {answer.known}")

    @property
    def missing(self) -> set[int]:
        """The due times that have started nothing yet."""
        return self.due - {at for name, at in self.started if name == "tick"}

    # -- at the end --------------------------------------------------------------------------------

    def ended(self) -> None:
        """Check that each due time has started one execution."""
        if self.world.is_safety or not self.world.profile.has_events:
            return
        extra = {at for name, at in self.started if name == "tick"} - self.due
        if self.missing or extra:
            raise Violation(f"I34 due {sorted(self.missing)}, and not due {sorted(extra)}")


def _now(call: Coroutine[Any, Any, Any]) -> Any:
    """Return the result of a call of a port in memory, which never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a port in memory has waited")
