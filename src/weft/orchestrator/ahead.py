"""Tasks that are sent with the rows that make their nodes ready, and not behind the answer to these.

A node is decided as soon as all rows are recorded that it sees: what the store would give for it is known. Of
a join the last of them is recorded now, and the others were mostly recorded here before. So its task goes to
the store in one call with the row, and the store moves it if the node is free by then. Where it is not
(paused, another attempt, another life of the store, a row not merged yet) the store refuses it, as it does
every task, and the node is dispatched when it comes as free. Nothing rests on this but time: it saves a round
trip between a node's end and the next one's start.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from weft.core.event import NodeCompleted
from weft.core.ledger import Verdict
from weft.core.plan import EARLY_RULES
from weft.core.state import ExecutionState
from weft.orchestrator.dispatch import plain_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.task import Task
    from weft.orchestrator.service import Orchestrator

# Of a wider execution, places are scarce: there, who became free first goes first.
_MOST_NODES = 200
# So many rows are remembered in all, and none that are larger.
_MOST_ROWS = 20_000
_MOST_OUTPUT_BYTES = 1024

_NO_ROWS: Mapping[str, NodeRow] = {}


class _Known(msgspec.Struct, gc=False):
    """An execution that is not over, and rows of its completed nodes."""

    epoch: int
    plan: Plan
    rows: dict[str, NodeRow]


class Known:
    """Recorded rows of executions, as this orchestrator has seen them.

    Only a memory, and only of what does not change: within one epoch of the first generation a settled row
    stays as it is. Tasks that are made of what an epoch has left behind are of that epoch, and refused.
    """

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._executions: OrderedDict[str, _Known] = OrderedDict()
        self._count = 0

    def get(self, execution_id: str) -> _Known | None:
        return self._executions.get(execution_id)

    def learn(self, execution: ExecutionRow, plan: Plan) -> None:
        """Remember an execution, where somebody may ask for it; forget what is longest ago."""
        if not plan.has_joins:
            return
        known = self._executions.get(execution.id)
        if known is None or known.epoch != execution.epoch:
            self.forget(execution.id)
            self._executions[execution.id] = _Known(execution.epoch, plan, {})
            self._count += 1
        while self._count > self._most_rows:
            self.forget(next(iter(self._executions)))

    def add(self, execution_id: str, row: NodeRow) -> None:
        """Remember a row of an execution that is known, unless it is large or nobody could ask for it."""
        known = self._executions.get(execution_id)
        if known is None or len(row.output or b"") > _MOST_OUTPUT_BYTES:
            return
        self._count += row.node_id not in known.rows
        known.rows[row.node_id] = row

    def forget(self, execution_id: str) -> None:
        known = self._executions.pop(execution_id, None)
        if known is not None:
            self._count -= 1 + len(known.rows)


def foresee(standings: Iterable[Standing], orchestrator: Orchestrator) -> list[tuple[Task, int]]:
    """Make the tasks of nodes that recorded rows make ready, each with the epoch it is for."""
    # By execution and node: where several parents came at once, a join follows from each of them.
    ahead: dict[tuple[str, str], tuple[Task, int]] = {}
    for standing in standings:
        execution, plan = standing.execution, standing.plan
        if standing.verdict is not Verdict.ACCEPTED or execution is None or plan is None:
            continue
        if execution.is_terminal:
            orchestrator.known.forget(execution.id)
        elif isinstance(standing.event, NodeCompleted) and _is_foreseen(execution, plan):
            (parent,) = standing.rows
            orchestrator.known.learn(execution, plan)
            orchestrator.known.add(execution.id, parent)
            if execution.state is not ExecutionState.RUNNING:
                continue
            for name in plan.graph.dependents[parent.node_id]:
                if (execution.id, name) not in ahead:
                    task = _task(execution, plan, name, parent, orchestrator)
                    if task is not None:
                        ahead[execution.id, name] = task, execution.epoch
    return list(ahead.values())


def _is_foreseen(execution: ExecutionRow, plan: Plan) -> bool:
    """Say whether tasks of an execution are made ahead at all."""
    # In a later generation an attempt has another number than the first.
    most = min(plan.definition.max_concurrency or _MOST_NODES, _MOST_NODES)
    return execution.generation == 1 and len(plan.nodes) <= most


def _task(
    execution: ExecutionRow,
    plan: Plan,
    name: str,
    parent: NodeRow,
    orchestrator: Orchestrator,
) -> Task | None:
    """Make the task of a node that is ready by the rows at hand; None: it is not, or takes more than that."""
    node, wanted = plan.nodes[name], plan.wanted[name]
    rows: Mapping[str, NodeRow] = {parent.node_id: parent}
    if len(wanted) > len(rows):
        known = orchestrator.known.get(execution.id)
        rows = _NO_ROWS if known is None else known.rows
        # What a node of an early rule sees was fixed in the store when it became free, and need not be all.
        if node.trigger_rule in EARLY_RULES or not all(other in rows for other in wanted):
            return None
    return plain_task(execution, plan, name, rows, orchestrator.ports, orchestrator.payloads)
