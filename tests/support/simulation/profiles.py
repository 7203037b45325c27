"""Which faults a run draws from, and which safety nets it does without.

With all nets on, one net repairs the damage another bug did: a lost result is found by the lease. So each
profile injects few kinds of faults and switches off the nets that are not theirs. How much of each kind is
drawn by the seed: a little or a lot, and in the profiles with many kinds also nothing (swarm testing: a run
without crashes reaches other states than one with a few everywhere).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container
    from random import Random

NETS = frozenset({"lease", "free", "queued", "reclaim", "rebuild"})

# Each kind of fault, with how much a little and a lot of it is.
KINDS: dict[str, tuple[float, float]] = {
    # Chance per step that the process of this kind dies there.
    "crash.orchestrator": (0.005, 0.04),
    "crash.sweeper": (0.005, 0.03),
    "crash.worker": (0.005, 0.03),
    "crash.api": (0.03, 0.15),
    # Chance per step that an actor of this kind stands still for longer than a lease.
    "freeze.orchestrator": (0.003, 0.015),
    "freeze.sweeper": (0.003, 0.015),
    "freeze.worker": (0.003, 0.02),
    "freeze.api": (0.01, 0.05),
    # Chance per look that a worker stops in good order and hands back what it has.
    "stop.worker": (0.02, 0.1),
    # Chance per commit: it fails with nothing written; it is written and its answer is lost.
    "commit_fails": (0.02, 0.1),
    "commit_unknown": (0.02, 0.1),
    # How often the journal is away for longer than a lease.
    "outage": (1, 2),
    # Chance per call of the store, the transport or the limits: it fails, before or after its effect.
    "port_error": (0.01, 0.04),
    # Chance per message: it comes twice, is lost, comes late (later than a lease), or after its successors.
    "doubled": (0.05, 0.3),
    "dropped": (0.02, 0.1),
    "delayed": (0.02, 0.1),
    "reordered": (0.1, 0.5),
    # Chance per step: store, streams and wait queues lose everything; or come back as they were a while ago.
    "flush": (0.002, 0.01),
    "rollback": (0.002, 0.01),
    # Chance per step: the store loses the state of one execution alone; the streams stay.
    "forgotten": (0.003, 0.02),
    # Chance per step: the journal comes back without its last commits; store and streams stay.
    "set_back": (0.003, 0.015),
    # Chance per look of a sweeper that it rebuilds an execution that the store has.
    "mistaken_rebuild": (0.05, 0.3),
    # By how many seconds the clock of an actor may be off; it jumps once more in the middle of the run.
    "skew": (0.5, 3.0),
}
# At most so many losses of the store in a run: with more of them nothing gets done that could go wrong.
MOST_LOSSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    kinds: tuple[str, ...] = ()
    nets: frozenset[str] = NETS
    # At most so many control calls are made.
    controls: int = 0
    # Whether they are mostly pauses, and executions stay paused for longer than a rebuild takes.
    pauses: bool = False
    # Whether a kind may also be drawn as absent.
    is_swarm: bool = False
    # A run in which no worker is at fault: no attempt above what its failures explain.
    is_calm: bool = False
    # Hot state may be rebuilt, which may cost each node that was ready a number.
    rebuilds: bool = False
    # What the workflows have more of: "at_most_once", "early", "timers", "slots", "tags", "skips",
    # "nodes", "caches", "queues" (each with workers of its own), "sleeps", "waits", "calls", "retries"
    # (conditions of them), "groups" (of executions); and "large" outputs.
    more: frozenset[str] = frozenset()
    # Large outputs travel through the journal: without it their attempts are lost, and rightly so.
    has_blobs: bool = True
    # Whether an attempt that was reported and not recorded is given up after a while. Where no message is
    # lost that must not be needed: whoever took the result finishes it.
    gives_up_reports: bool = True
    # Whether tasks are sent with the rows that make their nodes ready.
    dispatches_speculatively: bool = False
    # How many batches an orchestrator takes at once: its collectors share its memory.
    collectors: int = 1
    # Whether an orchestrator begins as a service does: it takes what waits, recovers, then collects.
    takes_over: bool = False
    # Whether the config of a node with a parent counts as large, and few of them fit into memory at once.
    small_memory: bool = False

    @property
    def waits(self) -> bool:
        """True if nodes wait, and the caller answers."""
        return "waits" in self.more

    @property
    def groups(self) -> bool:
        """True if executions belong to groups, of which only some run at once."""
        return "groups" in self.more

    @property
    def has_events(self) -> bool:
        """True if events come in, nodes wait for them, and triggers start executions."""
        return "events" in self.more

    @property
    def calls(self) -> bool:
        """True if nodes call workflows."""
        return "calls" in self.more

    def draw(self, rng: Random, *, without: Container[str] = ()) -> dict[str, float]:
        """Draw how much of each kind there is: 0.0, a little, or a lot."""
        amounts = dict.fromkeys(KINDS, 0.0)
        for kind in self.kinds:
            little, much = KINDS[kind]
            amount = rng.choice((0.0, little, much) if self.is_swarm else (little, much))
            if kind not in without:
                amounts[kind] = amount
        return amounts


_CRASHES = ("crash.orchestrator", "crash.sweeper", "crash.worker", "crash.api")
_FREEZES = ("freeze.orchestrator", "freeze.sweeper", "freeze.worker", "freeze.api")
# A journal and a store that lose data at once are not simulated together.
_MOST = tuple(kind for kind in KINDS if kind != "set_back")
_MESSAGES = ("doubled", "dropped", "delayed", "reordered")

PROFILES: dict[str, Profile] = {
    "calm": Profile(is_calm=True, nets=frozenset()),
    "ahead": Profile(is_calm=True, nets=frozenset(), dispatches_speculatively=True, collectors=2),
    "caches": Profile(
        kinds=("reordered", "freeze.orchestrator", "freeze.sweeper"),
        collectors=4,
        more=frozenset({"caches", "slots"}),
    ),
    "collectors": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        # More than a service has: two are seldom at the same steps.
        collectors=4,
        more=frozenset({"large", "skips", "nodes"}),
    ),
    # No net finds a node that waits for memory and is not woken.
    "memory": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        collectors=2,
        small_memory=True,
        more=frozenset({"nodes", "places", "tags"}),
    ),
    "memory_faults": Profile(
        kinds=(
            *_CRASHES,
            *_FREEZES,
            "commit_fails",
            "port_error",
            "flush",
            "mistaken_rebuild",
            "stop.worker",
        ),
        controls=4,
        is_swarm=True,
        rebuilds=True,
        small_memory=True,
        more=frozenset({"nodes", "at_most_once", "caches"}),
    ),
    "sleeps": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        collectors=2,
        more=frozenset({"sleeps", "slots"}),
    ),
    "sleeps_faults": Profile(
        kinds=(
            *_CRASHES,
            *_FREEZES,
            "commit_fails",
            "commit_unknown",
            "port_error",
            "flush",
            "forgotten",
            "mistaken_rebuild",
        ),
        controls=5,
        is_swarm=True,
        rebuilds=True,
        collectors=2,
        more=frozenset({"sleeps", "slots", "tags", "early", "caches", "at_most_once"}),
    ),
    "sleeps_paused": Profile(
        kinds=("flush", "freeze.orchestrator"),
        controls=5,
        pauses=True,
        rebuilds=True,
        more=frozenset({"sleeps"}),
    ),
    "sleeps_set_back": Profile(
        kinds=("set_back", "crash.orchestrator", *_FREEZES),
        controls=3,
        rebuilds=True,
        dispatches_speculatively=True,
        more=frozenset({"sleeps", "slots"}),
    ),
    "waits": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        collectors=2,
        more=frozenset({"waits"}),
    ),
    # Events come in, schedules are due, and both start executions.
    "events": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        collectors=2,
        more=frozenset({"waits", "events"}),
    ),
    "events_faults": Profile(
        kinds=(*_CRASHES, *_FREEZES, "commit_fails", "commit_unknown", "port_error", "flush", "forgotten"),
        controls=3,
        is_swarm=True,
        rebuilds=True,
        more=frozenset({"waits", "events"}),
    ),
    "events_skew": Profile(
        kinds=("skew", "crash.sweeper", "crash.api"), rebuilds=True, more=frozenset({"waits", "events"})
    ),
    # Who ends a wait dies before the store is told.
    "waits_crash": Profile(
        kinds=("crash.api", "crash.orchestrator", "crash.sweeper"),
        controls=2,
        rebuilds=True,
        more=frozenset({"waits"}),
    ),
    "waits_faults": Profile(
        kinds=(
            *_CRASHES,
            *_FREEZES,
            "commit_fails",
            "commit_unknown",
            "port_error",
            "flush",
            "forgotten",
            "mistaken_rebuild",
        ),
        controls=5,
        is_swarm=True,
        rebuilds=True,
        collectors=2,
        more=frozenset({"waits", "slots", "early"}),
    ),
    "waits_paused": Profile(
        kinds=("flush", "freeze.orchestrator"),
        controls=5,
        pauses=True,
        rebuilds=True,
        more=frozenset({"waits"}),
    ),
    # The caller is not frozen: who is late with an install has the execution rebuilt, and where the journal
    # loses that commit, too, no rule refuses an apply that is late (docs/proof.md, what is not covered).
    "waits_set_back": Profile(
        kinds=("set_back", "crash.orchestrator", "freeze.orchestrator", "freeze.sweeper", "freeze.worker"),
        controls=3,
        rebuilds=True,
        dispatches_speculatively=True,
        more=frozenset({"waits", "slots"}),
    ),
    "calls": Profile(
        kinds=("reordered",),
        nets=frozenset(),
        is_calm=True,
        collectors=2,
        more=frozenset({"calls"}),
    ),
    "calls_control": Profile(
        controls=6, nets=frozenset({"free", "rebuild"}), rebuilds=True, more=frozenset({"calls"})
    ),
    # Who ends a child, or its parent, dies before the other is told.
    "calls_crash": Profile(
        kinds=("crash.api", "crash.orchestrator", "crash.sweeper"),
        controls=4,
        rebuilds=True,
        more=frozenset({"calls"}),
    ),
    "calls_faults": Profile(
        kinds=(
            *_CRASHES,
            *_FREEZES,
            "commit_fails",
            "commit_unknown",
            "port_error",
            "flush",
            "forgotten",
            "mistaken_rebuild",
        ),
        controls=5,
        is_swarm=True,
        rebuilds=True,
        collectors=2,
        more=frozenset({"calls", "slots", "early"}),
    ),
    "calls_paused": Profile(
        kinds=("flush", "freeze.orchestrator", "crash.api"),
        controls=5,
        pauses=True,
        rebuilds=True,
        more=frozenset({"calls"}),
    ),
    "calls_waits": Profile(
        kinds=("crash.orchestrator", "crash.sweeper", "flush"),
        controls=4,
        rebuilds=True,
        more=frozenset({"calls", "waits"}),
    ),
    "calls_set_back": Profile(
        kinds=("set_back", "crash.orchestrator", "freeze.orchestrator", "freeze.sweeper", "freeze.worker"),
        controls=3,
        rebuilds=True,
        dispatches_speculatively=True,
        more=frozenset({"calls", "slots"}),
    ),
    "retries": Profile(
        kinds=("reordered", "crash.orchestrator", "commit_unknown"),
        rebuilds=True,
        more=frozenset({"retries", "timers"}),
    ),
    "groups": Profile(
        kinds=("reordered",), nets=frozenset(), controls=6, is_calm=True, more=frozenset({"groups"})
    ),
    "groups_faults": Profile(
        kinds=(
            *_CRASHES,
            *_FREEZES,
            "commit_fails",
            "commit_unknown",
            "port_error",
            "flush",
            "forgotten",
            "mistaken_rebuild",
        ),
        controls=6,
        is_swarm=True,
        rebuilds=True,
        more=frozenset({"groups"}),
    ),
    "calm_control": Profile(controls=5, nets=frozenset({"free"}), is_calm=True),
    "early": Profile(kinds=("reordered",), nets=frozenset(), is_calm=True, more=frozenset({"early"})),
    "limits": Profile(
        kinds=("reordered",), nets=frozenset(), is_calm=True, more=frozenset({"tags", "slots"})
    ),
    "orchestrator_crash": Profile(
        kinds=("crash.orchestrator",), nets=frozenset({"reclaim", "rebuild"}), more=frozenset({"tags"})
    ),
    "sweeper_crash": Profile(
        kinds=("crash.sweeper", "crash.worker"),
        nets=frozenset({"lease", "free", "reclaim"}),
        more=frozenset({"tags"}),
    ),
    "worker_crash": Profile(kinds=("crash.worker", "stop.worker"), nets=frozenset({"lease", "reclaim"})),
    "api_crash": Profile(
        kinds=("crash.api",), controls=4, nets=frozenset({"rebuild", "free", "lease"}), rebuilds=True
    ),
    "slow_api": Profile(kinds=("freeze.api",), controls=3, rebuilds=True),
    "frozen_worker": Profile(kinds=("freeze.worker",), nets=frozenset({"lease", "reclaim"})),
    "frozen_orchestrator": Profile(
        kinds=("freeze.orchestrator", "freeze.sweeper"), nets=frozenset({"lease", "reclaim"})
    ),
    "doubled": Profile(kinds=("doubled",), nets=frozenset({"lease"})),
    "reordered": Profile(kinds=("reordered", "delayed"), nets=frozenset({"lease"})),
    "dropped": Profile(kinds=("dropped",), rebuilds=True),
    "port_errors": Profile(kinds=("port_error",), controls=2, rebuilds=True, more=frozenset({"tags"})),
    "journal_errors": Profile(kinds=("commit_fails", "commit_unknown"), controls=2, rebuilds=True),
    # A commit that failed, or whose answer was lost, is made again by whoever wanted it.
    "unknown_commits": Profile(
        kinds=("commit_fails", "commit_unknown"), rebuilds=True, gives_up_reports=False
    ),
    # No attempt may be used up because results waited for the journal.
    "journal_away": Profile(
        kinds=("outage",), nets=frozenset({"lease", "reclaim", "free"}), is_calm=True, has_blobs=False
    ),
    "flush": Profile(kinds=("flush",), rebuilds=True, nets=frozenset({"lease", "rebuild", "reclaim"})),
    "flush_control": Profile(kinds=("flush", "freeze.api"), controls=4, rebuilds=True),
    "flush_paused": Profile(kinds=("flush",), controls=4, pauses=True, rebuilds=True),
    "flush_crash": Profile(kinds=("flush", "crash.orchestrator", "crash.sweeper"), rebuilds=True),
    "restart": Profile(
        kinds=("crash.orchestrator", "crash.sweeper", "flush", "rollback"), rebuilds=True, takes_over=True
    ),
    "flush_timers": Profile(kinds=("flush",), rebuilds=True, more=frozenset({"timers"})),
    "rollback": Profile(kinds=("rollback",), rebuilds=True, nets=frozenset({"lease", "rebuild", "reclaim"})),
    "rollback_control": Profile(kinds=("rollback", "freeze.orchestrator"), controls=4, rebuilds=True),
    "forgotten": Profile(kinds=("forgotten",), controls=4, rebuilds=True),
    # The caller is not frozen: a first install that comes after a rebuild is refused by its epoch, unless the
    # store has forgotten that too (docs/proof.md, what is not covered).
    "forgotten_control": Profile(
        kinds=("forgotten", "freeze.orchestrator", "freeze.sweeper", "freeze.worker"),
        controls=6,
        rebuilds=True,
    ),
    "mistaken_rebuild": Profile(
        kinds=("mistaken_rebuild",), rebuilds=True, nets=frozenset({"lease", "rebuild", "reclaim"})
    ),
    "mistaken_timers": Profile(
        kinds=("mistaken_rebuild", "freeze.sweeper"), rebuilds=True, more=frozenset({"timers"})
    ),
    "set_back": Profile(kinds=("set_back",), controls=2, rebuilds=True),
    "set_back_queues": Profile(kinds=("set_back", "stop.worker"), rebuilds=True, more=frozenset({"queues"})),
    "set_back_crash": Profile(
        kinds=("set_back", "crash.orchestrator", *_FREEZES),
        controls=3,
        rebuilds=True,
        dispatches_speculatively=True,
    ),
    "at_most_once": Profile(
        kinds=("flush", "mistaken_rebuild", "crash.worker"), rebuilds=True, more=frozenset({"at_most_once"})
    ),
    "skew": Profile(kinds=("skew",), controls=2, nets=frozenset({"free", "rebuild"}), is_calm=True),
    "all": Profile(kinds=_MOST, controls=4, is_swarm=True, rebuilds=True, collectors=2),
    "swarm": Profile(
        kinds=(*_CRASHES, *_FREEZES, *_MESSAGES, "commit_unknown", "flush", "mistaken_rebuild"),
        controls=3,
        is_swarm=True,
        rebuilds=True,
        more=frozenset({"early", "at_most_once", "timers", "tags", "slots"}),
    ),
    "ahead_swarm": Profile(
        kinds=_MOST,
        controls=4,
        is_swarm=True,
        rebuilds=True,
        dispatches_speculatively=True,
        collectors=2,
        more=frozenset({"slots"}),
    ),
}
