"""A type hint read into a tree of shapes: what JSON the type is written as, and how a value is made of it."""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
import typing
from collections import abc, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

# The types that are one JSON value that is no object and no array; subclasses count as their base.
_SCALARS = (
    *(bool, int, float, str, type(None), bytes, bytearray),
    *(datetime, date, time, timedelta, Decimal, UUID, PurePath),
)


@dataclass(frozen=True, slots=True, eq=False)
class Anything:
    """Every value, as it is."""


@dataclass(frozen=True, slots=True, eq=False)
class Unsupported:
    """A class that weft cannot make from JSON."""

    cls: Any


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """One of ``_SCALARS``, or a subclass of it."""

    base: type
    cls: type


@dataclass(frozen=True, slots=True, eq=False)
class NumpyValue:
    """An array or a scalar of numpy, made by ``make``."""

    make: Callable[[Any], Any]
    is_array: bool


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """An array of any length; ``make`` turns the list into what the hint asks for."""

    item: Shape
    make: Callable[[list[Any]], Any] | None
    is_set: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FixedTuple:
    items: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, eq=False)
class KeysAndValues:
    key: Shape
    value: Shape
    make: Callable[[dict[Any, Any]], Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    # The key in JSON, and the name of the argument or attribute.
    key: str
    name: str
    shape: Shape
    is_required: bool
    # False: it is written, and computed again when the object is made.
    is_argument: bool = True


@dataclass(slots=True, eq=False)
class Record:
    """A class with named fields, written as an object. A class may hold itself, so ``fields`` come later."""

    cls: type
    make: Callable[..., Any]
    fields: tuple[Field, ...] = ()
    # Only for structs: the key and the value that tell them from others, and whether they are arrays.
    tag: tuple[str, str | int] | None = None
    is_array: bool = False
    forbids_unknown: bool = False
    # Only for typed dicts: keys that the hint does not name stay.
    keeps_unknown: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class OneOf:
    members: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The values of a ``Literal``."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    cls: type[enum.Enum]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A type of pydantic, or one with pydantic's constraints: pydantic reads it."""

    annotation: Any


@dataclass(frozen=True, slots=True, eq=False)
class Constrained:
    """A type with constraints of msgspec, which checks them on the value that was made."""

    inner: Shape
    constraints: Any = field(repr=False)


Shape: TypeAlias = (
    Anything
    | Unsupported
    | Scalar
    | NumpyValue
    | Items
    | FixedTuple
    | KeysAndValues
    | Record
    | OneOf
    | Choice
    | Members
    | Model
    | Constrained
)

_Bindings: TypeAlias = Mapping[Any, Any]

_ANYTHING = Anything()
# What a hint of an abstract class is given.
_LISTS = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable})
_SETS = frozenset({abc.Set, abc.MutableSet})
_DICTS = frozenset({dict, abc.Mapping, abc.MutableMapping})
_QUALIFIERS = {typing.Required, typing.NotRequired, typing.Final, typing.ClassVar}


def shape_of(hint: Any) -> Shape:
    """Return the shape of a resolved type hint."""
    return _HintReader().read(hint, {})


class _HintReader:
    """Reads one hint. A class that holds itself is read once."""

    def __init__(self) -> None:
        self._records: dict[Any, Record] = {}

    def read(self, hint: Any, bindings: _Bindings) -> Shape:
        hint = _unwrapped(hint, bindings)
        if hint is Any or hint is object:
            return _ANYTHING
        if hint is typing.LiteralString:
            return Scalar(str, str)
        if hint is None:
            return Scalar(type(None), type(None))
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin is typing.Annotated:
            return self._annotated(hint, bindings)
        if origin in _QUALIFIERS:
            return self.read(arguments[0], bindings)
        if origin is typing.Literal:
            return Choice(arguments)
        if origin is typing.Union or origin is types.UnionType:
            return OneOf(tuple(self.read(member, bindings) for member in arguments))
        cls = origin or hint
        if not isinstance(cls, type):
            return _ANYTHING
        if _is_pydantic(cls):
            return Model(hint)
        return self._class(cls, hint, arguments, bindings)

    def _class(self, cls: type, hint: Any, arguments: tuple[Any, ...], bindings: _Bindings) -> Shape:
        if issubclass(cls, enum.Enum):
            return Members(cls)
        numpy = _numpy_value(cls, arguments)
        if numpy is not None:
            return numpy
        if cls is tuple and arguments and arguments[-1] is not Ellipsis:
            items = () if arguments == ((),) else arguments
            return FixedTuple(tuple(self.read(item, bindings) for item in items))
        if typing.is_typeddict(cls) or dataclasses.is_dataclass(cls) or _is_named_tuple(cls):
            return self._record(cls, hint, arguments, bindings)
        if issubclass(cls, msgspec.Struct):
            return self._record(cls, hint, arguments, bindings)
        if cls in _LISTS or cls in _SETS or issubclass(cls, (list, tuple, set, frozenset)):
            item = self.read(arguments[0], bindings) if arguments else _ANYTHING
            return Items(item, _make_items(cls), is_set=cls in _SETS or issubclass(cls, (set, frozenset)))
        if cls in _DICTS or issubclass(cls, dict):
            # A Counter has one argument, its key; its values are numbers.
            key, value = (*arguments, Any, Any)[:2]
            return KeysAndValues(self.read(key, bindings), self.read(value, bindings), _make_dict(cls))
        for base in _SCALARS:
            if issubclass(cls, base):
                return Scalar(base, cls)
        if getattr(cls, "_is_protocol", False):
            return _ANYTHING
        # An abstract class, such as numbers.Number, may well be met by a value of JSON.
        return _ANYTHING if getattr(cls, "__abstractmethods__", None) else Unsupported(cls)

    def _annotated(self, hint: Any, bindings: _Bindings) -> Shape:
        inner, *metadata = typing.get_args(hint)
        homes = {type(each).__module__.partition(".")[0] for each in metadata}
        if homes & {"pydantic", "annotated_types"} and "pydantic" in sys.modules:
            return Model(hint)
        shape = self.read(inner, bindings)
        constraints = [each for each in metadata if isinstance(each, msgspec.Meta)]
        if not constraints:
            return shape
        made = typing.get_origin(inner) or inner
        checked: Any = made
        for constraint in constraints:
            checked = typing.Annotated[checked, constraint]
        return Constrained(shape, checked)

    def _record(self, cls: type, hint: Any, arguments: tuple[Any, ...], bindings: _Bindings) -> Record:
        arguments = tuple(_unwrapped(argument, bindings) for argument in arguments)
        known = self._records.get((cls, arguments))
        if known is not None:
            return known
        record = self._records[cls, arguments] = Record(cls, cls)
        parameters = getattr(cls, "__parameters__", ())
        inner = dict(zip(parameters, arguments, strict=False))
        hints = _hints_of_class(cls)
        shapes = {name: self.read(each, inner) for name, each in hints.items()}
        if typing.is_typeddict(cls):
            record.make, record.keeps_unknown = dict, True
            record.fields = tuple(
                Field(name, name, shape, _is_required_key(cls, name, hints[name]))
                for name, shape in shapes.items()
            )
        elif issubclass(cls, msgspec.Struct):
            _read_struct(record, shapes)
        elif dataclasses.is_dataclass(cls):
            missing = dataclasses.MISSING
            record.fields = tuple(
                Field(
                    each.name,
                    each.name,
                    shapes.get(each.name, _ANYTHING),
                    each.init and each.default is missing and each.default_factory is missing,
                    is_argument=each.init,
                )
                for each in dataclasses.fields(cls)
            )
        else:
            defaults = getattr(cls, "_field_defaults", {})
            record.fields = tuple(
                Field(name, name, shapes.get(name, _ANYTHING), name not in defaults)
                for name in getattr(cls, "_fields", ())
            )
        return record


def _unwrapped(hint: Any, bindings: _Bindings) -> Any:
    """Return what an alias, a NewType or a type variable stands for."""
    while True:
        if isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        elif isinstance(hint, typing.TypeVar):
            bound = hint.__bound__ if hint.__bound__ is not None else Any
            hint, bindings = bindings.get(hint, bound), {}
        elif type(hint).__name__ == "TypeAliasType":
            hint = hint.__value__
        elif type(typing.get_origin(hint)).__name__ == "TypeAliasType":
            alias = typing.get_origin(hint)
            hint = alias.__value__[typing.get_args(hint)]
        else:
            return hint


def _is_pydantic(cls: type) -> bool:
    # A model, a dataclass of pydantic's, or a class that tells pydantic how to read it.
    return "pydantic" in sys.modules and (
        hasattr(cls, "__pydantic_validator__") or hasattr(cls, "__get_pydantic_core_schema__")
    )


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and hasattr(cls, "_fields")


def _numpy_value(cls: type, arguments: tuple[Any, ...]) -> NumpyValue | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if issubclass(cls, numpy.ndarray):
        scalars = typing.get_args(arguments[1]) if len(arguments) > 1 else ()
        dtype = scalars[0] if scalars and isinstance(scalars[0], type) else None
        return NumpyValue(lambda value: numpy.asarray(value, dtype=dtype), is_array=True)
    if issubclass(cls, numpy.generic):
        return NumpyValue(cls, is_array=False)
    return None


def _make_items(cls: type) -> Callable[[list[Any]], Any] | None:
    if cls in _LISTS:
        return None
    return set if cls in _SETS else cls


def _make_dict(cls: type) -> Callable[[dict[Any, Any]], Any] | None:
    if cls in _DICTS:
        return None
    if issubclass(cls, defaultdict):
        return lambda value: cls(None, value)
    return cls


def _hints_of_class(cls: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except Exception:  # a name for type checkers alone: the fields take what comes
        return {}


def _is_required_key(cls: Any, name: str, hint: Any) -> bool:
    # The class itself misreads a qualifier that is written in an annotation of text.
    origin = typing.get_origin(hint)
    return origin is not typing.NotRequired and (origin is typing.Required or name in cls.__required_keys__)


def _read_struct(record: Record, shapes: Mapping[str, Shape]) -> None:
    cls = record.cls
    config: Any = cls.__struct_config__  # type: ignore[attr-defined]
    record.tag = None if config.tag is None else (str(config.tag_field), config.tag)
    record.is_array = config.array_like
    record.forbids_unknown = config.forbid_unknown_fields
    record.fields = tuple(
        Field(each.encode_name, each.name, shapes.get(each.name, _ANYTHING), each.required)
        for each in msgspec.structs.fields(cls)
    )
