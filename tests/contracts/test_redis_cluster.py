"""The contracts of what is on Redis, held on a cluster: no call touches keys of two slots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contracts import test_feed_redis, test_store_redis, test_transport_redis

from weft.limits.redis import RedisLimits
from weft.redis.connection import Redis
from weft.testing.limits_contract import LimitsContract, NewLimits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from weft.clock import VirtualClock
    from weft.limits.contract import Limits, Rate

PARTITIONS = 8


@pytest.fixture
def redis_url(cluster_url: str) -> str:
    return cluster_url


class TestRedisStoreOnACluster(test_store_redis.TestRedisStore):
    PARTITIONS = PARTITIONS


class TestRedisStreamsOnACluster(test_transport_redis.RedisTransportContract):
    PARTITIONS = PARTITIONS


class TestRedisFeedOnACluster(test_feed_redis.TestRedisFeed):
    pass


class TestRedisLimitsOnACluster(LimitsContract):
    @pytest.fixture
    async def redis(self, redis_url: str) -> AsyncIterator[Redis]:
        redis = Redis(redis_url)
        yield redis
        await redis.close()

    @pytest.fixture
    def new_limits(self, clock: VirtualClock, redis: Redis) -> NewLimits:
        async def made(rates: Mapping[str, Rate]) -> Limits:
            return RedisLimits(redis, rates, now=clock.now, release_seconds=self.RELEASE_SECONDS)

        return made
