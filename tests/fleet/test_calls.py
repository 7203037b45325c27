"""Nodes that run workflows in a fleet: children outlive orchestrators, and the loss of Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.operation.test_waits import send, wait, waiting
from tests.walks.stage import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import RunningFleet

INNER = {
    "nodes": [
        {"id": "first", "handler": "echo", "config": "{{ input.n }}"},
        wait("approval", "first"),
    ],
    "output": {"n": "{{ first }}", "said": "{{ approval.value }}"},
}
NODES = [
    {"id": "a", "handler": "echo", "config": 7},
    {"id": "called", "workflow": INNER, "input": {"n": "{{ a }}"}, "dependencies": ["a"]},
    {"id": "last", "handler": "echo", "config": "{{ called }}", "dependencies": ["called"]},
]


async def started(fleet: RunningFleet) -> tuple[str, str]:
    """Return an execution, and its child, which waits."""
    execution_id = await fleet.api.start({"nodes": NODES})
    await waiting(fleet.api, execution_id, "called")
    (child,) = (await fleet.api.get(f"/v1/executions/{execution_id}/nodes/called/children"))["items"]
    await waiting(fleet.api, child["id"], "approval")
    return execution_id, child["id"]


async def check_ended(fleet: RunningFleet, execution_id: str) -> None:
    # The store was rebuilt with a node that was ready: it may have been handed out before.
    (shown,) = await fleet.check(execution_id, faults=1)
    nodes: dict[str, Any] = {node["id"]: node for node in shown["nodes"]}
    assert (shown["state"], nodes["last"]["output"]) == ("COMPLETED", {"n": 7, "said": "yes"})
    assert [node["attempt"] for node in shown["nodes"][:2]] == [1, 1]


async def test_a_call_outlives_the_orchestrator_and_the_state_in_redis(fleets: Fleets) -> None:
    """The child ends while no orchestrator is there, and after Redis has lost everything."""
    async with fleets() as fleet:
        await fleet.start()
        execution_id, child = await started(fleet)
        (orchestrator,) = [member for member in fleet.members if member.role == "orchestrator"]
        await orchestrator.kill()
        fleet.redis.flushall()
        assert await send(fleet.api, child, "approval", "yes") == "approval"
        await fleet.add("orchestrator")
        await check_ended(fleet, execution_id)


async def test_a_cancel_in_a_fleet_reaches_the_child_before_it_is_answered(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start()
        execution_id, child = await started(fleet)
        await fleet.api.call("POST", f"/v1/executions/{execution_id}/cancel")
        assert (await fleet.api.get(f"/v1/executions/{child}"))["state"] == "CANCELLED"
        await fleet.api.call("POST", f"/v1/executions/{execution_id}/retry")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await fleet.api.get(f"/v1/executions/{child}"))["state"] != "RUNNING":
                pass
        await waiting(fleet.api, child, "approval")
        assert await send(fleet.api, child, "approval", "yes") == "approval"
        # Each retry takes another attempt of what had begun.
        (shown,) = await fleet.check(execution_id, faults=1)
        assert (shown["state"], shown["generation"]) == ("COMPLETED", 2)
