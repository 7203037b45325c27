"""A graph as lines of text: one layer after the other, each node with what it runs after.

::

     1  order               input
     2  ├ stock             sleep    ← order
        └ payment           sleep    ← order
     3  decide              echo     ← payment, stock

Three nodes and three hundred should both fit on a screen. So a wide layer is folded into one line per
handler, and a long chain into its two ends; each fold says how much it hides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.definition.graph import Graph

WIDE_LAYER = 12  # a layer of more nodes than this is folded
SMALL_GROUP = 3  # within a wide layer, so many nodes of one handler are still listed
LONG_CHAIN = 12  # a run of more one-node layers than this is folded
CHAIN_ENDS = 3  # what is left of it on either side
SHOWN_PARENTS = 4


@dataclass(frozen=True, slots=True)
class _Line:
    layer: str
    name: str
    label: str
    after: str


def draw_text(graph: Graph, labels: Mapping[str, str]) -> str:
    """Draw the graph's layers; ``labels`` says what stands beside a node, as a rule its handler."""
    layers = graph.layers()
    lines = list(_lines(layers, graph.parents, labels))
    number = max((len(line.layer) for line in lines), default=0)
    name = max((len(line.name) for line in lines if line.label), default=0)
    label = max((len(line.label) for line in lines), default=0)
    drawn = [
        f"{line.layer:>{number}}  {line.name:<{name}}  {line.label:<{label}}  {line.after}".rstrip()
        for line in lines
    ]
    return "\n".join([_headline(graph, layers), "", *drawn, ""])


def _headline(graph: Graph, layers: Sequence[Sequence[str]]) -> str:
    edges = sum(map(len, graph.parents.values()))
    return ", ".join(
        [
            _count(len(graph.ids), "node", "nodes"),
            _count(edges, "dependency", "dependencies"),
            _count(len(layers), "layer", "layers"),
        ]
    )


def _lines(
    layers: Sequence[Sequence[str]], parents: Mapping[str, Sequence[str]], labels: Mapping[str, str]
) -> Iterator[_Line]:
    position = 0
    while position < len(layers):
        run = position
        while run < len(layers) and len(layers[run]) == 1:
            run += 1
        if run - position > LONG_CHAIN:
            hidden = range(position + CHAIN_ENDS, run - CHAIN_ENDS)
            for index in (*range(position, hidden.start), None, *range(hidden.stop, run)):
                if index is None:
                    yield _Line("⋮", f"… {len(hidden)} layers of one node", "", "")
                else:
                    yield from _layer(index, layers[index], parents, labels)
            position = run
        else:
            yield from _layer(position, layers[position], parents, labels)
            position += 1


def _layer(
    index: int, ids: Sequence[str], parents: Mapping[str, Sequence[str]], labels: Mapping[str, str]
) -> Iterator[_Line]:
    groups = _groups(ids, labels)
    for place, group in enumerate(groups):
        branch = "" if len(groups) == 1 else "└ " if place == len(groups) - 1 else "├ "
        after = list(dict.fromkeys(parent for node in group for parent in parents[node]))
        name = group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}  ({len(group)} nodes)"
        yield _Line(
            str(index + 1) if place == 0 else "",
            branch + name,
            labels.get(group[0], ""),
            f"← {_some(after)}" if after else "",
        )


def _groups(ids: Sequence[str], labels: Mapping[str, str]) -> list[list[str]]:
    """Return the nodes of a layer in groups; the nodes of a group share a line."""
    if len(ids) <= WIDE_LAYER:
        return [[node] for node in ids]
    by_label: dict[str, list[str]] = {}
    for node in ids:
        by_label.setdefault(labels.get(node, ""), []).append(node)
    groups: list[list[str]] = []
    for group in by_label.values():
        groups += [group] if len(group) > SMALL_GROUP else [[node] for node in group]
    return groups


def _some(names: Sequence[str]) -> str:
    if len(names) <= SHOWN_PARENTS:
        return ", ".join(names)
    return f"{', '.join(names[: SHOWN_PARENTS - 1])} and {len(names) - SHOWN_PARENTS + 1} more"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
