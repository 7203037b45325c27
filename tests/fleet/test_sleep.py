"""``sleep`` in a fleet: no worker slot, and a time that outlives orchestrators, workers and Redis."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import PATIENCE_SECONDS
from tests.operation.test_sleep import asleep, nap

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import RunningFleet

# Longer than it takes to lose Redis and every process, and to start them again.
SECONDS = 12
LONG_SECONDS = 300
MANY = 2_000


def awake(node_id: str, *dependencies: str) -> dict[str, Any]:
    return {"id": node_id, "handler": "echo", "dependencies": list(dependencies), "config": "up"}


async def test_a_sleep_keeps_its_time_when_redis_and_every_process_is_lost(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start("--concurrency", "1", orchestrators=2)
        execution_id = await fleet.api.start({"nodes": [nap("a", SECONDS), awake("b", "a")]})
        before = await asleep(fleet.api, execution_id, "a")
        assert (before["worker"], before["attempt"]) == (None, 1)
        assert parse_rfc3339(before["due_at"]) - parse_rfc3339(before["started_at"]) == SECONDS * 1_000_000
        for member in fleet.members:
            await member.kill()
        fleet.redis.flushall()
        await fleet.start("--concurrency", "1", orchestrators=2)
        (shown,) = await fleet.check(execution_id)
        node, behind = shown["nodes"]
        assert (node["state"], node["attempt"], node["worker"]) == ("COMPLETED", 1, None)
        assert node["output"] == {"seconds": SECONDS, "word": "awake"}
        assert node["started_at"] == before["started_at"]
        assert parse_rfc3339(node["finished_at"]) >= parse_rfc3339(before["due_at"])
        assert (behind["state"], behind["attempt"]) == ("COMPLETED", 1)


async def test_thousands_sleep_in_no_slot_and_a_cancel_ends_them_all(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start("--concurrency", "1")
        many = await fleet.api.start({"nodes": [nap(f"n{number}", LONG_SECONDS) for number in range(MANY)]})
        await _counts(fleet, many, "RUNNING", MANY)
        assert {queue["name"]: queue["depth"] for queue in (await fleet.api.get("/v1/queues"))["items"]} == {}
        (worker,) = (await fleet.api.get("/v1/workers"))["items"]
        assert worker["running"] == 0
        beside = await fleet.api.start({"nodes": [awake("a")]})
        assert [shown["state"] for shown in await fleet.settle(beside)] == ["COMPLETED"]
        status, cancelled, _ = await fleet.api.call("POST", f"/v1/executions/{many}/cancel")
        assert (status, cancelled["counts"]["CANCELLED"]) == (202, MANY)
        await fleet.check(many)


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_pause_lets_a_sleep_end_and_max_concurrency_counts_it(fleets: Fleets, limit: int) -> None:
    async with fleets() as fleet:
        await fleet.start()
        nodes = [nap("a", 2), *([nap("c", 2)] if limit == 2 else []), nap("b", 0)]
        execution_id = await fleet.api.start({"nodes": nodes, "max_concurrency": limit})
        await asleep(fleet.api, execution_id, "a")
        explained = await fleet.api.get(f"/v1/executions/{execution_id}/nodes/b/explain")
        assert [reason["code"] for reason in explained["reasons"]] == ["max_concurrency"]
        assert (await fleet.api.call("POST", f"/v1/executions/{execution_id}/pause"))[0] == 202
        await _counts(fleet, execution_id, "COMPLETED", limit)
        assert (await fleet.api.get(f"/v1/executions/{execution_id}/nodes/b"))["state"] == "PENDING"
        assert (await fleet.api.call("POST", f"/v1/executions/{execution_id}/resume"))[0] == 202
        (shown,) = await fleet.check(execution_id)
        assert shown["state"] == "COMPLETED"


async def _counts(fleet: RunningFleet, execution_id: str, state: str, number: int) -> None:
    """Return once so many nodes of an execution are in a state."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        path = f"/v1/executions/{execution_id}?nodes=none"
        while (await fleet.api.get(path))["counts"][state] < number:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
