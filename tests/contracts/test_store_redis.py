"""The store on Redis, held against its contract."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.task import Result
from weft.envelope import unpack_all, unpack_message, unpack_task
from weft.redis.connection import Redis
from weft.store.redis import RedisStore
from weft.testing.store.ahead import AheadContract
from weft.testing.store.contract import StoreBench, StoreContract
from weft.testing.store.parked import ParkedContract
from weft.testing.store.waits import WaitContract
from weft.testing.walk import Walk, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from weft.clock import VirtualClock
    from weft.core.payload import Json
    from weft.core.task import Task
    from weft.definition.plan import Plan
    from weft.store.contract import StateStore


class TestRedisStore(StoreContract, AheadContract, ParkedContract, WaitContract):
    PARTITIONS = 1

    @pytest.fixture
    def walks(self) -> list[Walk]:
        """The walks of a test: the store asks their plans and journals."""
        return []

    @pytest.fixture
    def new_walk(self, store: StateStore, clock: VirtualClock, walks: list[Walk]) -> Callable[..., Walk]:
        def made(*nodes: Json, execution_id: str = "x1", **fields: Any) -> Walk:
            walk = Walk(workflow(*nodes, **fields), store=store, clock=clock, execution_id=execution_id)
            walks.append(walk)
            return walk

        return made

    @pytest.fixture
    async def bench(
        self, clock: VirtualClock, redis_url: str, walks: list[Walk]
    ) -> AsyncIterator[StoreBench]:
        ids = count(1)
        redis = Redis(redis_url, partitions=self.PARTITIONS)

        async def plan(digest: str) -> Plan | None:
            return next((walk.plan for walk in walks if walk.plan.digest == digest), None)

        store = RedisStore(
            redis,
            plans=plan,
            new_id=lambda: f"token-{next(ids)}",
            now=clock.now,
            options=self.options(),
        )

        async def published() -> Sequence[Result]:
            found = []
            for keys in redis.partitions:
                entries = await redis.call("XRANGE", keys.results, "-", "+", partition=keys.partition)
                for _, (_, wire) in entries:
                    for one in unpack_all(wire):
                        message = unpack_message(one)
                        assert isinstance(message, Result)
                        found.append(message)
            return found

        async def sent() -> Sequence[Task]:
            found = []
            for keys in redis.partitions:
                for lane in await redis.call("SMEMBERS", keys.lanes, partition=keys.partition):
                    queue, handler, priority = lane.decode().split("|")
                    stream = keys.lane(queue, handler, int(priority))
                    entries = await redis.call("XRANGE", stream, "-", "+", partition=keys.partition)
                    found += [unpack_task(fields[1]) for _, fields in entries]
            return found

        async def flush() -> None:
            # They may be on several servers.
            for keys in redis.partitions:
                await redis.call("FLUSHDB", partition=keys.partition)

        yield StoreBench(store, published, sent, flush)
        await redis.close()


class TestRedisStoreInPartitions(TestRedisStore):
    PARTITIONS = 4
