from __future__ import annotations

import copy
from typing import Any

import pytest

from weft.core.payload import canonical
from weft.definition.bounds import Bounds
from weft.definition.plan import Plan, compile_plan
from weft.definition.validation import MAX_PROBLEMS, Checked, CompileBudgetError, check, check_input
from weft.errors import Problem
from weft.handlers.registry import Registry


class Catalogue:
    """Some handlers; `picky` wants a config with a `url`."""

    def names(self) -> list[str]:
        return ["call_external_service", "echo", "input", "output", "picky", "sleep"]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def problems(self, name: str, config: Any) -> list[Problem]:
        if name != "picky":
            return []
        if "url" not in config:
            return [Problem("", "url is missing")]
        return [] if isinstance(config["url"], str) else [Problem("/url", "must be a string")]


def checked(document: Any, **options: Any) -> Checked:
    return check(document, handlers=Catalogue(), **options)


def problems(document: Any, **options: Any) -> list[tuple[str, str]]:
    found = checked(document, **options)
    assert (found.plan is None) == bool(found.problems)
    assert (found.layers == []) == bool(found.problems)
    return [(problem.pointer, problem.message) for problem in found.problems]


def of_nodes(*nodes: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "flow", "nodes": list(nodes), **fields}


def node(node_id: str = "a", *dependencies: str, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "echo", "dependencies": list(dependencies), **fields}


def only_problem(document: Any, **options: Any) -> tuple[str, str]:
    (problem,) = problems(document, **options)
    return problem


EVERYTHING = {
    "name": "order-report",
    "description": "all fields",
    "input_schema": {"type": "object", "properties": {"order_id": {"type": "integer"}}},
    "failure_policy": "continue",
    "timeout_seconds": 3600,
    "max_concurrency": 8,
    "notify": [
        {
            "url": "https://hooks.example/a/{{ secrets.HOOK }}",
            "on": ["failed", "completed", "dead_letter", "waiting"],
        },
        {"url": "{{secrets.WHOLE}}"},
    ],
    "defaults": {
        "max_retries": 2,
        "timeout_seconds": 60.5,
        "retry": {"jitter": 0},
        "queue": "main",
        "resource_tag": "api",
        "delivery": "at_least_once",
    },
    "nodes": [
        {"id": "input", "handler": "input"},
        {"id": "fetch", "handler": "picky", "config": {"url": "https://example.org/{{ input.order_id }}"}},
        {
            "id": "my-id",
            "handler": "echo",
            "depends_on": ["fetch", "input"],
            "condition": "fetch.status == 200 and nodes.input.output",
            "trigger_rule": "one_success",
            "config": {"prompt": "{{ fetch.body }}", "key": "{{ secrets.KEY }}"},
            "timeout_seconds": 604_800,
            "max_retries": 100,
            "retry": {"base_delay_seconds": 0, "multiplier": 1, "max_delay_seconds": 0, "jitter": 1},
            "resource_tag": "gemini_api",
            "queue": "LLM.eu-1",
            "delivery": "at_least_once",
            "cache": {"ttl_seconds": 0.5},
            "secrets": ["API_KEY", "_other2"],
        },
        {"id": "once", "handler": "echo", "delivery": "at_most_once", "max_retries": 0},
    ],
    "output": {"a": "{{ nodes['my-id'].output }}", "b": ["{{ once.x }}", None]},
}


def test_a_definition_with_every_field_is_valid_and_gives_a_plan_and_layers() -> None:
    found = checked(EVERYTHING)
    assert found.problems == []
    assert found.warnings == []
    assert found.layers == [["input", "fetch", "once"], ["my-id"]]
    assert found.plan is not None
    stored = compile_plan(EVERYTHING)
    assert found.plan.definition == stored.definition
    assert found.plan.digest == stored.digest
    assert found.plan.references == stored.references
    assert found.plan.output_ids == stored.output_ids


def test_a_check_leaves_the_document_alone_and_the_plan_does_not_share_it() -> None:
    document = copy.deepcopy(EVERYTHING)
    found = checked(document)
    assert document == EVERYTHING
    assert found.plan is not None
    document["nodes"][1]["config"]["url"] = "changed"  # type: ignore[index]
    assert found.plan.nodes["fetch"].config["url"].startswith("https")


def test_python_spellings_of_json_are_checked_as_the_json_they_become() -> None:
    document = {
        "name": "flow",
        "nodes": ({"id": "a", "handler": "echo"}, node("b", "a") | {"dependencies": ("a",)}),
    }
    found = checked(document)
    assert found.layers == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("seconds", "fields", "defaults"),
    [(301, {}, {}), (2, {"timeout_seconds": 1}, {"timeout_seconds": 5}), (6, {}, {"timeout_seconds": 5})],
)
def test_a_sleep_that_is_longer_than_its_timeout_is_refused(
    seconds: float, fields: dict[str, Any], defaults: dict[str, Any]
) -> None:
    nap = node(handler="sleep", config={"seconds": seconds}, **fields)
    pointer, message = only_problem(of_nodes(nap, defaults=defaults))
    assert pointer == "/nodes/0/config/seconds"
    assert "longer than the node's timeout_seconds" in message


@pytest.mark.parametrize(("seconds", "timeout"), [(300, None), (5, 5), ("{{ input.n }}", 1), (0, None)])
def test_a_sleep_within_its_timeout_or_of_a_template_is_valid(seconds: Any, timeout: float | None) -> None:
    fields: dict[str, Any] = {} if timeout is None else {"timeout_seconds": timeout}
    assert problems(of_nodes(node(handler="sleep", config={"seconds": seconds}, **fields))) == []


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "a definition must be an object, not null"),
        ([], "a definition must be an object, not a list"),
        ("x", "a definition must be an object, not the string 'x'"),
        (3, "a definition must be an object, not the number 3"),
        (True, "a definition must be an object, not true"),
        ({1: 2}, "a key must be a string, not int"),
    ],
)
def test_what_is_no_object_is_no_definition(document: Any, message: str) -> None:
    assert problems(document) == [("", message)]


def test_missing_parts_are_reported_where_they_are_missing() -> None:
    assert problems({}) == [("", "name is missing"), ("", "nodes is missing")]
    assert problems({"name": "flow", "nodes": []}) == [("/nodes", "a workflow needs at least one node")]
    assert problems(of_nodes({})) == [("/nodes/0", "id is missing"), ("/nodes/0", "handler is missing")]


def test_only_a_definition_that_is_stored_by_name_needs_one() -> None:
    document = {"nodes": [node()]}
    assert only_problem(document) == ("", "name is missing")
    assert problems(document, named=False) == []
    assert only_problem({**document, "name": "Not a name"}, named=False)[0] == "/name"


@pytest.mark.parametrize(
    ("notify", "at", "message"),
    [
        (None, "", "must be an object, not null"),
        ({}, "", "url is missing"),
        ({"url": 3}, "/url", "must be a string, not the number 3"),
        ({"url": "hooks.example"}, "/url", "use a URL that starts with https:// or http://"),
        ({"url": "file:///etc/passwd"}, "/url", "use a URL that starts with https:// or http://"),
        ({"url": "https://a\n.example"}, "/url", "without spaces and control characters"),
        ({"url": "https://me:word@a.example"}, "/url", "holds a user or a password"),
        ({"url": "https://a.example/{{ input.x }}"}, "/url", "only {{ secrets.NAME }} may stand"),
        (
            {"url": "https://a.example", "on": "failed"},
            "/on",
            "must be a list of failed, completed, dead_letter, waiting",
        ),
        ({"url": "https://a.example", "on": []}, "/on", "names nothing"),
        ({"url": "https://a.example", "on": ["faild"]}, "/on/0", "did you mean 'failed'?"),
        ({"url": "https://a.example", "onn": ["failed"]}, "/onn", "did you mean 'on'?"),
        ([{"url": "https://a.example"}, {"url": ""}], "/1/url", "use a URL that starts with"),
        ([{"url": "https://a.example"}] * 11, "", "11 targets; the limit is 10"),
    ],
)
def test_a_notify_that_could_tell_nobody_is_refused(notify: Any, at: str, message: str) -> None:
    pointer, said = only_problem(of_nodes(node()) | {"notify": notify})
    assert pointer == f"/notify{at}"
    assert message in said


@pytest.mark.parametrize("name", ["a", "0", "order-report", "a.b_c", "x" * 128])
def test_names_of_the_pattern_are_accepted(name: str) -> None:
    assert problems(of_nodes(node()) | {"name": name}) == []


@pytest.mark.parametrize(
    "name", ["", "A", "-a", ".a", "a b", "a\n", "é", "x" * 129, "a/b", "..", 3, None, True, []]
)
def test_other_names_are_refused(name: Any) -> None:
    assert only_problem(of_nodes(node()) | {"name": name})[0] == "/name"


@pytest.mark.parametrize("node_id", ["a", "_", "A-b_9", "x" * 128, "constructor", "__proto__", "if", "none"])
def test_ids_of_the_pattern_are_accepted(node_id: str) -> None:
    assert problems(of_nodes(node(node_id))) == []


@pytest.mark.parametrize(
    "node_id",
    [
        "",
        "9a",
        "-a",
        "..",
        "a/b",
        "a.b",
        "a b",
        "a\n",
        "😀",
        "\u202ea",
        "é",
        "x" * 10_000,
        1,
        None,
        True,
        ["a"],
        {},
    ],
)
def test_other_ids_are_refused(node_id: Any) -> None:
    where, message = only_problem(of_nodes({"id": node_id, "handler": "echo"}))
    assert where == "/nodes/0/id"
    assert len(message) < 300
    assert "\u202e" not in message


def test_an_id_of_a_wrong_spelling_is_one_problem_not_one_for_each_dependent() -> None:
    assert only_problem(of_nodes(node("a/b"), node("c", "a/b")))[0] == "/nodes/0/id"


@pytest.mark.parametrize("node_id", ["nodes", "execution", "secrets", "input"])
def test_words_with_a_meaning_in_expressions_are_no_ids(node_id: str) -> None:
    where, message = only_problem(of_nodes(node(node_id)))
    assert where == "/nodes/0/id"
    assert "choose another id" in message


def test_the_id_input_belongs_to_the_handler_input() -> None:
    assert problems(of_nodes({"id": "input", "handler": "input"})) == []


def test_a_second_node_of_an_id_is_reported_with_the_place_of_the_first() -> None:
    document = of_nodes(node("a"), node("b"), node("a"))
    assert problems(document) == [("/nodes/2/id", "the id 'a' is taken by /nodes/0")]


def test_dependencies_are_known_other_nodes_each_listed_once() -> None:
    document = of_nodes(node("fetch"), node("b", "fetch", "fetch", "b", "fetsh", "zzz"))
    document["nodes"][1]["dependencies"] += [3, None]
    assert problems(document) == [
        ("/nodes/1/dependencies/1", "'fetch' is listed twice"),
        ("/nodes/1/dependencies/2", "'b' cannot depend on itself"),
        ("/nodes/1/dependencies/3", "there is no node 'fetsh'; did you mean 'fetch'?"),
        ("/nodes/1/dependencies/4", "there is no node 'zzz'"),
        ("/nodes/1/dependencies/5", "must be the id of a node, not the number 3"),
        ("/nodes/1/dependencies/6", "must be the id of a node, not null"),
    ]


def test_dependencies_have_two_spellings_but_not_both_on_one_node() -> None:
    document = of_nodes(node("a"), {"id": "b", "handler": "echo", "depends_on": ["a", "x"]})
    assert only_problem(document)[0] == "/nodes/1/depends_on/1"
    both = of_nodes(node("a"), node("b", "a", depends_on=["a"]))
    assert only_problem(both) == (
        "/nodes/1/depends_on",
        "another spelling of dependencies: use one of the two",
    )


@pytest.mark.parametrize("dependencies", [None, "a", {"a": 1}, 0, False])
def test_dependencies_are_a_list(dependencies: Any) -> None:
    document = of_nodes(
        {"id": "b", "handler": "echo", "dependencies": dependencies, "trigger_rule": "one_failed"}
    )
    where, message = only_problem(document)
    assert where == "/nodes/0/dependencies"
    assert message.startswith("must be a list of node ids")


def test_a_cycle_is_named_by_its_true_members_at_the_dependency_that_closes_it() -> None:
    document = of_nodes(
        node("behind", "b"), node("a", "before", "c"), node("b", "a"), node("c", "b"), node("before")
    )
    assert problems(document) == [("/nodes/1/dependencies/1", "a cycle: a -> b -> c -> a")]


def test_every_knot_is_named_once_and_a_long_cycle_is_shortened() -> None:
    ring = [node(f"n{i}", f"n{(i - 1) % 1000}") for i in range(1000)]
    document = of_nodes(node("a", "b"), node("b", "a"), *ring)
    (first, short), (second, long) = problems(document)
    assert (first, short) == ("/nodes/0/dependencies/0", "a cycle: a -> b -> a")
    assert second == "/nodes/2/dependencies/0"
    assert long.startswith("a cycle: n0 -> n1 -> ")
    assert long.endswith("more … -> n999 -> n0")
    assert len(long) < 300


def test_an_unknown_handler_is_reported_with_the_one_meant_or_all_there_are() -> None:
    document = of_nodes(node("a", handler="ecko"), node("b", handler="zzzz"), node("c", handler=3))
    assert problems(document) == [
        ("/nodes/0/handler", "there is no handler 'ecko'; did you mean 'echo'?"),
        (
            "/nodes/1/handler",
            "there is no handler 'zzzz'; known are call_external_service, echo, input, output, picky, sleep",
        ),
        ("/nodes/2/handler", "must be a string, not the number 3"),
    ]


def test_problems_of_a_handlers_config_are_reported_inside_the_config() -> None:
    document = of_nodes(
        node("a", handler="picky", config={"url": 3}),
        node("b", handler="picky", config={"url": "{{ input.url }}"}),
        node("c", handler="picky", config={}),
        node("d", handler="picky"),
    )
    assert problems(document) == [
        ("/nodes/0/config/url", "must be a string"),
        ("/nodes/2/config", "url is missing"),
        ("/nodes/3", "config is missing: url is missing"),
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", "3"),
        ("max_retries", True),
        ("max_retries", 3.0),
        ("max_retries", -1),
        ("max_retries", 101),
        ("max_retries", 10**9),
        ("max_retries", None),
        ("timeout_seconds", "30"),
        ("timeout_seconds", True),
        ("timeout_seconds", 0),
        ("timeout_seconds", -0.5),
        ("timeout_seconds", 604_800.5),
        ("timeout_seconds", 10**400),
        ("timeout_seconds", None),
        ("retry", None),
        ("retry", []),
        ("queue", ""),
        ("queue", "a b"),
        ("queue", "-a"),
        ("queue", 3),
        ("queue", "x" * 129),
        ("resource_tag", "a/b"),
        ("resource_tag", None),
        ("delivery", "exactly_once"),
        ("delivery", None),
    ],
)
def test_wrong_types_and_ranges_are_refused_on_nodes_and_in_defaults(field: str, value: Any) -> None:
    assert only_problem(of_nodes(node(**{field: value})))[0] == f"/nodes/0/{field}"
    assert only_problem(of_nodes(node(), defaults={field: value}))[0] == f"/defaults/{field}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("condition", 1),
        ("condition", True),
        ("condition", None),
        ("condition", ""),
        ("trigger_rule", "one_sucess"),
        ("trigger_rule", None),
        ("cache", None),
        ("cache", 60),
        ("cache", {}),
    ],
)
def test_wrong_types_of_other_fields_of_a_node_are_refused(field: str, value: Any) -> None:
    assert only_problem(of_nodes(node("a"), node("b", "a", **{field: value})))[0] == f"/nodes/1/{field}"


@pytest.mark.parametrize(
    ("secrets", "where", "words"),
    [
        ("API_KEY", "", "must be a list of names of secrets, not the string 'API_KEY'"),
        (None, "", "must be a list of names of secrets, not null"),
        ([f"S{number}" for number in range(101)], "", "101 secrets; the limit is 100"),
        (["A", 1], "/1", "must be the name of a secret, not the number 1"),
        (["A", "a-b"], "/1", "'a-b' is not allowed: use 1 to 128 letters, digits and '_'"),
        (["{{ input.name }}"], "/0", "is not allowed"),
        (["2ND"], "/0", "not starting with a digit"),
        (["API_KEY_FILE"], "/0", "WEFT_SECRET_…_FILE names the file of a secret"),
        (["API_KEY", "api_key"], "/1", "'api_key' is listed twice; upper and lower case are the same"),
    ],
)
def test_the_secrets_of_a_node_are_names(secrets: Any, where: str, words: str) -> None:
    found = only_problem(of_nodes(node("a"), node("b", "a", secrets=secrets)))
    assert found[0] == f"/nodes/1/secrets{where}"
    assert words in found[1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("description", 3),
        ("description", None),
        ("failure_policy", "fail_slow"),
        ("failure_policy", 1),
        ("timeout_seconds", 0),
        ("timeout_seconds", 604_801),
        ("timeout_seconds", "1h"),
        ("max_concurrency", 0),
        ("max_concurrency", 1.0),
        ("max_concurrency", True),
        ("max_concurrency", 10**30),
        ("defaults", None),
        ("defaults", []),
        ("nodes", None),
        ("nodes", {}),
        ("nodes", "a"),
        ("input_schema", None),
        ("input_schema", []),
        ("input_schema", "object"),
    ],
)
def test_wrong_types_of_fields_of_the_definition_are_refused(field: str, value: Any) -> None:
    assert only_problem(of_nodes(node()) | {field: value})[0] == f"/{field}"


@pytest.mark.parametrize(
    ("retry", "where"),
    [
        ({"base_delay_seconds": -1}, "/base_delay_seconds"),
        ({"base_delay_seconds": "1"}, "/base_delay_seconds"),
        ({"multiplier": 0.5}, "/multiplier"),
        ({"multiplier": 1001}, "/multiplier"),
        ({"max_delay_seconds": -0.1}, "/max_delay_seconds"),
        ({"max_delay_seconds": 604_801}, "/max_delay_seconds"),
        ({"jitter": 1.1}, "/jitter"),
        ({"jitter": False}, "/jitter"),
        ({"jiter": 0.5}, "/jiter"),
    ],
)
def test_a_retry_policy_has_known_fields_in_range(retry: Any, where: str) -> None:
    assert only_problem(of_nodes(node(retry=retry)))[0] == f"/nodes/0/retry{where}"
    assert only_problem(of_nodes(node(), defaults={"retry": retry}))[0] == f"/defaults/retry{where}"


@pytest.mark.parametrize("ttl", [0, -1, "60", True, None, 10**12])
def test_a_cache_has_a_time_to_live(ttl: Any) -> None:
    assert only_problem(of_nodes(node(cache={"ttl_seconds": ttl})))[0] == "/nodes/0/cache/ttl_seconds"


def test_a_number_in_quotes_comes_with_the_advice_to_leave_them_out() -> None:
    assert only_problem(of_nodes(node(max_retries="3"))) == (
        "/nodes/0/max_retries",
        "must be an integer, not the string '3'; leave out the quotes",
    )


def test_unknown_fields_are_refused_with_the_one_meant() -> None:
    document = of_nodes(
        node("a", timeout=3),
        node("b", retries=3, **{"a/b~c": 1}),
        failure_polcy="continue",
        defaults={"cache": {"ttl_seconds": 1}},
    )
    found = problems(document)
    assert found[0] == ("/nodes/0/timeout", "unknown field 'timeout'; did you mean 'timeout_seconds'?")
    assert found[1] == ("/nodes/1/retries", "unknown field 'retries'; did you mean 'max_retries'?")
    assert found[2][0] == "/nodes/1/a~1b~0c"
    assert "known are id, handler, config" in found[2][1]
    assert found[3] == ("/failure_polcy", "unknown field 'failure_polcy'; did you mean 'failure_policy'?")
    assert found[4][0] == "/defaults/cache"


def test_a_trigger_rule_of_another_case_is_refused_with_the_one_meant() -> None:
    where, message = only_problem(of_nodes(node("a"), node("b", "a", trigger_rule="ALL_DONE")))
    assert where == "/nodes/1/trigger_rule"
    assert message.endswith("did you mean 'all_done'?")


@pytest.mark.parametrize("rule", ["one_success", "one_failed"])
def test_rules_that_wait_for_one_parent_need_parents(rule: str) -> None:
    message = f"{rule} needs dependencies; this node has none"
    assert only_problem(of_nodes(node(trigger_rule=rule))) == ("/nodes/0/trigger_rule", message)
    bare = {"id": "a", "handler": "echo", "trigger_rule": rule}
    assert only_problem(of_nodes(bare)) == ("/nodes/0/trigger_rule", message)


@pytest.mark.parametrize("rule", ["none_failed_min_one_success", "none_failed", "all_success", "all_done"])
def test_other_rules_do_without(rule: str) -> None:
    assert problems(of_nodes(node(trigger_rule=rule))) == []


def test_a_node_started_at_most_once_may_not_ask_for_retries_itself() -> None:
    once = {"delivery": "at_most_once"}
    assert only_problem(of_nodes(node(max_retries=1, **once)))[0] == "/nodes/0/max_retries"
    assert only_problem(of_nodes(node(max_retries=1), defaults=once))[0] == "/nodes/0/max_retries"
    assert problems(of_nodes(node(max_retries=0, **once))) == []
    assert problems(of_nodes(node(**once), defaults={"max_retries": 5})) == []
    assert problems(of_nodes(node(max_retries=1, delivery="at_least_once"), defaults=once)) == []


def test_expressions_that_do_not_parse_are_reported_where_they_stand() -> None:
    document = of_nodes(
        node("a", config={"good": "{{ input.x }}", "bad": ["x", "{{ 1 + }}", "{% if x %}"], "{{": 1}),
        node("b", "a", condition="a.x =="),
        output={"x": "{{ a.b( }}"},
    )
    where = [pointer for pointer, _ in problems(document)]
    assert where == [
        "/nodes/0/config/bad/1",
        "/nodes/0/config/bad/2",
        "/nodes/0/config/{{",
        "/nodes/1/condition",
        "/output/x",
    ]


def test_expressions_name_only_nodes_that_run_before() -> None:
    document = of_nodes(
        node("first"),
        node("self", "first", config="{{ self.x }}"),
        node("early", "first", config={"a": ["{{ last.x }}"], "{{ other.x }}": 1}, condition="firts.x"),
        node("other", "first"),
        node("last", "early", "other", config="{{ first.x }}{{ nodes['other'].state }}"),
    )
    assert problems(document) == [
        ("/nodes/1/config", "'self' is this node itself, which has no output yet"),
        ("/nodes/2/config/a/0", "'last' runs after this node, so it has no output yet"),
        (
            "/nodes/2/config/{{ other.x }}",
            "'other' does not run before this node; add it to its dependencies",
        ),
        ("/nodes/2/condition", "there is no node 'firts'; did you mean 'first'?"),
    ]


def test_an_id_with_a_hyphen_read_as_a_subtraction_is_explained() -> None:
    document = of_nodes(node("my-id"), node("b", "my-id", condition="my-id.x"))
    messages = [message for _, message in problems(document)]
    assert "there is no node 'my'; an id with a hyphen is written nodes['my-id']" in messages


def test_the_output_may_name_any_node_but_no_unknown_one() -> None:
    assert problems(of_nodes(node("a"), node("b"), output="{{ a.x }}{{ b.x }}")) == []
    assert only_problem(of_nodes(node("fetch"), output={"x": [1, "{{ fetsh.y }}"]})) == (
        "/output/x/1",
        "there is no node 'fetsh'; did you mean 'fetch'?",
    )


def test_names_beside_a_string_that_does_not_parse_are_still_checked() -> None:
    document = of_nodes(node("a", config=["{{ 1 + }}", "{{ zz.x }}"]), output=["{{", "{{ yy.x }}"])
    assert [where for where, _ in problems(document)] == [
        "/nodes/0/config/0",
        "/nodes/0/config/1",
        "/output/0",
        "/output/1",
    ]


def test_secrets_stand_in_configs_alone() -> None:
    document = of_nodes(
        node("a", config={"key": "Bearer {{ secrets.KEY }}"}),
        node("b", "a", condition="secrets.KEY == 'x'"),
        output="{{ secrets.KEY }}",
    )
    assert [where for where, _ in problems(document)] == ["/nodes/1/condition", "/output"]


def test_a_reference_on_a_cycle_is_not_a_problem_of_its_own() -> None:
    document = of_nodes(
        node("a", "b", config="{{ b.x }}"), node("b", "a", config="{{ a.x }}"), node("c", "b")
    )
    document["nodes"][2]["config"] = "{{ a.x }}{{ zz.x }}"
    assert [where for where, _ in problems(document)] == ["/nodes/0/dependencies/0", "/nodes/2/config"]


def test_the_input_schema_is_json_schema_of_2020_12_and_refers_to_itself_only() -> None:
    assert problems(of_nodes(node(), input_schema=True)) == []
    assert problems(of_nodes(node(), input_schema={"$defs": {"a": {}}, "$ref": "#/$defs/a"})) == []
    bad = of_nodes(node(), input_schema={"type": "objekt", "properties": {"a/b": {"minimum": "3"}}})
    assert [where for where, _ in problems(bad)] == [
        "/input_schema/type",
        "/input_schema/properties/a~1b/minimum",
    ]
    assert only_problem(of_nodes(node(), input_schema={"pattern": "("}))[0] == "/input_schema/pattern"
    old = {"$schema": "http://json-schema.org/draft-07/schema#"}
    assert only_problem(of_nodes(node(), input_schema=old))[0] == "/input_schema/$schema"
    for uri in ("https://example.org/s", "file:///etc/passwd"):
        where, message = only_problem(of_nodes(node(), input_schema={"$ref": uri}))
        assert where == "/input_schema/$ref"
        assert "within this one" in message
    assert only_problem(of_nodes(node(), input_schema={"$ref": "#/nowhere"}))[0] == "/input_schema/$ref"


def test_a_resource_tag_without_a_limit_is_a_warning_named_once() -> None:
    document = of_nodes(
        node("a", resource_tag="x"),
        node("b", resource_tag="y"),
        node("c", resource_tag="x"),
        defaults={"resource_tag": "z"},
    )
    found = checked(document, resource_limits={"y"})
    assert found.plan is not None
    assert [warning.pointer for warning in found.warnings] == [
        "/nodes/0/resource_tag",
        "/defaults/resource_tag",
    ]
    assert "'x'" in found.warnings[0].message
    assert checked(document).warnings == []


def test_limits_hold_exactly() -> None:
    def limited(document: Any, **limits: int) -> list[tuple[str, str]]:
        return problems(document, bounds=Bounds(**limits))

    three = of_nodes(node("a"), node("b", "a"), node("c", "a", "b"))
    assert limited(three, max_nodes=3) == []
    assert limited(three, max_nodes=2) == [("/nodes", "3 nodes; the limit is 2")]
    assert limited(three, max_edges=3) == []
    assert limited(three, max_edges=2) == [("/nodes", "3 dependencies in all; the limit is 2")]

    nested = of_nodes(node(config=[[["x"]]]))  # definition, nodes, node, and three lists
    assert limited(nested, max_depth=6) == []
    assert limited(nested, max_depth=5) == [("/nodes/0/config/0/0", "nested deeper than 5 levels")]

    templated = of_nodes(node("a"), node("b", "a", condition="a.x", config="{{ a }}"))
    assert limited(templated, max_template_bytes=7) == []
    assert [where for where, _ in limited(templated, max_template_bytes=6)] == ["/nodes/1/config"]
    assert len(limited(templated, max_template_bytes=2)) == 2

    size = len('{"name":"flow","nodes":[{"id":"a","handler":"echo","dependencies":[]}]}')
    assert limited(of_nodes(node()), max_body_bytes=size) == []
    assert limited(of_nodes(node()), max_body_bytes=size - 1)[0][0] == ""


def test_a_document_full_of_mistakes_is_answered_with_a_bounded_list() -> None:
    nodes = [{f"x{i}": i for i in range(200)} for _ in range(1000)]
    found = checked(of_nodes(*nodes)).problems
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1].pointer == ""
    strings = [f"{{{{ m{i}.x }}}}" for i in range(MAX_PROBLEMS + 5)]
    assert checked(of_nodes(node(config=strings))).problems[0].pointer == "/nodes/0/config/0"
    huge = {f"x{i}": i for i in range(100_000)}
    assert len(checked(of_nodes(node(retry=huge), defaults=huge)).problems) == 2000


def test_what_is_not_json_is_reported_with_its_place() -> None:
    document = of_nodes(node(config={"a": [b"bytes"]}))
    assert only_problem(document) == ("/nodes/0/config/a/0", "a value of type bytes is not JSON")
    assert only_problem(of_nodes(node(timeout_seconds=float("nan"))))[0] == "/nodes/0/timeout_seconds"


def test_everything_wrong_is_reported_at_once_in_the_order_of_the_document() -> None:
    document = {
        "output": "{{ nope.x }}",
        "nodes": [
            {"config": "{{ b.x }}", "id": "a", "handler": "echo", "colour": 1},
            {"id": "b", "handler": "echo", "dependencies": ["c", "x"]},
            {"id": "c", "handler": "nothing", "dependencies": ["b"], "max_retries": "1"},
            7,
        ],
        "name": "-",
    }
    assert [where for where, _ in problems(document)] == [
        "/output",
        "/nodes/0/config",
        "/nodes/0/colour",
        "/nodes/1/dependencies/0",
        "/nodes/1/dependencies/1",
        "/nodes/2/handler",
        "/nodes/2/max_retries",
        "/nodes/3",
        "/name",
    ]


def test_the_largest_definition_is_checked_without_recursion() -> None:
    count = 100_000
    nodes = [node("n0")]
    nodes += [node(f"n{i}", f"n{i - 1}", config="{{ n0.x }}") for i in range(1, count)]
    found = checked(of_nodes(*nodes))
    assert found.problems == []
    assert len(found.layers) == count


def test_a_check_that_takes_too_long_ends_with_the_node_it_came_to() -> None:
    steps = iter(range(250))

    def pace() -> None:
        if next(steps, None) is None:
            raise CompileBudgetError("this takes too long")

    nodes = [node(f"n{i}", config={"a": "{{ input.x }} {{ input.y }}"}) for i in range(200)]
    found = check(of_nodes(*nodes), handlers=Catalogue(), pace=pace)
    assert found.problems == [Problem("/nodes/83", "this takes too long")]
    assert found.plan is None


def problems_of_input(plan: Plan, value: Any) -> list[Problem]:
    found = check_input(plan, value, canonical(value))
    assert found is not None
    return found


def test_an_input_is_an_object_that_keeps_the_schema() -> None:
    plan = compile_plan(EVERYTHING)
    assert problems_of_input(plan, {"order_id": 2**70}) == []
    assert problems_of_input(plan, {"order_id": "7"}) == [
        Problem("/order_id", '"7" is not of type "integer"')
    ]
    assert problems_of_input(plan, [1]) == [Problem("", "the input must be an object, not a list")]
    without = compile_plan(of_nodes(node()))
    assert problems_of_input(without, {"anything": 1}) == []
    assert problems_of_input(without, None) == [Problem("", "the input must be an object, not null")]


def test_problems_of_an_input_are_in_its_order_and_of_bounded_length() -> None:
    schema = {"properties": {"a/b": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["c"]}
    plan = compile_plan(of_nodes(node(), input_schema=schema))
    found = problems_of_input(plan, {"b": "x" * 10_000, "a/b": None})
    assert [problem.pointer for problem in found] == ["", "/b", "/a~1b"]
    assert all(len(problem.message) < 400 for problem in found)


@pytest.mark.parametrize(
    ("terms", "pointer", "message"),
    [
        ({}, "/concurrency", "group is missing"),
        ({"group": 7}, "/concurrency/group", "must be a string"),
        ({"group": "{{ a.output }}"}, "/concurrency/group", "'a' is no name here"),
        ({"group": "{{ execution.id }}"}, "/concurrency/group", "sees the input"),
        ({"group": "{{ secrets.KEY }}"}, "/concurrency/group", "secrets"),
        ({"group": "{{ input. }}"}, "/concurrency/group", ""),
        ({"group": "all", "limit": 0}, "/concurrency/limit", "must be 1 to"),
        ({"group": "all", "on_conflict": "wait"}, "/concurrency/on_conflict", "is not one of queue, reject"),
        ({"group": "all", "limits": 2}, "/concurrency/limits", "did you mean 'limit'?"),
    ],
)
def test_the_terms_of_a_group_are_checked(terms: Any, pointer: str, message: str) -> None:
    document = {"name": "w", "nodes": [{"id": "a", "handler": "echo"}], "concurrency": terms}
    (found,) = check(document, handlers=Registry()).problems
    assert found.pointer == pointer
    assert message in found.message
