"""Schemas of inputs and replies: what they may refer to, and how much work they may make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.payload import canonical
from weft.definition.schema import Schema, compile_schema, quick_problems
from weft.definition.schema_cost import MAX_LOOKS_PER_VALUE, MAX_SUBSCHEMAS

if TYPE_CHECKING:
    from weft.errors import Problem

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


def schema_problems(schema: Schema, value: Any) -> list[Problem]:
    found = quick_problems(schema, value, canonical(value))
    assert found is not None, "it is not quick"
    return found


def deep(levels: int, *, of: str) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value} if of == "objects" else [value]
    return {"a": value}


def test_a_schema_that_refers_to_itself_is_asked_all_the_way_down() -> None:
    schema = compiled(TREE)
    wide = {"name": "root", "children": [{"name": str(i), "children": []} for i in range(2000)]}
    assert schema_problems(schema, wide) == []
    small: dict[str, Any] = {"name": "root", "children": wide["children"][:20]}
    small["children"][17]["children"] = [{}]
    (problem,) = schema_problems(schema, small)
    assert problem.pointer == "/children/17/children/0"


def test_branches_that_exclude_each_other_are_no_burden() -> None:
    assert schema_problems(compiled(ANY_JSON), {"rows": [[1, "two", None, {"a": [3]}]] * 2000}) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"$ref": "#"}] * 200},
        {"oneOf": [{"$ref": "#", "minItems": 1, "uniqueItems": True}] * 189},
        {
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}] * 50}, "b": {"not": {"$ref": "#/$defs/a"}}},
            "$ref": "#/$defs/a",
        },
        {"dependentSchemas": {f"k{i}": {"$ref": "#"} for i in range(90)}},
    ],
)
def test_a_schema_that_asks_itself_of_the_same_value_is_never_quick(schema: Any) -> None:
    """The library follows every reference from each of the others: 2,700 bytes took seven seconds."""
    values: list[Any] = [1e300, {"k1": 1}, []]
    for value in values:
        assert quick_problems(compiled(schema), value, canonical(value)) is None


@pytest.mark.parametrize("schema", HOSTILE)
def test_a_schema_whose_work_doubles_with_every_level_is_quick_for_shallow_values_alone(schema: Any) -> None:
    ready = compiled(schema)
    for of in ("objects", "lists"):
        assert len(schema_problems(ready, deep(3, of=of))) < 50
        value = deep(60, of=of)
        assert quick_problems(ready, value, canonical(value)) is None


# What people write: none of it is refused, and all of it is checked at once.
ORDINARY: list[tuple[Any, Any]] = [
    (
        {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(500)}},
        {f"p{i}": "value" for i in range(500)},
    ),
    (
        {"properties": {"at": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$"}}},
        {"at": "2026-11-18T12:00:00Z"},
    ),
    (
        {"items": {"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}},
        ["0b1c2d3e-0000-4000-8000-0123456789ab"] * 100,
    ),
    ({"pattern": r"^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}$"}, "someone@example.com"),
    ({"pattern": r"^(?=.*[A-Z])(?=.*\d).{8,64}$"}, "Passw0rd!"),
    ({"pattern": r"^.{1,2000}$"}, "é"),
    ({"pattern": r"^\p{Lu}\p{L}{0,30}$"}, "Élan"),
    ({"enum": [f"country{i}" for i in range(5000)]}, "country4999"),
    (
        {
            "items": {
                "oneOf": [
                    {"properties": {"kind": {"const": f"k{i}"}}, "required": ["kind"]} for i in range(50)
                ]
            }
        },
        [{"kind": f"k{i % 50}"} for i in range(100)],
    ),
    (
        {
            "allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {"type": "integer"}}}],
            "unevaluatedProperties": False,
        },
        {"a": 1, "b": 2},
    ),
    ({"uniqueItems": True, "contains": {"const": 3}}, list(range(1000))),
]


@pytest.mark.parametrize(("schema", "value"), ORDINARY)
def test_an_ordinary_schema_is_checked_at_once(schema: Any, value: Any) -> None:
    assert schema_problems(compiled(schema), value) == []


def test_a_long_array_of_objects_is_legal_and_only_not_checked_at_once() -> None:
    item = {"required": ["id"], "properties": {"id": {"type": "integer"}, "at": {"pattern": r"^\d{4}-\d\d$"}}}
    value = [{"id": i, "at": "2026-11"} for i in range(10_000)]
    assert quick_problems(compiled({"items": item}), value, canonical(value)) is None


def nested(levels: int, leaf: Any, wrap: Any) -> Any:
    for _ in range(levels):
        leaf = wrap(leaf)
    return leaf


def web(levels: int) -> Any:
    names: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(levels)
    }
    return {"$defs": {**names, f"d{levels}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def chain(levels: int, **more: Any) -> Any:
    names: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(levels)}
    return {"$defs": {**names, f"d{levels}": {}}, "$ref": "#/$defs/d0", **more}


TOO_COSTLY: list[tuple[Any, str, str]] = [
    ({"properties": {"a": {"pattern": "^(a{1,1000}){1,1000}$"}}}, "/properties/a/pattern", "states"),
    ({"patternProperties": {r"\p{L}{900}": {}}}, r"/patternProperties/\p{L}{900}", "states"),
    ({"allOf": [{"pattern": f"{i}{'x' * 9}{{3000}}"} for i in range(400)]}, "", "states together"),
    ({"items": {"anyOf": [{"const": i} for i in range(6000)]}}, "/items", "questions about one value"),
    (web(20), "/$defs/d9", "questions about one value"),
    (
        nested(
            16,
            {},
            lambda inner: {"anyOf": [inner, {"minimum": 1}], "unevaluatedProperties": {"type": "string"}},
        ),
        "/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0/anyOf/0",
        "questions about one value",
    ),
    # The library ends the whole process there.
    (chain(1000, unevaluatedProperties=False), "", "refer to each other"),
    ({"properties": {f"p{i}": {} for i in range(MAX_SUBSCHEMAS + 1)}}, "", "schemas within this one"),
    ({"enum": ["x" * 1100] * 1000}, "", "the limit for a schema is"),
]


@pytest.mark.parametrize(("schema", "where", "what"), TOO_COSTLY)
def test_a_schema_that_costs_too_much_is_refused_with_the_place(schema: Any, where: str, what: str) -> None:
    begun = time.process_time()
    problems = compile_schema(schema)
    assert time.process_time() - begun < 5
    assert isinstance(problems, list)
    assert [problem.pointer for problem in problems] == [where]
    assert what in problems[0].message


def test_a_schema_that_comes_again_is_not_counted_again() -> None:
    document = {"properties": {"again": {"type": "integer"}}}
    first, second = compiled(document), compiled({"properties": {"again": {"type": "integer"}}})
    assert first is second
    document["properties"]["again"] = {"type": "string"}
    assert compiled(document) is not first
    assert schema_problems(first, {"again": 1}) == []


def test_what_is_no_json_is_no_schema() -> None:
    problems = compile_schema({"const": object()})
    assert isinstance(problems, list)
    assert problems[0].message == "a JSON Schema must be JSON, of a size that weft reads"


def test_the_limit_on_questions_is_said() -> None:
    problems = compile_schema({"anyOf": [{"const": i} for i in range(6000)]})
    assert isinstance(problems, list)
    assert f"the limit is {MAX_LOOKS_PER_VALUE:,}" in problems[0].message


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": "^(a{1,100}){1,100}$"}, "a" * 5000),
        ({"items": {"anyOf": [{"const": i} for i in range(1000)]}}, list(range(1000)) * 2),
        ({"pattern": "^(?=x)(x+x+)+y$"}, "x" * 1000),
        ({"items": {"enum": [i + 0.5 for i in range(1000)]}}, [0.25] * 100),
        ({"allOf": [{"minProperties": 1000}] * 100}, {f"k{i}": "x" * 50 for i in range(900)}),
    ],
)
def test_what_could_take_long_is_not_begun(schema: Any, value: Any) -> None:
    assert quick_problems(compiled(schema), value, canonical(value)) is None


def test_a_pattern_that_does_not_parse_is_found_in_a_schema_that_is_not_compiled_at_once() -> None:
    names: dict[str, Any] = {f"p{i}": {"pattern": f"^.{{1,200}}{i}$"} for i in range(100)}
    problems = compile_schema({"properties": {**names, "bad": {"pattern": "(a"}}})
    assert isinstance(problems, list)
    assert [problem.pointer for problem in problems] == ["/properties/bad/pattern"]


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
