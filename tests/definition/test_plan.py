from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

from weft.definition.bounds import Bounds
from weft.definition.model import digest
from weft.definition.plan import Plan, compile_plan
from weft.definition.validation import check_input
from weft.errors import DefinitionError

if TYPE_CHECKING:
    from weft.core.payload import Json


def plan_of(*nodes: dict[str, Any], **fields: Any) -> Plan:
    return compile_plan({"nodes": [{"handler": "echo", **node} for node in nodes], **fields})


def test_a_plan_holds_the_definition_the_graph_and_what_was_compiled() -> None:
    document = {
        "name": "report",
        "nodes": [
            {"id": "a", "handler": "echo", "config": {"x": "{{ input.n }}"}},
            {"id": "b", "handler": "echo", "depends_on": ["a"], "condition": "a.x > 1"},
        ],
        "output": "{{ b.x }}",
        "input_schema": {"type": "object"},
    }
    plan = compile_plan(document)
    assert plan.digest == digest(document)
    assert plan.definition.name == "report"
    assert list(plan.nodes) == ["a", "b"]
    assert plan.graph.dependents == {"a": ("b",), "b": ()}
    assert set(plan.templates) == {"a", "b"}
    assert plan.templates["b"].is_static
    assert set(plan.conditions) == {"b"}
    assert plan.output is not None
    assert plan.output.nodes == {"b"}
    assert plan.input_schema is not None


def test_needs_are_the_nodes_that_condition_and_config_name() -> None:
    plan = plan_of(
        {"id": "a"},
        {"id": "b", "dependencies": ["a"]},
        {
            "id": "c",
            "dependencies": ["b"],
            "condition": "a.x",
            "config": ["{{ nodes['b'].state }}", "{{ input }}"],
        },
    )
    assert plan.references == {"a": frozenset(), "b": frozenset(), "c": {"a", "b"}}


def test_configs_without_a_template_are_encoded_once() -> None:
    plan = plan_of({"id": "a", "config": {"x": [1]}}, {"id": "b", "config": "{{ input.x }}"}, {"id": "c"})
    assert plan.static_configs == {"a": b'{"x":[1]}', "c": b"{}"}


def test_every_node_knows_whose_outcome_it_sees() -> None:
    plan = plan_of(
        {"id": "a"},
        {"id": "b"},
        {"id": "c", "dependencies": ["b", "a"], "trigger_rule": "one_success"},
        {"id": "d", "dependencies": ["c"], "config": "{{ a.x }}"},
    )
    seen = {node_id: set(wanted) for node_id, wanted in plan.visible_nodes.items()}
    assert seen == {"a": set(), "b": set(), "c": {"a", "b"}, "d": {"a", "c"}}


@pytest.mark.parametrize(
    ("rule", "early"), [("one_success", True), ("one_failed", True), ("all_done", False)]
)
def test_a_rule_that_does_not_wait_for_all_parents_is_noted(rule: str, early: bool) -> None:
    assert (
        plan_of({"id": "a"}, {"id": "b", "dependencies": ["a"], "trigger_rule": rule}).has_early_rules
        == early
    )


@pytest.mark.parametrize("issued", [{"delivery": "at_most_once"}, {"cache": {"ttl_seconds": 60}}])
def test_a_node_whose_attempts_are_committed_before_their_tasks_is_noted(issued: dict[str, Json]) -> None:
    assert plan_of({"id": "a"}, {"id": "b", **issued}).issues_attempts
    assert not plan_of({"id": "a"}, {"id": "b"}).issues_attempts


def test_failures_are_handled_by_direct_dependents_with_one_failed() -> None:
    plan = plan_of(
        {"id": "a"},
        {"id": "b", "dependencies": ["a"]},
        {"id": "rescue", "dependencies": ["a", "b"], "trigger_rule": "one_failed"},
        {"id": "report", "dependencies": ["b"], "trigger_rule": "one_failed"},
        {"id": "clean", "dependencies": ["a"], "trigger_rule": "all_done"},
    )
    assert plan.failure_handlers == {"a": ("rescue",), "b": ("rescue", "report")}


def test_the_output_comes_from_output_nodes_or_else_from_the_leaves() -> None:
    chain: list[dict[str, Any]] = [
        {"id": "a"},
        {"id": "b", "dependencies": ["a"]},
        {"id": "c", "dependencies": ["a"]},
    ]
    assert plan_of(*chain).output_ids == ("b", "c")
    one = plan_of(*chain, {"id": "out", "handler": "output", "dependencies": ["b"]})
    assert one.output_ids == ("out",)
    assert one.has_one_output_node
    two = plan_of(*chain, {"id": "o1", "handler": "output"}, {"id": "o2", "handler": "output"})
    assert two.output_ids == ("o1", "o2")
    assert not two.has_one_output_node


def test_an_output_of_null_is_compiled_and_none_is_not() -> None:
    assert plan_of({"id": "a"}).output is None
    assert plan_of({"id": "a"}, output=None).output is not None


def test_what_an_earlier_release_accepted_and_this_one_cannot_compile_is_named_with_its_place() -> None:
    document = {
        "nodes": [
            {"id": "a", "handler": "echo", "condition": "a b", "config": {"x": ["{{ }}", "{{ 1 }}" * 9]}}
        ],
        "output": "{{ secrets.A }}",
    }
    with pytest.raises(DefinitionError) as caught:
        compile_plan(document, Bounds(max_template_bytes=20))
    pointers = {problem.pointer for problem in caught.value.problems}
    assert pointers == {
        "/nodes/0/condition",
        "/nodes/0/config/x/0",
        "/nodes/0/config/x/1",
        "/output",
    }


def test_a_stored_schema_that_can_no_longer_be_used_stops_submits_and_no_execution_that_runs() -> None:
    for schema in ({"type": 3}, {"pattern": "(a{1,1000}){1,1000}"}):
        plan = plan_of({"id": "a"}, input_schema={"properties": {"x": schema}})
        (problem,) = check_input(plan, {"x": 1}, b'{"x":1}') or []
        assert "its schema cannot be used: /properties/x/" in problem.message


def test_a_plan_of_many_nodes_is_compiled_without_recursion() -> None:
    count = 20_000
    plan = plan_of(*[{"id": f"n{i}", "dependencies": [f"n{i - 1}"] if i else []} for i in range(count)])
    assert len(plan.graph.layers()) == count


def test_the_garbage_collector_has_little_to_look_at_in_a_plan() -> None:
    """While it looks, everybody waits: half a second for fifty thousand nodes, where it was all closures."""
    config = {
        "whole": "{{ first.text }}",
        "in": "from {{ first.name }} to {{ input.to }}",
        "list": ["{{ first }}"],
    }
    nodes = [
        {"id": f"n{number}", "handler": "echo", "depends_on": ["first"], "config": config}
        for number in range(200)
    ]
    document = {"nodes": [{"id": "first", "handler": "echo"}, *nodes]}
    gc.collect()
    before = len(gc.get_objects())
    plan = compile_plan(document)
    gc.collect()
    assert (len(gc.get_objects()) - before) / len(plan.nodes) < 4


def test_the_garbage_collector_runs_again_after_a_plan_was_made_or_refused() -> None:
    plan_of({"id": "a"})
    assert gc.isenabled()
    with pytest.raises(DefinitionError):
        plan_of({"id": "a", "condition": "("})
    assert gc.isenabled()
    gc.disable()
    try:
        plan_of({"id": "a"})
        assert not gc.isenabled()
    finally:
        gc.enable()
