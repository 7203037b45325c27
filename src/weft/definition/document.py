"""Text that users wrote, JSON or YAML, into a JSON value: strict, bounded, and never a surprise.

Both readers accept only what every other reader of the same text would understand in the same way. JSON is
RFC 8259 without duplicate keys. YAML is version 1.2 with its core schema: ``no`` is a string, ``012`` is
twelve, ``1:30`` and dates are strings. The YAML values are built here from the parser's events, because the
loaders of PyYAML speak version 1.1, recurse, and follow aliases without counting.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import yaml

from weft.core.payload import (
    MAX_DOCUMENT_VALUES,
    MAX_INTEGER_DIGITS,
    MAX_VALUES,
    Json,
    count_values,
    find_fault,
    is_json,
    pointer,
)
from weft.definition.chunked_json import PIECE_CHARACTERS, read_in_pieces
from weft.definition.gc_pause import collector_paused
from weft.errors import DocumentError, DocumentTooLargeError

if TYPE_CHECKING:
    from collections.abc import Callable

# An escaped surrogate is the only way to bring half a pair into text that is valid UTF-8.
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")

# A worker's loop has many small steps to do for each attempt, and may wait for a piece at each of them.
_FOREIGN_PIECE = 16 * 1024

_LONG_INTEGER = f"an integer has more than {MAX_INTEGER_DIGITS:,} digits"


def read_json(text: bytes, *, max_bytes: int, max_depth: int) -> Json:
    """Read one JSON value and nothing else, or raise DocumentError."""
    if len(text) > PIECE_CHARACTERS:
        _check_values(text, MAX_DOCUMENT_VALUES)
    source = _decoded(text, max_bytes=max_bytes)
    try:
        value = _json_value(source, max_depth)
    except json.JSONDecodeError as error:
        raise DocumentError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError:
        raise DocumentError(f"nested deeper than {max_depth} levels") from None
    except ValueError:  # all that is left: int() refuses more digits
        raise DocumentError(_LONG_INTEGER) from None
    # Numbers such as 1e999 have been read as infinite by now.
    sound = is_json(value, max_values=max_bytes, max_depth=max_depth)
    if sound and _ESCAPED_SURROGATE.search(source):
        sound = _is_unicode(value)
    if not sound:
        fault = find_fault(value, max_values=max_bytes, max_depth=max_depth)
        message = "a number is too large" if fault.message.endswith("inf") else fault.message
        located = fault.path and fault.code != "too_deep"
        raise DocumentError(f"at {pointer(fault.path)[:200]}: {message}" if located else message)
    return value


def read_foreign_json(text: bytes, *, max_depth: int) -> Json:
    """Read the JSON of another service in pieces; raises ValueError or RecursionError if it is none.

    Raises DocumentTooLargeError where it has more values than a payload may. Otherwise it takes what a reader
    of one go takes: of equal keys the last counts; infinite numbers and lone surrogates, which nobody can
    store, are no JSON.
    """
    _check_values(text, MAX_VALUES)
    source = text.decode("utf-8")
    with collector_paused():
        try:
            value = read_in_pieces(
                source, _FOREIGN, max_depth=max_depth, refuse_twice=_keep_last, piece=_FOREIGN_PIECE
            )
        except DocumentError as error:
            raise ValueError(str(error)) from None
        if _ESCAPED_SURROGATE.search(source):
            _check_unicode(value)
    return value


def read_yaml(text: bytes, *, max_bytes: int, max_depth: int, pace: Callable[[], None] | None = None) -> Json:
    """Read one YAML document as a JSON value, or raise DocumentError.

    ``pace`` is called again and again, and may end the work by what it raises.
    """
    builder = _Builder(max_bytes=max_bytes, max_depth=max_depth)
    source = _decoded(text, max_bytes=max_bytes)
    try:
        for number, event in enumerate(yaml.parse(source, Loader=YAML_LOADER)):
            builder.take(event)
            if pace is not None and not number % _EVENTS_A_PACE:
                pace()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "not YAML"
        _refuse(error.problem_mark or error.context_mark, problem)
    except yaml.YAMLError as error:  # the reader's: a character that YAML does not allow
        raise DocumentError(f"not YAML: {getattr(error, 'reason', None) or error}") from error
    if not builder.documents:
        raise DocumentError("the document is empty")
    return builder.value


# A hundred events take about a millisecond.
_EVENTS_A_PACE = 100


def _decoded(text: bytes, *, max_bytes: int) -> str:
    if len(text) > max_bytes:
        raise DocumentError(f"{len(text):,} bytes; the limit is {max_bytes:,}")
    if text.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise DocumentError("starts with a byte order mark; write it as UTF-8 without one")
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8: byte {error.start} cannot be read") from error


# --- JSON -------------------------------------------------------------------------------------------------


def _json_value(source: str, max_depth: int) -> Json:
    if len(source) <= PIECE_CHARACTERS:
        return _DECODER.decode(source)
    with collector_paused():
        return read_in_pieces(source, _DECODER, max_depth=max_depth, refuse_twice=_refuse_twice)


def _check_values(text: bytes, most: int) -> None:
    """Raise DocumentTooLargeError if a JSON text has more values than ``most``."""
    count = count_values(text, most=most)
    if count > most:
        raise DocumentTooLargeError(f"{count:,} values; the limit is {most:,}")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                _refuse_twice(key)
            seen.add(key)
    return value


def _refuse_twice(key: str) -> NoReturn:
    raise DocumentError(f"the key {_shown(key)} appears twice in one object")


def _no_constant(name: str) -> NoReturn:
    raise DocumentError(f"JSON has no {name}")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is too large")
    return number


def _keep_last(key: str) -> None:
    """Let the last of two equal keys count."""


_DECODER = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
_FOREIGN = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def _is_unicode(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_unicode(value: Json) -> None:
    """Raise UnicodeEncodeError, a ValueError, at half of a surrogate pair; other threads run meanwhile."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                text.encode()
            case dict() as fields:
                waiting += fields
                waiting += fields.values()
            case list() as items:
                waiting += items


# --- YAML -------------------------------------------------------------------------------------------------

YAML_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_TAG_PREFIX = "tag:yaml.org,2002:"
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# Most plain scalars are words: one look at the first character tells that they are nothing else.
_MAY_BE_TYPED = frozenset("~nNtTfF+-.0123456789")


class _Mark(Protocol):
    """A place in the text, as both of PyYAML's parsers tell it."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come yet."""

    value: list[Any] | dict[str, Any]
    anchor: str | None
    mark: _Mark | None
    size: int = 2
    height: int = 1
    key: str | None = None


@dataclass(slots=True)
class _Anchored:
    """The target of an alias: the value, the length of its text, and the depth of its nesting."""

    value: Json
    size: int
    height: int


@dataclass(slots=True)
class _Builder:
    """Builds one JSON value from the events of a YAML parser, without recursion."""

    max_bytes: int
    max_depth: int
    value: Json = None
    documents: int = 0
    expanded: int = 0
    values: int = 0
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, _Anchored] = field(default_factory=dict)

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                value = _scalar(event)
                size = len(event.value) + 1
                if event.anchor is not None:
                    self.anchors[event.anchor] = _Anchored(value, size, 0)
                self._add(value, size, 0, event.start_mark)
            case yaml.MappingStartEvent():
                self._open({}, event, "map")
            case yaml.SequenceStartEvent():
                self._open([], event, "seq")
            case yaml.CollectionEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._repeat(event)
            case yaml.DocumentStartEvent():
                self.documents += 1
                if self.documents > 1:
                    _refuse(event.start_mark, "a second document; one text holds one document")
                if event.version not in (None, (1, 2)):
                    _refuse(event.start_mark, "only YAML 1.2 is read; leave the %YAML line out")
            case _:
                pass

    def _open(self, value: list[Any] | dict[str, Any], event: yaml.CollectionStartEvent, tag: str) -> None:
        if event.tag not in (None, "!", _TAG_PREFIX + tag):
            _refuse(event.start_mark, f"the tag {_shown(event.tag)} is not known")
        if len(self.stack) >= self.max_depth:
            _refuse(event.start_mark, f"nested deeper than {self.max_depth} levels")
        if event.anchor is not None:
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Open(value, event.anchor, event.start_mark))

    def _close(self) -> None:
        closed = self.stack.pop()
        if closed.anchor is not None:
            self.anchors[closed.anchor] = _Anchored(closed.value, closed.size, closed.height)
        self._add(closed.value, closed.size, closed.height, closed.mark)

    def _repeat(self, event: yaml.AliasEvent) -> None:
        anchored = self.anchors.get(event.anchor or "")
        if anchored is None:
            inside = any(container.anchor == event.anchor for container in self.stack)
            message = "refers to the value it stands in" if inside else "has no anchor before it"
            _refuse(event.start_mark, f"the alias *{event.anchor} {message}")
        # The value itself is shared, not copied; but walking or writing it meets every repetition.
        self.expanded += anchored.size
        if self.expanded > self.max_bytes:
            _refuse(event.start_mark, f"aliases make it longer than {self.max_bytes:,} bytes")
        if len(self.stack) + anchored.height > self.max_depth:
            _refuse(event.start_mark, f"nested deeper than {self.max_depth} levels")
        self._add(anchored.value, anchored.size, anchored.height, event.start_mark)

    def _add(self, value: Json, size: int, height: int, mark: _Mark | None) -> None:
        self.values += 1
        if self.values > MAX_DOCUMENT_VALUES:
            raise DocumentTooLargeError(f"more than {MAX_DOCUMENT_VALUES:,} values")
        if not self.stack:
            self.value = value
            return
        parent = self.stack[-1]
        parent.size += size
        if height >= parent.height:
            parent.height = height + 1
        if isinstance(parent.value, list):
            parent.value.append(value)
        elif parent.key is not None:
            parent.value[parent.key] = value
            parent.key = None
        elif not isinstance(value, str):
            _refuse(mark, "a key must be a string; put it in quotes")
        elif value in parent.value:
            _refuse(mark, f"the key {_shown(value)} appears twice in one mapping")
        else:
            parent.key = value


def _scalar(event: yaml.ScalarEvent) -> Json:
    text: str = event.value
    tag: str | None = event.tag
    try:
        if tag is None or tag == "!":
            plain = tag is None and event.implicit[0]
            if not plain or (text and text[0] not in _MAY_BE_TYPED):
                return text
            return _resolved(text)
        read = _TAGGED.get(tag.removeprefix(_TAG_PREFIX)) if tag.startswith(_TAG_PREFIX) else None
        if read is None:
            _refuse(event.start_mark, f"the tag {_shown(tag)} is not known")
        return read(text)
    except ValueError as error:
        _refuse(event.start_mark, str(error))


def _resolved(text: str) -> Json:
    """Return the value of a plain scalar, in the type that YAML's core schema gives it."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _DECIMAL.fullmatch(text) or _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        return _float(text)
    return text


def _integer(text: str) -> int:
    base = 8 if _OCTAL.fullmatch(text) else 16 if _HEXADECIMAL.fullmatch(text) else 10
    if base == 10 and not _DECIMAL.fullmatch(text):
        raise ValueError(f"{_shown(text)} is not an integer")
    if len(text.lstrip("+-")) > MAX_INTEGER_DIGITS:
        raise ValueError(_LONG_INTEGER)
    value = int(text.removeprefix("0o").removeprefix("0x"), base)
    # Four bits of a hexadecimal digit are more than a decimal one holds.
    if base == 16 and value >= 10**MAX_INTEGER_DIGITS:
        raise ValueError(_LONG_INTEGER)
    return value


def _float(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        raise ValueError(f"JSON has no {text}")
    if not _FLOAT.fullmatch(text):
        raise ValueError(f"{_shown(text)} is not a number")
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"the number {_shown(text)} is too large")
    return value


def _null(text: str) -> None:
    if text not in _NULL:
        raise ValueError(f"{_shown(text)} is not null")


def _bool(text: str) -> bool:
    if text not in _BOOL:
        raise ValueError(f"{_shown(text)} is not true or false")
    return _BOOL[text]


_TAGGED: dict[str, Callable[[str], Json]] = {
    "str": str,
    "int": _integer,
    "float": _float,
    "bool": _bool,
    "null": _null,
}


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")


def _refuse(mark: _Mark | None, message: str) -> NoReturn:
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    raise DocumentError(where + message)
