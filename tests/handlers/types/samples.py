"""Every type that may be annotated, with values of it: value → JSON → value is equal."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, TypedDict, TypeVar
from uuid import UUID

import msgspec
import numpy as np
import pydantic
from hypothesis import strategies as st

T = TypeVar("T")
OrderId = NewType("OrderId", int)


class Colour(Enum):
    RED = "red"
    SOME = 1.5
    PAIR = (1, "b")


class Level(IntEnum):
    LOW = 1
    HIGH = 3


class Word(StrEnum):
    YES = "yes"
    NO = "no"


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Sku(str):
    """A subclass of a JSON type."""


class Point(NamedTuple):
    x: int
    at: datetime | None = None


@dataclass(frozen=True)
class Line:
    price: Decimal
    sku: Sku
    kinds: frozenset[Level] = frozenset()
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.price * 2)


@dataclass(frozen=True)
class Order:
    id: OrderId
    lines: list[Line]
    route: tuple[Point, ...] = ()
    notes: dict[date, str] = field(default_factory=dict)
    parent: Order | None = None


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: Page[T] | None = None


class Movie(TypedDict):
    title: str
    at: NotRequired[date]


class Circle(msgspec.Struct, tag="circle", frozen=True):
    radius: float


class Square(msgspec.Struct, tag="square", frozen=True, rename="camel"):
    side_length: Decimal
    corner: Point


class Row(msgspec.Struct, array_like=True, frozen=True):
    a: int
    b: bytes


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True, populate_by_name=True)
    name: str = pydantic.Field(alias="fullName")
    since: datetime
    tags: frozenset[str] = frozenset()
    address: dict[str, Decimal] = {}


class Company(pydantic.BaseModel):
    customers: list[Customer]
    kind: Literal["company"] = "company"


@pydantic.dataclasses.dataclass
class Checked:
    at: date


texts = st.text(max_size=8)
integers = st.integers()
floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
zones = st.none() | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda offset: timezone(timedelta(seconds=offset // timedelta(seconds=1)))
)
moments = st.datetimes(timezones=st.none() | zones)
dates = st.dates()
colours = st.sampled_from(Colour)
levels = st.sampled_from(Level)
points = st.builds(Point, integers, st.none() | moments)
lines = st.builds(
    Line,
    st.decimals(-1000, 1000, places=2),
    texts.map(Sku),
    st.frozensets(levels),
)
orders = st.recursive(
    st.builds(
        Order,
        integers.map(OrderId),
        st.lists(lines, max_size=2),
        st.lists(points, max_size=2).map(tuple),
        st.dictionaries(dates, texts, max_size=2),
    ),
    lambda inner: st.builds(Order, integers.map(OrderId), st.just([]), parent=inner),
    max_leaves=3,
)
circles = st.builds(Circle, floats)
squares = st.builds(Square, decimals, points)
utc_moments = st.datetimes(timezones=st.just(timezone.utc))  # noqa: UP017 - the old name, for once
customers = st.builds(
    Customer,
    name=texts,
    since=utc_moments,
    tags=st.frozensets(texts, max_size=3),
    address=st.dictionaries(texts, st.decimals(-99, 99, places=2), max_size=2),
)
companies = st.builds(Company, customers=st.lists(customers, max_size=2))

# The hint of a parameter, and the values that a parent may return for it.
TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "bool": (bool, st.booleans()),
    "int": (int, integers),
    "float": (float, floats),
    "str": (str, texts),
    "none": (None, st.none()),
    "any": (Any, st.recursive(integers | texts, st.lists)),
    "bytes": (bytes, st.binary()),
    "bytearray": (bytearray, st.binary().map(bytearray)),
    "datetime": (datetime, moments),
    "date": (date, dates),
    "time": (time, st.times(timezones=zones)),
    "timedelta": (timedelta, st.timedeltas()),
    "decimal": (Decimal, decimals),
    "uuid": (UUID, st.uuids()),
    "path": (Path, texts.map(Path)),
    "pure_path": (PurePosixPath, texts.map(PurePosixPath)),
    "enum": (Colour, colours),
    "int_enum": (Level, levels),
    "str_enum": (Word, st.sampled_from(Word)),
    "flag": (Access, st.integers(0, 3).map(Access)),
    "str_subclass": (Sku, texts.map(Sku)),
    "new_type": (OrderId, integers),
    "literal": (Literal["a", 1, True, b"x"], st.sampled_from(["a", 1, True, b"x"])),
    "optional": (datetime | None, st.none() | moments),
    "union": (int | float | str | None, integers | floats | texts | st.none()),
    "union_of_records": (Line | Order | Point, lines | orders | points),
    "union_of_structs": (Circle | Square, circles | squares),
    "union_of_models": (Customer | Company, customers | companies),
    "list": (list[date], st.lists(dates)),
    "sequence": (Sequence[Decimal], st.lists(decimals)),
    "tuple": (tuple[int, Decimal, str], st.tuples(integers, decimals, texts)),
    "long_tuple": (tuple[date, ...], st.lists(dates).map(tuple)),
    "empty_tuple": (tuple[()], st.just(())),
    "set": (set[UUID], st.sets(st.uuids())),
    "frozenset": (frozenset[frozenset[int]], st.frozensets(st.frozensets(integers, max_size=3), max_size=3)),
    "dict": (dict[str, set[int]], st.dictionaries(texts, st.sets(integers))),
    "mapping": (Mapping[str, bytes], st.dictionaries(texts, st.binary())),
    "int_keys": (dict[int, float], st.dictionaries(integers, floats)),
    "float_keys": (dict[float, str], st.dictionaries(floats, texts)),
    "bool_keys": (dict[bool, str], st.dictionaries(st.booleans(), texts)),
    "date_keys": (dict[date, int], st.dictionaries(dates, integers)),
    "enum_keys": (dict[Level, int], st.dictionaries(levels, integers)),
    "decimal_keys": (dict[Decimal, int], st.dictionaries(decimals, integers)),
    "ordered_dict": (OrderedDict[str, date], st.dictionaries(texts, dates).map(OrderedDict)),
    "counter": (Counter[str], st.lists(texts).map(Counter)),
    "typed_dict": (
        Movie,
        st.fixed_dictionaries({"title": texts}, optional={"at": dates}),
    ),
    "named_tuple": (Point, points),
    "dataclass": (Order, orders),
    "generic": (
        Page[date],
        st.builds(Page, st.lists(dates), st.none() | st.builds(Page, st.lists(dates))),
    ),
    "struct": (Square, squares),
    "array_struct": (Row, st.builds(Row, integers, st.binary())),
    "model": (Company, companies),
    "pydantic_dataclass": (Checked, st.builds(Checked, dates)),
    "annotated": (Annotated[int, msgspec.Meta(ge=0)], st.integers(min_value=0)),
    "pydantic_field": (Annotated[int, pydantic.Field(ge=0)], st.integers(min_value=0)),
    "numpy_scalar": (np.float64, floats.map(np.float64)),
    "nested": (
        dict[str, list[tuple[Order, datetime | None]]],
        st.dictionaries(texts, st.lists(st.tuples(orders, st.none() | moments), max_size=2), max_size=2),
    ),
}
