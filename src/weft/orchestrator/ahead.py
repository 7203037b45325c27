"""Tasks that are sent with the rows that make their nodes ready, and not behind the answer to these.

A node with one parent, that reads nothing but this parent's output, is decided as soon as the parent's row is
recorded: what the store would give for it is known. So its task goes to the store in one call with the row,
and the store moves it if the node is free by then. Where it is not (paused, another attempt, another life of
the store, the row not merged yet) the store refuses it, as it does every task, and the node is dispatched
when it comes as free. Nothing rests on this but time: it saves a round trip between a node's end and the
next one's start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.decide import decide
from weft.core.decision import DispatchNode
from weft.core.definition import Delivery
from weft.core.event import ExecutionStarted, NodeCompleted
from weft.core.ledger import Verdict
from weft.core.state import ExecutionState
from weft.core.view import NodeView
from weft.orchestrator.dispatch import is_large, make_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.task import Task
    from weft.orchestrator.service import Orchestrator

# Of a wider execution, places are scarce: there, who became free first goes first.
_MOST_NODES = 200


def foresee(standings: Iterable[Standing], orchestrator: Orchestrator) -> list[tuple[Task, int]]:
    """Make the tasks of nodes that these rows make ready, each with the epoch it is for."""
    ahead = []
    for standing in standings:
        execution, plan = standing.execution, standing.plan
        if standing.verdict is not Verdict.ACCEPTED or execution is None or plan is None:
            continue
        # In a later generation an attempt has another number than the first.
        if execution.state is not ExecutionState.RUNNING or execution.generation > 1 or execution.checkpoint:
            continue
        if len(plan.nodes) > min(plan.definition.max_concurrency or _MOST_NODES, _MOST_NODES):
            continue
        if isinstance(standing.event, ExecutionStarted):
            ready = _tasks(execution, plan, plan.graph.roots, None, orchestrator)
        elif isinstance(standing.event, NodeCompleted):
            (row,) = standing.rows
            children = plan.graph.dependents.get(row.node_id, ())
            ready = _tasks(execution, plan, children, row, orchestrator)
        else:
            continue
        ahead += [(task, execution.epoch) for task in ready]
    return ahead


def _tasks(
    execution: ExecutionRow,
    plan: Plan,
    names: Sequence[str],
    parent: NodeRow | None,
    orchestrator: Orchestrator,
) -> Iterator[Task]:
    ports, payloads = orchestrator.ports, orchestrator.payloads
    parents = () if parent is None else (parent,)
    for name in names:
        node = plan.nodes[name]
        if (
            len(plan.wanted[name]) != len(parents)
            or node.delivery is Delivery.AT_MOST_ONCE
            or node.cache_ttl_seconds is not None
            or (node.resource_tag is not None and ports.limits.limited(node.resource_tag))
        ):
            continue
        seen = {row.node_id: row for row in parents if row.node_id in plan.needs[name]}
        if any(row.blob is not None for row in seen.values()):
            continue
        decision = decide(
            NodeView(execution, plan, node, parents, seen),
            decode=payloads.decode,
            value_of=payloads.value_of,
            max_bytes=ports.bounds.max_payload_bytes,
        )
        if isinstance(decision, DispatchNode) and not is_large(decision, ports):
            yield make_task(execution, plan, decision, ports)
