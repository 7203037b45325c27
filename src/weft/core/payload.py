"""Encodes and decodes JSON values, and checks each value once, where it enters.

msgspec does the work, but alone it would be too kind: it turns NaN into ``null``, bytes into base64, sets
into lists and integer keys into strings. What a handler returned must be what its dependents see, so
everything that JSON does not have is refused here, with the path to it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from weft.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# A value of JSON: dict with string keys, list, str, int, float, bool or None. It is spelled Any because user
# data passes through most of the code unread, and a recursive union would need a cast at every step.
Json: TypeAlias = Any

# Python refuses to read or write longer integers in decimal (CVE-2020-10735); so do we, as a clean error.
MAX_INTEGER_DIGITS = 4300

# Values of an input, a config or an output, each: strings, numbers, lists, objects. Three characters of text
# may be a value of 80 bytes in memory: a limit on the text alone would let 16 MiB become 400. The numbers of
# 16 MiB of embeddings are 800,000.
MAX_VALUES = 1_000_000
# Values of a request's body, or of a definition: the largest definition that the other limits allow has two
# million.
MAX_DOCUMENT_VALUES = 3_000_000

# Numbers and strings that are written in one call: a fraction of a millisecond for numbers.
_PIECE_VALUES = 4096

# What a small value takes: the object, and its slot in the list or dict that holds it.
VALUE_BYTES = 56

# Counted in a fraction of a millisecond; between two pieces other threads have their turn.
_PIECE_BYTES = 128 * 1024

_ATOMS = frozenset({str, int, bool, type(None)})

# msgspec takes 8 microseconds for a number such as 1e300, and 20 nanoseconds for 3.5. A text with more
# exponents than this is read with Python's own ``float``, which takes half a microsecond for any number.
# Shorter texts cannot hold enough of them to matter, and are not searched.
_MANY_EXPONENTS = 100
_SEARCHED_BYTES = 1024
_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a value cannot be a payload, and where in it: ``code`` is that of ``PayloadError``."""

    code: str
    path: tuple[str | int, ...]
    message: str


def encode(value: Json, *, max_bytes: int, max_depth: int = 100, max_values: int = MAX_VALUES) -> bytes:
    """Turn a value into JSON text that reads back as the same value, or raise PayloadError."""
    payload = encode_plain(value, max_bytes=max_bytes, max_depth=max_depth, max_values=max_values)
    if payload is not None:
        return payload
    fault = find_fault(value, max_values=min(max_values, max_bytes), max_depth=max_depth)
    where = f"at {pointer(fault.path)[:200]}: " if fault.path else ""
    raise PayloadError(fault.code, where + fault.message)


def encode_plain(
    value: Json,
    *,
    max_bytes: int,
    max_depth: int = 100,
    max_values: int = MAX_VALUES,
    in_pieces: bool = False,
) -> bytes | None:
    """Return the JSON text of a value of JSON's types alone, or None; raise PayloadError if too long.

    ``in_pieces``: for a large value in a thread, so that other threads have their turn meanwhile.
    """
    # Every value takes a byte at least. Compared in line: every config and output comes here.
    most = max_values if max_values < max_bytes else max_bytes
    if is_json(value, max_values=most, max_depth=max_depth):
        try:
            payload = b"".join(json_pieces(value)) if in_pieces else _ENCODER.encode(value)
        except (
            ValueError,
            RecursionError,
        ):  # a lone surrogate or an endless integer; nesting above Python's own
            pass
        else:
            if len(payload) <= max_bytes:
                return payload
            raise PayloadError("too_large", f"{len(payload):,} bytes of JSON; the limit is {max_bytes:,}")
    return None


def json_pieces(value: Json) -> Iterator[bytes]:
    """Write a JSON value piece by piece, together what ``encode`` writes in one call of C.

    That call holds Python's lock until the end: 60 ms for a million numbers. A piece has a bounded number of
    numbers and strings.
    """
    is_object = isinstance(value, dict)
    if not (is_object or isinstance(value, (list, tuple))):
        yield _ENCODER.encode(value)
        return
    opening, closing = (b"{", b"}") if is_object else (b"[", b"]")
    between = opening
    members = iter(value.items() if is_object else value)
    while some := list(islice(members, _PIECE_VALUES)):
        items = [item for _, item in some] if is_object else some
        if not any(isinstance(item, (dict, list, tuple)) for item in items):
            text = _ENCODER.encode(dict(some) if is_object else some)
            yield between + text[1:-1]
        else:
            for index, item in enumerate(items):
                yield between + (_ENCODER.encode(some[index][0]) + b":" if is_object else b"")
                yield from json_pieces(item)
                between = b","
        between = b","
    yield closing if between != opening else opening + closing


def decode(payload: bytes) -> Json:
    """Read back what ``encode`` wrote; bytes that are not JSON raise PayloadError."""
    try:
        # Compared in line: every hop reads a few small payloads.
        decoder = _DECODER if len(payload) < _SEARCHED_BYTES else decoder_for(payload)
        return decoder.decode(payload)
    except msgspec.ValidationError:
        # msgspec counts the minus sign among the digits of the longest integer; the slow reader does not.
        return json.loads(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError("not_json", f"stored bytes are not JSON: {error}") from error


def decoder_for(text: bytes) -> msgspec.json.Decoder[Json]:
    """Return the decoder that reads this text fast; both return the same values and raise the same errors."""
    # Nearly every text has fewer of the letter, and needs no second look.
    if text.count(b"e") + text.count(b"E") <= _MANY_EXPONENTS:
        return _DECODER
    exponents = 0
    for start in range(0, len(text), _PIECE_BYTES):
        # Also counts what only looks like an exponent, within a string.
        shape = text[start : start + _PIECE_BYTES].translate(_SHAPE, b"+-")
        exponents += shape.count(b"0e0")
        if exponents > _MANY_EXPONENTS:
            return _DECODER_OF_EXPONENTS
    return _DECODER


def weight_of(payload: bytes) -> int:
    """Return about how many bytes a payload takes in memory once it is decoded.

    A list of empty lists takes twenty times the bytes of its text. Every value but the first has a comma, a
    colon or a bracket before it; those within strings are counted too, so text weighs up to a few times as
    much as it is long.
    """
    values = payload.count(b",") + payload.count(b":") + payload.count(b"[") + payload.count(b"{")
    return len(payload) + VALUE_BYTES * values


def count_values(text: bytes, *, most: int) -> int:
    """Return how many values and keys a JSON text has, or a larger number if that is at most ``most``.

    Nothing is built. Text that is not JSON has at least the values that a reader meets before it says so.
    """
    starts = range(0, len(text), _PIECE_BYTES)
    count = sum([_count_separators(text[start : start + _PIECE_BYTES]) for start in starts])
    if count <= most:
        return count
    # There may be commas in strings: they are left out.
    count, is_inside, cut = 0, 0, b""
    for start in starts:
        piece = cut + text[start : start + _PIECE_BYTES]
        piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        # A backslash at the end belongs to the next character.
        cut = b"\\" if piece.endswith(b"\\") else b""
        parts = piece.split(b'"')
        count += _count_separators(b" ".join(parts[is_inside::2]))
        is_inside ^= len(parts) - 1 & 1
    return count


def _count_separators(text: bytes) -> int:
    """Count what stands before a value: a comma, a colon or a bracket."""
    return len(text) - len(text.translate(None, b",:[{"))


def canonical(value: Json) -> bytes:
    """Write a JSON value with sorted keys and no spaces: equal values give equal bytes."""
    return _CANONICAL.encode(value)


def pointer(path: Iterable[str | int]) -> str:
    """Write a path as a JSON pointer (RFC 6901)."""
    return "".join([f"/{str(token).replace('~', '~0').replace('/', '~1')}" for token in path])


def is_json(value: Json, *, max_values: int, max_depth: int) -> bool:
    """True if a value has only JSON's types, within bounds; its strings and long integers are not read.

    ``max_values`` also ends the walk through a small object that refers to its parts so often that its text
    would be endless.
    """
    if type(value) in _ATOMS:
        return True
    if type(value) is dict and max_depth > 0 and len(value) < max_values:
        # Most configs and outputs are an object of plain values, which needs no stack.
        for key, item in value.items():
            if type(key) is not str or type(item) not in _ATOMS:
                break
        else:
            return True
    # One iterator per open container: the stack is as high as the nesting, and nothing recurses.
    stack: list[Iterator[Any]] = [iter((value,))]
    while stack:
        for item in stack[-1]:
            kind = type(item)
            if kind in _ATOMS:
                continue
            if kind is float:
                if isfinite(item):
                    continue
                return False
            if isinstance(item, dict):
                for key in item:
                    if not isinstance(key, str):
                        return False
                children: Iterable[Any] = item.values()
            elif kind is list or kind is tuple or isinstance(item, list):
                # A named tuple is no array: it has names (``handlers.types.encoding``).
                children = item
            elif isinstance(item, (str, int)) or (isinstance(item, float) and isfinite(item)):
                continue
            else:
                return False
            max_values -= len(item) + 1
            if len(stack) > max_depth or max_values < 0:
                return False
            stack.append(iter(children))
            break
        else:
            stack.pop()
    return True


def find_fault(value: Json, *, max_values: int, max_depth: int) -> Fault:
    """Name the first thing that keeps a value from being a payload; call it only where there is one."""
    most_values = max_values
    path: list[str | int] = []
    stack: list[Iterator[tuple[str | int, Any]]] = []
    opened: dict[int, None] = {}  # the containers the path leads through, innermost last
    item = value
    while True:
        message = objection(item)
        if message is not None:
            return Fault("not_json", tuple(path), message)
        if isinstance(item, (dict, list, tuple)):
            if id(item) in opened:
                return Fault("not_json", tuple(path), "the value contains itself")
            if len(stack) >= max_depth:
                return Fault("too_deep", tuple(path), f"nested deeper than {max_depth} levels")
            max_values -= len(item) + 1
            if max_values < 0:
                return Fault("too_large", (), f"more than {most_values:,} values")
            opened[id(item)] = None
            stack.append(iter(item.items() if isinstance(item, dict) else enumerate(item)))
            path.append("")
        while stack:
            step = next(stack[-1], None)
            if step is not None:
                path[-1], item = step
                break
            stack.pop()
            opened.popitem()
            path.pop()
        else:
            return Fault("too_deep", (), "nested deeper than this process can write")


def objection(item: Any) -> str | None:
    """Return what is wrong with one value by itself, or None."""
    match item:
        case str():
            if not _is_unicode(item):
                return "a string holds half of a surrogate pair, which is not Unicode text"
        case float():
            if not isfinite(item):
                return f"JSON has no {float(item)}"
        case bool() | None | list():
            pass
        case tuple() if type(item) is tuple:
            pass
        case int():
            try:
                str(int(item))
            except ValueError:
                return f"an integer of more than {MAX_INTEGER_DIGITS:,} digits"
        case dict():
            for key in item:
                if not isinstance(key, str):
                    return f"a key must be a string, not {type(key).__name__}"
                if not _is_unicode(key):
                    return "a key holds half of a surrogate pair, which is not Unicode text"
        case _:
            return f"a value of type {type(item).__name__} is not JSON"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _as_builtin(value: Any) -> Any:
    """Return for msgspec the plain value of a subclass of str, int or float; numpy.float64 is one."""
    for builtin in (str, int, float):
        if isinstance(value, builtin):
            return builtin(value)
    raise AssertionError(f"{type(value).__name__} passed the check and cannot be encoded")


def _finite(text: str) -> float:
    """Return the number; raise ValueError, which msgspec turns into its own error, for one such as 1e999."""
    number = float(text)
    if not isfinite(number):
        raise ValueError("Number out of range")
    return number


_ENCODER = msgspec.json.Encoder(enc_hook=_as_builtin)
_CANONICAL = msgspec.json.Encoder(order="sorted", enc_hook=_as_builtin)
_DECODER = msgspec.json.Decoder()
_DECODER_OF_EXPONENTS = msgspec.json.Decoder(float_hook=_finite)
