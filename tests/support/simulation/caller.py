"""The caller: submits executions, one or a batch, and bothers them with control calls.

Its script is drawn before the run and outlives its process: a client whose call was not answered makes it
again, with the same idempotency key if it has one.
"""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from typing import TYPE_CHECKING

from tests.support.simulation.drawing import EVENT_TYPES, EVENT_VALUES, draw_definition, plan_of
from tests.support.simulation.faults import PortError
from tests.support.simulation.scheduler import Step

from weft.core.payload import encode
from weft.core.state import ExecutionState
from weft.errors import ClaimedError, InputError, JournalError, NotAllowedError, NotFoundError
from weft.journal.contract import Claim, NewBatch, Submission
from weft.orchestrator import control
from weft.orchestrator.submit import submit
from weft.orchestrator.triggers.events import receive
from weft.orchestrator.waits import answers
from weft.triggers.cloudevent import InboundEvent

if TYPE_CHECKING:
    from random import Random

    from tests.support.simulation.scheduler import Actor
    from tests.support.simulation.world import World

    from weft.definition.plan import Plan
    from weft.ports import ApiPorts

_CONTROLS = (
    "cancel",
    "cancel",
    "pause",
    "pause",
    "resume",
    "retry",
    "retry",
    "retry_nodes",
    "retry_once",
    "cancel_all",
)

_ANSWERS = ("answer", "signal", "signal")
_EVENT = "event"
# So many waits are answered at once when the script is over.
_AT_ONCE = 50

_PAUSES = ("pause", "pause", "pause", "resume", "cancel")


class Request:
    """One call a client wants answered."""

    __slots__ = ("answer", "count", "draw", "event", "given", "key", "kind", "plan", "tried", "wait_seconds")

    def __init__(self, kind: str, *, wait_seconds: float = 0.0) -> None:
        self.kind = kind
        self.wait_seconds = wait_seconds
        self.plan: Plan | None = None
        self.draw = 0.0
        self.count = 1
        self.key: str | None = None
        # What the calls that were made could have started, each the ids of one call, and what was answered.
        self.tried: list[tuple[str, ...]] = []
        self.answer: tuple[str, ...] | None = None
        # Of an answer or a signal with a key: to whom it goes, and what it brings.
        self.given: tuple[str, str, int | str] | None = None
        # Of an inbound event: its type, its id, and what it is matched by.
        self.event: tuple[str, str, int] | None = None


class Caller:
    def __init__(self, world: World) -> None:
        self._world = world
        self.is_done = False
        # Calls that came through, for which all that follows from them must hold.
        self.submits: list[Request] = []
        self._script = self._draw()
        self._keys = 0

    def _draw(self) -> list[Request]:
        world = self._world
        rng, cut = world.drawing, world.cut
        script: list[Request] = []
        plans: list[Plan] = []
        count = rng.choice([1, 1, 2, 2, 3])
        groups = world.profile.groups
        if groups:
            count = rng.choice([2, 3, 4, 5])
        for number in range(count):
            request = Request("submit", wait_seconds=rng.choice([0.0, 0.0, rng.random()]))
            if plans and rng.random() < (0.8 if groups else 0.3):
                request.plan = rng.choice(plans)
            else:
                document = draw_definition(rng, number, more=world.profile.more, most_nodes=cut.most_nodes)
                request.plan = plan_of(document)
                plans.append(request.plan)
            request.draw = rng.random()
            request.count = rng.choice([1, 1, 1, 2]) if count < 3 else 1
            if groups:
                request.count = rng.choice([1, 1, 2, 3])
                request.wait_seconds = rng.random() * rng.choice([0.0, 1.0, 5.0])
            if rng.random() < 0.4:
                request.key = f"key-{number}"
            if number >= (cut.most_executions or count):
                break
            script.append(request)
            self.submits.append(request)
            if request.key is not None and rng.random() < 0.5:
                script.append(request)  # the same request again: it starts nothing
        controls = [
            Request(
                rng.choice(_PAUSES if world.profile.pauses else _CONTROLS),
                wait_seconds=rng.random() * rng.choice([0.1, 3.0, 10.0]),
            )
            for _ in range(rng.randint(min(1, world.profile.controls), world.profile.controls))
        ]
        controls = controls[: cut.most_controls]
        if world.profile.waits:
            controls += _draw_answers(rng)
        if world.profile.has_events:
            controls += _draw_events(rng)
        if world.profile.waits:
            rng.shuffle(controls)
        return script + controls

    async def live(self, actor: Actor) -> None:
        """Make the calls of the script; a process that was started again goes on with the one it was at."""
        ports = self._world.ports(actor)
        while self._script:
            request = self._script[0]
            await Step("sleep", request.wait_seconds)
            try:
                await self._call(request, ports)
            except (JournalError, PortError):
                # The client makes it again, or gives up.
                if self._world.rng.random() < 0.7:
                    continue
            except (NotAllowedError, NotFoundError, InputError):
                is_answer = request.kind in _ANSWERS
                self._world.hits["answer refused" if is_answer else "control call refused"] += 1
            if self._script and self._script[0] is request:
                self._script.pop(0)
        self.is_done = True
        # Nobody is left paused: liveness is promised to what runs.
        while True:
            await Step("sleep", 30.0 if self._world.profile.pauses else 4.0)
            for row in list(self._world.journal._executions.values()):
                # A child that was paused with its parent is resumed with it.
                by_parent = row.halt is not None and row.halt.by_parent
                if row.state is ExecutionState.PAUSED and not by_parent:
                    try:
                        await control.resume(row.id, ports)
                    except (JournalError, PortError, NotAllowedError, NotFoundError):
                        continue
            if self._world.profile.waits:
                await self._answer_all(ports)

    async def _call(self, request: Request, ports: ApiPorts) -> None:
        world = self._world
        if request.kind == "submit":
            await self._submit(request, ports)
            return
        if request.kind in _ANSWERS:
            await self._answer(request, ports)
            return
        if request.kind == _EVENT:
            assert request.event is not None
            await self._send(request.event, ports)
            return
        rows = list(world.journal._executions.values())
        if not rows:
            return
        row = world.rng.choice(rows)
        began_on = world.incarnation
        match request.kind:
            case "cancel":
                row = await control.cancel(row.id, ports)
                if world.incarnation == began_on:
                    world.invariants.cancel_answered(row)
            case "cancel_all":
                await control.cancel_all(rows, ports)
                for each in rows if world.incarnation == began_on else ():
                    current = world.journal._executions[each.id]
                    if current.state is ExecutionState.CANCELLED:
                        world.invariants.cancel_answered(current)
            case "pause":
                row = await control.pause(row.id, ports)
                if world.incarnation == began_on:
                    world.invariants.pause_answered(row)
            case "resume":
                await control.resume(row.id, ports)
            case "retry":
                await control.retry(row.id, ports)
            case "retry_nodes":
                ids = world.journal._plans[row.digest].graph.ids
                await control.retry(row.id, ports, nodes=tuple(world.rng.sample(ids, min(2, len(ids)))))
            case "retry_once":
                await self._retry_once(row.id, ports)
        world.hits[f"control call {request.kind}"] += 1

    async def _submit(self, request: Request, ports: ApiPorts) -> None:
        """Start executions as the API does: the key's claim is looked up, then taken with the commit."""
        world = self._world
        began_on = world.incarnation
        is_batch = request.count > 1
        claim = None
        ids = tuple(world.new_id() for _ in range(request.count))
        batch_id = world.new_id() if is_batch else None
        if request.key is not None:
            known = await ports.catalog.claim(request.key)
            if known is not None:
                world.hits["claim: known"] += 1
                self._answered(request, known.resource, began_on)
                return
            resource = f"batch/{batch_id}" if is_batch else f"execution/{ids[0]}"
            claim = Claim(key=request.key, request_digest="digest", resource=resource)
        assert request.plan is not None
        groups = world.profile.groups
        submissions = [
            Submission(
                id=each,
                plan=request.plan,
                workflow=request.plan.definition.name if groups else None,
                # Two groups, and most are in the first.
                group_name=f"group-{int(request.draw > 0.8)}" if groups else None,
                document=b"{}",
                input=encode({"draw": request.draw}, max_bytes=1000),
                priority=("low", "normal", "high")[int(request.draw * 3)],
            )
            for each in ids
        ]
        batch = NewBatch(id=batch_id, workflow="drawn", version=1) if batch_id is not None else None
        request.tried.append(ids)
        try:
            await submit(submissions, ports, claim=claim, batch=batch)
        except ClaimedError as error:
            world.hits["claim: taken meanwhile"] += 1
            self._answered(request, error.resource, began_on)
            return
        self._answered(request, f"batch/{batch_id}" if is_batch else f"execution/{ids[0]}", began_on)

    async def _answer(self, request: Request, ports: ApiPorts) -> None:
        """Answer a wait or send a signal, before a node waits, while it does, or after it."""
        world = self._world
        given = request.given or self._draw_answer(request)
        if given is None:
            return
        execution_id, name, value = given
        claim = None
        if request.key is not None:
            # Whoever makes it again says the same.
            request.given = given
            if await ports.catalog.claim(request.key) is not None:
                world.hits["claim: of an answer"] += 1
                return
            claim = Claim(key=request.key, request_digest="digest", resource=f"execution/{execution_id}")
        began_on = world.incarnation
        world.invariants.answers(request, value)
        try:
            if request.kind == "answer":
                await answers.answer(execution_id, name, value, ports, by="ann", claim=claim)
            else:
                await answers.signal(execution_id, name, value, ports, by="ann", claim=claim)
        except ClaimedError:
            world.hits["claim: of an answer"] += 1
            return
        world.hits[f"call {request.kind}"] += 1
        if began_on == world.incarnation:
            world.invariants.answer_counted(value)

    async def _send(self, event: tuple[str, str, int], ports: ApiPorts) -> None:
        """Send an inbound event, as the API does; the same one again has the same answer."""
        type_, event_id, value = event
        world = self._world
        body = {"type": type_, "id": event_id, "source": "/s", "data": {"n": value, "id": event_id}}
        inbound = InboundEvent(namespace="default", id=event_id, source="/s", type=type_, body=body)
        began_on = world.incarnation
        answer = await receive(inbound, ports, admit=lambda _: nullcontext())
        world.hits["event: known" if answer.known is not None else "event: new"] += 1
        if began_on == world.incarnation:
            world.triggers.check_answer(inbound, answer)

    def _draw_answer(self, request: Request) -> tuple[str, str, int | str] | None:
        """Draw whom to answer: mostly somebody who waits; and what with, which nobody else says."""
        world = self._world
        rng, rows = world.rng, list(world.journal._executions.values())
        if not rows:
            return None
        row = rng.choice(rows)
        plan = world.journal._plans[row.digest]
        names = list(plan.waits_by_signal)
        if request.kind == "answer":
            waiting = [node_id for id_, node_id in world.journal._waits if id_ == row.id]
            names = waiting if waiting and rng.random() < 0.7 else list(plan.waits)
        if not names:
            return None
        number = int(world.new_id())
        return row.id, rng.choice(names), number if rng.random() < 0.7 else f"text {number}"

    async def _answer_all(self, ports: ApiPorts) -> None:
        """Answer all who wait: a wait without an expiry lasts for ever."""
        world = self._world
        try:
            if world.profile.has_events:
                for type_, value in product(EVENT_TYPES, EVENT_VALUES):
                    await self._send((type_, world.new_id(), value), ports)
            for one in await ports.catalog.open_waits(limit=_AT_ONCE):
                value = int(world.new_id())
                world.invariants.answers(None, value)
                await answers.answer(one.execution_id, one.node_id, value, ports, by="bob")
        except (JournalError, PortError, NotAllowedError, NotFoundError):
            return

    def _answered(self, request: Request, resource: str, began_on: int) -> None:
        if began_on != self._world.incarnation:
            return  # the journal may have lost what is answered
        kind, _, identity = resource.partition("/")
        ids = (identity,) if kind == "execution" else self._world.journal._batches[identity].executions
        self._world.invariants.submit_answered(request, ids)

    def lost_commits(self) -> None:
        """Forget the answers about executions that the journal has lost: no promise holds for them."""
        there = self._world.journal._executions
        for request in self.submits:
            if request.answer is not None and not all(id_ in there for id_ in request.answer):
                request.answer = None

    async def _retry_once(self, execution_id: str, ports: ApiPorts) -> None:
        """Retry with a key, twice: the second call must not open another generation."""
        self._keys += 1
        claim = Claim(
            key=f"retry-{self._keys}", request_digest="digest", resource=f"execution/{execution_id}"
        )
        began_on = self._world.incarnation
        row = await control.retry(execution_id, ports, claim=claim)
        try:
            await control.retry(execution_id, ports, claim=claim)
        except ClaimedError:
            self._world.hits["claim: of a retry"] += 1
            return
        if self._world.incarnation == began_on:
            self._world.invariants.retried_twice(row)


def _draw_answers(rng: Random) -> list[Request]:
    """Draw calls that answer, some of them made twice."""
    requests = []
    for number in range(rng.randint(2, 9)):
        request = Request(rng.choice(_ANSWERS), wait_seconds=rng.random() * rng.choice([0.02, 0.5, 3.0]))
        requests.append(request)
        if rng.random() < 0.3:
            request.key = f"answer-{number}"
            if rng.random() < 0.5:
                requests.append(request)
    return requests


def _draw_events(rng: Random) -> list[Request]:
    """Draw inbound events, many of them sent twice."""
    requests = []
    for number in range(rng.randint(2, 8)):
        request = Request(_EVENT, wait_seconds=rng.random() * rng.choice([0.02, 0.5, 3.0]))
        request.event = rng.choice(EVENT_TYPES), f"event-{number}", rng.choice(EVENT_VALUES)
        requests.append(request)
        if rng.random() < 0.4:
            requests.append(request)
    return requests
