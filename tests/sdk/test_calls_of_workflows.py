"""``flow.call``: a workflow as a node of another."""

from __future__ import annotations

from typing import Any

import pytest

from weft import Workflow
from weft.errors import DefinitionError
from weft.testing import run


def inner() -> Workflow:
    flow = Workflow("inner", output="{{ double }}")

    @flow.node
    def double(input: Any) -> Any:  # noqa: A002 - the word of the interface
        return input["n"] * 2

    return flow


def test_a_workflow_runs_as_a_node_of_another_with_its_functions() -> None:
    flow = Workflow("outer", output="{{ last }}")

    @flow.node
    def first() -> int:
        return 21

    called = flow.call("twice", inner(), input={"n": "{{ first }}"}, dependencies=[first])

    @flow.node(dependencies=[called])
    def last(twice: int) -> int:
        return twice

    assert run(flow).output == 42


def test_it_is_written_down_as_its_definition_or_its_name() -> None:
    flow = Workflow("outer")
    flow.call("stored", "report", version="production", input={"n": 1}, timeout_seconds=60)
    flow.call("latest", "report", condition="input.n > 1")
    flow.call("plain", {"nodes": [{"id": "x", "handler": "echo"}]}, depends_on=["stored"])
    stored, latest, plain = flow.definition()["nodes"]
    assert stored == {
        "id": "stored",
        "workflow": {"name": "report", "version": "production"},
        "input": {"n": 1},
        "timeout_seconds": 60,
    }
    assert latest == {"id": "latest", "workflow": {"name": "report"}, "condition": "input.n > 1"}
    assert plain["workflow"] == {"nodes": [{"id": "x", "handler": "echo"}]}
    assert plain["depends_on"] == ["stored"]


def test_what_cannot_be_is_refused_where_it_stands() -> None:
    flow = Workflow("outer")
    with pytest.raises(TypeError, match="max_retries"):
        flow.call("a", "report", max_retries=1)  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="version is for the name of a stored workflow"):
        flow.call("a", inner(), version=1)


def test_a_failure_inside_is_told_outside() -> None:
    child = Workflow("inner")

    @child.node(max_retries=0)
    def breaks() -> None:
        raise ValueError("it broke")

    flow = Workflow("outer")
    flow.call("a", child)
    result = run(flow)
    assert result.state == "FAILED"
    error = result.nodes["a"].error
    assert error is not None
    assert error.code == "child_failed"
    assert "it broke" in str(error.details)
