"""Sends a task in one call with the rows that make its node ready, instead of after the reply to that call.

A node is decided as soon as all rows are recorded that it sees, because the reply of the store is known then.
The last row that a join sees is recorded now, and the journal mostly keeps the others in memory. The store
merges the row, and moves the task if the node is free by then. Where the node is not free (paused, another
attempt, another incarnation, a row not merged yet) the store refuses the task, as it does every task, and the
node is dispatched when it comes as free. So speculative dispatch only saves time: one round trip between a
node's end and the next one's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.readiness import EARLY_RULES
from weft.core.state import ExecutionState
from weft.orchestrator.context import STEPS_ON_LOOP
from weft.orchestrator.dispatch import plain_task

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.core.task import Task
    from weft.definition.plan import Plan
    from weft.orchestrator.context import Context

# In a wider execution concurrency slots are scarce: the node that became free first goes first.
_MOST_NODES = 200


def predict_ready(recorded_events: Sequence[RecordedEvent], context: Context) -> list[Task]:
    """Return the tasks of nodes that recorded rows make ready."""
    recorded: dict[str, dict[str, NodeRow]] = {}
    latest: dict[str, RecordedEvent] = {}
    for recorded_event in recorded_events:
        row = recorded_event.completed_row
        if row is not None:
            execution_id = recorded_event.event.execution_id
            latest[execution_id] = recorded_event
            recorded.setdefault(execution_id, {})[row.node_id] = row
    ahead: list[Task] = []
    ports, payloads = context.ports, context.payloads
    payloads.allowance.steps = STEPS_ON_LOOP
    for execution_id, rows in recorded.items():
        recorded_event = latest[execution_id]
        execution, plan = recorded_event.execution, recorded_event.plan
        if execution is None or plan is None or not _is_predictable(execution, plan):
            continue
        # Where several parents came at once, a join follows from each of them.
        children = dict.fromkeys([name for node_id in rows for name in plan.graph.dependents[node_id]])
        for name in children:
            at_hand = _rows_at_hand(plan, name, rows, recorded_event.kept)
            if at_hand is None:
                continue
            task = plain_task(execution, plan, name, at_hand, ports, payloads)
            if task is not None:
                ahead.append(task)
    return ahead


def _is_predictable(execution: ExecutionRow, plan: Plan) -> bool:
    """True if tasks of an execution are made ahead at all."""
    # In a later generation an attempt has another number than the first.
    most = min(plan.definition.max_concurrency or _MOST_NODES, _MOST_NODES)
    return execution.state is ExecutionState.RUNNING and execution.generation == 1 and len(plan.nodes) <= most


def _rows_at_hand(
    plan: Plan, name: str, recorded: Mapping[str, NodeRow], kept: Mapping[str, NodeRow]
) -> Mapping[str, NodeRow] | None:
    """Return the settled rows of all nodes that a node sees; None where one of them is not at hand.

    ``recorded``: rows of this batch. ``kept``: rows that the journal keeps. Within a generation a settled row
    does not change.
    """
    wanted = plan.visible_nodes[name]
    if len(wanted) == 1:
        return recorded
    # What a node of an early rule sees was fixed in the store when it became free, and need not be all.
    if plan.nodes[name].trigger_rule in EARLY_RULES:
        return None
    rows: dict[str, NodeRow] = {}
    for other in wanted:
        row = recorded.get(other) or kept.get(other)
        if row is None or row.state is None:
            return None
        rows[other] = row
    return rows
