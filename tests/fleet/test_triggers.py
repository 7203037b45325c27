"""Triggers in a fleet: any number of orchestrators start each due time once, also where one is killed."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.operation.serving import PATIENCE_SECONDS

from weft.core.time import MICROSECONDS, parse_rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import RunningFleet

EVERY_SECOND = {
    "workflow": "tick",
    "input": {"due": "{{ trigger.due_at }}"},
    "schedule": {"every_seconds": 1, "catch_up": "all"},
}


async def stored(fleet: RunningFleet, trigger: dict[str, Any], handler: str = "echo") -> None:
    workflow = {"name": "tick", "nodes": [{"id": "a", "handler": handler, "config": "{{ input }}"}]}
    status, body, _ = await fleet.api.call("POST", "/v1/workflows", workflow)
    assert status == 201, body
    status, body, _ = await fleet.api.call("PUT", "/v1/triggers/tick", trigger)
    assert status == 201, body


async def until(fleet: RunningFleet, path: str, is_so: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            body = await fleet.api.get(path)
            if is_so(body):
                return body
            await asyncio.sleep(0.05)


async def test_each_due_time_starts_one_execution_whoever_is_killed(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start(orchestrators=3)
        await stored(fleet, EVERY_SECOND)
        listed = "/v1/executions?trigger=tick&limit=500"
        await until(fleet, listed, lambda page: len(page["items"]) >= 3)
        orchestrators = [member for member in fleet.members if member.role == "orchestrator"]
        await orchestrators[0].kill()
        await orchestrators[1].kill()
        await until(fleet, listed, lambda page: len(page["items"]) >= 8)
        await fleet.api.call("POST", "/v1/triggers/tick/disable")
        ids = [one["id"] for one in (await fleet.api.get(listed))["items"]]
        shown = await fleet.check(*ids)
        due = sorted(parse_rfc3339(one["input"]["due"]) for one in shown)
        assert due == [due[0] + n * MICROSECONDS for n in range(len(due))]


async def test_the_same_event_sent_to_a_fleet_at_once_starts_one_execution(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start(orchestrators=2)
        await stored(fleet, {"workflow": "tick", "event": {"type": "t"}, "overlap": "queue"})
        event = {"type": "t", "source": "s", "id": "1"}
        answers = await asyncio.gather(*(fleet.api.call("POST", "/v1/events", event) for _ in range(8)))
        assert sorted(status for status, _, _ in answers) == [200] * 7 + [202]
        assert len({tuple(body["started"]) for _, body, _ in answers}) == 1
        # Those that wait for their turn run one behind the other.
        for number in range(2, 6):
            status, body, _ = await fleet.api.call("POST", "/v1/events", {**event, "id": str(number)})
            assert (status, len(body["started"])) == (202, 1)
        ids = [one["id"] for one in (await fleet.api.get("/v1/executions?trigger=tick"))["items"]]
        assert len(ids) == 5
        shown = sorted(await fleet.check(*ids), key=lambda one: str(one["created_at"]))
        for before, behind in pairwise(shown):
            assert before["finished_at"] <= behind["started_at"]
