"""The tables of legal moves, held against what the interface says of states."""

from __future__ import annotations

import pytest

from weft.core.state import EXECUTION_MOVES, NODE_MOVES, SETTLED, TERMINAL, ExecutionState, NodeState


def test_every_state_has_its_moves() -> None:
    assert set(NODE_MOVES) == set(NodeState)
    assert set(EXECUTION_MOVES) == set(ExecutionState)


@pytest.mark.parametrize("state", sorted(SETTLED))
def test_only_a_retry_reopens_a_settled_node(state: NodeState) -> None:
    assert NODE_MOVES[state] == {NodeState.PENDING}


def test_a_completed_execution_never_changes() -> None:
    assert EXECUTION_MOVES[ExecutionState.COMPLETED] == frozenset()


@pytest.mark.parametrize("state", [ExecutionState.FAILED, ExecutionState.CANCELLED])
def test_only_a_retry_reopens_a_failed_or_cancelled_execution(state: ExecutionState) -> None:
    # PENDING: in a group it waits for its turn.
    assert EXECUTION_MOVES[state] == {ExecutionState.RUNNING, ExecutionState.PENDING}


@pytest.mark.parametrize("state", [state for state in ExecutionState if state not in TERMINAL])
def test_whatever_is_not_terminal_can_be_cancelled(state: ExecutionState) -> None:
    assert ExecutionState.CANCELLED in EXECUTION_MOVES[state]


def test_an_execution_ends_by_its_nodes_only_after_it_was_taken_up() -> None:
    assert not {ExecutionState.COMPLETED, ExecutionState.FAILED} & EXECUTION_MOVES[ExecutionState.PENDING]


@pytest.mark.parametrize("state", [state for state in NodeState if state not in SETTLED])
def test_whatever_is_not_settled_can_be_cancelled(state: NodeState) -> None:
    assert NodeState.CANCELLED in NODE_MOVES[state]


def test_a_started_node_is_never_skipped() -> None:
    assert NodeState.SKIPPED not in NODE_MOVES[NodeState.RUNNING]
    assert NodeState.SKIPPED not in NODE_MOVES[NodeState.QUEUED]


def test_every_state_can_be_reached() -> None:
    for moves, first in ((NODE_MOVES, NodeState.PENDING), (EXECUTION_MOVES, ExecutionState.PENDING)):
        reached = {first}
        frontier = [first]
        while frontier:
            for state in moves[frontier.pop()] - reached:  # type: ignore[index]
                reached.add(state)
                frontier.append(state)
        assert reached == set(moves)
