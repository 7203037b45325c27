from __future__ import annotations

from typing import Any

import pytest

from weft.definition.document import read_json, read_yaml
from weft.errors import DocumentError

MIB = 1024 * 1024


def json_of(text: bytes | str) -> Any:
    return read_json(text.encode() if isinstance(text, str) else text, max_bytes=MIB, max_depth=100)


def yaml_of(text: bytes | str) -> Any:
    return read_yaml(text.encode() if isinstance(text, str) else text, max_bytes=MIB, max_depth=100)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"NaN", "no NaN"),
        (b"[Infinity]", "no Infinity"),
        (b'{"a": -Infinity}', "no -Infinity"),
        (b'{"a": [1e999]}', "at /a/0: a number is too large"),
        (b"-1e400", "too large"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' appears twice"),
        (b"[" * 100_000, "nested deeper than 100"),
        (b'{"a":' * 100_000, "nested deeper than 100"),
        (b"[" * 101 + b"]" * 101, "nested deeper than 100"),
        (b"1" * 5000, "4,300 digits"),
        (b"[-" + b"1" * 5000 + b"]", "4,300 digits"),
        (b'{"a": "\\ud800"}', "at /a: a string holds half of a surrogate pair"),
        (b'{"\\udfff": 1}', "half of a surrogate pair"),
        (b'"\\udc00\\ud800"', "half of a surrogate pair"),
        (b'"\xff"', "not UTF-8"),
        (b'"\xed\xa0\x80"', "not UTF-8"),  # a surrogate written out in UTF-8
        (b'"\xc0\x80"', "not UTF-8"),  # an overlong zero
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "byte order mark"),
        ("{}".encode("utf-16-le"), "line 1, column 2"),
        ("{}".encode("utf-32-be"), "line 1, column 1"),
        (b"{} {}", "line 1, column 4"),
        (b"{}\x00", "line 1, column 3"),
        (b"", "line 1, column 1"),
        (b" \n ", "line 2"),
        (b"{\n  'a': 1}", "line 2, column 3"),
        (b"[1,]", "line 1"),
        (b"01", "line 1"),
        (b"+1", "line 1"),
        (b"1.", "line 1"),
        (b".5", "line 1"),
        (b'"\n"', "line 1"),
        (b"// no\n1", "line 1"),
        (b"True", "line 1"),
        (b"[" + b" " * MIB, "the limit is 1,048,576"),
    ],
)
def test_hostile_json_is_refused_with_a_reason(text: bytes, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        json_of(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, 2.0, -0.5e3, true, null, "x"]}', {"a": [1, 2.0, -500.0, True, None, "x"]}),
        ('"\\ud83d\\ude00"', "😀"),
        ("9007199254740993", 9007199254740993),
        ("1" * 4300, int("1" * 4300)),
        ('{"__proto__": {}}', {"__proto__": {}}),
        ("[" * 100 + "]" * 100, None),
        (" 1\n", 1),
    ],
)
def test_json_keeps_exact_values(text: str, value: Any) -> None:
    read = json_of(text)
    if value is not None:
        assert read == value
        assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[no, yes, on, off, y, n, No]", ["no", "yes", "on", "off", "y", "n", "No"]),
        ("[true, True, TRUE, false, False, FALSE, tRue]", [True, True, True, False, False, False, "tRue"]),
        ("[~, null, Null, NULL, nUll, '', ]", [None, None, None, None, "nUll", ""]),
        ("a:", {"a": None}),
        ("[012, 0o14, 0x1F, -7, +7, 0b1, 1_000]", [12, 12, 31, -7, 7, "0b1", "1_000"]),
        ("[1.5, .5, 1., 1e3, -1.5E-2, 1e, ., -]", [1.5, 0.5, 1.0, 1000.0, -0.015, "1e", ".", "-"]),
        ("[1:30, 190:20:30, 2026-01-01, 2026-01-01T00:00:00Z]", None),
        ('["1", \'true\', "null", !!str 1, ! 1]', ["1", "true", "null", "1", "1"]),
        (
            '[!!int "3", !!float 3, !!bool "true", !!null "", !!seq [], !!map {}]',
            [3, 3.0, True, None, [], {}],
        ),
        ("<<: {a: 1}", {"<<": {"a": 1}}),
        ("=: 1", {"=": 1}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
        ("a: &k key\n*k : 1", {"a": "key", "key": 1}),
        ('{"a": "\\/\\u00e9", "b": [1, 2]}', {"a": "/é", "b": [1, 2]}),
        ("a: |\n  x\n  y\n", {"a": "x\ny\n"}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("k: 😀", {"k": "😀"}),
    ],
)
def test_yaml_is_typed_by_the_core_schema_of_version_1_2(text: str, value: Any) -> None:
    read = yaml_of(text)
    if value is None:
        value = ["1:30", "190:20:30", "2026-01-01", "2026-01-01T00:00:00Z"]
    assert read == value
    assert repr(read) == repr(value)


def alias_bomb() -> bytes:
    lines = [b"a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [b"%c: &%c [%s]" % (c, c, b", ".join([b"*%c" % (c - 1)] * 9)) for c in range(ord("b"), ord("j"))]
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"!!python/object/apply:os.system ['true']", "python/object/apply:os.system' is not known"),
        (b"a: !!python/name:os.system x", "line 1, column 4: the tag"),
        (b"!custom x", "'!custom' is not known"),
        (b"!!set {a}", "is not known"),
        (b"!!binary aGk=", "is not known"),
        (b"!!timestamp 2026-01-01", "is not known"),
        (b"!!seq {}", "is not known"),
        (b"!!int x", "'x' is not an integer"),
        (b"!!float x", "'x' is not a number"),
        (b"!!bool yes", "'yes' is not true or false"),
        (b"!!null x", "'x' is not null"),
        (b"a: .inf", "line 1, column 4: JSON has no .inf"),
        (b"-.Inf", "no -.Inf"),
        (b".NaN", "no .NaN"),
        (b"1e999", "too large"),
        (b"1" * 5000, "4,300 digits"),
        (b"-0" + b"1" * 5000, "4,300 digits"),
        (b"0x" + b"f" * 4000, "4,300 digits"),
        (b"&a [*a]", "*a refers to the value it stands in"),
        (b"a: &a {b: [*a]}", "refers to the value it stands in"),
        (b"*a", "*a has no anchor before it"),
        (alias_bomb(), "aliases make it longer than 1,048,576 bytes"),
        (
            b"a: &a " + b"[" * 50 + b"]" * 50 + b"\nb: " + b"[" * 50 + b"*a" + b"]" * 50,
            "nested deeper than 100",
        ),
        (b"{a: 1, b: 2, a: 3}", "line 1, column 14: the key 'a' appears twice"),
        (b'a: 1\n"a": 2', "line 2, column 1: the key 'a' appears twice"),
        (b"1: x", "a key must be a string; put it in quotes"),
        (b"true: x", "a key must be a string"),
        (b"~: x", "a key must be a string"),
        (b"? [a]\n: x", "a key must be a string"),
        (b"? {a: 1}\n: x", "a key must be a string"),
        (b"[" * 500 + b"]" * 500, "line 1, column 101: nested deeper than 100"),
        (b"- " * 500, "nested deeper than 100"),
        (b"{a: " * 5000, "nested deeper than 100"),
        (b"[" * 100_000, "nested deeper than 100"),
        (b"a: 1\n---\nb: 2", "line 2, column 1: a second document"),
        (b"", "empty"),
        (b"# only a comment\n", "empty"),
        (b"%YAML 1.1\n---\na: no", "only YAML 1.2 is read"),
        (b"%YAML 3.0\n---\na: no", "line 1"),
        (b"\xef\xbb\xbfa: 1", "byte order mark"),
        ("a: 1".encode("utf-16"), "byte order mark"),
        (b"a: \xff", "not UTF-8"),
        (b"a: \x00", "not YAML: control characters"),
        (b'"\\ud800"', "line 1"),
        (b"\ta: 1", "line 1, column 1"),
        (b"a: [1", "line 2, column 1"),
        (b"a: b: c", "line 1, column 5"),
        (b"a: `x`", "line 1"),
        (b"- " + b"x" * MIB, "the limit is 1,048,576"),
    ],
)
def test_hostile_yaml_is_refused_with_a_reason(text: bytes, words: str) -> None:
    with pytest.raises(DocumentError) as caught:
        yaml_of(text)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 500


def test_yaml_nested_to_the_limit_is_read() -> None:
    assert yaml_of("[" * 100 + "]" * 100) == json_of("[" * 100 + "]" * 100)
    deep = yaml_of("a: &a " + "[" * 50 + "]" * 50 + "\nb: " + "[" * 49 + "*a" + "]" * 49)
    assert str(deep["b"]).count("[") == 99
