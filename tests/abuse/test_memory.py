"""Payloads that multiply: a large value that many nodes are given at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
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
