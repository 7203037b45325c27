"""Wait nodes in a fleet: signals and timers outlive orchestrators, and the loss of Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.operation.test_waits import LONG_SECONDS, send, wait, waiting

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import RunningFleet

# Longer than it takes to lose Redis and an orchestrator, and to start one again.
SECONDS = 12
NODES = [
    wait("timer", seconds=SECONDS),
    wait("approval", expires_seconds=LONG_SECONDS),
    wait("early", "approval", signal="early"),
    {"id": "last", "handler": "echo", "dependencies": ["timer", "early"], "config": "{{ early.value }}"},
]


async def started(fleet: RunningFleet) -> tuple[str, dict[str, Any]]:
    """Return an execution whose first nodes wait, with a signal in its mailbox, and its timer."""
    execution_id = await fleet.api.start({"nodes": NODES})
    timer = await waiting(fleet.api, execution_id, "timer")
    await waiting(fleet.api, execution_id, "approval")
    assert await send(fleet.api, execution_id, "early", 7) is None
    return execution_id, timer


async def check_ended(fleet: RunningFleet, execution_id: str, timer: dict[str, Any]) -> None:
    """Check that every wait ended once, and the timer at the time that it had from the beginning."""
    (shown,) = await fleet.check(execution_id)
    nodes = {node["id"]: node for node in shown["nodes"]}
    assert (shown["state"], nodes["last"]["output"]) == ("COMPLETED", 7)
    assert nodes["approval"]["output"]["value"] == "yes"
    assert nodes["timer"]["output"]["at"] == timer["due_at"]
    assert parse_rfc3339(nodes["timer"]["finished_at"]) >= parse_rfc3339(timer["due_at"])
    assert [node["attempt"] for node in shown["nodes"]] == [1, 1, 1, 1]


async def test_waits_outlive_the_orchestrator(fleets: Fleets) -> None:
    """One answer comes while no orchestrator is there, and counts."""
    async with fleets() as fleet:
        await fleet.start()
        execution_id, timer = await started(fleet)
        (orchestrator,) = [member for member in fleet.members if member.role == "orchestrator"]
        await orchestrator.kill()
        assert await send(fleet.api, execution_id, "approval", "yes") == "approval"
        await fleet.add("orchestrator")
        await check_ended(fleet, execution_id, timer)


async def test_waits_outlive_the_state_in_redis(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start(orchestrators=2)
        execution_id, timer = await started(fleet)
        fleet.redis.flushall()
        assert await send(fleet.api, execution_id, "approval", "yes") == "approval"
        await check_ended(fleet, execution_id, timer)
