"""A returned value becomes JSON by the rules of ``docs/howto/types.md``.

``msgspec.to_builtins`` alone would not do: it writes named tuples as arrays and sets in the order of their
hashes, lets two keys become one, and keeps NaN. Pydantic and numpy are looked up among the loaded modules and
never imported: a value of theirs can only come from a program that has loaded them.
"""

from __future__ import annotations

import dataclasses
import sys
from base64 import b64encode
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from inspect import isawaitable, isgenerator
from math import isfinite
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from weft.core.payload import MAX_INTEGER_DIGITS, Json, canonical, objection
from weft.errors import PayloadError

PathStep: TypeAlias = str | int

# A set of these is ordered as Python orders them, other sets by the JSON of their elements.
_ORDERED = (str, int, float, Decimal, date, time, timedelta, UUID, PurePath, bytes)

# What a message advises, by the module and the name of the type.
_ADVICE = {
    ("pandas", "DataFrame"): 'return frame.to_dict("records")',
    ("pandas", "Series"): "return series.to_list()",
    ("pandas", "Index"): "return index.to_list()",
    ("pandas", "NAType"): "return None",
    ("pandas", "NaTType"): "return None",
    ("polars", "DataFrame"): "return frame.to_dicts()",
    ("polars", "LazyFrame"): "return frame.collect().to_dicts()",
    ("polars", "Series"): "return series.to_list()",
    ("pyarrow", "Table"): "return table.to_pylist()",
}


_UNWRITABLE = {
    str: ("a string that holds half of a surrogate pair, which is not Unicode text", "return other text"),
    int: (f"an integer of more than {MAX_INTEGER_DIGITS:,} digits", "return it as a string"),
}


def to_json(value: Any, *, max_values: int, max_depth: int) -> Json:
    """Return a value as JSON values, or raise PayloadError with the path of the part that is not JSON."""
    return _Encoding(max_values, max_depth).plain(value)


def path_text(path: Iterable[PathStep]) -> str:
    """Write the path to a part of a value: ``$.orders[3].price``."""
    text = "$"
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if step.isidentifier() else f"[{step!r:.80}]"
    return text


class _Encoding:
    """One conversion: the path that it is at, and how much it may still write."""

    def __init__(self, max_values: int, max_depth: int) -> None:
        self._max_values = self._values_left = max_values
        self._max_depth = max_depth
        self._path: list[PathStep] = []
        # The containers that the path leads through, by id.
        self._open: set[int] = set()

    def plain(self, value: Any) -> Json:
        kind = type(value)
        if kind is str or kind is int or kind is float or kind is bool or value is None:
            return self._scalar(value)
        if isinstance(value, Enum):
            return self._inside(value, self.plain, value.value)
        if isinstance(value, (str, int, float)):
            # The methods of a subclass, numpy.float64 among them, are its own affair.
            return self._scalar(_builtin(value))
        text = _text_of(value)
        if text is not None:
            return text
        if isinstance(value, Decimal):
            if not value.is_finite():
                raise self._not_json(f"the Decimal {value}", "return None")
            return str(value)
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return self._inside(value, self._container, value)
        return self._inside(value, self._instance, value)

    def _scalar(self, value: Any) -> Json:
        if isinstance(value, float):
            if not isfinite(value):
                raise self._not_json(f"{value}, which JSON does not have", "return None")
        elif objection(value) is not None:
            raise self._not_json(*_UNWRITABLE[type(value)])
        return value

    def _inside(self, owner: Any, convert: Callable[[Any], Json], value: Any) -> Json:
        """Convert what lies in a container, within the bounds of depth and size."""
        if id(owner) in self._open:
            raise self._not_json("a value that contains itself", "return a copy without the cycle")
        if len(self._open) >= self._max_depth:
            raise PayloadError(
                "too_deep", f"{path_text(self._path)[:200]} is nested deeper than {self._max_depth} levels"
            )
        self._open.add(id(owner))
        plain = convert(value)
        self._open.discard(id(owner))
        return plain

    def _container(self, value: Any) -> Json:
        self._count(len(value))
        if isinstance(value, dict):
            return self._object(value.items())
        if isinstance(value, (set, frozenset)):
            return [plain for _, plain in self._sorted(value)]
        names = getattr(value, "_fields", None)
        if isinstance(value, tuple) and isinstance(names, tuple):
            return self._object(zip(names, value, strict=True))
        return [self._at(index, item) for index, item in enumerate(value)]

    def _instance(self, value: Any) -> Json:
        if isinstance(value, type):
            raise self._unknown(value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value)
        pydantic = sys.modules.get("pydantic")
        if pydantic is not None and hasattr(type(value), "__pydantic_serializer__"):
            return self._model(value)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            self._count(len(names))
            return self._object((name, getattr(value, name)) for name in names)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._numpy(value, numpy)
        raise self._unknown(value)

    def _object(self, items: Iterable[tuple[Any, Any]]) -> dict[str, Json]:
        plain: dict[str, Json] = {}
        for key, item in items:
            text = key if type(key) is str else self._key(key)
            if text in plain:
                raise self._not_json(
                    f"an object with two keys that become {text!r:.80}", "return different keys"
                )
            if objection(text) is not None:
                raise self._not_json("an object with a key that is not Unicode text", "return another key")
            plain[text] = self._at(text, item)
        return plain

    def _at(self, step: PathStep, item: Any) -> Json:
        self._path.append(step)
        plain = self.plain(item)
        self._path.pop()
        return plain

    def _key(self, key: Any) -> str:
        while isinstance(key, Enum):
            key = key.value
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, str):
            return str.__str__(key)
        if isinstance(key, int):
            return int.__repr__(key)
        if isinstance(key, float) and isfinite(key):
            return float.__repr__(key)
        if isinstance(key, Decimal) and key.is_finite():
            return str(key)
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(key, (numpy.integer, numpy.floating, numpy.bool_)):
            return self._key(key.item())
        text = _text_of(key)
        if text is None:
            what = f"an object with a key that is {_described_type(key)}"
            raise self._not_json(what, "return strings or numbers as keys")
        return text

    def _sorted(self, elements: Iterable[Any]) -> list[tuple[Any, Json]]:
        """Return the elements of a set with their JSON, in an order that is the same in every process."""
        pairs = [(element, self._at(index, element)) for index, element in enumerate(elements)]
        first = type(pairs[0][0]) if pairs else str
        if issubclass(first, _ORDERED) and all(type(element) is first for element, _ in pairs):
            try:
                return sorted(pairs, key=lambda pair: pair[0])
            except TypeError:  # moments with a zone and without one
                pass
        return sorted(pairs, key=lambda pair: _json_order(pair[1]))

    def _struct(self, value: msgspec.Struct) -> Json:
        config = value.__struct_config__
        names = value.__struct_encode_fields__
        self._count(len(names))
        given = zip(names, (getattr(value, name) for name in value.__struct_fields__), strict=True)
        if config.array_like:
            tag = [] if config.tag is None else [config.tag]
            return tag + [self._at(index, item) for index, (_, item) in enumerate(given, len(tag))]
        fields = ((name, item) for name, item in given if item is not msgspec.UNSET)
        tagged = {} if config.tag is None else {str(config.tag_field): config.tag}
        return {**tagged, **self._object(fields)}

    def _model(self, value: Any) -> Json:
        """Write a pydantic model as pydantic does: its aliases and serializers are part of the type."""
        model: Any = type(value)
        adapter = _adapter(model)
        try:
            plain = adapter.dump_python(value, mode="json", by_alias=True)
            if _has_sets(model):
                plain = _with_sorted_sets(plain, adapter.dump_python(value, by_alias=True))
        except Exception as error:
            reason = f"{_described_type(value)} that pydantic cannot write: {str(error)[:300]}"
            raise self._not_json(reason, "give the field a type or a serializer that writes JSON") from None
        return self.plain(plain)

    def _numpy(self, value: Any, numpy: Any) -> Json:
        kind = value.dtype.kind
        if kind in "bifuUSO" or (kind == "V" and value.dtype.names is None):
            self._count(value.size)
            return self.plain(value.tolist())
        if kind == "M" and not numpy.isnat(value).any():
            return self.plain(numpy.datetime_as_string(value).tolist())
        raise self._not_json(f"a numpy value of dtype {value.dtype}", "return numbers, strings or lists")

    def _count(self, values: int) -> None:
        self._values_left -= values + 1
        if self._values_left < 0:
            raise PayloadError("too_large", f"more than {self._max_values:,} values")

    def _unknown(self, value: Any) -> PayloadError:
        return self._not_json(_described_type(value), _advice(value))

    def _not_json(self, what: str, advice: str) -> PayloadError:
        return PayloadError("not_json", f"{path_text(self._path)[:300]} is {what}; {advice} instead")


def _builtin(value: str | float) -> str | float:
    for base in (str, int, float):
        if isinstance(value, base):
            return base(value)
    raise AssertionError(f"{type(value).__name__} is no string and no number")


def _text_of(value: Any) -> str | None:
    """Return the text that stands for a value of a type which JSON writes as a string, else None."""
    if isinstance(value, datetime):
        # NaT of pandas is a datetime, and equals nothing.
        return iso_datetime(value) if value == value else None
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        text = msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))
        return str(text)
    if isinstance(value, (UUID, PurePath)):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return b64encode(value).decode()
    return None


def iso_datetime(value: datetime) -> str:
    """Write a moment as ISO 8601; UTC is ``Z``, as in every time that weft shows."""
    text = datetime.isoformat(value)
    return text.removesuffix("+00:00") + "Z" if value.utcoffset() == timedelta(0) else text


@cache
def _adapter(model: Hashable) -> Any:
    return sys.modules["pydantic"].TypeAdapter(model)


@cache
def _has_sets(model: Hashable) -> bool:
    try:
        return "uniqueItems" in str(_adapter(model).json_schema(mode="serialization"))
    except Exception:  # a model with a field that no JSON Schema describes
        return True


def _with_sorted_sets(plain: Json, dumped: Any) -> Json:
    """Sort the lists of a model that were sets: pydantic writes sets in the order of their hashes."""
    if isinstance(dumped, (set, frozenset)) and isinstance(plain, list):
        return sorted(plain, key=_json_order)
    if isinstance(dumped, dict) and isinstance(plain, dict):
        # Both have the same keys in the same order, but for keys that are no strings.
        items: Iterator[tuple[str, Any]] = zip(plain, dumped.values(), strict=False)
        return {key: _with_sorted_sets(plain[key], item) for key, item in items}
    if isinstance(dumped, (list, tuple)) and isinstance(plain, list) and len(plain) == len(dumped):
        return [_with_sorted_sets(item, other) for item, other in zip(plain, dumped, strict=True)]
    return plain


def _json_order(item: Json) -> tuple[int, Any]:
    """Return the place of a JSON value among all: of strings, numbers and arrays their own order."""
    match item:
        case str():
            return 0, item
        case list():
            return 2, [_json_order(each) for each in item]
        case bool() | None:
            return 3, canonical(item)
        case int() | float():
            return 1, item
    return 4, canonical(item)


def _described_type(value: Any) -> str:
    kind = value if isinstance(value, type) else type(value)
    module = kind.__module__.partition(".")[0]
    name = kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"
    return f"the class {name}" if isinstance(value, type) else f"a value of type {name}"


def _advice(value: Any) -> str:
    kind = type(value)
    for base in kind.__mro__:
        advice = _ADVICE.get((base.__module__.partition(".")[0], base.__name__))
        if advice is not None:
            return advice
    if isawaitable(value):
        return "await it, and return its result"
    if isinstance(value, Mapping):
        return "return dict(value)"
    if isgenerator(value) or isinstance(value, Iterable):
        return "return list(value)"
    if isinstance(value, complex):
        return "return [value.real, value.imag]"
    return "return a dict, a dataclass or a string"
