"""Which rows the ledger looks at for a batch: a journal that holds none in memory reads these, and no more.

Asked twice, with the execution locked. First, for each event, by itself: ``named_rows``. Then, by the
execution's row and by the rows that were named: whether something may be stopped, retried or finished,
which looks at more (``further_rows``). Both name too much rather than too little; for a result among
thousands of nodes it is one row.

Rows that are named are wanted whole; where all of an execution are, only for their states: without their
outputs, which may be large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.definition import FailurePolicy, TriggerRule
from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptLost,
    CancelRequested,
    DeadlinePassed,
    Event,
    NodeCached,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    RetryRequested,
)
from weft.core.generation import plan_retry
from weft.core.output import output_nodes
from weft.core.row import NodeRow
from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow

_NODE_EVENTS = (
    NodeCompleted,
    NodeCached,
    AttemptFailed,
    AttemptLost,
    NodeFailed,
    NodeSkipped,
    AttemptIssued,
)


class FurtherRows(msgspec.Struct, frozen=True):
    whole: frozenset[str] = frozenset()
    # The states of all nodes of the execution.
    every_state: bool = False


def named_rows(event: Event, plan: Plan) -> Sequence[str]:
    """Name the nodes whose rows one event is judged by, whatever they say."""
    if not isinstance(event, _NODE_EVENTS) or event.node_id not in plan.nodes:
        return ()
    node_id = event.node_id
    handles = plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED
    if isinstance(event, NodeFailed | NodeSkipped):
        suspects = [node_id, *plan.graph.parents[node_id]] if handles else [node_id]
        handlers = [handler for suspect in suspects for handler in plan.failure_handlers.get(suspect, ())]
        return [*suspects, *handlers, *(skip.node_id for skip in event.skips)]
    if handles and isinstance(event, NodeCompleted | NodeCached):
        return [node_id, *plan.graph.parents[node_id]]
    return (node_id,)


def settled_by(events: Iterable[Event]) -> int:
    """Count the nodes that these events settle at most, but for those they stop."""
    settled = 0
    for event in events:
        if isinstance(event, NodeFailed | NodeSkipped):
            settled += 1 + len(event.skips)
        elif isinstance(event, NodeCompleted | NodeCached):
            settled += 1
    return settled


def further_rows(
    events: Sequence[Event], execution: ExecutionRow, plan: Plan, rows: Mapping[str, NodeRow]
) -> FurtherRows:
    """Name the rows that all events of an execution need besides those named; ``rows`` are these."""
    reopened = any(isinstance(event, RetryRequested) for event in events)
    if execution.is_terminal and not reopened:
        return FurtherRows()
    fails = execution.failed > 0 or any(isinstance(event, NodeFailed) for event in events)
    every = _stops(events, execution, plan, rows, reopened=reopened)
    whole: frozenset[str] = frozenset()
    settled = settled_by(events)
    if settled and (execution.unsettled <= settled or reopened):
        every = every or fails
        if not fails or plan.failure_handlers:
            whole = output_nodes(plan)
    return FurtherRows(whole=whole, every_state=every)


def overwritten_rows(events: Sequence[Event], plan: Plan, rows: Mapping[str, NodeRow]) -> list[str]:
    """Name rows read without their outputs that stand for an event, and that a retry may overwrite.

    ``rows`` are all that the execution has. The names are exact where the retry is the only event.
    """
    retry = next((event for event in events if isinstance(event, RetryRequested)), None)
    if retry is None:
        return []
    names: Iterable[str] = plan.graph.ids
    if len(events) == 1 and all(name in plan.nodes for name in retry.nodes):
        every = {name: rows.get(name) or NodeRow(node_id=name) for name in plan.graph.ids}
        names = plan_retry(plan, every, retry.nodes).run
    return [name for name in names if name in rows and _is_without_output(rows[name])]


def _is_without_output(row: NodeRow) -> bool:
    return row.recorded_at is not None and row.output is None and row.blob is None


def _stops(
    events: Sequence[Event],
    execution: ExecutionRow,
    plan: Plan,
    rows: Mapping[str, NodeRow],
    *,
    reopened: bool,
) -> bool:
    """Say whether one of the events may settle, or open again, all that there is."""
    can_be_retried = execution.state in (ExecutionState.FAILED, ExecutionState.CANCELLED)
    is_fail_fast = plan.definition.failure_policy is FailurePolicy.FAIL_FAST
    broken: set[str] | None = None
    for event in events:
        if isinstance(event, CancelRequested | DeadlinePassed):
            return True
        if isinstance(event, RetryRequested) and (can_be_retried or len(events) > 1):
            return True
        if (
            is_fail_fast
            and isinstance(event, NodeFailed | NodeSkipped)
            and event.node_id in plan.nodes
            and (event.generation == execution.generation or reopened)
        ):
            if broken is None:
                broken = _not_to_complete(events)
            if _may_be_fatal(event, plan, rows, broken):
                return True
    return False


def _may_be_fatal(
    event: NodeFailed | NodeSkipped, plan: Plan, rows: Mapping[str, NodeRow], broken: set[str]
) -> bool:
    suspects = [event.node_id] if isinstance(event, NodeFailed) else []
    if plan.nodes[event.node_id].trigger_rule is TriggerRule.ONE_FAILED:
        suspects += [
            parent
            for parent in plan.graph.parents[event.node_id]
            if parent in broken or (parent in rows and rows[parent].state is NodeState.FAILED)
        ]
    return any(
        not any(
            handler not in broken
            and (handler not in rows or rows[handler].state in (None, NodeState.COMPLETED))
            for handler in plan.failure_handlers.get(suspect, ())
        )
        for suspect in suspects
    )


def _not_to_complete(events: Iterable[Event]) -> set[str]:
    """Name the nodes that may fail or be skipped by these events."""
    failing = [event for event in events if isinstance(event, NodeFailed | NodeSkipped)]
    return {event.node_id for event in failing} | {skip.node_id for event in failing for skip in event.skips}
