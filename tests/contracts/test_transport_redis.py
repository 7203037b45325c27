"""The transport on Redis streams, held against its contract."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from tests.contracts.test_transport import FETCHES, SENT

from weft.redis.connection import Redis
from weft.testing.transport_contract import GrowOld, TransportContract, a_task, fetch, numbers
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.transport.contract import Transport


class RedisTransportContract(TransportContract):
    PARTITIONS = 1

    @pytest.fixture
    async def redis(self, redis_url: str) -> AsyncIterator[Redis]:
        redis = Redis(redis_url, partitions=self.PARTITIONS)
        yield redis
        await redis.close()

    @pytest.fixture
    async def transport(self, redis: Redis) -> Transport:
        return RedisStreams(redis)

    @pytest.fixture
    def grow_old(self, redis: Redis) -> GrowOld:
        async def make_older(seconds: float) -> None:
            """Set the idle time that the server keeps for what was taken."""
            for keys in redis.partitions:
                lanes = await redis.call("SMEMBERS", keys.lanes, partition=keys.partition)
                streams = [(keys.results, "orchestrators")]
                streams += [(keys.lane(*one.decode().split("|")), "workers") for one in lanes]
                for stream, group in streams:
                    await make_older_in(stream, group, seconds, keys.partition)

        async def make_older_in(stream: str, group: str, seconds: float, partition: int) -> None:
            (pending,) = await redis.run([("XPENDING", stream, group, "-", "+", 1000)], partition=partition)
            if isinstance(pending, Exception):
                return
            for entry, consumer, idle, _ in pending:
                older = idle + round(seconds * 1000)
                claiming = ("XCLAIM", stream, group, consumer, 0, entry)
                await redis.call(*claiming, "IDLE", older, "JUSTID", partition=partition)

        return make_older


class TestRedisStreams(RedisTransportContract):
    pass


class TestRedisStreamsOfThreePartitions(RedisTransportContract):
    PARTITIONS = 3


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SENT, FETCHES)
async def test_everything_is_delivered_once_and_in_order_within_its_priority(
    redis_url: str, sent: list[tuple[str, int]], fetches: list[tuple[set[str], int]]
) -> None:
    redis = Redis(redis_url)
    try:
        await redis.call("FLUSHDB")
        transport = RedisStreams(redis)
        await transport.send(
            [a_task(number, queue=queue, priority=priority) for number, (queue, priority) in enumerate(sent)]
        )
        got: list[int] = []
        for queues, limit in fetches:
            there = sum(status.depth for status in await transport.queues() if status.name in queues)
            taken = await fetch(transport, queues=sorted(queues), limit=limit)
            assert len(taken) == min(limit, there)
            assert {one.task.queue for one in taken} <= queues
            got += numbers(taken)
        got += numbers(await fetch(transport))
        assert Counter(got) == Counter(range(len(sent)))
        for lane in set(sent):
            mine = [number for number in got if sent[number] == lane]
            assert mine == sorted(mine)
    finally:
        await redis.close()
