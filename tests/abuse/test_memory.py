"""Payloads that multiply: a large value that many nodes are given at once."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.abuse.bystander import measure

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

# One node makes 2 MiB of 40 KB; each of the others is given all of it. Together, and held in full, they would
# be larger than the memory of a process before a worker has come for the first, and again at the end.
COPIES, NODES = 50, 120
MULTIPLIED: dict[str, Any] = {
    "nodes": [
        {"id": "big", "handler": "echo", "config": {"x": "{{ " + " ~ ".join(["input.x"] * COPIES) + " }}"}},
        *(
            {"id": f"n{index}", "handler": "echo", "dependencies": ["big"], "config": "{{ big }}"}
            for index in range(NODES)
        ),
    ]
}


async def multiply(attacker: Attacker) -> str:
    body = {"definition": MULTIPLIED, "input": {"x": "a" * 40_000}}
    status, started = await attacker.call("POST", "/v1/executions", body)
    assert status == 202, started
    while True:
        _, shown = await attacker.call("GET", f"/v1/executions/{started['id']}?nodes=none&wait=20")
        if shown["state"] in ("COMPLETED", "FAILED"):
            assert shown["counts"]["COMPLETED"] == NODES + 1, shown
            return str(shown["error"]["code"])


def _many(item: bytes, count: int) -> bytes:
    definition = {
        "nodes": [{"id": "a", "handler": "echo", "config": "{{ input.x }}"}],
        "output": "{{ a[0] }}",
    }
    return b'{"definition":%s,"input":{"x":[%s%s]}}' % (
        json.dumps(definition).encode(),
        (item + b",") * count,
        item,
    )


# Three bytes of text become up to eighty in memory: read as they are, the first would take half of it.
VALUES = {
    "too many values of a body": (_many(b"{}", 5_000_000), 413),
    "too many values of an input": (_many(b'"ab"', 2_500_000), 422),
    "as many as there may be": (_many(b'"ab"', 990_000), 200),
}


@pytest.mark.parametrize("what", VALUES)
async def test_many_small_values_are_no_danger_to_the_others(abused: Abused, what: str) -> None:
    body, status = VALUES[what]

    async def attack(attacker: Attacker) -> set[int]:
        # More than the budget of an attack: a caller that the limits on text let in.
        headers = {"Content-Type": "application/json", **attacker.target.headers}

        async def call() -> int:
            async with attacker.session.post(
                "/v1/executions?wait=50", data=io.BytesIO(body), headers=headers
            ) as response:
                await response.read()
                return response.status

        return set(await asyncio.gather(*[call() for _ in range(1 if status == 200 else 4)]))

    async with abused() as target:
        # 503: all of them at once would be more than the requests of one caller may hold.
        found = (await measure(target, attack)).result
    assert status in found
    assert found <= {status, 503}


async def test_a_value_that_many_nodes_are_given_is_no_danger_to_the_others(abused: Abused) -> None:
    async with abused() as target:
        # The leaves are too large to be the output of their execution: that is its error, and nobody else's.
        # They are 250 MB that go to the disk, and the commits of all wait for the same disk.
        assert (await measure(target, multiply, factor=10)).result == "output_error"
        async with (
            aiohttp.ClientSession(target.url, headers=target.headers) as session,
            session.get("/readyz") as ready,
        ):
            assert ready.status == 200


async def test_values_that_one_expression_reads_are_no_danger_to_the_others(abused: Abused) -> None:
    """60 KB become 12 outputs of 920,000 strings: text within its limit, and 700 MB once it is decoded."""
    large, readers = {"id": "large", "handler": "echo", "config": ["{{ input.x }}"] * 80}, range(12)
    copies = [
        {"id": f"n{index}", "handler": "echo", "dependencies": ["large"], "config": "{{ large }}"}
        for index in readers
    ]
    last = {
        "id": "last",
        "handler": "echo",
        "dependencies": [f"n{index}" for index in readers],
        "condition": " and ".join(f"n{index}[0][0] == 'ab'" for index in readers),
    }
    definition = {"nodes": [large, *copies, last], "output": "done"}
    body = json.dumps({"definition": definition, "input": {"x": ["ab"] * 11_500}}, separators=(",", ":"))

    async def attack(attacker: Attacker) -> tuple[int, Any]:
        return await attacker.call("POST", "/v1/executions?wait=50", body.encode())

    async with abused() as target:
        # 60 MB of outputs go to the disk, and the commits of all wait for the same disk.
        status, shown = (await measure(target, attack, factor=10)).result
    assert (status, shown["state"]) == (200, "FAILED")
    assert "values together" in shown["error"]["message"]
