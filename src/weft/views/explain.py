"""Why a node is not running: at least one reason for every unsettled node, none for a settled one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.state import ExecutionState

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan


class Position(msgspec.Struct, frozen=True):
    """Where the store has the node; ``phase`` None: it is not in the store's hands."""

    phase: str | None
    awaited: tuple[str, ...] = ()
    due_at: int | None = None
    places_taken: int = 0
    places: int = 0


class Why(msgspec.Struct, frozen=True, omit_defaults=True):
    code: str
    message: str
    until: int | None = None
    nodes: tuple[str, ...] | None = None


def explain(
    plan: Plan,
    execution: ExecutionRow,
    row: NodeRow,
    position: Position | None,
    *,
    settled: frozenset[str] | set[str],
    served: bool,
    max_concurrency_binds: bool,
) -> list[Why]:
    """List the reasons. ``position`` None: the store does not have the execution (yet, or any more)."""
    if row.is_settled or execution.is_terminal:
        return []
    node = plan.nodes[row.node_id]
    reasons: list[Why] = []
    if execution.state is ExecutionState.PAUSED:
        reasons.append(Why("paused", "the execution is paused: resume it"))
    if execution.state is ExecutionState.PENDING:
        reasons.append(Why("starting", "the execution waits for an orchestrator to take it up"))
    if position is None:
        if not reasons:
            reasons.append(Why("recovering", "the execution is being recovered from the journal"))
        return reasons
    match position.phase:
        case None | "waiting":
            awaited = tuple(name for name in plan.graph.parents[row.node_id] if name not in settled)
            shown = ", ".join(awaited[:5]) + (f" and {len(awaited) - 5} more" if len(awaited) > 5 else "")
            if awaited:
                reasons.append(Why("waiting_for_parents", f"waits for {shown}", nodes=awaited))
            elif not reasons:
                reasons.append(Why("starting", "its parents are settled; it is about to be decided"))
        case "free" if position.places_taken >= position.places:
            if max_concurrency_binds:
                text = f"{position.places_taken} of {position.places} nodes of this execution are in flight"
                reasons.append(Why("max_concurrency", text))
            else:
                text = f"{position.places_taken} tasks of this execution are in flight, as many as may be"
                reasons.append(Why("window", text))
        case "free":
            if not reasons:
                reasons.append(Why("starting", "it is free and about to be queued"))
        case "throttled":
            text = f"waits for the rate limit of {node.resource_tag!r}"
            reasons.append(Why("rate_limited", text, until=position.due_at))
        case "timer":
            text = f"attempt {row.attempt} follows after a failure"
            reasons.append(Why("retry_scheduled", text, until=position.due_at))
        case "queued" if not served:
            text = f"no living worker serves the queue {node.queue!r} with handler {node.handler!r}"
            reasons.append(Why("no_worker", text))
        case "queued":
            reasons.append(Why("waiting_for_worker", f"is in the queue {node.queue!r}"))
        case "running":
            reasons.append(Why("running", f"attempt {row.attempt} is running"))
        case _:
            reasons.append(Why("recovering", "it may be running somewhere: its lease has to run out first"))
    return reasons
