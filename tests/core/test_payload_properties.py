from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.core import payload
from weft.core.payload import canonical, count_values, decode, encode, encode_plain, json_pieces
from weft.errors import PayloadError

numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=30,
)
strange_values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.frozensets(st.integers()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner)
        | st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values)
def test_every_json_value_survives_the_way_there_and_back(value: Any) -> None:
    assert decode(encode(value, max_bytes=10**7)) == value
    assert json.loads(encode(value, max_bytes=10**7)) == value


@given(json_values)
def test_a_value_that_is_written_in_pieces_is_the_same_text(value: Any) -> None:
    assert encode_plain(value, max_bytes=10**7, in_pieces=True) == encode(value, max_bytes=10**7)


def test_no_piece_of_a_large_value_is_long() -> None:
    """What one piece holds, nobody else runs: a thread that writes in C keeps Python's lock."""
    flat: list[Any] = [[0.5] * 20_000, {f"k{number}": number for number in range(20_000)}]
    deep: list[Any] = [[[1.5] * 50 for _ in range(50)] for _ in range(20)]
    for value in (*flat, flat, deep):
        pieces = list(json_pieces(value))
        assert b"".join(pieces) == encode(value, max_bytes=10**7)
        assert max(map(len, pieces)) < 100_000


@given(json_values)
def test_the_canonical_form_is_json_and_a_fixed_point(value: Any) -> None:
    assert canonical(decode(canonical(value))) == canonical(value)


def _count(value: Any) -> int:
    """Count the values and keys in a value; an empty list or object has a place for a value."""
    if isinstance(value, dict):
        return max(1, sum(2 + _count(item) for item in value.values()))
    if isinstance(value, list):
        return max(1, sum(1 + _count(item) for item in value))
    return 0


@given(json_values, st.integers(1, 12), st.booleans())
def test_values_are_counted_without_reading_them(value: Any, piece: int, escapes: bool) -> None:
    text = json.dumps(value, ensure_ascii=escapes).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payload, "_PIECE_BYTES", piece)
        assert count_values(text, most=-1) == _count(value)
        # At first the commas in strings count too: that is enough to know that there are few.
        assert _count(value) <= count_values(text, most=10**6) <= len(text)


@given(strange_values)
def test_any_python_value_is_either_stored_exactly_or_refused(value: Any) -> None:
    try:
        payload = encode(value, max_bytes=10**7)
    except PayloadError:
        return
    # The standard library, told to be strict, agrees.
    assert json.loads(payload) == json.loads(json.dumps(value, allow_nan=False))
