"""Trigger rule + parents' outcomes → ready, skip or wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from weft.core.state import NodeState, Reason
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.core.rows import NodeRow


class Skip(msgspec.Struct, frozen=True, gc=False):
    """A node that can no longer run, and why."""

    node_id: str
    reason: str
    cause: str | None


READY: Literal["ready"] = "ready"
WAIT: Literal["wait"] = "wait"
Readiness: TypeAlias = Literal["ready", "wait"] | Skip

# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_COMPLETED, _FAILED, _SKIPPED = NodeState.COMPLETED, NodeState.FAILED, NodeState.SKIPPED
_ONE_FAILED = TriggerRule.ONE_FAILED

# A node of these rules is skipped at its first failed parent, whatever the others do.
SKIPPED_BY_FAILURE = frozenset(
    {TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS, TriggerRule.NONE_FAILED, TriggerRule.ALL_SUCCESS}
)
# A node of these rules is ready with the first parent that settles in this state, before the others settle.
EARLY_RULES: Mapping[TriggerRule, NodeState] = {
    TriggerRule.ONE_SUCCESS: NodeState.COMPLETED,
    TriggerRule.ONE_FAILED: NodeState.FAILED,
}


def has_failed(row: NodeRow) -> bool:
    """True if a parent counts as failed: by itself, or skipped because of a failure upstream."""
    return row.state is _FAILED or (row.state is _SKIPPED and row.reason == Reason.UPSTREAM_FAILED)


def readiness(node_id: str, rule: TriggerRule, parents: Iterable[NodeRow], *, waiting: int = 0) -> Readiness:
    """Decide a node by its settled ``parents``; ``waiting`` more are not settled yet."""
    completed = 0
    failed: NodeRow | None = None
    failed_itself = False
    skipped: NodeRow | None = None
    for row in parents:
        if row.state is _COMPLETED:
            completed += 1
        elif has_failed(row):
            failed = failed or row
            failed_itself = failed_itself or row.state is _FAILED
        else:
            skipped = skipped or row

    if rule is _ONE_FAILED and failed_itself:
        return READY
    if rule is TriggerRule.ONE_SUCCESS and completed:
        return READY
    if rule in SKIPPED_BY_FAILURE and failed is not None:
        return _because_failed(node_id, failed)
    if rule is TriggerRule.ALL_SUCCESS and skipped is not None:
        return _because_skipped(node_id, skipped)
    if waiting:
        return WAIT
    if rule is _ONE_FAILED:
        return Skip(node_id, Reason.NOT_TRIGGERED, None)
    if rule is TriggerRule.ONE_SUCCESS and failed is not None:
        return _because_failed(node_id, failed)
    if (
        rule in (TriggerRule.ONE_SUCCESS, TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
        and not completed
        and skipped
    ):
        return _because_skipped(node_id, skipped)
    return READY


def _because_failed(node_id: str, parent: NodeRow) -> Skip:
    cause = parent.node_id if parent.state is _FAILED else parent.cause
    return Skip(node_id, Reason.UPSTREAM_FAILED, cause)


def _because_skipped(node_id: str, parent: NodeRow) -> Skip:
    return Skip(node_id, Reason.UPSTREAM_SKIPPED, parent.cause or parent.node_id)
