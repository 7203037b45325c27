"""The expected end of a running execution, by what its nodes took before."""

from __future__ import annotations

from statistics import quantiles
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.views.test_critical_path import done, plan_of, skipped
from tests.views.test_schedule import by_ticks

from weft.core.rows import NodeRow, Parked
from weft.core.state import NodeState
from weft.store.contract import NodeStatus
from weft.views.prediction import NodeDurations, Quartiles, duration_of, expect, gather, merged, quartiles_of

NOW = 50_000_000


def known(**taken: int | tuple[int, int, int]) -> NodeDurations:
    return NodeDurations(
        of_node={
            name: Quartiles(*one) if isinstance(one, tuple) else Quartiles(one, one, one)
            for name, one in taken.items()
        },
        samples=20,
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30))
def test_quartiles_lie_where_they_should(numbers: list[int]) -> None:
    ordered = sorted(numbers)
    low, median, high = quartiles_of(ordered)
    assert low <= median <= high
    assert {low, median, high} <= set(numbers)
    if len(ordered) > 1:
        # No further from the interpolated ones than the next number.
        for found, expected in zip(
            (low, median, high), quantiles(ordered, n=4, method="inclusive"), strict=True
        ):
            at = ordered.index(found)
            last = len(ordered) - 1 - ordered[::-1].index(found)
            assert ordered[max(0, at - 1)] <= expected <= ordered[min(len(ordered) - 1, last + 1)]


def test_what_a_node_took_is_its_last_attempt() -> None:
    assert duration_of(done("a", 10, 35, 3)) == 25
    assert duration_of(done("a", 10, 35, 3, reused=True)) is None
    assert duration_of(done("a", 10, 35, 3, state=NodeState.CANCELLED)) is None
    assert duration_of(skipped("a", 3)) == 0


def test_medians_are_those_of_the_executions_that_know_the_node() -> None:
    runs = [[done("a", 0, taken, 3), done("b", 0, 1, 4)] for taken in (10, 20, 90)]
    gathered = gather([*runs, [done("a", 0, 5, 3, reused=True)]])
    assert (gathered.of_node["a"].median, gathered.samples) == (20, 4)
    filled = merged(gathered, known(b=7, c=8))
    assert (filled.of_node["b"].median, filled.of_node["c"].median, filled.samples) == (1, 8, 4)


def test_a_node_that_was_never_seen_takes_what_others_do() -> None:
    assert [one.median for one in known(a=1, b=5, c=9).of(["a", "x"])] == [1, 5]


def test_nothing_is_expected_where_nothing_is_known() -> None:
    assert expect(plan_of(("a", [])), {}, {}, known(), now=NOW) is None


@settings(deadline=None)
@given(st.integers(1, 8), st.one_of(st.none(), st.integers(1, 3)), st.data())
def test_the_end_is_that_of_an_ideal_greedy_schedule(
    count: int, slots: int | None, data: st.DataObject
) -> None:
    names = [f"n{index}" for index in range(count)]
    of = {
        name: sorted(data.draw(st.sets(st.sampled_from(names[:at]), max_size=2))) if at else []
        for at, name in enumerate(names)
    }
    taken = [data.draw(st.integers(1, 6)) for _ in names]
    fields: dict[str, Any] = {} if slots is None else {"max_concurrency": slots}
    expected = expect(
        plan_of(*of.items(), **fields), {}, {}, known(**dict(zip(names, taken, strict=True))), now=NOW
    )
    assert expected is not None
    parents = [[names.index(parent) for parent in of[name]] for name in names]
    end = max(by_ticks(parents, taken, slots).values())
    assert (expected.finish_at, expected.low_at, expected.high_at) == (NOW + end, NOW + end, NOW + end)
    assert expected.deciding[-1] in names


def test_what_runs_has_the_rest_of_its_time_left() -> None:
    plan = plan_of(("a", []), ("b", ["a"]), ("c", ["b"]))
    rows = {"a": NodeRow(node_id="a", state=NodeState.COMPLETED)}
    running = {"b": NodeStatus("running", 1, queued_at=NOW - 30, started_at=NOW - 30)}
    expected = expect(plan, rows, running, known(a=1000, b=(20, 50, 90), c=(5, 10, 15)), now=NOW)
    assert expected is not None
    assert (expected.low_at, expected.finish_at, expected.high_at) == (NOW + 5, NOW + 30, NOW + 75)
    assert (expected.deciding, expected.samples) == (["b", "c"], 20)


def test_a_retry_begins_when_it_is_due_and_a_sleep_ends_with_its_time() -> None:
    plan = plan_of(("a", []), ("b", []))
    rows = {
        "a": NodeRow(node_id="a", attempt=2, ended=1, retry_at=NOW + 40),
        "b": NodeRow(node_id="b", parked=Parked(NOW + 5), queued_at=NOW - 95, started_at=NOW - 95),
    }
    expected = expect(plan, rows, {}, known(a=10, b=100), now=NOW)
    assert expected is not None
    assert (expected.finish_at, expected.deciding) == (NOW + 50, ["a"])


@pytest.mark.parametrize(("phase", "end"), [("waiting", 60), ("queued", 10)])
def test_a_node_that_needs_one_parent_is_where_the_store_has_it(phase: str, end: int) -> None:
    plan = plan_of(("a", []), ("b", []), ("c", ["a", "b"]), rules={"c": "one_success"})
    rows = {"b": NodeRow(node_id="b", state=NodeState.FAILED)}
    statuses = {
        "a": NodeStatus("running", 1, started_at=NOW),
        "c": NodeStatus(phase, 1, queued_at=NOW),
    }
    expected = expect(plan, rows, statuses, known(a=50 if phase == "waiting" else 1, c=10), now=NOW)
    assert expected is not None
    assert expected.finish_at == NOW + end
