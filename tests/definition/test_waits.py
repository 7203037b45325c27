"""Wait nodes as they are written down: what validation accepts, refuses and says."""

from __future__ import annotations

from typing import Any

import pytest

from weft.core.time import parse_rfc3339
from weft.definition.plan import Plan, compile_plan
from weft.definition.validation import check
from weft.definition.waits import (
    MAX_DEFAULT_BYTES,
    MAX_MATCH_PAIRS,
    MAX_PROMPT_BYTES,
    MAX_WAIT_SECONDS,
    WaitKind,
    WaitTerms,
    read_wait,
    wait_terms,
)
from weft.handlers.registry import Registry

CHOICE = {"enum": ["approve", "reject"]}
TOO_LONG = "x" * MAX_PROMPT_BYTES


def document(**fields: Any) -> dict[str, Any]:
    return {"name": "flow", "nodes": [{"id": "a", "handler": "wait", **fields}]}


def problems(written: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is wrong with a definition, with pointers from its first node on."""
    found = check(written, handlers=Registry())
    assert (found.plan is None) == bool(found.problems)
    return [(each.pointer.removeprefix("/nodes/0"), each.message) for each in found.problems]


def terms(config: dict[str, Any]) -> WaitTerms:
    """Return the terms of a config that has no templates left."""
    literals = {"signal", "schema", "event"}
    return wait_terms(read_wait("a", config), {name: config[name] for name in config if name not in literals})


def plan_of(*nodes: dict[str, Any]) -> Plan:
    return compile_plan({"name": "flow", "nodes": list(nodes)})


class TestAccepted:
    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"seconds": 0},
            {"seconds": 0.5},
            {"seconds": MAX_WAIT_SECONDS},
            {"seconds": "{{ input.seconds }}"},
            {"until": "2030-01-31T09:30:00Z"},
            {"until": "2030-01-31T09:30:00.5+02:00"},
            {"until": "{{ input.due_at }}"},
            {"signal": "go.1-2_x"},
            {"signal": "a" * 128},
            {"prompt": "Apply {{ input.changes }}?", "schema": CHOICE},
            {"schema": CHOICE, "expires_seconds": 60, "default": "reject"},
            {"schema": CHOICE, "expires_seconds": 60, "default": "{{ input.default }}"},
            {"schema": False},
            {"expires_seconds": "{{ input.seconds }}", "default": None},
            {"event": "payment.received", "match": {"order": "{{ input.order }}"}},
            {"event": "paid", "expires_seconds": 86400, "default": {"paid": False}},
        ],
    )
    def test_a_config(self, config: dict[str, Any]) -> None:
        assert problems(document(config=config)) == []

    def test_the_fields_of_a_wait_node(self) -> None:
        nodes = [
            {"id": "first", "handler": "echo"},
            {
                "id": "a",
                "handler": "wait",
                "config": {"seconds": "{{ first }}"},
                "dependencies": ["first"],
                "condition": "first > 0",
                "trigger_rule": "all_success",
            },
            {"id": "b", "handler": "wait", "depends_on": ["a"]},
        ]
        assert problems({"name": "flow", "nodes": nodes}) == []

    def test_defaults_do_not_apply(self) -> None:
        written = {**document(), "defaults": {"max_retries": 7, "timeout_seconds": 5, "queue": "slow"}}
        assert problems(written) == []


class TestRefused:
    @pytest.mark.parametrize(
        "field",
        [
            {"timeout_seconds": 5},
            {"max_retries": 0},
            {"retry": {"jitter": 0}},
            {"queue": "slow"},
            {"resource_tag": "api"},
            {"delivery": "at_most_once"},
            {"cache": {"ttl_seconds": 1}},
            {"secrets": ["TOKEN"]},
        ],
    )
    def test_a_field_that_only_what_runs_has(self, field: dict[str, Any]) -> None:
        (name,) = field
        ((pointer, message),) = problems(document(**field))
        assert pointer == f"/{name}"
        assert message == f"a wait node has no {name}: nothing runs while it waits"

    @pytest.mark.parametrize("config", [[], "soon", 5, None])
    def test_a_config_that_is_no_object(self, config: Any) -> None:
        ((pointer, message),) = problems(document(config=config))
        assert pointer == "/config"
        assert message.startswith("must be an object, not ")

    def test_an_unknown_field_and_the_one_that_was_meant(self) -> None:
        ((pointer, message),) = problems(document(config={"promt": "?"}))
        assert pointer == "/config/promt"
        assert "did you mean 'prompt'" in message

    @pytest.mark.parametrize(
        ("config", "pointer"),
        [
            ({"seconds": 1, "until": "2030-01-01T00:00:00Z"}, "/config/until"),
            ({"seconds": 1, "signal": "go"}, "/config/signal"),
            ({"until": "2030-01-01T00:00:00Z", "event": "paid"}, "/config/event"),
            ({"event": "paid", "signal": "go"}, "/config/signal"),
        ],
    )
    def test_two_ends(self, config: dict[str, Any], pointer: str) -> None:
        assert pointer in [found for found, _ in problems(document(config=config))]

    @pytest.mark.parametrize(
        ("config", "pointer"),
        [
            ({"seconds": 1, "prompt": "?"}, "/prompt"),
            ({"seconds": 1, "schema": True}, "/schema"),
            ({"seconds": 1, "match": {}}, "/match"),
            ({"seconds": 1, "lookback_seconds": 1}, "/lookback_seconds"),
            ({"signal": "x", "lookback_seconds": 1}, "/lookback_seconds"),
            ({"seconds": 1, "expires_seconds": 5}, "/expires_seconds"),
            ({"until": "2030-01-01T00:00:00Z", "default": 5}, "/default"),
            ({"event": "paid", "prompt": "?"}, "/prompt"),
            ({"event": "paid", "schema": True}, "/schema"),
            ({"signal": "go", "match": {}}, "/match"),
            ({"default": 1}, "/default"),
        ],
    )
    def test_a_field_of_another_kind_of_wait(self, config: dict[str, Any], pointer: str) -> None:
        assert [found for found, _ in problems(document(config=config))] == [f"/config{pointer}"]

    @pytest.mark.parametrize(
        ("config", "pointer"),
        [
            ({"seconds": -1}, "/seconds"),
            ({"seconds": True}, "/seconds"),
            ({"seconds": "5"}, "/seconds"),
            ({"seconds": None}, "/seconds"),
            ({"seconds": MAX_WAIT_SECONDS + 1}, "/seconds"),
            ({"until": 5}, "/until"),
            ({"until": "tomorrow"}, "/until"),
            ({"until": "2030-01-31"}, "/until"),
            ({"until": "2030-02-31T09:30:00Z"}, "/until"),
            ({"signal": ""}, "/signal"),
            ({"signal": 5}, "/signal"),
            ({"signal": ".go"}, "/signal"),
            ({"signal": "a" * 129}, "/signal"),
            ({"signal": "{{ input.signal }}"}, "/signal"),
            ({"event": ""}, "/event"),
            ({"event": 5}, "/event"),
            ({"event": "x" * 257}, "/event"),
            ({"event": "a\nb"}, "/event"),
            ({"prompt": TOO_LONG}, "/prompt"),
            ({"expires_seconds": -1}, "/expires_seconds"),
            ({"expires_seconds": "soon"}, "/expires_seconds"),
            ({"expires_seconds": 1, "default": "x" * MAX_DEFAULT_BYTES}, "/default"),
            ({"schema": 5}, "/schema"),
            ({"schema": {"type": "nothing"}}, "/schema/type"),
            ({"schema": {"properties": {"a": {"minimum": "1"}}}}, "/schema/properties/a/minimum"),
            ({"schema": "{{ input.schema }}"}, "/schema"),
            ({"event": "paid", "match": []}, "/match"),
            (
                {"event": "paid", "match": {str(number): 0 for number in range(MAX_MATCH_PAIRS + 1)}},
                "/match",
            ),
            ({"event": "paid", "match": {"a": TOO_LONG}}, "/match"),
        ],
    )
    def test_a_value(self, config: dict[str, Any], pointer: str) -> None:
        assert [found for found, _ in problems(document(config=config))] == [f"/config{pointer}"]

    @pytest.mark.parametrize(
        ("default", "pointer"), [("maybe", "/default/verdict"), (None, "/default"), ({}, "/default")]
    )
    def test_a_default_that_does_not_fit_the_schema(self, default: Any, pointer: str) -> None:
        schema = {"type": "object", "properties": {"verdict": CHOICE}, "required": ["verdict"]}
        given = {"verdict": default} if pointer != "/default" else default
        config = {"schema": schema, "expires_seconds": 1, "default": given}
        assert [found for found, _ in problems(document(config=config))] == [f"/config{pointer}"]

    def test_a_secret_in_a_template_because_no_worker_fills_it(self) -> None:
        ((pointer, message),) = problems(document(config={"prompt": "{{ secrets.TOKEN }}"}))
        assert pointer == "/config/prompt"
        assert "secret" in message

    def test_a_template_that_cannot_be_read(self) -> None:
        ((pointer, _),) = problems(document(config={"prompt": "{{ 1 + }}"}))
        assert pointer == "/config/prompt"


class TestRead:
    def test_a_signal_is_named_like_its_node_unless_it_has_a_name(self) -> None:
        rule = read_wait("a", {})
        assert (rule.kind, rule.name, rule.schema, rule.has_default) == (WaitKind.SIGNAL, "a", None, False)
        assert read_wait("a", {"signal": "go", "default": None}).name == "go"
        assert read_wait("a", {"default": None}).has_default

    def test_the_kinds(self) -> None:
        assert read_wait("a", {"seconds": 1}).kind is WaitKind.TIMER
        assert read_wait("a", {"until": "{{ input.at }}"}).kind is WaitKind.TIMER
        event = read_wait("a", {"event": "paid"})
        assert (event.kind, event.name) == (WaitKind.EVENT, "paid")

    def test_a_plan_knows_its_waits_by_signal_in_the_order_of_the_definition(self) -> None:
        plan = plan_of(
            {"id": "z", "handler": "wait", "config": {"signal": "go"}},
            {"id": "timer", "handler": "wait", "config": {"seconds": 1}},
            {"id": "go", "handler": "wait"},
            {"id": "echo", "handler": "echo"},
        )
        assert list(plan.waits) == ["z", "timer", "go"]
        assert plan.waits_by_signal == {"go": ("z", "go")}

    def test_a_schema_is_no_template(self) -> None:
        schema = {"const": "{{ not filled }}"}
        plan = plan_of({"id": "a", "handler": "wait", "config": {"schema": schema}})
        rule = plan.waits["a"]
        assert rule.schema is not None
        assert rule.schema.document == schema


class TestFilled:
    def test_times(self) -> None:
        assert terms({"seconds": 5}).seconds == 5.0
        until = "2030-01-31T09:30:00Z"
        assert (terms({"until": until}).seconds, terms({"until": until}).due_at) == (
            None,
            parse_rfc3339(until),
        )
        assert terms({"until": "1960-01-01T00:00:00Z"}).due_at == 0

    def test_a_wait_for_a_signal(self) -> None:
        found = terms({"prompt": "Apply?", "expires_seconds": 60, "default": {"a": 1}})
        assert (found.prompt, found.seconds, found.default) == ("Apply?", 60.0, b'{"a":1}')
        assert (terms({}).seconds, terms({}).default, terms({}).match) == (None, None, None)
        assert terms({"expires_seconds": 1, "default": None}).default == b"null"

    def test_a_prompt_that_is_no_text_is_shown_as_json(self) -> None:
        assert terms({"prompt": {"rows": 3}}).prompt == '{"rows":3}'

    def test_a_wait_for_an_event(self) -> None:
        found = terms({"event": "paid", "match": {"b": 1, "a": 2}})
        assert found.match == b'{"a":2,"b":1}'
        assert terms({"event": "paid"}).match == b"{}"

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({"seconds": "soon"}, "config at /seconds: must be a number of seconds, not the string 'soon'"),
            ({"seconds": -1}, "config at /seconds: must be 0 to 315,360,000 seconds, not -1"),
            ({"until": "soon"}, "config at /until: "),
            ({"prompt": TOO_LONG}, "config at /prompt: 16,386 bytes; the limit is 16,384"),
            (
                {"schema": CHOICE, "expires_seconds": 1, "default": "maybe"},
                "config at /default: ",
            ),
        ],
    )
    def test_what_cannot_be_is_named(self, config: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=r"^config at /") as raised:
            terms(config)
        assert str(raised.value).startswith(message)
