"""Queries that count: what is under way in a namespace, what began and ended in a period, how nodes ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.state import TERMINAL, ExecutionState
from weft.journal.queries import Listing
from weft.journal.search import MAX_COUNTED, NamespaceCounts, NodeRuns, PeriodCounts
from weft.journal.waits import IS_OPEN

if TYPE_CHECKING:
    from weft.journal.queries import Query

_IN_STATE = "FROM {} WHERE state = ? AND namespace = ? LIMIT ?"
_COUNT = "SELECT count(*) FROM (SELECT 1 AS one {}) AS counted"


def namespace_counts(namespace: str) -> Query[NamespaceCounts]:
    counts: dict[ExecutionState, int] = {}
    active = _COUNT.format(_IN_STATE.format("progress INDEXED BY progress_state"))
    for state in ExecutionState:
        if state not in TERMINAL:
            ((counts[state],),) = yield active, (state.value, namespace, MAX_COUNTED)
    letters = _COUNT.format(_IN_STATE.format("dead_letters INDEXED BY dead_letters_state"))
    ((open_letters,),) = yield letters, ("open", namespace, MAX_COUNTED)
    waits = f"FROM waits INDEXED BY waits_open WHERE {IS_OPEN} AND namespace = ? LIMIT ?"
    ((open_waits,),) = yield _COUNT.format(waits), (namespace, MAX_COUNTED)
    return NamespaceCounts(executions=counts, open_letters=open_letters, open_waits=open_waits)


def period_counts(namespace: str, since: int, until: int) -> Query[PeriodCounts]:
    ((created,),) = yield (
        _COUNT.format(
            "FROM executions INDEXED BY executions_newest"
            " WHERE namespace = ? AND created_at >= ? AND created_at < ? AND parent_id IS NULL LIMIT ?"
        ),
        (namespace, since, until, MAX_COUNTED),
    )
    ended = yield (
        "SELECT state, count(*) FROM (SELECT state FROM progress INDEXED BY progress_finished"
        " WHERE finished_at >= ? AND finished_at < ? AND namespace = ? AND parent IS NULL"
        " ORDER BY finished_at LIMIT ?)"
        " AS counted GROUP BY state",
        (since, until, namespace, MAX_COUNTED),
    )
    counts = {state: 0 for state in ExecutionState if state in TERMINAL}
    counts |= {ExecutionState(state): number for state, number in ended}
    return PeriodCounts(created=created, ended=counts)


def node_runs(execution_ids: list[str]) -> Query[dict[str, NodeRuns]]:
    found = yield "SELECT number FROM executions WHERE id IN ?", (execution_ids,)
    numbers = [number for (number,) in found]
    runs: dict[str, NodeRuns] = {}
    completed = yield Listing(
        "node_id, finished_at - started_at",
        "FROM nodes WHERE execution IN ? AND state = 'COMPLETED' AND NOT cached AND NOT reused"
        " AND started_at IS NOT NULL",
        (numbers,),
    )
    for node_id, took in completed:
        if node_id not in runs:
            runs[node_id] = NodeRuns(durations=[], failures=0)
        runs[node_id].durations.append(took)
    failed = yield (
        "SELECT node_id, count(*) FROM dead_letters WHERE execution IN ? GROUP BY node_id",
        (numbers,),
    )
    for node_id, failures in failed:
        durations = runs[node_id].durations if node_id in runs else []
        runs[node_id] = NodeRuns(durations=durations, failures=failures)
    return runs
