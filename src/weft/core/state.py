"""The states of nodes and executions, and the only moves between them.

A state changes by these tables or not at all: the ledger records no other move. ``docs/lifecycle.md`` is
drawn from them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class NodeState(StrEnum):
    PENDING = "PENDING"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class ExecutionState(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Reason(StrEnum):
    """Why a node was settled without a result of its own."""

    UPSTREAM_FAILED = "upstream_failed"
    UPSTREAM_SKIPPED = "upstream_skipped"
    NOT_TRIGGERED = "not_triggered"
    CONDITION = "condition"
    FAIL_FAST = "fail_fast"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    # The execution is a child, and its parent has ended it.
    PARENT = "parent"


SETTLED = frozenset({NodeState.COMPLETED, NodeState.FAILED, NodeState.SKIPPED, NodeState.CANCELLED})
TERMINAL = frozenset({ExecutionState.COMPLETED, ExecutionState.FAILED, ExecutionState.CANCELLED})

_N, _E = NodeState, ExecutionState

# Every legal move of a node.
NODE_MOVES: Mapping[NodeState, frozenset[NodeState]] = {
    # RUNNING: no worker runs it. COMPLETED: from the cache. FAILED: its condition or its templates.
    _N.PENDING: frozenset(
        {_N.QUEUED, _N.RUNNING, _N.WAITING, _N.COMPLETED, _N.FAILED, _N.SKIPPED, _N.CANCELLED}
    ),
    # By a time, an answer, an event or the end of a child; FAILED: it expired, or the child did not complete.
    _N.WAITING: frozenset({_N.COMPLETED, _N.FAILED, _N.CANCELLED}),
    # FAILED: an at_most_once attempt that may have started. PENDING: the store was lost and rebuilt.
    _N.QUEUED: frozenset({_N.RUNNING, _N.FAILED, _N.CANCELLED, _N.PENDING}),
    # QUEUED: another attempt follows.
    _N.RUNNING: frozenset({_N.COMPLETED, _N.FAILED, _N.QUEUED, _N.CANCELLED, _N.PENDING}),
    # Only a retry of the execution reopens a settled node.
    **dict.fromkeys(SETTLED, frozenset({_N.PENDING})),
}

# Every legal move of an execution.
EXECUTION_MOVES: Mapping[ExecutionState, frozenset[ExecutionState]] = {
    _E.PENDING: frozenset({_E.RUNNING, _E.PAUSED, _E.CANCELLED}),
    _E.RUNNING: frozenset({_E.PAUSED, _E.COMPLETED, _E.FAILED, _E.CANCELLED}),
    # PENDING: paused before it was taken up. A paused execution finishes where its last running attempts
    # settle it.
    _E.PAUSED: frozenset({_E.PENDING, _E.RUNNING, _E.COMPLETED, _E.FAILED, _E.CANCELLED}),
    _E.COMPLETED: frozenset(),
    # Only a retry reopens. PENDING: it waits for its turn in its group.
    _E.FAILED: frozenset({_E.RUNNING, _E.PENDING}),
    _E.CANCELLED: frozenset({_E.RUNNING, _E.PENDING}),
}


class IllegalMoveError(AssertionError):
    """A change of state that the tables do not have: a bug in the ledger, and nothing is written."""


def _recorded(state: NodeState) -> NodeState | None:
    return state if state in SETTLED else None


# The moves of a node's row. The journal has None for a node that is not settled: which of PENDING, QUEUED and
# RUNNING it is, only the store knows. That it is WAITING stands in the row besides (``NodeRow.parked``).
ROW_MOVES: Mapping[NodeState | None, frozenset[NodeState | None]] = {
    _recorded(state): frozenset(
        _recorded(target)
        for source, targets in NODE_MOVES.items()
        if _recorded(source) is _recorded(state)
        for target in targets
    )
    for state in NodeState
}
