from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import Environment
from jinja2.exceptions import TemplateSyntaxError

from weft.errors import EvaluationError, ExpressionError
from weft.expressions.budget import MAX_INTEGER_BITS, MAX_TEXT
from weft.expressions.compiler import Compiler
from weft.expressions.expression import Expression, compile_expression
from weft.expressions.filters import FILTERS
from weft.expressions.scope import NodeValue, Scope
from weft.expressions.syntax import parse, plain_path
from weft.expressions.template import Template, _split, compile_template, with_secrets

JINJA = Environment(keep_trailing_newline=True)

numbers = st.integers() | st.integers(2**62, 2**70) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def scope_of(value: Any) -> Scope:
    return Scope(
        value,
        execution={"id": "e", "labels": {}},
        nodes={
            "a": NodeValue(state="COMPLETED", output=value),
            "b": NodeValue(state="COMPLETED", output={"items": [1, 2, 3], "name": "x", "o": {"k": 1.5}}),
            "c": NodeValue(state="SKIPPED", reason="condition"),
        },
    )


def filled(template: Any, scope: Scope) -> Any:
    compiled = compile_template(template, max_template_bytes=65_536)
    assert isinstance(compiled, Template)
    return compiled.fill(scope, max_bytes=MAX_TEXT).value


def exactly(value: Any) -> str:
    """A value with its types: 1, 1.0 and True are three."""
    return json.dumps(value, sort_keys=True)


# --- any source, any data ---------------------------------------------------------------------------

literals = st.one_of(
    st.integers(0, 10**40).map(str),
    st.sampled_from(["0", "1", "2", "1.5", "1e300", "99999999", "true", "none", "''", "'ab'", "[]", "{}"]),
    texts.map(lambda text: json.dumps(text)),
)
paths = st.sampled_from(
    [
        "input",
        "a",
        "a.x",
        "b.items",
        "b.name",
        "b.o.k",
        "c",
        "c.x",
        "input[0]",
        "b.items[1:]",
        "nodes.c.state",
    ]
)


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    arithmetic = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "~"])
    logic = st.sampled_from(
        ["==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "is defined and", "if"]
    )
    arguments = st.lists(inner, max_size=2).map(lambda given: f"({', '.join(given)})" if given else "")
    return st.one_of(
        st.tuples(inner, arithmetic | logic, inner).map(" ".join),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"-{one}"),
        inner.map(lambda one: f"not {one}"),
        st.tuples(inner, st.sampled_from(sorted(FILTERS)), arguments).map(lambda t: f"({t[0]})|{t[1]}{t[2]}"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]})[{t[1]}]"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]})[{t[1]}:{t[2]}]"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.tuples(inner, inner).map(lambda t: f"{{{t[0]}: {t[1]}}}"),
        st.tuples(
            inner, st.sampled_from(["", "not "]), st.sampled_from(["defined", "undefined", "none"])
        ).map(lambda t: f"({t[0]}) is {t[1]}{t[2]}"),
    )


expressions = st.recursive(literals | paths, grow, max_leaves=15)


def evaluated(source: str, scope: Scope) -> Any:
    """The value, or the class of the error; nothing else may be raised."""
    try:
        return compile_expression(source).evaluate(scope)
    except (ExpressionError, EvaluationError) as error:
        return type(error)


def check_bounds(value: Any) -> None:
    match value:
        case str():
            assert len(value) <= MAX_TEXT
        case bool():
            pass
        case int():
            assert value.bit_length() <= MAX_INTEGER_BITS
        case list():
            for item in value[:100]:
                check_bounds(item)
        case dict():
            for item in value.values():
                check_bounds(item)
        case type():
            assert issubclass(value, (ExpressionError, EvaluationError))
        case _:
            assert value is None or value - value == 0


@settings(max_examples=500, deadline=None)
@given(expressions, values)
def test_an_expression_gives_json_within_bounds_or_one_of_two_errors(source: str, value: Any) -> None:
    check_bounds(evaluated(source, scope_of(value)))


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("ab.01()[]{}|'\"\\-+*/%~<>=!, \nnotifelsedefaultjoin", max_size=60))
def test_any_text_is_an_expression_or_is_refused(source: str) -> None:
    check_bounds(evaluated(source, scope_of({"a": 1})))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["{{", "}}", "{%", "%}", "{#", "#}", "{{-", "-}}", "{", "}", "'", '"', "\\", "a.x", " ", "\r\n"]
        )
        | st.text(max_size=5),
        max_size=12,
    ).map("".join)
)
def test_any_text_is_a_template_or_is_refused(template: str) -> None:
    compiled = compile_template(template, max_template_bytes=65_536, secrets_allowed=True)
    if isinstance(compiled, Template):
        try:
            result = compiled.fill(scope_of({}), max_bytes=MAX_TEXT)
        except EvaluationError:
            return
        with_secrets(result.value, result.secrets, str.lower)


# --- agreement with Jinja ---------------------------------------------------------------------------

whole = st.integers(-50, 50).map(lambda number: f"({number})") | st.sampled_from(["x", "y", "z.k", "l[1]"])


def grow_numbers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "and", "or"]), inner).map(" ".join),
        st.tuples(inner, st.just("**"), st.sampled_from(["0", "1", "2"])).map(" ".join),
        st.tuples(inner, inner, st.sampled_from(["<", "==", "!=", ">="]), inner).map(
            lambda t: f"({t[0]} if {t[1]} {t[2]} {t[3]} else 7)"
        ),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]|sort|last"),
        st.tuples(inner, inner).map(lambda t: f"([{t[0]}, {t[1]}]|sum - l|length)"),
        inner.map(lambda one: f"-({one})"),
        inner.map(lambda one: f"({one})|abs"),
        inner.map(lambda one: f"({one} if not {one} else 3)"),
    )


@settings(max_examples=300, deadline=None)
@given(st.recursive(whole, grow_numbers, max_leaves=10), st.integers(), st.integers())
def test_whole_numbers_come_out_as_jinja_would_have_them(source: str, x: int, y: int) -> None:
    data = {"x": x, "y": y, "z": {"k": 5}, "l": [4, 5, 6]}
    nodes = {name: NodeValue(state="COMPLETED", output=value) for name, value in data.items()}
    try:
        expected = JINJA.compile_expression(source)(**data)
    except ZeroDivisionError:
        expected = EvaluationError
    assert evaluated(source, Scope({}, execution={}, nodes=nodes)) == expected


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "{{ ",
                " }}",
                "{{-",
                "-}}",
                "}}",
                "'}}'",
                '"{{"',
                "{",
                "}",
                "[",
                "]",
                "(",
                ")",
                "x",
                "-",
                " ",
                "\n",
            ]
        ),
        max_size=14,
    ).map("".join)
)
def test_a_template_is_split_where_jinja_splits_it(template: str) -> None:
    try:
        tokens = list(JINJA.lexer.tokeniter(template, None))
    except TemplateSyntaxError:
        tokens = None
    pieces: list[str] = []
    inside = False
    for _, token, text in tokens or ():
        if token in ("variable_begin", "variable_end"):
            inside = token == "variable_begin"
            pieces += ["{{"] if inside else []
        elif inside:
            pieces[-1] += text
        else:
            pieces.append(text)
    sources: list[str] = []
    seen = _collect(template, sources)
    if tokens is None or inside:
        assert not seen or any(_refused(source) for source in sources)
    else:
        assert seen
        assert sources == [piece[2:] for piece in pieces if piece.startswith("{{")]


def _collect(template: str, sources: list[str]) -> bool:
    try:
        sources += [piece for is_expression, piece in _split(template) if is_expression]
    except ExpressionError:
        return False
    return True


def _refused(source: str) -> bool:
    try:
        compile_expression(source)
    except ExpressionError:
        return True
    return False


# --- plain paths ------------------------------------------------------------------------------------

names = st.sampled_from(
    ["a", "b", "c", "input", "execution", "nodes", "secrets", "items", "output", "state", "id"]
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(names | st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=5),
    st.sampled_from(["", '["a"]', "['b']", '["x-y"]', '["0"]']),
    st.sampled_from(["", " | default(none)", "|default(none) "]),
    values,
)
def test_a_plain_path_means_the_same_with_and_without_the_parser(
    keys: list[str], subscript: str, default: str, value: Any
) -> None:
    source = f" {'.'.join([keys[0] + subscript, *keys[1:]])}{default}\n"
    plain = plain_path(source)
    if plain is None:
        return

    def outcome(compiler: Compiler, *, parsed: bool) -> Any:
        try:
            run = compiler.expression(parse(source)) if parsed else compiler.plain_path(plain)
            found = Expression(source, frozenset(compiler.nodes), frozenset(compiler.secrets), run)
            return found.nodes, found.secrets, exactly(found.evaluate(scope_of(value)))
        except (ExpressionError, EvaluationError) as error:
            return type(error), str(error), compiler.nodes, compiler.secrets

    fast = outcome(Compiler(secrets_allowed=True), parsed=False)
    assert fast == outcome(Compiler(secrets_allowed=True), parsed=True)


# --- data -------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(values)
def test_a_lone_expression_gives_the_very_value(value: Any) -> None:
    scope = scope_of({"v": value})
    assert filled("{{ input.v }}", scope) is value
    assert exactly(filled(["{{ a.v }}", {"k": "{{ nodes.a.output.v }}"}], scope)) == exactly(
        [value, {"k": value}]
    )
    assert exactly(filled("{{ [input.v] }}", scope)) == exactly([value])


@pytest.mark.parametrize("number", [2**53 + 1, 2**63, -(2**63) - 1, 10**400, 1e22, 0.1, 5e-324, -0.0, 1.0])
def test_numbers_are_exact(number: float) -> None:
    assert exactly(filled("{{ input.n }}", scope_of({"n": number}))) == exactly(number)
    assert json.loads(filled("x{{ input.n }}", scope_of({"n": number}))[1:]) == number


@settings(max_examples=300, deadline=None)
@given(values)
def test_a_value_in_a_longer_string_reads_back_as_itself(value: Any) -> None:
    text = filled("<{{ input.v }}>", scope_of({"v": value}))[1:-1]
    assert text == value if isinstance(value, str) else exactly(json.loads(text)) == exactly(value)


hostile = st.sampled_from(
    [
        "{{ b.name }}",
        "{{ secrets.KEY }}",
        "{% if 1 %}",
        "{# #}",
        "{{ f() }}",
        "{{",
        "}}",
        "' ~ b.name ~ '",
        '"}}',
        "\\",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(hostile | texts, max_size=4).map("".join))
def test_text_in_data_is_never_evaluated(text: str) -> None:
    scope = scope_of({"t": text, "k": {text: text}})
    assert filled("{{ input.t }}", scope) == text
    assert filled("<{{ input.t }}|{{ a.t }}>", scope) == f"<{text}|{text}>"
    assert filled("{{ input.t ~ '' }}", scope) == text
    assert filled("{{ input.k }}", scope) == {text: text}
    assert filled("{{ [input.t]|join }}", scope) == text
    assert filled({"{{ input.t }}": "{{ input.k|values|first }}"}, scope) == {text: text}
    assert filled("{{ input.k[input.t] }}", scope) == text


@settings(max_examples=200, deadline=None)
@given(values)
def test_a_value_without_braces_is_static_and_untouched(value: Any) -> None:
    if re.search(r"\{[{%#]", json.dumps(value, ensure_ascii=False)):
        return
    compiled = compile_template(value, max_template_bytes=65_536)
    assert isinstance(compiled, Template)
    assert compiled.is_static
    assert compiled.fill(scope_of(None), max_bytes=MAX_TEXT).value is value


@settings(max_examples=200, deadline=None)
@given(st.lists(scalars | st.lists(scalars, max_size=2), max_size=8))
def test_unique_keeps_the_first_of_each_that_are_equal(elements: list[Any]) -> None:
    scope = scope_of({"l": elements})
    kept = compile_expression("input.l|unique(case_sensitive=true)").evaluate(scope)
    for element in elements:
        assert compile_expression("input.e in input.l").evaluate(scope_of({"e": element, "l": kept}))
    assert kept[:1] == elements[:1]


@settings(max_examples=200, deadline=None)
@given(st.lists(numbers, max_size=8) | st.lists(texts, max_size=8))
def test_sort_min_and_max_agree(elements: list[Any]) -> None:
    scope = scope_of({"l": elements})
    ordered = compile_expression("input.l|sort(case_sensitive=true)").evaluate(scope)
    assert ordered == sorted(elements)
    if elements:
        assert compile_expression("input.l|min(case_sensitive=true)").evaluate(scope) == ordered[0]
        assert compile_expression("input.l|max(case_sensitive=true)").evaluate(scope) == ordered[-1]
