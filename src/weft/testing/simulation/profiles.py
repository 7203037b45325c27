"""Which faults a run draws from, and which safety nets it does without.

With all nets on, one net repairs the damage another bug did: a lost result is found by the lease. So each
profile injects few kinds of faults and switches off the nets that are not theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NETS = frozenset({"lease", "free", "reclaim", "rebuild"})


@dataclass(frozen=True, slots=True)
class Profile:
    # Chance per step that the process of this kind dies there.
    crash: dict[str, float] = field(default_factory=dict)
    # Chance per step that an actor of this kind stands still for longer than a lease.
    freeze: dict[str, float] = field(default_factory=dict)
    # Chance per commit: it fails with nothing written, or is written and its answer is lost.
    commit_fails: float = 0.0
    commit_unknown: float = 0.0
    # How often the journal is away for longer than a lease.
    outages: int = 0
    # Chance per message: it comes twice; it is lost.
    doubled: float = 0.0
    dropped: float = 0.0
    # How often everything in the store and the streams is lost.
    flushes: int = 0
    # Chance that a handler fails; how many control calls are made.
    failures: float = 0.15
    controls: int = 0
    nets: frozenset[str] = NETS
    # A run in which no worker is at fault has no attempt above what its failures explain.
    is_calm: bool = False
    # Hot state may be rebuilt, which may cost each node that was ready a number.
    rebuilds: bool = False


PROFILES: dict[str, Profile] = {
    "calm": Profile(is_calm=True, nets=frozenset()),
    "calm_control": Profile(controls=4, nets=frozenset({"free"})),
    "orchestrator_crash": Profile(crash={"orchestrator": 0.02}, nets=frozenset({"reclaim", "rebuild"})),
    "sweeper_crash": Profile(
        crash={"sweeper": 0.02, "worker": 0.004}, nets=frozenset({"lease", "free", "reclaim"})
    ),
    "worker_crash": Profile(crash={"worker": 0.01}, nets=frozenset({"lease", "reclaim"})),
    "api_crash": Profile(
        crash={"api": 0.15}, controls=3, nets=frozenset({"rebuild", "free", "lease"}), rebuilds=True
    ),
    "frozen_worker": Profile(freeze={"worker": 0.01}, nets=frozenset({"lease", "reclaim"})),
    "frozen_orchestrator": Profile(freeze={"orchestrator": 0.01}, nets=frozenset({"lease", "reclaim"})),
    "doubled": Profile(doubled=0.3, nets=frozenset({"lease"})),
    "journal_errors": Profile(commit_fails=0.05, commit_unknown=0.05, rebuilds=True),
    # No attempt may be used up because results waited for the journal.
    "journal_away": Profile(outages=2, nets=frozenset({"lease", "reclaim", "free"}), is_calm=True),
    "flush": Profile(flushes=2, rebuilds=True, nets=frozenset({"lease", "rebuild", "reclaim"})),
    "flush_control": Profile(flushes=2, controls=3, rebuilds=True),
    "dropped": Profile(dropped=0.05, rebuilds=True),
    "all": Profile(
        crash={"orchestrator": 0.01, "sweeper": 0.01, "worker": 0.005, "api": 0.05},
        freeze={"worker": 0.004, "orchestrator": 0.004},
        commit_fails=0.02,
        commit_unknown=0.02,
        doubled=0.1,
        flushes=1,
        controls=3,
        rebuilds=True,
    ),
}
