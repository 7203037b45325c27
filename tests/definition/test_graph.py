from __future__ import annotations

from typing import TYPE_CHECKING

from weft.definition.graph import Graph, find_cycles, not_ancestors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DIAMOND = {"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": []}


def test_a_graph_knows_its_parents_dependents_roots_and_leaves_in_the_order_given() -> None:
    graph = Graph(DIAMOND, DIAMOND)
    assert graph.ids == ("d", "b", "c", "a")
    assert graph.parents == {"d": ("b", "c"), "b": ("a",), "c": ("a",), "a": ()}
    assert graph.dependents == {"d": (), "b": ("d",), "c": ("d",), "a": ("b", "c")}
    assert graph.roots == ("a",)
    assert graph.leaves == ("d",)


def test_layers_go_by_the_longest_path_from_a_root() -> None:
    dependencies = {
        "late": ["root", "third"],
        "root": [],
        "second": ["root"],
        "third": ["second"],
        "lone": [],
    }
    graph = Graph(dependencies, dependencies)
    assert graph.layers() == [["root", "lone"], ["second"], ["third"], ["late"]]
    assert graph.order() == ["root", "lone", "second", "third", "late"]


def test_ancestors_leave_the_node_itself_out() -> None:
    graph = Graph(DIAMOND, DIAMOND)
    assert graph.ancestors("d") == {"a", "b", "c"}
    assert graph.ancestors("a") == frozenset()


def cycle_in(dependencies: Mapping[str, Sequence[str]]) -> list[str] | None:
    """Return the first cycle by the names of its nodes."""
    ids = list(dependencies)
    position = {node_id: index for index, node_id in enumerate(ids)}
    cycles = find_cycles([[position[parent] for parent in dependencies[node_id]] for node_id in ids])
    return [ids[index] for index in cycles[0]] if cycles else None


def test_a_graph_without_cycle_has_none() -> None:
    assert cycle_in(DIAMOND) is None
    assert cycle_in({}) is None


def test_a_cycle_is_named_by_its_true_members_in_the_direction_of_the_work() -> None:
    # x waits behind the cycle, r lies before it: neither is part of it.
    dependencies = {"x": ["c"], "r": [], "a": ["c", "r"], "b": ["a"], "c": ["b"]}
    assert cycle_in(dependencies) == ["a", "b", "c", "a"]


def test_a_node_that_depends_on_itself_is_a_cycle() -> None:
    assert cycle_in({"a": ["a"]}) == ["a", "a"]


def test_each_knot_gives_one_shortest_cycle() -> None:
    #          0 <-> 1     2 -> 3 -> 4 -> 2, with the short cut 2 <-> 4
    assert find_cycles([[1], [0], [4], [2], [3, 2], [0, 2]]) == [[0, 1, 0], [2, 4, 2]]


def test_a_chain_of_100_000_nodes_is_no_deeper_than_a_short_one() -> None:
    count = 100_000
    ids = [f"n{i}" for i in range(count)]
    dependencies = {ids[i]: [ids[i - 1]] if i else [] for i in range(count)}
    graph = Graph(ids, dependencies)
    assert graph.order() == ids
    assert len(graph.layers()) == count
    assert len(graph.ancestors(ids[-1])) == count - 1
    assert cycle_in(dependencies) is None
    dependencies[ids[0]] = [ids[-1]]
    cycle = cycle_in(dependencies)
    assert cycle == [*ids, ids[0]]


def test_ancestors_are_told_in_a_chain_whose_nodes_all_name_the_first_and_the_one_before_last() -> None:
    count = 100_000
    parents = [[i - 1] if i else [] for i in range(count)]
    pairs = {(i, 0) for i in range(1, count)} | {(i, i - 2) for i in range(2, count)}
    assert not_ancestors(parents, pairs) == set()
    assert not_ancestors(parents, {(0, 5), (7, 3), (3, 7)}) == {(0, 5), (3, 7)}


def test_a_node_on_a_cycle_runs_after_the_others_of_it() -> None:
    parents = [[2], [0], [1], [1], []]
    assert not_ancestors(parents, {(0, 1), (1, 2), (3, 0), (0, 3), (3, 4)}) == {(0, 3), (3, 4)}
