"""Why a node is not running: at least one reason for every unsettled node, none for a settled one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.judge import DEFAULT_MAX_RETRY_AFTER_SECONDS, SERVICE_STATUS
from weft.core.rows import GROUP_LANE
from weft.core.state import TERMINAL, ExecutionState
from weft.core.time import MICROSECONDS, micros
from weft.definition.waits import WaitKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.rows import ExecutionRow, History, NodeRow, Wait
    from weft.definition.model import RetryPolicy
    from weft.definition.plan import Plan
    from weft.journal.contract import QueuePlace
    from weft.store.contract import MemoryWait


class Position(msgspec.Struct, frozen=True):
    """Where the store has the node; ``phase`` None: it is not in the store's hands."""

    phase: str | None
    awaited: tuple[str, ...] = ()
    due_at: int | None = None
    slots_taken: int = 0
    slots: int = 0
    memory: MemoryWait | None = None


class RetryDelay(msgspec.Struct, frozen=True):
    """The event that began a retry delay, and the limit (WEFT_MAX_RETRY_AFTER) on what others ask for."""

    event: History
    max_retry_after_seconds: float = DEFAULT_MAX_RETRY_AFTER_SECONDS


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    until: int | None = None
    nodes: tuple[str, ...] | None = None


# Reasons that hold for every node of an execution in this state.
_OF_EXECUTION = {
    ExecutionState.PAUSED: Why("paused", "the execution is paused: resume it"),
    ExecutionState.PENDING: Why("starting", "the execution waits for an orchestrator to take it up"),
}


def explain(
    plan: Plan,
    execution: ExecutionRow,
    row: NodeRow,
    position: Position | None,
    *,
    settled: frozenset[str] | set[str],
    served: bool,
    max_concurrency_binds: bool,
    retrying: RetryDelay | None = None,
) -> list[Why]:
    """List the reasons. ``position`` None: the store does not have the execution (yet, or any more).

    ``retrying``: of a node that waits for its next attempt.
    """
    if row.is_settled or execution.is_terminal:
        return []
    if row.wait is not None:
        return [_awaited(row, row.wait)]  # whatever the store has, and also while the execution is paused
    node = plan.nodes[row.node_id]
    reasons: list[Why] = []
    if (of_execution := _OF_EXECUTION.get(execution.state)) is not None:
        reasons.append(of_execution)
    if position is None and not execution.evicted:
        return reasons or [Why("recovering", "the execution is being recovered from the journal")]
    # Of an evicted execution only waits are open: what does not wait itself is behind one that does.
    position = position or Position(None)
    match position.phase:
        case None | "waiting":
            awaited = tuple(name for name in plan.graph.parents[row.node_id] if name not in settled)
            shown = ", ".join(awaited[:5]) + (f" and {len(awaited) - 5} more" if len(awaited) > 5 else "")
            if awaited:
                reasons.append(Why("waiting_for_parents", f"waits for {shown}", nodes=awaited))
            elif not reasons:
                reasons.append(Why("starting", "its parents are settled; it is about to be decided"))
        case "free" if position.slots_taken >= position.slots:
            reasons.append(_without_slot(position, max_concurrency_binds))
        case "free" if position.memory is not None:
            reasons.append(Why("waiting_for_memory", _memory(position.memory)))
        case "free":
            if not reasons:
                reasons.append(Why("starting", "it is free and about to be queued"))
        case "throttled":
            text = f"waits for the rate limit of {node.resource_tag!r}"
            reasons.append(Why("rate_limited", text, until=position.due_at))
        case "timer":
            reasons.append(_delayed(row, position.due_at, retrying, node.retry))
        case "queued" if not served:
            text = f"no living worker serves the queue {node.queue!r} with handler {node.handler!r}"
            reasons.append(Why("no_worker", text))
        case "queued":
            reasons.append(Why("waiting_for_worker", f"is in the queue {node.queue!r}"))
        case "parked":
            reasons.append(Why("running", f"attempt {row.attempt} sleeps", until=position.due_at))
        case "running":
            reasons.append(Why("running", f"attempt {row.attempt} is running"))
        case _:
            reasons.append(Why("recovering", "it may be running somewhere: its lease has to run out first"))
    return reasons


def waits_for_turn(place: QueuePlace) -> Why:
    """Return why nothing of an execution runs that waits for its turn in a lane."""
    behind = f", and {place.before:,} wait before it" if place.before else ""
    if place.lane.startswith(GROUP_LANE):
        name = place.lane.split("/", 2)[2]
        text = f"{place.running:,} of {place.slots:,} executions of group {name!r} run{behind}"
        return Why("waiting_for_group", text)
    return Why("starting", f"{place.running:,} of {place.slots:,} of {place.lane} run{behind}")


def awaited_children(row: NodeRow, wait: Wait, children: Mapping[ExecutionState, int]) -> Why:
    """Return that a node waits for its children, and how many of them have ended."""
    total = sum(children.values())
    ended = sum([count for state, count in children.items() if state in TERMINAL])
    states = ", ".join(f"{count} {state}" for state, count in children.items() if state not in TERMINAL)
    text = f"{ended} of {total} children have ended ({states}); it waits for execution {wait.name}"
    return Why("waiting_for_children", text, until=None if row.parked is None else row.parked.due_at)


def _awaited(row: NodeRow, wait: Wait) -> Why:
    """Return what a node waits for; ``until``: when the wait ends by itself."""
    due_at = None if row.parked is None else row.parked.due_at
    if wait.kind is WaitKind.TIMER:
        return Why("waiting_for_time", "waits for its time", until=due_at)
    if wait.kind is WaitKind.SIGNAL:
        text = f"waits for an answer, or for the signal {wait.name!r}"
        return Why("waiting_for_signal", text, until=due_at)
    pairs = "" if wait.match in (None, b"{}") else f" with {(wait.match or b'').decode()}"
    return Why("waiting_for_event", f"waits for an event {wait.name!r}{pairs}", until=due_at)


def _delayed(row: NodeRow, due_at: int | None, retrying: RetryDelay | None, policy: RetryPolicy) -> Why:
    """Return why a node waits for its next attempt: another look of its poll, or a retry."""
    if row.is_between_looks and row.polled is not None:
        return Why("waiting_for_look", f"look {row.polled.looks + 1} of its poll follows", until=due_at)
    text = f"attempt {row.attempt} follows after a failure{_delay_source(retrying, policy)}"
    return Why("retry_scheduled", text, until=due_at)


def _without_slot(position: Position, max_concurrency_binds: bool) -> Why:
    if max_concurrency_binds:
        text = f"{position.slots_taken} of {position.slots} nodes of this execution are in flight"
        return Why("max_concurrency", text)
    text = f"{position.slots_taken} tasks of this execution are in flight, as many as may be"
    return Why("window", text)


def _delay_source(retrying: RetryDelay | None, policy: RetryPolicy) -> str:
    """Return who set the delay of a retry: the service, the node's function, or the node's backoff.

    The event has both times, so the delay is known exactly; ``details`` of the error have what was asked for.
    """
    if retrying is None or retrying.event.due_at is None:
        return ""
    event, due_at = retrying.event, retrying.event.due_at
    delay = due_at - event.at
    shown = _seconds(delay / MICROSECONDS)
    error = event.error or {}
    details = error.get("details")
    asked = details.get("retry_after_seconds") if isinstance(details, dict) else None
    by_service = error.get("code") == SERVICE_STATUS
    asker, how = ("the service", "Retry-After") if by_service else ("the function", "weft.RetryAfter")
    if isinstance(asked, int | float) and delay <= micros(asked):
        if delay == micros(asked):
            return f"; {asker} asked for {shown} ({how})"
        # The larger of the two is the limit.
        is_own = policy.max_delay_seconds > retrying.max_retry_after_seconds
        limit = "the node's `max_delay_seconds`" if is_own else "WEFT_MAX_RETRY_AFTER"
        return f"; {asker} asked for {_seconds(asked)} ({how}), cut to {shown} ({limit})"
    if asked is None and delay > micros(policy.max_delay_seconds * (1 + policy.jitter)):
        # More than the policy can give, and the error does not tell: a handler with details of its own.
        return f"; {asker} asked for {shown} ({how})"
    return f"; the node's backoff is {shown} (its `retry`)"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


def _memory(wait: MemoryWait) -> str:
    needs = f"its config needs {_mebibytes(wait.needed)}" if wait.needed else "its config may be large"
    whose, name = ("all executions", "PROCESS") if wait.is_process else ("this execution", "EXECUTION")
    return (
        f"{needs}; large configs of {whose} in flight take {_mebibytes(wait.taken)} of the "
        f"{_mebibytes(wait.limit)} that WEFT_{name}_BYTES allows"
    )


def _mebibytes(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"
