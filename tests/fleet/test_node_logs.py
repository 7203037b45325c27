"""What nodes print in a fleet: written by the worker, read through any API."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from tests.fleet.harness import SHORT_LEASE
from tests.operation.test_node_logs import chatty, has_lines, lines_of

from weft import AsyncClient

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleets

CHATTY: dict[str, Any] = {
    "WEFT_IMPORTS": "tests.worker.chatty",
    "WEFT_PYTHON_ALLOW": "tests.worker.chatty:*",
}


async def test_lines_of_a_worker_that_is_killed_are_kept(fleets: Fleets) -> None:
    async with fleets(**CHATTY) as fleet:
        await fleet.start(workers=2, **SHORT_LEASE)
        nodes = [chatty("says", "prints"), chatty("runs", "starts_program"), chatty("ticks", "ticks")]
        execution_id = await fleet.api.start({"nodes": nodes, "failure_policy": "continue"})
        await has_lines(fleet.api, execution_id, 100)
        shown = await fleet.api.get(f"/v1/executions/{execution_id}")
        node = next(node for node in shown["nodes"] if node["id"] == "ticks")
        await fleet.holding(node["worker"]).kill()
        first = await lines_of(fleet.api, execution_id, "&node=ticks&attempt=1")
        numbers = [int(line["message"].split()[1]) for line in first]
        assert numbers == list(range(1, len(numbers) + 1))
        # The other worker goes on with it.
        await has_lines(fleet.api, execution_id, 1, "&node=ticks&attempt=2")
        await fleet.api.call("POST", f"/v1/executions/{execution_id}/cancel")
        said = [line["message"] for line in await lines_of(fleet.api, execution_id, "&node=says")]
        assert sorted(said) == ["hello", "no end", "to stderr"]
        ran = [line["message"] for line in await lines_of(fleet.api, execution_id, "&node=runs")]
        assert sorted(ran) == ["before", "err", "out", "raw"]
        seqs = [line["seq"] for line in await lines_of(fleet.api, execution_id)]
        assert seqs == sorted(set(seqs))


async def test_progress_is_told_live_and_shown_through_any_api(fleets: Fleets) -> None:
    async with fleets(**CHATTY) as fleet:
        await fleet.start(workers=1)
        execution_id = await fleet.api.start({"nodes": [chatty("a", "climbs")]})
        async with AsyncClient(fleet.api.url) as client, aclosing(client.watch(execution_id)) as events:
            told = await anext(event async for event in events if event.type == "node.progress")
        assert (told.seq, told.node, told.attempt) == (None, "a", 1)
        assert told.progress is not None
        assert told.progress.message == "climbing"
        (node,) = (await fleet.api.get(f"/v1/executions/{execution_id}"))["nodes"]
        assert node["progress"]["done"] >= told.progress.done
        assert node["progress"]["total"] == 1_000_000
        await fleet.api.call("POST", f"/v1/executions/{execution_id}/cancel")
