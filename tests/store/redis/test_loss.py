"""What is lost on Redis reads as unknown, whatever it was and whoever lost it: never as "nothing left"."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.task import Result
from weft.envelope import unpack_message, unpack_task
from weft.errors import StoreError
from weft.lru import Lru
from weft.redis.connection import Redis
from weft.store.contract import Answer
from weft.testing.store.contract import as_seen_before, queue, start
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.servers.redis import RedisServer

    from weft.clock import VirtualClock
    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk

# Every byte there is, and what trips up those who take payloads for text.
BYTES = bytes(range(256)) + b"\r\n$-1\r\n\x00\xc3\x28,.a,"


async def keys_of(redis: Redis, pattern: str = "*") -> list[bytes]:
    return sorted(await redis.call("KEYS", pattern))


async def under_way(walk: Walk) -> None:
    """Take `a` and `b` into a worker's hands, and settle `a`: `c` waits for `b` alone."""
    await walk.begin()
    await walk.complete("a")


def join(new_walk: Callable[..., Walk]) -> Walk:
    return new_walk("a", "b", node("c", "a", "b"))


class TestLostKeys:
    async def test_an_execution_is_one_key(self, redis: Redis, new_walk: Callable[..., Walk]) -> None:
        await under_way(join(new_walk))
        assert len(await keys_of(redis, "*x1*")) == 1

    @pytest.mark.parametrize("how", ["DEL", "PEXPIRE"])
    async def test_without_its_key_an_execution_is_unknown_to_every_move(
        self, redis: Redis, new_walk: Callable[..., Walk], how: str
    ) -> None:
        walk = join(new_walk)
        await under_way(walk)
        row = await walk.execution()
        (key,) = await keys_of(redis, "*x1*")
        await redis.call(*(("DEL", key) if how == "DEL" else ("PEXPIRE", key, 0)))
        store = walk.store
        await walk.record(await walk.completed("b"))
        moves = [
            (await store.apply([RowUpdate(row, walk.plan, (await walk.row("b"),))]))[0].answer,
            (await store.free(["x1"]))[0].answer,
            await queue(walk, as_seen_before(walk, row, "c")),
            await start(walk, "b"),
            (await store.renew([walk.lease("b")]))[0],
        ]
        assert moves == [Answer.UNKNOWN] * len(moves)
        assert list(await store.epochs(["x1"])) == [None]
        # And rebuilt it goes on where the journal is.
        assert await walk.rebuild() is Answer.YES
        status = await store.inspect("x1")
        assert status is not None
        assert {name: seen.phase for name, seen in status.nodes.items()} == {"c": "orphaned"}

    async def test_no_key_whose_loss_frees_a_child_early_or_leaves_it_waiting_for_ever(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        """Each key is lost once: the join is freed by its last parent, or a rebuild is asked for."""
        names = None
        index = 0
        while names is None or index < len(names):
            await redis.call("FLUSHDB")
            walk = join(new_walk)
            await under_way(walk)
            names = await keys_of(redis)
            await redis.call("DEL", names[index])
            free = (await store.free(["x1"]))[0]
            assert list(free.free) == [], names[index]
            await store.due(idle_seconds=1e9)
            recorded_event = await walk.record(await walk.completed("b"))
            assert recorded_event.execution is not None
            row_update = RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows)
            (applied,) = await store.apply([row_update])
            assert applied.answer is Answer.UNKNOWN or [one.node_id for one in applied.free] == ["c"], names[
                index
            ]
            index += 1

    @pytest.mark.parametrize("lost", ["leases", "timers", "free", "active"])
    async def test_a_lost_sorted_set_ends_this_incarnation_with_the_next_sweep(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, lost: str
    ) -> None:
        walk = join(new_walk)
        await walk.begin()
        incarnation_id = await store.incarnation_id()
        await redis.call("DEL", getattr(redis.partitions[0], lost))
        await store.due(idle_seconds=1e9)
        assert list(await store.renew([walk.lease("a")])) == [Answer.UNKNOWN]
        assert await store.incarnation_id() != incarnation_id
        assert await store.backlog() == 0

    async def test_without_its_id_everything_is_unknown_and_another_incarnation_begins(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = join(new_walk)
        await under_way(walk)
        await redis.call("DEL", redis.partitions[0].incarnation_id)
        assert (await store.free(["x1"]))[0].answer is Answer.UNKNOWN
        assert await walk.rebuild() is Answer.YES
        assert list(await store.renew([walk.lease("b")])) == [Answer.YES]
        assert await store.backlog() == 2

    async def test_a_tombstone_of_an_earlier_incarnation_says_nothing(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = join(new_walk)
        await store.close("x1", generation=1, epoch=1)
        assert await start(walk, "a") is Answer.REFUSED
        await redis.call("DEL", redis.partitions[0].incarnation_id)
        assert await start(walk, "a") is Answer.UNKNOWN

    async def test_a_hash_that_nobody_touches_is_gone_after_a_while(
        self, redis: Redis, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
    ) -> None:
        store = new_store(redis, ttl_seconds=1000)
        walk = new_walk("a", store=store)
        await walk.begin()
        (key,) = await keys_of(redis, "*x1*")
        assert 990 <= await redis.call("TTL", key) <= 1000
        await redis.call("EXPIRE", key, 5)
        # So long as a worker holds something of it, it is there.
        walk.clock.advance(600)
        await store.renew([walk.lease("a")])
        assert await redis.call("TTL", key) > 990


class TestCounts:
    """The number of unsettled nodes, by which submits are admitted, and the list of open executions."""

    async def test_nodes_of_an_execution_that_was_lost_and_rebuilt_count_once_after_a_sweep(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, clock: VirtualClock
    ) -> None:
        walks = [new_walk("a", "b", execution_id=name) for name in ("x1", "x2")]
        for walk in walks:
            await walk.begin()
        for _ in range(3):
            await redis.call("DEL", redis.partitions[0].execution("x1"))
            assert await walks[0].rebuild() is Answer.YES
        assert await store.backlog() > 4
        await store.idle_since(clock.now())
        assert await store.backlog() == 4
        await walks[0].complete("a", "b")
        assert await store.backlog() == 2
        await walks[1].complete("a", "b")
        assert await store.backlog() == 0

    @pytest.mark.parametrize("number", [None, "-7", "1000"])
    async def test_a_wrong_number_is_counted_anew(
        self,
        redis: Redis,
        new_walk: Callable[..., Walk],
        store: RedisStore,
        clock: VirtualClock,
        number: str | None,
    ) -> None:
        await join(new_walk).begin()
        key = redis.partitions[0].unsettled
        await redis.call(*(("DEL", key) if number is None else ("SET", key, number)))
        await store.idle_since(clock.now())
        assert await store.backlog() == 3

    async def test_what_changes_while_it_is_counted_is_not_undone(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, clock: VirtualClock
    ) -> None:
        walk = new_walk("a", "b")
        await walk.begin()
        await redis.call("SET", redis.partitions[0].unsettled, 1000)
        run = redis.run

        async def late(commands: Any, **where: Any) -> Any:
            replies = await run(commands, **where)
            if commands[-1][0] == "HMGET":
                redis.run = run  # type: ignore[method-assign]
                await walk.complete("a")
            return replies

        redis.run = late  # type: ignore[method-assign]
        await store.idle_since(clock.now())
        assert await store.backlog() == 999
        await store.idle_since(clock.now())
        assert await store.backlog() == 1

    async def test_an_ended_execution_whose_key_is_lost_stays_in_no_list(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, clock: VirtualClock
    ) -> None:
        walk = new_walk("a")
        await walk.install(await walk.submit(), fresh=True)
        await redis.call("DEL", redis.partitions[0].execution("x1"))
        # The sweep is told of it, and lets it go where the journal has it ended.
        assert set(await store.idle_since(clock.now())) == {"x1"}
        assert await store.close("x1", generation=1, epoch=1) is Answer.YES
        assert dict(await store.idle_since(clock.now())) == {}
        keys = redis.partitions[0]
        for key in (keys.active, keys.free):
            assert await redis.call("ZRANGE", key, 0, -1) == [b"!"]
        assert await store.backlog() == 0


class TestScripts:
    async def test_a_server_that_forgot_the_scripts_is_told_them_again(
        self, redis: Redis, new_walk: Callable[..., Walk]
    ) -> None:
        walk = join(new_walk)
        await walk.begin()
        for name, freed in (("a", []), ("b", ["c"]), ("c", [])):
            await redis.call("SCRIPT", "FLUSH")
            result = await walk.result(name)
            await walk.store.report([result])
            await redis.call("SCRIPT", "FLUSH")
            assert await walk.complete(name) == freed
        assert (await walk.execution()).state == "COMPLETED"

    @pytest.mark.parametrize("times", [1, 50])
    async def test_outputs_are_bytes_and_stay_what_they_are(
        self, new_walk: Callable[..., Walk], store: RedisStore, times: int
    ) -> None:
        walk = new_walk("a", node("b", "a", config=["{{ a.output }}"]))
        await walk.begin()
        recorded_event = await walk.record(await walk.completed("a"))
        assert recorded_event.execution is not None
        row = replace(recorded_event.rows[0], output=BYTES * times)
        (applied,) = await store.apply([RowUpdate(recorded_event.execution, walk.plan, (row,))])
        # As it is seen by who brought the row, and by another.
        for given in (applied, *await store.free(["x1"])):
            assert [one.seen for one in given.free] == [{"a": row}]

    @pytest.mark.parametrize("times", [1, 500])
    async def test_inputs_are_bytes_and_the_large_ones_stay_in_the_journal(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore, times: int
    ) -> None:
        walk = new_walk("a", input={"text": "\x00\u00e4," * times * 10})
        given = (await walk.submit()).execution.input
        await walk.install(Snapshot(await walk.execution(), walk.plan, ()), fresh=True)
        kept = await redis.call("HEXISTS", redis.partitions[0].execution("x1"), "i")
        assert bool(kept) is (times == 1)
        ((free,),) = [one.free for one in await store.free(["x1"])]
        assert free.execution.input == (given if times == 1 else b"")

    async def test_what_is_remembered_of_large_inputs_is_bounded(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        store._inputs = Lru(1000, store._inputs._weigh)
        for number in range(20):
            walk = new_walk("a", execution_id=f"x{number}", input={"text": "x" * 100_000})
            await walk.submit()
            await walk.install(Snapshot(await walk.execution(), walk.plan, ()), fresh=True)
            await store.free([f"x{number}"])
        assert 0 < len(store._inputs) < 5

    async def test_results_and_configs_are_bytes_and_stay_what_they_are(
        self, redis: Redis, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk("a")
        assert await walk.install(await walk.submit(), fresh=True) is Answer.YES
        ((free,),) = [one.free for one in await store.free(["x1"])]
        await walk.hand_out(free, BYTES)
        keys = redis.partitions[0]
        ((_, (_, task, _, queued_at)),) = await redis.call("XRANGE", keys.lane("echo", "echo", 1), "-", "+")
        assert unpack_task(task).config == BYTES
        assert int(queued_at) == walk.clock.now()
        assert await redis.call("SMEMBERS", keys.lanes) == [b"echo|echo|1"]
        await store.report([await walk.result("a", output=BYTES)])
        ((_, (_, wire)),) = await redis.call("XRANGE", keys.results, "-", "+")
        result = unpack_message(wire)
        assert isinstance(result, Result)
        assert result.output == BYTES

    async def test_a_worker_and_a_nonce_are_any_text(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk("a")
        assert await walk.install(await walk.submit(), fresh=True) is Answer.YES
        ((free,),) = [one.free for one in await store.free(["x1"])]
        await queue(walk, free)
        odd = "nönce\x00,:|"
        assert await start(walk, "a", nonce=odd) is Answer.YES
        assert await start(walk, "a", nonce=odd) is Answer.YES
        assert await start(walk, "a", nonce="nönce") is Answer.REFUSED

    async def test_a_name_that_no_node_has_is_refused(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        for name in ("!", "x", "F0", "", ".a", "a,b", "ä"):
            assert await start(walk, name) is Answer.REFUSED


class TestServers:
    async def test_without_a_clock_of_its_own_the_time_is_the_servers(
        self, redis: Redis, new_walk: Callable[..., Walk], new_store: Callable[..., RedisStore]
    ) -> None:
        store = new_store(redis, now=None, lease_seconds=0.2)
        walk = new_walk("a", store=store)
        submitted = await walk.submit()
        seconds, _ = await redis.call("TIME")
        row = replace(submitted.execution, updated_at=int(seconds) * 1_000_000)
        assert await walk.install(Snapshot(row, walk.plan, ()), fresh=True) is Answer.YES
        ((free,),) = [one.free for one in await store.free(["x1"])]
        await queue(walk, free)
        assert await start(walk, "a") is Answer.YES
        (running,) = (await store.running("x1")).values()
        assert running.started_at is not None
        assert abs(running.started_at // 1_000_000 - int(seconds)) <= 1
        due = await store.due(idle_seconds=1e9)
        assert due.next_at == running.started_at + 200_000
        while not due.expired:
            due = await store.due(idle_seconds=1e9)
        assert [one.node_id for one in due.expired] == ["a"]

    async def test_a_server_that_was_restarted_with_its_data_counts_as_lost(
        self, private_redis: RedisServer, new_store: Callable[..., RedisStore], new_walk: Callable[..., Walk]
    ) -> None:
        redis = Redis(private_redis.url)
        store = new_store(redis)
        walk = new_walk("a", "b", store=store)
        await walk.begin()
        incarnation_id = await store.incarnation_id()
        private_redis.stop()
        private_redis.start()
        answers = None
        while answers is None:
            try:
                answers = list(await store.renew([walk.lease("a")]))
            except StoreError:  # until it is reached again
                await asyncio.sleep(0.05)
        assert answers == [Answer.UNKNOWN]
        assert await store.incarnation_id() != incarnation_id
        assert await store.backlog() == 0
        assert await walk.rebuild() is Answer.YES
        assert list(await store.renew([walk.lease("a")])) == [Answer.YES]
        await redis.close()

    async def test_of_a_server_that_fell_back_no_hash_is_left_that_nobody_would_come_for(
        self, redis: Redis, redis_url: str, new_walk: Callable[..., Walk]
    ) -> None:
        await under_way(join(new_walk))
        assert len(await keys_of(redis, "*x1*")) == 1
        # As a replica has it that was another server's: the execution may have ended since.
        await redis.call("SET", redis.partitions[0].server, "another")
        other = Redis(redis_url)
        await other.call("PING")
        assert other.wiped == 1
        assert await keys_of(redis, "*x1*") == []
        await other.close()

    async def test_a_life_that_began_after_a_flush_goes_on_when_others_connect(
        self,
        redis: Redis,
        redis_url: str,
        new_store: Callable[..., RedisStore],
        new_walk: Callable[..., Walk],
        store: RedisStore,
    ) -> None:
        walk = join(new_walk)
        await walk.begin()
        await redis.call("FLUSHDB")
        assert await walk.rebuild() is Answer.YES
        incarnation_id = await store.incarnation_id()
        other = Redis(redis_url)
        assert await new_store(other).incarnation_id() == incarnation_id
        assert list(await store.renew([walk.lease("a")])) == [Answer.YES]
        await other.close()

    async def test_a_heartbeat_may_come_from_another_thread(
        self, new_walk: Callable[..., Walk], store: RedisStore
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        held = walk.lease("a")
        answers = await asyncio.to_thread(lambda: asyncio.run(store.renew([held])))
        assert list(answers) == [Answer.YES]
        assert list(await store.renew([held])) == [Answer.YES]
