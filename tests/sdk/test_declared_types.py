# ruff: noqa: A002, A006 - the parameter `input` is the word of the interface
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator  # noqa: TC003 - weft reads the annotations
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypedDict

import msgspec
import polars
import pydantic
import pytest

from weft import DefinitionError, HandlerContext, InputError, Workflow, handler, run
from weft.handlers.registry import default_registry


@dataclass
class Order:
    id: int
    placed: date
    tags: list[str] = field(default_factory=list)


class Query(TypedDict):
    limit: int


def refused(flow: Workflow, function: Any, **options: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        flow.node(**options)(function)
    assert function.__name__ not in [node["id"] for node in flow.definition()["nodes"]]
    return str(caught.value)


def test_the_annotation_of_the_input_is_the_schema_of_the_workflow() -> None:
    flow = Workflow("flow")

    @flow.node
    def when(input: Order) -> date:
        return input.placed

    assert flow.definition()["input_schema"] == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "placed": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["id", "placed"],
    }
    assert run(flow, {"id": 1, "placed": "2026-05-01"}).output == {"when": "2026-05-01"}
    with pytest.raises(InputError) as caught:
        run(flow, {"id": "1", "placed": "2026-05-01"})
    assert [problem.pointer for problem in caught.value.problems] == ["/id"]


def test_several_annotations_of_the_input_hold_together() -> None:
    flow = Workflow("flow")
    flow.node(id="a")(lambda input: input)

    @flow.node
    def b(input: Order) -> int:
        return input.id

    @flow.node
    def c(input: Query) -> int:
        return input["limit"]

    @flow.node
    def d(input: Order, context: HandlerContext) -> int:
        return input.id

    schema = flow.definition()["input_schema"]
    assert schema["allOf"] == [{"$ref": "#/$defs/Order"}, {"$ref": "#/$defs/Query"}]
    given = {"id": 1, "placed": "2026-05-01", "limit": 3}
    assert run(flow, given).output == {"a": given, "b": 1, "c": 3, "d": 1}
    with pytest.raises(InputError, match="limit"):
        run(flow, {"id": 1, "placed": "2026-05-01"})


def test_a_schema_that_is_given_stays_and_a_plain_annotation_gives_none() -> None:
    flow = Workflow("flow", input_schema={"type": "object"})
    plain = Workflow("plain")
    for each in (flow, plain):

        @each.node
        def a(input: dict[str, Any]) -> int:
            return len(input)

    @flow.node
    def b(input: Order) -> int:
        return input.id

    assert flow.definition()["input_schema"] == {"type": "object"}
    assert "input_schema" not in plain.definition()


def test_an_input_that_is_no_object_is_refused() -> None:
    def a(input: list[int]) -> None: ...

    assert "the execution's input: a dict is an object in JSON, and a list needs an array" in refused(
        Workflow("flow"), a
    )


def test_a_class_that_is_local_to_a_function_is_found() -> None:
    class Local(msgspec.Struct):
        at: date

    flow = Workflow("flow")

    @flow.node
    def make() -> Local:
        return Local(date(2026, 5, 1))

    @flow.node
    async def use(make: Local) -> bool:
        await asyncio.sleep(0)
        return isinstance(make, Local) and make.at == date(2026, 5, 1)

    assert run(flow).output == {"use": True}


def test_an_output_that_cannot_fit_a_parameter_is_refused_where_it_is_declared() -> None:
    flow = Workflow("flow")

    @flow.node
    def count() -> int:
        return 1

    def total(count: str) -> None: ...

    message = refused(flow, total)
    assert f"total() at {__file__}" in message
    assert "parameter 'count' cannot take what " in message
    assert "returns: int is a number in JSON, and str needs a string" in message

    @flow.node(dependencies=["later"])
    def early(later: date) -> None: ...

    def later() -> int:
        return 1

    assert "its output does not fit" in refused(flow, later)


def test_a_class_that_weft_cannot_make_is_refused() -> None:
    flow = Workflow("flow")
    flow.node(id="rows", handler="echo", config=[])

    def count(rows: polars.DataFrame) -> int:
        return len(rows)

    assert "weft cannot make a polars.DataFrame from JSON" in refused(flow, count)


def test_a_generator_is_no_node() -> None:
    def lines() -> Iterator[int]:
        yield 1

    async def chunks() -> AsyncIterator[int]:
        yield 1

    for function in (lines, chunks):
        assert "return a list instead" in refused(Workflow("flow"), function)
        with pytest.raises(TypeError, match="generator"):
            handler("generating")(function)


@pytest.mark.parametrize("name", ["Not A Name", "", "a" * 129, "-a", 7])
def test_a_bad_name_is_refused_where_the_workflow_is_declared(name: Any) -> None:
    with pytest.raises(DefinitionError, match="a workflow's name is 1 to 128 of a-z, 0-9"):
        Workflow(name)


# --- Handlers.


class Shout(pydantic.BaseModel):
    text: str
    times: int = 1


@dataclass
class Wait:
    until: date


def test_a_handler_without_parentheses_is_named_like_its_function() -> None:
    @handler
    def bare_shout(config: Any, context: HandlerContext) -> str:
        return str(config).upper()

    @handler()
    async def bare_whisper(config: Any, context: HandlerContext) -> str:
        return str(config).lower()

    nodes = [{"id": name, "handler": name, "config": "Aa"} for name in ("bare_shout", "bare_whisper")]
    assert run({"nodes": nodes}).output == {"bare_shout": "AA", "bare_whisper": "aa"}


@pytest.mark.parametrize(("model", "required"), [(Shout, ["text"]), (Wait, ["until"])])
def test_a_class_may_be_the_schema_of_a_config(model: type, required: list[str]) -> None:
    name = f"typed_{model.__name__.lower()}"
    handler(name, config_schema=model)(lambda config, context: config)
    assert default_registry().get(name).config_schema["required"] == required
    with pytest.raises(DefinitionError, match="required property"):
        run({"nodes": [{"id": "a", "handler": name, "config": {}}]})


def test_a_class_without_a_schema_is_refused_where_the_handler_is_declared() -> None:
    with pytest.raises(TypeError, match="config_schema is a JSON Schema, a pydantic model"):
        handler("odd", config_schema=polars.DataFrame)(lambda config, context: config)
    with pytest.raises(TypeError, match=r'such as @handler\("shout"\), not 7'):
        handler(7)  # type: ignore[call-overload]


def test_an_annotated_config_is_of_its_type_and_bad_config_where_it_does_not_fit() -> None:
    @handler("typed_config")
    def typed(config: Wait, context: HandlerContext) -> Any:
        return {"year": config.until.year, "config": config}

    nodes = [
        {"id": "good", "handler": "typed_config", "config": {"until": "2026-05-01"}},
        {"id": "bad", "handler": "typed_config", "config": {"until": "soon"}},
    ]
    result = run({"failure_policy": "continue", "nodes": nodes})
    assert result.nodes["good"].output == {"year": 2026, "config": {"until": "2026-05-01"}}
    error = result.nodes["bad"].error
    assert error is not None
    assert (error["code"], error["message"]) == (
        "bad_config",
        "config: $.until is a string that is not a date of ISO 8601",
    )
