"""Scripts are known to a server by their digest, until it forgets them."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

from weft.errors import StoreError
from weft.redis.connection import Redis, ReplyError
from weft.redis.script import Script, load_script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.servers.redis import RedisServer


def script(name: str, text: str) -> Script:
    source = text.encode()
    return Script(name, source, hashlib.sha1(source).hexdigest().encode())


ADD = script("add", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
PUSH = script("push", "redis.call('RPUSH', KEYS[1], ARGV[1]); return ARGV[1]")
REFUSE = script("refuse", "return redis.error_reply('ERR not this one')")


@pytest.fixture
async def redis(private_redis: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(private_redis.url)
    yield redis
    await redis.close()


async def test_a_script_the_server_does_not_know_is_told_to_it_within_the_call(redis: Redis) -> None:
    calls = [(ADD, ["n"], [1])] * 200 + [(PUSH, ["list"], ["x"])] * 50
    replies = await redis.scripts(calls)
    assert replies == [*range(1, 201), *[b"x"] * 50]
    assert await redis.call("SCRIPT", "EXISTS", ADD.sha, PUSH.sha) == [1, 1]
    assert await redis.scripts([]) == []


async def test_a_server_that_forgets_its_scripts_again_and_again_runs_each_call_once(redis: Redis) -> None:
    done = asyncio.Event()
    forgotten = 0

    async def forget() -> None:
        nonlocal forgotten
        other = Redis(redis_url)
        while not done.is_set():
            await other.call("SCRIPT", "FLUSH")
            forgotten += 1
        await other.close()

    redis_url = f"redis://127.0.0.1:{redis._target.address.port}"
    forgetting = asyncio.create_task(forget())
    for turn in range(40):
        words = [f"{turn}/{place}" for place in range(64)]
        replies = await redis.scripts([(PUSH, [f"list{turn}"], [word]) for word in words])
        assert replies == [word.encode() for word in words]
        pushed = await redis.call("LRANGE", f"list{turn}", 0, -1)
        assert sorted(pushed) == sorted(replies)
    done.set()
    await forgetting
    assert forgotten > 40


async def test_calls_of_one_batch_are_in_order(redis: Redis) -> None:
    await redis.scripts([(PUSH, ["list"], [number]) for number in range(100)])
    await redis.call("SCRIPT", "FLUSH")
    await redis.scripts([(PUSH, ["list"], [number]) for number in range(100, 200)])
    assert await redis.call("LRANGE", "list", 0, -1) == [b"%d" % number for number in range(200)]


async def test_a_script_that_is_refused_raises_after_all_have_run(redis: Redis) -> None:
    with pytest.raises(ReplyError, match="not this one"):
        await redis.scripts([(ADD, ["n"], [1]), (REFUSE, ["n"], []), (ADD, ["n"], [1])])
    assert await redis.call("GET", "n") == b"2"
    with pytest.raises(ReplyError, match="not an integer"):
        await redis.script(ADD, ["n"], ["nonsense"])
    assert await redis.script(ADD, ["n"], [3]) == 5


async def test_a_server_held_up_by_a_script_is_a_store_error(
    redis: Redis, private_redis: RedisServer
) -> None:
    await redis.open()
    private_redis.execute("CONFIG", "SET", "lua-time-limit", 10)
    endless = Redis(private_redis.url)
    running = asyncio.create_task(endless.call("EVAL", "while true do end", 0))
    with pytest.raises(StoreError, match="cannot be used now: BUSY"):
        await _repeat(redis)
    private_redis.execute("SCRIPT", "KILL")
    with pytest.raises(ReplyError):
        await running
    await endless.close()


async def _repeat(redis: Redis) -> None:
    async with asyncio.timeout(10):
        while True:
            await redis.script(ADD, ["n"], [1])


def test_a_script_is_named_by_the_digest_of_all_its_parts() -> None:
    joined = load_script("weft.limits", "join", after=("bucket",))
    assert joined.source.startswith(load_script("weft.limits", "bucket").source)
    assert joined.sha == hashlib.sha1(joined.source).hexdigest().encode()
    assert joined is load_script("weft.limits", "join", after=("bucket",))
