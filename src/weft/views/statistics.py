"""Durations of executions and of their nodes in figures: median, 95th percentile, mean."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState
from weft.core.time import MICROSECONDS
from weft.views.summary import time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.rows import ExecutionRow
    from weft.ports import ApiPorts

# The nodes of the newest executions are read up to so many in all.
MAX_NODES = 20_000


async def workflow_statistics(rows: Sequence[ExecutionRow], ports: ApiPorts) -> dict[str, Any]:
    """Return the figures of executions of one workflow, which are given newest first."""
    completed = [row for row in rows if row.state is ExecutionState.COMPLETED]
    failed = sum(row.state is ExecutionState.FAILED for row in rows)
    took = sorted(seconds for row in completed if (seconds := _seconds(row)) is not None)
    return {
        "recent": [
            {
                "id": row.id,
                "state": row.state,
                "started_at": time_of(row.started_at),
                "finished_at": time_of(row.finished_at),
                "seconds": _seconds(row),
            }
            for row in rows
        ],
        "seconds": {"p50": percentile(took, 50), "p95": percentile(took, 95), "mean": mean(took)},
        "success_rate": len(completed) / (len(completed) + failed) if completed or failed else None,
        "nodes": await _nodes(rows, ports),
    }


async def _nodes(rows: Sequence[ExecutionRow], ports: ApiPorts) -> dict[str, Any] | None:
    ids, nodes = [], 0
    for row in rows:
        nodes += row.total
        if nodes > MAX_NODES:
            break
        ids.append(row.id)
    if rows and not ids:
        return None
    return {
        node_id: {
            "p50": percentile(sorted(took / MICROSECONDS for took in runs.durations), 50),
            "failures": runs.failures,
        }
        for node_id, runs in sorted((await ports.catalog.node_runs(ids)).items())
    }


def percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that ``percent`` of all are not above; None of none."""
    return ordered[ceil(len(ordered) * percent / 100) - 1] if ordered else None


def mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _seconds(row: ExecutionRow) -> float | None:
    if row.started_at is None or row.finished_at is None:
        return None
    return (row.finished_at - row.started_at) / MICROSECONDS


def totals(hours: Sequence[Mapping[str, Any]], states: Sequence[ExecutionState]) -> dict[ExecutionState, int]:
    """Return the sums of the counts of some hours."""
    return {state: sum(hour[state] for hour in hours) for state in states}
