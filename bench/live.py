"""Viewers of one busy execution: what they cost the server, and whether they hold it up.

A graph of echo nodes runs on ``weft up`` as fast as it can, first with nobody watching, then with one viewer
of ``GET /v1/executions/{id}/live``, then with a hundred. All viewers share what is made for one, so the
second figure is what it costs to watch at all, and the third what one more viewer costs.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import server
from bench.figure import Figure, at_least, at_most
from bench.run import run_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.server import Server

_LAYERS, _WIDTH = 150, 200
_MANY = 100
# Viewers are there before the first node completes.
_HEAD_START_SECONDS = 4.0
_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class _Run:
    seconds: float
    cpu_seconds: float
    frames: int
    bytes_sent: int


def live() -> Iterator[Figure]:
    """Watch an execution of 30,000 nodes that changes several thousand of them a second."""
    runs: dict[int, _Run] = {}
    for _ in range(_ROUNDS):
        for viewers in (0, 1, _MANY):
            with server.running() as running:
                found = run_loop(_watched(running, viewers))
            if viewers not in runs or found.cpu_seconds < runs[viewers].cpu_seconds:
                runs[viewers] = found
    alone, one, many = runs[0], runs[1], runs[_MANY]
    # Each node is queued, started and completed.
    changes = 3 * _LAYERS * _WIDTH
    yield _figure("changes of nodes, nobody watching", changes / alone.seconds, "/s")
    yield _figure("changes of nodes, 100 viewers", changes / many.seconds, "/s")
    share = alone.seconds / many.seconds
    yield Figure(
        workload="live", what="the same, of those without", value=share, unit="×", target=at_least(0.8)
    )
    cost = 100 * (one.cpu_seconds - alone.cpu_seconds) / one.seconds
    yield _figure("the first viewer, of a core", cost, "%")
    cost = 100 * (many.cpu_seconds - alone.cpu_seconds) / many.seconds / _MANY
    yield Figure(
        workload="live", what="a viewer among 100, of a core", value=cost, unit="%", target=at_most(5)
    )
    yield _figure("frames a second", one.frames / one.seconds, "/s")
    yield _figure("sent to a viewer", one.bytes_sent / one.seconds / 1000, "kB/s")


def _figure(what: str, value: float, unit: str) -> Figure:
    return Figure(workload="live", what=what, value=value, unit=unit)


def _document() -> dict[str, Any]:
    nodes: list[dict[str, Any]] = [
        {"id": "start", "handler": "sleep", "config": {"seconds": _HEAD_START_SECONDS}}
    ]
    for layer in range(_LAYERS):
        for place in range(_WIDTH):
            before = f"n{layer - 1}_{place}" if layer else "start"
            nodes.append({"id": f"n{layer}_{place}", "handler": "echo", "dependencies": [before]})
    return {"definition": {"nodes": nodes}}


async def _watched(running: Server, viewers: int) -> _Run:
    limits = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(running.url, connector=limits) as session:
        async with session.post("/v1/executions", json=_document()) as response:
            path = f"/v1/executions/{(await response.json())['id']}"
        begun = time.monotonic()
        watching = [asyncio.create_task(_view(session, f"{path}/live")) for _ in range(viewers)]
        await asyncio.sleep(_HEAD_START_SECONDS - 1)
        cpu = running.cpu_seconds()
        async with session.get(f"{path}?nodes=none&wait=300") as response:
            state = (await response.json())["state"]
        assert state == "COMPLETED", state
        seconds = time.monotonic() - begun - _HEAD_START_SECONDS
        cpu = running.cpu_seconds() - cpu
        seen = await asyncio.gather(*watching)
    frames, sent = seen[0] if seen else (0, 0)
    return _Run(seconds, cpu, frames, sent)


async def _view(session: aiohttp.ClientSession, path: str) -> tuple[int, int]:
    frames = sent = 0
    async with session.get(path) as response:
        assert response.status == 200
        tail = b""
        async for chunk in response.content.iter_any():
            sent += len(chunk)
            frames += chunk.count(b"event: changes") + chunk.count(b"event: snapshot")
            tail = (tail + chunk)[-64:]
    assert b"event: end" in tail, "the stream broke off"
    return frames, sent
