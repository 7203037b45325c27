"""A text read in pieces is the value, or the error, that it is when read at once."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weft.core.payload import MAX_DOCUMENT_VALUES
from weft.definition.chunked_json import PIECE_CHARACTERS, read_in_pieces
from weft.definition.document import read_json
from weft.errors import DocumentError

DECODER = json.JSONDecoder()

text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(text, inner, max_size=8),
    max_leaves=40,
)
fragments = st.sampled_from(
    [*"{}[],:1- \n", '"a"', '"b,"', '"', "1.5e3", "null", "true", "[1,2]", '{"a":1}', "\\u00e9"]
)


def in_pieces(source: str, piece: int, max_depth: int = 100) -> Any:
    def refuse(key: str) -> NoReturn:
        raise DocumentError(f"{key} twice")

    return read_in_pieces(source, DECODER, max_depth=max_depth, refuse_twice=refuse, piece=piece)


@given(values, st.integers(1, 40), st.booleans())
def test_every_value_is_read_as_at_once(value: Any, piece: int, spaced: bool) -> None:
    written = json.dumps(value, indent=1 if spaced else None)
    assert in_pieces(written, piece) == value


@given(st.lists(fragments, max_size=25).map("".join), st.integers(1, 12))
@example("[1,2,]", 3)
@example("[,1]", 3)
@example("[1 2]", 2)
@example('{"a":1,}', 4)
@example("12345", 2)
@example("[[1,2],[3,4]", 4)
@example(" ", 1)
def test_every_text_has_the_verdict_that_it_has_at_once(source: str, piece: int) -> None:
    try:
        expected = json.loads(source)
    except json.JSONDecodeError:
        with pytest.raises(json.JSONDecodeError):
            in_pieces(source, piece)
        return
    try:
        assert in_pieces(source, piece) == expected
    except DocumentError:  # the standard library lets a key come twice
        assert '"a"' in source


def test_an_error_is_told_at_its_own_place() -> None:
    lines = ["[", *["  1,"] * 50_000, "  oops", "]"]
    with pytest.raises(DocumentError, match="line 50002, column 3"):
        read_json("\n".join(lines).encode(), max_bytes=10**7, max_depth=100)


def test_a_key_that_comes_again_in_another_piece_is_refused() -> None:
    members = [f'"k{number}": 1' for number in range(50_000)]
    source = "{" + ",".join([*members, '"k7": 2']) + "}"
    assert len(source) > 2 * PIECE_CHARACTERS
    with pytest.raises(DocumentError, match="'k7' appears twice"):
        read_json(source.encode(), max_bytes=10**7, max_depth=100)


def test_nesting_is_bounded_also_where_every_level_is_longer_than_a_piece() -> None:
    source = "[" * 101 + '"' + "x" * 200_000 + '"' + "]" * 101
    with pytest.raises(DocumentError, match="nested deeper than 100"):
        read_json(source.encode(), max_bytes=10**7, max_depth=100)
    assert read_json(source[1:-1].encode(), max_bytes=10**7, max_depth=100)


def test_too_many_lists_are_refused_before_they_are_made() -> None:
    source = b"[" + b"[]," * MAX_DOCUMENT_VALUES + b"[]]"
    with pytest.raises(DocumentError, match="the limit is 3,000,000"):
        read_json(source, max_bytes=10**8, max_depth=100)
