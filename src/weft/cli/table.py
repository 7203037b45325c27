"""Rows for people: aligned, within the width of the terminal, and never an id on two lines."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.sdk.progress import moment_text, seconds_text, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GAP = "  "
# With less room for the last column, a row is written on several lines.
_NARROWEST = 16
# A screen of it; who needs all of a large one wants it as JSON.
_MAX_PAYLOAD_LINES = 20
_MAX_PAYLOAD_COLUMNS = 400


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Lay rows out in columns. The last one takes what is left of the line, and is cut where it must be.

    On a terminal too narrow for that, rows are broken between their cells, and nothing is cut.
    """
    shown = [[_cell(value) for value in row] for row in rows]
    lines = [list(headings), *shown]
    widths = [max(len(line[index]) for line in lines) for index in range(len(headings))]
    room = _columns()
    if room is not None:
        left = room - sum(widths[:-1]) - len(_GAP) * (len(widths) - 1)
        if left < min(widths[-1], _NARROWEST):
            return "".join(_broken_line(line, widths, room) for line in lines)
        widths[-1] = min(widths[-1], left)
    return "".join(_line(line, widths) for line in lines)


def facts(pairs: Mapping[str, object]) -> str:
    """Write names and values one below the other, without those that have no value."""
    given = {name: text for name, value in pairs.items() if (text := _cell(value)) != "-"}
    width = max(map(len, given), default=0)
    room = _columns()
    return "".join(_fact(name, text, width, room) for name, text in given.items())


def _fact(name: str, text: str, width: int, room: int | None) -> str:
    """Write a name and its value; below the name, where only so the terminal does not break the value."""
    is_below = room is not None and room - width - len(_GAP) < len(text) <= room - len(_GAP)
    return f"{name}\n{_GAP}{text}\n" if is_below else f"{name:<{width}}{_GAP}{text}\n"


def payload(name: str, value: Any) -> str:
    """Write an input, a config or an output below its name, cut where it is long; nothing of an empty one."""
    import json

    if value is None or value == {}:
        return ""
    lines = json.dumps(value, ensure_ascii=False, indent=2).splitlines()
    left = len(lines) - _MAX_PAYLOAD_LINES
    shown = [
        *lines[:_MAX_PAYLOAD_LINES],
        *([f"… and {left:,} more lines; --json has all"] if left > 0 else []),
    ]
    return f"{name}\n" + "".join(f"{_GAP}{_printable(line)[:_MAX_PAYLOAD_COLUMNS]}\n" for line in shown)


def _printable(line: str) -> str:
    """Replace what would move the cursor of a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def moment(text: str | None) -> str | None:
    """Write a time as a clock on the wall here shows it, with the offset of its zone; None: there is none."""
    return None if text is None else moment_text(text)


def age(text: str) -> str:
    """Return how long ago a time was, as text."""
    seconds = RealClock().now() / MICROSECONDS - datetime.fromisoformat(text).timestamp()
    return seconds_text(max(0.0, seconds)) if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def took(item: Mapping[str, Any]) -> str | None:
    """Return how long an item ran, from its ``started_at`` to its ``finished_at``; None without both."""
    begun, ended = item["started_at"], item["finished_at"]
    if begun is None or ended is None:
        return None
    return seconds_text(elapsed_seconds(begun, ended))


def elapsed_seconds(begun: str, ended: str) -> float:
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def why(item: Mapping[str, Any]) -> str:
    """Return why an item is in its state: its error, or its reason with the cause."""
    error = item.get("error")
    if error:
        return f"{error['code']}: {shorten(error['message'])}"
    return ", ".join(filter(None, (item.get("reason"), item.get("cause"))))


def _columns() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else shorten(str(value))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *first, last = cells
    if len(last) > widths[-1]:
        last = last[: widths[-1] - 1] + "…"
    padded = [f"{cell:<{width}}" for cell, width in zip(first, widths, strict=False)]
    return _GAP.join([*padded, last]).rstrip() + "\n"


def _broken_line(cells: Sequence[str], widths: Sequence[int], room: int) -> str:
    lines: list[str] = []
    line = ""
    for position, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        fits = len(line) + (len(_GAP) if line else 0) + len(cell) <= room
        if line and not fits:
            lines.append(line.rstrip())
            line = ""
            if cell == "-" and position == len(cells) - 1:
                break
        line += f"{_GAP if line or lines else ''}{cell:<{width}}"
    return "".join(f"{each.rstrip()}\n" for each in (*lines, line) if each)
