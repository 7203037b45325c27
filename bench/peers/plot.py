"""The table as a picture: bars on a scale of powers of ten, in SVG, written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WIDTH, _NAMES, _RIGHT = 760, 170, 90
_BAR, _GAP, _HEAD, _FOOT = 18, 8, 44, 34
_COLOURS = {True: "#2563eb", False: "#94a3b8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One figure of all rows. ``bars``: title → value; None: there is none."""

    title: str
    unit: str
    bars: Mapping[str, float | None]
    # Whose bars stand out.
    ours: frozenset[str]


def svg(panels: Sequence[Panel], *, caption: str) -> str:
    """Draw the panels below each other."""
    parts: list[str] = []
    top = 0.0
    for panel in panels:
        parts.append(f'<g transform="translate(0 {top:.0f})">{_panel(panel)}</g>')
        top += _height(panel)
    parts.append(f'<text x="12" y="{top + 8:.0f}" class="note">{escape(caption)}</text>')
    height = top + 22
    style = (
        "text{font:12px system-ui,sans-serif;fill:#1f2937}.head{font-weight:600;font-size:14px}"
        ".note{fill:#6b7280;font-size:11px}.grid{stroke:#e5e7eb}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


def _height(panel: Panel) -> float:
    return _HEAD + len(panel.bars) * (_BAR + _GAP) + _FOOT


def _panel(panel: Panel) -> str:
    known = [value for value in panel.bars.values() if value]
    # A whole power of ten below the smallest, so that it has a bar too.
    low = floor(log10(min(known)) - 0.3) if known else 0
    high = max(ceil(log10(max(known))), low + 1) if known else 1
    bottom = _HEAD + len(panel.bars) * (_BAR + _GAP)
    parts = [f'<text x="12" y="24" class="head">{escape(panel.title)}</text>']
    for power in range(low, high + 1):
        x = _x(10.0**power, low, high)
        parts.append(f'<line x1="{x:.1f}" y1="{_HEAD - 6}" x2="{x:.1f}" y2="{bottom}" class="grid"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" class="note">{10.0**power:,g}</text>'
        )
    for place, (title, value) in enumerate(panel.bars.items()):
        y = _HEAD + place * (_BAR + _GAP)
        middle = y + _BAR - 5
        parts.append(f'<text x="{_NAMES - 8}" y="{middle}" text-anchor="end">{escape(title)}</text>')
        if not value:
            parts.append(f'<text x="{_NAMES}" y="{middle}" class="note">not run</text>')
            continue
        end = _x(value, low, high)
        parts.append(
            f'<rect x="{_NAMES}" y="{y}" width="{end - _NAMES:.1f}" height="{_BAR}" rx="2" '
            f'fill="{_COLOURS[title in panel.ours]}"/>'
        )
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        parts.append(f'<text x="{end + 5:.1f}" y="{middle}">{shown} {escape(panel.unit)}</text>')
    return "".join(parts)


def _x(value: float, low: int, high: int) -> float:
    share = (log10(value) - low) / (high - low)
    return _NAMES + share * (_WIDTH - _NAMES - _RIGHT)
