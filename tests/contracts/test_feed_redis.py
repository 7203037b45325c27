"""The feed on Redis' channels, held against its contract: in one process, and from one to another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.servers.redis_cluster import RedisCluster

from weft.errors import StoreError
from weft.feed.redis import RedisFeed
from weft.redis.connection import Redis
from weft.redis.slots import slot_of
from weft.testing.feed_contract import PATIENCE_SECONDS, FeedContract, event, heard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.servers.redis import RedisServer

    from weft.feed.contract import Feed


class TestRedisFeed(FeedContract):
    @pytest.fixture
    async def feed(self, redis_url: str) -> AsyncIterator[Feed]:
        redis = Redis(redis_url)
        feed = RedisFeed(redis, held_events=self.HELD_EVENTS)
        await feed.open()
        yield feed
        await feed.close()
        await redis.close()


@pytest.fixture
async def feeds(redis_url: str) -> AsyncIterator[tuple[RedisFeed, RedisFeed]]:
    """Two processes' feeds: one that tells, one that hears."""
    connections = Redis(redis_url), Redis(redis_url)
    teller, hearer = (RedisFeed(redis) for redis in connections)
    await teller.open()
    await hearer.open()
    yield teller, hearer
    for feed, redis in zip((teller, hearer), connections, strict=True):
        await feed.close()
        await redis.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it changes in the middle of a feed, and nobody is told
            await asyncio.sleep(0.002)


async def test_what_one_process_tells_another_hears(feeds: tuple[RedisFeed, RedisFeed]) -> None:
    teller, hearer = feeds
    async with hearer.subscribe(execution_id="x1") as subscription:
        await until(lambda: teller.has_subscriber("x1"))
        teller.publish([event(1), event(2, execution="x2"), event(3)], namespace="a")
        assert [one.seq for one in await heard(subscription, 2)] == [1, 3]


async def test_an_end_is_heard_by_who_waits_for_it_elsewhere(feeds: tuple[RedisFeed, RedisFeed]) -> None:
    teller, hearer = feeds
    ends = {"execution.completed", "execution.failed"}
    async with hearer.subscribe(execution_id="x1", types=ends) as subscription:
        await until(lambda: teller.has_listeners)
        assert not teller.has_subscriber("x1")
        teller.publish([event(1), event(2, type_="execution.completed")], namespace="a")
        assert [one.seq for one in await heard(subscription, 1)] == [2]


async def test_where_all_have_left_nothing_is_told_any_more(feeds: tuple[RedisFeed, RedisFeed]) -> None:
    teller, hearer = feeds
    async with hearer.subscribe(execution_id="x1"), hearer.subscribe(namespace="a"):
        await until(lambda: teller.has_listeners)
    await until(lambda: not teller.has_listeners)


async def test_one_who_leaves_does_not_take_another_process_along(
    redis_url: str, feeds: tuple[RedisFeed, RedisFeed]
) -> None:
    teller, one = feeds
    redis = Redis(redis_url)
    two = RedisFeed(redis)
    await two.open()
    async with one.subscribe(execution_id="x1") as stays:
        async with two.subscribe(execution_id="x2"), two.subscribe(execution_id="x1"):
            await until(lambda: teller.has_subscriber("x1") and teller.has_subscriber("x2"))
        # By then the teller has asked about both.
        await until(lambda: not teller.has_subscriber("x2"))
        assert teller.has_subscriber("x1")
        teller.publish([event(1)], namespace="a")
        assert [event.seq for event in await heard(stays, 1)] == [1]
    await two.close()
    await redis.close()


async def test_one_who_comes_later_knows_who_listens(
    redis_url: str, feeds: tuple[RedisFeed, RedisFeed]
) -> None:
    _, hearer = feeds
    async with hearer.subscribe(execution_id="x1") as subscription:
        redis = Redis(redis_url)
        late = RedisFeed(redis)
        await late.open()
        assert late.has_subscriber("x1")
        late.publish([event(7)], namespace="a")
        assert [one.seq for one in await heard(subscription, 1)] == [7]
        await late.close()
        await redis.close()


async def test_a_listener_that_was_killed_is_forgotten(
    redis_url: str, feeds: tuple[RedisFeed, RedisFeed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.feed.redis._ASK_ALL_SECONDS", 0.0)
    monkeypatch.setattr("weft.feed.redis._ASK_SECONDS", 0.01)
    redis, teller_redis = Redis(redis_url), Redis(redis_url)
    feed, teller = RedisFeed(redis), RedisFeed(teller_redis)
    await feed.open()
    await teller.open()
    async with feed.subscribe(execution_id="x1"):
        await until(lambda: teller.has_subscriber("x1"))
        # No word is said.
        await feed.close()
        await until(lambda: not teller.has_listeners)
    await redis.close()
    await teller.close()
    await teller_redis.close()


async def test_what_does_not_fit_on_its_way_is_missed_and_counted(redis_url: str) -> None:
    redis = Redis(redis_url)
    feed = RedisFeed(redis, buffered_events=4)
    await feed.open()
    async with feed.subscribe(execution_id="x1") as subscription:
        feed.publish([event(seq) for seq in range(1, 11)], namespace="a")
        got = list(await subscription.receive(wait_seconds=PATIENCE_SECONDS))
        assert [one.seq for one in got] == [7, 8, 9, 10]
        assert subscription.missed == 6
    await feed.close()
    await redis.close()


async def test_garbage_on_a_channel_is_passed_over(
    redis_url: str, redis_server: RedisServer, feeds: tuple[RedisFeed, RedisFeed]
) -> None:
    teller, hearer = feeds
    async with hearer.subscribe(execution_id="x1") as subscription:
        await until(lambda: teller.has_subscriber("x1"))
        for garbage in ("", "\x80", "+", "no news", "+me:z:*:x"):
            redis_server.execute("PUBLISH", "weft:feed:x:*:x1", garbage, url=redis_url)
            redis_server.execute("PUBLISH", "weft:feed:listeners", garbage, url=redis_url)
        teller.publish([event(1)], namespace="a")
        assert [one.seq for one in await heard(subscription, 1)] == [1]


async def test_a_feed_outlives_its_connection(
    private_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.redis.subscription._PAUSE_SECONDS", 0.02)
    redis = Redis(private_redis.url)
    feed = RedisFeed(redis)
    await feed.open()
    async with feed.subscribe(execution_id="x1") as subscription:
        private_redis.kill()
        feed.publish([event(1)], namespace="a")
        private_redis.start()
        # It is told that something may be missing, and hears on.
        assert await subscription.receive(wait_seconds=PATIENCE_SECONDS) == []
        assert subscription.missed == 1
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (got := await subscription.receive(wait_seconds=0.05)):
                feed.publish([event(2)], namespace="a")
        assert {one.seq for one in got} == {2}
        async with feed.subscribe(execution_id="x2") as later:
            feed.publish([event(3, execution="x2")], namespace="a")
            assert [one.seq for one in await heard(later, 1)] == [3]
    await feed.close()
    await redis.close()


async def test_who_begins_to_listen_while_redis_is_away_does_not_wait(private_redis: RedisServer) -> None:
    redis = Redis(private_redis.url)
    feed = RedisFeed(redis)
    await feed.open()
    private_redis.kill()
    async with asyncio.timeout(PATIENCE_SECONDS), feed.subscribe(execution_id="x1") as subscription:
        assert await subscription.receive(wait_seconds=0) == []
    await feed.close()
    await redis.close()


async def test_a_feed_is_heard_across_a_cluster() -> None:
    with RedisCluster(servers=2) as cluster:
        connections = [Redis(server.url, partitions=4) for server in cluster.servers]
        teller, hearer = (RedisFeed(redis) for redis in connections)
        await teller.open()
        await hearer.open()
        async with hearer.subscribe(execution_id="x1") as subscription:
            await until(lambda: teller.has_subscriber("x1"))
            teller.publish([event(1)], namespace="a")
            assert [one.seq for one in await heard(subscription, 1)] == [1]
        await until(lambda: not teller.has_listeners)
        for feed, redis in zip((teller, hearer), connections, strict=True):
            await feed.close()
            await redis.close()


async def test_all_who_listen_follow_the_first_partition_to_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server counts its own listeners alone: one who stayed behind would be taken to be gone."""
    monkeypatch.setattr("weft.redis.subscription._PAUSE_SECONDS", 0.02)
    monkeypatch.setattr("weft.feed.redis._ASK_ALL_SECONDS", 0.0)
    monkeypatch.setattr("weft.feed.redis._ASK_SECONDS", 0.02)
    with RedisCluster(servers=2) as cluster:
        connections = [Redis(cluster.url, partitions=4) for _ in range(2)]
        teller, hearer = (RedisFeed(redis) for redis in connections)
        await teller.open()
        await hearer.open()
        async with hearer.subscribe(execution_id="x1") as subscription:
            await until(lambda: teller.has_subscriber("x1"))
            owner = cluster.owner_of(slot_of("p0"))
            to = next(server for server in cluster.servers if server is not owner)
            cluster.move(slot_of("p0"), to=to)
            cluster.wait_until_all_agree()
            for redis in connections:
                with pytest.raises(StoreError, match="MOVED"):
                    await redis.call("GET", redis.partitions[0].incarnation_id)
                assert await redis.call("GET", redis.partitions[0].incarnation_id) is None
            # It hears that something may be missing; then it is where the others look for it.
            await subscription.receive(wait_seconds=PATIENCE_SECONDS)
            channel = "weft:feed:x:*:x1"
            await until(lambda: to.execute("PUBSUB", "NUMSUB", channel) == [channel.encode(), 1])
            await until(lambda: teller.has_subscriber("x1"))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not (got := await subscription.receive(wait_seconds=0.05)):
                    teller.publish([event(2)], namespace="a")
            assert {one.seq for one in got} == {2}
        for feed, redis in zip((teller, hearer), connections, strict=True):
            await feed.close()
            await redis.close()
