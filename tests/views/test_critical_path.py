"""The chain of nodes that decided the end of executions that a small model of an engine has run."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.views.test_live_states import row_of

from weft.core.rows import ExecutionRow, NodeRow
from weft.core.state import ExecutionState, NodeState
from weft.definition.validation import check
from weft.handlers.registry import Registry
from weft.views.critical_path import critical_path

if TYPE_CHECKING:
    from weft.definition.plan import Plan

START = 1_000_000


def plan_of(*nodes: tuple[str, list[str]], rules: dict[str, str] | None = None, **fields: Any) -> Plan:
    written: list[dict[str, Any]] = [
        {"id": node_id, "handler": "echo", "dependencies": parents} for node_id, parents in nodes
    ]
    for node in written:
        if rules and node["id"] in rules:
            node["trigger_rule"] = rules[node["id"]]
    checked = check({"name": "flow", "nodes": written, **fields}, handlers=Registry())
    assert checked.plan is not None, checked.problems
    return checked.plan


def ended(total: int, **fields: Any) -> ExecutionRow:
    values = {"state": ExecutionState.COMPLETED, "unsettled": 0, "started_at": START, **fields}
    return row_of(total, **values)


def done(node_id: str, started: int, finished: int, seq: int, **fields: Any) -> NodeRow:
    values: dict[str, Any] = {"state": NodeState.COMPLETED, "ended": 1, "queued_at": START + started}
    return NodeRow(
        node_id=node_id,
        seq=seq,
        started_at=START + started,
        finished_at=START + finished,
        **{**values, **fields},
    )


def skipped(node_id: str, seq: int) -> NodeRow:
    return NodeRow(node_id=node_id, seq=seq, state=NodeState.SKIPPED, reason="condition")


def path_of(plan: Plan, execution: ExecutionRow, *rows: NodeRow, **earlier: int) -> list[str]:
    return [step.node for step in critical_path(plan, execution, {r.node_id: r for r in rows}, earlier)]


@st.composite
def runs(draw: st.DrawFn) -> tuple[dict[str, list[str]], dict[str, int], dict[str, int], int | None]:
    """Draw a graph, what its nodes take, how long each waits in its queue, and the slots."""
    count = draw(st.integers(1, 10))
    names = [f"n{index}" for index in range(count)]
    parents = {
        name: sorted(draw(st.sets(st.sampled_from(names[:at]), max_size=3))) if at else []
        for at, name in enumerate(names)
    }
    taken = {name: draw(st.integers(1, 9)) for name in names}
    delays = {name: draw(st.integers(0, 3)) for name in names}
    return parents, taken, delays, draw(st.one_of(st.none(), st.integers(1, 3)))


def run(
    parents: dict[str, list[str]], taken: dict[str, int], delays: dict[str, int], slots: int | None
) -> list[NodeRow]:
    """Run a graph by a clock that ticks; a node waits for its parents, its delay and a slot."""
    rows: dict[str, NodeRow] = {}
    started: dict[str, int] = {}
    now, seq = 0, 2
    while len(rows) < len(parents):
        for name in [name for name, at in started.items() if at + taken[name] <= now]:
            seq += 1
            rows[name] = done(name, started.pop(name), now, seq)
        for name, of_it in parents.items():
            if name in rows or name in started or not all(parent in rows for parent in of_it):
                continue
            free_at = max([rows[parent].finished_at or 0 for parent in of_it], default=START) - START
            if now >= free_at + delays[name] and (slots is None or len(started) < slots):
                started[name] = now
        now += 1
    return list(rows.values())


@settings(deadline=None)
@given(runs())
def test_the_path_adds_up_to_the_whole_time(run_of: Any) -> None:
    parents, taken, delays, slots = run_of
    rows = run(parents, taken, delays, slots)
    by_id = {row.node_id: row for row in rows}
    plan = plan_of(*parents.items())
    steps = critical_path(plan, ended(len(rows)), by_id)
    whole = max(row.finished_at or 0 for row in rows) - START
    assert sum(taken[step.node] + step.waiting for step in steps) == whole
    assert parents[steps[0].node] == []
    for before, step in pairwise(steps):
        assert before.node in parents[step.node]
        assert before.finished_at == max(by_id[parent].finished_at or 0 for parent in parents[step.node])
        assert step.started_at - before.finished_at == step.waiting


@settings(deadline=None)
@given(runs())
def test_with_nothing_in_the_way_it_is_the_longest_way_through_the_graph(run_of: Any) -> None:
    parents, taken, _, _ = run_of
    rows = run(parents, taken, dict.fromkeys(parents, 0), None)
    steps = critical_path(plan_of(*parents.items()), ended(len(rows)), {row.node_id: row for row in rows})
    longest: dict[str, int] = {}
    for name, of_it in parents.items():
        longest[name] = taken[name] + max([longest[parent] for parent in of_it], default=0)
    assert sum(taken[step.node] for step in steps) == max(longest.values())
    assert not any(step.waiting for step in steps)


def test_a_retry_is_waiting_but_for_the_time_in_which_an_attempt_ran() -> None:
    plan = plan_of(("a", []))
    row = done("a", 70, 100, 5, attempt=3, ended=3)
    (step,) = critical_path(plan, ended(1), {"a": row}, {"a": 40})
    assert (step.attempt, step.waiting) == (3, 30)


def test_skipped_nodes_are_passed_through() -> None:
    plan = plan_of(
        ("a", []), ("b", ["a"]), ("c", ["b"]), ("d", ["c"]), rules={"c": "all_done", "d": "all_done"}
    )
    rows = [done("a", 0, 5, 3), skipped("b", 4), skipped("c", 5), done("d", 7, 9, 6)]
    assert path_of(plan, ended(4), *rows) == ["a", "d"]


def test_a_node_is_freed_by_the_first_parent_that_meets_its_rule() -> None:
    plan = plan_of(("a", []), ("b", []), ("c", ["a", "b"]), rules={"c": "one_success"})
    rows = [done("a", 0, 50, 4), done("b", 0, 5, 3), done("c", 6, 90, 5)]
    assert path_of(plan, ended(3), *rows) == ["b", "c"]


def test_an_error_handler_is_freed_by_the_failure() -> None:
    plan = plan_of(("a", []), ("b", []), ("c", ["a", "b"]), rules={"c": "one_failed"})
    failed = done("a", 0, 10, 3, state=NodeState.FAILED)
    rows = [failed, done("b", 0, 5, 4), done("c", 11, 90, 5)]
    assert path_of(plan, ended(3), *rows) == ["a", "c"]


def test_a_failure_that_stops_an_execution_decided_its_end() -> None:
    plan = plan_of(("a", []), ("b", ["a"]), ("c", []))
    rows = [
        done("a", 0, 10, 3),
        done("b", 11, 20, 4, state=NodeState.FAILED),
        done("c", 0, 21, 5, state=NodeState.CANCELLED),
    ]
    assert path_of(plan, ended(3, state=ExecutionState.FAILED), *rows) == ["a", "b"]


def test_what_ran_when_it_was_cancelled_or_at_the_deadline_decided_the_end() -> None:
    plan = plan_of(("a", []), ("b", []))
    rows = [done("a", 0, 10, 3), done("b", 0, 30, 4, state=NodeState.CANCELLED)]
    assert path_of(plan, ended(2, state=ExecutionState.CANCELLED), *rows) == ["b"]
    late = {"code": "deadline_exceeded"}
    assert path_of(plan, ended(2, state=ExecutionState.FAILED, error=late), *rows) == ["b"]


def test_what_was_settled_in_an_earlier_generation_decided_nothing() -> None:
    plan = plan_of(("a", []), ("b", ["a"]))
    rows = [done("a", -90, -50, 3), done("b", 5, 20, 9, generation=2)]
    assert path_of(plan, ended(2, generation=2), *rows) == ["b"]


def test_an_execution_of_which_nothing_ran_has_no_path() -> None:
    plan = plan_of(("a", []))
    row = NodeRow(node_id="a", seq=3, state=NodeState.CANCELLED)
    assert path_of(plan, ended(1, state=ExecutionState.CANCELLED), row) == []
