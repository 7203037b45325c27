"""Which nodes a retry or a fork of an execution runs again, and which keep what they have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from weft.core.readiness import EARLY_RULES
from weft.core.rows import NodeRow
from weft.core.state import NodeState, Reason
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.definition.plan import Plan

Rows = Mapping[str, NodeRow]

# Their outcome is drawn from failures: when a failure is taken back, they ran on what is no longer true.
_RAN_ON_FAILURES = frozenset({TriggerRule.ONE_FAILED, TriggerRule.ALL_DONE})


class RetryPlan(msgspec.Struct, frozen=True):
    """``run``: unsettled again in the next generation; ``reuse``: settled, and they stay so."""

    run: tuple[str, ...]
    reuse: tuple[str, ...]


def plan_retry(plan: Plan, rows: Rows, nodes: tuple[str, ...] = ()) -> RetryPlan:
    """Plan the next generation of a failed or cancelled execution.

    The set is closed over what consumed an outcome that is about to change. A node that completed and
    runs again may give another output, so everything behind it runs again; a node that did not
    complete gave nothing, so behind it only what was decided by that is decided anew.
    """
    # Whether everything behind the node runs again too.
    again: dict[str, bool] = {}
    frontier: list[str] = []

    def add(node_id: str, *, with_all_behind: bool) -> None:
        with_all_behind = with_all_behind or rows[node_id].state is NodeState.COMPLETED
        if node_id not in again or (with_all_behind and not again[node_id]):
            again[node_id] = with_all_behind
            frontier.append(node_id)

    for node_id in nodes:
        add(node_id, with_all_behind=True)
    for node_id in plan.graph.ids:
        if _runs_again(rows[node_id]):
            add(node_id, with_all_behind=False)
    while frontier:
        node_id = frontier.pop()
        all_behind = again[node_id]
        for dependent in plan.graph.dependents[node_id]:
            if (
                all_behind
                or rows[dependent].state is NodeState.SKIPPED
                or plan.nodes[dependent].trigger_rule in _RAN_ON_FAILURES
            ):
                add(dependent, with_all_behind=all_behind)
    return RetryPlan(
        run=tuple(node_id for node_id in plan.graph.ids if node_id in again),
        reuse=tuple(node_id for node_id in plan.graph.ids if node_id not in again),
    )


def plan_fork(plan: Plan, rows: Rows, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes that a fork keeps, parents first: settled, and not in or behind ``nodes``.

    A node is kept if it completed or its condition skipped it, also behind a node that runs again (an
    ``all_done`` node behind a failure). Without ``nodes`` everything runs.
    """
    if not nodes:
        return ()
    again: set[str] = set()
    kept: list[str] = []
    # Parents come before their dependents.
    for node_id in plan.graph.order():
        row = rows[node_id]
        if node_id in nodes or any(parent in again for parent in plan.graph.parents[node_id]):
            again.add(node_id)
        elif row.state is NodeState.COMPLETED or (
            row.state is NodeState.SKIPPED and row.reason == Reason.CONDITION
        ):
            kept.append(node_id)
    return tuple(kept)


def unfit_for_fork(kept: Iterable[str], old: Plan, new: Plan, *, new_input: bool) -> dict[str, str]:
    """Return why each kept node cannot be kept: it, or a node before it, differs or reads the new input.

    A node with such an ancestor is named with its parent on the way there, also where that runs again.
    """
    unfit: dict[str, str] = {}
    for node_id in old.graph.order():
        if node_id not in new.nodes:
            continue
        parent = next((name for name in old.graph.parents[node_id] if name in unfit), None)
        if parent is not None:
            unfit[node_id] = f"it runs after {parent!r}"
        elif new is not old and new.nodes[node_id] != old.nodes[node_id]:
            unfit[node_id] = "it differs in that version"
        elif new_input and _reads_input(new, node_id):
            unfit[node_id] = "it reads the input"
    return {node_id: unfit[node_id] for node_id in kept if node_id in unfit}


def _reads_input(plan: Plan, node_id: str) -> bool:
    condition = plan.conditions.get(node_id)
    return (
        plan.nodes[node_id].handler == "input"
        or plan.templates[node_id].reads_input
        or (condition is not None and condition.reads_input)
    )


def _runs_again(row: NodeRow) -> bool:
    return row.state in (NodeState.FAILED, NodeState.CANCELLED) or (
        row.state is NodeState.SKIPPED and row.reason == Reason.UPSTREAM_FAILED
    )


def may_have_started(plan: Plan, rows: Rows, node_id: str) -> bool:
    """True if an attempt of a settled node may have been handed out in its generation.

    If not, its number was never seen by anyone and is used in the next generation.
    """
    row = rows[node_id]
    if row.state is NodeState.SKIPPED:
        return False
    if row.state is not NodeState.CANCELLED:
        # From the cache, or failed by its own condition or templates: decided without an attempt.
        return row.ended == row.attempt
    rule = plan.nodes[node_id].trigger_rule
    open_parents = 0
    for parent in plan.graph.parents[node_id]:
        state = rows[parent].state
        if state is NodeState.CANCELLED:
            open_parents += 1
        elif EARLY_RULES.get(rule) is state:
            return True
    return open_parents == 0
