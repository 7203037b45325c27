"""Templates and conditions that are costly to evaluate: few bytes each, in many nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.abuse.bystander import measure

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

NODES = 60


def costly(depth: int = 10) -> str:
    """Return an expression that searches a long text again and again, just below the limit on steps."""
    expression = "input.x"
    for _ in range(depth):
        expression = f"({expression}|replace('a','aa') ~ input.x)"
    return f"{expression}|length"


def node(number: int, where: str) -> dict[str, Any]:
    if where == "condition":
        return {"id": f"n{number}", "handler": "echo", "condition": costly(), "config": {}}
    return {"id": f"n{number}", "handler": "echo", "config": f"{{{{ {costly()} }}}}"}


@pytest.mark.parametrize("where", ["config", "condition"])
async def test_costly_expressions_of_many_nodes_are_not_noticed_by_others(abused: Abused, where: str) -> None:
    async def attack(attacker: Attacker) -> tuple[int, Any]:
        definition = {"nodes": [node(number, where) for number in range(NODES)]}
        body = {"definition": definition, "input": {"x": "a" * 1000}}
        return await attacker.call("POST", "/v1/executions?wait=60", body)

    async with abused() as target:
        status, shown = (await measure(target, attack)).result
    assert status == 200
    assert shown["state"] == "COMPLETED"
