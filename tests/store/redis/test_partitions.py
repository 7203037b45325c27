"""Executions in several partitions, and what happens when their number changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.core.rows import partition_of
from weft.core.snapshot import RowUpdate, Snapshot
from weft.redis.connection import Redis
from weft.store.contract import Answer
from weft.testing.store.contract import free_nodes, queue, start
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk


@pytest.fixture
async def four(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url, partitions=4)
    yield redis
    await redis.close()


async def install(walk: Walk, partition: int) -> None:
    row = (await walk.submit()).execution
    row.partition = partition
    snapshot = Snapshot(row, walk.plan, ())
    assert await walk.install(snapshot, fresh=True) is Answer.YES


async def test_an_execution_lies_in_the_partition_of_its_row(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk("a", store=new_store(four))
    await install(walk, 2)
    assert await four.call("KEYS", "*x1") == [four.partitions[2].execution("x1").encode()]


async def test_executions_of_several_partitions_are_moved_in_one_call(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    store = new_store(four)
    walks = [new_walk("a", node("b", "a"), store=store, execution_id=f"x{index}") for index in range(8)]
    for walk in walks:
        await install(walk, partition_of(walk.execution_id, 4))
    ids = [walk.execution_id for walk in walks]
    given = await store.free([*ids, "nobody"])
    assert [one.answer for one in given] == [Answer.YES] * 8 + [Answer.UNKNOWN]
    tasks = [walk.task(one.free[0]) for walk, one in zip(walks, given, strict=False)]
    assert list(await store.queue(tasks)) == [Answer.YES] * 8
    assert len(await four.call("KEYS", "*tasks:*")) == len({partition_of(name, 4) for name in ids})
    assert await store.backlog() == 16


async def test_what_is_not_where_its_id_draws_it_is_found_by_every_move(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    """The number of partitions has changed since the execution was submitted."""
    elsewhere = (partition_of("x1", 4) + 1) % 4
    walk = new_walk("a", store=new_store(four))
    await install(walk, elsewhere)

    def stranger() -> RedisStore:
        """A process that has never seen it."""
        walk.store = new_store(four)
        return walk.store

    stranger()
    (free,) = await free_nodes(walk)
    stranger()
    assert await queue(walk, free) is Answer.YES
    line: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
    assert await stranger().throttle("x1", **line, was_queued=True) is Answer.YES
    assert await stranger().release("x1", **line) is Answer.YES
    stranger()
    (free,) = await free_nodes(walk)
    assert await queue(walk, free) is Answer.YES
    stranger()
    assert await start(walk, "a") is Answer.YES
    assert list(await stranger().renew([walk.lease("a")])) == [Answer.YES]
    assert set(await stranger().running("x1")) == {"a"}
    assert await stranger().inspect("x1") is not None
    assert list(await stranger().epochs(["x1"])) == [1]
    assert list(await stranger().in_flight(["x1"])) == [(0, 1)]
    assert dict(await stranger().running_by_queue()) == {"echo": 1}
    assert await stranger().close("x1", generation=1, epoch=1) is Answer.YES
    assert list(await stranger().renew([walk.lease("a")])) == [Answer.REFUSED]


async def test_the_tombstone_of_one_that_is_not_there_is_wherever_it_may_come_to_lie(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk("a", store=new_store(four))
    row = (await walk.submit()).execution
    assert await walk.store.close("x1", generation=1, epoch=1) is Answer.YES
    for partition in range(4):
        row.partition = partition
        assert await walk.install(Snapshot(row, walk.plan, ()), fresh=False) is Answer.REFUSED
        (applied,) = await walk.store.apply([RowUpdate(row, walk.plan, ())])
        assert applied.answer is Answer.REFUSED


async def test_a_later_life_is_found_where_a_tombstone_of_an_earlier_one_is_in_the_way(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk("a", store=new_store(four))
    await install(walk, (partition_of("x1", 4) + 1) % 4)
    await walk.record(walk.cancelled())
    # Whoever has never seen it leaves a tombstone where it is drawn, too.
    assert await new_store(four).close("x1", generation=1, epoch=1) is Answer.YES
    await walk.record(walk.retried())
    assert await walk.reopen() == ["a"]
    (applied,) = await new_store(four).free(["x1"])
    assert applied.answer is Answer.YES


async def test_a_partition_that_is_no_more_is_drawn_again(
    redis: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk("a", store=new_store(redis))
    await install(walk, 3)
    assert [one.node_id for one in await free_nodes(walk)] == ["a"]


async def test_a_result_of_an_execution_that_nobody_knows_is_published_once(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk("a", store=new_store(four))
    await walk.submit()
    await walk.store.report([await walk.result("a")])
    lengths = [await four.call("XLEN", keys.results) for keys in four.partitions]
    assert sum(lengths) == 1


async def test_one_lost_partition_loses_its_own_executions_alone(
    four: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
) -> None:
    store = new_store(four)
    walks = [new_walk("a", store=store, execution_id=f"x{index}") for index in range(8)]
    for walk in walks:
        await install(walk, partition_of(walk.execution_id, 4))
    lost = partition_of("x0", 4)
    await four.call("DEL", four.partitions[lost].incarnation_id)
    for walk in walks:
        (answer,) = [one.answer for one in await store.free([walk.execution_id])]
        assert (answer is Answer.UNKNOWN) is (partition_of(walk.execution_id, 4) == lost)
