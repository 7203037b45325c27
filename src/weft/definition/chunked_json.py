"""Long JSON text read a piece at a time, so that other threads have their turn.

The scanner of the standard library is written in C and holds the interpreter until it has read a whole value:
a few seconds for the longest texts there may be, in which nobody else is served. Here it is given pieces of a
bounded length. A value that fits into one is read as before; a list or an object that does not is opened,
and its members are read in the same way, many at once where that is possible.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError
from typing import TYPE_CHECKING, Any

from weft.errors import DocumentError

if TYPE_CHECKING:
    import json
    from collections.abc import Callable

    from weft.core.payload import Json

# Read in ten milliseconds or so, whatever is in it.
PIECE_CHARACTERS = 128 * 1024

_SPACE = re.compile(r"[ \t\n\r]*")


def read_in_pieces(
    source: str,
    decoder: json.JSONDecoder,
    *,
    max_depth: int,
    refuse_twice: Callable[[str], None],
    piece: int = PIECE_CHARACTERS,
) -> Json:
    """Read one JSON value and nothing else, as ``decoder.decode`` does, with the same errors.

    ``refuse_twice`` is given a key that an object has in two of its pieces; within one the decoder sees it.
    If it returns, the last of the two counts.
    """
    return _Reader(source, decoder, max_depth, refuse_twice, piece).read()


class _Reader:
    def __init__(
        self,
        source: str,
        decoder: json.JSONDecoder,
        max_depth: int,
        refuse_twice: Callable[[str], None],
        piece: int,
    ) -> None:
        self.source = source
        self.decoder = decoder
        # What raw_decode calls; it is not among the names that the type checker knows.
        self.scan: Callable[[str, int], tuple[Any, int]] = decoder.scan_once  # type: ignore[attr-defined]
        self.max_depth = max_depth
        self.refuse_twice = refuse_twice
        self.piece = piece
        # A copy of a part of the source, and where it begins there: a scan cannot go beyond its end.
        self.window = ""
        self.start = 0

    def read(self) -> Json:
        value, at = self._value(self._skip(0), 1)
        at = self._skip(at)
        if at != len(self.source):
            raise JSONDecodeError("Extra data", self.source, at)
        return value

    def _value(self, at: int, depth: int) -> tuple[Json, int]:
        """Read the value at a place; give it with the place behind it."""
        found = self._scan_window(at)
        if found is not None:
            return found
        # The value is longer than a piece, or wrong: then the same error is met again further in.
        match self.source[at : at + 1]:
            case "[":
                return self._list(self._skip(at + 1), self._deeper(depth))
            case "{":
                return self._object(self._skip(at + 1), self._deeper(depth))
            case _:
                return self.decoder.raw_decode(self.source, at)

    def _scan_window(self, at: int) -> tuple[Json, int] | None:
        """Read a value that ends within a piece from its beginning; None: this one does not."""
        if not self.start <= at < self.start + len(self.window):
            self._move_window(at)
        while True:
            try:
                value, end = self.scan(self.window, at - self.start)
            except (StopIteration, JSONDecodeError):
                pass
            else:
                # A number that ends near the end of the window may go on behind it, like the 1 of "1e-".
                if end + 2 < len(self.window) or self.start + len(self.window) == len(self.source):
                    return value, self.start + end
            if self.start == at:
                return None
            self._move_window(at)

    def _move_window(self, at: int) -> None:
        self.window = self.source[at : at + self.piece]
        self.start = at

    def _list(self, at: int, depth: int) -> tuple[list[Json], int]:
        values: list[Json] = []
        if self.source[at : at + 1] == "]":
            return values, at + 1
        while True:
            many, behind = self._many("[", at, "]")
            if many:
                values += many
                at = behind
                continue
            stop = at + self.piece
            while at < stop:
                value, at = self._value(at, depth)
                values.append(value)
                at, ended = self._next(at, "]")
                if ended:
                    return values, at

    def _object(self, at: int, depth: int) -> tuple[dict[str, Json], int]:
        values: dict[str, Json] = {}
        if self.source[at : at + 1] == "}":
            return values, at + 1
        while True:
            many, behind = self._many("{", at, "}")
            if many:
                if not values.keys().isdisjoint(many):
                    self.refuse_twice(next(key for key in many if key in values))
                values.update(many)
                at = behind
                continue
            stop = at + self.piece
            while at < stop:
                key, at = self._key(at)
                if key in values:
                    self.refuse_twice(key)
                values[key], at = self._value(at, depth)
                at, ended = self._next(at, "}")
                if ended:
                    return values, at

    def _many(self, opening: str, at: int, closing: str) -> tuple[Any, int]:
        """Read the members up to the last comma of a piece as a list or object of their own.

        If that comma stands inside a member, or behind the end of this list or object, then what was cut
        out is not one whole list or object, and nothing is given.
        """
        # Members that are objects are read one by one: the decoder calls back for each of them anyway.
        if not (opening == "[" and self.source.startswith("{", at)):
            comma = self.source.rfind(",", at, at + self.piece)
            text = f"{opening}{self.source[at:comma]}{closing}" if comma > at else ""
            try:
                many, end = self.scan(text, 0)
            except (StopIteration, JSONDecodeError):
                pass
            else:
                if end == len(text):
                    return many, self._skip(comma + 1)
        return None, at

    def _key(self, at: int) -> tuple[str, int]:
        if not self.source.startswith('"', at):
            raise JSONDecodeError("Expecting property name enclosed in double quotes", self.source, at)
        key, at = self._value(at, 0)
        at = self._skip(at)
        if not self.source.startswith(":", at):
            raise JSONDecodeError("Expecting ':' delimiter", self.source, at)
        return key, self._skip(at + 1)

    def _next(self, at: int, closing: str) -> tuple[int, bool]:
        """Continue behind a member: with the next one, or behind the list or object."""
        at = self._skip(at)
        if self.source.startswith(closing, at):
            return at + 1, True
        if not self.source.startswith(",", at):
            raise JSONDecodeError("Expecting ',' delimiter", self.source, at)
        return self._skip(at + 1), False

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.source, at)
        assert found is not None
        return found.end()

    def _deeper(self, depth: int) -> int:
        if depth > self.max_depth:
            raise DocumentError(f"nested deeper than {self.max_depth} levels")
        return depth + 1
