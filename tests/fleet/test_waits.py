"""Wait nodes in a fleet: signals and timers outlive orchestrators, and the loss of Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from tests.operation.test_waits import LONG_SECONDS, send, wait, waiting

from weft.core.time import MICROSECONDS, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

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


T = TypeVar("T")
MANY, AT_ONCE = 1_000, 16
MANY_SECONDS = 45
MANY_NODES = [
    wait("timer", seconds=MANY_SECONDS),
    wait("paid", event="paid", match={"order": "{{ input.order }}"}),
    {"id": "last", "handler": "echo", "dependencies": ["timer", "paid"], "config": "{{ paid.value.order }}"},
]


async def test_a_thousand_waits_outlive_every_process_and_the_state_in_redis(fleets: Fleets) -> None:
    """Half of the events come before orchestrator and Redis are lost, half of them while nobody is there."""
    async with fleets(EVENT_RATE_LIMIT="off") as fleet:
        await fleet.start()
        await fleet.api.call("POST", "/v1/workflows", {"name": "order", "nodes": MANY_NODES})
        inputs = [{"order": order} for order in range(MANY)]
        status, batch, _ = await fleet.api.call(
            "POST", "/v1/batches", {"workflow": "order", "inputs": inputs}
        )
        assert status == 202, batch
        listed = f"/v1/executions?batch={batch['id']}&limit=500"
        page = await fleet.api.get(listed)
        items = page["items"] + (await fleet.api.get(f"{listed}&cursor={page['next_cursor']}"))["items"]
        ids = {one["id"] for one in items}
        for one in items:
            await waiting(fleet.api, one["id"], "paid")
        await in_turn([pay(fleet, order) for order in range(0, MANY, 2)])
        (orchestrator,) = fleet.having("orchestrator")
        await orchestrator.kill()
        fleet.redis.flushall()
        await in_turn([pay(fleet, order) for order in range(1, MANY, 2)])
        # The same events again: nothing is answered twice.
        answers = await in_turn([pay(fleet, order, again=True) for order in range(0, MANY, 100)])
        assert {status for status, _ in answers} == {200}
        await fleet.add("orchestrator")
        shown = await in_turn([fleet.api.terminal(id_) for id_ in ids])
    assert {one["state"] for one in shown} == {"COMPLETED"}
    outputs = [{node["id"]: node for node in one["nodes"]} for one in shown]
    assert sorted(nodes["last"]["output"] for nodes in outputs) == list(range(MANY))
    for nodes in outputs:
        timer = nodes["timer"]
        due_at = parse_rfc3339(timer["started_at"]) + MANY_SECONDS * MICROSECONDS
        assert parse_rfc3339(timer["output"]["at"]) == due_at <= parse_rfc3339(timer["finished_at"])
        assert (timer["attempt"], nodes["paid"]["attempt"]) == (1, 1)


async def pay(fleet: RunningFleet, order: int, *, again: bool = False) -> tuple[int, Any]:
    """Send the event that one execution waits for."""
    event = {"type": "paid", "source": "/bank", "id": str(order), "data": {"order": order}}
    status, body, _ = await fleet.api.call("POST", "/v1/events", event)
    assert status == (200 if again else 202), body
    assert len(body["answered"]) == 1
    return status, body


async def in_turn(calls: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Make calls, a few at a time, and return their results."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def make(call: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await call

    return await asyncio.gather(*map(make, calls))
