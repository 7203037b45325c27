"""Nodes that run workflows, as they are written down."""

from __future__ import annotations

from typing import Any

import pytest

from weft.definition.model import LATEST
from weft.definition.plan import compile_plan
from weft.definition.validation import check
from weft.handlers.registry import Registry

INNER = {"nodes": [{"id": "x", "handler": "echo", "config": "{{ input.n }}"}], "output": "{{ x }}"}


def problems(*nodes: dict[str, Any], **fields: Any) -> list[tuple[str, str]]:
    document = {"name": "w", "nodes": list(nodes), **fields}
    found = check(document, handlers=Registry(), resource_limits=()).problems
    return [(problem.pointer, problem.message) for problem in found]


def call(node_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "workflow": INNER, **fields}


def test_a_node_runs_a_stored_workflow_or_one_that_is_written_down_in_it() -> None:
    stored = {"id": "b", "workflow": {"name": "report", "version": "production"}, "dependencies": ["a"]}
    latest = {"id": "c", "workflow": {"name": "report"}, "timeout_seconds": 7}
    nodes = [call(input={"n": 1}), stored, latest]
    assert problems(*nodes, defaults={"max_retries": 7, "resource_tag": "db"}) == []
    checked = check({"name": "w", "nodes": nodes}, handlers=Registry())
    assert checked.plan is not None
    for plan in (checked.plan, compile_plan({"name": "w", "nodes": nodes})):
        a, b, c = (plan.calls[name] for name in ("a", "b", "c"))
        assert a.plan is not None
        assert a.plan.digest == compile_plan(INNER).digest
        assert (b.name, b.version, b.plan, b.timeout_seconds) == ("report", "production", None, None)
        assert (c.name, c.version, c.timeout_seconds) == ("report", LATEST, 7.0)
        assert all(plan.nodes[name].is_parked for name in "abc")
        assert plan.nodes["a"].resource_tag is None


def test_what_is_wrong_inside_is_told_at_its_place() -> None:
    inner = {"nodes": [{"id": "x", "handler": "nothing"}, {"id": "y"}], "output": "{{ z }}"}
    places = [where for where, _ in problems(call(workflow=inner))]
    assert places == [
        "/nodes/0/workflow/nodes/0/handler",
        "/nodes/0/workflow/nodes/1",
        "/nodes/0/workflow/output",
    ]
    nested = {"nodes": [call(workflow={"nodes": []})]}
    assert problems(call(workflow=nested)) == [
        ("/nodes/0/workflow/nodes/0/workflow/nodes", "a workflow needs at least one node")
    ]


def test_it_sees_nothing_of_what_is_around_it() -> None:
    inner = {"nodes": [{"id": "x", "handler": "echo", "config": "{{ other }}"}]}
    other = {"id": "other", "handler": "echo"}
    ((where, message),) = problems(other, call(workflow=inner, dependencies=["other"]))
    assert (where, message) == ("/nodes/1/workflow/nodes/0/config", "there is no node 'other'")


def test_its_input_and_condition_see_what_any_node_sees() -> None:
    other = {"id": "other", "handler": "echo"}
    fields: dict[str, Any] = {
        "input": {"n": "{{ other }}"},
        "condition": "other > 1",
        "trigger_rule": "all_done",
    }
    assert problems(other, call(dependencies=["other"], **fields)) == []
    ((where, message),) = problems(other, call(input={"n": "{{ other }}"}))
    assert where == "/nodes/1/input/n"
    assert "dependencies" in message
    assert problems(call(input="{{ secrets.KEY }}"))[0][0] == "/nodes/0/input"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"handler": "echo"}, "/nodes/0/handler"),
        ({"config": {}}, "/nodes/0/config"),
        ({"max_retries": 1}, "/nodes/0/max_retries"),
        ({"for_each": "{{ input }}"}, "/nodes/0/for_each"),
        ({"repeat": {"max": 1}}, "/nodes/0/repeat"),
        ({"timeout_seconds": 0}, "/nodes/0/timeout_seconds"),
        ({"trigger_rule": "one_success"}, "/nodes/0/trigger_rule"),
        ({"workflow": {"name": "No Name"}}, "/nodes/0/workflow/name"),
        ({"workflow": {"name": "report", "version": 0}}, "/nodes/0/workflow/version"),
        ({"workflow": {"name": "report", "version": True}}, "/nodes/0/workflow/version"),
        ({"workflow": {"name": "report", "alias": "x"}}, "/nodes/0/workflow/alias"),
        ({"workflow": {}}, "/nodes/0/workflow"),
        ({"workflow": "report"}, "/nodes/0/workflow"),
        ({"workflow": None}, "/nodes/0/workflow"),
    ],
)
def test_what_such_a_node_cannot_have(fields: dict[str, Any], where: str) -> None:
    assert [pointer for pointer, _ in problems(call(**fields))] == [where]


def test_a_node_with_a_handler_has_no_input() -> None:
    found = problems({"id": "a", "handler": "echo", "input": {}})
    assert [where for where, _ in found] == ["/nodes/0/input"]


def test_a_tag_without_a_limit_is_a_warning_inside_too() -> None:
    inner = {"nodes": [{"id": "x", "handler": "echo", "resource_tag": "db"}]}
    checked = check({"name": "w", "nodes": [call(workflow=inner)]}, handlers=Registry(), resource_limits=())
    assert [warning.pointer for warning in checked.warnings] == ["/nodes/0/workflow/nodes/0/resource_tag"]
