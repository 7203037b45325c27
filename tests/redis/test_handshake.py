"""A server that was restarted or replaced may have lost what it answered for: its state counts as lost."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

import pytest

from weft.errors import StoreError
from weft.redis.connection import Redis

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.redis import RedisServer

    from weft.redis.keys import Keys


@pytest.fixture
async def redis(private_redis: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(private_redis.url, partitions=2)
    yield redis
    await redis.close()


async def fill(redis: Redis, keys: Keys) -> None:
    await redis.run(
        [
            ("SET", keys.incarnation_id, "t"),
            *[("ZADD", name, 1, "x") for name in (keys.active, keys.leases, keys.timers, keys.free)],
            ("SET", keys.unsettled, 7),
            ("XADD", keys.results, "*", "m", "result"),
            ("XADD", keys.lane("default", "echo", 5), "*", "m", "task"),
            ("HSET", keys.execution("x1"), "token", "t"),
        ],
        partition=keys.partition,
    )


async def present(redis: Redis, keys: Keys) -> set[str]:
    names = {
        "token": keys.incarnation_id,
        "active": keys.active,
        "leases": keys.leases,
        "timers": keys.timers,
        "free": keys.free,
        "unsettled": keys.unsettled,
        "results": keys.results,
        "tasks": keys.lane("default", "echo", 5),
        "execution": keys.execution("x1"),
    }
    found = await redis.run([("EXISTS", name) for name in names.values()])
    return {name for name, is_there in zip(names, found, strict=True) if is_there}


ALL = {"token", "active", "leases", "timers", "free", "unsettled", "results", "tasks", "execution"}
# The hash of an execution names the token it was installed under, so it reads as unknown.
KEPT = {"results", "tasks", "execution"}


async def test_a_new_server_is_no_loss(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await redis.open()
    assert redis.wiped == 0
    assert not caplog.records


async def test_another_connection_to_the_same_server_drops_nothing(
    redis: Redis, private_redis: RedisServer
) -> None:
    for keys in redis.partitions:
        await fill(redis, keys)
    private_redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    other = Redis(private_redis.url, partitions=2)
    await other.open()
    await redis.open()
    for keys in redis.partitions:
        assert await present(redis, keys) == ALL
    assert redis.wiped == other.wiped == 0
    await other.close()


async def test_a_restart_drops_what_may_be_stale_and_keeps_the_streams(
    redis: Redis, private_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for keys in redis.partitions:
        await fill(redis, keys)
    private_redis.stop()
    private_redis.start()
    with pytest.raises(StoreError):
        await redis.open()
    caplog.set_level(logging.WARNING)
    await redis.open()
    for keys in redis.partitions:
        assert await present(redis, keys) == KEPT
    assert redis.wiped == 2, "once for each partition"
    assert [record.message for record in caplog.records] == ["store.wiped"] * 2


async def test_one_restart_is_one_loss_whoever_connects_first(
    redis: Redis, private_redis: RedisServer
) -> None:
    await fill(redis, redis.partitions[0])
    private_redis.stop()
    private_redis.start()
    others = [Redis(private_redis.url, partitions=2) for _ in range(6)]
    await asyncio.gather(*(other.open() for other in others))
    # What is installed now is not dropped by whoever comes later, also by a blocking call or another thread.
    await fill(others[0], others[0].partitions[0])
    late = Redis(private_redis.url, partitions=2)
    assert await late.block("BLPOP", "nothing", 0.01, wait_seconds=1) is None
    thread = threading.Thread(target=lambda: asyncio.run(late.call("PING")))
    thread.start()
    await asyncio.to_thread(thread.join)
    assert await present(late, late.partitions[0]) == ALL
    # One partition had something to lose; of the other, only that it was known.
    assert sum(other.wiped for other in others) == 2
    assert late.wiped == 0
    for other in (*others, late):
        await other.close()


async def test_a_server_that_comes_back_empty_has_nothing_to_drop(
    redis: Redis, private_redis: RedisServer
) -> None:
    await fill(redis, redis.partitions[0])
    await redis.call("FLUSHALL")
    private_redis.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    with pytest.raises(StoreError):
        await redis.open()
    await redis.open()
    assert await redis.call("EXISTS", redis.partitions[0].server) == 1


async def test_a_server_that_was_held_up_is_the_same_server(redis: Redis, private_redis: RedisServer) -> None:
    impatient = Redis(private_redis.url, answer_seconds=0.2)
    await impatient.open()
    await fill(redis, redis.partitions[0])
    private_redis.pause()
    with pytest.raises(StoreError, match="no answer"):
        await impatient.call("PING")
    private_redis.resume()
    await impatient.call("PING")
    assert await present(redis, redis.partitions[0]) == ALL
    assert impatient.wiped == 0
    await impatient.close()
