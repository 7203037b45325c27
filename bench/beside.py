"""A wide execution of 50,000 nodes, and a thousand small ones that are started while it runs.

How long the small ones take, as whoever starts them sees it, beside the same alone on the same fleet. Of the
wide one no more than a window of tasks is under way at a time: a small one's node waits behind these, and not
behind all that are free.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import graphs
from bench.figure import Figure, at_most, quantile
from bench.fleet import running
from bench.gauge import Gauge
from bench.run import run_loop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.fleet import RunningFleet

_LAYERS, _WIDTH = 25, 2_000
_SMALL = 1_000
# So many are started a second, whether or not those before have ended.
_RATE = 100.0
_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Small:
    begun: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Beside:
    alone: list[Small]
    beside: list[Small]
    # When the wide one was sent, accepted and at its end.
    sent: float
    accepted: float
    ended: float
    # The most tasks and results that were on their way at once.
    most: int


def beside() -> Iterator[Figure]:
    """Small executions alone and beside a wide one."""
    with running() as one:
        seen = run_loop(_run(one))
    yield from figures(seen)


def figures(seen: Beside) -> Iterator[Figure]:
    """Return what was seen, and hold it against the targets."""
    nodes = _LAYERS * _WIDTH
    alone = [small.seconds * 1e3 for small in seen.alone]
    during = [small for small in seen.beside if small.begun < seen.ended]
    while_sent = [small.seconds * 1e3 for small in during if small.begun < seen.accepted]
    while_run = [small.seconds * 1e3 for small in during if small.begun >= seen.accepted]

    def figure(what: str, value: float, unit: str = "ms", **more: Any) -> Figure:
        return Figure(workload="beside", what=what, value=value, unit=unit, **more)

    yield figure(f"{nodes:,} nodes, accepted after", seen.accepted - seen.sent, "s")
    yield figure(f"{nodes:,} nodes, run", nodes / (seen.ended - seen.accepted), "nodes/s")
    yield figure("most tasks and results under way", seen.most, "entries")
    for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
        yield figure(f"small alone, {_RATE:g}/s, {name}", quantile(alone, share))
        if while_sent:
            yield figure(f"small while it is sent, {name}", quantile(while_sent, share))
        if while_run:
            yield figure(f"small while it runs, {name}", quantile(while_run, share))
    if while_run:
        times = quantile(while_run, 0.5) / quantile(alone, 0.5)
        yield figure("small while it runs : alone, p50", times, "×", target=at_most(3))
    yield figure("small ones beside it", len(during), "exec")
    whole = (seen.ended - seen.sent) * 1e3
    slowest = max(small.seconds * 1e3 for small in during)
    yield figure("slowest of them : the wide one", slowest / whole, "×", target=at_most(0.25))


async def _run(one: RunningFleet) -> Beside:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=_PATIENCE_SECONDS)
    async with (
        aiohttp.ClientSession(one.url, connector=connector, timeout=timeout) as session,
        Gauge(one) as gauge,
    ):
        async with session.post("/v1/workflows", json=graphs.diamond()) as answer:
            assert answer.status in (200, 201), await answer.text()
        await _small_ones(session, _SMALL // 10)  # the first pay for what is made once
        alone = await _small_ones(session, _SMALL)
        print("  the small ones alone are done", file=sys.stderr, flush=True)
        sent = time.perf_counter()
        wide = asyncio.create_task(_wide(session))
        under_way: list[int] = []
        looking = asyncio.create_task(_look(gauge, under_way))
        beside = await _small_ones(session, _SMALL)
        print("  the small ones beside it are done", file=sys.stderr, flush=True)
        accepted, ended = await wide
        looking.cancel()
    return Beside(alone, beside, sent, accepted, ended, max(under_way))


async def _look(gauge: Gauge, under_way: list[int]) -> None:
    while True:
        under_way.append((await gauge.look(whole=False)).entries)
        await asyncio.sleep(_LOOK_SECONDS)


async def _small_ones(session: aiohttp.ClientSession, count: int) -> list[Small]:
    """Start so many, evenly over time, and wait for all of them."""
    begun = time.perf_counter()
    starting = []
    for number in range(count):
        await asyncio.sleep(max(0.0, begun + number / _RATE - time.perf_counter()))
        starting.append(asyncio.create_task(_small(session)))
    return list(await asyncio.gather(*starting))


async def _small(session: aiohttp.ClientSession) -> Small:
    begun = time.perf_counter()
    async with session.post("/v1/workflows/bench/executions?wait=300", json={}) as answer:
        assert answer.status in (200, 202), await answer.text()
        execution = await answer.json()
    assert execution["state"] == "COMPLETED", execution
    return Small(begun, time.perf_counter() - begun)


async def _wide(session: aiohttp.ClientSession) -> tuple[float, float]:
    """Run the wide one; give when it was accepted and when it had ended."""
    document = await asyncio.to_thread(graphs.layered, _LAYERS, _WIDTH)
    async with session.post("/v1/executions", json={"definition": document}) as answer:
        assert answer.status == 202, await answer.text()
        execution = await answer.json()
    accepted = time.perf_counter()
    async with session.get(f"/v1/executions/{execution['id']}?wait=300&nodes=none") as answer:
        execution = await answer.json()
    assert execution["state"] == "COMPLETED", execution
    return accepted, time.perf_counter()
