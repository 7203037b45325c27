"""A graph as one self-contained SVG: cards from left to right, in the reader's light or dark."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

from weft.drawing.layout import lay_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.definition.graph import Graph
    from weft.drawing.layout import Layout

MARGIN = 24
CARD_HEIGHT = 46
CARD_GAP = 18
WAYPOINT_GAP = 14
COLUMN_GAP = 64
MIN_CARD_WIDTH = 96
PADDING = 14
BADGE = 22  # what the letter of a state takes of a card's width
LONGEST_TEXT = 32  # the whole of a longer one is in the tooltip

# The letter says what the colour says, for readers who do not see the colour.
LETTERS = {
    "PENDING": "·",
    "QUEUED": "…",
    "RUNNING": "▸",
    "WAITING": "◷",
    "COMPLETED": "✓",
    "FAILED": "✕",
    "SKIPPED": "↷",
    "CANCELLED": "■",
}

# Plain colours, no CSS variables: few viewers outside browsers know them. The dark ones come last.
_STYLE = """\
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
.page{fill:#fff}
.edge{fill:none;stroke:#9aa4af;stroke-width:1.5}
.tip{fill:#9aa4af}
.card{fill:#fff;stroke:#d0d7de}
.name{font-size:13px;font-weight:600;fill:#1f2328}
.label{font-size:11px;fill:#59636e}
.letter{font-size:13px;font-weight:700;text-anchor:middle;fill:#6e7781}
.PENDING .card,.SKIPPED .card,.CANCELLED .card{stroke:#6e7781;stroke-dasharray:4 3}
.QUEUED .card{stroke:#6e7781}
.RUNNING .card{stroke:#0969da}.RUNNING .letter{fill:#0969da}
.WAITING .card{stroke:#8250df}.WAITING .letter{fill:#8250df}
.COMPLETED .card{stroke:#1a7f37}.COMPLETED .letter{fill:#1a7f37}
.FAILED .card{stroke:#cf222e}.FAILED .letter{fill:#cf222e}
@media(prefers-color-scheme:dark){
.page{fill:#0d1117}
.edge{stroke:#656c76}
.tip{fill:#656c76}
.card{fill:#161b22;stroke:#3d444d}
.name{fill:#f0f6fc}
.label,.letter{fill:#9198a1}
.RUNNING .card{stroke:#4493f8}.RUNNING .letter{fill:#4493f8}
.WAITING .card{stroke:#ab7df8}.WAITING .letter{fill:#ab7df8}
.COMPLETED .card{stroke:#3fb950}.COMPLETED .letter{fill:#3fb950}
.FAILED .card{stroke:#f85149}.FAILED .letter{fill:#f85149}
}
"""

_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where each rank of cards begins, and how wide its cards are."""

    left: Sequence[float]
    width: Sequence[float]


def draw_svg(
    graph: Graph, labels: Mapping[str, str], *, title: str, states: Mapping[str, str] | None = None
) -> str:
    """Draw the graph; with ``states`` (node id to state), each card has its state's colour and letter."""
    states = states or {}
    layout = lay_out(graph, card_height=CARD_HEIGHT, card_gap=CARD_GAP, waypoint_gap=WAYPOINT_GAP)
    columns = _columns(layout, labels, with_states=bool(states))
    width = columns.left[-1] + columns.width[-1] + MARGIN if columns.left else 2 * MARGIN
    height = layout.height + 2 * MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
            f"<title>{_xml(title)}</title>",
            f"<style>{_STYLE}</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>',
            '<rect class="page" width="100%" height="100%"/>',
            *_edges(graph, layout, columns),
            *_cards(layout, columns, labels, states),
            "</svg>",
            "",
        ]
    )


def _columns(layout: Layout, labels: Mapping[str, str], *, with_states: bool) -> _Columns:
    badge = BADGE if with_states else 0
    lefts, widths = [], []
    left = float(MARGIN)
    for nodes in layout.ranks:
        text = max(max(_width(node, 7.6), _width(labels.get(node, ""), 6.2)) for node in nodes)
        width = max(MIN_CARD_WIDTH, text + 2 * PADDING + badge)
        lefts.append(left)
        widths.append(width)
        left += width + COLUMN_GAP
    return _Columns(lefts, widths)


def _edges(graph: Graph, layout: Layout, columns: _Columns) -> Iterator[str]:
    rank = {node: index for index, nodes in enumerate(layout.ranks) for node in nodes}
    for node in graph.ids:
        for parent in graph.parents[node]:
            column = rank[parent]
            x, y = columns.left[column] + columns.width[column], layout.y[parent] + MARGIN
            path = [f"M{x:.1f} {y:.1f}"]
            stops = [height + MARGIN for height in layout.waypoints[parent, node]]
            for offset, stop in enumerate(stops, start=column + 1):
                path.append(_curve(x, y, columns.left[offset], stop))
                x, y = columns.left[offset] + columns.width[offset], stop
                path.append(f"H{x:.1f}")
            # The last stretch is level, so that the tip looks where the line goes.
            end = columns.left[rank[node]]
            path.append(f"{_curve(x, y, end - 8, layout.y[node] + MARGIN)}H{end - 1:.1f}")
            yield f'<path class="edge" d="{"".join(path)}" marker-end="url(#tip)"/>'


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    middle = (x + to_x) / 2
    return f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"


def _cards(
    layout: Layout, columns: _Columns, labels: Mapping[str, str], states: Mapping[str, str]
) -> Iterator[str]:
    for index, nodes in enumerate(layout.ranks):
        for node in nodes:
            x, y = columns.left[index], layout.y[node] + MARGIN - CARD_HEIGHT / 2
            card = _card(node, labels.get(node, ""), states.get(node, ""), columns.width[index])
            yield f'<g transform="translate({x:.1f} {y:.1f})">{card}</g>'


def _card(node: str, label: str, state: str, width: float) -> str:
    known = state if state in LETTERS else ""
    tip = " · ".join(filter(None, (node, label, state)))
    parts = [
        f"<title>{_xml(tip)}</title>",
        f'<rect class="card" width="{width:.1f}" height="{CARD_HEIGHT}" rx="8"/>',
        f'<text class="name" x="{PADDING}" y="{20 if label else 28}">{_xml(_shorten(node))}</text>',
    ]
    if label:
        parts.append(f'<text class="label" x="{PADDING}" y="36">{_xml(_shorten(label))}</text>')
    if known:
        parts.append(f'<text class="letter" x="{width - PADDING - 2:.1f}" y="28">{LETTERS[known]}</text>')
    return f'<g class="{known}">{"".join(parts)}</g>' if known else "".join(parts)


def _shorten(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _width(text: str, per_character: float) -> float:
    """Guess a text's width: the font is the reader's."""
    return sum(per_character * (1.8 if east_asian_width(c) in "WF" else 1.0) for c in _shorten(text))


def _xml(text: str) -> str:
    """Escape text; what XML cannot hold at all becomes the replacement character."""
    return escape(_NOT_XML.sub("\ufffd", text))
