"""The verdicts of the benchmarks on given figures. The benchmarks themselves are run by hand."""

from __future__ import annotations

import pytest
from bench.beside import Beside, Small, figures
from bench.fleet import cpu_figures
from bench.run import Run
from bench.workloads import _beside_raw

from weft.core.rows import NodeRow
from weft.core.state import NodeState


def seen(*, alone: float, beside: float) -> Beside:
    """Return small executions of so many seconds each, started while a wide one of 100 s ran."""
    return Beside(
        alone=[Small(0.0, alone)],
        beside=[Small(10.0, beside)],
        sent=0.0,
        accepted=1.0,
        ended=100.0,
        most=1,
    )


@pytest.mark.parametrize(("beside", "verdict"), [(0.03, "ok"), (0.031, "missed")])
def test_small_executions_beside_a_wide_one_take_at_most_three_times_as_long(
    beside: float, verdict: str
) -> None:
    given = {figure.what: figure for figure in figures(seen(alone=0.01, beside=beside))}
    figure = given["small while it runs : alone, p50"]
    assert figure.value == pytest.approx(beside / 0.01)
    assert figure.verdict == verdict
    assert given["slowest of them : the wide one"].verdict == "ok"


@pytest.mark.parametrize(("orchestrator", "verdict"), [(50e-6, "ok"), (61e-6, "missed")])
def test_the_processes_of_a_fleet_are_judged_by_the_sum_of_their_cpu(
    orchestrator: float, verdict: str
) -> None:
    given = {figure.what: figure for figure in cpu_figures({"redis": 50e-6, "orchestrator": orchestrator})}
    assert given["W3, CPU a node, redis"].verdict == ""
    assert given["W3, CPU a node, in all"].verdict == verdict


@pytest.mark.parametrize(("cpu_seconds", "verdict"), [(26e-6, "ok"), (27e-6, "missed")])
def test_one_process_is_judged_by_its_cpu_a_node(cpu_seconds: float, verdict: str) -> None:
    row = NodeRow(node_id="a", generation=1, attempt=1, state=NodeState.COMPLETED, output=b"1")
    one = Run(seconds=1.0, cpu_seconds=cpu_seconds, nodes=1, rows=[{"a": row}])
    given = {figure.what: figure.verdict for figure in _beside_raw("W3", "W3", one, targets=True)}
    assert given["W3, SQLite, CPU a node"] == verdict
