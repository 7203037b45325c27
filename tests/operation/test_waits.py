"""Wait nodes in a real server: signals, timers and expiries outlive the process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.operation.serving import PATIENCE_SECONDS, Api, serving

from weft.core.time import parse_rfc3339

if TYPE_CHECKING:
    from pathlib import Path

# Longer than it takes to kill a server and to start it again.
SECONDS = 6
LONG_SECONDS = 3600


def wait(node_id: str, *dependencies: str, **config: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "wait", "dependencies": list(dependencies), "config": config}


async def waiting(api: Api, execution_id: str, node_id: str) -> dict[str, Any]:
    """Return a node once it waits."""
    path = f"/v1/executions/{execution_id}/nodes/{node_id}"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (shown := await api.get(path))["state"] != "WAITING":  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return dict(shown)


async def send(api: Api, execution_id: str, name: str, value: Any) -> Any:
    status, sent, _ = await api.call(
        "POST", f"/v1/executions/{execution_id}/signals/{name}", {"value": value}
    )
    assert status == 202, sent
    return sent["answered"]


async def test_waits_go_on_when_their_server_is_killed(tmp_path: Path) -> None:
    nodes = [
        wait("timer", seconds=SECONDS),
        wait("expiring", expires_seconds=SECONDS, default="nobody"),
        wait("approval", prompt="Apply?", expires_seconds=LONG_SECONDS),
        wait("early", "approval"),
    ]
    async with serving(tmp_path / "data") as (server, api):
        execution_id = await api.start({"nodes": nodes})
        before = {name: await waiting(api, execution_id, name) for name in ("timer", "expiring", "approval")}
        assert await send(api, execution_id, "early", 7) is None
        await server.kill()
    async with serving(tmp_path / "data") as (_, api):
        listed = (await api.get("/v1/waits"))["items"]
        assert "approval" in [each["node"] for each in listed]
        assert await send(api, execution_id, "approval", "yes") == "approval"
        shown = await api.terminal(execution_id)
    assert shown["state"] == "COMPLETED"
    after = {node["id"]: node for node in shown["nodes"]}
    values = {name: (node["output"]["value"], node["output"]["expired"]) for name, node in after.items()}
    assert values == {
        "timer": (None, False),
        "expiring": ("nobody", True),
        "approval": ("yes", False),
        "early": (7, False),
    }
    for name, node in before.items():
        assert (after[name]["attempt"], after[name]["started_at"]) == (1, node["started_at"])
    for name in ("timer", "expiring"):
        assert after[name]["output"]["at"] == before[name]["due_at"]
        assert parse_rfc3339(after[name]["finished_at"]) >= parse_rfc3339(before[name]["due_at"])
