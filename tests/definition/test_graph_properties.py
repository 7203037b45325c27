from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from weft.definition.graph import Graph, components, find_cycles, not_ancestors

Parents = list[list[int]]


@st.composite
def any_graph(draw: st.DrawFn) -> Parents:
    count = draw(st.integers(1, 9))
    return [draw(st.lists(st.integers(0, count - 1), max_size=3, unique=True)) for _ in range(count)]


@st.composite
def acyclic_graph(draw: st.DrawFn) -> Parents:
    """Draw parents from what comes before in a shuffled order, so that the order given is none."""
    count = draw(st.integers(1, 12))
    order = draw(st.permutations(range(count)))
    parents: Parents = [[] for _ in range(count)]
    for place, node in enumerate(order):
        if place:
            parents[node] = draw(st.lists(st.sampled_from(order[:place]), max_size=3, unique=True))
    return parents


def reaches(parents: Parents) -> list[set[int]]:
    """Work out all ancestors by repeating one step until nothing changes."""
    ancestors = [set(of_node) for of_node in parents]
    changed = True
    while changed:
        changed = False
        for mine in ancestors:
            more = set().union(*(ancestors[other] for other in mine)) - mine
            if more:
                mine |= more
                changed = True
    return ancestors


def as_graph(parents: Parents) -> Graph:
    ids = [str(index) for index in range(len(parents))]
    return Graph(ids, {str(i): [str(p) for p in of_node] for i, of_node in enumerate(parents)})


@given(acyclic_graph())
def test_layers_are_the_longest_distances_from_the_roots(parents: Parents) -> None:
    graph = as_graph(parents)
    layer_of = {node_id: depth for depth, layer in enumerate(graph.layers()) for node_id in layer}
    assert sorted(layer_of) == sorted(graph.ids)
    for node_id in graph.ids:
        expected = max((layer_of[parent] + 1 for parent in graph.parents[node_id]), default=0)
        assert layer_of[node_id] == expected
    for layer in graph.layers():
        assert layer == sorted(layer, key=graph.ids.index)


@given(acyclic_graph())
def test_the_order_puts_every_node_after_its_parents(parents: Parents) -> None:
    graph = as_graph(parents)
    order = graph.order()
    assert sorted(order) == sorted(graph.ids)
    for node_id in order:
        assert all(order.index(parent) < order.index(node_id) for parent in graph.parents[node_id])


@given(acyclic_graph())
def test_ancestors_are_what_repeated_steps_reach(parents: Parents) -> None:
    graph, ancestors = as_graph(parents), reaches(parents)
    for index, mine in enumerate(ancestors):
        assert graph.ancestors(str(index)) == {str(other) for other in mine}


@given(any_graph())
def test_components_are_the_sets_of_nodes_that_reach_each_other_parents_first(parents: Parents) -> None:
    ancestors = reaches(parents)
    found = components(parents)
    assert sorted(index for component in found for index in component) == list(range(len(parents)))
    place = {index: position for position, component in enumerate(found) for index in component}
    for one in range(len(parents)):
        for other in range(len(parents)):
            if one != other:
                together = other in ancestors[one] and one in ancestors[other]
                assert (place[one] == place[other]) == together
                if other in ancestors[one]:
                    assert place[other] <= place[one]


@given(any_graph())
def test_every_knot_gives_one_true_cycle_and_a_graph_without_gives_none(parents: Parents) -> None:
    ancestors = reaches(parents)
    knotted = {index for index, mine in enumerate(ancestors) if index in mine}
    cycles = find_cycles(parents)
    assert bool(cycles) == bool(knotted)
    for cycle in cycles:
        assert cycle[0] == cycle[-1]
        assert len(set(cycle)) == len(cycle) - 1
        for parent, node in pairwise(cycle):
            assert parent in parents[node]
    for index in knotted:
        assert any(index in cycle or cycle[0] in ancestors[index] for cycle in cycles)


@given(any_graph())
def test_the_ancestor_check_agrees_with_repeated_steps_with_and_without_cycles(parents: Parents) -> None:
    ancestors = reaches(parents)
    pairs = {(one, other) for one in range(len(parents)) for other in range(len(parents)) if one != other}
    expected = {(one, other) for one, other in pairs if other not in ancestors[one]}
    assert not_ancestors(parents, pairs) == expected
