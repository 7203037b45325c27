"""Times of attempts on a worker whose clock is wrong: by the server's clock, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from weft.clock import RealClock, ServerClock
from weft.core.state import ExecutionState
from weft.core.time import MICROSECONDS, micros
from weft.definition.plan import compile_plan
from weft.handlers.registry import Registry
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.limits.memory import MemoryLimits
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.submit import submit
from weft.ports import Ports
from weft.redis.connection import Redis
from weft.store.redis import RedisStore
from weft.transport.redis.streams import RedisStreams
from weft.worker.inprocess import InProcess
from weft.worker.run import Runner
from weft.worker.service import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from weft.core.rows import NodeRow

TOOK_SECONDS = 0.2
OFFSETS = [0.5, -0.5, 3600.0, -3600.0]
PATIENCE_SECONDS = 30.0
# On a busy machine.
ROUND_TRIP = micros(0.05)


class WrongClock(RealClock):
    """The clock of a machine that is off by so many seconds."""

    def __init__(self, offset_seconds: float) -> None:
        self._offset = micros(offset_seconds)

    def now(self) -> int:
        return super().now() + self._offset


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url)
    yield redis
    await redis.close()


async def server_now(redis: Redis) -> int:
    seconds, micro = await redis.call("TIME")
    return int(seconds) * MICROSECONDS + int(micro)


async def follow(clock: ServerClock, redis: Redis, *, late_seconds: float = 0.0) -> None:
    """Ask the server for its time; ``late_seconds``: so long the question is on its way."""
    asked_at = clock.monotonic()
    if late_seconds:
        await asyncio.sleep(late_seconds)
    clock.follow(await server_now(redis), asked_at=asked_at)


async def ran(redis: Redis, clock: ServerClock, handler: Callable[[], Awaitable[None]]) -> NodeRow:
    """Run one node on a worker with this clock; return its row."""
    ids = count(1)
    real = RealClock()
    journal = MemoryJournal(now=real.now, new_id=lambda: f"id-{next(ids)}")
    ports = Ports(
        store=RedisStore(redis, plans=journal.plan, new_id=lambda: f"id-{next(ids)}"),
        journal=journal,
        transport=RedisStreams(redis),
        limits=MemoryLimits({}, now=real.now),
        clock=real,
        draw=random.random,
        new_id=lambda: f"id-{next(ids)}",
    )
    ended = asyncio.Event()
    ports.announce = lambda recorded_events: (
        ended.set() if any(one.execution and one.execution.is_terminal for one in recorded_events) else None
    )
    registry = Registry()
    registry.add_function("here:function", handler)
    caller = InProcess(registry, clock=real, grace_seconds=1, max_payload_bytes=10_000)
    orchestrator = Orchestrator(ports, name="orchestrator")
    theirs = dataclasses.replace(ports, clock=clock)
    worker = Worker(theirs, Runner(theirs, registry, caller, worker="worker"), name="worker", concurrency=1)
    plan = compile_plan(
        {"nodes": [{"id": "a", "handler": "python", "config": {"function": "here:function"}}]}
    )
    await orchestrator.start()
    await worker.start()
    try:
        await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await ended.wait()
    finally:
        await worker.stop()
        await orchestrator.stop()
        await caller.close()
    execution = await journal.execution("x")
    assert execution is not None
    assert execution.state is ExecutionState.COMPLETED
    return (await journal.nodes("x"))["a"]


def check(row: NodeRow, began_at: int, ended_at: int) -> None:
    """Hold the times of an attempt against the server's when its handler began and ended."""
    assert row.started_at is not None
    assert row.finished_at is not None
    assert row.started_at <= began_at
    assert ended_at - ROUND_TRIP <= row.finished_at <= ended_at + ROUND_TRIP
    assert row.finished_at - row.started_at >= micros(TOOK_SECONDS)


@pytest.mark.parametrize("offset", OFFSETS)
async def test_an_attempt_has_the_times_of_the_server(redis: Redis, offset: float) -> None:
    clock = ServerClock(WrongClock(offset))
    # Somebody asks the time before the server has said it: a probe of the process's health, for one.
    clock.now()
    await follow(clock, redis)
    times = []

    async def handler() -> None:
        times.append(await server_now(redis))
        await asyncio.sleep(TOOK_SECONDS)
        times.append(await server_now(redis))

    check(await ran(redis, clock, handler), *times)


@pytest.mark.parametrize("offset", OFFSETS)
async def test_a_correction_of_the_clock_is_no_part_of_a_duration(redis: Redis, offset: float) -> None:
    clock = ServerClock(WrongClock(offset))
    # The first question is half a second on its way, so the clock is a quarter of a second ahead.
    await follow(clock, redis, late_seconds=0.5)
    times = []

    async def handler() -> None:
        times.append(await server_now(redis))
        await follow(clock, redis)
        await asyncio.sleep(TOOK_SECONDS)
        times.append(await server_now(redis))

    check(await ran(redis, clock, handler), *times)


@pytest.mark.parametrize("offset", OFFSETS)
async def test_a_clock_that_is_behind_cuts_nothing_off_a_duration(redis: Redis, offset: float) -> None:
    clock = ServerClock(WrongClock(offset))
    # The first answer is half a second on its way, so the clock is a quarter of a second behind.
    asked_at, answer = clock.monotonic(), await server_now(redis)
    await asyncio.sleep(0.5)
    clock.follow(answer, asked_at=asked_at)
    times = []

    async def handler() -> None:
        times.append(await server_now(redis))
        await asyncio.sleep(TOOK_SECONDS)
        times.append(await server_now(redis))

    check(await ran(redis, clock, handler), *times)
