"""Answers that are larger than the memory: a few kilobytes made them, and ten callers ask for them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.abuse.bystander import Attacker, measure
from tests.abuse.many_connections import keep_open
from tests.faults.raw import request

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Target

READERS = 10
# Each output is just below the 256 KiB up to which an execution shows it; 290 of them are 70 MB.
LONG = {"id": "long", "handler": "echo", "config": "{{ " + " ~ ".join(["input.x"] * 6) + " }}"}
WIDE: dict[str, Any] = {
    "nodes": [
        LONG,
        *(
            {"id": f"n{number}", "handler": "echo", "dependencies": ["long"], "config": "{{ long }}"}
            for number in range(290)
        ),
    ],
    "output": "done",
}
# 190 inputs of 200 bytes become 190 outputs of 2 MB.
LONGER: dict[str, Any] = {
    "name": "longer",
    "nodes": [
        {"id": "a", "handler": "echo", "config": "{{ " + " ~ ".join(["input.x"] * 100) + " }}"},
        {
            "id": "b",
            "handler": "echo",
            "dependencies": ["a"],
            "config": "{{ " + " ~ ".join(["a"] * 100) + " }}",
        },
    ],
    "output": "{{ b }}",
}


async def wide_execution(attacker: Attacker) -> str:
    body = {"definition": WIDE, "input": {"x": "a" * 40_000}}
    status, started = await attacker.call("POST", "/v1/executions", body)
    assert status == 202, started
    await ended(attacker, f"/v1/executions/{started['id']}?nodes=none&wait=20")
    return f"/v1/executions/{started['id']}"


async def large_batch(attacker: Attacker) -> str:
    status, stored = await attacker.call("POST", "/v1/workflows", LONGER)
    assert status == 201, stored
    body = {"workflow": "longer", "inputs": [{"x": "a" * 200}] * 190}
    status, started = await attacker.call("POST", "/v1/batches", body)
    assert status == 202, started
    await ended(attacker, f"/v1/batches/{started['id']}")
    return f"/v1/batches/{started['id']}"


async def ended(attacker: Attacker, path: str) -> None:
    while True:
        _, shown = await attacker.call("GET", path)
        if shown["state"] == "COMPLETED":
            return
        await asyncio.sleep(0.2)


@pytest.mark.parametrize(
    ("make", "query"),
    [
        pytest.param(wide_execution, "", id="an execution"),
        pytest.param(wide_execution, "?nodes=brief", id="its states"),
        pytest.param(wide_execution, "/nodes?limit=500", id="its nodes"),
        pytest.param(wide_execution, "/events?limit=500", id="its events"),
        pytest.param(large_batch, "/results?limit=500", id="the results of a batch"),
    ],
)
async def test_callers_who_read_large_outputs_keep_nobody_waiting(
    abused: Abused, make: Any, query: str
) -> None:
    async with abused() as target:
        path = await prepared(target, make)

        async def attack(attacker: Attacker) -> None:
            # From a process of its own: what it reads would hold up the probes.
            await keep_open(target.url, READERS, request("GET", path + query, b"", "Connection: close"))

        await measure(target, attack)


async def prepared(target: Target, make: Any) -> str:
    """Let an attacker make something large, with nobody beside it; its commits are another cost."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(target.url, headers=target.headers, timeout=timeout) as session:
        return str(await make(Attacker(target, session)))
