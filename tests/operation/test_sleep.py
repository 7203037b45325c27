"""``sleep`` in a real server: no worker slot, and a time that outlives the process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.operation.serving import PATIENCE_SECONDS, Api, serving

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from pathlib import Path

MANY = 10_000


def nap(node_id: str, seconds: Any, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "sleep", "config": {"seconds": seconds, "word": "awake"}, **fields}


async def asleep(api: Api, execution_id: str, node_id: str) -> dict[str, Any]:
    """Return a node once it runs."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        path = f"/v1/executions/{execution_id}/nodes/{node_id}"
        while (await api.get(path))["state"] != "RUNNING":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    shown: dict[str, Any] = await api.get(path)
    return shown


async def test_a_sleep_keeps_its_time_when_its_server_is_killed(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start({"nodes": [nap("a", 6)]})
        before = await asleep(api, execution_id, "a")
        assert (before["worker"], before["attempt"]) == (None, 1)
        assert parse_rfc3339(before["due_at"]) - parse_rfc3339(before["started_at"]) == 6_000_000
        await server.kill()
    async with serving(tmp_path / "data") as (_, api):
        (node,) = (await api.terminal(execution_id))["nodes"]
        assert (node["state"], node["attempt"], node["worker"]) == ("COMPLETED", 1, None)
        assert node["output"] == {"seconds": 6, "word": "awake"}
        assert node["started_at"] == before["started_at"]
        assert parse_rfc3339(node["finished_at"]) >= parse_rfc3339(before["due_at"])


async def test_ten_thousand_sleep_in_no_slot(tmp_path: Path) -> None:
    """All sleep at once; an execution beside them has the only slot to itself; a cancel ends them all."""
    async with serving(tmp_path / "data", "--concurrency", "1") as (_, api):
        many = await api.start({"nodes": [nap(f"n{number}", 300) for number in range(MANY)]})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await api.get(f"/v1/executions/{many}?nodes=none"))["counts"]["RUNNING"] < MANY:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        (worker,) = (await api.get("/v1/workers"))["items"]
        assert worker["running"] == 0
        beside = await api.terminal(
            await api.start({"nodes": [{"id": "a", "handler": "hold", "config": {"seconds": 0}}]})
        )
        assert beside["state"] == "COMPLETED"
        status, cancelled, _ = await api.call("POST", f"/v1/executions/{many}/cancel")
        assert (status, cancelled["counts"]["CANCELLED"]) == (202, MANY)


async def test_a_pause_lets_a_sleep_end_and_max_concurrency_counts_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (_, api):
        nodes = [nap("a", 1), nap("b", 0)]
        execution_id = await api.start({"nodes": nodes, "max_concurrency": 1})
        await asleep(api, execution_id, "a")
        explained = await api.get(f"/v1/executions/{execution_id}/nodes/b/explain")
        assert [reason["code"] for reason in explained["reasons"]] == ["max_concurrency"]
        assert (await api.call("POST", f"/v1/executions/{execution_id}/pause"))[0] == 202
        async with asyncio.timeout(PATIENCE_SECONDS):
            path = f"/v1/executions/{execution_id}/nodes"
            while (await api.get(f"{path}/a"))["state"] != "COMPLETED":  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await api.get(f"{path}/b"))["state"] == "PENDING"
        assert (await api.call("POST", f"/v1/executions/{execution_id}/resume"))[0] == 202
        assert (await api.terminal(execution_id))["state"] == "COMPLETED"


async def test_more_seconds_than_the_timeout_are_refused_or_fail_the_node(tmp_path: Path) -> None:
    async with serving(tmp_path / "data") as (_, api):
        body = {"definition": {"nodes": [nap("a", 301)]}}
        status, problem, _ = await api.call("POST", "/v1/executions", body)
        assert (status, [one["pointer"] for one in problem["problems"]]) == (
            422,
            ["/definition/nodes/0/config/seconds"],
        )
        shown = await api.terminal(
            await api.start({"nodes": [nap("a", "{{ 300 + 1 }}"), nap("b", "soon {{ 1 }}")]})
        )
        assert [node["error"]["code"] for node in shown["nodes"] if node["error"]] == ["bad_config"]
