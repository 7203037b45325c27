"""Hot state belongs to one incarnation of the database: another one starts with nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from tests.redis.test_handshake import ALL, fill, present

from weft.errors import StoreError
from weft.incarnation import Incarnation
from weft.redis.connection import Redis
from weft.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.redis import RedisServer

FIRST = Incarnation(id="a", line="7/1", started="10", position=100)
OTHER = Incarnation(id="b", line="7/2", started="20", position=90)
# Results are judged one by one; the hash of an execution names the token it was installed under.
KEPT = {"results", "tasks", "execution"}


@pytest.fixture
async def redis(private_redis: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(private_redis.url, partitions=2)
    yield redis
    await redis.close()


async def filled(redis: Redis) -> None:
    for keys in redis.partitions:
        await fill(redis, keys)
        await redis.run([("SADD", keys.lanes, "default|echo|5")], partition=keys.partition)


async def test_state_stays_for_the_incarnation_that_it_was_written_under(redis: Redis) -> None:
    await redis.enter(FIRST)
    await filled(redis)
    await redis.enter(FIRST)
    await redis.enter(replace(FIRST, started="11", position=120))
    for keys in redis.partitions:
        assert await present(redis, keys) == ALL
    assert (redis.wiped, redis.began_at) == (0, 0)
    assert await redis.incarnation() == replace(FIRST, started="11", position=120)


async def test_another_incarnation_drops_the_state_and_the_tasks_of_every_partition(redis: Redis) -> None:
    await redis.enter(FIRST)
    await filled(redis)
    seconds, _ = await redis.call("TIME")
    await redis.enter(OTHER)
    for keys in redis.partitions:
        assert await present(redis, keys) == KEPT
        assert await redis.call("XLEN", keys.lane("default", "echo", 5)) == 0
    assert redis.wiped == 2
    assert redis.began_at >= int(seconds) * 10**6
    assert await redis.incarnation() == OTHER
    # A peer that finds the same out later drops nothing, and hears when it began.
    await filled(redis)
    peer = Redis(redis_url(redis), partitions=2)
    await peer.enter(OTHER)
    assert (peer.wiped, peer.began_at) == (0, redis.began_at)
    await peer.close()


async def test_a_peer_that_has_not_looked_at_the_database_again_takes_nothing_back(redis: Redis) -> None:
    peer = Redis(redis_url(redis), partitions=2)
    await peer.enter(FIRST)
    await redis.enter(OTHER)
    await filled(redis)
    await peer.note(replace(FIRST, position=130))
    await peer.close()
    await peer.open()
    assert peer.wiped == 0
    assert await redis.incarnation() == OTHER
    await peer.close()


async def test_a_server_that_is_away_is_told_before_it_is_used_again(
    redis: Redis, private_redis: RedisServer
) -> None:
    peer = Redis(private_redis.url, partitions=2)
    await peer.enter(FIRST)
    await filled(peer)
    await redis.open()
    private_redis.controlled.pause()
    impatient = Redis(private_redis.url, partitions=2, answer_seconds=0.2)
    await impatient.enter(OTHER)
    private_redis.controlled.resume()
    with pytest.raises(StoreError):  # it was away a moment ago
        await impatient.call("PING")
    await peer.close()
    while not impatient.wiped:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("weft.redis.connection.PAUSE_SECONDS", 0.0)
            await impatient.call("PING")
    assert await redis.incarnation() == OTHER
    await impatient.close()


async def test_a_new_life_of_the_store_knows_its_incarnation(
    redis: Redis, private_redis: RedisServer
) -> None:
    """Else the database could lose commits unnoticed after a flush."""

    async def nothing(_: str) -> None:
        return None

    await redis.enter(FIRST)
    private_redis.execute("FLUSHALL")
    store = RedisStore(redis, plans=nothing, new_id=lambda: "t")
    await store.incarnation_id()
    assert await redis.incarnation() == FIRST


async def test_of_positions_the_latest_is_kept(redis: Redis) -> None:
    await redis.enter(FIRST)
    await redis.note(replace(FIRST, position=150))
    await redis.note(replace(FIRST, position=140))
    assert await redis.incarnation() == replace(FIRST, position=150)


def redis_url(redis: Redis) -> str:
    address = redis._target.address
    return f"redis://{address.host}:{address.port}/0"
