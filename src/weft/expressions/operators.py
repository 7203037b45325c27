"""The operators of the expression language, on JSON values alone.

Numbers are ``int`` and ``float``, exact as in Python; a boolean is never a number, so ``true == 1`` is false
and ``true + 1`` an error. Every operator states its cost to the budget before it works, and every failure is
an ``EvaluationError`` that names the kinds of its operands (never their values, which may be private).
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.errors import EvaluationError
from weft.expressions.budget import MAX_INTEGER_BITS, Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.payload import Json

    Operator: TypeAlias = Callable[[Json, Json, Budget], Json]

_encode = msgspec.json.Encoder().encode


def kind(value: Json) -> str:
    """Return the kind of a value, in the words of a message."""
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
            return "a list"
        case _:
            return "an object"


def is_number(value: Json) -> bool:
    return type(value) is int or type(value) is float


def is_whole(value: Json) -> bool:
    return type(value) is int


def text(value: Json, budget: Budget) -> str:
    """A value as it reads inside a longer string: strings as they are, everything else as compact JSON."""
    if isinstance(value, str):
        return value
    if budget.multiplied and isinstance(value, (list, dict)):
        budget.spend_tree(value)
    written = _encode(value).decode()
    budget.make_text(len(written))
    return written


# --- equality and order ---------------------------------------------------------------------------


def equal(left: Json, right: Json, budget: Budget) -> bool:
    """Deep equality of JSON values: 1 equals 1.0, true does not equal 1."""
    if isinstance(left, (list, dict)) and isinstance(right, (list, dict)):
        return _equal_trees(left, right, budget)
    return _equal_scalars(left, right, budget)


def _equal_scalars(left: Json, right: Json, budget: Budget) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        if len(left) != len(right):
            return False
        budget.spend_text(len(left))
        return left == right
    if is_number(left) and is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def _equal_trees(left: Json, right: Json, budget: Budget) -> bool:
    pending: list[tuple[Json, Json]] = [(left, right)]
    while pending:
        one, other = pending.pop()
        if one is other:
            continue
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            budget.spend(2 * len(one))
            pending.extend(zip(one, other, strict=True))
        elif isinstance(one, dict) and isinstance(other, dict):
            if len(one) != len(other):
                return False
            budget.spend(2 * len(one))
            for key, value in one.items():
                if key not in other:
                    return False
                pending.append((value, other[key]))
        elif not _equal_scalars(one, other, budget):
            return False
    return True


def _unequal(left: Json, right: Json, budget: Budget) -> bool:
    return not equal(left, right, budget)


def _ordering(symbol: str, compare: Callable[[Json, Json], bool]) -> Operator:
    def compared(left: Json, right: Json, budget: Budget) -> bool:
        if is_number(left) and is_number(right):
            return compare(left, right)
        if isinstance(left, str) and isinstance(right, str):
            budget.spend_text(min(len(left), len(right)))
            return compare(left, right)
        raise EvaluationError(
            f"cannot order {kind(left)} and {kind(right)} with {symbol}: it takes two numbers or two strings"
        )

    return compared


def contains(item: Json, container: Json, budget: Budget) -> bool:
    """``item in container``: a part of a string, an element of a list, a key of an object."""
    match container:
        case str():
            if not isinstance(item, str):
                raise EvaluationError(f"cannot look for {kind(item)} in a string: it takes a string")
            spend_search(container, budget)
            return item in container
        case list():
            budget.spend(2 * len(container))
            return any(equal(item, element, budget) for element in container)
        case dict():
            return isinstance(item, str) and item in container
        case _:
            raise EvaluationError(
                f"cannot look for a value in {kind(container)}: it takes a string, a list or an object"
            )


def spend_search(haystack: str, budget: Budget) -> None:
    """Pay for finding a part in a string: the worst patterns look at each character several times."""
    budget.spend(len(haystack) >> 3)


def _lacks(item: Json, container: Json, budget: Budget) -> bool:
    return not contains(item, container, budget)


# --- arithmetic -----------------------------------------------------------------------------------


def checked(number: Json) -> Json:
    """A computed number, where it is one that JSON can hold."""
    if type(number) is float:
        if not math.isfinite(number):
            raise EvaluationError("the result is too large for a number")
    elif type(number) is int:
        if number.bit_length() > MAX_INTEGER_BITS:
            raise EvaluationError("the result has too many digits; the most is about 4,300")
    else:
        raise EvaluationError("the result is not a real number")
    return number


def _mismatch(symbol: str, left: Json, right: Json, takes: str) -> EvaluationError:
    return EvaluationError(f"cannot compute {kind(left)} {symbol} {kind(right)}: {symbol} takes {takes}")


def _numeric(symbol: str, compute: Callable[[Json, Json], Json]) -> Operator:
    def computed(left: Json, right: Json, budget: Budget) -> Json:
        if not (is_number(left) and is_number(right)):
            raise _mismatch(symbol, left, right, "two numbers")
        try:
            return checked(compute(left, right))
        except ZeroDivisionError:
            raise EvaluationError(f"division by zero in {symbol}") from None
        except OverflowError:
            raise EvaluationError("the result is too large for a number") from None

    return computed


def _multiply_numbers(left: Json, right: Json) -> Json:
    if is_whole(left) and is_whole(right) and left.bit_length() + right.bit_length() > MAX_INTEGER_BITS + 1:
        raise OverflowError
    return left * right


def _raise_to_power(left: Json, right: Json) -> Json:
    # The lower bound of the result's bits refuses 10**10**10 unseen; what passes has at most twice the bits.
    if is_whole(left) and is_whole(right) and (left.bit_length() - 1) * right > MAX_INTEGER_BITS:
        raise OverflowError
    return left**right


_add_numbers = _numeric("+", operator.add)
_multiply = _numeric("*", _multiply_numbers)


def add(left: Json, right: Json, budget: Budget) -> Json:
    """The sum of two numbers, or one string or list behind the other."""
    if isinstance(left, str) and isinstance(right, str):
        budget.make_text(len(left) + len(right))
        return left + right
    if isinstance(left, list) and isinstance(right, list):
        budget.make_list(len(left) + len(right))
        return left + right
    if is_number(left) and is_number(right):
        return _add_numbers(left, right, budget)
    raise _mismatch("+", left, right, "two numbers, two strings or two lists (~ joins any values as text)")


def multiply(left: Json, right: Json, budget: Budget) -> Json:
    """The product of two numbers, or a string or list repeated."""
    if is_whole(left) and isinstance(right, (str, list)):
        left, right = right, left
    if isinstance(left, str) and is_whole(right):
        budget.make_text(len(left) * max(right, 0))
        return left * max(right, 0) if left else ""
    if isinstance(left, list) and is_whole(right):
        budget.make_list(len(left) * max(right, 0))
        return left * max(right, 0) if left else []
    if is_number(left) and is_number(right):
        return _multiply(left, right, budget)
    raise _mismatch("*", left, right, "two numbers, or a whole number and a string or list")


def negate(value: Json) -> Json:
    if not is_number(value):
        raise EvaluationError(f"cannot negate {kind(value)}: it takes a number")
    return -value


def affirm(value: Json) -> Json:
    if not is_number(value):
        raise EvaluationError(f"cannot compute + of {kind(value)}: it takes a number")
    return value


ARITHMETIC: dict[str, Operator] = {
    "+": add,
    "-": _numeric("-", operator.sub),
    "*": multiply,
    "/": _numeric("/", operator.truediv),
    "//": _numeric("//", operator.floordiv),
    "%": _numeric("%", operator.mod),
    "**": _numeric("**", _raise_to_power),
}

COMPARISONS: dict[str, Operator] = {
    "eq": equal,
    "ne": _unequal,
    "lt": _ordering("<", operator.lt),
    "lteq": _ordering("<=", operator.le),
    "gt": _ordering(">", operator.gt),
    "gteq": _ordering(">=", operator.ge),
    "in": contains,
    "notin": _lacks,
}


# --- texts and parts ------------------------------------------------------------------------------


def concatenate(values: list[Json], budget: Budget) -> str:
    """``a ~ b``: the values as text, one behind the other."""
    parts = [text(value, budget) for value in values]
    budget.make_text(sum(map(len, parts)))
    return "".join(parts)


def part(value: Json, start: Json, stop: Json, step: Json, budget: Budget) -> Json:
    """``value[start:stop:step]`` of a list or a string."""
    if not isinstance(value, (list, str)):
        raise EvaluationError(f"cannot take a part of {kind(value)}: it takes a list or a string")
    for bound in (start, stop, step):
        if not (bound is None or is_whole(bound)):
            raise EvaluationError(f"{kind(bound)} cannot bound a part: it takes whole numbers")
    if step == 0:
        raise EvaluationError("a part cannot be taken in steps of 0")
    taken = slice(start, stop, step)
    length = len(range(*taken.indices(len(value))))
    if isinstance(value, str):
        budget.make_text(length)
    else:
        budget.spend(length)
    return value[taken]
