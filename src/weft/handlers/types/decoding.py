"""A value of JSON becomes the type that a parameter is annotated with."""

from __future__ import annotations

import enum
import sys
from base64 import b64decode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from operator import itemgetter
from pathlib import PurePath
from typing import Any, TypeAlias, assert_never
from uuid import UUID

import msgspec

from weft.core.payload import Json, canonical
from weft.handlers.types.encoding import PathStep, to_json
from weft.handlers.types.shape import (
    Anything,
    Choice,
    Constrained,
    FixedTuple,
    Items,
    KeysAndValues,
    Members,
    Model,
    NumpyValue,
    OneOf,
    Record,
    Scalar,
    Shape,
    Unsupported,
    shape_of,
)

Decoder: TypeAlias = Callable[[Json], Any]

_MAX_MESSAGE_CHARACTERS = 300


class MisfitError(Exception):
    """A value does not fit a type. ``path`` leads to the part that does not; the value is never shown."""

    def __init__(self, reason: str, path: tuple[PathStep, ...] = ()) -> None:
        self.reason = reason
        self.path = path
        super().__init__(reason)

    def below(self, step: PathStep) -> MisfitError:
        """Return this error as one of the container that has the value at ``step``."""
        return MisfitError(self.reason, (step, *self.path))


def decoder_of(hint: Any) -> Decoder | None:
    """Return a function that makes a value of a hint or raises MisfitError; None: any value fits as it is."""
    shape = shape_of(hint)
    return None if isinstance(shape, (Anything, Unsupported)) else decode_shape(shape)


def decode_shape(shape: Shape) -> Decoder:
    """Return a function that makes a value of a shape or raises MisfitError."""
    return _DecoderCompiler().decoder(shape)


class _DecoderCompiler:
    """Makes the functions of one hint; a record that holds itself has one function."""

    def __init__(self) -> None:
        self._records: dict[int, Decoder] = {}

    def decoder(self, shape: Shape) -> Decoder:
        match shape:
            case Anything() | Unsupported():
                return _as_it_is
            case Scalar():
                return _scalar(shape)
            case NumpyValue():
                return partial(_numpy, shape)
            case Items():
                item = self.decoder(shape.item)
                return partial(_items, None if item is _as_it_is else item, shape.make)
            case FixedTuple():
                return partial(_tuple, [self.decoder(item) for item in shape.items])
            case KeysAndValues():
                key, value = self._key(shape.key), self.decoder(shape.value)
                return partial(_dict, key, None if value is _as_it_is else value, shape.make)
            case Record():
                return self._record(shape)
            case OneOf():
                return self._union(shape)
            case Choice():
                return _choice(shape.values)
            case Members():
                return _enum(shape)
            case Model():
                return _model(shape.annotation)
            case Constrained():
                return partial(_constrained, self.decoder(shape.inner), shape.constraints)
            case _:
                assert_never(shape)

    def _key(self, shape: Shape) -> Callable[[str], Any] | None:
        if isinstance(shape, Anything) or (isinstance(shape, Scalar) and shape.cls is str):
            return None
        return partial(_key_of, self.decoder(shape))

    def _record(self, record: Record) -> Decoder:
        known = self._records.get(id(record))
        if known is None:
            decoders: list[Decoder] = []
            known = self._records[id(record)] = partial(_record, record, decoders)
            decoders.extend(self.decoder(each.shape) for each in record.fields)
        return known

    def _union(self, union: OneOf) -> Decoder:
        members = [(shape, self.decoder(shape)) for shape in union.members]
        for shape, decode in members:
            if decode is _as_it_is and not isinstance(shape, Unsupported):
                return _as_it_is
        return partial(_one_of, members)


def kind_of(value: Json) -> str:
    """Name the kind of a JSON value."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"


def _as_it_is(value: Json) -> Any:
    return value


def _expected(what: str, value: Json) -> MisfitError:
    return MisfitError(f"{kind_of(value)} where {what} is expected")


def _scalar(shape: Scalar) -> Decoder:
    read = _READERS[shape.base]
    if shape.cls is shape.base or shape.base in (datetime, date, time, PurePath):
        return partial(read, shape.cls)
    return partial(_subclass, read, shape)


def _subclass(read: Callable[[Any, Json], Any], shape: Scalar, value: Json) -> Any:
    try:
        return shape.cls(read(shape.base, value))
    except (TypeError, ValueError, ArithmeticError):
        raise _expected(shape.cls.__name__, value) from None


def _none(cls: type, value: Json) -> None:
    if value is not None:
        raise _expected("null", value)


def _bool(cls: type, value: Json) -> bool:
    if not isinstance(value, bool):
        raise _expected("a boolean", value)
    return value


def _int(cls: type, value: Json) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # JSON has one kind of number, and some of its writers add a point.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _expected("an integer", value)


def _float(cls: type, value: Json) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise MisfitError("a number too large for a float") from None
    raise _expected("a number", value)


def _str(cls: type, value: Json) -> str:
    if not isinstance(value, str):
        raise _expected("a string", value)
    return value


def _bytes(cls: Callable[[bytes], Any], value: Json) -> Any:
    if isinstance(value, str):
        try:
            return cls(b64decode(value, validate=True))
        except ValueError:
            raise MisfitError("a string that is not base64") from None
    raise _expected("a string in base64", value)


def _iso(what: str, cls: Any, value: Json) -> Any:
    if isinstance(value, str):
        try:
            return cls.fromisoformat(value)
        except ValueError:
            raise MisfitError(f"a string that is not {what}") from None
    raise _expected(f"{what} as a string", value)


def _timedelta(cls: type, value: Json) -> timedelta:
    if isinstance(value, str):
        try:
            return msgspec.convert(value, timedelta)
        except msgspec.ValidationError:
            raise MisfitError("a string that is not a duration of ISO 8601") from None
    raise _expected("a duration of ISO 8601 as a string", value)


def _decimal(cls: type, value: Json) -> Decimal:
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        try:
            number = Decimal(str(value))
        except ArithmeticError:
            raise MisfitError("a string that is not a decimal number") from None
        if number.is_finite():
            return number
    raise _expected("a decimal number", value)


def _uuid(cls: type, value: Json) -> UUID:
    if isinstance(value, str):
        try:
            return UUID(value)
        except ValueError:
            raise MisfitError("a string that is not a UUID") from None
    raise _expected("a UUID as a string", value)


def _file_path(cls: Callable[[str], Any], value: Json) -> Any:
    if not isinstance(value, str):
        raise _expected("a path as a string", value)
    return cls(value)


_READERS: dict[type, Callable[[Any, Json], Any]] = {
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    bytearray: _bytes,
    datetime: partial(_iso, "a date and time of ISO 8601"),
    date: partial(_iso, "a date of ISO 8601"),
    time: partial(_iso, "a time of ISO 8601"),
    timedelta: _timedelta,
    Decimal: _decimal,
    UUID: _uuid,
    PurePath: _file_path,
}


def _numpy(shape: NumpyValue, value: Json) -> Any:
    try:
        return shape.make(value)
    except (TypeError, ValueError, OverflowError):
        what = "an array of numbers" if shape.is_array else "a number"
        raise _expected(what, value) from None


def _items(decode: Decoder | None, make: Callable[[list[Any]], Any] | None, value: Json) -> Any:
    if not isinstance(value, list):
        raise _expected("an array", value)
    made = value if decode is None else [_at(index, decode, item) for index, item in enumerate(value)]
    return made if make is None else _made(make, made)


def _tuple(decoders: list[Decoder], value: Json) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _expected("an array", value)
    if len(value) != len(decoders):
        raise MisfitError(f"an array of {len(value)} where {len(decoders)} values are expected")
    return tuple(
        _at(index, decode, item) for index, (decode, item) in enumerate(zip(decoders, value, strict=True))
    )


def _dict(
    read_key: Callable[[str], Any] | None,
    decode: Decoder | None,
    make: Callable[[dict[Any, Any]], Any] | None,
    value: Json,
) -> Any:
    if not isinstance(value, dict):
        raise _expected("an object", value)
    made: dict[Any, Any] = value
    if read_key is not None or decode is not None:
        made = {
            (key if read_key is None else _at(key, read_key, key)): (
                item if decode is None else _at(key, decode, item)
            )
            for key, item in value.items()
        }
    return made if make is None else _made(make, made)


def _made(make: Callable[[Any], Any], value: Any) -> Any:
    try:
        return make(value)
    except (TypeError, ValueError) as error:  # elements without a hash; a class of the user's that refuses
        raise MisfitError(f"a value that {_name(make)} refuses: {_text(error)}") from None


def _key_of(decode: Decoder, key: str) -> Any:
    """Read a key as the text of a value, or where that does not fit as the value in JSON."""
    try:
        return decode(key)
    except MisfitError as misfit:
        try:
            return decode(msgspec.json.decode(key.encode()))
        except (MisfitError, msgspec.DecodeError, UnicodeError):
            raise MisfitError(f"a key that does not fit: {misfit.reason}") from None


def _record(record: Record, decoders: list[Decoder], value: Json) -> Any:
    if record.is_array and isinstance(value, list):
        value = _keyed(record, value)
    if not isinstance(value, dict):
        raise _expected(f"an object, {record.cls.__name__},", value)
    if record.tag is not None and value.get(record.tag[0], record.tag[1]) != record.tag[1]:
        raise MisfitError(f"an object that is no {record.cls.__name__}, by its {record.tag[0]!r}")
    arguments: dict[str, Any] = dict(value) if record.keeps_unknown else {}
    for each, decode in zip(record.fields, decoders, strict=True):
        if each.key in value:
            if each.is_argument:
                arguments[each.name] = _at(each.key, decode, value[each.key])
        elif each.is_required:
            raise MisfitError(f"an object without {each.key!r}, which {record.cls.__name__} needs")
    if record.forbids_unknown:
        unknown = value.keys() - known_keys(record)
        if unknown:
            raise MisfitError(f"an object with {min(unknown)!r:.80}, which {record.cls.__name__} forbids")
    try:
        return record.make(**arguments)
    except (TypeError, ValueError) as error:
        # The class's own checks, such as those of __post_init__.
        raise MisfitError(f"an object that {record.cls.__name__} refuses: {_text(error)}") from None


def _keyed(record: Record, value: list[Json]) -> dict[str, Json]:
    keys = [each.key for each in record.fields]
    if record.tag is not None:
        keys.insert(0, record.tag[0])
    return dict(zip(keys, value, strict=False))


def known_keys(record: Record) -> set[str]:
    """Return the keys that an object of a record may have."""
    return {each.key for each in record.fields} | ({record.tag[0]} if record.tag is not None else set())


def _one_of(members: list[tuple[Shape, Decoder]], value: Json) -> Any:
    """Return the value as the first member, from the left, that it fits.

    A number stays an integer or a float where both are members; an object goes to the class that leaves the
    fewest of its keys unread.
    """
    ordered = members
    if isinstance(value, dict):
        ranked = [(_unread(shape, value), each) for each in members for shape in each[:1]]
        ordered = [each for _, each in sorted(ranked, key=itemgetter(0))]
    elif isinstance(value, (bool, int, float)):
        kind = type(value)
        ordered = sorted(members, key=lambda each: not (isinstance(each[0], Scalar) and each[0].cls is kind))
    misfits = []
    for shape, decode in ordered:
        if isinstance(shape, Unsupported):
            continue
        try:
            return decode(value)
        except MisfitError as misfit:
            misfits.append(misfit)
    # What came furthest is most likely what was meant.
    if misfits:
        raise max(misfits, key=lambda misfit: len(misfit.path))
    return value


def _unread(shape: Shape, value: dict[str, Json]) -> int:
    if isinstance(shape, Record):
        return len(value.keys() - known_keys(shape))
    if isinstance(shape, Model):
        fields = getattr(shape.annotation, "model_fields", None) or {}
        names = {*fields, *(each.alias for each in fields.values() if each.alias)}
        return len(value.keys() - names) if names else 0
    return 0


def _choice(values: tuple[Any, ...]) -> Decoder:
    by_text = {canonical(_plain(each)): each for each in values}
    shown = ", ".join(repr(each) for each in values)[:200]
    return partial(_listed, by_text, f"one of {shown}")


def _enum(shape: Members) -> Decoder:
    cls = shape.cls
    if issubclass(cls, enum.Flag):
        return partial(_flag, cls)
    by_text = {canonical(_plain(each)): each for each in cls.__members__.values()}
    shown = ", ".join(repr(each.value) for each in cls)[:200]
    return partial(_listed, by_text, f"a value of {cls.__name__}, one of {shown}")


def _plain(value: Any) -> Json:
    return to_json(value, max_values=10_000, max_depth=100)


def _listed(by_text: dict[bytes, Any], what: str, value: Json) -> Any:
    try:
        return by_text[canonical(value)]
    except KeyError:
        raise MisfitError(f"{kind_of(value)} that is not {what}") from None


def _flag(cls: Callable[[int], Any], value: Json) -> Any:
    try:
        return cls(_int(int, value))
    except ValueError:
        raise MisfitError(f"a number that is not of {_name(cls)}") from None


def _model(annotation: Any) -> Decoder:
    pydantic = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(annotation)
    except (pydantic.errors.PydanticUserError, NameError):  # a type that pydantic does not know either
        return _as_it_is
    return partial(_validated, adapter, pydantic.ValidationError)


def _validated(adapter: Any, refusal: type[Exception], value: Json) -> Any:
    try:
        # As JSON: pydantic then accepts texts for moments and lists for sets in strict models, too.
        return adapter.validate_json(msgspec.json.encode(value))
    except refusal as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]  # type: ignore[attr-defined]
        path = tuple(step if isinstance(step, int) else str(step) for step in first["loc"])
        raise MisfitError(f"{kind_of(_under(value, path))} that does not fit: {first['msg']}", path) from None


def _under(value: Json, path: tuple[PathStep, ...]) -> Json:
    for step in path:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return value
    return value


def _constrained(decode: Decoder, constraints: Any, value: Json) -> Any:
    made = decode(value)
    try:
        msgspec.convert(made, constraints)
    except msgspec.ValidationError as error:
        raise MisfitError(f"{kind_of(value)} that does not fit: {_text(error)}") from None
    return made


def _at(step: PathStep, decode: Callable[[Any], Any], value: Json) -> Any:
    try:
        return decode(value)
    except MisfitError as misfit:
        raise misfit.below(step) from None


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", function))[:80]


def _text(error: Exception) -> str:
    return str(error)[:_MAX_MESSAGE_CHARACTERS]
