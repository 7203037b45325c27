"""One run: the actors, their ports, and what happens to them. All of it is drawn from one seed."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from unittest.mock import patch

from tests.support.simulation import actors
from tests.support.simulation.caller import Caller
from tests.support.simulation.coverage import CALL_STEPS, CRASH_STEPS, FAILING_STEPS, WAIT_STEPS
from tests.support.simulation.drawing import QUEUES
from tests.support.simulation.faults import Faulty, FaultyTransport, WatchedStore
from tests.support.simulation.invariants import Invariants, Kept
from tests.support.simulation.pace import (
    BOUND_SECONDS,
    LEASE_SECONDS,
    NEVER_SECONDS,
    REPORTED_SECONDS,
    STALE_SECONDS,
    SWEEP_SECONDS,
    TIDY_SECONDS,
)
from tests.support.simulation.profiles import MOST_LOSSES, PROFILES, Profile
from tests.support.simulation.scheduler import Actor, Process, Scheduler, SimulatedClock, Step
from tests.support.simulation.table import Line, describe
from tests.support.simulation.triggers import Triggers
from tests.support.simulation.violation import Violation

from weft.core.time import micros
from weft.journal.memory import MemoryJournal
from weft.limits.contract import Rate
from weft.limits.memory import MemoryLimits
from weft.orchestrator.service import Orchestrator
from weft.ports import ApiPorts
from weft.store.contract import StoreOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.transport.inprocess import InProcessTransport

T = TypeVar("T")

TAG_RATE = Rate(2.0, 1)
# More than the config of a node without parents has.
_LARGE_CONFIG_BYTES = 45
_INLINE_CONFIG_BYTES = 60
# The chance that a process dies at the favourite step of the seed.
FAVOURITE = 0.5
# Streams are copied every so many steps, for a rollback to go back to.
_COPY_EVERY = 40
# Whether somebody waits for a turn that has come is looked at every so many steps.
_GROUPS_EVERY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What a run goes without, to find out what a violation needs. Nothing, by default."""

    without: frozenset[str] = frozenset()
    faults_end_seconds: float | None = None
    most_nodes: int | None = None
    most_executions: int | None = None
    most_controls: int | None = None


NO_CUT = Cut()


@dataclass(slots=True)
class Outcome:
    """How a run went: ``violation`` None, or what did not hold."""

    profile: str
    seed: int
    violation: str | None
    steps: int
    hits: Counter[str] = field(default_factory=Counter)
    # Every step, if it was asked for.
    trace: list[Line] = field(default_factory=list)
    # Of every step, of all its content, if it was asked for.
    trace_hash: int = 0
    # What was drawn, in a line.
    about: str = ""


class World:
    def __init__(
        self,
        profile_name: str,
        seed: int,
        *,
        trace: bool = False,
        cut: Cut = NO_CUT,
    ) -> None:
        self.profile_name, self.seed, self.cut = profile_name, seed, cut
        self.profile: Profile = PROFILES[profile_name]
        # Apart, so that a cut of one does not draw the others anew.
        self.drawing = random.Random(f"{profile_name}/{seed}/drawing")
        self.rng = random.Random(f"{profile_name}/{seed}")
        self.scheduler = Scheduler(self.rng)
        self.hits: Counter[str] = Counter()
        self.faults = 0
        self.losses = 0
        # How often the journal has lost commits; the same as the store was told last, and when.
        self.incarnation = self._told = 0
        self._told_at = 0
        self.trace: list[Line] | None = [] if trace else None
        self._ids = 0
        self._draw()
        now = self._now
        self.transport = FaultyTransport(self)
        self.journal = MemoryJournal(now=now, new_id=self.new_id)
        self.store = WatchedStore(
            self,
            now=now,
            new_id=self.new_id,
            publish=self.transport.append,
            send=self.transport.put,
            wake=self.transport.append,
            options=StoreOptions(
                execution_bytes=self.execution_bytes,
                process_bytes=self.process_bytes,
                window=4,
                lease_seconds=LEASE_SECONDS,
                reported_seconds=REPORTED_SECONDS if self.profile.gives_up_reports else NEVER_SECONDS,
                queued_seconds=REPORTED_SECONDS if "queued" in self.profile.nets else None,
            ),
        )
        self.limits = MemoryLimits({"limited": TAG_RATE}, now=now)
        self.triggers = Triggers(self)
        if self.profile.has_events:
            self.triggers.store()
        self.invariants = Invariants(self)
        self.caller = Caller(self)
        self._copies: list[tuple[InProcessTransport, dict[str, Any]]] = []
        self._journal_copies: list[tuple[dict[str, Any], Kept]] = []
        self._over_at = 0

    def _draw(self) -> None:
        """Draw what kind of run this is: how much of each fault, how many actors, for how long."""
        rng, profile, cut = self.drawing, self.profile, self.cut
        self.amounts: Mapping[str, float] = profile.draw(rng, without=cut.without)
        self.failures = rng.choice([0.0, 0.1, 0.3])
        self.batch = rng.choice([1, 4, 8])
        self.counts = {
            "orchestrator": rng.randint(1, 2),
            "sweeper": rng.randint(1, 2),
            "worker": rng.randint(1, 3),
        }
        if "queues" in profile.more:
            self.counts["worker"] = len(QUEUES)
        faults_end_seconds = rng.choice([15.0, 30.0, 60.0])
        # In a run for safety faults never end, and nothing has to: only what is done must be right.
        self.is_safety = not profile.is_calm and rng.random() < 0.2
        self.faults_end_seconds = cut.faults_end_seconds or faults_end_seconds
        self.end_seconds = self.faults_end_seconds + (0.0 if self.is_safety else BOUND_SECONDS)
        self._faults_end = self.scheduler.start + micros(self.faults_end_seconds)
        self._outages = [
            self.scheduler.start + micros(rng.random() * 12) for _ in range(int(self.amounts["outage"]))
        ]
        self.mangles = any(self.amounts[kind] for kind in ("doubled", "dropped", "delayed", "reordered"))
        self.large = 0.8 if "large" in profile.more else 0.2
        # By the seed and not drawn: what is drawn in other profiles stays as it was. A config with a parent
        # or two weighs 500 to 1,000.
        self.execution_bytes, self.process_bytes = 2**30, 2**30
        if profile.small_memory:
            self.execution_bytes = (600, 1200, 3000)[self.seed % 3]
            self.process_bytes = (700, 1500, 4000)[self.seed // 3 % 3]
        self._crash = {
            kind: self.amounts[f"crash.{kind}"] for kind in ("orchestrator", "sweeper", "worker", "api")
        }
        self._freeze = {kind: self.amounts[f"freeze.{kind}"] for kind in self._crash}
        # One step of each kind of process is the favourite of this seed: there it dies often, and one call
        # fails often. So every point has its seeds, however seldom it is passed.
        passed = {
            kind: steps + WAIT_STEPS[kind] * profile.waits + CALL_STEPS[kind] * profile.calls
            for kind, steps in CRASH_STEPS.items()
        }
        self._favourites = {
            kind: f"{steps[self.seed // 2 % len(steps)]}:{('before', 'after')[self.seed % 2]}"
            for kind, steps in passed.items()
        }
        self.favourite_error = FAILING_STEPS[self.seed % len(FAILING_STEPS)]
        self._crash["network"] = self._freeze["network"] = 0.0
        self._loss = self.amounts["flush"] + self.amounts["rollback"]

    def _now(self) -> int:
        return self.scheduler.now

    def new_id(self) -> str:
        self._ids += 1
        return f"{self._ids:08d}"

    # -- faults ------------------------------------------------------------------------------------

    def faults_on(self) -> bool:
        return self.scheduler.now < self._faults_end

    def draw_fault(self) -> float:
        return self.rng.random() if self.scheduler.now < self._faults_end else 1.0

    def fault(self, name: str) -> None:
        """Count a fault that may cost an attempt."""
        self.faults += 1
        self.hits[name] += 1

    def journal_is_down(self) -> bool:
        """True if the journal is away: for longer than a lease, a few times in a run."""
        if not self._outages:
            return False
        now = self.scheduler.now
        return any(begin <= now < begin + micros(1.6 * LEASE_SECONDS) for begin in self._outages)

    def _maybe_lose(self) -> None:
        """Lose the store: all of it, or all that came after a while ago."""
        if self.amounts["rollback"] and self.scheduler.steps % _COPY_EVERY == 0:
            self._copies.append((self.transport.copy(), deepcopy(self.limits._queues)))
        if self.losses >= MOST_LOSSES or self.rng.random() >= self._loss:
            return
        self.losses += 1
        # A server that comes back without, or with an old state, is another one: what it holds of executions
        # is dropped when it is first asked (the handshake of the protocol); the streams may be old.
        self.store.flush()
        is_rollback = self.rng.random() * self._loss >= self.amounts["flush"]
        if is_rollback and self._copies:
            self.hits["rollback"] += 1
            latest = len(self._copies)
            transport, self.limits._queues = self._copies[self.rng.randrange(max(0, latest - 8), latest)]
            self._copies.clear()
            self.transport.set_back(transport)
        else:
            self.hits["flush"] += 1
            self.transport.flush()
            self.limits.__init__({"limited": TAG_RATE}, now=self._now)  # type: ignore[misc]
        self.invariants.lost_store()

    def _maybe_forget(self) -> None:
        """Lose the state of one execution alone."""
        if self.losses >= MOST_LOSSES or self.rng.random() >= self.amounts["forgotten"]:
            return
        held = list(self.store._executions)
        if held:
            self.losses += 1
            self.hits["forgotten"] += 1
            self.store.forget(self.rng.choice(held))

    @property
    def store_is_ahead(self) -> bool:
        """True while the store holds what rests on commits that the journal has lost."""
        return self._told != self.incarnation

    def _maybe_set_back(self) -> None:
        """Let the journal lose its last commits, once in a run (docs/proof.md, what is not covered)."""
        if self.scheduler.steps % _COPY_EVERY == 0:
            self._journal_copies = [
                *self._journal_copies[-7:],
                (self._copy_journal(), self.invariants.copy()),
            ]
        if self.incarnation or not self._journal_copies or self.rng.random() >= self.amounts["set_back"]:
            return
        self.losses += 1
        self.incarnation += 1
        self.fault("journal set back")
        self._note("journal", "comes back without its last commits")
        held, kept = self.rng.choice(self._journal_copies)
        self._journal_copies.clear()
        for name, value in held.items():
            setattr(self.journal, name, value)
        self.invariants.lost_commits(kept)
        self.caller.lost_commits()

    def _copy_journal(self) -> dict[str, Any]:
        journal = vars(self.journal)
        # Definitions are named by their content, and are not lost.
        plans = {id(plan): plan for plan in self.journal._plans.values()}
        return {
            name: deepcopy(value, dict(plans))
            for name, value in journal.items()
            if isinstance(value, dict) and name not in ("_plans", "_documents")
        }

    def connect(self, process: Process) -> None:
        """Let a process connect to the journal. The first that finds commits lost has the store follow it."""
        if self._told != self.incarnation:
            self._told, self._told_at = self.incarnation, self.scheduler.now
            self._note("store", "is wiped: the journal has lost commits")
            self.store.flush()
            self.transport.wipe_tasks()
        process.incarnation = self.incarnation
        if isinstance(process.memory, Orchestrator):
            process.memory.forget()

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> Outcome:
        everybody = [
            actor
            for kind, live, loops in (
                ("orchestrator", actors.collects, self.profile.collectors),
                ("sweeper", actors.sweeps, 1),
                ("worker", actors.work, 1),
            )
            for number in range(self.counts[kind])
            for actor in self._process(f"{kind}-{number}", kind, live, loops=loops)
        ]
        everybody += self._process("api", "api", lambda world, actor: world.caller.live(actor))
        if self.profile.has_events:
            for number in range(self.counts["sweeper"]):
                everybody += self._process(f"schedules-{number}", "sweeper", actors.schedules)
        everybody += self._process("network", "network", actors.carry)
        for actor in everybody:
            self.scheduler.schedule(actor, self.rng.random() * 0.01)
        violation = None
        try:
            # There is no event loop, and no thread beside one: what a thread would do is done at once.
            with patch("asyncio.to_thread", _at_once):
                self.scheduler.run(self._after_step, until_seconds=self.end_seconds, is_over=self._is_over)
            self.invariants.ended()
        except Violation as broken:
            violation = str(broken)
        for actor in everybody:
            actor.crash()
        return Outcome(
            self.profile_name,
            self.seed,
            violation,
            self.scheduler.steps,
            self.hits,
            self.trace or [],
            zlib.crc32("\n".join(map(str, self.trace)).encode()) if self.trace is not None else 0,
            self.about(),
        )

    def _process(self, name: str, kind: str, live: Any, *, loops: int = 1) -> list[Actor]:
        clock = SimulatedClock(self.scheduler)
        skew = self.amounts["skew"]
        if skew:
            clock.offset = micros(self.drawing.uniform(-skew, skew))
        process = Process()
        return [Actor(name, kind, lambda actor: live(self, actor), clock, process) for _ in range(loops)]

    def _is_over(self) -> bool:
        """True if nothing can happen any more: all is terminal and tidy, and nobody will bother it."""
        if (
            self.triggers.missing
            or not self.caller.is_done
            or any(not row.is_terminal for row in self.journal._executions.values())
        ):
            return False
        now = self.scheduler.now
        self._over_at = self._over_at or now
        # Tidying up is promised for when the faults have ended: until then whoever does it may die each time.
        calm_at = max(self._over_at, self._faults_end)
        return not self.invariants.untidy() or now > calm_at + micros(TIDY_SECONDS)

    def _after_step(self, actor: Actor, step: Step | None) -> tuple[float, str | None] | None:
        """Return when the actor goes on: after a moment, after a freeze, or after its restart."""
        rng = self.rng
        if self.profile.groups and self.scheduler.steps % _GROUPS_EVERY == 0:
            self.invariants.look_at_groups()
        if step is None:
            # A worker that stopped in good order is started again; a caller that is done is done.
            return (rng.random() * 3, None) if actor.kind == "worker" else None
        if self.scheduler.now < self._faults_end:
            if self._loss:
                self._maybe_lose()
            if self.amounts["forgotten"]:
                self._maybe_forget()
            if self.amounts["set_back"]:
                self._maybe_set_back()
            kind = actor.kind
            chance = self._crash[kind]
            if chance and (
                rng.random() < chance or (step.name == self._favourites[kind] and rng.random() < FAVOURITE)
            ):
                self.fault(f"crash {kind} {step.name}")
                self._note(actor.name, f"the process dies at {step.name}")
                actor.process.crash()
                return self._stand_still(actor, rng.random() * 3)
            chance = self._freeze[kind]
            if chance and rng.random() < chance:
                self.fault(f"freeze {kind}")
                self._note(actor.name, f"stands still at {step.name}")
                return self._stand_still(actor, LEASE_SECONDS * (1 + 2 * rng.random()))
        return step.seconds + rng.random() * 0.004, step.topic

    def _stand_still(self, actor: Actor, seconds: float) -> tuple[float, None]:
        """Let no loop of the actor's process go on for so long."""
        for loop in actor.process.loops:
            if loop is not actor:
                self.scheduler.schedule(loop, seconds)
        return seconds, None

    def ports(self, actor: Actor) -> ApiPorts:
        skew = self.amounts["skew"]
        if skew and actor.lives == 1 and self.rng.random() < 0.5:
            # Somebody set the clock right, or wrong.
            actor.clock.offset = micros(self.drawing.uniform(-skew, skew))
        process = actor.process
        self.connect(process)
        journal = _port(self, actor, self.journal, "journal")
        return ApiPorts(
            store=_port(self, actor, self.store, "store"),
            journal=journal,
            catalog=journal,
            transport=_port(self, actor, self.transport, "transport"),
            limits=_port(self, actor, self.limits, "limits"),
            clock=actor.clock,
            draw=self.rng.random,
            new_id=self.new_id,
            stale_result_seconds=STALE_SECONDS,
            sweep_seconds=SWEEP_SECONDS,
            dispatches_speculatively=self.profile.dispatches_speculatively,
            incarnation=lambda: str(process.incarnation),
            incarnation_began=lambda: self._told_at,
            timers_changed=lambda: self.scheduler.tell("timers"),
            large_config_bytes=_LARGE_CONFIG_BYTES if self.profile.small_memory else 2**30,
            inline_config_bytes=_INLINE_CONFIG_BYTES if self.profile.small_memory else 2**30,
            # With half of the seeds, what a node sleeps on lies in a blob.
            inline_bytes=_INLINE_CONFIG_BYTES if self.seed % 2 else 2**30,
        )

    # -- looking on --------------------------------------------------------------------------------

    def watch(
        self, actor: Actor, step: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """Look at the effect of a step."""
        if self.trace is not None:
            self._note(actor.name, step, describe(step, args, kwargs, result))
        self.invariants.effect(actor, step, args, kwargs, result)

    def _note(self, who: str, what: str, detail: str = "") -> None:
        if self.trace is not None:
            self.trace.append(Line(self.scheduler.elapsed_seconds, who, what, detail))

    def about(self) -> str:
        amounts = ", ".join(f"{kind} {amount:g}" for kind, amount in self.amounts.items() if amount)
        mode = "safety" if self.is_safety else "liveness"
        fleet = ", ".join(f"{count} {kind}s" for kind, count in self.counts.items())
        return (
            f"{mode}; {fleet}; handlers fail {self.failures:.0%}; faults for {self.faults_end_seconds:g} s: "
            f"{amounts or 'none'}"
        )


def _port(world: World, actor: Actor, target: Any, name: str) -> Any:
    return Faulty(world, actor, target, name)


async def _at_once(call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return call(*args, **kwargs)
