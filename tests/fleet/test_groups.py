"""Groups in a fleet: the limit holds, and all of it is done, whoever is killed and whatever Redis loses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets

LIMIT = 2
WORKFLOW = {
    "name": "export",
    "concurrency": {"group": "{{ input.customer }}", "limit": LIMIT},
    "nodes": [{"id": "a", "handler": "sleep", "config": {"seconds": 0.3}}],
}


async def test_no_more_than_the_limit_run_over_kills_and_a_flush(fleets: Fleets) -> None:
    async with fleets() as fleet:
        await fleet.start(orchestrators=3)
        status, body, _ = await fleet.api.call("POST", "/v1/workflows", WORKFLOW)
        assert status == 201, body
        inputs = [{"customer": "acme"}] * 12 + [{"customer": "umbrella"}] * 4
        answers = await asyncio.gather(
            *(fleet.api.call("POST", "/v1/workflows/export/executions", {"input": one}) for one in inputs)
        )
        assert {status for status, _, _ in answers} == {202}
        ids = [body["id"] for _, body, _ in answers]
        orchestrators = [member for member in fleet.members if member.role == "orchestrator"]
        await orchestrators[0].kill()
        fleet.redis.flushall()
        await orchestrators[1].kill()
        shown = await fleet.check(*ids, faults=2)
        assert {one["state"] for one in shown} == {"COMPLETED"}
        for group in ("acme", "umbrella"):
            moments = []
            for one in shown:
                if one["group"] == group:
                    moments.append((parse_rfc3339(one["started_at"]), 1))
                    moments.append((parse_rfc3339(one["finished_at"]), -1))
            running = most = 0
            for _, step in sorted(moments):
                running += step
                most = max(most, running)
            assert most == LIMIT
