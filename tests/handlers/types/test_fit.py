from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import polars
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.handlers.types.samples import TYPES, Circle, Company, Customer, Level, Movie, Page, Square, Word

from weft.core.payload import canonical, decode
from weft.definition.schema import Schema, compile_schema, quick_problems
from weft.handlers.outcome import Completed, completed
from weft.handlers.types.decoding import MisfitError, decode_shape
from weft.handlers.types.fit import why_not
from weft.handlers.types.schema import schema_of
from weft.handlers.types.shape import shape_of


@dataclass
class Small:
    a: int


@dataclass
class Large:
    a: int
    b: str


@dataclass
class Other:
    a: str


class Pair(NamedTuple):
    a: int
    b: str


class Loose(TypedDict, total=False):
    a: str


class Rows(pydantic.RootModel[list[int]]): ...


@pytest.mark.parametrize(
    ("returned", "taken", "reason"),
    [
        (int, str, "int is a number in JSON, and str needs a string"),
        (None, int, "None is null in JSON, and int needs a number"),
        (Decimal, float, "Decimal is a string in JSON, and float needs a number"),
        (list[int], dict[str, int], "a list is an array in JSON, and a dict needs an object"),
        (datetime, date, "the text of datetime is not that of date"),
        (UUID, time, "the text of UUID is not that of time"),
        (Small, Large, "Small has no 'b', which Large needs"),
        (Small, Other, ".a: int is a number in JSON, and str needs a string"),
        (Large, dict[str, int], ".b: str is a string"),
        (Pair, list[int], "Pair is an object in JSON, and a list needs an array"),
        (tuple[int, str], tuple[int], "a tuple of 2 is no tuple of 1"),
        (tuple[int, str], list[int], "[1]: str is a string"),
        (int | str, bool | None, "int is a number"),
        (Level, Word, "Level has no value for Word: a number that is not"),
        (Literal["a"], Literal["b", "c"], "no value for"),
        (Circle, Square, "no 'sideLength'"),
        (str, Customer, "str is a string in JSON, and Customer needs an object"),
        (Company, list[Any], "Company is an object in JSON"),
        (Annotated[int, msgspec.Meta(gt=0)], str, "int is a number"),
    ],
)
def test_what_can_never_fit_is_explained(returned: Any, taken: Any, reason: str) -> None:
    assert reason in (why_not(shape_of(returned), shape_of(taken)) or "it may fit")


@pytest.mark.parametrize(
    ("returned", "taken"),
    [
        (int, float),
        (float, int),
        (float, Decimal),
        (str, datetime),
        (date, datetime),
        (list[int], list[str]),
        (dict[str, int], Large),
        (Large, Small),
        (Large, dict[str, Any]),
        (Loose, Small),
        (int | str, str | None),
        (Any, int),
        (int, Any),
        (polars.DataFrame, int),
        (np.ndarray, list[int]),
        (Rows, list[int]),
        (Movie, Loose),
        (Page[int], Page[str]),
        (Literal["a", "b"], Literal["b"]),
        (tuple[int, ...], tuple[int, int]),
    ],
)
def test_what_may_fit_is_left_to_the_call(returned: Any, taken: Any) -> None:
    assert why_not(shape_of(returned), shape_of(taken)) is None


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_every_value_of_a_type_fits_its_schema_and_types_that_read_it_are_no_misfit(
    name: str, data: st.DataObject
) -> None:
    hint, values = TYPES[name]
    shape = shape_of(hint)
    outcome = completed(data.draw(values), target="f", max_bytes=2**20)
    assert isinstance(outcome, Completed)
    plain = decode(outcome.output)
    schema = compile_schema(schema_of(shape))
    assert isinstance(schema, Schema), schema
    assert quick_problems(schema, plain, canonical(plain)) == []
    other = shape_of(TYPES[data.draw(st.sampled_from(sorted(TYPES)))][0])
    try:
        decode_shape(other)(plain)
    except MisfitError:
        return
    assert why_not(shape, other) is None


def test_the_schema_of_a_class_is_one_that_a_reader_would_write() -> None:
    assert schema_of(shape_of(Large)) == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    assert schema_of(shape_of(Page[Small])) == {
        "$ref": "#/$defs/Page",
        "$defs": {
            "Page": {
                "type": "object",
                "properties": {
                    "items": {"type": "array", "items": {"$ref": "#/$defs/Small"}},
                    "next": {"anyOf": [{"$ref": "#/$defs/Page"}, {"type": "null"}]},
                },
                "required": ["items"],
            },
            "Small": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        },
    }
