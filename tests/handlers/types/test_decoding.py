from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Annotated, Any, Literal, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import polars
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.handlers.types.samples import TYPES, Circle, Company, Level, Line, Movie, Order, Point, Square

from weft.core.payload import decode
from weft.handlers.contract import BadInput, HandlerContext
from weft.handlers.outcome import Completed, completed
from weft.handlers.python import describe
from weft.handlers.types.decoding import MisfitError, decoder_of
from weft.handlers.types.encoding import path_text

MIB = 2**20


def through_json(value: Any) -> Any:
    outcome = completed(value, target="f", max_bytes=MIB)
    assert isinstance(outcome, Completed), outcome
    return decode(outcome.output)


def decoded(hint: Any, value: Any) -> Any:
    decoder = decoder_of(hint)
    return value if decoder is None else decoder(value)


def call(function: Callable[..., Any], **args: Any) -> Any:
    context: Any = None
    return describe("shop:total", function).bind(args, context).call()


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_a_value_comes_back_from_json_equal_and_of_its_type(name: str, data: st.DataObject) -> None:
    hint, values = TYPES[name]
    value = data.draw(values)
    back = decoded(hint, through_json(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("hint", "value", "path", "reason"),
    [
        (int, "3", "$", "a string where an integer is expected"),
        (int, True, "$", "a boolean where an integer is expected"),
        (int, 1.5, "$", "a number where an integer is expected"),
        (str, None, "$", "null where a string is expected"),
        (bytes, "?", "$", "a string that is not base64"),
        (datetime, "yesterday", "$", "not a date and time"),
        (date, "2024-01-01T00:00:00", "$", "not a date of ISO 8601"),
        (Decimal, "NaN", "$", "a string where a decimal number is expected"),
        (list[int], [1, "2"], "$[1]", "a string where an integer"),
        (tuple[int, int], [1], "$", "an array of 1 where 2 values"),
        (dict[int, str], {"a": "b"}, "$.a", "a key that does not fit"),
        (set[list[int]], [[1]], "$", "refuses"),
        (Level, 2, "$", "not a value of Level, one of 1, 3"),
        (Literal["a", "b"], "c", "$", "not one of 'a', 'b'"),
        (Order, {"id": 1, "lines": [{"price": "1", "sku": 7}]}, "$.lines[0].sku", "a number where a string"),
        (Order, {"id": 1}, "$", "an object without 'lines', which Order needs"),
        (list[Order], [[]], "$[0]", "an array where an object, Order,"),
        (Point, {"x": 1, "at": 5}, "$.at", "a number where"),
        (Movie, {}, "$", "without 'title'"),
        (Circle, {"type": "square", "radius": 1}, "$", "no Circle, by its 'type'"),
        (Square, {"type": "square", "sideLength": "x", "corner": {}}, "$.sideLength", "not a decimal"),
        (Company, {"customers": [{"fullName": 1}]}, "$.customers[0].fullName", "valid string"),
        (Line | Order, {"price": "x", "sku": ""}, "$.price", "not a decimal number"),
        (Annotated[int, msgspec.Meta(ge=0)], -1, "$", ">= 0"),
        (Annotated[list[int], msgspec.Meta(min_length=1)], [], "$", "length >= 1"),
        (Annotated[int, pydantic.Field(gt=3)], 3, "$", "greater than 3"),
        (np.ndarray, [[1], [1, 2]], "$", "an array of numbers"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_path(
    hint: Any, value: Any, path: str, reason: str
) -> None:
    with pytest.raises(MisfitError) as caught:
        decoded(hint, value)
    assert path_text(caught.value.path) == path
    assert reason in caught.value.reason


def test_arrays_of_numpy_are_made_with_their_type() -> None:
    made = decoded(npt.NDArray[np.float32], [[1, 2]])
    assert (made.tolist(), made.dtype) == ([[1.0, 2.0]], np.float32)
    assert decoded(np.ndarray, [1]).tolist() == [1]


class Client(Protocol):
    def get(self) -> str: ...


@pytest.mark.parametrize("hint", [polars.DataFrame, Client, Callable[[], int], object, Any, TYPES, "text"])
def test_a_hint_that_weft_cannot_make_takes_what_comes(hint: Any) -> None:
    assert decoded(hint, {"a": [1]}) == {"a": [1]}


def test_every_annotated_parameter_receives_its_type() -> None:
    def total(  # type: ignore[no-untyped-def]
        order: Order, at: datetime, plain, *, context: HandlerContext, **rest: Decimal
    ) -> Any:
        return order, at, plain, rest

    args = {"order": {"id": 1, "lines": []}, "at": "2024-01-01T00:00:00", "plain": "2024-01-01", "tip": "1.5"}
    assert call(total, **args) == (
        Order(id=1, lines=[]),  # type: ignore[arg-type]
        datetime(2024, 1, 1),
        "2024-01-01",
        {"tip": Decimal("1.5")},
    )


def test_annotations_of_methods_partials_and_callable_objects_count() -> None:
    class Shop:
        def total(self, at: date) -> date:
            return at

        def __call__(self, at: date) -> date:
            return at

    def total(at: date, factor: int) -> date:
        return at

    for function in (Shop().total, Shop(), partial(total, factor=2)):
        assert call(function, at="2024-01-01") == date(2024, 1, 1)


def test_a_hint_that_cannot_be_resolved_spoils_no_other() -> None:
    def total(ghost: Ghost, at: date) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return ghost, at

    assert call(total, ghost={"a": 1}, at="2024-01-01") == ({"a": 1}, date(2024, 1, 1))


def test_an_argument_that_does_not_fit_is_bad_input_and_is_not_tried_again() -> None:
    def total(order: Order) -> Any:
        return order

    with pytest.raises(BadInput) as caught:
        call(total, order={"id": 1, "lines": [{"price": "secret", "sku": "a"}]})
    assert (caught.value.code, caught.value.retryable) == ("bad_input", False)
    assert str(caught.value) == (
        "shop:total cannot take its argument: $.lines[0].price of 'order' is a string that is not a decimal "
        "number"
    )
    with pytest.raises(BadInput, match=r"'order' is null where an object, Order, is expected; .*'\| None'"):
        call(total, order=None)


def test_what_a_class_refuses_in_its_own_checks_is_bad_input() -> None:
    @dataclass
    class Positive:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("negative")

    with pytest.raises(MisfitError, match="an object that Positive refuses: negative"):
        decoded(Positive, {"number": -1})
