"""Declaring a workflow: what becomes of functions, and what is refused where it stands."""

# ruff: noqa: A002, A006 - a parameter named input is what a node asks for
from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Coroutine
from importlib.resources import files
from typing import Any, assert_type

import pytest

from weft import DefinitionError, Workflow, run
from weft.definition.validation import check
from weft.handlers.registry import Registry
from weft.sdk.workflow import HandlerNodeOptions, PollOptions, WorkflowFields


def messages(error: DefinitionError) -> str:
    return "\n".join(problem.message for problem in error.problems)


def declared(flow: Workflow, node_id: str) -> dict[str, Any]:
    node: dict[str, Any]
    (node,) = (node for node in flow.definition()["nodes"] if node["id"] == node_id)
    return node


def test_a_function_stays_what_it_was() -> None:
    flow = Workflow("flow")

    @flow.node
    def plain(input: dict[str, int]) -> int:
        return input["n"]

    @flow.node(dependencies=[plain])
    async def later(plain: int) -> str:
        return str(plain)

    assert assert_type(plain({"n": 3}), int) == 3
    coroutine = assert_type(later(3), Coroutine[Any, Any, str])
    coroutine.close()
    assert later.__name__ == "later"


def test_the_definition_is_the_plain_dict_of_the_interface() -> None:
    flow = Workflow("report", description="one order", failure_policy="continue", output="{{ summarise }}")

    @flow.node(max_retries=3, timeout_seconds=30)
    async def fetch(input: Any) -> None: ...

    @flow.node(dependencies=[fetch], condition="fetch.status == 200")
    def summarise(fetch: Any) -> None: ...

    assert flow.definition() == {
        "name": "report",
        "description": "one order",
        "failure_policy": "continue",
        "nodes": [
            {
                "id": "fetch",
                "handler": "python",
                "config": {"function": f"{_here()}.fetch", "args": {"input": "{{ input }}"}},
                "max_retries": 3,
                "timeout_seconds": 30,
            },
            {
                "id": "summarise",
                "handler": "python",
                "config": {
                    "function": f"{_here()}.summarise",
                    "args": {"fetch": '{{ nodes["fetch"].output | default(none) }}'},
                },
                "dependencies": ["fetch"],
                "condition": "fetch.status == 200",
            },
        ],
        "output": "{{ summarise }}",
    }
    assert check(flow.definition(), handlers=Registry()).problems == []


def _here() -> str:
    return f"{__name__}:{sys._getframe(1).f_code.co_name}.<locals>"


def test_the_definition_is_nobodys_but_the_callers() -> None:
    flow = Workflow("flow", nodes=[{"id": "a", "handler": "echo", "config": {"list": [1]}}])
    flow.definition()["nodes"][0]["config"]["list"].append(2)
    assert flow.definition()["nodes"][0]["config"] == {"list": [1]}


def test_a_definition_makes_a_workflow_again() -> None:
    flow = Workflow("flow", max_concurrency=2)
    flow.node(id="a", handler="echo", config={"v": 1})
    document = flow.definition()
    assert Workflow(**document).definition() == document


def test_a_module_level_function_goes_by_its_module_and_name() -> None:
    flow = Workflow("flow")
    flow.node(module_level)
    assert declared(flow, "module_level")["config"]["function"] == f"{__name__}:module_level"


def module_level(input: Any) -> Any:
    return input


def test_a_node_of_any_handler_gives_a_reference_for_dependencies() -> None:
    flow = Workflow("flow")
    source = flow.node(id="source", handler="echo", config={"v": "{{ input.v }}"})
    assert source.id == "source"

    @flow.node(dependencies=[source])
    def after(source: Any) -> None: ...

    flow.node(id="end", handler="output", config="{{ after }}", depends_on=[after, "source"])
    assert declared(flow, "after")["dependencies"] == ["source"]
    assert declared(flow, "end")["depends_on"] == ["after", "source"]
    assert check(flow.definition(), handlers=Registry()).problems == []


def test_a_dependency_may_be_declared_later() -> None:
    flow = Workflow("flow")

    @flow.node(dependencies=["before"])
    def behind(before: Any) -> None: ...

    @flow.node
    def before() -> None: ...

    assert check(flow.definition(), handlers=Registry()).problems == []


def test_an_id_may_differ_from_the_functions_name() -> None:
    flow = Workflow("flow")

    @flow.node(id="fetch-orders")
    def fetch() -> None: ...

    @flow.node(dependencies=[fetch])
    def count(**outputs: Any) -> None: ...

    assert declared(flow, "count")["dependencies"] == ["fetch-orders"]
    # A hyphen cannot stand in a parameter: the rest of the parents comes by keyword.
    assert declared(flow, "count")["config"]["args"] == {
        "fetch-orders": '{{ nodes["fetch-orders"].output | default(none) }}'
    }


def test_closures_of_one_function_are_told_apart() -> None:
    flow = Workflow("flow")

    def adder(n: int) -> Callable[[Any], int]:
        def add(input: Any) -> int:
            return int(input["n"]) + n

        return add

    flow.node(id="one")(adder(1))
    flow.node(id="two")(adder(2))
    references = {declared(flow, node_id)["config"]["function"] for node_id in ("one", "two")}
    assert len(references) == 2


def test_a_wrapped_function_shows_the_parameters_of_what_it_wraps() -> None:
    flow = Workflow("flow")
    flow.node(id="source", handler="echo", config=1)

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @flow.node(dependencies=["source"])
    @traced
    def reader(source: Any, limit: int = 3) -> None: ...

    assert list(declared(flow, "reader")["config"]["args"]) == ["source"]


# --- What is refused where it is declared.


def test_a_parameter_that_nothing_fills_is_refused_with_its_function_and_place() -> None:
    flow = Workflow("flow")

    @flow.node
    def fetch() -> None: ...

    def summarise(ftech: Any, missing: Any, fine: int = 1) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        flow.node(dependencies=[fetch])(summarise)
    assert len(caught.value.problems) == 2
    text = messages(caught.value)
    assert f"summarise() at {__file__}:{summarise.__code__.co_firstlineno}" in text
    assert "parameter 'ftech' is not a parent of this node; did you mean 'fetch'?" in text
    assert "parameter 'missing' is not a parent of this node; known here: fetch, input, context" in text
    assert [node["id"] for node in flow.definition()["nodes"]] == ["fetch"]


def test_a_parameter_that_nearly_names_a_node_is_pointed_to_it() -> None:
    flow = Workflow("flow")

    @flow.node
    def fetch() -> None: ...

    def total(fecth: Any) -> None: ...

    with pytest.raises(DefinitionError) as caught:
        flow.node(total)
    assert "'fecth' is not a parent of this node; did you mean 'fetch'?" in messages(caught.value)


def test_a_parent_cannot_take_the_place_of_the_context() -> None:
    flow = Workflow("flow")
    flow.node(id="context", handler="echo", config=1)

    def reads(context: Any) -> None: ...

    with pytest.raises(DefinitionError, match="parameter 'context' receives weft's context"):
        flow.node(dependencies=["context"])(reads)


def test_a_parameter_named_like_a_node_declared_before_depends_on_it() -> None:
    flow = Workflow("flow")
    flow.node(id="a", handler="echo", config=1)
    flow.node(id="b", handler="echo", config=1, dependencies=["a"])

    @flow.node
    def c(a: Any, b: Any = None) -> None: ...

    @flow.node(depends_on=["b"])
    def d(input: Any, a: Any, context: Any) -> None: ...

    flow.node(id="last", dependencies=[c])(lambda d: d)
    nodes = {node["id"]: node for node in flow.definition()["nodes"]}
    assert nodes["c"]["dependencies"] == ["a", "b"]
    assert nodes["d"]["depends_on"] == ["b", "a"]
    assert nodes["last"]["dependencies"] == ["c", "d"]
    assert list(nodes["d"]["config"]["args"]) == ["input", "a"]


def test_a_parameter_named_like_a_node_declared_later_is_no_parent() -> None:
    flow = Workflow("flow")

    def early(late: Any) -> None: ...

    with pytest.raises(DefinitionError, match="Declare the node 'late' first"):
        flow.node(early)
    flow.node(id="early")(lambda early=1: early)  # nor is the node itself
    assert "dependencies" not in flow.definition()["nodes"][0]


def test_a_positional_only_parameter_is_refused() -> None:
    def strict(input: Any, /) -> None: ...

    with pytest.raises(DefinitionError, match="'input' is positional-only"):
        Workflow("flow").node(strict)


def test_an_id_that_is_taken_is_refused_with_both_places() -> None:
    flow = Workflow("flow")

    def twice() -> None: ...

    flow.node(twice)
    with pytest.raises(DefinitionError, match=r"the id 'twice' is taken by .*twice\(\) at .*test_workflow"):
        flow.node(twice)
    with pytest.raises(DefinitionError, match="the id 'twice' is taken"):
        flow.node(id="twice", handler="echo", config=1)


def test_at_a_prompt_a_function_that_is_defined_again_replaces_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    flow = Workflow("flow")

    @flow.node(id="cell", max_retries=1)
    def before() -> None: ...

    flow.node(id="other", handler="echo", config=1)

    @flow.node(id="cell", max_retries=2)
    def after() -> None: ...

    assert [node["id"] for node in flow.definition()["nodes"]] == ["cell", "other"]
    assert declared(flow, "cell")["max_retries"] == 2


def test_a_lambda_needs_an_id() -> None:
    flow = Workflow("flow")
    with pytest.raises(DefinitionError, match=r"give it one with node\(id=…\)"):
        flow.node(lambda input: input)
    flow.node(id="named")(lambda input: input)
    assert declared(flow, "named")["config"]["args"] == {"input": "{{ input }}"}


def test_a_dependency_that_is_no_node_of_this_workflow_is_refused() -> None:
    flow = Workflow("flow")
    with pytest.raises(DefinitionError, match=r"module_level\(\) at .* is not a node of 'flow'; declare it"):
        flow.node(id="a", dependencies=[module_level])(lambda: None)


def test_a_function_of_several_nodes_is_no_clear_dependency() -> None:
    flow = Workflow("flow")
    flow.node(id="a")(module_level)
    flow.node(id="b")(module_level)
    with pytest.raises(DefinitionError, match="is several nodes; say which: 'a', 'b'"):
        flow.node(id="c", handler="echo", config=1, dependencies=[module_level])


def test_dependencies_are_a_list() -> None:
    with pytest.raises(DefinitionError, match="dependencies is a list of functions and ids, not 'fetch'"):
        Workflow("flow").node(id="a", handler="echo", dependencies="fetch")


def test_a_condition_is_an_expression() -> None:
    condition: Any = lambda fetch: True  # noqa: E731 - what somebody might try
    with pytest.raises(DefinitionError, match="a condition is an expression"):
        Workflow("flow").node(id="a", handler="echo", condition=condition)


def test_every_field_of_a_definition_can_be_declared() -> None:
    schema = json.loads(
        files("weft.definition").joinpath("definition.schema.json").read_text(encoding="utf-8")
    )
    of_node = schema["$defs"]["node"]["properties"].keys()
    # Both are parameters of node() themselves.
    assert of_node - {"id", "handler"} == HandlerNodeOptions.__annotations__.keys()
    assert schema["properties"].keys() - {"name"} == WorkflowFields.__annotations__.keys()
    assert (
        schema["$defs"]["node"]["properties"]["poll"]["properties"].keys()
        == PollOptions.__annotations__.keys()
    )


def test_a_misspelled_field_is_refused_where_it_stands() -> None:
    misspelled: Any = {"max_retires": 3}
    with pytest.raises(TypeError, match="has no field 'max_retires'; did you mean 'max_retries'"):
        Workflow("flow").node(**misspelled)
    misspelled = {"failure_polcy": "continue"}
    with pytest.raises(TypeError, match="did you mean 'failure_policy'"):
        Workflow("flow", **misspelled)


def test_a_node_of_a_handler_needs_an_id_and_a_function_no_config() -> None:
    flow: Any = Workflow("flow")
    with pytest.raises(DefinitionError, match="needs an id"):
        flow.node(handler="echo")
    with pytest.raises(DefinitionError, match="config goes with a handler"):
        flow.node(config={})
    with pytest.raises(DefinitionError, match="takes a function, not 3"):
        flow.node(3)


def test_what_is_not_json_is_refused_with_its_pointer() -> None:
    flow = Workflow("flow")
    flow.node(id="a", handler="echo", config={"client": object()})
    with pytest.raises(DefinitionError, match="/nodes/0/config/client: a value of type object is not JSON"):
        flow.definition()


# --- Notebooks.


def test_a_notebook_shows_the_graph() -> None:
    flow = Workflow("flow")

    @flow.node
    def fetch() -> None: ...

    svg = flow._repr_svg_()
    assert svg is not None
    assert svg.startswith("<svg")
    assert "fetch" in svg
    # As an image, or its style sheet would be the whole page's.
    assert (
        '<img alt="Workflow(&#x27;flow&#x27;, nodes: 1)" src="data:image/svg+xml;base64,'
        in flow._repr_html_()
    )


def test_a_notebook_shows_what_is_wrong_with_a_graph() -> None:
    flow = Workflow("flow")

    @flow.node(dependencies=["missing"])
    def fetch() -> None: ...

    assert flow._repr_svg_() is None
    html = flow._repr_html_()
    assert "there is no node &#x27;missing&#x27;" in html
    assert "fetch() at" in html
    assert "<img" not in html


def test_a_function_reads_the_secrets_that_its_node_was_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SECRET_API_KEY", "sk-4711")
    flow = Workflow("w")

    @flow.node(secrets=["API_KEY"])
    async def used(context: Any) -> Any:
        assert repr(context.secrets) == "GrantedSecrets(API_KEY)"
        return f"with {context.secrets['API_KEY']}", len(context.secrets["API_KEY"])

    @flow.node(max_retries=0)
    def denied(context: Any) -> str:
        return str(context.secrets["API_KEY"])

    assert flow.definition()["nodes"][0]["secrets"] == ["API_KEY"]
    result = run(flow)
    assert result.nodes["used"].output == ["with ***", 7]
    failed = result.nodes["denied"].error
    assert failed is not None
    assert (failed["code"], failed["retryable"]) == ("bad_config", False)


class TestWait:
    def test_a_wait_is_a_node_and_its_fields_are_those_of_its_config(self) -> None:
        flow = Workflow("release")
        plan = flow.node(id="plan", handler="echo", config=3)
        flow.wait("cool_down", seconds=180, dependencies=[plan])
        approval = flow.wait(
            "approval",
            prompt="Apply {{ plan }} changes?",
            schema={"enum": ["approve", "reject"]},
            expires_seconds=7200,
            default=None,
            depends_on=["cool_down"],
            condition="plan > 0",
            trigger_rule="all_success",
        )
        flow.wait("go")
        flow.node(id="apply", handler="echo", dependencies=[approval])
        assert declared(flow, "cool_down") == {
            "id": "cool_down",
            "handler": "wait",
            "config": {"seconds": 180},
            "dependencies": ["plan"],
        }
        assert declared(flow, "approval") == {
            "id": "approval",
            "handler": "wait",
            "config": {
                "prompt": "Apply {{ plan }} changes?",
                "schema": {"enum": ["approve", "reject"]},
                "expires_seconds": 7200,
                "default": None,
            },
            "depends_on": ["cool_down"],
            "condition": "plan > 0",
            "trigger_rule": "all_success",
        }
        assert declared(flow, "go") == {"id": "go", "handler": "wait", "config": {}}
        assert declared(flow, "apply")["dependencies"] == ["approval"]

    def test_a_function_receives_what_was_answered(self) -> None:
        flow = Workflow("release")
        flow.wait("pause", seconds=0)

        @flow.node
        def after(pause: dict[str, Any]) -> list[str]:
            return sorted(pause)

        assert run(flow).output == {"after": ["at", "by", "expired", "value"]}

    def test_a_field_that_no_wait_has_is_refused(self) -> None:
        with pytest.raises(TypeError, match="timeout_seconds"):
            Workflow("flow").wait("a", timeout_seconds=5)  # type: ignore[call-arg]

    def test_a_run_warns_of_what_nobody_can_answer(self, caplog: pytest.LogCaptureFixture) -> None:
        flow = Workflow("release")
        flow.wait("timer", seconds=0)
        flow.wait("approval", prompt="Apply?", expires_seconds=0.01, default="no")
        result = run(flow)
        (warned,) = caplog.messages
        assert warned.startswith(f"execution {result.id} waits: approval for an answer until ")
        assert ": Apply?; nobody can answer it here" in warned


def test_a_workflow_has_a_group_and_a_condition_of_its_retries() -> None:
    flow = Workflow(
        "export",
        concurrency={"group": "{{ input.customer }}", "limit": 2, "on_conflict": "reject"},
        defaults={"retry": {"when": "attempt < 2"}},
    )

    @flow.node(retry={"when": "error.retryable"})
    def export(input: Any) -> Any:
        return input

    definition = flow.definition()
    assert definition["concurrency"]["limit"] == 2
    assert definition["defaults"]["retry"] == {"when": "attempt < 2"}
    assert run(flow, input={"customer": "acme"}).output == {"export": {"customer": "acme"}}
