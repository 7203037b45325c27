"""The filters of the expression language: ``FILTERS`` is the whole list, and the docs are made from it.

They behave as Jinja's filters of the same name do, with three differences. They take JSON values of the right
kind and fail on any other, where Jinja would guess. Text made of a value is JSON's (``true``, not ``True``).
And ``int`` and ``float`` fail on what is not a number, unless they are given a value to use instead: nobody
looks for the silent 0 that Jinja would give.
"""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, quote_plus

import msgspec

from weft.errors import EvaluationError
from weft.expressions.operators import checked, is_number, is_whole, kind, spend_search, text
from weft.expressions.undefined import Undefined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.core.payload import Json
    from weft.expressions.budget import Budget

    Delayed: TypeAlias = Callable[[], Json]

# Longer strings are no numbers; the bound keeps the attempt to read one cheap.
_LONGEST_NUMBER = 5_000

# The sender of the data can make the hashes of whole numbers from here up collide.
_FIRST_UNSAFE_HASH = 1 << 60

_encode_sorted = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: how it is written, what it gives, and the function behind it.

    The function takes the value, the budget, and the filter's own parameters. That of a ``lazy`` filter may
    get an ``Undefined``, and gets its arguments as functions, to be called where they are needed.
    """

    signature: str
    doc: str
    function: Callable[..., Json]
    lazy: bool = False

    @property
    def parameters(self) -> Sequence[inspect.Parameter]:
        return _parameters(self.function)


@cache
def _parameters(function: Callable[..., Json]) -> Sequence[inspect.Parameter]:
    return tuple(inspect.signature(function).parameters.values())[2:]


# --- arguments ------------------------------------------------------------------------------------


def _needs(name: str, what: str, value: Json) -> EvaluationError:
    return EvaluationError(f"{name} takes {what}, not {kind(value)}")


def _list(name: str, value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise _needs(name, "a list", value)
    return value


def _object(name: str, value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _needs(name, "an object", value)
    return value


def _string(name: str, value: Json) -> str:
    if not isinstance(value, str):
        hint = " (the filter string makes one)" if is_number(value) else ""
        raise EvaluationError(f"{name} takes a string, not {kind(value)}{hint}")
    return value


def _number(name: str, value: Json) -> Json:
    if not is_number(value):
        raise _needs(name, "a number", value)
    return value


def _whole(name: str, value: Json, *, at_least: int, at_most: int) -> int:
    if not is_whole(value):
        raise _needs(name, "a whole number", value)
    if not at_least <= value <= at_most:
        raise EvaluationError(f"{name} takes a whole number from {at_least:,} to {at_most:,}")
    return int(value)


def _flag(name: str, value: Json) -> bool:
    if not isinstance(value, bool):
        raise _needs(name, "true or false", value)
    return value


# --- undefined values -----------------------------------------------------------------------------


def _default(
    value: Json | Undefined, budget: Budget, default_value: Delayed = str, boolean: Delayed = bool
) -> Json:
    if isinstance(value, Undefined) or (_flag("boolean of default", boolean()) and not value):
        return default_value()
    return value


# --- lists, strings and objects -------------------------------------------------------------------


def _length(value: Json, budget: Budget) -> Json:
    if not isinstance(value, (list, str, dict)):
        raise _needs("length", "a list, an object or a string", value)
    return len(value)


def _end(name: str, index: int) -> Callable[[Json, Budget], Json]:
    def taken(value: Json, budget: Budget) -> Json:
        if not isinstance(value, (list, str)):
            raise _needs(name, "a list or a string", value)
        return value[index] if value else Undefined(name, f"the {kind(value)[2:]} is empty")

    return taken


def _keys(value: Json, budget: Budget) -> Json:
    budget.spend(len(_object("keys", value)))
    return list(value)


def _values(value: Json, budget: Budget) -> Json:
    budget.spend(len(_object("values", value)))
    return list(value.values())


def _items(value: Json, budget: Budget) -> Json:
    budget.spend(2 * len(_object("items", value)))
    return [[key, item] for key, item in value.items()]


def _picked(name: str, elements: list[Json], attribute: Json, budget: Budget) -> list[Json]:
    """Return each element's value under the attribute: a key, an index, or several with dots between."""
    if attribute is None:
        budget.spend(len(elements))
        return elements
    if is_whole(attribute):
        steps: list[str | int] = [attribute]
    else:
        path = _string(f"attribute of {name}", attribute)
        budget.spend(len(path))
        steps = [int(step) if step.isascii() and step.isdigit() else step for step in path.split(".")]
    budget.spend(len(elements) * len(steps))
    picked = []
    for position, element in enumerate(elements):
        found = element
        try:
            for step in steps:
                found = found[step]
        except (KeyError, IndexError, TypeError):
            raise EvaluationError(
                f"{name}: element {position} of the list has no {attribute!r:.80}"
            ) from None
        picked.append(found)
    return picked


def _comparable(name: str, values: list[Json], *, case_sensitive: Json, budget: Budget) -> list[Json]:
    """The values as keys of an order: all of them numbers, or all of them strings."""
    case_sensitive = _flag(f"case_sensitive of {name}", case_sensitive)
    if all(map(is_number, values)):
        return values
    keys = []
    for value in values:
        if not isinstance(value, str):
            kinds = sorted({kind(value) for value in values})
            raise EvaluationError(f"{name} takes only numbers or only strings, not {' and '.join(kinds)}")
        budget.spend_text(len(value))
        keys.append(value if case_sensitive else value.lower())
    return keys


def _sort(
    value: Json, budget: Budget, reverse: Json = False, case_sensitive: Json = False, attribute: Json = None
) -> Json:
    elements = _list("sort", value)
    picked = _picked("sort", elements, attribute, budget)
    keys = _comparable("sort", picked, case_sensitive=case_sensitive, budget=budget)
    # Each element is compared about log2(n) times, from its first character in the worst case.
    rounds = len(keys).bit_length()
    budget.spend(len(keys) * rounds // 2)
    budget.spend_text(rounds * sum(len(key) for key in keys if isinstance(key, str)))
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=_flag("reverse of sort", reverse))
    return [elements[position] for position in order]


def _identity(value: Json, *, case_sensitive: bool, budget: Budget) -> Any:
    """A hashable stand-in, the same for equal values and only for those."""
    match value:
        case bool():
            return (value,)  # or True would be found among the ones
        case str():
            budget.spend_text(len(value))
            return value if case_sensitive else value.lower()
        case float() if value.is_integer():
            return _identity(int(value), case_sensitive=case_sensitive, budget=budget)
        case int() if abs(value) >= _FIRST_UNSAFE_HASH:
            return ("int", hex(value))
        case list() | dict():
            budget.spend_tree(value)
            return _encode_sorted(value)
        case _:
            return value


def _unique(value: Json, budget: Budget, case_sensitive: Json = False, attribute: Json = None) -> Json:
    elements = _list("unique", value)
    sensitive = _flag("case_sensitive of unique", case_sensitive)
    first: dict[Any, Json] = {}
    for picked, element in zip(_picked("unique", elements, attribute, budget), elements, strict=True):
        first.setdefault(_identity(picked, case_sensitive=sensitive, budget=budget), element)
    return list(first.values())


def _extreme(name: str, choose: Callable[..., int]) -> Callable[..., Json]:
    def chosen(value: Json, budget: Budget, case_sensitive: Json = False, attribute: Json = None) -> Json:
        elements = _list(name, value)
        if not elements:
            return Undefined(name, "the list is empty")
        picked = _picked(name, elements, attribute, budget)
        keys = _comparable(name, picked, case_sensitive=case_sensitive, budget=budget)
        return elements[choose(range(len(keys)), key=keys.__getitem__)]

    return chosen


def _sum(value: Json, budget: Budget, attribute: Json = None, start: Json = 0) -> Json:
    numbers = _picked("sum", _list("sum", value), attribute, budget)
    for number in numbers:
        _number("sum", number)
    try:
        return checked(sum(numbers, start=_number("start of sum", start)))
    except OverflowError:
        raise EvaluationError("the result is too large for a number") from None


def _join(value: Json, budget: Budget, separator: Json = "", attribute: Json = None) -> Json:
    separator = _string("separator of join", separator)
    parts = []
    characters = 0
    for element in _picked("join", _list("join", value), attribute, budget):
        part = text(element, budget)
        characters += len(part)
        parts.append(part)
    budget.make_text(characters + len(separator) * max(len(parts) - 1, 0))
    return separator.join(parts)


# --- numbers --------------------------------------------------------------------------------------


def _abs(value: Json, budget: Budget) -> Json:
    return abs(_number("abs", value))


def _round(value: Json, budget: Budget, precision: Json = 0, method: Json = "common") -> Json:
    number = _number("round", value)
    digits = _whole("precision of round", precision, at_least=-300, at_most=300)
    try:
        if method == "common":
            return checked(round(number, digits))
        if method in ("ceil", "floor"):
            whole = math.ceil if method == "ceil" else math.floor
            return checked(whole(number * 10**digits) / 10**digits)
    except OverflowError:
        raise EvaluationError("the result is too large for a number") from None
    raise EvaluationError("method of round is 'common', 'ceil' or 'floor'")


def _read_int(value: Json) -> int:
    if not isinstance(value, str):
        return int(value)
    try:
        return int(value)
    except ValueError:
        return int(float(value))


def _converter(name: str, convert: Callable[[Json], Json]) -> Callable[..., Json]:
    def converted(value: Json, budget: Budget, default: Json = ...) -> Json:
        if isinstance(value, (bool, int, float)) or (
            isinstance(value, str) and len(value) <= _LONGEST_NUMBER
        ):
            try:
                return checked(convert(value))
            except (ValueError, OverflowError, EvaluationError):
                pass
        if default is not ...:
            return default
        shown = "this string" if isinstance(value, str) else kind(value)
        raise EvaluationError(f"{shown} is not a number; {name}(default) gives a value to use instead")

    return converted


# --- strings --------------------------------------------------------------------------------------


def _string_of(value: Json, budget: Budget) -> Json:
    return text(value, budget)


def _case(name: str, change: Callable[[str], str]) -> Callable[[Json, Budget], Json]:
    def changed(value: Json, budget: Budget) -> Json:
        string = _string(name, value)
        # Outside ASCII one letter may become three.
        budget.make_text(len(string) if string.isascii() else 3 * len(string))
        return change(string)

    return changed


def _trim(value: Json, budget: Budget, chars: Json = None) -> Json:
    string = _string("trim", value)
    budget.make_text(len(string))
    if chars is None:
        return string.strip()
    # Python looks each character up in the whole set of those to be trimmed.
    budget.spend(len(string) * min(len(_string("chars of trim", chars)), len(string)) >> 5)
    return string.strip(chars)


def _replace(value: Json, budget: Budget, old: Json, new: Json, count: Json = None) -> Json:
    string, old, new = _string("replace", value), _string("replace", old), _string("replace", new)
    spend_search(string, budget)
    found = string.count(old)
    if count is not None:
        found = min(found, _whole("count of replace", count, at_least=0, at_most=budget.max_text))
    spend_search(string, budget)
    budget.make_text(len(string) + found * (len(new) - len(old)))
    return string.replace(old, new, found)


def _truncate(
    value: Json,
    budget: Budget,
    length: Json = 255,
    killwords: Json = False,
    end: Json = "...",
    leeway: Json = 5,
) -> Json:
    string, end = _string("truncate", value), _string("end of truncate", end)
    length = _whole("length of truncate", length, at_least=len(end), at_most=budget.max_text)
    leeway = _whole("leeway of truncate", leeway, at_least=0, at_most=budget.max_text)
    killwords = _flag("killwords of truncate", killwords)
    if len(string) <= length + leeway:
        return string
    budget.make_text(length)
    kept = string[: length - len(end)]
    return (kept if killwords else kept.rsplit(" ", 1)[0]) + end


def _tojson(value: Json, budget: Budget) -> Json:
    if not isinstance(value, str):
        return text(value, budget)
    written = msgspec.json.encode(value).decode()
    budget.make_text(len(written))
    return written


def _urlencode(value: Json, budget: Budget) -> Json:
    def encoded(item: Json, quoted: Callable[..., str], safe: str) -> str:
        string = text(item, budget)
        size = len(string.encode())
        budget.spend(size)  # byte by byte, in Python
        budget.make_text(3 * size)
        return quoted(string, safe=safe)

    if not isinstance(value, dict):
        if isinstance(value, list):
            raise _needs("urlencode", "a string, a number or an object", value)
        return encoded(value, quote, "/")
    pairs = [f"{encoded(key, quote_plus, '')}={encoded(item, quote_plus, '')}" for key, item in value.items()]
    budget.make_text(sum(map(len, pairs)) + len(pairs))
    return "&".join(pairs)


_ORDER = "case_sensitive=false, attribute=none"

FILTERS: Mapping[str, Filter] = {
    "abs": Filter("abs", "the number without its sign", _abs),
    "default": Filter(
        "default(default_value='', boolean=false)",
        "the value, or default_value where it is undefined (with boolean=true also where it is falsy)",
        _default,
        lazy=True,
    ),
    "first": Filter("first", "the first element of a list or character of a string", _end("first", 0)),
    "float": Filter("float(default)", "a number or the text of one as a float", _converter("float", float)),
    "int": Filter(
        "int(default)", "a number or the text of one, without fraction", _converter("int", _read_int)
    ),
    "items": Filter("items", "the [key, value] pairs of an object", _items),
    "join": Filter("join(separator='', attribute=none)", "the elements as text, one behind the other", _join),
    "keys": Filter("keys", "the keys of an object", _keys),
    "last": Filter("last", "the last element of a list or character of a string", _end("last", -1)),
    "length": Filter("length", "the number of elements, keys or characters", _length),
    "lower": Filter("lower", "the string in lower case", _case("lower", str.lower)),
    "max": Filter(f"max({_ORDER})", "the largest element of a list", _extreme("max", max)),
    "min": Filter(f"min({_ORDER})", "the smallest element of a list", _extreme("min", min)),
    "replace": Filter("replace(old, new, count=none)", "the string with old replaced by new", _replace),
    "round": Filter(
        "round(precision=0, method='common')",
        "the number to so many decimals; method is common, ceil or floor",
        _round,
    ),
    "sort": Filter(f"sort(reverse=false, {_ORDER})", "the list in order, numbers or strings", _sort),
    "string": Filter("string", "the value as text: strings as they are, other values as JSON", _string_of),
    "sum": Filter("sum(attribute=none, start=0)", "the sum of a list of numbers", _sum),
    "tojson": Filter("tojson", "the value as compact JSON", _tojson),
    "trim": Filter("trim(chars=none)", "the string without white space, or chars, at its ends", _trim),
    "truncate": Filter(
        "truncate(length=255, killwords=false, end='...', leeway=5)",
        "the string cut to length, between words unless killwords; one longer by leeway at most stays whole",
        _truncate,
    ),
    "unique": Filter(f"unique({_ORDER})", "the list without repetitions, in the order of the first", _unique),
    "upper": Filter("upper", "the string in upper case", _case("upper", str.upper)),
    "urlencode": Filter(
        "urlencode", "the value quoted for a URL's path, or an object as a query string", _urlencode
    ),
    "values": Filter("values", "the values of an object", _values),
}
