"""An execution whose hash is garbage, or no hash, is dropped and rebuilt; its neighbours go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from weft.core.snapshot import RowUpdate
from weft.envelope import unpack_all, unpack_message
from weft.errors import StoreKeyError
from weft.store.contract import Answer, StartRequest
from weft.testing.walk import WORKER, node, nonce

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.task import Task
    from weft.redis.connection import Redis
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

COUNT, BAD = 7, 3
NEVER = 1e9

T = TypeVar("T")


async def put_a_string(redis: Redis, key: str) -> None:
    await redis.call("SET", key, "garbage")


async def put_a_list(redis: Redis, key: str) -> None:
    await redis.call("DEL", key)
    await redis.call("RPUSH", key, "garbage")


async def put_another_hash(redis: Redis, key: str) -> None:
    await redis.call("DEL", key)
    await redis.call("HSET", key, "!", "garbage", "x", "garbage")


async def spoil_the_records(redis: Redis, key: str) -> None:
    await redis.call("HSET", key, ".a", "garbage", ".b", "", ".c", "g" * 100)


async def spoil_the_row(redis: Redis, key: str) -> None:
    await redis.call("HSET", key, "x", "garbage", "h", b"\xff")


async def spoil_the_lists(redis: Redis, key: str) -> None:
    await redis.call("HSET", key, "F0", ",.nobody,", "P0", "garbage")


POISONS = [
    put_a_string,
    put_a_list,
    put_another_hash,
    spoil_the_records,
    spoil_the_row,
    spoil_the_lists,
]


@pytest.fixture
def several(new_walk: Callable[..., Walk]) -> list[Walk]:
    return [new_walk("a", "b", node("c", "a"), execution_id=f"x{number}") for number in range(COUNT)]


@pytest.fixture(params=POISONS)
def poison(request: pytest.FixtureRequest, redis: Redis) -> Callable[[], Awaitable[None]]:
    async def given() -> None:
        await request.param(redis, redis.partitions[0].execution(f"x{BAD}"))

    return given


def others(answers: Sequence[T]) -> list[T]:
    """Return what is not of the bad execution."""
    return [answer for number, answer in enumerate(answers) if number != BAD]


async def begin(walks: Sequence[Walk]) -> None:
    for walk in walks:
        await walk.begin()


async def install(walks: Sequence[Walk]) -> list[Task]:
    """Install executions; return the tasks of their nodes `a`."""
    for walk in walks:
        assert await walk.install(await walk.submit(), fresh=True) is Answer.YES
    given = await walks[0].store.free([walk.execution_id for walk in walks])
    return [walk.task(one.free[0]) for walk, one in zip(walks, given, strict=True)]


async def is_rebuilt(walks: Sequence[Walk]) -> None:
    """The bad execution goes on where the journal is, and the store holds all of them."""
    bad = walks[BAD]
    assert await bad.rebuild() is Answer.YES
    for walk in walks:
        status = await bad.store.inspect(walk.execution_id)
        assert status is not None
        assert status.nodes


async def test_free(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await install(several)
    await poison()
    given = await store.free([walk.execution_id for walk in several])
    assert [[free.node_id for free in one.free] for one in others(given)] == [["a", "b"]] * (COUNT - 1)
    assert given[BAD].answer in (Answer.UNKNOWN, Answer.YES)
    await is_rebuilt(several)


async def test_queue(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    tasks = await install(several)
    await poison()
    assert set(others(await store.queue(tasks))) == {Answer.YES}
    await is_rebuilt(several)


async def test_start(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    tasks = await install(several)
    assert set(await store.queue(tasks)) == {Answer.YES}
    await poison()
    requests = [StartRequest(walk.execution_id, 1, "a", 1, nonce("a", 1), WORKER) for walk in several]
    assert {one.answer for one in others(await store.start(requests))} == {Answer.YES}
    await is_rebuilt(several)


async def test_beat(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await begin(several)
    await poison()
    assert set(others(await store.renew([walk.lease("a") for walk in several]))) == {Answer.YES}
    await is_rebuilt(several)
    # And the worker that lives has its attempt still.
    assert list(await store.renew([several[BAD].lease("a")])) == [Answer.YES]


async def test_report(
    several: list[Walk], store: RedisStore, redis: Redis, poison: Callable[[], Awaitable[None]]
) -> None:
    await begin(several)
    results = [await walk.result("a") for walk in several]
    await poison()
    await store.report(results)
    ((_, (_, wire)),) = await redis.call("XRANGE", redis.partitions[0].results, "-", "+")
    assert [unpack_message(one) for one in unpack_all(wire)] == results
    for walk in others(several):
        status = await store.inspect(walk.execution_id)
        assert status is not None
        assert status.nodes["a"].phase == "running"
    await is_rebuilt(several)


async def test_apply(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await begin(several)
    row_updates = []
    for walk in several:
        recorded_event = await walk.record(await walk.completed("a"))
        assert recorded_event.execution is not None
        row_updates.append(RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows))
    await poison()
    applied = await store.apply(row_updates)
    assert [[free.node_id for free in one.free] for one in others(applied)] == [["c"]] * (COUNT - 1)
    await is_rebuilt(several)


async def test_an_end_is_applied(
    several: list[Walk], store: RedisStore, redis: Redis, poison: Callable[[], Awaitable[None]]
) -> None:
    await begin(several)
    row_updates = []
    for walk in several:
        recorded_event = await walk.record(walk.cancelled())
        assert recorded_event.execution is not None
        row_updates.append(RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows))
    await poison()
    assert {one.answer for one in await store.apply(row_updates)} == {Answer.YES}
    # Of the bad one, too, there is a tombstone.
    assert set(await store.renew([walk.lease("a") for walk in several])) == {Answer.REFUSED}


async def test_close(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await begin(several)
    await poison()
    assert await store.close(f"x{BAD}", generation=1, epoch=1) is Answer.YES
    assert list(await store.renew([several[BAD].lease("a")])) == [Answer.REFUSED]


async def test_due(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await begin(several)
    several[0].clock.advance(16)
    await poison()
    due = await store.due(idle_seconds=NEVER)
    expired = {(one.execution_id, one.node_id) for one in due.expired}
    assert expired >= {(walk.execution_id, name) for walk in others(several) for name in "ab"}
    await is_rebuilt(several)


async def test_install(several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]) -> None:
    await begin(several)
    await poison()
    snapshots = [await walk.journal.rebuild(walk.execution_id, seen_epoch=1) for walk in several]
    found = [snapshot for snapshot in snapshots if snapshot is not None]
    assert set(await store.install(found, incarnation_id=await store.incarnation_id(), fresh=False)) == {
        Answer.YES
    }


async def test_those_who_look_on(
    several: list[Walk], store: RedisStore, poison: Callable[[], Awaitable[None]]
) -> None:
    await begin(several)
    await poison()
    ids = [walk.execution_id for walk in several]
    assert set(others(await store.epochs(ids))) == {1}
    assert set(others(await store.in_flight(ids))) == {(0, 2)}
    assert (await store.running_by_queue())["echo"] >= 2 * (COUNT - 1)
    assert others(list(await store.idle_since(several[0].clock.now()))) != []
    for walk in several:
        status, running = await store.inspect(walk.execution_id), await store.running(walk.execution_id)
        if walk is not several[BAD]:
            assert status is not None
            assert set(status.nodes) == set(running) == {"a", "b"}
    await is_rebuilt(several)


async def test_a_key_that_all_share_costs_no_execution_its_hash(
    several: list[Walk], store: RedisStore, redis: Redis
) -> None:
    await begin(several)
    await redis.call("SET", redis.partitions[0].leases, "garbage")
    with pytest.raises(StoreKeyError, match="leases"):
        await store.renew([walk.lease("a") for walk in several])
    ids = [walk.execution_id for walk in several]
    assert list(await store.epochs(ids)) == [1] * COUNT


async def test_a_lane_that_is_no_stream_refuses_its_own_tasks_alone(
    several: list[Walk], store: RedisStore, redis: Redis, new_walk: Callable[..., Walk]
) -> None:
    walk = new_walk(node("n", queue="spoiled"), execution_id="spoiled")
    tasks = await install([*several, walk])
    lane = redis.partitions[0].lane("spoiled", "echo", 1)
    await redis.call("SET", lane, "garbage")
    assert list(await store.queue(tasks)) == [Answer.YES] * COUNT + [Answer.REFUSED]
    with pytest.raises(StoreKeyError, match=r"spoiled\|echo\|1 in Redis is a string.*redis-cli DEL"):
        await store.check()
    # The node stays free, and goes out once the key is deleted.
    await redis.call("DEL", lane)
    await store.check()
    walk.clock.advance(10)
    assert ("spoiled", 1) in (await store.due(idle_seconds=5)).woken
    assert list(await store.queue(tasks[-1:])) == [Answer.YES]
    assert await redis.call("XLEN", lane) == 1


@pytest.mark.parametrize(
    "name", ["leases", "timers", "free", "active", "results", "lanes", "incarnation_id", "swept"]
)
async def test_a_key_of_another_type_is_named_with_what_to_do(
    several: list[Walk], store: RedisStore, redis: Redis, name: str
) -> None:
    await begin(several)
    await store.check()
    key = getattr(redis.partitions[0], name)
    await redis.call("DEL", key)
    await redis.call("HSET", key, "a", "hash")
    with pytest.raises(StoreKeyError, match=f"{key}' *.*makes it anew".replace("{", r"\{").replace("'", "")):
        await store.check()
    await redis.call("DEL", key)
    await store.check()
