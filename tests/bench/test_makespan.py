"""The schedule that makespans are measured against."""

from __future__ import annotations

from bench.makespan import greedy_seconds


def test_a_chain_takes_the_sum_of_its_nodes() -> None:
    assert greedy_seconds([("a", [], 1.0), ("b", ["a"], 2.0), ("c", ["b"], 3.0)], 8) == 6.0


def test_independent_nodes_share_the_slots() -> None:
    assert greedy_seconds([(name, [], 1.0) for name in "abcde"], 2) == 3.0


def test_a_free_slot_takes_the_node_that_became_ready_first() -> None:
    # Two slots: a and b begin; c follows a at 1; d waits for both and begins when b ends at 3.
    nodes = [("a", [], 1.0), ("b", [], 3.0), ("c", ["a"], 1.0), ("d", ["a", "b"], 2.0)]
    assert greedy_seconds(nodes, 2) == 5.0


def test_no_more_slots_than_nodes_are_needed() -> None:
    nodes = [("a", [], 1.0), ("b", ["a"], 2.0), ("c", ["a"], 3.0), ("d", ["b", "c"], 1.0)]
    assert greedy_seconds(nodes, 2) == greedy_seconds(nodes, 100) == 5.0
