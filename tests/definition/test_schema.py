"""Schemas of inputs and replies: what they may refer to, and how much work they may make."""

from __future__ import annotations

import time
from typing import Any

import pytest

from weft.definition.schema import Schema, compile_schema, schema_problems

TREE = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
}
# The usual way to say "any JSON": two branches that refer back, of which a value can only take one.
ANY_JSON = {
    "$defs": {
        "value": {
            "anyOf": [
                {"type": ["string", "number", "boolean", "null"]},
                {"type": "array", "items": {"$ref": "#/$defs/value"}},
                {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}},
            ]
        }
    },
    "$ref": "#/$defs/value",
}
HOSTILE = [
    {
        "anyOf": [
            {"properties": {"a": {"$ref": "#"}}, "required": ["x"]},
            {"properties": {"a": {"$ref": "#"}}, "required": ["y"]},
        ]
    },
    {
        "$defs": {"n": {"$anchor": "n", "allOf": [{"items": {"$ref": "#n"}}, {"items": {"$ref": "#n"}}]}},
        "additionalProperties": {"$ref": "#n"},
    },
    {
        "$dynamicAnchor": "m",
        "oneOf": [
            {"additionalProperties": {"$dynamicRef": "#m"}},
            {"patternProperties": {"": {"$dynamicRef": "#m"}}, "required": ["x"]},
        ],
    },
]


def compiled(schema: Any) -> Schema:
    made = compile_schema(schema)
    assert isinstance(made, Schema), made
    return made


def deep(levels: int, *, of: str) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value} if of == "objects" else [value]
    return {"a": value}


def test_a_schema_that_refers_to_itself_is_asked_all_the_way_down() -> None:
    schema = compiled(TREE)
    wide = {"name": "root", "children": [{"name": str(i), "children": []} for i in range(20_000)]}
    assert schema_problems(schema, wide) == []
    wide["children"][17]["children"] = [{}]  # type: ignore[index]
    (problem,) = schema_problems(schema, wide)
    assert problem.pointer == "/children/17/children/0"


def test_branches_that_exclude_each_other_are_no_burden() -> None:
    assert schema_problems(compiled(ANY_JSON), {"rows": [[1, "two", None, {"a": [3]}]] * 5000}) == []


def test_equal_values_count_each() -> None:
    schema = compiled(
        {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"items": {"$ref": "#/$defs/n"}}}}
    )
    assert schema_problems(schema, {"a": [0] * 300_000}) == []


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_schema_whose_work_doubles_with_every_level_is_refused_that_value_at_once(schema: Any) -> None:
    ready = compiled(schema)
    for of in ("objects", "lists"):
        assert len(schema_problems(ready, deep(3, of=of))) < 50
    begun = time.perf_counter()
    found = [schema_problems(ready, deep(60, of=of)) for of in ("objects", "lists")]
    assert time.perf_counter() - begun < 5
    assert any("cannot be checked" in problem.message for problems in found for problem in problems)


@pytest.mark.parametrize(
    "reference", ["#", "#/$defs/a", "#a", "#/properties/x/prefixItems/0", "#/$defs/b~1c"]
)
def test_a_reference_may_lead_to_any_schema_within(reference: str) -> None:
    schema = {
        "$defs": {"a": {"$anchor": "a"}, "b/c": {}},
        "properties": {"x": {"prefixItems": [{}]}, "y": {"$ref": reference}},
    }
    assert schema_problems(compiled(schema), {"y": {}}) == []


@pytest.mark.parametrize(
    "reference", ["#/$defs/none", "#none", "other.json", "https://example.org/s", "#/properties/x/const"]
)
def test_a_reference_to_anything_else_is_named(reference: str) -> None:
    problems = compile_schema({"properties": {"x": {"const": {}}, "y": {"$ref": reference}}})
    assert isinstance(problems, list)
    assert [problem.pointer for problem in problems] == ["/properties/y/$ref"]
    assert repr(reference) in problems[0].message


def test_names_that_look_like_keywords_are_names() -> None:
    schema = {"properties": {"$ref": {"type": "string"}, "$id": {}}, "examples": [{"$ref": "nowhere"}]}
    assert schema_problems(compiled(schema), {"$ref": "x"}) == []
