"""One run: the actors, their ports, and what happens to them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.core.payload import encode
from weft.core.plan import compile_plan
from weft.core.task import Result, Task
from weft.errors import JournalError, NotAllowedError
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.limits.contract import Rate
from weft.limits.memory import MemoryLimits
from weft.orchestrator import control
from weft.orchestrator.collect import collect
from weft.orchestrator.reap import reclaim, sweep
from weft.orchestrator.recover import recover
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.submit import submit
from weft.ports import Ports
from weft.store.contract import Due, Held
from weft.store.memory import MemoryStore
from weft.testing.simulation.drawing import draw_definition
from weft.testing.simulation.faults import Faulty
from weft.testing.simulation.invariants import Invariants, Violation, effect
from weft.testing.simulation.profiles import PROFILES, Profile
from weft.testing.simulation.scheduler import Actor, Scheduler, SimulatedClock, Step
from weft.transport.inprocess import InProcessTransport
from weft.worker.lease import renew
from weft.worker.service import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.transport.contract import Message

LEASE_SECONDS = 5.0
HEARTBEAT_SECONDS = 1.5
REPORTED_SECONDS = 40.0
STALE_SECONDS = 8.0
SWEEP_SECONDS = 2.0
# Faults end, and everything must be terminal this much later.
FAULTS_END = 60.0
END = 400.0


@dataclass(slots=True)
class Outcome:
    """How a run went: ``violation`` None, or what did not hold."""

    profile: str
    seed: int
    violation: str | None
    steps: int
    hits: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


class LossyTransport(InProcessTransport):
    """Streams that double and lose messages, and that can be emptied."""

    def __init__(self, world: World) -> None:
        super().__init__(now=lambda: world.scheduler.now)
        self._world = world

    def put(self, tasks: Sequence[Task]) -> None:
        super().put(self._world.mangled(tasks))

    def append(self, messages: Sequence[Message]) -> None:
        super().append(self._world.mangled(messages))

    def flush(self) -> None:
        self.__init__(self._world)  # type: ignore[misc]


class World:
    def __init__(self, profile_name: str, seed: int, *, trace: bool = False) -> None:
        self.profile_name, self.seed = profile_name, seed
        self.profile: Profile = PROFILES[profile_name]
        self.rng = random.Random(f"{profile_name}/{seed}")  # noqa: S311 - a seed is the point
        self.scheduler = Scheduler(self.rng)
        self.clock = SimulatedClock(self.scheduler)
        self.hits: Counter[str] = Counter()
        self.trace: list[str] | None = [] if trace else None
        self._ids = 0
        now = self.clock.now
        self.transport = LossyTransport(self)
        self.journal = MemoryJournal(now=now, new_id=self.new_id)
        self.store = _NettedStore(
            self.profile,
            now=now,
            new_id=self.new_id,
            publish=lambda results: self.transport.append(results),
            send=lambda tasks: self.transport.put(tasks),
            window=4,
            lease_seconds=LEASE_SECONDS,
            reported_seconds=REPORTED_SECONDS,
            queued_seconds=REPORTED_SECONDS,
        )
        self.limits = MemoryLimits({"tag": Rate(2.0, 1)}, now=now)
        self.invariants = Invariants(self.journal)
        self.executions: list[str] = []
        self._flushes_left = self.profile.flushes
        self._bothered = False
        self._over_at = 0.0
        self._outages = [self.rng.random() * FAULTS_END / 2 for _ in range(self.profile.outages)]

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08d}"

    def faults_on(self) -> bool:
        return self.scheduler.elapsed_seconds < FAULTS_END

    def journal_is_down(self) -> bool:
        """Say whether the journal is away: for longer than a lease, a few times in a run."""
        seconds = self.scheduler.elapsed_seconds
        return any(begin <= seconds < begin + 1.6 * LEASE_SECONDS for begin in self._outages)

    def mangled(self, messages: Sequence[Any]) -> list[Any]:
        mangled = []
        for message in messages:
            if self.faults_on() and self.rng.random() < self.profile.dropped:
                self.hits["message dropped"] += 1
                continue
            mangled.append(message)
            if self.faults_on() and self.rng.random() < self.profile.doubled:
                self.hits["message doubled"] += 1
                mangled.append(message)
        return mangled

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        actors = [
            *(Actor(f"orchestrator-{n}", "orchestrator", self._orchestrate) for n in range(2)),
            *(Actor(f"sweeper-{n}", "sweeper", self._sweep) for n in range(2)),
            *(Actor(f"worker-{n}", "worker", self._work) for n in range(3)),
            Actor("api", "api", self._api),
        ]
        for actor in actors:
            self.scheduler.schedule(actor, self.rng.random() * 0.01)
        violation = None
        try:
            self.scheduler.run(self._after_step, until_seconds=END, is_over=self._is_over)
            if "rebuild" in self.profile.nets:
                self.invariants.let_go(self.store._executions)
            self.invariants.ended(is_calm=self.profile.is_calm, may_burn=self.profile.rebuilds)
        except Violation as broken:
            violation = str(broken)
        for actor in actors:
            actor.crash()
        return Outcome(
            self.profile_name, self.seed, violation, self.scheduler.steps, self.hits, self.trace or []
        )

    def _is_over(self) -> bool:
        """Say whether nothing can happen any more: all is terminal, and nobody will bother it."""
        rows = [self.journal._executions.get(execution_id) for execution_id in self.executions]
        if not self._bothered or not all(row is not None and row.is_terminal for row in rows):
            return False
        # A little longer: sweeps have to tidy up.
        self._over_at = self._over_at or self.scheduler.elapsed_seconds
        return self.scheduler.elapsed_seconds > self._over_at + 10 * SWEEP_SECONDS

    def _after_step(self, actor: Actor, step: Step | None) -> float | None:
        """Say when the actor goes on: after a moment, after a freeze, or after its restart."""
        if step is None:
            return None
        if self.trace is not None and step.name != "sleep":
            self.trace.append(f"{self.scheduler.elapsed_seconds:9.4f}  {actor.name:<16} {step.name}")
        if self.faults_on():
            self._maybe_flush()
            if self.rng.random() < self.profile.crash.get(actor.kind, 0.0):
                self.hits[f"crash {actor.kind} {step.name}"] += 1
                actor.crash()
                return self.rng.random() * 3
            if self.rng.random() < self.profile.freeze.get(actor.kind, 0.0):
                self.hits[f"freeze {actor.kind}"] += 1
                return LEASE_SECONDS * (1 + 2 * self.rng.random())
        return step.seconds + self.rng.random() * 0.004

    def _maybe_flush(self) -> None:
        if self._flushes_left and self.rng.random() < 0.002:
            self._flushes_left -= 1
            self.hits["flush"] += 1
            self.store.flush()
            self.transport.flush()

    def ports(self, actor: Actor) -> Ports:
        def wrapped(target: Any, name: str) -> Any:
            return Faulty(
                target,
                name,
                rng=self.rng,
                profile=self.profile,
                faults_on=self.faults_on,
                is_down=self.journal_is_down,
                watch=lambda step, args, result: effect(self.invariants, step, args, result),
            )

        return Ports(
            store=wrapped(self.store, "store"),
            journal=wrapped(self.journal, "journal"),
            transport=wrapped(self.transport, "transport"),
            limits=wrapped(self.limits, "limits"),
            clock=self.clock,
            draw=self.rng.random,
            new_id=self.new_id,
            stale_result_seconds=STALE_SECONDS,
            sweep_seconds=SWEEP_SECONDS,
        )

    # -- the actors --------------------------------------------------------------------------------

    async def _orchestrate(self, actor: Actor) -> None:
        orchestrator = Orchestrator(self.ports(actor), name=actor.name)
        while True:
            try:
                read = await collect(orchestrator, limit=4, wait_seconds=0)
            except JournalError:
                read = 0
            if not read:
                await Step("sleep", 0.2)

    async def _sweep(self, actor: Actor) -> None:
        orchestrator = Orchestrator(self.ports(actor), name=actor.name)
        nets = self.profile.nets
        while True:
            try:
                await sweep(orchestrator)
                if "reclaim" in nets:
                    await reclaim(orchestrator)
                if "rebuild" in nets:
                    await recover(orchestrator.ports, grace_seconds=3 * SWEEP_SECONDS)
            except JournalError:
                self.hits["sweep met a journal error"] += 1
            await Step("sleep", 0.7)

    async def _work(self, actor: Actor) -> None:
        ports = self.ports(actor)
        name = f"{actor.name}.{actor.lives}"
        # What is in hand: (ends at, task, held)
        hand: list[tuple[int, Task, Held]] = []
        beat_at = self.clock.now()
        while True:
            if len(hand) < 3:
                deliveries = await ports.transport.fetch(
                    name, queues=None, limit=3 - len(hand), wait_seconds=0
                )
                for task, held in await begin(deliveries, ports, worker=name):
                    self.invariants.took(task)
                    seconds = self.rng.choice([0.0, 0.05, 0.5, 3.0, 8.0])
                    hand.append((self.clock.now() + round(seconds * 1e6), task, held))
            now = self.clock.now()
            done = [item for item in hand if item[0] <= now]
            if done:
                hand = [item for item in hand if item[0] > now]
                results = [self._result(task, held) for _, task, held in done]
                await ports.store.report(results, [held.nonce for _, _, held in done])
            if now - beat_at > HEARTBEAT_SECONDS * 1e6:
                beat_at = now
                lost = {held.nonce for held in await renew([held for _, _, held in hand], ports.store)}
                hand = [item for item in hand if item[2].nonce not in lost]
            await Step("sleep", 0.2)

    def _result(self, task: Task, held: Held) -> Result:
        failed = self.rng.random() < self.profile.failures
        token = f"{task.node_id}/{task.generation}/{task.attempt}/{self.new_id()}"
        if not failed:
            self.invariants.tokens[task.execution_id, task.node_id, task.attempt] = token
        return Result(
            execution_id=task.execution_id,
            generation=task.generation,
            node_id=task.node_id,
            attempt=task.attempt,
            digest=task.digest,
            failures=task.failures,
            losses=task.losses,
            worker=held.worker,
            queued_at=task.queued_at,
            started_at=held.started_at,
            finished_at=self.clock.now(),
            output=None if failed else encode(token, max_bytes=1000),
            error={"code": "handler_error", "message": "drawn", "retryable": True} if failed else None,
        )

    async def _api(self, actor: Actor) -> None:
        """Submit two executions, then bother them; a restarted process goes on where the last one was."""
        ports = self.ports(actor)
        while len(self.executions) < 2:
            document = draw_definition(self.rng, len(self.executions))
            submission = Submission(
                id=self.new_id(),
                plan=compile_plan(document),
                document=b"{}",
                input=encode({"draw": self.rng.random()}, max_bytes=1000),
            )
            self.executions.append(submission.id)
            try:
                await submit([submission], ports)
            except JournalError:
                self.hits["submit met a journal error"] += 1
        calls: list[tuple[str, Any]] = [
            ("cancel", control.cancel),
            ("pause", control.pause),
            ("resume", control.resume),
            ("retry", control.retry),
        ]
        for _ in range(self.profile.controls):
            await Step("sleep", self.rng.random() * 12)
            await self._bother(ports, *self.rng.choice(calls))
        self._bothered = True
        await Step("sleep", FAULTS_END)
        # Nobody is left paused: liveness is promised to what runs.
        while True:
            for execution_id in self.executions:
                await self._bother(ports, "resume", control.resume, execution_id)
            await Step("sleep", 20.0)

    async def _bother(self, ports: Ports, name: str, call: Any, execution_id: str | None = None) -> None:
        execution_id = execution_id or self.rng.choice(self.executions)
        if await self.journal.execution(execution_id) is None:
            return
        try:
            row = await call(execution_id, ports)
        except (NotAllowedError, JournalError):
            return
        self.hits[name] += 1
        if name == "cancel":
            self.invariants.cancel_answered(row)


class _NettedStore(MemoryStore):
    """A store whose sweeps see only what the profile's nets let them see."""

    def __init__(self, profile: Profile, **options: Any) -> None:
        super().__init__(**options)
        self._profile = profile

    async def due(self, *, idle_seconds: float) -> Due:
        nets = self._profile.nets
        due = await super().due(idle_seconds=idle_seconds if "free" in nets else 1e6)
        expired = due.expired if "lease" in nets else ()
        return Due(due.woken, expired, due.deadlines, due.next_at)
