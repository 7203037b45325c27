"""Channels are heard until they are left, also over a connection that was lost without a word."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.support.fault_proxy import FaultProxy

from weft.redis.connection import Redis
from weft.redis.subscription import Channels

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.servers.redis import RedisServer

PATIENCE_SECONDS = 20.0


class Heard:
    """What came on channels, and how often they were connected anew."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, bytes]] = []
        self.times_connected = 0

    def on_message(self, channel: str, message: bytes) -> None:
        self.messages.append((channel, message))

    async def connected(self) -> None:
        self.times_connected += 1


@asynccontextmanager
async def listening_at(url: str, heard: Heard, *names: str) -> AsyncIterator[Channels]:
    redis = Redis(url, answer_seconds=0.2)
    channels = Channels(redis, on_message=heard.on_message, connected=heard.connected)
    await channels.add(*names)
    await channels.open(wait_seconds=PATIENCE_SECONDS)
    yield channels
    await channels.close()
    await redis.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - it changes when something arrives, and nobody is told
            await asyncio.sleep(0.002)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.redis.subscription._PAUSE_SECONDS", 0.02)
    monkeypatch.setattr("weft.redis.subscription._PING_SECONDS", 0.02)


async def test_messages_come_between_the_answers_to_what_is_asked(redis_url: str) -> None:
    heard, teller = Heard(), Redis(redis_url)
    async with listening_at(redis_url, heard, "a") as channels:
        for number in range(20):
            name = f"channel{number}"
            telling = asyncio.gather(*(teller.call("PUBLISH", "a", number) for _ in range(5)))
            await channels.add(name)
            assert await teller.call("PUBLISH", name, "x") == 1, "it was heard when `add` returned"
            channels.remove(name)
            await telling
        expected = {("a", b"%d" % number) for number in range(20)}
        await until(lambda: len(heard.messages) == 120)
        assert {one for one in heard.messages if one[0] == "a"} == expected
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await teller.call("PUBSUB", "CHANNELS", "channel*"):
                pass
    assert heard.times_connected == 1
    await teller.close()


async def test_a_server_that_falls_silent_is_listened_to_anew(redis_url: str) -> None:
    heard, teller = Heard(), Redis(redis_url)
    with FaultProxy(redis_url) as proxy:
        async with listening_at(proxy.url, heard, "a") as channels:
            proxy.blackhole()
            await until(lambda: not channels.is_connected)
            proxy.heal()
            await until(lambda: heard.times_connected == 2)
            await teller.call("PUBLISH", "a", "again")
            await until(lambda: heard.messages == [("a", b"again")])
    await teller.close()


async def test_a_channel_that_is_refused_is_asked_for_until_it_is_not(private_redis: RedisServer) -> None:
    heard = Heard()
    async with listening_at(private_redis.url, heard, "a") as channels:
        private_redis.execute("ACL", "SETUSER", "default", "resetchannels", "&a")
        await channels.add("b")
        await until(lambda: not channels.is_connected)
        private_redis.execute("ACL", "SETUSER", "default", "allchannels")
        await until(lambda: private_redis.execute("PUBLISH", "b", "x") == 1)
        await until(lambda: heard.messages == [("b", b"x")])
