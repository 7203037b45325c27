"""Shows what an open execution does, to people who look on. No decision depends on these reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import Running
from weft.core.snapshot import RowUpdate
from weft.core.state import ExecutionState
from weft.store.contract import ExecutionStatus, NodeStatus
from weft.store.memory.execution import RUNNING, WAITING

if TYPE_CHECKING:
    from collections.abc import Collection

    from weft.core.attempt import AttemptRef
    from weft.store.memory.budget import ConfigMemory
    from weft.store.memory.execution import OpenExecution


def running_attempts(execution: OpenExecution) -> dict[str, Running]:
    return {
        node_id: Running(node.attempt, node.worker, node.queued_at, node.started_at)
        for node_id in execution.slots
        if (node := execution.nodes[node_id]).phase is RUNNING
    }


def rows_at_hand(execution: OpenExecution, attempt: AttemptRef) -> RowUpdate | None:
    """Return the rows of the execution and of the node's parents; None: some of what they say is not here."""
    if execution.row.generation != attempt.generation or not execution.row.input:
        return None
    parents = execution.plan.graph.parents[attempt.node_id]
    rows = [execution.outcomes[name] for name in parents if name in execution.outcomes]
    for row in rows:
        if row.blob is not None:
            return None
    return RowUpdate(execution.row, execution.plan, rows)


def in_hand(execution: OpenExecution) -> tuple[list[str], int]:
    """Name the nodes that run now, and count all in flight."""
    running = [name for name in execution.slots if execution.nodes[name].phase is RUNNING]
    without_slot = len(execution.parked.keys() - execution.slots)
    return [*running, *execution.parked], len(execution.slots) + without_slot


def in_flight(execution: OpenExecution) -> tuple[int, int]:
    """Count the nodes that wait for a start, and those that run."""
    return len(execution.slots) - execution.running + execution.delayed, execution.running


def inspected(
    execution: OpenExecution, memory: ConfigMemory, names: Collection[str] | None
) -> ExecutionStatus:
    shown = execution.nodes
    if names is not None:
        shown = {name: shown[name] for name in names if name in shown}
    nodes = {
        node_id: NodeStatus(
            node.phase,
            node.attempt,
            _awaited(execution, node_id) if node.phase is WAITING else (),
            node.due_at,
            node.queued_at,
            node.started_at,
            node.worker,
            execution.plan.nodes[node_id].resource_tag,
            memory.wait_of(execution, node_id, node),
        )
        for node_id, node in shown.items()
    }
    paused = execution.row.state is ExecutionState.PAUSED
    return ExecutionStatus(paused, nodes, len(execution.slots), execution.window)


def _awaited(execution: OpenExecution, node_id: str) -> tuple[str, ...]:
    return tuple([name for name in execution.plan.graph.parents[node_id] if name not in execution.outcomes])
