from __future__ import annotations

import datetime
import enum
import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from weft.core.payload import MAX_VALUES, canonical, decode, encode, pointer
from weft.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024


class Pair(NamedTuple):
    a: int
    b: str


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


class Real(float):
    __slots__ = ()


def contains_itself() -> list[Any]:
    value: list[Any] = []
    value.append({"again": value})
    return value


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**64,
        -(2**70),
        10**4300 - 1,
        -(10**4300 - 1),
        1.5,
        1e22,
        5e-324,
        1.7976931348623157e308,
        "",
        "😀 \u202e \x00 \x7f",
        [],
        {},
        {"": [None, {"a/b~": "c"}]},
        nested(100),
    ],
)
def test_what_is_encoded_reads_back_as_the_same_value_of_the_same_type(value: Any) -> None:
    back = decode(encode(value, max_bytes=MIB))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Text("x"), "x"),
        (Real(0.5), 0.5),
        ({Text("k"): [Real(1.0)]}, {"k": [1.0]}),
    ],
)
def test_subclasses_of_json_types_are_encoded_as_the_plain_type(value: Any, plain: Any) -> None:
    assert decode(encode(value, max_bytes=MIB)) == plain


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (b"bytes", ""),
        ({1, 2}, ""),
        (datetime.datetime(2026, 1, 1), ""),
        ({"a": [1, float("nan")]}, "/a/1"),
        ([float("inf")], "/0"),
        ([-float("inf")], "/0"),
        ([Real("nan")], "/0"),
        ((item for item in "ab"), ""),
        ({"a/b": {"~": object()}}, "/a~1b/~0"),
        ({"a": {1: 2}}, "/a"),
        ({"a": {None: 2}}, "/a"),
        ({"a": "\ud800"}, "/a"),
        ({"a": {"\udfff": 1}}, "/a"),
        ([10**4300], "/0"),
        ([-(10**4300)], "/0"),
        (contains_itself(), "/0/again"),
        (1j, ""),
        (bytearray(b"x"), ""),
        (len, ""),
        ([Pair(1, "b")], "/0"),
    ],
)
def test_what_json_does_not_have_is_refused_with_its_path(value: Any, where: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode(value, max_bytes=MIB)
    assert caught.value.code == "not_json"
    assert str(caught.value).startswith(f"at {where}: " if where else "")
    assert len(str(caught.value)) < 500


def test_nesting_is_refused_from_one_level_over_the_limit() -> None:
    encode(nested(5), max_bytes=MIB, max_depth=5)
    with pytest.raises(PayloadError) as caught:
        encode(nested(6), max_bytes=MIB, max_depth=5)
    assert caught.value.code == "too_deep"


def test_nesting_above_what_python_can_recurse_into_is_refused_cleanly() -> None:
    with pytest.raises(PayloadError) as caught:
        encode(nested(100_000), max_bytes=MIB, max_depth=200_000)
    assert caught.value.code == "too_deep"


def test_size_is_refused_from_one_byte_over_the_limit() -> None:
    encode("x" * 8, max_bytes=10)
    with pytest.raises(PayloadError) as caught:
        encode("x" * 9, max_bytes=10)
    assert caught.value.code == "too_large"


def test_more_values_than_fit_into_memory_are_refused_however_short_they_are() -> None:
    assert encode([0] * (MAX_VALUES - 1), max_bytes=10**7)
    with pytest.raises(PayloadError, match="more than 1,000,000 values") as caught:
        encode([0] * MAX_VALUES, max_bytes=10**7)
    assert caught.value.code == "too_large"


def test_a_small_object_with_an_endless_text_is_refused_without_writing_it() -> None:
    value: Any = ["x"]
    for _ in range(90):
        value = [value, value]
    with pytest.raises(PayloadError) as caught:
        encode(value, max_bytes=10_000)
    assert caught.value.code == "too_large"


def test_bytes_that_are_not_json_are_refused_when_read() -> None:
    for stored in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(PayloadError) as caught:
            decode(stored)
        assert caught.value.code == "not_json"


def numbers(text: str) -> bytes:
    return f"[{','.join([text] * 3000)}]".encode()


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the least CPU time of this thread that some runs took."""
    took = []
    for _ in range(5):
        begun = time.thread_time()
        work()
        took.append(time.thread_time() - begun)
    return min(took)


@pytest.mark.parametrize("number", ["1e300", "1E+300", "5e-324", "2.2250738585072011e-308", "1.5"])
def test_no_number_takes_much_longer_to_read_than_the_standard_library_takes(number: str) -> None:
    """10,000 times 1e300, 60 KB of text, took 80 ms; the standard library takes 3.4 ms."""
    text = numbers(number)
    assert cpu_seconds(lambda: decode(text)) < 5 * cpu_seconds(lambda: json.loads(text))


@pytest.mark.parametrize(
    "text", ["1e300", "-5e-324", "9007199254740993e3", "-0e0", "1e400", '{"a":1e5,"a":2e5}']
)
def test_many_exponents_are_read_as_one_is(text: str) -> None:
    (one,), many = decode(f"[{text}]".encode()), decode(numbers(text))
    assert many == [one] * 3000
    assert {repr(item) for item in many} == {repr(one)}


@pytest.mark.parametrize("bad", ["NaN", "1.e5", "1e", '"\\ud800"'])
def test_what_is_not_json_is_refused_among_many_exponents_too(bad: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decode(numbers("1e300")[:-1] + f",{bad}]".encode())
    assert caught.value.code == "not_json"


def test_the_canonical_form_does_not_depend_on_the_order_of_keys() -> None:
    one = canonical({"b": {"y": 1, "x": 2}, "a": [1, 2]})
    assert one == canonical({"a": [1, 2], "b": {"x": 2, "y": 1}})
    assert one == b'{"a":[1,2],"b":{"x":2,"y":1}}'
    assert one != canonical({"a": [2, 1], "b": {"x": 2, "y": 1}})


def test_a_pointer_escapes_what_rfc_6901_says() -> None:
    assert pointer(()) == ""
    assert pointer(("a/b", "m~n", "", 0, "~1")) == "/a~1b/m~0n//0/~01"
