"""The limiter on Redis, held against its contract, and against what only several processes can do."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft.clock import VirtualClock
from weft.core.time import MICROSECONDS, micros
from weft.limits.contract import Limits, Rate
from weft.limits.memory import MemoryLimits
from weft.limits.redis import RedisLimits
from weft.redis.connection import Redis
from weft.testing.limits_contract import LimitsContract, NewLimits, at_most_as_often, join_queue, ticket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.support.servers.redis import RedisServer


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url)
    yield redis
    await redis.close()


class TestRedisLimits(LimitsContract):
    @pytest.fixture
    def new_limits(self, clock: VirtualClock, redis: Redis) -> NewLimits:
        async def made(rates: Mapping[str, Rate]) -> Limits:
            return RedisLimits(redis, rates, now=clock.now, release_seconds=self.RELEASE_SECONDS)

        return made

    async def test_of_twenty_thousand_waiting_each_call_sees_a_piece(
        self, redis: Redis, clock: VirtualClock
    ) -> None:
        limits = RedisLimits(redis, {"api": Rate(10, burst=5000)}, now=clock.now)
        await limits.join("api", ticket(0))
        await asyncio.gather(*(limits.join("api", ticket(number)) for number in range(1, 20_000)))
        assert len(await limits.due("api")) == 10_000
        found = await limits.release()
        assert [one for _, one in found.tickets] == [ticket(number) for number in range(1000)]
        # There is more to let go, now.
        assert found.next_at == clock.now()
        for _ in range(4):
            assert len((await limits.release()).tickets) == 1000
        found = await limits.release()
        assert (found.tickets, found.next_at) == ([], clock.now() + micros(0.1))
        clock.advance(15)
        assert [one for _, one in (await limits.release()).tickets] == [ticket(n) for n in range(1000)]

    async def test_who_is_let_go_again_has_the_place_he_had(self, redis: Redis, clock: VirtualClock) -> None:
        limits = RedisLimits(redis, {"api": Rate(1, burst=3)}, now=clock.now)
        await join_queue(limits, "api", 3)
        first = (await limits.release()).tickets
        await limits.join("api", ticket(9))
        clock.advance(15)
        assert (await limits.release()).tickets == first
        assert await limits.spend("api", ticket(0))
        assert (await limits.due("api")).keys() == {ticket(9)}

    async def test_a_clock_that_is_set_back_keeps_nobody_out(self, redis: Redis) -> None:
        clock = VirtualClock()
        limits = RedisLimits(redis, {"api": Rate(1, burst=2)}, now=lambda: clock.now())
        await join_queue(limits, "api", 4)
        for tag, one in (await limits.release()).tickets[:1]:
            assert await limits.spend(tag, one)
        assert await limits.hit("k", limit=1, window_seconds=10) == 0.0
        clock = VirtualClock(clock.now() - 3600 * MICROSECONDS)
        # The bucket is empty, and fills from now on; what was let go for an hour is let go again.
        assert (await limits.release()).next_at == clock.now() + MICROSECONDS
        clock.advance(1)
        assert [one for _, one in (await limits.release()).tickets] == [ticket(1)]
        assert await limits.hit("k", limit=1, window_seconds=10) == 0.0
        assert await limits.hit("k", limit=1, window_seconds=10) == 10.0

    async def test_a_window_expires_by_itself(self, redis: Redis) -> None:
        limits = RedisLimits(redis, {})
        assert await limits.hit("a}b{c", limit=2, window_seconds=30) == 0.0
        assert 29 < await limits.hit("a}b{c", limit=1, window_seconds=30) <= 30
        (key,) = await redis.call("KEYS", "*window")
        assert 29_000 < await redis.call("PTTL", key) <= 30_000

    async def test_without_a_rate_nothing_is_asked_of_the_server(self) -> None:
        # Nobody listens there.
        limits = RedisLimits(Redis("redis://127.0.0.1:1"), {})
        assert (await limits.release()).tickets == []

    async def test_where_nobody_stands_all_tags_are_asked_in_one_go(self, redis: Redis) -> None:
        limits = RedisLimits(redis, {f"t{number}": Rate(1) for number in range(50)})
        await limits.release()
        before = await _reads(redis)
        assert (await limits.release()).next_at is None
        assert await _reads(redis) - before == 2, "the one, and this question"

    async def test_after_a_flush_there_is_one_burst_more_and_not_two(
        self, redis: Redis, clock: VirtualClock
    ) -> None:
        rate = Rate(1, burst=3)
        limits = RedisLimits(redis, {"api": rate}, now=clock.now)
        starts = 0
        for step in range(40):
            if step == 20:
                await redis.call("FLUSHDB")
            while await limits.spend("api", ticket(step)):
                starts += 1
            clock.advance(0.25)
        assert starts == (3 + 4) + (3 + 4)


async def _reads(redis: Redis) -> int:
    info = await redis.call("INFO", "stats")
    return int(info.partition(b"total_reads_processed:")[2].splitlines()[0])


# What callers do: wait, or try to start without waiting, join the wait queue, let go, start, give up.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "jump", "join", "release", "start", "give up", "ask"]),
        st.integers(0, 4),
        st.floats(0, 3),
    ),
    max_size=120,
)
RATES = st.builds(Rate, st.floats(0.01, 5000), st.integers(1, 6))
FRESH = count()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(RATES, STEPS, st.floats(0.5, 20))
async def test_whatever_callers_do_it_answers_as_memory_does_and_no_rate_is_exceeded(
    redis: Redis, rate: Rate, steps: list[tuple[str, int, float]], intervals_released: float
) -> None:
    clock = VirtualClock()
    tag = f"api{next(FRESH)}"
    seconds = intervals_released / rate.rate_per_second
    memory = MemoryLimits({tag: rate}, now=clock.now, release_seconds=seconds)
    limits = RedisLimits(redis, {tag: rate}, now=clock.now, release_seconds=seconds)
    starts: list[int] = []
    for step, number, intervals in steps:
        match step:
            case "wait":
                clock.advance(intervals / rate.rate_per_second)
            case "jump" | "start":
                allowed = await limits.spend(tag, ticket(number))
                assert allowed == await memory.spend(tag, ticket(number))
                if allowed:
                    starts.append(clock.now())
            case "join":
                await limits.join(tag, ticket(number))
                await memory.join(tag, ticket(number))
            case "release":
                assert await limits.release() == await memory.release()
            case "give up":
                await limits.leave(tag, ticket(number))
                await memory.leave(tag, ticket(number))
            case _:
                assert list((await limits.due(tag)).items()) == list((await memory.due(tag)).items())
    at_most_as_often(starts, rate)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0.01, 100_000), st.integers(1, 30))
async def test_a_queue_moves_at_its_rate(redis: Redis, rate_per_second: float, count: int) -> None:
    clock = VirtualClock()
    tag = f"line{next(FRESH)}"
    limits = RedisLimits(redis, {tag: Rate(rate_per_second)}, now=clock.now)
    await join_queue(limits, tag, count)
    start = clock.now()
    for number in range(count):
        found = await limits.release()
        if not found.tickets:
            assert found.next_at is not None
            clock.advance((found.next_at - clock.now()) / MICROSECONDS)
            found = await limits.release()
        assert [one for _, one in found.tickets] == [ticket(number)]
        assert await limits.spend(tag, ticket(number))
    # A microsecond is as near as a clock can say it.
    expected = (count - 1) / rate_per_second * MICROSECONDS
    assert expected <= clock.now() - start + 1
    assert clock.now() - start <= expected + count


# -- several at once, on the server's time ---------------------------------------------------------

RACER = """
import asyncio, json, sys
from weft.core.attempt import AttemptRef
from weft.limits.contract import Rate
from weft.limits.redis import RedisLimits
from weft.redis.connection import Redis

async def race(url, number, rate, burst, seconds):
    redis = Redis(url)
    limits = RedisLimits(redis, {"api": Rate(rate, burst)})
    loop = asyncio.get_running_loop()
    # The first to be ready would else have spent the burst before the other begins.
    ready = await redis.call("INCR", "ready")
    while ready < 2:
        ready = int(await redis.call("GET", "ready"))
    starts, until = 0, loop.time() + seconds
    while loop.time() < until:
        asked = [limits.spend("api", AttemptRef("x", 1, f"{number}-{i}", 1)) for i in range(20)]
        starts += sum(await asyncio.gather(*asked))
    await redis.close()
    return starts

url, number, rate, burst, seconds = json.loads(sys.argv[1])
print(asyncio.run(race(url, number, rate, burst, seconds)))
"""


async def _race(url: str, rate: Rate, seconds: float) -> tuple[int, float]:
    """Let two processes ask for tokens as fast as they can; give their starts, and how long it all took."""
    redis = Redis(url)
    begun = await _server_seconds(redis)
    racers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            RACER,
            json.dumps([url, number, rate.rate_per_second, rate.burst, seconds]),
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(2)
    ]
    starts = [int((await racer.communicate())[0]) for racer in racers]
    taken = await _server_seconds(redis) - begun
    await redis.close()
    assert all(starts), "both had their share"
    return sum(starts), taken


async def _server_seconds(redis: Redis) -> float:
    seconds, part = await redis.call("TIME")
    return int(seconds) + int(part) / MICROSECONDS


async def test_two_processes_together_do_not_exceed_a_rate(redis_url: str) -> None:
    rate = Rate(333.3, burst=7)
    starts, taken = await _race(redis_url, rate, 1.0)
    assert starts <= rate.rate_per_second * taken + rate.burst
    # Both ran for most of the time: neither is there much less than the rate.
    assert starts >= rate.rate_per_second * 0.8


async def test_two_processes_and_a_flush_together_have_one_burst_more_at_most(
    private_redis: RedisServer,
) -> None:
    rate = Rate(5, burst=40)
    racing = asyncio.create_task(_race(private_redis.url, rate, 1.5))
    redis = Redis(private_redis.url)
    limits = RedisLimits(redis, {"api": rate})
    # Once the burst is spent: a ticket that joins now would have to wait.
    await limits.join("api", ticket(0))
    while (await limits.due("api"))[ticket(0)] <= micros(await _server_seconds(redis)):
        pass
    await redis.call("FLUSHALL")
    starts, taken = await racing
    await redis.close()
    assert rate.burst * 2 <= starts <= rate.rate_per_second * taken + 2 * rate.burst


async def test_two_connections_never_let_the_same_ticket_go(redis_url: str) -> None:
    one, two = Redis(redis_url), Redis(redis_url)
    rates = {"api": Rate(100_000, burst=50)}
    both = [RedisLimits(one, rates), RedisLimits(two, rates)]
    await join_queue(both[0], "api", 300)
    seen: list[str] = []
    while len(seen) < 300:
        for found in await asyncio.gather(*(limits.release() for limits in both * 3)):
            seen += [given.node_id for _, given in found.tickets]
            await asyncio.gather(*(both[0].spend(tag, given) for tag, given in found.tickets))
    assert sorted(seen) == sorted({f"n{number}" for number in range(300)})
    await one.close()
    await two.close()
