"""What is asked of a server before anything is entrusted to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.servers.redis import RedisServer

from weft.clock import RealClock
from weft.core.time import micros
from weft.errors import SettingsError, StoreError
from weft.redis.connection import Redis
from weft.redis.health import check_server, inspect_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(server.url)
    yield redis
    await redis.close()


async def test_a_server_describes_itself(redis: Redis, server: RedisServer) -> None:
    status = await inspect_server(redis)
    assert (status.version, status.policy, status.appendonly) == (server.version, "noeviction", False)
    assert abs(status.now - RealClock().now()) < micros(60)
    server.execute("CONFIG", "SET", "appendonly", "yes")
    assert (await inspect_server(redis)).appendonly
    await check_server(redis)


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_server_that_evicts_keys_is_refused_with_what_to_do(
    redis: Redis, server: RedisServer, policy: str
) -> None:
    server.execute("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(SettingsError, match=f"maxmemory-policy is {policy}.*maxmemory-policy noeviction"):
        await check_server(redis)
    server.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    await check_server(redis)


async def test_it_is_asked_without_config(server: RedisServer) -> None:
    server.execute("ACL", "SETUSER", "hosted", "on", ">pass", "~*", "+@all", "-config")
    redis = Redis(f"redis://hosted:pass@127.0.0.1:{server.port}/0")
    await check_server(redis)
    await redis.close()


@pytest.mark.parametrize(("version", "too_old"), [("6.0.16", True), ("6.2.0", False), ("10.0", False)])
async def test_a_version_is_compared_by_its_numbers(redis: Redis, version: str, too_old: bool) -> None:
    status = await inspect_server(redis)
    assert type(status)(version=version, policy="", appendonly=False, now=0).is_too_old is too_old


async def test_a_server_that_does_not_answer_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="the store cannot be reached"):
        await check_server(Redis("redis://127.0.0.1:1"))
