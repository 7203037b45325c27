"""What a journal keeps in memory stays within its bounds."""

from __future__ import annotations

from msgspec.structs import replace

from weft.core.plan import compile_plan
from weft.core.row import ExecutionRow, NodeRow
from weft.journal.held import ActiveRows
from weft.journal.memory import MemoryJournal, admit
from weft.journal.plans import PlanCache
from weft.testing.recording import node, submission


def execution(execution_id: str) -> ExecutionRow:
    journal = MemoryJournal(now=lambda: 0, new_id=lambda: "")
    return admit(submission(execution_id), journal._ledger())


def nodes(*names: str) -> dict[str, NodeRow]:
    return {name: NodeRow(node_id=name) for name in names}


def test_the_executions_not_changed_for_longest_are_let_go() -> None:
    active = ActiveRows(max_rows=6)
    for number, name in enumerate("abc"):
        active.put(number, execution(name), nodes("x"))
    active.update(replace(active.executions["a"], seq=2), nodes("x", "y"))
    active.shrink()
    assert list(active.executions) == ["c", "a"]
    assert active.executions.keys() == active.nodes.keys() == active.numbers.keys()
    assert active.executions["a"].seq == 2
    assert set(active.nodes["a"]) == {"x", "y"}


def test_one_execution_is_held_whatever_its_size() -> None:
    active = ActiveRows(max_rows=2)
    active.put(1, execution("a"), nodes("x", "y", "z"))
    active.shrink()
    assert list(active.executions) == ["a"]


def test_dropped_rows_make_room() -> None:
    active = ActiveRows(max_rows=4)
    active.put(1, execution("a"), nodes("x", "y"))
    active.drop("a")
    active.drop("a")
    active.put(2, execution("b"), nodes("x"))
    active.put(3, execution("c"), nodes("x"))
    active.shrink()
    assert list(active.executions) == ["b", "c"]


def test_the_plans_not_used_for_longest_are_let_go() -> None:
    one, two, three = [compile_plan({"nodes": [node(name), node("z")]}) for name in "abc"]
    plans = PlanCache(max_nodes=4)
    plans.put(one)
    plans.put(two)
    plans.put(one)
    assert plans.get(one.digest) is one
    plans.put(three)
    assert plans.get(two.digest) is None
    assert plans.get(one.digest) is one
    assert plans.get(three.digest) is three
