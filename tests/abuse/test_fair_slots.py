"""Executions with thousands of nodes that hold worker slots, and a small execution of the same handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.abuse.bystander import measure

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

NODES, EXECUTIONS = 1_800, 3
ATTACK_SECONDS = 8.0

NEIGHBOUR: dict[str, Any] = {
    "nodes": [
        {"id": "first", "handler": "hold"},
        {"id": "last", "handler": "hold", "dependencies": ["first"]},
    ]
}


async def occupy(attacker: Attacker) -> int:
    """Queue 5,400 tasks by 57 KB; return how many of them have ended when the attack ends."""
    nodes = [{"id": f"n{number}", "handler": "hold"} for number in range(NODES)]
    status, shown = await attacker.call("POST", "/v1/workflows", {"name": "wide", "nodes": nodes})
    assert status == 201, shown
    started = [
        (await attacker.call("POST", "/v1/workflows/wide/executions", {}))[1]["id"] for _ in range(EXECUTIONS)
    ]
    await asyncio.sleep(ATTACK_SECONDS)
    ended = 0
    for execution_id in started:
        _, shown = await attacker.call("POST", f"/v1/executions/{execution_id}/cancel")
        _, shown = await attacker.call("GET", f"/v1/executions/{execution_id}?nodes=none")
        ended += shown["counts"].get("COMPLETED", 0)
    return ended


async def test_a_small_execution_does_not_wait_behind_thousands_of_tasks(abused: Abused) -> None:
    async with abused(WEFT_IMPORTS="tests.abuse.holding") as target:
        measured = await measure(target, occupy, neighbour=NEIGHBOUR)
    # The wide ones go on meanwhile, and are far from their end: the neighbour did not just wait for it.
    assert 100 < measured.result < NODES * EXECUTIONS
