"""Partitions and tags on the servers of a cluster, and what a move or a failover is like."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.support.servers.redis_cluster import RedisCluster

from weft.errors import StoreError
from weft.limits.contract import Rate
from weft.limits.redis import RedisLimits
from weft.redis.connection import PAUSE_SECONDS, Redis
from weft.redis.script import make_script
from weft.redis.slots import slot_of
from weft.store.redis import RedisStore
from weft.testing.limits_contract import ticket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

PARTITIONS = 8


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(servers=3) as cluster:
        yield cluster


async def test_each_partition_lands_on_its_server_whatever_is_called_first(cluster: RedisCluster) -> None:
    for first in range(PARTITIONS):
        redis = Redis(cluster.url, partitions=PARTITIONS)
        for partition in (first, *range(PARTITIONS)):
            key = redis.partitions[partition].results
            await redis.call("SET", key, partition, partition=partition)
        await redis.close()
    found = [server.execute("KEYS", "*results") for server in cluster.servers]
    assert all(found), "there is something on each"
    assert {key.decode() for keys in found for key in keys} == {keys.results for keys in redis.partitions}


async def test_a_blocking_call_goes_to_the_server_of_its_partition(cluster: RedisCluster) -> None:
    for partition in range(PARTITIONS):
        redis = Redis(cluster.url, partitions=PARTITIONS)
        key = redis.partitions[partition].results
        waiting = asyncio.create_task(redis.block("BLPOP", key, 5, wait_seconds=5, partition=partition))
        await redis.call("RPUSH", key, "x", partition=partition)
        assert await waiting == [key.encode(), b"x"]
        await redis.close()


async def test_a_slot_that_moved_is_an_error_once_and_then_found(cluster: RedisCluster) -> None:
    redis = Redis(cluster.url, partitions=PARTITIONS)
    keys = redis.partitions[3]
    await redis.call("SET", keys.results, "kept", partition=3)
    await redis.call("SET", keys.incarnation_id, "t", partition=3)
    owner = cluster.at(redis._address(keys.partition).port)
    to = next(server for server in cluster.servers if server is not owner)
    cluster.move(slot_of(keys.tag), to=to)
    with pytest.raises(StoreError, match="MOVED"):
        await redis.call("GET", keys.results, partition=3)
    assert await redis.call("GET", keys.results, partition=3) == b"kept"
    # Another server than the one whose state it was: what cannot be trusted is gone.
    assert await redis.call("GET", keys.incarnation_id, partition=3) is None
    assert redis.wiped == 1
    for partition in range(PARTITIONS):
        assert await redis.call("EXISTS", redis.partitions[partition].server, partition=partition) == 1
    await redis.close()


async def test_a_server_that_is_known_is_greeted_for_a_partition_that_comes_to_it(
    cluster: RedisCluster,
) -> None:
    """Whoever hears of it first, and by whatever way: the others keep their connections."""
    redis, other = (Redis(cluster.url, partitions=PARTITIONS) for _ in range(2))
    for partition in range(PARTITIONS):
        await redis.call("SET", redis.partitions[partition].incarnation_id, "t", partition=partition)
    moved, to = 3, cluster.owner_of(slot_of("p2"))
    bystanders = [number for number in range(PARTITIONS) if cluster.owner_of(slot_of(f"p{number}")) is not to]
    bystanders.remove(moved)
    before = {number: await redis.call("CLIENT", "ID", partition=number) for number in bystanders}
    cluster.move(slot_of("p3"), to=to)
    cluster.wait_until_all_agree()
    # A connection that is made for something else brings the news.
    await _two_block(redis)
    assert await redis.call("GET", redis.partitions[moved].incarnation_id, partition=moved) is None
    assert await redis.call("GET", redis.partitions[2].incarnation_id, partition=2) == b"t"
    assert redis.wiped == 1
    assert before == {number: await redis.call("CLIENT", "ID", partition=number) for number in bystanders}
    # It is as it should be by now, for whoever comes later.
    await redis.call("SET", redis.partitions[moved].incarnation_id, "u", partition=moved)
    assert await other.call("GET", redis.partitions[moved].incarnation_id, partition=moved) == b"u"
    assert other.wiped == 0
    await redis.close()
    await other.close()


async def test_a_slot_on_its_way_is_away_and_nobody_else_is_disturbed(cluster: RedisCluster) -> None:
    redis = Redis(cluster.url, partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        await redis.call("SET", redis.partitions[partition].results, partition, partition=partition)
    before = [await redis.call("CLIENT", "ID", partition=number) for number in range(PARTITIONS)]
    slot = slot_of("p3")
    to = next(server for server in cluster.servers if server is not cluster.owner_of(slot))
    cluster.begin_move(slot, to=to)
    for _ in range(3):
        # What is not there may be where it goes to: the server cannot know.
        with pytest.raises(StoreError, match="ASK"):
            await redis.call("GET", redis.partitions[3].timers, partition=3)
        # The same, where it is found out in the middle of a script.
        reading = make_script("reading", b"return redis.call('GET', ARGV[1])")
        keys = redis.partitions[3]
        with pytest.raises(StoreError, match="a non local key"):
            await redis.script(reading, [keys.results], [keys.timers], partition=3)
    assert before == [await redis.call("CLIENT", "ID", partition=number) for number in range(PARTITIONS)]
    cluster.move(slot, to=to)
    with pytest.raises(StoreError, match="MOVED"):
        await redis.call("GET", redis.partitions[3].results, partition=3)
    assert await redis.call("GET", redis.partitions[3].results, partition=3) == b"3"
    await redis.close()


async def test_a_server_that_is_away_keeps_nobody_from_the_others(cluster: RedisCluster) -> None:
    """Connections to them can be made, tokens are given, what is due there is found."""
    redis = Redis(cluster.url, partitions=PARTITIONS)
    store = RedisStore(redis, plans=_nothing, new_id=lambda: "t")
    assert await store.incarnation_id() == " ".join(["t"] * PARTITIONS)
    gone = cluster.owner_of(slot_of("p2"))
    away = [number for number in range(PARTITIONS) if cluster.owner_of(slot_of(f"p{number}")) is gone]
    gone.kill()
    with pytest.raises(StoreError):
        await redis.call("PING", partition=2)
    await _two_block(redis)
    assert (await store.incarnation_id()).split(" ") == ["" if n in away else "t" for n in range(PARTITIONS)]
    assert (await store.due(idle_seconds=0)).expired == []
    for server in cluster.servers:
        if server is not gone:
            server.kill()
    with pytest.raises(StoreError):
        await store.incarnation_id()
    with pytest.raises(StoreError):
        await store.due(idle_seconds=0)
    await redis.close()


async def _two_block(redis: Redis) -> None:
    """Have two connections made that are not the shared one."""
    key = redis.partitions[0].lane("nothing", "echo", 5)
    await asyncio.gather(*(redis.block("BLPOP", key, 0.01, wait_seconds=1) for _ in range(2)))


async def _nothing(_: str) -> None:
    return None


async def test_the_slots_of_a_server_that_died_are_found_where_another_took_them_over() -> None:
    with RedisCluster(servers=3, replicas=1) as cluster:
        redis = Redis(cluster.url, partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            await redis.call("PING", partition=partition)
        first = cluster.servers[0]
        lost = [n for n in range(PARTITIONS) if redis._address(n).port == first.port]
        kept = [n for n in range(PARTITIONS) if n not in lost]
        assert lost
        first.kill()
        # The others go on, while nobody has its slots yet.
        with pytest.raises(StoreError):
            await redis.call("PING", partition=lost[0])
        for partition in kept:
            assert await redis.call("PING", partition=partition) == b"PONG"
        cluster.wait_until_taken_over(cluster.replicas[0])

        async def store() -> None:
            for partition in range(PARTITIONS):
                await redis.call("SET", redis.partitions[partition].results, 1, partition=partition)

        await _until_it_works(store)
        # Also for one who knows the dead one alone, by name: there he has to wait.
        stranger = Redis(cluster.url)
        with pytest.raises(StoreError):
            await stranger.open()
        await stranger.close()
        await redis.close()


async def test_tags_are_limited_wherever_their_buckets_are(cluster: RedisCluster) -> None:
    tags = {f"tag{number}": Rate(1, burst=2) for number in range(12)}
    redis = Redis(cluster.url)
    limits = RedisLimits(redis, tags)
    for tag in tags:
        for number in range(3):
            await limits.join(tag, ticket(number))
    released = (await limits.release()).tickets
    assert sorted(tag for tag, _ in released) == sorted([*tags] * 2)
    for tag, one in released:
        assert await limits.spend(tag, one)
        assert not await limits.spend(tag, ticket(9))
    for number in range(20):
        assert await limits.hit(f"caller{number}", limit=1, window_seconds=60) == 0.0
    assert all(server.execute("KEYS", "*bucket") for server in cluster.servers)
    # One server is away: the lines of the others move on.
    cluster.servers[1].kill()
    hits = [limits.hit(f"caller{number}", limit=5, window_seconds=60) for number in range(20)]
    answers = await asyncio.gather(*hits, return_exceptions=True)
    assert {type(answer) for answer in answers} == {float, StoreError}
    await _until_it_works(limits.release)
    await redis.close()


async def _until_it_works(call: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await call()
            except StoreError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return
