from __future__ import annotations

import inspect
import tracemalloc
from typing import Any

import pytest

from weft.core.state import NodeState
from weft.errors import EvaluationError, ExpressionError
from weft.expressions.budget import MAX_STEPS
from weft.expressions.compiler import EXECUTION_FIELDS, TESTS
from weft.expressions.expression import Expression, compile_expression
from weft.expressions.filters import FILTERS
from weft.expressions.scope import NodeValue, Scope

SCOPE = Scope(
    {
        "name": "Ada",
        "count": 3,
        "price": 2.5,
        "flag": True,
        "nothing": None,
        "empty": {},
        "numbers": [3, 1, 2],
        "words": ["pear", "Apple", "fig"],
        "rows": [{"id": 2, "tag": {"n": "b"}}, {"id": 1, "tag": {"n": "a"}}, {"id": 2, "tag": {"n": "B"}}],
        "object": {"items": [1], "keys": "k", "x-y": 1, "0": "zero", "nested": {"deep": [10, 20]}},
        "looks": "{{ input.name }}",
        "huge": 2**63,
    },
    execution={
        "id": "e-1",
        "workflow": "report",
        "version": 4,
        "generation": 1,
        "labels": {"team": "red"},
        "created_at": "2026-01-01T00:00:00Z",
    },
    nodes={
        "fetch": NodeValue(state="COMPLETED", output={"status": 200, "url": "u"}),
        "wrapped": NodeValue(state="COMPLETED", output={"output": {"z": 1}}),
        "plain": NodeValue(state=NodeState.COMPLETED, output=7),
        "list-of": NodeValue(state="COMPLETED", output=[1, 2]),
        "skipped": NodeValue(state=NodeState.SKIPPED, reason="condition"),
        "failed": NodeValue(state="FAILED", error={"code": "timeout"}),
    },
)


def value_of(source: str) -> Any:
    return compile_expression(source).evaluate(SCOPE)


def failure_of(source: str) -> str:
    expression = compile_expression(source)
    with pytest.raises(EvaluationError) as caught:
        expression.evaluate(SCOPE)
    return str(caught.value)


def refusal_of(source: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(source)
    return str(caught.value)


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1", 1),
        ("1.5", 1.5),
        ("0xff", 255),
        ("1_000", 1000),
        ("9223372036854775808", 2**63),
        ("'a\\n\\u00e9\\\\d'", "a\né\\d"),
        ('"a" "b"', "ab"),
        ("'😀'", "😀"),
        ("true", True),
        ("False", False),
        ("none", None),
        ("[]", []),
        ("[1, 'a', [none]]", [1, "a", [None]]),
        ("(1, 2)", [1, 2]),
        ("()", []),
        ("{}", {}),
        ("{'a': 1, 'b' ~ 1: [input.count]}", {"a": 1, "b1": [3]}),
    ],
)
def test_a_literal_is_its_value(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 + 2", 3),
        ("1 + 2.0", 3.0),
        ("'a' + 'b'", "ab"),
        ("[1] + [2]", [1, 2]),
        ("5 - 7", -2),
        ("3 * 4", 12),
        ("'ab' * 3", "ababab"),
        ("2 * [1, 2]", [1, 2, 1, 2]),
        ("'ab' * -1", ""),
        ("'' * 99999999999999999999", ""),
        ("[] * 99999999999999999999", []),
        ("7 / 2", 3.5),
        ("4 / 2", 2.0),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("7 % 3", 1),
        ("2 ** 10", 1024),
        ("2 ** -1", 0.5),
        ("1 ** 99999999999999999999", 1),
        ("-1 ** 99999999999999999999", -1),
        ("0 ** 99999999999999999999", 0),
        ("2 ** 3 ** 2", 64),  # to the left, as Jinja reads it
        ("-3", -3),
        ("+3", 3),
        ("- -3", 3),
        ("9007199254740993 + 0", 9007199254740993),
        ("input.huge * 2 + 1", 2**64 + 1),
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("10 - 2 - 3", 5),
        ("'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1, {'k': 'v'}]", 'a1nulltrue1.5[1,{"k":"v"}]'),
        ("1 ~ 2", "12"),
    ],
)
def test_arithmetic_and_text(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1 == 1.0", True),
        ("1 == true", False),
        ("0 == false", False),
        ("'1' == 1", False),
        ("none == none", True),
        ("none == false", False),
        ("[1, {'a': [2.0]}] == [1.0, {'a': [2]}]", True),
        ("[1] == [true]", False),
        ("{'a': 1} == {'b': 1}", False),
        ("{'a': 1, 'b': 2} == {'b': 2, 'a': 1}", True),
        ("[] == {}", False),
        ("[[]] == [{}]", False),
        ("[1] == [1, 2]", False),
        ("9007199254740993 == 9007199254740992.0", False),
        ("1 != 2", True),
        ("1 < 2", True),
        ("2 <= 2.0", True),
        ("'b' > 'a'", True),
        ("3 >= 4", False),
        ("1 < 2 < 3", True),
        ("1 < 2 > 5", False),
        ("3 < 2 < (1 / 0)", False),
        ("1 in [1, 2]", True),
        ("true in [1, 2]", False),
        ("[1] in [[1.0]]", True),
        ("3 not in [1, 2]", True),
        ("'da' in input.name", True),
        ("'name' in input", True),
        ("1 in input", False),
        ("not true", False),
        ("not ''", True),
        ("true and 'x'", "x"),
        ("0 and 1/0", 0),
        ("'' or 'y'", "y"),
        ("'x' or 1/0", "x"),
        ("1 and 2 and 3", 3),
        ("0 or '' or none", None),
        ("true or false and false", True),
        ("1 if input.flag else 2", 1),
        ("1 if not input.flag else 2", 2),
        ("1 if false else 2 if false else 3", 3),
        ("1/0 if false else 5", 5),
        ("input.count == 3 and input.name == 'Ada'", True),
    ],
)
def test_comparison_and_logic(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("input.name", "Ada"),
        ("  input.name\n", "Ada"),
        ("input['name']", "Ada"),
        ("input.numbers[0]", 3),
        ("input.numbers.0", 3),
        ("input.numbers[-1]", 2),
        ("input.object.items", [1]),
        ("input.object.keys", "k"),
        ("input.object['x-y']", 1),
        ("input.object['0']", "zero"),
        ("input.object.nested.deep[1]", 20),
        ("input.object[input.object.keys ~ 'eys']", "k"),
        ("input.numbers[input.count - 1]", 2),
        ("input.rows[0]['tag'].n", "b"),
        ("input.rows[input.count - 2].id", 1),
        ("input.numbers[:2]", [3, 1]),
        ("input.numbers[::-1]", [2, 1, 3]),
        ("input.numbers[1:][0]", 1),
        ("input.numbers[-99999999999999999999:99999999999999999999]", [3, 1, 2]),
        ("input.name[0]", "A"),
        ("input.name[1:]", "da"),
        ("[1, 2][1]", 2),
        ("{'a': {'b': 1}}.a.b", 1),
        ("(input.numbers|sort)[0]", 1),
        ("input.numbers|sort|first", 1),
        ("execution.id", "e-1"),
        ("execution.labels.team", "red"),
        ("execution", dict(SCOPE.execution)),
        ("fetch.status", 200),
        ("fetch", {"status": 200, "url": "u"}),
        ("fetch.output", {"status": 200, "url": "u"}),
        ("fetch.output.status", 200),
        ("fetch['output'].status", 200),
        ("wrapped.output", {"z": 1}),
        ("wrapped.output.z", 1),
        ("wrapped", {"output": {"z": 1}}),
        ("plain", 7),
        ("plain.output", 7),
        ('nodes["fetch"].output', {"status": 200, "url": "u"}),
        ("nodes.fetch.output.status", 200),
        ("nodes.wrapped.output", {"output": {"z": 1}}),
        ('nodes["list-of"].output[1]', 2),
        ("nodes.fetch.state", "COMPLETED"),
        ("nodes.fetch.error", None),
        ("nodes.skipped.state", "SKIPPED"),
        ("nodes.skipped.reason", "condition"),
        ("nodes.failed.error.code", "timeout"),
    ],
)
def test_a_path_finds_keys_and_positions(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "fetch.body.text",
            "fetch.body.text is not defined: fetch has no key 'body'; it has: status, url",
        ),
        ("fetch.url.host", "fetch.url.host is not defined: fetch.url is a string, which has no key 'host'"),
        ("input.nothing.x", "input.nothing.x is not defined: input.nothing is null, which has no key 'x'"),
        ("input.empty.x", "input.empty.x is not defined: input.empty has no key 'x'; it is empty"),
        (
            "input.numbers[7]",
            "input.numbers[7] is not defined: input.numbers has 3 elements, and none at 7",
        ),
        ("input.name[9]", "input.name[9] is not defined: input.name has 3 characters, and none at 9"),
        ("input.numbers.x", "input.numbers.x is not defined: input.numbers is a list, which has no key 'x'"),
        (
            "input.object[0]",
            "input.object[0] is not defined: "
            "input.object is an object, whose keys are strings, and 0 is none",
        ),
        ('input["na me"]', "input[\"na me\"] is not defined: input has no key 'na me'; it has: "),
        (
            "input.object[input.name].x",
            "input.object[input.name].x is not defined: input.object has no key 'Ada'; it has: ",
        ),
        ("skipped.x", "skipped.x is not defined: skipped did not complete (SKIPPED)"),
        ("skipped", "skipped is not defined: skipped did not complete (SKIPPED)"),
        ("skipped.output", "skipped.output is not defined: skipped did not complete (SKIPPED)"),
        ("failed[1:].x", "failed[…].x is not defined: failed did not complete (FAILED)"),
        ("nodes.failed.output.x", "nodes.failed.output.x is not defined: failed did not complete (FAILED)"),
        ("unknown.x", "unknown.x is not defined: unknown has not completed"),
        ("nodes.unknown.state", "nodes.unknown.state is not defined: unknown has not settled"),
        ("1 if false", "the condition is false and there is no else"),
        ("(1 if false).x", "the condition is false and there is no else"),
        ("input.empty|keys|first", "input.empty|keys|first is not defined: the list is empty"),
        ("''|last", "the string is empty"),
        ("[]|max", "the list is empty"),
        ("skipped.x|default(failed.y)", "failed.y is not defined: failed did not complete (FAILED)"),
    ],
)
def test_what_is_undefined_is_named_as_written(source: str, message: str) -> None:
    assert message in failure_of(source)


@pytest.mark.parametrize(
    "template",
    [
        "{0} + 1",
        "1 - {0}",
        "-{0}",
        "+{0}",
        "not {0}",
        "{0} ~ 'x'",
        "{0} == 1",
        "1 < 2 < {0}",
        "1 in {0}",
        "{0} in [1]",
        "{0} and true",
        "{0} or 'fallback'",
        "false or {0}",
        "1 if {0} else 2",
        "{0} if true else 2",
        "{0} is none",
        "[{0}]",
        "{{'a': {0}}}",
        "{{{0}: 1}}",
        "input[{0}]",
        "input.numbers[{0}:]",
        "{0}.more",
        "{0}[0]",
        "{0}[input.count]",
        "{0}[1:]",
        "{0}|length",
        "'a'|replace({0}, 'b')",
    ],
)
def test_nothing_but_default_and_is_defined_takes_what_is_undefined(template: str) -> None:
    assert "skipped.x" in failure_of(template.format("skipped.x"))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("skipped.x|default('d')", "d"),
        ("skipped.x|default", ""),
        ("skipped.x.y[0][input.count][1:]|default('d')", "d"),
        ("skipped.x|default(failed.y)|default(3)", 3),
        ("fetch.status|default(skipped.x|upper)", 200),  # what is not needed is not computed
        ("input.nothing|default('d')", None),
        ("input.nothing|default('d', true)", "d"),
        ("''|default('d', boolean=true)", "d"),
        ("0|default('d')", 0),
        ("(1 if false)|default(2)", 2),
        ("(true and skipped.x)|default(2)", 2),
        ("input.empty|keys|first|default('none')", "none"),
        ("skipped.x is defined", False),
        ("skipped.x is not defined", True),
        ("skipped.x is undefined", True),
        ("fetch.status is defined", True),
        ("fetch.status is not undefined", True),
        ("input.nothing is defined", True),
        ("input.nothing is none", True),
        ("input.name is not none", True),
        ("fetch.status is defined and fetch.status == 200", True),
        ("skipped.x is defined and skipped.x.y > 2", False),
        ("'yes' if skipped is defined else 'no'", "no"),
    ],
)
def test_default_and_the_tests_take_what_is_undefined(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("-3|abs", 3),
        ("(-2.5)|abs", 2.5),
        ("input.numbers|first", 3),
        ("'abc'|first", "a"),
        ("input.numbers|last", 2),
        ("'2.5'|float", 2.5),
        ("2|float", 2.0),
        ("'x'|float(1)", 1),
        ("'42'|int", 42),
        ("' 42 '|int", 42),
        ("'3.9'|int", 3),
        ("-3.9|int", -3),
        ("true|int", 1),
        ("'x'|int(none)", None),
        ("'x'|int(default=7)", 7),
        ("none|int(0)", 0),
        ("'1e999'|int(0)", 0),
        ("'nan'|float(0)", 0),
        ("'9223372036854775808'|int", 2**63),
        ("{'a': 1}|items", [["a", 1]]),
        ("[1, 'a', true, none]|join(', ')", "1, a, true, null"),
        ("[]|join(',')", ""),
        ("input.rows|join('-', attribute='id')", "2-1-2"),
        ("input.rows|join(separator='-', attribute='tag.n')", "b-a-B"),
        ("{'a': 1, 'b': 2}|keys", ["a", "b"]),
        ("{'a': 1, 'b': 2}|values", [1, 2]),
        ("input.numbers|length", 3),
        ("{'a': 1}|length", 1),
        ("'äöü'|length", 3),
        ("'ÄB'|lower", "äb"),
        ("'straße'|upper", "STRASSE"),
        ("input.numbers|max", 3),
        ("input.numbers|min", 1),
        ("[1, 2.5]|max", 2.5),
        ("['b', 'A']|min", "A"),
        ("['b', 'A', 'a']|max(case_sensitive=true)", "b"),
        ("(input.rows|min(attribute='id')).tag.n", "a"),
        ("'aXbX'|replace('X', '-')", "a-b-"),
        ("'aXbX'|replace('X', '', 1)", "abX"),
        ("'ab'|replace('', '.')", ".a.b."),
        ("'ab'|replace('a', 'b', count=0)", "ab"),
        ("2.5|round", 2.0),
        ("2.567|round(2)", 2.57),
        ("42|round", 42),
        ("1234|round(-2)", 1200),
        ("2.1|round(method='ceil')", 3.0),
        ("2.19|round(1, 'floor')", 2.1),
        ("input.numbers|sort", [1, 2, 3]),
        ("input.numbers|sort(reverse=true)", [3, 2, 1]),
        ("input.words|sort", ["Apple", "fig", "pear"]),
        ("['b', 'C', 'a']|sort(case_sensitive=true)", ["C", "a", "b"]),
        ("(input.rows|sort(attribute='id'))[0].id", 1),
        ("[]|sort", []),
        ("1.0|string", "1.0"),
        ("true|string", "true"),
        ("'a'|string", "a"),
        ("{'a': [none]}|string", '{"a":[null]}'),
        ("input.numbers|sum", 6),
        ("[]|sum", 0),
        ("[1, 0.5]|sum(start=10)", 11.5),
        ("input.rows|sum('id')", 5),
        ("{'a': 1.0, 'b': ['é']}|tojson", '{"a":1.0,"b":["é"]}'),
        ("'a\"b'|tojson", '"a\\"b"'),
        ("none|tojson", "null"),
        ("'  a '|trim", "a"),
        ("'xxaxx'|trim('x')", "a"),
        ("'foo bar baz qux'|truncate(9)", "foo..."),
        ("'foo bar baz qux'|truncate(9, true)", "foo ba..."),
        ("'foo bar baz qux'|truncate(11)", "foo bar baz qux"),
        ("'foo bar baz qux'|truncate(11, false, '...', 0)", "foo bar..."),
        ("[1, 1.0, true, '1', 1]|unique", [1, True, "1"]),
        ("['a', 'A', 'b']|unique", ["a", "b"]),
        ("['a', 'A']|unique(case_sensitive=true)", ["a", "A"]),
        ("[[1], [1], {'a': 1, 'b': 2}, {'b': 2, 'a': 1}]|unique", [[1], {"a": 1, "b": 2}]),
        ("input.rows|unique(attribute='id')|join(',', 'tag.n')", "b,a"),
        ("[2 ** 70, 2 ** 70, 2.0 ** 70]|unique|length", 1),
        ("'a b/ü&'|urlencode", "a%20b/%C3%BC%26"),
        ("5|urlencode", "5"),
        ("{'q': 'a b/', 'n': 1, 'f': true}|urlencode", "q=a+b%2F&n=1&f=true"),
    ],
)
def test_each_filter(source: str, expected: object) -> None:
    assert same(value_of(source), expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("1 + 'a'", "cannot compute a number + a string"),
        ("true + 1", "cannot compute a boolean + a number"),
        ("1 + none", "cannot compute a number + null"),
        ("[1] + {}", "a list + an object"),
        ("'a' - 1", "- takes two numbers"),
        ("'%d' % 5", "% takes two numbers"),
        ("'a' * 1.5", "cannot compute a string * a number"),
        ("'a' * true", "cannot compute a string * a boolean"),
        ("-'a'", "cannot negate a string"),
        ("-true", "cannot negate a boolean"),
        ("+[]", "cannot compute + of a list"),
        ("1 / 0", "division by zero"),
        ("1 // 0", "division by zero"),
        ("1 % 0.0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("1e308 * 10", "too large for a number"),
        ("10.0 ** 400", "too large for a number"),
        ("2 ** 10000 / 3", "too large for a number"),
        ("2 ** 10000 + 1.5", "too large for a number"),
        ("(-8) ** 0.5", "not a real number"),
        ("1 < 'a'", "cannot order a number and a string with <"),
        ("true > false", "cannot order a boolean and a boolean"),
        ("[1] <= [2]", "cannot order a list and a list"),
        ("1 in 'abc'", "cannot look for a number in a string"),
        ("1 in 5", "cannot look for a value in a number"),
        ("'a' in none", "cannot look for a value in null"),
        ("input[1.5 + 0]", "a number is no key"),
        ("input[true and true]", "a boolean is no key"),
        ("{input.count: 1}", "a number cannot be a key of an object"),
        ("input.name['a':]", "a string cannot bound a part"),
        ("input.name[::0]", "in steps of 0"),
        ("5[1:]", "cannot take a part of a number"),
        ("5|length", "length takes a list, an object or a string, not a number"),
        ("5|upper", "upper takes a string, not a number (the filter string makes one)"),
        ("'abc'|join", "join takes a list, not a string"),
        ("'abc'|sort", "sort takes a list, not a string"),
        ("{}|first", "first takes a list or a string, not an object"),
        ("[1, 'a']|sort", "sort takes only numbers or only strings, not a number and a string"),
        ("[true, false]|sort", "sort takes only numbers or only strings, not a boolean"),
        ("[[1], [2]]|max", "max takes only numbers or only strings, not a list"),
        ("[1, 'a']|sum", "sum takes a number, not a string"),
        ("[true]|sum", "sum takes a number, not a boolean"),
        ("[1e308, 1e308]|sum", "too large for a number"),
        ("input.rows|sum(attribute='tag.x')", "sum: element 0 of the list has no 'tag.x'"),
        ("input.rows|sort(attribute=0)", "element 0 of the list has no 0"),
        ("'abc'|int", "this string is not a number; int(default) gives a value to use instead"),
        ("none|int", "null is not a number"),
        ("[]|float", "a list is not a number"),
        ("true|abs", "abs takes a number, not a boolean"),
        ("1.5|round(500)", "from -300 to 300"),
        ("1.5|round(method='up')", "'common', 'ceil' or 'floor'"),
        ("1.5|round('x')", "a whole number, not a string"),
        ("'a'|replace('a', 1)", "replace takes a string, not a number"),
        ("'abcdef'|truncate(2)", "from 3 to"),
        ("'a'|truncate(9, 'yes')", "killwords of truncate takes true or false, not a string"),
        ("[]|keys", "keys takes an object, not a list"),
        ("[1]|urlencode", "urlencode takes a string, a number or an object, not a list"),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_that_says_so(source: str, message: str) -> None:
    assert message in failure_of(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "end of the expression"),
        ("   ", "end of the expression"),
        ("1 +", "end of the expression"),
        ("(1", "end of the expression"),
        ("1)", "unexpected ')'"),
        ("a b", "'b' does not belong after the expression"),
        ("1, 2", "',' does not belong after the expression"),
        ("a = 1", "does not belong after the expression"),
        ("a; b", "';'"),
        ("a ? b : c", "unexpected char '?'"),
        ("a && b", "unexpected char '&'"),
        ("{{ a }}", "without braces"),
        ("{% if a %}", "without braces"),
        ("a }} {{ b", "does not belong after the expression"),
        ("'abc", "a string has no end"),
        ("'\\d+'", "unknown escape \\d"),
        ("'\\400'", "unknown escape \\400"),
        ("'\\é'", "unknown escape \\é"),
        ("'\\xg'", "truncated"),
        ("'\\ud800'", "surrogate"),
        ("'\ud800'", "surrogate"),
        ("1e999", "a number is too large"),
        ("9" * 5000, "too many digits"),
        ("0x" + "f" * 5000, "too many digits"),
        ("range(3)", "nothing can be called: range(…); the filters are: abs, default"),
        ("a.b()", "methods cannot be called: .b(…)"),
        ("'x'.upper()", "methods cannot be called: .upper(…)"),
        ("a['b']()", "nothing can be called"),
        ("(a|upper)()", "nothing can be called"),
        ("a|attr('b')", "no filter 'attr'; the filters are: abs, default"),
        ("a|map('upper')", "no filter 'map'"),
        ("a|d('x')", "no filter 'd'"),
        ("a|foo.bar", "no filter 'foo.bar'"),
        ("a is string", "no test 'string'; the tests are: defined, none, undefined"),
        ("a is divisibleby 3", "no test 'divisibleby'"),
        ("a is defined(1)", "the test defined takes no argument"),
        ("a|upper(1)", "these arguments do not fit the filter upper"),
        ("a|replace('x')", "these arguments do not fit the filter replace(old, new, count=none)"),
        ("a|replace('x', 'y', 1, 2)", "do not fit"),
        ("a|replace('x', old='y')", "do not fit"),
        ("a|join(by=',')", "these arguments do not fit the filter join(separator='', attribute=none)"),
        ("a|join(*b)", "do not fit"),
        ("a|join(**b)", "do not fit"),
        ("a[]", "a subscript takes one key"),
        ("a[1, 2]", "a subscript takes one key"),
        ("a[1:2, 3]", "a subscript takes one key"),
        ("a[true]", "a subscript takes one key"),
        ("a[1.5]", "a subscript takes one key"),
        ("nodes", "nodes is followed by the id of a node"),
        ("nodes[0].output", "nodes is followed by the id of a node"),
        ("nodes[input.name].output", "nodes is followed by the id of a node"),
        ("nodes['a']", 'nodes["a"] is followed by one of: .error, .output, .reason, .state'),
        ("nodes.a.status", "nodes.a is followed by one of"),
        ("nodes|length", "nodes is followed by the id of a node"),
        ("execution.started_at", "execution has no 'started_at'; it has: id, workflow, version"),
        ("secrets.KEY", "only in the config of a node"),
        ("secrets|length", "only in the config of a node"),
    ],
)
def test_what_is_not_of_the_language_is_refused_by_name(source: str, message: str) -> None:
    assert message in refusal_of(source)


def test_a_refusal_shows_the_expression_shortened() -> None:
    assert refusal_of("f(1)").startswith("f(1): ")
    assert len(refusal_of("f('" + "x" * 50_000 + "')")) < 600


def test_an_error_about_a_long_path_stays_short() -> None:
    path = ".".join(["input", *["a" * 100] * 500])
    assert len(failure_of(path)) < 1000


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1", set()),
        ("input.a + execution.version", set()),
        ("fetch.status == 200 and other.x|default(third)", {"fetch", "other", "third"}),
        ('nodes["my-id"].output.x', {"my-id"}),
        ("nodes.a.state ~ b[c.d]", {"a", "b", "c"}),
        ("[a, {'k': b}, c if d else e][f:g]", set("abcdefg")),
        ("x is defined", {"x"}),
        ("if.x", {"if"}),  # a word of Jinja is a name where a name must stand
    ],
)
def test_an_expression_knows_the_nodes_it_names(source: str, expected: set[str]) -> None:
    assert compile_expression(source).nodes == expected


@pytest.mark.parametrize("source", ["secrets.KEY", "secrets['KEY']", " secrets.KEY "])
def test_a_secret_stands_alone_and_is_known_by_name(source: str) -> None:
    expression = compile_expression(source, secrets_allowed=True)
    assert expression.secrets == {"KEY"}
    assert expression.nodes == frozenset()
    with pytest.raises(EvaluationError, match="known only to the worker"):
        expression.evaluate(SCOPE)


@pytest.mark.parametrize(
    "source",
    [
        "secrets",
        "secrets.KEY.part",
        "secrets.KEY|upper",
        "secrets.KEY ~ 'x'",
        "secrets.KEY == 'x'",
        "[secrets.KEY]",
        "secrets.KEY if true else ''",
        "secrets.KEY is defined",
        "secrets.KEY|default('')",
        "secrets[input.name]",
        "input[secrets.KEY]",
        "secrets[0]",
    ],
)
def test_a_secret_takes_no_part_in_an_expression(source: str) -> None:
    with pytest.raises(ExpressionError, match="a secret stands alone"):
        compile_expression(source, secrets_allowed=True)


def test_the_same_source_is_compiled_once() -> None:
    assert compile_expression("input.once.only") is compile_expression("input.once.only")
    assert compile_expression("secrets.A", secrets_allowed=True).secrets == {"A"}
    assert "only in the config" in refusal_of("secrets.A")


def test_the_lists_of_the_language_are_those_of_the_interface() -> None:
    assert sorted(FILTERS) == list(FILTERS)
    assert set(FILTERS) == {
        *(
            "default",
            "length",
            "first",
            "last",
            "join",
            "sort",
            "unique",
            "sum",
            "min",
            "max",
            "round",
            "abs",
        ),
        *(
            "int",
            "float",
            "string",
            "upper",
            "lower",
            "trim",
            "replace",
            "truncate",
            "keys",
            "values",
            "items",
        ),
        *("tojson", "urlencode"),
    }
    assert TESTS == ("defined", "none", "undefined")
    assert set(EXECUTION_FIELDS) == {"id", "workflow", "version", "generation", "labels", "created_at"}


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_is_documented_with_its_parameters(name: str) -> None:
    known = FILTERS[name]
    parameters = [parameter.name for parameter in known.parameters]
    written = known.signature.removeprefix(name).strip("()")
    assert [part.split("=")[0].strip() for part in written.split(",") if part] == parameters
    assert known.doc
    assert list(inspect.signature(known.function).parameters)[:2] == ["value", "budget"]


# --- bounds -----------------------------------------------------------------------------------------

BIG = Scope(
    {
        "list": list(range(200_000)),
        "strings": ["x" * 1000] * 2000,
        "text": "ab" * 4_000_000,
        "same": "ab" * 4_000_000,
        "emoji": "😀" * 1_000_000,
        "colliding": [index * (2**61 - 1) for index in range(20_000)],
    },
    execution={},
    nodes={},
)


@pytest.mark.parametrize(
    "source",
    [
        "'a' * 50000000",
        "50000000 * 'a'",
        "'a' * 10 ** 20",
        "('a' * 10000000) * 10000000",
        "((('a' * 1000) * 1000) * 1000) * 1000",
        "[0] * 50000000",
        "[0] * 10 ** 20",
        "[[[0] * 1000] * 1000] * 1000",
        "[[[[0] * 900] * 900] * 900] * 900 == [[[[0] * 900] * 900] * 900] * 900",
        "([[[0] * 900] * 900] * 900)|tojson",
        "([[[0] * 900] * 900] * 900)|unique",
        "([[[0] * 900] * 900] * 900)|join",
        "([[['a' * 9000] * 900] * 900] * 900) ~ ''",
        "{'a': [input.text] * 1000}|string|length",
        "10 ** 10 ** 10 ** 10 ** 10",
        "10 ** (10 ** 10)",
        "9 ** 99999",
        "2 ** 14281",
        "(2 ** 14000) * (2 ** 14000)",
        "(2 ** 14000) ** 99",
        "('a' * 1000000)|replace('a', 'a' * 1000)",
        "('a' * 1000000)|replace('', 'a' * 1000)",
        "('a' * 1000)|replace('a', 'a' * 1000)|replace('a', 'a' * 1000)",
        "(['a'] * 100000)|join('a' * 1000)",
        "(['a' * 1000] * 100000)|join",
        " ~ ".join(["input.text"] * 8),
        " + ".join(["input.text"] * 8),
        " + ".join(["input.list"] * 8),
        "[" + ",".join(["input.text ~ 'x'"] * 50) + "]",
        "[" + ",".join(["input.text|upper"] * 50) + "]",
        "[" + ",".join(["input.list|sort"] * 50) + "]",
        "[" + ",".join(["input.list[:]"] * 50) + "]",
        "[" + ",".join(["input.text in input.same"] * 50) + "]",
        "[" + ",".join(["input.text == input.same"] * 50) + "]",
        "[" + ",".join(["input.text < input.same"] * 50) + "]",
        "[" + ",".join(["-1 in input.list"] * 50) + "]",
        "([input.text] * 90000) == ([input.same] * 90000)",
        "([input.text] * 90000)|sort",
        "([input.text] * 90000)|max",
        "([input.text] * 90000)|unique",
        "(input.strings * 100)|sort",
        "input.emoji|urlencode",
        "input.text|urlencode",
        "input.text|trim(input.same)",
        "[[1]]|sum(attribute=input.text)",
        "input.rows|default(input.list * 100)",
    ],
)
def test_growth_and_work_without_bound_end_in_an_error(source: str) -> None:
    expression = compile_expression(source)
    tracemalloc.start()
    try:
        with pytest.raises(EvaluationError):
            expression.evaluate(BIG)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150_000_000


def test_many_values_with_one_hash_are_told_apart_in_few_steps() -> None:
    assert compile_expression("input.colliding|unique|length").evaluate(BIG) == 20_000


@pytest.mark.parametrize(
    "source",
    [
        "(" * 3000 + "1" + ")" * 3000,
        "[" * 3000 + "]" * 3000,
        "(" * 100_000,
        "{'a':" * 200 + "1" + "}" * 200,
        "a[" * 200 + "0" + "]" * 200,
        "not " * 3000 + "1",
        "-" * 3000 + "1",
        "- + " * 1000 + "1",
        "1 if 1 else " * 200 + "1",
        "(1 if 1 else 1 if 1 else 1 if 1 else " * 23 + "1" + ")" * 23,
        "a" + "|upper" * 500,
        "a" + " is defined" * 500,
        "1" + " if 1" * 500,
        "(not not not not (- - - -" * 24,
        "x|default(" * 200 + ")" * 200,
        "1" + "+1" * 40_000,
        "'" + "a" * 70_000 + "'",
        '"' + '\\"' * 30_000,
        "[" + "1," * 5000 + "]",
    ],
)
def test_a_source_too_deep_or_too_long_is_refused(source: str) -> None:
    refusal_of(source)


def test_long_flat_chains_are_fine() -> None:
    assert value_of(" + ".join(["1"] * 1900)) == 1900
    assert value_of(" and ".join(["input.flag"] * 600)) is True
    assert value_of(" ~ ".join(["1"] * 1900)) == "1" * 1900
    assert value_of("input.object" + "[input.missing|default('nested')]" + ".deep[0]") == 10
    assert "not defined" in failure_of("input" + ".a" * 1900)
    assert "not defined" in failure_of("skipped" + "[input.count]" * 700)
    assert value_of("1" + " < 2 != 1" * 600) is True


def test_nesting_within_the_limit_is_fine() -> None:
    assert value_of("(" * 24 + "1" + ")" * 24) == 1
    assert value_of("[" * 24 + "1" + "]" * 24)[0][0][0][0] != 1
    assert value_of("0 if false else " * 60 + "1") == 1


def test_a_tree_is_measured_as_it_would_be_written() -> None:
    assert len(compile_expression("[input.list] * 40").evaluate(BIG)) == 40
    with pytest.raises(EvaluationError, match="16,777,216"):
        compile_expression("[input.list] * 50").evaluate(BIG)
    with pytest.raises(EvaluationError, match=f"more than {MAX_STEPS:,} steps"):
        compile_expression("[input.list[1:]] + [input.list[2:]] + [input.list[3:]]").evaluate(BIG)


# --- escapes ----------------------------------------------------------------------------------------

ESCAPES = [
    "''.__class__",
    "''.__class__.__mro__",
    "''.__class__.__mro__[1].__subclasses__()",
    "''.__class__.__base__.__subclasses__()[40]('/etc/passwd').read()",
    "''['__class__']['__mro__'][2]",
    '""["\\x5f\\x5fclass\\x5f\\x5f"]',
    "()|attr('__class__')",
    "()|attr('\\x5f\\x5fclass\\x5f\\x5f')|attr('__base__')",
    "[].__class__.__base__",
    "{}.__class__.__bases__[0].__subclasses__()",
    "(1).__class__",
    "1.5.__class__",
    "true.__class__",
    "none.__class__.__init__.__globals__",
    "input.__class__",
    "input['__class__']",
    "input.__init__.__globals__['os'].popen('id').read()",
    "input.get('x')",
    "input.items()",
    "input.keys()|list",
    "input.pop('name')",
    "input.update({'a': 1})",
    "input.numbers.append(1)",
    "input.name.format(1)",
    "'{0.__class__}'.format(input)",
    "'{0.__class__.__init__.__globals__}'.format_map(input)",
    "'%s'|format(input)",
    "'%(a)s' % input",
    "('{0.__cl' ~ 'ass__}').format(1)",
    "''.join(['a'])",
    "lipsum",
    "lipsum.__globals__",
    "lipsum.__globals__['os'].popen('id').read()",
    "lipsum|attr('__globals__')",
    "lipsum(n=20000)",
    "cycler.__init__.__globals__.os.popen('id').read()",
    "joiner.__init__.__globals__.os",
    "namespace.__init__.__globals__",
    "namespace(a=1)",
    "dict.__class__",
    "dict(a=1)",
    "range(10000000)",
    "self.__init__.__globals__.__builtins__",
    "self._TemplateReference__context",
    "self.__dict__",
    "config",
    "config.items()",
    "config.from_pyfile('/tmp/x')",
    "request.application.__globals__.__builtins__.__import__('os')",
    "request|attr('application')",
    "request.args.x",
    "url_for.__globals__.current_app",
    "get_flashed_messages.__globals__.__builtins__.open('/etc/passwd')",
    "g.pop.__globals__",
    "session.__class__",
    "loop.index",
    "caller()",
    "varargs",
    "super()",
    "context.eval_ctx.environment",
    "environment.globals",
    "__builtins__",
    "__import__('os').system('id')",
    "eval('1')",
    "open('/etc/passwd')",
    "os.system('id')",
    "x.__code__.co_consts",
    "x.gi_frame.f_back",
    "x.__reduce_ex__(2)",
    "input|map(attribute='__class__')|list",
    "[input]|map('attr', '__class__')",
    "[input]|selectattr('__class__')",
    "[input]|groupby('__class__')",
    "[input]|sum(attribute='__class__')",
    "[input]|sort(attribute='__class__.__name__')",
    "[input]|join(attribute='__class__')",
    "[input]|max(attribute='__init__.__globals__')",
    "[input]|unique(attribute='__class__')|first|attr('x')",
    "input|xmlattr",
    "input|pprint",
    "'a'|center(50000000)",
    "'a'|wordwrap(1)",
    "'<x>'|safe",
    "'a'|forceescape",
    "'a'|filesizeformat",
    "'x' is callable",
    "input is mapping",
    "input is sameas input",
    "'x' is filter",
    "a if b is eq(c)",
    "func.func_code.do_something",
    "input.name.__getattribute__('__class__')",
    "input.name.translate.__self__",
    "input|attr('get')",
    "nodes.__class__.__mro__",
    "nodes['__class__']",
    "nodes.fetch.__class__",
    "nodes.fetch.output.__class__",
    "nodes.fetch.state.__class__",
    "nodes.fetch.completed",
    "execution.__class__",
    "execution['__class__']",
    "fetch.__class__",
    "fetch.output.__class__.__mro__",
]


def test_the_corpus_of_escapes_is_not_small() -> None:
    assert len(set(ESCAPES)) >= 60


@pytest.mark.parametrize("source", ESCAPES)
def test_an_attempt_to_reach_python_is_refused_or_finds_nothing(source: str) -> None:
    try:
        expression: Expression = compile_expression(source, secrets_allowed=True)
    except ExpressionError:
        return
    with pytest.raises(EvaluationError):
        expression.evaluate(SCOPE)
