"""Executions that wait, events that find them, timers, and schedules: what they cost, and how late they are.

100,000 executions wait for an event each on ``weft up``. Once they have left the hot state, the figures are
the memory beside that of the empty server, the CPU at rest, how long an event takes to find its own among
all, and how long the server takes to be ready again after ``kill -9``, beside the start of an empty one. A
fleet waits with fewer, for what Redis keeps.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import fleet, server
from bench.figure import Figure, at_most, quantile
from bench.run import run_loop
from weft.core.time import MICROSECONDS, parse_rfc3339
from weft.redis.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.figure import Target
    from bench.server import Server

WAITING = 100_000
_BATCH = 5_000
_IN_FLEET = 5_000
_TRIGGERS = 10_000
_EVENTS = 100
_TIMERS = 40
_IDLE_SECONDS = 10.0
# For everything that waits to begin, and to leave the hot state.
_PATIENCE_SECONDS = 900.0
_SETTINGS = {"MAX_BATCH": str(_BATCH), "EVENT_RATE_LIMIT": "100000/minute"}
_PAID = {"event": "paid", "match": {"order": "{{ input.order }}"}}
_DOCUMENT = {
    "name": "order",
    "nodes": [
        {"id": "paid", "handler": "wait", "config": _PAID},
        {"id": "ship", "handler": "echo", "dependencies": ["paid"], "config": "{{ paid.value }}"},
    ],
}
_TIMER = {
    "name": "timer",
    "nodes": [{"id": "a", "handler": "wait", "config": {"seconds": "{{ input.order / 20 + 1 }}"}}],
}


def waits() -> Iterator[Figure]:
    """Let 100,000 executions wait on one server."""
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path(__file__).parent))
    try:
        begun = time.monotonic()
        with _serving(folder) as running:
            yield _figure("an empty server is ready after", time.monotonic() - begun, "s")
            yield _figure("CPU until then", running.cpu_seconds(), "s")
            empty = _at_rest(running)
            run_loop(_begin(running.url, _DOCUMENT, WAITING))
            _wait_until_evicted(folder, WAITING)
            memory = running.memory_mb()
            yield _figure("memory of 100,000 that wait, beside the empty", memory - empty, "MB", at_most(300))
            yield _figure("CPU while 100,000 wait", _cpu_share(running), "%", at_most(1))
            took, nobody = run_loop(_answer(running.url, WAITING))
            yield _figure("an event finds its own among 100,000, p50", quantile(took, 0.5), "ms", at_most(10))
            yield _figure("the same, p95", quantile(took, 0.95), "ms")
            yield _figure("an event for nobody, in between, p50", quantile(nobody, 0.5), "ms")
            os.kill(running.pid, signal.SIGKILL)
        begun = time.monotonic()
        with _serving(folder) as running:
            yield _figure("ready again after kill -9", time.monotonic() - begun, "s", at_most(5))
            yield _figure("CPU until then, with 100,000 that wait", running.cpu_seconds(), "s", at_most(5))
            took, _ = run_loop(_answer(running.url, WAITING, offset=_EVENTS))
            yield _figure("an event finds its own then, p50", quantile(took, 0.5), "ms", at_most(10))
    finally:
        shutil.rmtree(folder)


def wait_times() -> Iterator[Figure]:
    """How late timers and schedules are on a server with nothing else to do, and what idle triggers cost."""
    with server.running() as running:
        late = run_loop(_timers(running.url))
        yield _figure("a timer is late by, p50", quantile(late, 0.5), "ms")
        yield _figure("a timer is late by, at most", max(late), "ms", at_most(50))
        late = run_loop(_schedule(running.url))
        yield _figure("a trigger is late by, at most", max(late), "ms", at_most(250))
        _at_rest(running)
        before = _cpu_share(running)
        run_loop(_store_triggers(running.url))
        _at_rest(running)
        yield _figure("CPU at rest without triggers", before, "%")
        yield _figure("CPU at rest with 10,000 triggers", _cpu_share(running), "%", at_most(1))


def wait_fleet() -> Iterator[Figure]:
    """Let executions wait in a fleet: what Redis keeps, and how late events, timers and triggers are."""
    with fleet.running(**_SETTINGS) as running:
        before = _redis_bytes(running)
        run_loop(_begin(running.url, _DOCUMENT, _IN_FLEET))
        hot = _redis_bytes(running)
        yield _figure("Redis per execution that has just begun", (hot - before) / _IN_FLEET, "bytes")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        # Beside its sentinel.
        while running.redis.execute("ZCARD", Keys().active) > 1:
            assert time.monotonic() < deadline, "executions that wait stay in Redis"
            time.sleep(1)
        kept = _redis_bytes(running) - before
        yield _figure("the same once it waits: a tombstone, for 30 min", kept / _IN_FLEET, "bytes")
        took, nobody = run_loop(_answer(running.url, _IN_FLEET))
        yield _figure("an event finds its own in a fleet, p50", quantile(took, 0.5), "ms", at_most(10))
        yield _figure("an event for nobody, in between, p50", quantile(nobody, 0.5), "ms")
        late = run_loop(_timers(running.url))
        yield _figure("a timer of a fleet is late by, at most", max(late), "ms", at_most(50))
        late = run_loop(_schedule(running.url))
        yield _figure("a trigger of a fleet is late by, at most", max(late), "ms", at_most(250))


def _figure(what: str, value: float, unit: str, target: Target | None = None) -> Figure:
    return Figure(workload="waits", what=what, value=value, unit=unit, target=target)


# --- What the clients do.


async def _begin(url: str, document: dict[str, Any], count: int) -> None:
    """Start executions of a workflow by batches, and return once the last one waits."""
    async with aiohttp.ClientSession(url) as session:
        await _call(session, "POST", "/v1/workflows", document)
        last = ""
        for start in range(0, count, _BATCH):
            inputs = [{"order": order} for order in range(start, min(start + _BATCH, count))]
            body = {"workflow": document["name"], "inputs": inputs}
            batch = await _call(session, "POST", "/v1/batches", body)
            shown = await _call(session, "GET", f"/v1/executions?batch={batch['id']}&limit=1")
            last = shown["items"][0]["id"]
            path = f"/v1/executions/{last}/nodes/{document['nodes'][0]['id']}"
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while (await _call(session, "GET", path))["state"] != "WAITING":  # noqa: ASYNC110
                    await asyncio.sleep(0.1)


async def _answer(url: str, count: int, *, offset: int = 0) -> tuple[list[float], list[float]]:
    """Send events one by one, each for one execution, and in turn with them others that nobody waits for.

    Return the milliseconds of each call.
    """
    took: list[float] = []
    nobody: list[float] = []
    async with aiohttp.ClientSession(url) as session:
        for number in range(offset, offset + _EVENTS):
            order = number * (count // (2 * _EVENTS)) + 1
            for data, times in (({"order": order, "amount": 20}, took), ({"order": -order}, nobody)):
                event = {"type": "paid", "source": "/bank", "id": f"{data['order']}", "data": data}
                begun = time.perf_counter()
                done = await _call(session, "POST", "/v1/events", event)
                times.append(1000 * (time.perf_counter() - begun))
                assert len(done["answered"]) == (times is took), done
    return took, nobody


async def _timers(url: str) -> list[float]:
    """Let timers of different lengths run; return by how many milliseconds each was late."""
    async with aiohttp.ClientSession(url) as session:
        await _call(session, "POST", "/v1/workflows", _TIMER)
        inputs = [{"order": order} for order in range(_TIMERS)]
        batch = await _call(session, "POST", "/v1/batches", {"workflow": "timer", "inputs": inputs})
        while batch["counts"].get("COMPLETED", 0) < _TIMERS:
            await asyncio.sleep(0.2)
            batch = await _call(session, "GET", f"/v1/batches/{batch['id']}")
        listed = await _call(session, "GET", f"/v1/executions?batch={batch['id']}&limit={_TIMERS}")
        late = []
        for one in listed["items"]:
            node = await _call(session, "GET", f"/v1/executions/{one['id']}/nodes/a")
            late.append(_late_ms(node["output"]["at"], node["finished_at"]))
    return late


async def _schedule(url: str) -> list[float]:
    """Let a schedule start an execution each second; return by how many milliseconds each start was late."""
    document = {"name": "tick", "nodes": [{"id": "a", "handler": "echo"}]}
    trigger = {"workflow": "tick", "input": {"due": "{{ trigger.due_at }}"}, "schedule": {"every_seconds": 1}}
    async with aiohttp.ClientSession(url) as session:
        await _call(session, "POST", "/v1/workflows", document)
        await _call(session, "PUT", "/v1/triggers/tick", trigger)
        await asyncio.sleep(12)
        await _call(session, "POST", "/v1/triggers/tick/disable")
        listed = await _call(session, "GET", "/v1/executions?trigger=tick&limit=50")
        late = []
        for one in listed["items"]:
            shown = await _call(session, "GET", f"/v1/executions/{one['id']}")
            late.append(_late_ms(shown["input"]["due"], shown["created_at"]))
    assert len(late) >= 10
    return late


async def _store_triggers(url: str) -> None:
    """Store schedules that fire once a year."""
    async with aiohttp.ClientSession(url) as session:
        for number in range(_TRIGGERS):
            cron = f"{number % 60} {number % 24} 1 1 *"
            trigger = {"workflow": "tick", "schedule": {"cron": cron, "timezone": "Europe/Berlin"}}
            await _call(session, "PUT", f"/v1/triggers/yearly-{number}", trigger)


async def _call(session: aiohttp.ClientSession, method: str, path: str, body: Any = None) -> Any:
    async with session.request(method, path, json=body) as answer:
        assert answer.status < 300, await answer.text()
        return await answer.json()


def _late_ms(due: str, came: str) -> float:
    return (parse_rfc3339(came) - parse_rfc3339(due)) * 1000 / MICROSECONDS


# --- The processes.


@contextmanager
def _serving(folder: Path) -> Iterator[Server]:
    """Run ``weft up`` on a data folder that stays; the process may be killed meanwhile."""
    port = server.free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
    environment |= {f"WEFT_{name}": value for name, value in _SETTINGS.items()}
    command = [sys.executable, "-m", "weft.cli.main", "up", "--port", str(port), "--data", str(folder)]
    process = subprocess.Popen(command, env=environment, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        running = server.Server(f"http://127.0.0.1:{port}", process.pid)
        run_loop(server.wait_until_ready(running.url, process))
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _wait_until_evicted(folder: Path, count: int) -> None:
    """Return once so many executions have left the hot state."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with closing(sqlite3.connect(f"file:{folder}/weft.db?mode=ro", uri=True)) as connection:
        while connection.execute("SELECT count(*) FROM progress WHERE evicted").fetchone()[0] < count:
            assert time.monotonic() < deadline, "executions that wait stay in the hot state"
            time.sleep(0.5)


def _at_rest(running: Server) -> float:
    """Return the memory in MB once the server has done what its last requests have left."""
    time.sleep(3)
    return running.memory_mb()


def _cpu_share(running: Server) -> float:
    cpu = running.cpu_seconds()
    time.sleep(_IDLE_SECONDS)
    return (running.cpu_seconds() - cpu) / _IDLE_SECONDS * 100


def _redis_bytes(running: fleet.RunningFleet) -> int:
    return int(running.redis.execute("INFO", "memory")["used_memory"])
