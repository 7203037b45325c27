"""Settled parents, as the rules see them."""

from __future__ import annotations

from weft.core.rows import NodeRow
from weft.core.state import NodeState, Reason


def completed(node_id: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.COMPLETED, output=b"1")


def failed(node_id: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.FAILED, error={"code": "timeout"})


def skipped_by_failure(node_id: str, cause: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.SKIPPED, reason=Reason.UPSTREAM_FAILED, cause=cause)


def skipped_by_skip(node_id: str, cause: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.SKIPPED, reason=Reason.UPSTREAM_SKIPPED, cause=cause)


def skipped_by_condition(node_id: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.SKIPPED, reason=Reason.CONDITION)


def not_triggered(node_id: str) -> NodeRow:
    return NodeRow(node_id=node_id, state=NodeState.SKIPPED, reason=Reason.NOT_TRIGGERED)
