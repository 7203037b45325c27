"""The lines of problems in a definition's text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.definition.document import read_yaml
from weft.definition.source_lines import with_lines
from weft.errors import Problem

TEXT = b"""\
# a comment
name: order
nodes:
  - id: a
    handler: ecko
  - {id: b, handler: echo,
     dependencies: [a,
       c]}
  - id: "c/d"
    handler: echo
    config: &shared
      "x/y": [1, 2]
  - id: e
    config: *shared
"""


def line_of(pointer: str, text: bytes = TEXT) -> int | None:
    (problem,) = with_lines([Problem(pointer, "wrong")], text)
    assert (problem.pointer, problem.message) == (pointer, "wrong")
    return problem.line


def test_each_pointer_has_the_line_of_its_key_or_item() -> None:
    assert line_of("") == 2
    assert line_of("/name") == 2
    assert line_of("/nodes") == 3
    assert line_of("/nodes/0") == 4
    assert line_of("/nodes/0/handler") == 5
    assert line_of("/nodes/1/dependencies") == 7
    assert line_of("/nodes/1/dependencies/1") == 8
    assert line_of("/nodes/2/config/x~1y/1") == 12
    assert line_of("/nodes/3/config") == 14


def test_what_is_missing_has_the_line_of_what_it_is_missing_in() -> None:
    assert line_of("/nodes/3/handler") == 13
    assert line_of("/nodes/9/id") == 3
    assert line_of("/output") == 2
    # Behind an alias nothing is written down: the alias itself is the place.
    assert line_of("/nodes/3/config/x~1y") == 14


def test_json_has_lines_too_and_text_that_yaml_does_not_read_has_those_before_the_fault() -> None:
    assert line_of("/nodes/0/id", b'{\n "nodes": [\n  {"id": "a b"}\n ]\n}') == 3
    assert line_of("/b", b'{"a": 1,\n\t"b": 2}') in (1, 2)
    assert line_of("/a", b"\x00") is None


@given(
    st.recursive(
        st.integers() | st.text("ab", max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc/~", min_size=1), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_of_any_value_written_a_key_or_item_to_a_line_the_lines_are_those(value: object) -> None:
    written: list[tuple[str, int]] = []
    lines: list[str] = []

    def write(inner: object, pointer: str) -> None:
        if isinstance(inner, dict) and inner:
            lines.append("{")
            for key, item in inner.items():
                place = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
                lines.append(f'"{key}":')
                written.append((place, len(lines)))
                write(item, place)
                lines.append(",")
            lines.append("}")
        elif isinstance(inner, list) and inner:
            lines.append("[")
            for index, item in enumerate(inner):
                written.append((f"{pointer}/{index}", len(lines) + 1))
                write(item, f"{pointer}/{index}")
                lines.append(",")
            lines.append("]")
        else:
            lines.append(repr(inner).replace("'", '"'))

    write(value, "")
    text = "\n".join(lines).encode()
    read_yaml(text, max_bytes=10**6, max_depth=100)
    problems = with_lines([Problem(place, "x") for place, _ in written], text)
    assert [(problem.pointer, problem.line) for problem in problems] == written
