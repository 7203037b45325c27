"""What a journal keeps in memory stays within its bounds."""

from __future__ import annotations

from weft.core.ledger.changes import Change, LiveExecution, live_executions
from weft.core.rows import NodeRow
from weft.definition.plan import compile_plan
from weft.journal.memory import MemoryJournal, admit
from weft.journal.sql import PlanCache
from weft.testing.recording import node, submission


def live(execution_id: str, *outputs: bytes) -> LiveExecution:
    """Make an execution with completed nodes, one for each output."""
    ledger = MemoryJournal(now=lambda: 0, new_id=lambda: "")._ledger()
    new = submission(execution_id)
    rows = {str(index): NodeRow(node_id=str(index), output=output) for index, output in enumerate(outputs)}
    return LiveExecution(1, admit(new, ledger), new.plan, rows)


def test_the_executions_not_changed_for_longest_are_let_go() -> None:
    kept = live_executions(10_000)
    for name in "abc":
        kept.put(name, live(name, b"x" * 1_000))
    assert list(kept) == ["a", "b", "c"]
    first = kept.get("a")
    assert first is not None
    change = Change(first, first.row)
    change.rows["more"] = NodeRow(node_id="more", output=b"x" * 2_000)
    change.commit()
    kept.put("a", first)
    assert list(kept) == ["c", "a"]
    assert set(first.rows) == {"0", "more"}


def test_one_execution_is_kept_whatever_its_size() -> None:
    kept = live_executions(1)
    kept.put("a", live("a", b"x", b"y", b"z"))
    assert list(kept) == ["a"]


def test_dropped_executions_make_room() -> None:
    kept = live_executions(5_000)
    kept.put("a", live("a", b"x" * 2_000))
    kept.drop("a")
    kept.drop("a")
    kept.put("b", live("b"))
    kept.put("c", live("c"))
    assert list(kept) == ["b", "c"]


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
