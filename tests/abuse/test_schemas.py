"""Schemas and values that are costly to check: at submit, at validate, and in a worker by a reply."""

from __future__ import annotations

import asyncio
import json
from functools import reduce
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.abuse.bystander import BUDGET_BYTES, measure

from weft.testing.fake_llm import FakeLLM, reply

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker


def nested_unevaluated(levels: int) -> Any:
    start: Any = {"properties": {"a": True}}
    return reduce(
        lambda inner, _: {"anyOf": [inner, {"required": ["z"]}], "unevaluatedProperties": {"type": "string"}},
        range(levels),
        start,
    )


def chain(levels: int) -> Any:
    names = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(levels)}
    return {"$defs": {**names, f"d{levels}": {}}, "$ref": "#/$defs/d0", "unevaluatedProperties": False}


def deep(levels: int) -> Any:
    start: Any = {}
    return reduce(lambda inner, _: {"x": inner}, range(levels), start)


# Each kept the server without an attack's end busy for seconds to minutes, or ended it. By what it is, the
# schema and the input.
COSTLY: dict[str, tuple[Any, Any]] = {
    "counted repetition": (
        {"properties": {"a": {"pattern": "^(a{1,100}){1,100}$"}}},
        {"a": "a" * 9_000},
    ),
    "many patterns": (
        {
            "allOf": [
                {"not": {"properties": {"a": {"pattern": f"[ab]{{0,40}}a[ab]{{9}}x{i}"}}}} for i in range(200)
            ]
        },
        {"a": "abbaabab" * 300},
    ),
    "wide alternatives over a long array": (
        {"properties": {"a": {"items": {"anyOf": [{"const": i} for i in range(700)]}}}},
        {"a": [9] * 9_000},
    ),
    "faults that quote the whole value": (
        {"allOf": [{"minProperties": 1000}] * 500},
        {f"k{i}": "x" * 20 for i in range(600)},
    ),
    "references that double at every level": (
        {
            "anyOf": [
                {"properties": {"x": {"$ref": "#"}}, "required": ["y"]},
                {"properties": {"x": {"$ref": "#"}}, "required": ["z"]},
            ]
        },
        deep(60),
    ),
    "a large enum of numbers": (
        {"properties": {"a": {"items": {"enum": [i + 0.5 for i in range(1000)]}}}},
        {"a": [0.25] * 1_500},
    ),
    "backtracking": (
        {"properties": {"a": {"items": {"pattern": "^(?=x)((x+)+)\\2y$"}}}},
        {"a": ["x" * 60] * 100},
    ),
    "nested unevaluatedProperties": (nested_unevaluated(20), {"a": "x", "b": "y"}),
    "references to itself side by side": ({"oneOf": [{"$ref": "#", "uniqueItems": True}] * 280}, 1e300),
    "a chain that ends the process": (chain(950), {"a": 1}),
}


@pytest.mark.parametrize("name", COSTLY)
async def test_a_costly_input_schema_is_not_noticed_by_others(abused: Abused, name: str) -> None:
    schema, given = COSTLY[name]
    definition = {"name": "costly", "input_schema": schema, "nodes": [{"id": "a", "handler": "echo"}]}

    async def attack(attacker: Attacker) -> tuple[int, Any]:
        if len(json.dumps(definition)) < BUDGET_BYTES // 3:
            status, verdict = await attacker.call("POST", "/v1/workflows/validate", definition)
            assert status == 200, verdict
        return await attacker.call("POST", "/v1/executions", {"definition": definition, "input": given})

    async with abused() as target:
        status, body = (await measure(target, attack)).result
    assert status in (202, 422), body


async def test_a_reply_that_is_costly_to_check_costs_its_own_attempt_alone(abused: Abused) -> None:
    schema, _ = COSTLY["wide alternatives over a long array"]
    node = {
        "id": "ask",
        "handler": "llm_service",
        "timeout_seconds": 8,
        "max_retries": 0,
        "config": {"prompt": "hello", "response_schema": schema},
    }

    async def attack(attacker: Attacker) -> list[Any]:
        body = {"definition": {"nodes": [node]}}
        both = (attacker.call("POST", "/v1/executions?wait=50", body) for _ in range(2))
        return list(await asyncio.gather(*both))

    with FakeLLM() as llm:
        llm.script(reply("{}"), *(reply(json.dumps({"a": [5000] * 60_000})) for _ in range(2)))
        async with abused(WEFT_LLM_BASE_URL=llm.base_url, WEFT_LLM_MODEL="fake") as target:
            # The first call loads the HTTP client.
            async with (
                aiohttp.ClientSession(target.url) as session,
                session.post("/v1/executions?wait=50", json={"definition": {"nodes": [node]}}) as response,
            ):
                await response.read()
            measured = await measure(target, attack)
    for status, shown in measured.result:
        assert status == 200
        assert shown["nodes"][0]["error"]["code"] in ("bad_response", "timeout"), shown["nodes"]
