"""What some seed must have hit: every crash point, every reason to discard, every path of repair.

A simulation that never reaches a branch proves nothing of it. What is common is hit by the seeds of the test
suite; what is rare, by a long run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# So many seeds over all profiles must hit all that is common, and so many all that is rare.
ENOUGH_SEEDS = 10_000
MANY_SEEDS = 250_000

# Each call of a port that a process makes: it may die before it and after it.
CRASH_STEPS: dict[str, tuple[str, ...]] = {
    "orchestrator": (
        "transport.read",
        "journal.plan",
        "journal.record",
        "store.apply",
        "store.running",
        "store.free",
        "journal.cached_sizes",
        "journal.blobs",
        "limits.join",
        "store.throttle",
        "store.queue",
        "transport.ack",
        "store.incarnation_id",
        "journal.execution",
        "journal.rebuild",
        "store.install",
    ),
    "sweeper": (
        "store.due",
        "journal.plan",
        "journal.record",
        "store.apply",
        "store.running",
        "store.free",
        "journal.cached_sizes",
        "journal.cached",
        "limits.join",
        "store.throttle",
        "store.queue",
        "limits.release",
        "store.release",
        "transport.claim",
        "transport.send",
        "transport.ack",
        "transport.ack_tasks",
        "journal.active",
        "store.epochs",
        "store.idle_since",
        "store.incarnation_id",
        "journal.execution",
        "journal.rebuild",
        "store.install",
    ),
    "worker": (
        "transport.fetch",
        "limits.spend",
        "store.start",
        "transport.ack_tasks",
        "store.renew",
        "journal.put_blob",
        "store.report",
        "store.abandon",
    ),
    "api": (
        "journal.claim",
        "store.incarnation_id",
        "journal.submit",
        "store.install",
        "transport.publish",
        "store.inspect",
        "store.running",
        "journal.record",
        "store.close",
        "store.apply",
        "journal.execution",
        "journal.plan",
        "journal.nodes",
    ),
}
# The same where nodes wait. They are steps of no other profile.
WAIT_STEPS: dict[str, tuple[str, ...]] = {
    "orchestrator": (),
    "sweeper": (
        "journal.due_waits",
        "journal.untold_waits",
        "journal.forget_waits",
        "journal.nodes",
        "journal.waiting",
        "store.evictable",
        "store.evict",
        "transport.publish",
    ),
    "worker": (),
    "api": (
        "journal.open_waits",
        "journal.put_blob",
    ),
}
# The same where nodes call workflows.
CALL_STEPS: dict[str, tuple[str, ...]] = {
    "orchestrator": ("journal.forget_waits", "journal.idle_children", "store.close", "journal.put_blob"),
    "sweeper": (
        "journal.due_waits",
        "journal.untold_waits",
        "journal.untold_children",
        "journal.forget_children",
        "journal.stray_children",
        "journal.idle_children",
        "journal.forget_waits",
        "store.close",
    ),
    "worker": (),
    "api": (
        "journal.idle_children",
        "journal.open_children",
        "journal.ended_children",
        "journal.forget_waits",
    ),
}
# Reached too seldom to be asked of a test: a release that finds its node gone, a token that went to another,
# an execution that ended while it was to be rebuilt, one that was accepted while the store was away, an
# output in the cache, an answer of which the store was told.
_RARE_STEPS: dict[str, tuple[str, ...]] = {
    # A token for a node that sleeps is spent by whoever starts it.
    "orchestrator": ("store.inspect", "limits.spend", "journal.cached"),
    "sweeper": ("journal.blobs", "limits.leave", "limits.spend", "store.close"),
    "worker": ("limits.join", "store.throttle", "transport.publish"),
    "api": ("journal.rebuild", "journal.drop_blobs", "journal.forget_waits"),
}
# Needs two rare things at once, and is not asked for: a place that another orchestrator took meanwhile,
# an execution that was never taken up and is yet in the hands of an orchestrator, one that it does not find
# in the store and that has ended when it looks.
_SELDOM_STEPS: dict[str, tuple[str, ...]] = {
    "orchestrator": (
        "transport.publish",
        "limits.leave",
        "store.close",
        "store.end_leases",
        # With a small memory.
        "store.admit",
        "journal.put_blob",
        "journal.drop_blobs",
    ),
    "sweeper": ("store.admit", "journal.put_blob", "journal.drop_blobs", "sleep"),
    "worker": ("journal.blobs", "journal.drop_blobs"),
}
# Calls that fail before their effect or after it.
FAILING_STEPS = (
    "limits.join",
    "limits.release",
    "limits.spend",
    "store.apply",
    "store.renew",
    "store.close",
    "store.due",
    "store.epochs",
    "store.free",
    "store.install",
    "store.throttle",
    "store.queue",
    "store.release",
    "store.report",
    "store.running",
    "store.start",
    "store.incarnation_id",
    "store.idle_since",
    "transport.ack",
    "transport.ack_tasks",
    "transport.claim",
    "transport.fetch",
    "transport.publish",
    "transport.read",
)

_PATHS: dict[str, tuple[str, ...]] = {
    "faults": (
        "a worker stops in good order",
        "flush",
        "forgotten",
        "rollback",
        "freeze api",
        "freeze orchestrator",
        "freeze sweeper",
        "freeze worker",
        "journal away",
        "journal set back",
        "message delayed",
        "message doubled",
        "message dropped",
        "message reordered",
        "mistaken rebuild",
        "sweep met an error",
    ),
    "unknown and failed commits": (
        *(
            f"commit {outcome} journal.{step}"
            for outcome in ("failed", "unknown")
            for step in ("submit", "record", "rebuild")
        ),
        "commit of another incarnation journal.submit",
        "commit of another incarnation journal.record",
    ),
    "accepted": tuple(
        f"accepted {event}"
        for event in (
            "AttemptFailed",
            "AttemptIssued",
            "AttemptLost",
            "AttemptParked",
            "CancelRequested",
            "DeadlinePassed",
            "ExecutionStarted",
            "HotStateEvicted",
            "NodeCached",
            "NodeCompleted",
            "NodeFailed",
            "NodeSkipped",
            "ParkedDue",
            "PauseRequested",
            "ResumeRequested",
            "RetryRequested",
            "SignalReceived",
            "WaitAnswered",
            "WaitDue",
            "WaitStarted",
        )
    ),
    "recorded before": tuple(
        f"known {event}"
        for event in (
            "AttemptFailed",
            "AttemptLost",
            "CancelRequested",
            "ExecutionStarted",
            "NodeCompleted",
            "NodeFailed",
            "NodeSkipped",
            "PauseRequested",
            "ResumeRequested",
            "WaitDue",
            "WaitStarted",
        )
    ),
    "refused": (
        "control call refused",
        "refused CancelRequested",
        "refused PauseRequested",
        "refused ResumeRequested",
        "refused RetryRequested",
        "refused SignalReceived",
        "refused WaitAnswered",
        "start refused",
        "start unknown",
        "tag: no token at the start",
    ),
    "results discarded": (
        "stale result: of a node that was settled without it",
        "stale result: of a superseded attempt",
        "stale result: of an older generation",
    ),
    "repair": (
        "install: fresh",
        "install: rebuilt",
        "install: refused by the epoch",
        "install: refused by the incarnation",
        "orphaned: adopted by a heartbeat",
        "orphaned: adopted by a report",
        "reclaim: results",
        "reclaim: tasks",
        "sweep: deadline",
        "sweep: executions the store does not have",
        "sweep: free nodes nobody dispatched",
        "sweep: lease of a orphaned node ran out",
        "sweep: lease of a running node ran out",
        "sweep: queued again",
    ),
    "ends of a node": (
        "answered from the cache",
        "cancelled: cancelled",
        "cancelled: deadline",
        "cancelled: fail_fast",
        "failed: bad_config",
        "failed: condition_error",
        "failed: deliveries_exhausted",
        "failed: expired",
        "failed: handler_error",
        "failed: lost",
        "failed: template_error",
        "failed: timeout",
        "skipped: condition",
        "skipped: not_triggered",
        "skipped: upstream_failed",
        "skipped: upstream_skipped",
    ),
    "ends of a wait": (
        "wait: answered",
        "wait: answered by a signal",
        "wait: answered from the mailbox",
        "wait: cancelled",
        "wait: expired",
        "wait: expired with a default",
        "wait: its time has come",
        "signal: discarded",
        "signal: kept",
        "sweep: the end of a wait that the store was not told of",
    ),
    "events and triggers": (
        "event: known",
        "event: new",
        "trigger: on_event",
        "trigger: tick",
        "wait: answered by an event",
        "wait: answered by an earlier event",
    ),
    "calls": (
        "answer refused",
        "claim: of an answer",
        "claim: known",
        "claim: of a retry",
        "control call cancel",
        "control call cancel_all",
        "control call pause",
        "control call resume",
        "control call retry",
        "control call retry_nodes",
        "control call retry_once",
    ),
}
_RARE_PATHS = (
    "a large output could not be stored",
    "known AttemptIssued",
    "known AttemptParked",
    "known ParkedDue",
    "known DeadlinePassed",
    "known NodeCached",
    "stale issue: of an older epoch",
    "sweep: throttled again",
)


def crash_points(steps: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Name both sides of the steps of each kind of process, as they are counted."""
    return {
        f"crash {kind} {step}:{side}"
        for kind, names in steps.items()
        for step in names
        for side in ("before", "after")
    }


_ERRORS = {f"error {side} {step}" for step in FAILING_STEPS for side in ("before", "after")}
# While it waits a process may die, too.
_IDLE = {"crash orchestrator idle", "crash sweeper idle", "crash worker idle", "crash api sleep"}
_GROUPS: dict[str, set[str]] = {
    "crash points": crash_points(CRASH_STEPS) | crash_points(WAIT_STEPS) | _IDLE,
    "calls that fail": _ERRORS,
    **{group: set(names) for group, names in _PATHS.items()},
}
COMMON: frozenset[str] = frozenset().union(*_GROUPS.values())
RARE: frozenset[str] = frozenset(
    {*_RARE_PATHS, *crash_points(_RARE_STEPS), "crash orchestrator sleep", "crash worker sleep"}
)

# All crash points that there are known to be.
CRASH_POINTS = frozenset(crash_points(_SELDOM_STEPS)).union(
    name for name in COMMON | RARE if name.startswith("crash ")
)


def never_hit(hits: Mapping[str, int], *, seeds: int) -> list[str]:
    """List what so many seeds over all profiles should have hit and have not."""
    wanted = (COMMON if seeds >= ENOUGH_SEEDS else frozenset()) | (
        RARE if seeds >= MANY_SEEDS else frozenset()
    )
    return sorted(name for name in wanted if not hits.get(name))


def coverage_table(hits: Mapping[str, int]) -> str:
    """Show, for each group, how much of it was hit, and what was hit least."""
    lines = [f"{'what must be hit':<28} {'hit':>9}  least often"]
    for group, names in {**_GROUPS, "rare": set(RARE)}.items():
        counts = sorted((hits.get(name, 0), name) for name in names)
        hit = sum(count > 0 for count, _ in counts)
        count, name = counts[0]
        lines.append(f"{group:<28} {hit:>4}/{len(names):<4}  {name} ({count:,})")
    return "\n".join(lines)
