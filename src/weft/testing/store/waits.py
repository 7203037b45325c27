"""Nodes that wait for something, from the commit that begins a wait until the one that ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import HotStateEvicted, SignalReceived, WaitDue
from weft.core.snapshot import RowUpdate
from weft.core.time import micros
from weft.store.contract import Answer
from weft.testing.store.contract import NEVER, free_nodes, in_flight, phases
from weft.testing.store.parked import status_of
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.core.payload import Json
    from weft.testing.store.contract import StoreBench
    from weft.testing.walk import Walk

SECONDS = 60.0


class WaitContract:
    """Beside ``StoreContract``, with the same fixture ``bench``."""

    LEASE_SECONDS: float

    async def test_a_node_that_waits_has_a_start_and_neither_worker_nor_timer(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(wait("a", seconds=SECONDS), wait("b"))
        assert await walk.begin() == []
        at = walk.clock.now()
        status = await status_of(walk, "a")
        assert (status.phase, status.attempt, status.worker) == ("parked", 1, None)
        assert (status.queued_at, status.started_at, status.due_at) == (at, at, at + micros(SECONDS))
        assert (await status_of(walk, "b")).due_at is None
        assert await walk.store.running("x1") == {}
        walk.clock.advance(SECONDS * 2)
        found = await walk.store.due(idle_seconds=NEVER)
        assert (list(found.parked), list(found.expired), found.next_at) == ([], [], None)

    async def test_it_takes_no_concurrency_slot_and_counts_nowhere(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(wait("a"), wait("b", seconds=SECONDS), node("c"), node("d"), max_concurrency=1)
        assert await walk.begin() == ["c"]
        assert await phases(walk) == {"a": "parked", "b": "parked", "c": "running", "d": "free"}
        assert await in_flight(walk) == (0, 1)
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.slots_taken, status.slots) == (1, 1)

    async def test_its_end_frees_what_follows(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(wait("a"), wait("b", seconds=SECONDS), node("c", "a", "b"), node("d", "a"))
        await walk.begin()
        assert await walk.advance(signal()) == ["d"]
        walk.clock.advance(SECONDS)
        assert await walk.advance(WaitDue("x1", 1, "b", 1)) == ["c"]
        assert await phases(walk) == {"c": "running", "d": "running"}

    async def test_it_ends_while_the_execution_is_paused(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(wait("a"), node("b", "a"))
        await walk.begin()
        await walk.advance(walk.paused())
        assert await walk.advance(signal()) == []
        assert await phases(walk) == {"b": "free"}
        assert await walk.advance(walk.resumed()) == ["b"]

    async def test_it_waits_on_when_the_store_is_rebuilt(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk(node("r"), wait("a", "r", seconds=SECONDS), wait("b", "r"), node("c", "a"))
        await walk.begin()
        await walk.complete("r")
        before = {name: await status_of(walk, name) for name in "ab"}
        await bench.flush()
        assert await walk.rebuild() is Answer.YES
        assert {name: await status_of(walk, name) for name in "ab"} == before
        assert await free_nodes(walk) == []
        assert await in_flight(walk) == (0, 0)
        assert await walk.advance(signal(name="b")) == []
        walk.clock.advance(SECONDS)
        assert await walk.advance(WaitDue("x1", 1, "a", 1)) == ["c"]

    async def test_it_may_leave_the_store_where_nothing_else_is_to_be_done(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(wait("a"), wait("b", seconds=SECONDS), node("c"), node("d", "a"), max_concurrency=2)
        await walk.begin()
        assert list(await walk.store.evictable(["x1", "nowhere"])) == [None, None]
        await walk.complete("c")
        seq = (await walk.execution()).seq
        assert list(await walk.store.evictable(["nowhere", "x1"])) == [None, seq]
        await walk.advance(signal())
        assert await phases(walk) == {"b": "parked", "d": "running"}
        assert list(await walk.store.evictable(["x1"])) == [None]

    async def test_what_was_evicted_is_unknown_until_a_higher_epoch_is_installed(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(wait("a"), node("b", "a"), timeout_seconds=SECONDS)
        late = await walk.submit()
        assert await walk.install(late, fresh=True) is Answer.YES
        (applied,) = await walk.store.free(["x1"])
        await walk.carry_on(applied.free)
        row = await walk.execution()
        recorded_event = await walk.record(
            HotStateEvicted(execution_id="x1", generation=1, epoch=row.epoch, seq=row.seq)
        )
        assert recorded_event.execution is not None
        await walk.store.evict([recorded_event.execution])
        assert await walk.store.inspect("x1") is None
        assert await walk.store.backlog() == 0
        assert await walk.install(late, fresh=True) is Answer.REFUSED
        assert (await walk.store.due(idle_seconds=NEVER)).next_at is None
        ended = await walk.record(signal())
        assert ended.execution is not None
        (applied,) = await walk.store.apply([RowUpdate(ended.execution, walk.plan, ended.rows)])
        assert applied.answer is Answer.UNKNOWN
        assert await walk.rebuild() is Answer.YES
        # No lease has to run out before what follows starts.
        assert await phases(walk) == {"b": "free"}
        # Whoever evicts it late is refused by the epoch.
        await walk.store.evict([recorded_event.execution])
        assert await phases(walk) == {"b": "free"}

    async def test_what_sleeps_or_waits_for_a_retry_is_not_evictable(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        sleeps = node("s", handler="sleep", config={"seconds": SECONDS})
        walk = new_walk(wait("a"), sleeps)
        await walk.begin()
        assert list(await walk.store.evictable(["x1"])) == [None]

    async def test_the_same_row_again_changes_nothing(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(wait("a", expires_seconds=SECONDS), node("b", "a"))
        await walk.begin()
        before = await status_of(walk, "a")
        rows = list((await walk.journal.nodes("x1")).values())
        await walk.store.apply([RowUpdate(await walk.execution(), walk.plan, rows)])
        assert await status_of(walk, "a") == before
        assert (await walk.store.due(idle_seconds=NEVER)).next_at is None
        await walk.advance(signal())
        await walk.store.apply([RowUpdate(await walk.execution(), walk.plan, rows)])
        assert await phases(walk) == {"b": "running"}


def wait(node_id: str, *dependencies: str, **config: Any) -> Json:
    return node(node_id, *dependencies, handler="wait", config=config)


def signal(*, name: str = "a") -> SignalReceived:
    return SignalReceived(
        execution_id="x1", generation=0, name=name, output=b"{}", output_bytes=2, fits=(name,)
    )
