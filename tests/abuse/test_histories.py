"""Many callers who read a long history again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.abuse.bystander import measure
from tests.abuse.many_connections import keep_open
from tests.faults.raw import request

if TYPE_CHECKING:
    from tests.abuse.bystander import Abused, Attacker

NODES, READERS = 1_500, 100


async def long_history(attacker: Attacker) -> str:
    """Run an execution with thousands of events; return its path."""
    nodes = [{"id": f"n{number}", "handler": "echo"} for number in range(NODES)]
    status, shown = await attacker.call("POST", "/v1/executions?wait=50", {"definition": {"nodes": nodes}})
    assert (status, shown["state"]) == (200, "COMPLETED"), shown
    return f"/v1/executions/{shown['id']}"


@pytest.mark.parametrize(
    ("query", "header"),
    [
        pytest.param("", "Accept: text/event-stream", id="streams"),
        pytest.param("?limit=500", "Connection: close", id="pages"),
    ],
)
async def test_callers_who_read_a_long_history_keep_nobody_waiting(
    abused: Abused, query: str, header: str
) -> None:
    """F97: each reads as fast as it can, and comes again at the end."""
    async with abused() as target:

        async def read(attacker: Attacker) -> int:
            return await keep_open(target.url, READERS, request("GET", f"{path}/events{query}", b"", header))

        path = (await measure(target, long_history)).result
        await measure(target, read)
