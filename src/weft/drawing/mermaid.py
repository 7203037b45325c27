"""A graph as a Mermaid flowchart, for Markdown that renders it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.definition.graph import Graph


def draw_mermaid(graph: Graph, labels: Mapping[str, str]) -> str:
    """Draw a flowchart from left to right.

    Nodes are numbered: a name of the user's could be a word of Mermaid's (``end``) or hold what its
    grammar reads as an arrow, so names stand in quoted labels only.
    """
    number = {node: f"n{index}" for index, node in enumerate(graph.ids)}
    lines = ["flowchart LR"]
    lines += [f'  {number[node]}["{_label(node, labels.get(node, ""))}"]' for node in graph.ids]
    lines += [
        f"  {number[parent]} --> {number[node]}" for node in graph.ids for parent in graph.parents[node]
    ]
    return "\n".join([*lines, ""])


def _label(node: str, label: str) -> str:
    return f"{_escape(node)}<br><small>{_escape(label)}</small>" if label else _escape(node)


def _escape(text: str) -> str:
    """Write every character that HTML, Markdown or Mermaid could read as its own as a numbered entity."""
    return "".join(c if c.isalnum() or c in " _-./:" else f"#{ord(c)};" for c in text)
