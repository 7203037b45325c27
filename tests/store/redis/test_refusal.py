"""A Redis that answers and refuses writes: an outage, in which no worker can renew its lease."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.store.refusing import REFUSALS

from weft.errors import StoreError
from weft.redis.connection import Redis
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.servers.redis import RedisServer

    from weft.clock import VirtualClock
    from weft.store.contract import Due
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

LEASE_SECONDS = 15.0
SWEEP_SECONDS = 5.0


@pytest.fixture
async def private(private_redis: RedisServer) -> AsyncIterator[Redis]:
    redis = Redis(private_redis.url)
    yield redis
    await redis.close()


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_no_lease_runs_out_while_redis_refuses_writes_nor_before_workers_could_renew_it(
    refusal: str,
    private_redis: RedisServer,
    private: Redis,
    new_store: Callable[..., RedisStore],
    new_walk: Callable[..., Walk],
    clock: VirtualClock,
) -> None:
    store = new_store(private, lease_seconds=LEASE_SECONDS)
    walk = new_walk("a", "b", store=store)
    await walk.begin()
    assert (await store.due(idle_seconds=SWEEP_SECONDS)).expired == []
    begin, end = REFUSALS[refusal]
    begin(private_redis)
    for _ in range(4):
        clock.advance(SWEEP_SECONDS)
        with pytest.raises(StoreError, match=refusal):
            await store.due(idle_seconds=SWEEP_SECONDS)
        with pytest.raises(StoreError, match=refusal):
            await store.renew([walk.lease("a")])
    end(private_redis)
    due = await swept(store)
    assert due.expired == []
    # Peers do not expire the leases either, and everybody is told when to look again.
    peer = new_store(private, lease_seconds=LEASE_SECONDS)
    assert (await peer.due(idle_seconds=SWEEP_SECONDS)).expired == []
    assert due.next_at == clock.now() + LEASE_SECONDS * 1_000_000
    # One worker is there again, the other is not: its lease runs out in its time, and no later.
    clock.advance(SWEEP_SECONDS)
    assert list(await store.renew([walk.lease("a")])) == [Answer.YES]
    for _ in range(2):
        assert (await store.due(idle_seconds=SWEEP_SECONDS)).expired == []
        clock.advance(SWEEP_SECONDS)
    assert [one.node_id for one in (await store.due(idle_seconds=SWEEP_SECONDS)).expired] == ["b"]


async def swept(store: RedisStore) -> Due:
    """Sweep, once the server is reached again."""
    while True:
        try:
            return await store.due(idle_seconds=SWEEP_SECONDS)
        except StoreError:
            await asyncio.sleep(0.05)
