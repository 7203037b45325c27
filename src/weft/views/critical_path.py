"""The chain of nodes that decided when an execution ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.readiness import EARLY_RULES
from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan


class PathStep(msgspec.Struct, frozen=True, kw_only=True):
    """A node on the critical path, with the times of its last attempt."""

    node: str
    attempt: int
    queued_at: int | None
    started_at: int
    finished_at: int
    # Between the end of the node that freed this one and its own end, the time in which no attempt of it ran:
    # waiting for a concurrency slot, in a queue, for a rate limit or for a retry.
    waiting: int


def critical_path(
    plan: Plan,
    execution: ExecutionRow,
    rows: Mapping[str, NodeRow],
    earlier: Mapping[str, int] | None = None,
) -> list[PathStep]:
    """Return the nodes that decided the end of a terminal execution, the first of them first.

    The last node to finish decided the end. Each node before it on the path is the parent whose end freed the
    next one; skipped nodes are passed through, for they take no time. Nodes that were settled before this
    generation began decided nothing in it.

    ``earlier``: of nodes with several attempts in this generation, the microseconds that those before the
    last ran.
    """
    own = {name: row for name, row in rows.items() if row.generation == execution.generation}
    last = _last(execution, own)
    path: list[PathStep] = []
    while last is not None:
        before = _before(plan, own, last)
        began_at = execution.started_at if before is None else before.finished_at
        path.append(_step(last, began_at, (earlier or {}).get(last.node_id, 0)))
        last = before
    return path[::-1]


def _last(execution: ExecutionRow, rows: Mapping[str, NodeRow]) -> NodeRow | None:
    """Return the node that finished last; one that was stopped counts where nothing else stopped it."""
    counted = {NodeState.COMPLETED, NodeState.FAILED}
    error = execution.error or {}
    if execution.state is ExecutionState.CANCELLED or error.get("code") == "deadline_exceeded":
        counted.add(NodeState.CANCELLED)
    ended = [row for row in rows.values() if row.state in counted and _has_times(row)]
    return max(ended, key=_moment, default=None)


def _before(plan: Plan, rows: Mapping[str, NodeRow], row: NodeRow) -> NodeRow | None:
    """Return the node whose end freed this one; None if it was free when the generation began."""
    while True:
        parent = _freeing_parent(plan, rows, row)
        if parent is None or _has_times(parent):
            return parent
        row = parent


def _freeing_parent(plan: Plan, rows: Mapping[str, NodeRow], row: NodeRow) -> NodeRow | None:
    parents = plan.graph.parents[row.node_id]
    settled = [rows[name] for name in parents if name in rows and rows[name].is_settled]
    if row.state is NodeState.SKIPPED:
        # Its commit followed on that of the parent that decided it.
        return max((one for one in settled if one.seq < row.seq), key=_number, default=None)
    early = EARLY_RULES.get(plan.nodes[row.node_id].trigger_rule)
    if early is None:
        # Skipped parents have no time of their own: by number they are compared with those that have.
        timed = max((one for one in settled if _has_times(one)), key=_moment, default=None)
        skipped = max((one for one in settled if not _has_times(one)), key=_number, default=None)
        if timed is None or skipped is None:
            return timed or skipped
        return timed if timed.seq > skipped.seq else skipped
    if any(name not in rows for name in parents):
        return None  # a parent of an earlier generation may have freed it at once
    return min((one for one in settled if one.state is early and _has_times(one)), key=_moment, default=None)


def _has_times(row: NodeRow) -> bool:
    return row.started_at is not None and row.finished_at is not None


def _moment(row: NodeRow) -> tuple[int, int]:
    return row.finished_at or 0, row.seq


def _number(row: NodeRow) -> int:
    return row.seq


def _step(row: NodeRow, began_at: int | None, earlier: int) -> PathStep:
    assert row.started_at is not None
    assert row.finished_at is not None
    ran = row.finished_at - row.started_at + earlier
    since = row.started_at if began_at is None else began_at
    return PathStep(
        node=row.node_id,
        attempt=0 if row.has_no_attempt else row.ended or row.attempt,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        waiting=max(0, row.finished_at - since - ran),
    )
