"""Tasks that wait for a worker longer than REAPER_IDLE_TIMEOUT: sent again only where their entry is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.store.contract import Answer
from weft.testing.store.contract import free_nodes, installed, phases, queue
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.clock import VirtualClock
    from weft.redis.connection import Redis
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

IDLE_SECONDS = 0.01
LANE = "weft:{p0}:tasks:echo|echo|1"


@pytest.fixture
def store(redis: Redis, new_store: Callable[..., RedisStore]) -> RedisStore:
    return new_store(redis, queued_seconds=IDLE_SECONDS)


async def all_queued(walk: Walk) -> None:
    await installed(walk)
    for node in await free_nodes(walk):
        assert await queue(walk, node) is Answer.YES


async def swept(walk: Walk, store: RedisStore) -> int:
    """Let the time pass, sweep, and send what is free then; return how many tasks were sent."""
    walk.clock.advance(2 * IDLE_SECONDS)
    due = await store.due(idle_seconds=1e9)
    assert not due.expired
    sent = 0
    if due.woken:
        for node in await free_nodes(walk):
            assert node.attempt == 1
            sent += await queue(walk, node) is Answer.YES
    return sent


async def entries(redis: Redis) -> list[bytes]:
    return [entry for entry, _ in await redis.call("XRANGE", LANE, "-", "+")]


async def test_a_task_that_waits_is_in_its_stream_once(
    new_walk: Callable[..., Walk], store: RedisStore, redis: Redis
) -> None:
    walk = new_walk("a", "b", "c")
    await all_queued(walk)
    before = await entries(redis)
    assert len(before) == 3
    for _ in range(12):
        assert await swept(walk, store) == 0
    assert await entries(redis) == before


async def test_a_task_whose_entry_is_gone_is_sent_again_once(
    new_walk: Callable[..., Walk], store: RedisStore, redis: Redis
) -> None:
    walk = new_walk("a", "b", "c")
    await all_queued(walk)
    gone, *kept = await entries(redis)
    await redis.call("XDEL", LANE, gone)
    assert [await swept(walk, store) for _ in range(3)] == [1, 0, 0]
    assert (await entries(redis))[:2] == kept
    assert len(await entries(redis)) == 3


async def test_a_task_in_the_hand_of_a_worker_that_died_is_left_to_the_claim(
    new_walk: Callable[..., Walk], store: RedisStore, redis: Redis
) -> None:
    walk = new_walk("a")
    await all_queued(walk)
    (delivery,) = await RedisStreams(redis).fetch("dead", queues=None, limit=1, wait_seconds=1)
    assert await swept(walk, store) == 0
    await RedisStreams(redis).ack_tasks("dead", [delivery.id])
    await redis.call("PING")
    assert await swept(walk, store) == 1


@pytest.mark.parametrize("loss", [("DEL", LANE), ("SET", LANE, "of another type"), ("FLUSHDB",)])
async def test_a_stream_that_is_gone_has_no_entries(
    new_walk: Callable[..., Walk], store: RedisStore, redis: Redis, loss: tuple[Any, ...]
) -> None:
    walk = new_walk("a")
    await all_queued(walk)
    await redis.call(*loss)
    walk.clock.advance(2 * IDLE_SECONDS)
    due = await store.due(idle_seconds=1e9)
    assert bool(due.woken) is (loss[0] != "FLUSHDB")


async def test_what_another_transport_has_sent_cannot_be_looked_for(
    new_walk: Callable[..., Walk], new_store: Callable[..., RedisStore], redis: Redis, clock: VirtualClock
) -> None:
    """Celery's broker is not asked: the task is sent again, and refused at its start if it came twice."""
    store = new_store(redis, queued_seconds=IDLE_SECONDS, joint=False)
    walk = new_walk("a", store=store)
    await all_queued(walk)
    assert await phases(walk) == {"a": "queued"}
    assert await swept(walk, store) == 1
    assert await entries(redis) == []
