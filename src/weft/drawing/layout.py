"""Where the nodes of a graph go: ranks from left to right, an order with few crossings, then heights.

The layered method of Sugiyama, in its simplest form that looks good. A node's rank is its longest path
from a root. A dependency over several ranks is led through one narrow place in each rank between, so
that it goes around the cards and not over them. A few sweeps sort each rank by the mean position of its
neighbours; then each place moves as near to its neighbours as its own neighbours above and below allow,
which is isotonic regression. All of it is O(V + E) per sweep, and not recursive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.definition.graph import Graph

ORDER_SWEEPS = 6
HEIGHT_SWEEPS = 6
MAX_WAYPOINTS = 20_000  # above this, long dependencies are drawn straight: such a picture is a texture


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks, and the height of the centre of each node and of each waypoint."""

    ranks: Sequence[Sequence[str]]
    y: Mapping[str, float]
    # (parent, node) -> the heights at which the dependency crosses the ranks between, left to right.
    waypoints: Mapping[tuple[str, str], Sequence[float]]
    height: float


def lay_out(graph: Graph, *, card_height: float, card_gap: float, waypoint_gap: float) -> Layout:
    """Place every node; no two cards of a rank come closer than ``card_gap``."""
    layers = graph.layers()
    rank = {node: index for index, layer in enumerate(layers) for node in layer}
    columns: list[list[int]] = [[] for _ in layers]
    number: dict[str, int] = {}
    for index, layer in enumerate(layers):
        for node in layer:
            number[node] = len(number)
            columns[index].append(number[node])
    nodes = len(number)
    before: list[list[int]] = [[] for _ in range(nodes)]
    after: list[list[int]] = [[] for _ in range(nodes)]

    edges = [(parent, node) for node in graph.ids for parent in graph.parents[node]]
    bends = sum(rank[node] - rank[parent] - 1 for parent, node in edges) <= MAX_WAYPOINTS
    way: dict[tuple[str, str], list[int]] = {}
    for parent, node in edges:
        here = number[parent]
        way[parent, node] = []
        for index in range(rank[parent] + 1, rank[node]) if bends else ():
            point = len(before)
            columns[index].append(point)
            before.append([here])
            after.append([])
            after[here].append(point)
            way[parent, node].append(point)
            here = point
        before[number[node]].append(here)
        after[here].append(number[node])

    _order(columns, before, after)
    sizes = [card_height + card_gap if item < nodes else waypoint_gap for item in range(len(before))]
    y = _heights(columns, before, after, sizes)
    top = min((y[item] - sizes[item] / 2 for item in range(len(y))), default=0.0)
    bottom = max((y[item] + sizes[item] / 2 for item in range(len(y))), default=0.0)
    name = list(number)
    return Layout(
        ranks=[[name[item] for item in column if item < nodes] for column in columns],
        y={node: y[item] - top for node, item in number.items()},
        waypoints={edge: [y[item] - top for item in items] for edge, items in way.items()},
        height=bottom - top,
    )


def _order(columns: list[list[int]], before: list[list[int]], after: list[list[int]]) -> None:
    position = [0.0] * len(before)
    for column in columns:
        _number(column, position)
    for sweep in range(ORDER_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for column in columns if forward else reversed(columns):
            wish = {item: _mean(neighbours[item], position, position[item]) for item in column}
            column.sort(key=wish.__getitem__)
            _number(column, position)


def _number(column: Sequence[int], position: list[float]) -> None:
    # From 0 to 1, so that the positions of a short and of a long column can be compared.
    for place, item in enumerate(column):
        position[item] = (place + 0.5) / len(column)


def _heights(
    columns: Sequence[Sequence[int]],
    before: Sequence[Sequence[int]],
    after: Sequence[Sequence[int]],
    sizes: Sequence[float],
) -> list[float]:
    y = [0.0] * len(sizes)
    for column in columns:
        _settle(column, [0.0] * len(column), sizes, y)
    for sweep in range(HEIGHT_SWEEPS):
        forward = sweep % 2 == 0
        neighbours = before if forward else after
        for column in columns if forward else reversed(columns):
            _settle(column, [_mean(neighbours[item], y, y[item]) for item in column], sizes, y)
    return y


def _settle(column: Sequence[int], wishes: Sequence[float], sizes: Sequence[float], y: list[float]) -> None:
    """Set the ``y`` of each item as near to its wish (least squares) as order and distance allow."""
    blocks: list[tuple[float, int]] = []  # (mean of the wishes less the offsets, items)
    offsets: list[float] = []
    offset = 0.0
    for place, item in enumerate(column):
        if place:
            offset += (sizes[column[place - 1]] + sizes[item]) / 2
        offsets.append(offset)
        mean, items = wishes[place] - offset, 1
        while blocks and blocks[-1][0] > mean:
            above, more = blocks.pop()
            mean = (mean * items + above * more) / (items + more)
            items += more
        blocks.append((mean, items))
    place = 0
    for mean, items in blocks:
        for _ in range(items):
            y[column[place]] = mean + offsets[place]
            place += 1


def _mean(items: Sequence[int], values: Sequence[float], otherwise: float) -> float:
    return sum(values[item] for item in items) / len(items) if items else otherwise
