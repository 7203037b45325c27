from __future__ import annotations

import copy
from typing import Any

import pytest

from weft.errors import EvaluationError, Problem
from weft.expressions.scope import NodeValue, Scope
from weft.expressions.template import Filled, Secret, SecretSlot, Template, compile_template, with_secrets

KIB = 1024
SCOPE = Scope(
    {"name": "Ada", "count": 3, "list": [1, "a", None], "looks": "{{ input.name }}", "n": "\r\n"},
    execution={"id": "e-1", "labels": {}},
    nodes={
        "fetch": NodeValue(state="COMPLETED", output={"status": 200, "body": {"text": "hi"}}),
        "skipped": NodeValue(state="SKIPPED"),
    },
)


def compiled(value: Any, *, secrets_allowed: bool = False) -> Template:
    template = compile_template(value, max_template_bytes=64 * KIB, secrets_allowed=secrets_allowed)
    assert isinstance(template, Template)
    return template


def problems_of(value: Any, *, secrets_allowed: bool = True) -> list[Problem]:
    problems = compile_template(value, max_template_bytes=64 * KIB, secrets_allowed=secrets_allowed)
    assert isinstance(problems, list)
    return problems


def filled(value: Any) -> Any:
    return compiled(value).fill(SCOPE, max_bytes=64 * KIB).value


def failure_of(value: Any, *, max_bytes: int = 64 * KIB) -> str:
    template = compiled(value)
    with pytest.raises(EvaluationError) as caught:
        template.fill(SCOPE, max_bytes=max_bytes)
    return str(caught.value)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ input.count }}", 3),
        ("{{input.count}}", 3),
        ("{{ input.list }}", [1, "a", None]),
        ("{{ fetch }}", {"status": 200, "body": {"text": "hi"}}),
        ("{{ none }}", None),
        ("{{ true }}", True),
        ("{{ 1.0 }}", 1.0),
        ("{{- input.count -}}", 3),
        ("{{+ input.count }}", 3),
        ("{{ {'a': {}} }}", {"a": {}}),
        ("{{{'a':{}}}}", {"a": {}}),
        ("{{ '}}' }}", "}}"),
        ('{{ "{{ x }}" }}', "{{ x }}"),
        ("{{ input.list[0] - (1) }}", 0),
        ("{{ [1,-1][1]-1}}", -2),
    ],
)
def test_a_lone_expression_keeps_its_type(template: str, expected: object) -> None:
    value = filled(template)
    assert type(value) is type(expected)
    assert value == expected


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ input.count }} ", "3 "),
        ("\n{{ input.count }}", "\n3"),
        ("a{{ input.name }}b{{ input.count }}c", "aAdab3c"),
        ("{{ input.name }}{{ input.name }}", "AdaAda"),
        ("v: {{ none }} {{ true }} {{ 1.0 }} {{ input.list }}", 'v: null true 1.0 [1,"a",null]'),
        ("{{ {'a': {}}}}-", '{"a":{}}-'),
        ("a  {{- input.count -}}  b", "a3b"),
        ("a \r\n {{ input.n }} \r\n b\r", "a \r\n \r\n \r\n b\r"),
        ("{{ input.name }}\n", "Ada\n"),
        ("{ {{ input.count }} }", "{ 3 }"),
        ("}} {{ input.count }} %} #}", "}} 3 %} #}"),
        ("{{ '{{' }} and {{ '{%' }}", "{{ and {%"),
        ("{{{{ 1 }}", None),
        ("{{ input.name ~ '-' ~ fetch.status }}!", "Ada-200!"),
        ("Zoë 😀 {{ input.name }}", "Zoë 😀 Ada"),
    ],
)
def test_in_a_longer_string_values_become_text(template: str, expected: str | None) -> None:
    if expected is None:
        assert problems_of(template)
    else:
        assert filled(template) == expected


def test_templates_are_filled_wherever_strings_are() -> None:
    value = {
        "a": ["{{ input.count }}", {"b": "x{{ input.name }}"}, 5, "plain"],
        "key-{{ input.count }}": {"{{ input.name }}": "{{ fetch.status }}", "static": 1},
        "static": {"deep": [1, {"x": None}]},
    }
    before = copy.deepcopy(value)
    assert filled(value) == {
        "a": [3, {"b": "xAda"}, 5, "plain"],
        "key-3": {"Ada": 200, "static": 1},
        "static": {"deep": [1, {"x": None}]},
    }
    assert value == before


def test_a_key_is_always_text() -> None:
    assert filled({"{{ input.count }}": 1, "{{ none }}": 2}) == {"3": 1, "null": 2}


def test_two_keys_that_become_one_are_an_error() -> None:
    assert failure_of({"x": {"3": 1, "{{ input.count }}": 2}}) == "two keys of the object become '3' (at /x)"


def test_filled_text_is_not_read_as_a_template() -> None:
    assert filled("{{ input.looks }}") == "{{ input.name }}"
    assert filled("<{{ input.looks }}>") == "<{{ input.name }}>"
    assert filled("{{ '{' }}{ input.name }}") == "{{ input.name }}"


@pytest.mark.parametrize(
    "value", [5, None, "plain", "a { b } }} %} #}", [], {}, {"a": ["x", {"b": 1.5}]}, {"{": "}"}, "{ {x} }"]
)
def test_a_value_without_templates_is_given_back_as_it_is(value: Any) -> None:
    template = compiled(value)
    assert template.is_static
    assert template.fill(SCOPE, max_bytes=KIB).value is value
    assert template.nodes == template.secrets == frozenset()


def test_static_parts_are_not_copied() -> None:
    static = {"deep": [1, 2]}
    result = filled({"static": static, "x": "{{ input.count }}"})
    assert result["static"] is static


def test_a_template_knows_the_nodes_and_secrets_it_names() -> None:
    template = compiled(
        {
            "a": ["{{ one.x }} {{ two.y }}"],
            "{{ three }}": "{{ nodes['fo-ur'].state }}",
            "k": "{{ secrets.KEY }}",
        },
        secrets_allowed=True,
    )
    assert template.nodes == {"one", "two", "three", "fo-ur"}
    assert template.secrets == {"KEY"}
    assert not template.is_static


def test_every_problem_is_listed_with_its_pointer() -> None:
    problems = problems_of(
        {
            "a/b": ["{{ f() }} and {{ x|nope }}", "{% if x %}"],
            "c~d": {"e": "{{ x", "{{ g() }}": 1},
            "fine": "{{ x }}",
        }
    )
    assert [problem.pointer for problem in problems] == [
        "/a~1b/0",
        "/a~1b/0",
        "/a~1b/1",
        "/c~0d/e",
        "/c~0d/{{ g() }}",
    ]
    assert "f(…)" in problems[0].message
    assert "no filter 'nope'" in problems[1].message


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% set x = 1 %}", "statements ({% … %}) are not available; for the text itself write {{ '{%' }}"),
        ("{% raw %}{{ x }}{% endraw %}", "statements"),
        ("{%- macro m() -%}{%- endmacro -%}", "statements"),
        ("100{% off", "statements"),
        ("{# a comment #}", "comments ({# … #}) are not available; for the text itself write {{ '{#' }}"),
        ("{{ x }}{# a #}", "comments"),
        ("{{ x", "{{ has no }}"),
        ("{{", "{{ has no }}"),
        ("{{ (x }}", "'}' closes nothing"),
        ("{{ x) }}", "')' closes nothing"),
        ("{{ 'x }}", "a string has no end"),
        ("{{ '" + "\\'" * 30_000, "a string has no end"),
        ("{{ }}", "end of the expression"),
        ("{{ {{ x }} }}", "without braces"),
        ("{{ x := 1 }}", "does not belong"),
        ("{{ 1, 2 }}", "does not belong"),
        ("{{ x() }}", "nothing can be called"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deeply"),
        ("x" * 70_000 + "{{ x }}", "a template has at most 65,536 bytes"),
        ("é" * 40_000 + "{{ x }}", "a template has at most 65,536 bytes"),
    ],
)
def test_a_bad_template_is_a_problem_that_says_why(template: str, message: str) -> None:
    (problem,) = problems_of(template)
    assert problem.pointer == ""
    assert message in problem.message


def test_text_without_templates_may_be_of_any_length() -> None:
    assert compiled("x" * 100_000).is_static


def test_a_value_nested_without_end_is_a_problem() -> None:
    value: Any = "{{ x }}"
    for _ in range(5000):
        value = [value]
    (problem,) = problems_of(value)
    assert "nested more than 200 deep" in problem.message


@pytest.mark.parametrize("value", ["\ud800", "\ud800{{ x }}", ["{{ x }}", object()], {1: "{{ x }}"}])
def test_a_value_that_is_not_json_is_a_problem(value: Any) -> None:
    assert problems_of(value) == [Problem("", "this is not JSON")]


def test_a_failure_says_where_the_template_stands() -> None:
    assert failure_of({"a": ["x {{ fetch.nope.text }}"]}) == (
        "fetch.nope.text is not defined: fetch has no key 'nope'; it has: status, body (at /a/0)"
    )
    assert failure_of("{{ skipped.x }}") == "skipped.x is not defined: skipped did not complete (SKIPPED)"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ skipped.x }}", None),
        ("x{{ skipped.x }}", "xnull"),
        ("{{ skipped.x|upper }}", None),
        ("{{ skipped.x + 1 }}", None),
        ("{{ skipped.x|default('d') }}", "d"),
        ("{{ fetch.status }}", 200),
        ({"a": ["{{ fetch.missing }}", "{{ fetch.status }}"]}, {"a": [None, 200]}),
        ("static", "static"),
    ],
)
def test_in_the_output_of_an_execution_what_is_undefined_reads_as_null(
    template: Any, expected: object
) -> None:
    assert compiled(template).fill(SCOPE, max_bytes=KIB, undefined_is_null=True).value == expected


def test_other_failures_remain_failures_in_the_output_of_an_execution() -> None:
    template = compiled("{{ input.name + 1 }}")
    with pytest.raises(EvaluationError):
        template.fill(SCOPE, max_bytes=KIB, undefined_is_null=True)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"a": "{{ 'é\"' }}", "b": [1, "x{{ 1 }}"]}, len('{"a":"é\\"","b":[1,"x1"]}'.encode())),
        ({"{{ input.name }}": "{{ input.list }}"}, len('{"Ada":[1,"a",null]}')),
        ("static", len('"static"')),
        ("{{ 'a' * 500 }}", 502),
        (["{{ input.name * 20 }}"] * 20, 20 * 62 + 21),
    ],
)
def test_a_filled_value_has_at_most_so_many_bytes_as_json(value: Any, size: int) -> None:
    compiled(value).fill(SCOPE, max_bytes=size)
    with pytest.raises(EvaluationError, match="larger than"):
        compiled(value).fill(SCOPE, max_bytes=size - 1)


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a' * 50000000 }}",
        "x{{ 'a' * 50000000 }}",
        "{{ [[[0] * 1000] * 1000] * 1000 }}",
        "x{{ [[[0] * 1000] * 1000] * 1000 }}",
        ["{{ ['a' * 10000] * 10 }}"] * 100,
        ["{{ ([0] * 90000)|sort }}"] * 100,
        "{{ 'a' * 30000 }}" * 100,
        {"{{ 'a' * 50000000 }}": 1},
        {"a": {"b": "{{ 10 ** (10 ** 10) }}"}},
    ],
)
def test_growth_without_bound_ends_in_an_error(template: Any) -> None:
    failure_of(template)


def test_all_templates_of_a_value_share_one_budget() -> None:
    once = "{{ ([0] * 40000)|sort|length }}"
    assert filled(once) == 40_000
    assert "steps" in failure_of([once] * 50)


# --- secrets ----------------------------------------------------------------------------------------


def test_a_secret_is_shown_as_stars_and_noted_for_the_worker() -> None:
    template = compiled(
        {
            "headers": {"Authorization": "Bearer {{ secrets.TOKEN }}", "X": "{{ input.name }}"},
            "list": [0, "{{ secrets['A-B'] }}", "{{ input.count }}:{{ secrets.P }}@{{ secrets.P }}"],
        },
        secrets_allowed=True,
    )
    assert template.secrets == {"TOKEN", "A-B", "P"}
    result = template.fill(SCOPE, max_bytes=KIB)
    assert result == Filled(
        {"headers": {"Authorization": "Bearer ***", "X": "Ada"}, "list": [0, "***", "3:***@***"]},
        (
            SecretSlot(("headers", "Authorization"), ("Bearer ", Secret("TOKEN"))),
            SecretSlot(("list", 1), (Secret("A-B"),)),
            SecretSlot(("list", 2), ("3", ":", Secret("P"), "@", Secret("P"))),
        ),
    )
    before = copy.deepcopy(result.value)
    known = {"TOKEN": "t{{ input.name }}", "A-B": "***", "P": "p"}
    assert with_secrets(result.value, result.secrets, known.__getitem__) == {
        "headers": {"Authorization": "Bearer t{{ input.name }}", "X": "Ada"},
        "list": [0, "***", "3:p@p"],
    }
    assert result.value == before


def test_a_config_may_be_one_secret() -> None:
    result = compiled("{{ secrets.ALL }}", secrets_allowed=True).fill(SCOPE, max_bytes=KIB)
    assert result.value == "***"
    assert with_secrets(result.value, result.secrets, str.lower) == "all"


def test_a_value_without_secrets_stays_the_same() -> None:
    value = {"a": [1]}
    assert with_secrets(value, (), str.lower) is value


@pytest.mark.parametrize(
    ("value", "pointer"),
    [
        ("{{ secrets.KEY|upper }}", ""),
        ("{{ 'x' ~ secrets.KEY }}", ""),
        ({"a": "{{ secrets.KEY.x }}"}, "/a"),
        ({"{{ secrets.KEY }}": 1}, "/{{ secrets.KEY }}"),
        ({"{{ x }}": {"a": "{{ secrets.KEY }}"}}, "/{{ x }}/a"),
    ],
)
def test_a_secret_where_it_cannot_be_kept_apart_is_refused(value: Any, pointer: str) -> None:
    (problem,) = problems_of(value)
    assert problem.pointer == pointer
    assert "a secret" in problem.message


def test_a_secret_beside_a_key_that_is_a_template_is_fine() -> None:
    template = compiled({"{{ input.name }}": 1, "b": "{{ secrets.KEY }}"}, secrets_allowed=True)
    assert template.fill(SCOPE, max_bytes=KIB).secrets == (SecretSlot(("b",), (Secret("KEY"),)),)


def test_secrets_are_refused_where_they_are_not_allowed() -> None:
    (problem,) = problems_of("{{ secrets.KEY }}", secrets_allowed=False)
    assert "only in the config of a node" in problem.message


def test_a_failure_beside_a_secret_says_where() -> None:
    template = compiled(["{{ secrets.KEY }}{{ skipped.x }}"], secrets_allowed=True)
    with pytest.raises(EvaluationError, match=r"skipped did not complete \(SKIPPED\) \(at /0\)"):
        template.fill(SCOPE, max_bytes=KIB)
