"""Workflows drawn by hypothesis: small, of every rule, with conditions and names of far ancestors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from weft.core.readiness import EARLY_RULES
from weft.definition.model import TriggerRule
from weft.testing.walk import node, workflow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.payload import Json
    from weft.core.rows import NodeRow
    from weft.definition.plan import Plan

CONDITIONS = [None, None, None, "1 == 1", "1 == 2", "input.missing > 1"]


@st.composite
def workflows(
    draw: st.DrawFn,
    *,
    max_nodes: int = 7,
    rules: Collection[TriggerRule] = tuple(TriggerRule),
    policies: Collection[str] = ("fail_fast", "continue"),
    with_conditions: bool = True,
    with_places: bool = True,
) -> Json:
    count = draw(st.integers(1, max_nodes))
    ids = [f"n{index}" for index in range(count)]
    ancestors: dict[str, set[str]] = {}
    nodes = []
    for index, node_id in enumerate(ids):
        parents = draw(st.lists(st.sampled_from(ids[:index]), unique=True, max_size=3)) if index else []
        above = {*parents}.union(*(ancestors[parent] for parent in parents))
        ancestors[node_id] = above
        rule = draw(st.sampled_from([rule for rule in rules if parents or rule not in EARLY_RULES]))
        fields: dict[str, Any] = {}
        if with_conditions and (condition := draw(st.sampled_from(CONDITIONS))) is not None:
            fields["condition"] = condition
        if len(above) > 0 and draw(st.booleans()):
            named = draw(st.sampled_from(sorted(above)))
            fields["config"] = f"{{{{ nodes.{named}.state | default('unsettled') }}}}"
        nodes.append(node(node_id, *parents, rule=rule, **fields))
    whole: dict[str, Any] = {"failure_policy": draw(st.sampled_from(sorted(policies)))}
    if with_places and (places := draw(st.sampled_from([None, None, 1, 2]))) is not None:
        whole["max_concurrency"] = places
    return workflow(*nodes, **whole)


def is_handled(plan: Plan, rows: Mapping[str, NodeRow], node_id: str) -> bool:
    """True if a failure is handled, by the words of the interface."""
    return any(
        rows[dependent].state == "COMPLETED"
        for dependent in plan.graph.dependents[node_id]
        if plan.nodes[dependent].trigger_rule is TriggerRule.ONE_FAILED
    )


def verdict(plan: Plan, rows: Mapping[str, NodeRow]) -> str:
    """Return how an execution with these settled nodes ends, without a cancel or a deadline."""
    failures = [node_id for node_id, row in rows.items() if row.state == "FAILED"]
    return "COMPLETED" if all(is_handled(plan, rows, node_id) for node_id in failures) else "FAILED"
