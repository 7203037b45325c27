from __future__ import annotations

import contextlib
import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from weft.core.payload import decode, encode
from weft.definition.document import read_json, read_yaml
from weft.errors import DocumentError

text = st.text(st.characters(exclude_categories=["Cs"]))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(text, inner, max_size=5),
    max_leaves=30,
)
json_fragments = st.sampled_from('{}[],:"1-é \n\ufeff') | st.sampled_from(
    ['"a"', "1e999", "NaN", "null", "\\ud800"]
)
yaml_fragments = st.sampled_from("a[]{}>'\"#~\n\t\x07\u2028😀") | st.sampled_from(
    [
        "*x",
        "<<",
        "012",
        "0x1",
        ".inf",
        ": ",
        "- ",
        "? ",
        ", ",
        "&x ",
        "!!int ",
        "!y ",
        "|\n",
        "---\n",
        "...\n",
    ]
)


@given(json_values)
def test_json_as_others_write_it_is_read_as_the_same_value(value: Any) -> None:
    for written in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert read_json(written.encode(), max_bytes=10**7, max_depth=100) == value


@given(json_values)
def test_both_readers_read_the_same_value_from_compact_json(value: Any) -> None:
    written = json.dumps(value, ensure_ascii=True).encode()
    # libyaml knows no surrogate pairs; beyond those, JSON is YAML.
    if b"\\ud" not in written:
        assert read_yaml(written, max_bytes=10**7, max_depth=100) == value


@given(json_values)
def test_yaml_as_others_write_it_is_read_as_the_same_value(value: Any) -> None:
    # With every string in quotes, the two versions of YAML agree on types.
    written = yaml.safe_dump(value, default_style='"', allow_unicode=False)
    assert read_yaml(written.encode(), max_bytes=10**7, max_depth=100) == value


@given(st.binary() | st.lists(json_fragments, max_size=20).map(lambda parts: "".join(parts).encode()))
def test_no_bytes_make_the_json_reader_fail_in_another_way(written: bytes) -> None:
    with contextlib.suppress(DocumentError):
        value = read_json(written, max_bytes=10**6, max_depth=10)
        assert decode(encode(value, max_bytes=10**6, max_depth=10)) == value
        assert json.loads(written) == value


@given(st.binary() | st.lists(yaml_fragments, max_size=20).map(lambda parts: "".join(parts).encode()))
def test_no_bytes_make_the_yaml_reader_fail_in_another_way(written: bytes) -> None:
    with contextlib.suppress(DocumentError):
        value = read_yaml(written, max_bytes=10**6, max_depth=10)
        assert decode(encode(value, max_bytes=10**7, max_depth=10)) == value
