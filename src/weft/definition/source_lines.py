"""Which line of a definition's text a problem is about.

A problem names its place by a JSON pointer. For people who look at a YAML or JSON file, the text is parsed
once more, and the line of each pointer is noted; only where there are problems, so a sound definition costs
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import yaml

from weft.core.payload import pointer
from weft.definition.document import YAML_LOADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.errors import Problem


def with_lines(problems: Sequence[Problem], text: bytes) -> list[Problem]:
    """Return the problems, each with its line in the text, or that of the nearest value around it."""
    wanted = {problem.pointer for problem in problems}
    wanted |= {around for one in wanted for around in _around(one)}
    lines = _lines_of(wanted, text)
    return [replace(problem, line=_line(problem.pointer, lines)) for problem in problems]


def _around(place: str) -> Iterable[str]:
    while place:
        place = place.rpartition("/")[0]
        yield place


def _line(place: str, lines: dict[str, int]) -> int | None:
    for one in (place, *_around(place)):
        if one in lines:
            return lines[one]
    return None


def _lines_of(wanted: set[str], text: bytes) -> dict[str, int]:
    """Return the lines of these pointers; a mapping's entry begins in the line of its key."""
    lines: dict[str, int] = {}
    # Of each list or mapping that is open: its pointer, and the next key (of a list: the next position).
    stack: list[tuple[str, str | int | None]] = []

    def note(line: int) -> str:
        """Note a value's line, and return its pointer."""
        if not stack:
            place = ""
        else:
            parent, key = stack[-1]
            assert key is not None
            place = parent + pointer((key,))
            stack[-1] = (parent, key + 1 if isinstance(key, int) else None)
        if place in wanted:
            lines.setdefault(place, line)
        return place

    try:
        for event in yaml.parse(text, Loader=YAML_LOADER):
            line = event.start_mark.line + 1
            match event:
                case yaml.ScalarEvent() if stack and stack[-1][1] is None:
                    place = stack[-1][0] + pointer((event.value,))
                    stack[-1] = (stack[-1][0], event.value)
                    if place in wanted:
                        lines[place] = line
                case yaml.ScalarEvent() | yaml.AliasEvent():
                    note(line)
                case yaml.MappingStartEvent():
                    stack.append((note(line), None))
                case yaml.SequenceStartEvent():
                    stack.append((note(line), 0))
                case yaml.CollectionEndEvent():
                    stack.pop()
                case _:
                    pass
    except yaml.YAMLError:
        # JSON that YAML does not read, with tabs for one: its problems stay without lines from here on.
        pass
    return lines
