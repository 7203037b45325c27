"""Executions of a fleet share its workers: a small one does not stand behind all tasks of a wide one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.store.contract import Answer
from weft.store.redis.layout import CONSTANTS
from weft.testing.store.contract import free_nodes, installed, queue
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.redis.connection import Redis
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

CROWD = int(CONSTANTS["CROWD"])
WIDE = 5 * CROWD


async def queued(walk: Walk) -> Walk:
    await installed(walk)
    for node in await free_nodes(walk):
        assert await queue(walk, node) is Answer.YES
    return walk


async def taken(transport: RedisStreams, count: int, *, at_once: int = 8) -> list[str]:
    """Fetch so many tasks for one worker; return whose they are, in the order in which they came."""
    owners: list[str] = []
    while len(owners) < count:
        limit = min(at_once, count - len(owners))
        deliveries = await transport.fetch("worker", queues=None, limit=limit, wait_seconds=0)
        assert deliveries, "all of them are there"
        owners += [delivery.task.execution_id for delivery in deliveries]
        await transport.ack_tasks("worker", [delivery.id for delivery in deliveries])
    return owners


async def test_a_small_execution_stands_behind_few_tasks_of_a_wide_one(
    new_walk: Callable[..., Walk], redis: Redis
) -> None:
    wide = await queued(new_walk(*[f"n{number}" for number in range(WIDE)], execution_id="wide"))
    small = await queued(new_walk("a", "b", execution_id="small"))
    owners = await taken(RedisStreams(redis), WIDE + 2)
    assert owners.count(wide.execution_id) == WIDE
    last = max(place for place, owner in enumerate(owners) if owner == small.execution_id)
    # As many again have come by the crowded lane, and one of eight is the oldest.
    assert last <= 2 * CROWD + 32


async def test_a_small_execution_that_comes_later_is_next(
    new_walk: Callable[..., Walk], redis: Redis
) -> None:
    await queued(new_walk(*[f"n{number}" for number in range(WIDE)], execution_id="wide"))
    transport = RedisStreams(redis)
    await taken(transport, 3 * CROWD)
    small = await queued(new_walk("a", "b", execution_id="small"))
    assert (await taken(transport, 8)).count(small.execution_id) == 2


async def test_both_kinds_of_tasks_come_where_one_is_taken_at_a_time(
    new_walk: Callable[..., Walk], redis: Redis
) -> None:
    """Small executions without an end do not keep a wide one out."""
    await queued(new_walk(*[f"n{number}" for number in range(2 * CROWD)], execution_id="wide"))
    transport = RedisStreams(redis)
    # What the wide one has in the lane of all.
    await taken(transport, CROWD + CROWD // 2)
    for number in range(2):
        await queued(new_walk(*[f"n{i}" for i in range(CROWD)], execution_id=f"small {number}"))
    owners = await taken(transport, CROWD, at_once=1)
    assert owners.count("wide") >= CROWD // 8 - 1
    assert owners.count("wide") <= CROWD // 2


async def test_the_sweep_finds_a_task_that_waits_in_a_crowded_lane(
    new_walk: Callable[..., Walk], new_store: Callable[..., RedisStore], redis: Redis
) -> None:
    store = new_store(redis, queued_seconds=0.01)
    walk = await queued(new_walk(*[f"n{number}" for number in range(CROWD + 2)], store=store))
    walk.clock.advance(0.02)
    due = await store.due(idle_seconds=1e9)
    assert not due.woken
    await redis.call("DEL", "weft:{p0}:tasks:echo|echo|1|crowded")
    walk.clock.advance(0.02)
    assert (await store.due(idle_seconds=1e9)).woken
