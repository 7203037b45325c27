from __future__ import annotations

import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import polars
import pydantic
import pytest

from weft.core.payload import decode
from weft.handlers.outcome import Completed, Failed, completed

MIB = 2**20


class Colour(Enum):
    RED = "red"
    DEEP = (1, 2)


class Rank(Enum):
    TENTH = 10
    NINTH = 9


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Access(IntFlag):
    READ = 1
    WRITE = 2


@dataclass
class Line:
    price: Decimal
    tags: set[str] = field(default_factory=set)


class Point(NamedTuple):
    x: int
    y: int = 0


Old = namedtuple("Old", "a b")  # noqa: PYI024 - the old kind is what is tested


class Movie(TypedDict):
    title: str


class Tagged(msgspec.Struct, tag="shape", rename="camel"):
    side_length: int
    left_out: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True):
    a: int
    at: date


class Model(pydantic.BaseModel):
    at: datetime
    names: set[str] = set()
    price: float = pydantic.Field(default=1.0, alias="cost")


@pydantic.dataclasses.dataclass
class Checked:
    at: date


def encoded(value: Any) -> Any:
    outcome = completed(value, target="shop:fetch", max_bytes=MIB)
    assert isinstance(outcome, Completed), outcome
    return decode(outcome.output)


def refusal(value: Any) -> str:
    outcome = completed(value, target="shop:fetch", max_bytes=MIB)
    assert isinstance(outcome, Failed)
    assert (outcome.error["code"], outcome.error["retryable"]) == ("output_not_json", False)
    return str(outcome.error["message"])


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Line(Decimal("1.50"), {"b", "a"}), {"price": "1.50", "tags": ["a", "b"]}),
        ([Point(1)], [{"x": 1, "y": 0}]),
        (Old(1, [2]), {"a": 1, "b": [2]}),
        (Movie(title="M"), {"title": "M"}),
        (Tagged(3), {"type": "shape", "sideLength": 3}),
        (Row(1, date(2024, 2, 29)), [1, "2024-02-29"]),
        (
            Model(at=datetime(2024, 1, 1, tzinfo=UTC), names={"b", "a", "c"}, cost=2.5),
            {"at": "2024-01-01T00:00:00Z", "names": ["a", "b", "c"], "cost": 2.5},
        ),
        ([Checked(date(2024, 1, 1))], [{"at": "2024-01-01"}]),
        (datetime(2024, 1, 1, 12, 0, 0, 5), "2024-01-01T12:00:00.000005"),
        (datetime(2024, 1, 1, 12, tzinfo=UTC), "2024-01-01T12:00:00Z"),
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))), "2024-01-01T00:00:00+02:00"),
        (date(2024, 2, 29), "2024-02-29"),
        (time(12, 30), "12:30:00"),
        (timedelta(days=1, seconds=2), "P1DT2S"),
        (Decimal("0.10"), "0.10"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        ({"p": PurePosixPath("/x")}, {"p": "/x"}),
        ([Colour.RED, Level.HIGH, Word.YES, Colour.DEEP], ["red", 3, "yes", [1, 2]]),
        (Access.READ | Access.WRITE, 3),
        ((1, (2,)), [1, [2]]),
        ({3, 10, 2}, [2, 3, 10]),
        ({Decimal(10), Decimal(9)}, ["9", "10"]),
        ({"b", 1, None}, ["b", 1, None]),
        ({10, 9.5, 9}, [9, 9.5, 10]),
        ({(10, 1), (9, 2), (9, 1)}, [[9, 1], [9, 2], [10, 1]]),
        (set(Rank), [9, 10]),
        (set(np.array([10, 9])), [9, 10]),
        (frozenset({frozenset({2, 1}), frozenset({0})}), [[0], [1, 2]]),
        ({Point(2), Point(1)}, [{"x": 1, "y": 0}, {"x": 2, "y": 0}]),
        (b"\x00\xff", "AP8="),
        (bytearray(b"a"), "YQ=="),
        (np.float64(0.5), 0.5),
        (np.int32(7), 7),
        (np.bool_(True), True),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array(1.5), 1.5),
        (np.array(["2024-01-01"], dtype="datetime64[D]"), ["2024-01-01"]),
        ({"m": np.arange(3, dtype=np.float32)}, {"m": [0.0, 1.0, 2.0]}),
        ({1: "a", 2.5: "b", True is False: "c"}, {"1": "a", "2.5": "b", "false": "c"}),
        ({date(2024, 1, 1): 1, Colour.RED: 2, UUID(int=2): 3}, None),
        (OrderedDict(a={1}), {"a": [1]}),
        (defaultdict(list, a=[{1}]), {"a": [[1]]}),
        (Counter("aab"), {"a": 2, "b": 1}),
    ],
)
def test_values_become_json_by_the_rules(value: Any, plain: Any) -> None:
    if plain is None:
        plain = {"2024-01-01": 1, "red": 2, "00000000-0000-0000-0000-000000000002": 3}
    assert encoded(value) == plain


def test_a_set_has_the_same_order_in_every_process() -> None:
    code = (
        "from weft.handlers.outcome import completed\n"
        "print(completed({'set': {'a', 'b', 'c', 'd', ('e', 1)}}, target='f', max_bytes=99).output)"
    )
    outputs = {
        subprocess.check_output([sys.executable, "-c", code], env={"PYTHONHASHSEED": str(seed)})
        for seed in range(4)
    }
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("value", "part", "advice"),
    [
        ({"orders": [0, 1, 2, {"price": float("nan")}]}, "$.orders[3].price is ", "return None instead"),
        (float("inf"), "$ is ", "return None instead"),
        ([Decimal("NaN")], "$[0] is the Decimal NaN", "return None instead"),
        ({"m": np.array([1.0, np.nan])}, "$.m[1] is ", "return None instead"),
        ({"f": polars.DataFrame({"a": [1]})}, "$.f is a value of type polars.DataFrame", "frame.to_dicts()"),
        # As pandas.NA is, without the time that pandas takes to be imported.
        (type("NAType", (), {"__module__": "pandas._libs"})(), "$ is a value of type pandas.NAType", "None"),
        (polars.Series([1]), "$ is a value of type polars.Series", "series.to_list()"),
        ((number for number in (1, 2)), "$ is a value of type generator", "return list(value)"),
        ({"a b": {1: object()}}, "$['a b']['1'] is a value of type object", "return a dict"),
        ([1 + 2j], "$[0] is a value of type complex", "return [value.real, value.imag]"),
        ({"k": {(1, 2): 3}}, "$.k is an object with a key that is a value of type tuple", "return strings"),
        ({1: "a", "1": "b"}, "$ is an object with two keys that become '1'", "return different keys"),
        ({None: 1}, "$ is an object with a key that is a value of type NoneType", "return strings"),
        (Line(Decimal(1), tags=Line), "$.tags is the class ", "return"),  # type: ignore[arg-type]
        (Model.model_construct(at=1, cost=float("nan")), "$.cost is ", "return None instead"),
        (np.array([1j]), "$ is a numpy value of dtype complex128", "return numbers"),
        ({"x": "\ud800", "s": {1}}, "$.x is ", "half of a surrogate pair"),
    ],
)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_what_is_not_json_is_named_with_its_path_and_what_to_return(
    value: Any, part: str, advice: str
) -> None:
    message = refusal(value)
    assert message.startswith("shop:fetch returned a value that is not JSON: ")
    assert part in message
    assert advice in message


def test_a_value_that_contains_itself_is_refused() -> None:
    line: dict[str, Any] = {"set": {1}}
    line["again"] = [line]
    assert "$.again[0] is a value that contains itself" in refusal(line)


def test_depth_and_size_are_bounded_before_anything_is_written() -> None:
    deep: Any = {1}
    for _ in range(150):
        deep = [deep]
    many = [[Point(1)] * 1000] * 2000
    for value in (deep, many):
        outcome = completed(value, target="f", max_bytes=MIB)
        assert isinstance(outcome, Failed)
        assert outcome.error["code"] == "output_too_large"


def test_neither_pydantic_nor_numpy_is_imported_for_a_program_that_has_not() -> None:
    code = (
        "import sys\n"
        "from dataclasses import dataclass\n"
        "from weft.handlers.outcome import completed\n"
        "from weft.handlers.python import describe\n"
        "@dataclass\n"
        "class A:\n"
        "    x: set[int]\n"
        "def f(a: A): return a\n"
        "called = describe('m:f', f).bind({'a': {'x': [1]}}, None).call()\n"
        "assert called == A({1}), called\n"
        "completed([called, object()], target='f', max_bytes=99)\n"
        "print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False False"
