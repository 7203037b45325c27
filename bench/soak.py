"""A million node executions through one small fleet: what it holds at rest stays what it was.

They come in waves of batches. Behind each wave, when nothing is left to do, it is noted what Redis,
PostgreSQL and the processes hold. History is kept for some seconds only, so that what is removed has to keep
pace with what comes. The waves of the first minute and a half fill what there is to be filled: caches, the
tombstones that ended executions leave for a minute, the free space of tables, which are vacuumed once a
minute. Of the others, the first quarter is compared with the last.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

import aiohttp

from bench import graphs
from bench.figure import Figure, Target, at_most
from bench.fleet import running
from bench.gauge import Gauge, Sample
from bench.run import run_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.fleet import RunningFleet

NODES = 1_000_000
_WAVES = 20
_WARM_UP_SECONDS = 90.0
_BATCH = 1_000
# So many batches at a time: while one is accepted, another runs.
_SIDE_BY_SIDE = 2
# Longer than a batch takes, or it would be removed before its end is seen.
_RETENTION_SECONDS = 20
_LOOK_SECONDS = 0.5
_POLL_SECONDS = 0.1
_PATIENCE_SECONDS = 120.0
# How much more may be held at the end than at the beginning; memory is given back in no particular order.
_TOLERANCE = 1.1
# How much is there when a wave ends depends on how long that wave took, and on when was last looked.
_LOOSE_TOLERANCE = 1.5
# Tables that hold what runs and ran; the others hold definitions.
_HISTORY = ("executions", "progress", "nodes", "recorded_events", "purging", "batches")
_HEAD = (
    "  wave  seconds  nodes/s  Redis MB    keys  longest  left  connections  kept rows  tables MB  process MB"
)


@dataclass(slots=True)
class _Wave:
    """One wave: the most that was seen during it, and what was there behind it."""

    number: int
    seconds: float
    nodes: int
    longest: int
    rest: Sample

    @property
    def is_warm_up(self) -> bool:
        return self.rest.at <= _WARM_UP_SECONDS

    def __str__(self) -> str:
        rest = self.rest
        memory = " ".join(f"{size / 1e6:.0f}" for size in rest.memory.values())
        connections = f"{rest.redis_connections}, {rest.postgres_connections}"
        rate = self.nodes / self.seconds
        return (
            f"  {self.number:>4} {rest.at:>8.0f} {rate:>8,.0f} {rest.redis_bytes / 1e6:>9.1f}"
            f" {rest.keys:>7,} {self.longest:>8,} {rest.entries + rest.all_pending:>5} {connections:>12}"
            f" {rest.all_rows:>10,} {rest.database_bytes / 1e6:>10.1f}  {memory}"
        )


@dataclass(slots=True)
class _Soak:
    fleet: RunningFleet
    nodes: int
    waves: list[_Wave] = field(default_factory=list)
    # Behind the last wave: how long it took until all history was gone, and what was left then.
    emptied_seconds: float = 0.0
    last: Sample | None = None

    async def run(self) -> None:
        document = graphs.diamond()
        executions = max(self.nodes // len(document["nodes"]) // _WAVES, 1)
        print(f"{_HEAD}: {', '.join(self.fleet.roles)}", file=sys.stderr)
        async with aiohttp.ClientSession(self.fleet.url) as session, Gauge(self.fleet) as gauge:
            async with session.post("/v1/workflows", json=document) as answer:
                assert answer.status in (200, 201), await answer.text()
            for number in range(1, _WAVES + 1):
                begun = time.perf_counter()
                longest = await _watched(gauge, _run(session, executions))
                seconds = time.perf_counter() - begun
                rest = await _rest(gauge)
                nodes = executions * len(document["nodes"])
                self.waves.append(_Wave(number, seconds, nodes, longest, rest))
                print(self.waves[-1], file=sys.stderr, flush=True)
            self.emptied_seconds, self.last = await _emptied(gauge)

    def grown(self, what: Callable[[Sample], float]) -> float:
        """Return how many times as much is held at the end as at the beginning."""
        waves = [wave for wave in self.waves if not wave.is_warm_up] or self.waves
        quarter = max(1, len(waves) // 4)
        first = median(what(wave.rest) for wave in waves[:quarter])
        return median(what(wave.rest) for wave in waves[-quarter:]) / max(first, 1)


async def _run(session: aiohttp.ClientSession, executions: int) -> None:
    """Run so many executions, in batches side by side."""
    left = [min(_BATCH, executions - start) for start in range(0, executions, _BATCH)]

    async def lane() -> None:
        while left:
            await _run_batch(session, left.pop())

    await asyncio.gather(*(lane() for _ in range(_SIDE_BY_SIDE)))


async def _run_batch(session: aiohttp.ClientSession, size: int) -> None:
    body = {"workflow": "bench", "inputs": [{"n": n} for n in range(size)]}
    async with session.post("/v1/batches", json=body) as answer:
        assert answer.status == 202, await answer.text()
        batch: dict[str, Any] = await answer.json()
    while batch["state"] != "COMPLETED":
        await asyncio.sleep(_POLL_SECONDS)
        async with session.get(f"/v1/batches/{batch['id']}") as answer:
            batch = await answer.json()
    assert batch["counts"]["COMPLETED"] == size, batch["counts"]


async def _watched(gauge: Gauge, work: Any) -> int:
    """Do some work; give the length of the longest stream that was seen meanwhile."""
    longest = 0
    working = asyncio.ensure_future(work)
    while not working.done():
        sample = await gauge.look(whole=False)
        longest = max(longest, *sample.lengths.values())
        await asyncio.wait([working], timeout=_LOOK_SECONDS)
    await working
    return longest


async def _rest(gauge: Gauge) -> Sample:
    """Return what is held once nothing is on its way; in the end what is on its way for good, if it is."""
    until = time.perf_counter() + _PATIENCE_SECONDS
    while True:
        sample = await gauge.look(whole=False)
        if not (sample.entries or sample.all_pending) or time.perf_counter() > until:
            return await gauge.look(whole=True)
        await asyncio.sleep(_POLL_SECONDS)


async def _emptied(gauge: Gauge) -> tuple[float, Sample]:
    """Wait until all history is past its time and gone; give how long that took, and what is left."""
    begun = time.perf_counter()
    while True:
        sample = await gauge.look(whole=True)
        seconds = time.perf_counter() - begun
        if not any(sample.rows[table] for table in _HISTORY) or seconds > _PATIENCE_SECONDS:
            return seconds, sample
        await asyncio.sleep(1)


def soak(nodes: int = NODES) -> Iterator[Figure]:
    """Run so many nodes, and hold what the last waves left against what the first ones left."""
    with running(RETENTION=str(_RETENTION_SECONDS)) as one:
        done = _Soak(one, nodes)
        run_loop(done.run())
    yield from _figures(done)


def _figures(done: _Soak) -> Iterator[Figure]:
    waves, last = done.waves, done.last
    assert last is not None
    nodes, seconds = sum(wave.nodes for wave in waves), sum(wave.seconds for wave in waves)

    def figure(what: str, value: float, unit: str, target: Target | None = None) -> Figure:
        return Figure(workload="soak", what=what, value=value, unit=unit, target=target)

    def grown(what: str, held: Callable[[Sample], float], tolerance: float = _TOLERANCE) -> Figure:
        return figure(f"{what} at rest, last : first", done.grown(held), "×", at_most(tolerance))

    yield figure("node executions", nodes, "nodes")
    yield figure("on average, while removing history", nodes / seconds, "nodes/s")
    yield grown("Redis memory", lambda sample: sample.redis_bytes)
    yield figure("Redis memory, at the end", waves[-1].rest.redis_bytes / 1e6, "MB")
    yield grown("Redis keys", lambda sample: sample.keys)
    yield figure(
        "Redis keys but for tombstones, last - first",
        waves[-1].rest.other_keys - waves[0].rest.other_keys,
        "keys",
        at_most(0),
    )
    yield figure("longest stream under load", max(wave.longest for wave in waves), "entries")
    for what, count in (
        ("stream entries at rest, most", max(wave.rest.entries for wave in waves)),
        ("pending entries at rest, most", max(wave.rest.all_pending for wave in waves)),
    ):
        yield figure(what, count, "entries", at_most(0))
    for server, connections in (
        ("Redis", [wave.rest.redis_connections for wave in waves]),
        ("PostgreSQL", [wave.rest.postgres_connections for wave in waves]),
    ):
        more = connections[-1] - connections[0]
        # A process opens the few that it may have when it needs them.
        yield figure(f"connections to {server}, last - first", more, "", at_most(len(done.fleet.roles)))
    for role in done.fleet.roles:
        yield grown(f"memory of {role}", lambda sample, role=role: sample.memory[role])  # type: ignore[misc]
        yield figure(f"memory of {role}, at the end", waves[-1].rest.memory[role] / 1e6, "MB")
    yield grown("rows in PostgreSQL", lambda sample: sample.all_rows, _LOOSE_TOLERANCE)
    yield grown("bytes of its tables", lambda sample: sample.database_bytes, _LOOSE_TOLERANCE)
    yield figure("bytes of its tables, at the end", waves[-1].rest.database_bytes / 1e6, "MB")
    yield figure("history gone behind the last wave, after", done.emptied_seconds, "s")
    left = sum(last.rows[table] for table in _HISTORY)
    yield figure("rows of history left then", left, "rows", at_most(0))
