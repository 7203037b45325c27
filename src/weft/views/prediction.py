"""When a running execution will end, by what its nodes took in executions that have completed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.core.state import NodeState
from weft.core.time import MICROSECONDS
from weft.definition.model import TriggerRule
from weft.views.describe import PHASE_STATES
from weft.views.schedule import OpenGraph, list_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.rows import NodeRow
    from weft.definition.plan import Plan
    from weft.store.contract import NodeStatus

# By a name of this module: Python 3.11 takes ten times as long to find a member by its enum.
_ONE_SUCCESS = TriggerRule.ONE_SUCCESS
# Of the nodes that decide the end, so many are named: the next ones to run.
MAX_DECIDING = 100


class Quartiles(NamedTuple):
    low: int
    median: int
    high: int


class NodeDurations(msgspec.Struct, frozen=True, kw_only=True):
    """Quartiles of the durations of nodes, in microseconds, by id."""

    of_node: Mapping[str, Quartiles]
    # So many executions were read.
    samples: int

    def of(self, node_ids: Iterable[str]) -> list[Quartiles]:
        """Return the durations of nodes; a node that was never seen takes what a node in the middle does."""
        known = sorted(quartiles.median for quartiles in self.of_node.values())
        unknown = Quartiles(*quartiles_of(known))
        return [self.of_node.get(node_id, unknown) for node_id in node_ids]


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """When an execution is expected to end, in microseconds since 1970."""

    finish_at: int
    low_at: int
    high_at: int
    samples: int
    deciding: Sequence[str]


def quartiles_of(ordered: Sequence[int]) -> Quartiles:
    """Return the quartiles of numbers in order: each is one of them, the lower where two are as near."""
    most = len(ordered) - 1
    return Quartiles(ordered[most // 4], ordered[most // 2], ordered[(3 * most + 2) // 4])


def duration_of(row: NodeRow) -> int | None:
    """Return what a settled node took; None where it says nothing about the next time."""
    if row.reused:
        return None
    if row.state is NodeState.SKIPPED:
        return 0
    if row.state is NodeState.CANCELLED or row.started_at is None or row.finished_at is None:
        return None
    return max(0, row.finished_at - row.started_at)


def gather(executions: Sequence[Iterable[NodeRow]]) -> NodeDurations:
    """Gather what nodes took in these executions."""
    found: dict[str, list[int]] = {}
    for rows in executions:
        for row in rows:
            duration = duration_of(row)
            if duration is not None:
                found.setdefault(row.node_id, []).append(duration)
    return NodeDurations(
        of_node={node_id: quartiles_of(sorted(taken)) for node_id, taken in found.items()},
        samples=len(executions),
    )


def merged(durations: NodeDurations, fallback: NodeDurations) -> NodeDurations:
    """Fill in from others what nodes take that the first do not know."""
    return NodeDurations(
        of_node={**fallback.of_node, **durations.of_node}, samples=durations.samples or fallback.samples
    )


def expect(
    plan: Plan,
    rows: Mapping[str, NodeRow],
    statuses: Mapping[str, NodeStatus],
    durations: NodeDurations,
    *,
    now: int,
) -> Expectation | None:
    """Return when an execution ends by a greedy schedule of its open nodes; None if nothing is known.

    ``statuses``: where the store has open nodes. What runs has the rest of its duration left, and at least
    nothing; a scheduled retry starts when it is due.
    """
    if not durations.of_node:
        return None
    ids = plan.graph.ids
    graph, since = _open_graph(plan, rows, statuses, now)
    taken = durations.of(ids)
    schedules = []
    for place in (0, 1, 2):
        left = [quartiles[place] for quartiles in taken]
        for index, started_at in since.items():
            left[index] = max(0, left[index] - (now - started_at))
        schedules.append(list_schedule(graph, left))
    low, middle, high = (schedule.end for schedule in schedules)
    return Expectation(
        finish_at=now + middle,
        # With few slots, shorter nodes may make a longer schedule.
        low_at=now + min(low, middle),
        high_at=now + max(high, middle),
        samples=durations.samples,
        deciding=[ids[index] for index in schedules[1].chain()[:MAX_DECIDING]],
    )


def remaining_seconds(expectation: Expectation, now: int) -> float:
    return max(0, expectation.finish_at - now) / MICROSECONDS


def _open_graph(
    plan: Plan, rows: Mapping[str, NodeRow], statuses: Mapping[str, NodeStatus], now: int
) -> tuple[OpenGraph, dict[int, int]]:
    """Return what is open, and since when the running nodes run."""
    ids, graph = plan.graph.ids, plan.graph
    index_of = {node_id: index for index, node_id in enumerate(ids)}
    settled, early, ready = set(), set(), set()
    since: dict[int, int] = {}
    due: dict[int, int] = {}
    for index, node_id in enumerate(ids):
        row, status = rows.get(node_id), statuses.get(node_id)
        if plan.has_early_rules and plan.nodes[node_id].trigger_rule is _ONE_SUCCESS:
            early.add(index)
        if status is not None and status.phase != "waiting":
            ready.add(index)
        if row is not None and row.is_settled:
            settled.add(index)
        elif row is not None and row.parked is not None and row.started_at is not None:
            since[index] = row.started_at
        elif status is not None and PHASE_STATES.get(status.phase) is NodeState.RUNNING:
            since[index] = now if status.started_at is None else status.started_at
        else:
            retry_at = status.due_at if status is not None else row.retry_at if row is not None else None
            if retry_at is not None and retry_at > now:
                due[index] = retry_at - now
    return (
        OpenGraph(
            parents=[[index_of[parent] for parent in graph.parents[node_id]] for node_id in ids],
            dependents=[[index_of[behind] for behind in graph.dependents[node_id]] for node_id in ids],
            settled=settled,
            running=since.keys(),
            ready=ready,
            due=due,
            early=early,
            slots=plan.definition.max_concurrency,
        ),
        since,
    )
