"""Wide workflows on Redis: everything goes in bounded pieces, and no piece holds the server up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.state import NodeState
from weft.errors import StoreError
from weft.store.contract import Answer
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.decide import FreeNode
    from weft.core.rows import NodeRow
    from weft.redis.connection import Redis
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

WIDTH = 10_000
# A script that takes longer holds up every heartbeat. Generous: the machine may be busy.
MOST_MICROSECONDS = 50_000


@pytest.fixture
async def slow_log(redis: Redis) -> None:
    await redis.call("CONFIG", "SET", "slowlog-log-slower-than", MOST_MICROSECONDS)
    await redis.call("SLOWLOG", "RESET")


async def slow_calls(redis: Redis) -> list[bytes]:
    return [entry[3][0] for entry in await redis.call("SLOWLOG", "GET", 10)]


def names(width: int) -> list[str]:
    return [f"n{index}" for index in range(width)]


def fan(new_walk: Callable[..., Walk], width: int, **fields: Any) -> Walk:
    return new_walk(
        "root", *[node(name, "root") for name in names(width)], node("join", *names(width), **fields)
    )


async def settled(walk: Walk, node_id: str, output: object = None) -> NodeRow:
    recorded_event = await walk.record(await walk.completed(node_id, output))
    (row,) = recorded_event.rows
    return row


async def apply(walk: Walk, rows: Sequence[NodeRow]) -> Sequence[FreeNode]:
    (applied,) = await walk.store.apply([RowUpdate(await walk.execution(), walk.plan, rows)])
    assert applied.answer is Answer.YES
    return applied.free


@pytest.mark.usefixtures("slow_log")
class TestTenThousand:
    async def test_a_fan_out_and_in_holds_nobody_up(
        self, redis: Redis, new_walk: Callable[..., Walk]
    ) -> None:
        walk = fan(new_walk, WIDTH)
        await walk.begin()
        free = await apply(walk, [await settled(walk, "root")])
        # As many as have a place, the first first.
        assert [one.node_id for one in free] == names(1000)
        assert [row.node_id for row in free[-1].parents] == ["root"]
        row = free[0].parents[0]
        settled_rows = [type(row)(node_id=name, state=NodeState.COMPLETED) for name in names(WIDTH)]
        given: Sequence[FreeNode] = ()
        for start in range(0, WIDTH, 2500):
            given = await apply(walk, settled_rows[start : start + 2500])
        (last,) = given
        assert last.node_id == "join"
        assert [parent.node_id for parent in last.parents] == names(WIDTH)
        status = await walk.store.inspect("x1")
        assert status is not None
        assert {name: seen.phase for name, seen in status.nodes.items()} == {"join": "free"}
        assert await slow_calls(redis) == []

    async def test_an_install_in_parts_holds_nobody_up(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = fan(new_walk, WIDTH)
        await walk.begin()
        row = await settled(walk, "root")
        snapshot = await walk.journal.rebuild("x1", seen_epoch=1)
        assert snapshot is not None
        halves = [type(row)(node_id=name, state=NodeState.COMPLETED) for name in names(WIDTH)[::2]]
        snapshot = Snapshot(snapshot.execution, walk.plan, [*snapshot.rows, *halves])
        assert await walk.install(snapshot, fresh=False) is Answer.YES
        assert list(await store.in_flight(["x1"])) == [(WIDTH // 2, 0)]
        status = await store.inspect("x1", names=["join", "n1"])
        assert status is not None
        assert len(status.nodes["join"].awaited) == WIDTH // 2
        assert status.nodes["n1"].phase == "orphaned"
        assert await slow_calls(redis) == []


class TestParts:
    async def test_a_fan_out_that_was_cut_short_is_completed_by_the_same_row_again(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = fan(new_walk, 2000)
        await walk.begin()
        row = await settled(walk, "root")
        execution = await walk.execution()
        row_update = RowUpdate(execution, walk.plan, (row,))
        # The first call was made, and those with the other dependents were not.
        run = redis.scripts

        async def cut_short(calls: Any, **where: Any) -> None:
            await run(calls[:1], **where)
            raise StoreError("the connection is gone")

        redis.scripts = cut_short  # type: ignore[method-assign,assignment]
        with pytest.raises(StoreError, match="gone"):
            await store.apply([row_update])
        redis.scripts = run  # type: ignore[method-assign]
        status = await store.inspect("x1")
        assert status is not None
        assert 0 < len(status.nodes) < 2000
        assert [one.node_id for one in await apply(walk, [row])] == names(1000)

    async def test_until_its_last_part_an_execution_is_there_for_nobody(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = fan(new_walk, 2000)
        await walk.begin()
        row = await settled(walk, "root")
        held = walk.lease("root")
        first = await walk.journal.rebuild("x1", seen_epoch=1)
        second = await walk.journal.rebuild("x1", seen_epoch=2)
        assert first is not None
        assert second is not None
        incarnation_id = await store.incarnation_id()
        run = redis.scripts
        seen: list[object] = []

        async def watched(calls: object, **where: object) -> object:
            reply = await run(calls, **where)  # type: ignore[arg-type]
            redis.scripts = run  # type: ignore[method-assign]
            seen.extend(await store.renew([held]))
            seen.extend(await store.epochs(["x1"]))
            seen.append((await store.apply([RowUpdate(first.execution, walk.plan, (row,))]))[0].answer)
            # Nothing that is listed by time goes away with it.
            walk.clock.advance(100)
            await store.due(idle_seconds=0)
            # A builder that comes later wins, also over one that is not done.
            seen.extend(await store.install([second], incarnation_id=incarnation_id, fresh=False))
            return reply

        redis.scripts = watched  # type: ignore[assignment]
        assert list(await store.install([first], incarnation_id=incarnation_id, fresh=False)) == [
            Answer.REFUSED
        ]
        assert seen == [Answer.UNKNOWN, None, Answer.UNKNOWN, Answer.YES]
        assert list(await store.epochs(["x1"])) == [3]
        assert list(await store.in_flight(["x1"])) == [(2000, 0)]
        walk.clock.advance(15)
        assert len((await store.due(idle_seconds=1e9)).expired) == 2000

    async def test_what_is_due_comes_in_looks_of_a_thousand(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk(*names(2500))
        await walk.install(await walk.submit(), fresh=True)
        await walk.rebuild()
        walk.clock.advance(15)
        due = await store.due(idle_seconds=1e9)
        assert {one.node_id for one in due.expired} == set(names(2500))
        assert due.next_at == walk.clock.now()

    async def test_places_and_free_nodes_are_given_in_order_over_all_parts_of_the_lists(
        self, new_walk: Callable[..., Walk], new_store: Callable[..., RedisStore], redis: Redis
    ) -> None:
        walk = new_walk(*names(1000), store=new_store(redis, window=450))
        handed_out = await walk.begin()
        assert handed_out == names(450)
        # They settle in another order than they were started in.
        for name in [*names(450)[::-2], *names(450)[::2]]:
            handed_out += await walk.complete(name)
        assert handed_out == names(900)
        assert set(await walk.store.running("x1")) == set(names(900)[450:])

    async def test_what_is_free_is_told_also_where_the_last_of_several_calls_merged_nothing(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        old = replace(await walk.execution())
        assert await walk.rebuild() is Answer.YES
        row = await settled(walk, "a")
        news, late = (RowUpdate(one, walk.plan, (row,)) for one in (await walk.execution(), old))
        first, *others = await store.apply([news, *[late] * 60])
        assert {one.answer for one in others} == {Answer.REFUSED}
        assert [one.node_id for one in first.free] == ["b"]

    async def test_an_early_rule_over_many_parents_sees_what_had_settled(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = fan(new_walk, 40, trigger_rule="one_success")
        await walk.begin()
        rows = [await settled(walk, "root")]
        await apply(walk, rows)
        free = await apply(walk, [await settled(walk, "n33"), await settled(walk, "n7")])
        (join,) = [one for one in free if one.node_id == "join"]
        # Woken by the first of the two.
        assert [row.node_id for row in join.parents] == ["n33"]
        assert join.waiting == 39
