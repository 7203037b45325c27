"""What is left of an execution that has ended, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.core.event import CancelRequested, RetryRequested
from weft.core.ledger.changes import Verdict
from weft.limits.memory import MemoryLimits
from weft.orchestrator.advance import apply
from weft.orchestrator.context import Context
from weft.ports import Ports
from weft.store.contract import Answer
from weft.testing.store.contract import free_nodes, installed, queue, start
from weft.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.redis.connection import Redis
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

LONG_SECONDS = 1800
SHORT_SECONDS = 60


async def kept_seconds(redis: Redis) -> int:
    (key,) = await redis.call("KEYS", "*x1*")
    return int(await redis.call("TTL", key))


async def test_what_was_installed_once_leaves_a_tombstone_for_a_minute(
    redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
) -> None:
    walk = new_walk("a")
    await walk.begin()
    assert await store.close("x1", generation=1, epoch=1) is Answer.YES
    assert SHORT_SECONDS - 5 < await kept_seconds(redis) <= SHORT_SECONDS
    assert await start(walk, "a") is Answer.REFUSED


async def test_where_a_lease_is_long_the_tombstone_outlives_some_of_them(
    redis: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    store = new_store(redis, lease_seconds=100.0)
    await new_walk("a", store=store).begin()
    await store.close("x1", generation=1, epoch=1)
    assert 395 < await kept_seconds(redis) <= 400


@pytest.mark.parametrize("installed", [False, True])
async def test_where_a_builder_may_still_come_the_tombstone_stays_for_long(
    redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, installed: bool
) -> None:
    """One that was never here has its builder before it; one of a later epoch may have several behind it."""
    walk = new_walk("a")
    snapshot = await walk.submit()
    epoch = 1
    if installed:
        await walk.rebuild()
        epoch = 2
    await store.close("x1", generation=1, epoch=epoch)
    assert LONG_SECONDS - 5 < await kept_seconds(redis) <= LONG_SECONDS
    # And is refused for so long.
    assert await walk.install(snapshot, fresh=True) is Answer.REFUSED


async def test_a_tombstone_stays_as_it_is_until_a_later_epoch_is_closed(
    redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
) -> None:
    await new_walk("a").begin()
    for _ in range(2):
        assert await store.close("x1", generation=1, epoch=1) is Answer.YES
        assert await kept_seconds(redis) <= SHORT_SECONDS
    assert await store.close("x1", generation=1, epoch=2) is Answer.YES
    assert await kept_seconds(redis) > LONG_SECONDS - 5
    assert await store.close("x1", generation=1, epoch=1) is Answer.YES
    assert await kept_seconds(redis) > LONG_SECONDS - 5


@pytest.mark.parametrize("running", [False, True])
async def test_an_attempt_of_a_closed_execution_loses_its_lease_when_it_is_refused(
    redis: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk], running: bool
) -> None:
    """The close names no nodes, and the lease of a queued task lasts long."""
    store = new_store(redis, queued_seconds=300.0)
    walk, neighbour = new_walk("a", store=store), new_walk("a", store=store, execution_id="x2")
    for one in (walk, neighbour):
        await installed(one)
        assert [await queue(one, node) for node in await free_nodes(one)] == [Answer.YES]
    if running:
        assert await start(walk, "a") is Answer.YES
    await store.close("x1", generation=1, epoch=1)
    assert await leases(redis) == {"x1", "x2"}
    if running:
        assert await store.renew([walk.lease("a")]) == [Answer.REFUSED]
    else:
        assert await start(walk, "a") is Answer.REFUSED
    assert await leases(redis) == {"x2"}


async def test_the_late_result_of_a_closed_execution_takes_its_lease_along(
    redis: Redis, store: RedisStore, new_walk: Callable[..., Walk]
) -> None:
    """The report lengthens a lease that nobody needs: it ends when the result was judged."""
    walk = new_walk("a")
    await walk.begin()
    result = await walk.result("a")
    await walk.record(CancelRequested(execution_id="x1", generation=0))
    await store.close("x1", generation=1, epoch=1)
    await store.report([result])
    assert await leases(redis) == {"x1"}
    recorded_event = await walk.record(walk.judge(result))
    assert recorded_event.verdict is Verdict.STALE
    await walk.apply(recorded_event)
    assert await leases(redis) == set()


async def test_a_row_that_comes_behind_the_close_takes_the_lease_along(
    redis: Redis, store: RedisStore, new_walk: Callable[..., Walk]
) -> None:
    """Of two orchestrators the one that ended the execution may tell the store first."""
    walk = new_walk("a", "b", store=store)
    await walk.begin()
    results = [await walk.result(name) for name in ("a", "b")]
    await store.report(results)
    first, last = [await walk.record(walk.judge(result)) for result in results]
    ports = Ports(
        store=store,
        journal=walk.journal,
        transport=InProcessTransport(now=walk.clock.now),
        limits=MemoryLimits({}, now=walk.clock.now),
        clock=walk.clock,
        draw=lambda: 0.5,
        new_id=lambda: "id",
    )
    context = Context(ports, "o")
    await apply([last], context)
    assert await leases(redis) == {"x1"}
    await apply([first], context)
    assert await leases(redis) == set()


async def test_a_refused_attempt_of_an_earlier_generation_leaves_the_lease_of_the_next(
    redis: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    store = new_store(redis, queued_seconds=300.0)
    walk = new_walk("a", store=store)
    await installed(walk)
    assert [await queue(walk, node) for node in await free_nodes(walk)] == [Answer.YES]
    await walk.record(CancelRequested(execution_id="x1", generation=0))
    await store.close("x1", generation=1, epoch=1)
    await walk.record(RetryRequested(execution_id="x1", generation=0))
    await walk.reopen()
    assert await start(walk, "a") is Answer.REFUSED
    assert await leases(redis) == {"x1"}


async def leases(redis: Redis) -> set[str]:
    """Return the executions that have leases; the sentinel of the sorted set is none."""
    members = [member.decode() for member in await redis.call("ZRANGE", redis.partitions[0].leases, 0, -1)]
    return {one.split(":", 2)[2] for one in members if ":" in one}
