"""A master that Sentinels know: it is asked for, followed through a failover, and never believed blindly."""

from __future__ import annotations

import asyncio
import traceback
from typing import TYPE_CHECKING, TypeVar

import pytest
from tests.redis.certificates import make_certificates, server_context
from tests.redis.listener import tls_in_front_of
from tests.support.servers.redis_sentinels import MASTER_NAME, RedisSentinel, RedisSentinels

from weft.clock import new_id
from weft.errors import StoreError
from weft.redis.address import Address, read_url
from weft.redis.connection import PAUSE_SECONDS, Redis
from weft.redis.subscription import Channels
from weft.store.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.servers.redis import RedisServer

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


@pytest.fixture
def sentinels() -> Iterator[RedisSentinels]:
    with RedisSentinels() as sentinels:
        yield sentinels


async def test_a_store_goes_on_where_the_replica_has_taken_over(sentinels: RedisSentinels) -> None:
    """What a replica has may lack what was written last: a store on it is another incarnation."""
    first, replica = sentinels.servers
    redis = Redis(sentinels.url)
    store = RedisStore(redis, plans=_nothing, new_id=new_id)
    heard: list[bytes] = []
    channels = Channels(redis, on_message=lambda _, message: heard.append(message), connected=_connected)
    await channels.add("news")
    await channels.open(wait_seconds=PATIENCE_SECONDS)
    incarnation_id = await store.incarnation_id()
    waiting = asyncio.create_task(redis.block("BLPOP", "list", 60, wait_seconds=60))
    await asyncio.to_thread(first.kill)
    with pytest.raises(StoreError):
        await waiting
    with pytest.raises(StoreError):
        await store.incarnation_id()
    await asyncio.to_thread(sentinels.wait_until_taken_over, replica)
    successor = await _until_it_works(store.incarnation_id)
    assert successor != incarnation_id
    assert redis.wiped == 1
    assert replica.execute("GET", redis.partitions[0].incarnation_id) == successor.encode()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not heard:
            await _until_it_works(lambda: redis.call("PUBLISH", "news", "x"))
    # What comes back is a replica soon, and nobody goes there.
    await asyncio.to_thread(first.start)
    assert await store.incarnation_id() == successor
    await channels.close()
    await redis.close()


async def test_a_master_that_was_made_a_replica_is_left(sentinels: RedisSentinels) -> None:
    first, replica = sentinels.servers
    redis = Redis(sentinels.url)
    assert await redis.call("SET", "a", 1) == b"OK"
    sentinels.sentinels[0].execute("SENTINEL", "FAILOVER", MASTER_NAME)
    await asyncio.to_thread(sentinels.wait_until_taken_over, replica)
    assert sentinels.master is replica
    # It takes writes until the Sentinels have told it; then it closes its connections.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while replica.execute("GET", "a") != b"2":
            await _until_it_works(lambda: redis.call("SET", "a", 2))
    assert first.is_running
    await redis.close()


async def test_one_sentinel_that_knows_is_enough(private_redis: RedisServer) -> None:
    with RedisSentinel(private_redis.port) as knows, RedisSentinel(private_redis.port) as gone:
        gone.kill()
        redis = Redis(f"redis+sentinel://127.0.0.1:{gone.port},127.0.0.1:{knows.port}/{MASTER_NAME}/2")
        await redis.call("SET", "a", "in two")
        assert private_redis.execute("GET", "a", url=private_redis.url_of(2)) == b"in two"
        await redis.close()
        redis = Redis(f"redis+sentinel://127.0.0.1:{gone.port},127.0.0.1:{knows.port}/other")
        with pytest.raises(StoreError, match=f"no Sentinel says where other is .*{knows.port} knows no such"):
            await redis.open()
        await redis.close()


async def test_a_sentinel_that_names_a_replica_is_passed_over(sentinels: RedisSentinels) -> None:
    first, replica = sentinels.servers
    with RedisSentinel(replica.port) as astray:
        knows = sentinels.sentinels[0]
        # It finds the right one by itself before long; not while it stands still behind its first answer.
        astray.execute("SENTINEL", "SET", MASTER_NAME, "down-after-milliseconds", 3_600_000)
        redis = Redis(f"redis+sentinel://127.0.0.1:{astray.port},127.0.0.1:{knows.port}/{MASTER_NAME}")
        with pytest.raises(StoreError, match="READONLY"):
            await redis.open()
        await _until_it_works(redis.open)
        await redis.call("SET", "a", 1)
        assert first.execute("GET", "a") == b"1"
        await redis.close()


async def test_sentinels_have_a_password_of_their_own(private_redis: RedisServer) -> None:
    private_redis.execute("CONFIG", "SET", "requirepass", "s3cr3t-redis")
    with RedisSentinel(private_redis.port) as sentinel:
        sentinel.execute("ACL", "SETUSER", "default", ">s3cr3t-sentinel")
        where = f":s3cr3t-redis@127.0.0.1:{sentinel.port}/{MASTER_NAME}"
        redis = Redis(f"redis+sentinel://{where}?sentinel_password=s3cr3t-sentinel")
        assert await redis.call("PING") == b"PONG"
        await redis.close()
        for wrong, told in (("", "NOAUTH"), ("?sentinel_password=s3cr3t-no", "WRONGPASS")):
            redis = Redis(f"redis+sentinel://{where}{wrong}")
            with pytest.raises(StoreError, match=told) as caught:
                await redis.open()
            shown = repr(redis._target) + "".join(traceback.format_exception(caught.value))
            assert "s3cr3t" not in shown
            await redis.close()


async def test_over_tls_the_sentinels_are_shown_the_certificate_too(
    private_redis: RedisServer, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    context = server_context(tmp_path, clients="client")
    async with tls_in_front_of(Address("127.0.0.1", private_redis.port), context) as port:
        # It cannot speak with it, and names it all the same.
        with RedisSentinel(port) as sentinel:
            async with tls_in_front_of(Address("127.0.0.1", sentinel.port), context) as sentinel_port:
                options = f"ssl_ca_certs={tmp_path}/server.pem&ssl_check_hostname=false"
                url = f"rediss+sentinel://127.0.0.1:{sentinel_port}/{MASTER_NAME}?{options}"
                shown = f"ssl_certfile={tmp_path}/client.pem&ssl_keyfile={tmp_path}/client.key"
                redis = Redis(f"{url}&{shown}")
                assert await redis.call("PING") == b"PONG"
                await redis.close()
                redis = Redis(url)
                with pytest.raises(StoreError, match="no Sentinel says where"):
                    await redis.open()
                await redis.close()


def test_what_a_url_says_of_sentinels() -> None:
    target = read_url("redis+sentinel://u:p%2C@a,b:7000,[::1]:7001/my%20master/3?sentinel_username=s")
    assert (target.username, target.password, target.database, target.tls) == ("u", "p,", 3, None)
    assert target.address == Address("my master", 0)
    assert target.sentinels is not None
    assert target.sentinels.addresses == (Address("a", 26379), Address("b", 7000), Address("::1", 7001))
    assert (target.sentinels.username, target.sentinels.password) == ("s", None)
    assert read_url("rediss+sentinel://a/m?db=4").database == 4
    assert read_url("rediss+sentinel://a/m").tls is not None
    for unreadable in ("redis+sentinel://a,b", "redis+sentinel://a/m/x", "redis+sentinel://a:x,b/m"):
        with pytest.raises(StoreError, match="the Redis URL cannot be used"):
            read_url(unreadable)
    with pytest.raises(StoreError, match="several hosts"):
        read_url("redis://a,b/0")


async def _nothing(_: str) -> None:
    return None


async def _connected() -> None:
    return None


async def _until_it_works(call: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                return await call()
            except StoreError:
                await asyncio.sleep(PAUSE_SECONDS)
