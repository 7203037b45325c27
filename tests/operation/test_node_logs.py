"""What nodes print, on a server: kept through ``kill -9``, and bounded."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from typing import TYPE_CHECKING, Any

from tests.operation.serving import PATIENCE_SECONDS, WEFT, Api, serving

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {
    "WEFT_IMPORTS": "tests.worker.chatty",
    "WEFT_PYTHON_ALLOW": "tests.worker.chatty:*",
    "WEFT_WORKER_GRACE": "2",
}
# Promised is a second; the rest is for a machine with much else to do.
NEWEST_SECONDS = 3.0


def chatty(node_id: str, function: str, **args: Any) -> dict[str, Any]:
    config = {"function": f"tests.worker.chatty:{function}", "args": args}
    return {"id": node_id, "handler": "python", "config": config, "max_retries": 0}


async def lines_of(api: Api, execution_id: str, query: str = "") -> list[dict[str, Any]]:
    """Return all lines of an execution."""
    lines: list[dict[str, Any]] = []
    after = ""
    while True:
        page = await api.get(f"/v1/executions/{execution_id}/logs?limit=500{query}{after}")
        lines += page["items"]
        if page["next_cursor"] is None:
            return lines
        after = f"&after={page['next_cursor']}"


async def has_lines(api: Api, execution_id: str, number: int, query: str = "") -> None:
    """Return once so many lines are there."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await lines_of(api, execution_id, query)) < number:  # noqa: ASYNC110 - it is the server's
            await asyncio.sleep(0.05)


async def test_what_was_printed_a_second_before_a_kill_is_in_the_logs(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings=SETTINGS) as (server, api):
        execution_id = await api.start({"nodes": [chatty("a", "ticks")]})
        await has_lines(api, execution_id, 150)
        killed_at = time.time()
        await server.kill()
    async with serving(tmp_path / "data", settings=SETTINGS) as (_, api):
        kept = [line["message"].split() for line in await lines_of(api, execution_id, "&attempt=1")]
        assert [int(number) for _, number, _ in kept] == list(range(1, len(kept) + 1))
        assert killed_at - float(kept[-1][2]) < NEWEST_SECONDS
        # The attempt was lost with the server, and the next one prints too.
        await has_lines(api, execution_id, len(kept) + 1)
        await api.call("POST", f"/v1/executions/{execution_id}/cancel")
        shown = await asyncio.to_thread(
            subprocess.run,
            [*WEFT, "logs", execution_id, "a", "--attempt", "1"],
            env={**os.environ, "WEFT_URL": api.url},
            capture_output=True,
            text=True,
            check=True,
        )
    first = shown.stdout.splitlines()[0]
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d a │ tick 1 [\d.]+", first)
    assert len(shown.stdout.splitlines()) == len(kept)


async def test_ten_nodes_that_print_without_a_pause_lose_lines_and_nothing_else(tmp_path: Path) -> None:
    noisy = [f"n{number}" for number in range(10)]
    # Enough processes, so that the last one need not wait for the others.
    settings = {**SETTINGS, "WEFT_WORKER_PROCESSES": "11"}
    async with serving(tmp_path / "data", settings=settings) as (_, api):
        nodes = [chatty(name, "noise", seconds=2) for name in noisy]
        execution_id = await api.start({"nodes": [*nodes, chatty("quiet", "prints")]})
        shown = await api.terminal(execution_id)
        assert shown["state"] == "COMPLETED"
        attempts = {node["id"]: node["attempt"] for node in shown["nodes"]}
        assert set(attempts.values()) == {1}
        assert len(await lines_of(api, execution_id, "&node=quiet")) == 3
        for name in noisy:
            lines = [line["message"] for line in await lines_of(api, execution_id, f"&node={name}")]
            gone = sum(
                int(text.split()[0].replace(",", ""))
                for text in lines
                if "older lines are gone" in text or "lines were dropped" in text
            )
            # Notices that went with the oldest lines are not counted any more.
            kept = sum(text.startswith("noise") for text in lines)
            assert 0 < kept <= shown["output"][name]
            assert gone > 0


async def test_with_logs_off_nothing_is_kept(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings={**SETTINGS, "WEFT_LOGS": "off"}) as (server, api):
        execution_id = await api.start({"nodes": [chatty("a", "prints", text="loud and clear")]})
        await api.terminal(execution_id)
        assert await lines_of(api, execution_id) == []
        await server.stop()
        texts = [line.get("text") or "" for line in server.log]
        assert "loud and clear" in [printed for text in texts for printed in text.splitlines()]


async def test_lines_are_kept_and_echoed_as_what_they_are(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings=SETTINGS) as (server, api):
        execution_id = await api.start({"nodes": [chatty("a", "prints"), chatty("b", "logs")]})
        await api.terminal(execution_id)
        await server.stop()
    assert "hello" in [line.get("text") for line in server.log]
    logged = server.events("shop.orders")[0]
    assert (logged["level"], logged["message"], logged["node"]) == ("info", "order 7", "b")


async def test_a_server_logs_one_line_for_each_failed_execution(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", settings=SETTINGS) as (server, api):
        done = await api.start({"nodes": [{"id": "a", "handler": "echo"}]})
        failed = await api.start({"nodes": [{"id": "a", "handler": "echo", "config": "{{ input.x }}"}]})
        await api.terminal(done)
        await api.terminal(failed)
        logged = await server.logged("execution.failed")
        assert (logged["level"], logged["execution"], logged["node"]) == ("warning", failed, "a")
        assert f"weft retry {failed}" in logged["do"]
        await server.stop()
    assert len(server.events("execution.failed")) == 1
