"""Nodes that no worker has in hand: parked from the commit that starts them until their time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.core.attempt import AttemptRef
from weft.core.decide import ParkNode
from weft.core.event import ParkedDue
from weft.core.snapshot import RowUpdate
from weft.core.time import micros
from weft.store.contract import PARKED_AGAIN_SECONDS, PARKED_LISTED_SECONDS, Answer
from weft.testing.store.contract import NEVER, expired, free_nodes, in_flight, phases
from weft.testing.walk import node

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.payload import Json
    from weft.store.contract import NodeStatus
    from weft.testing.store.contract import StoreBench
    from weft.testing.walk import Walk

SECONDS = 60.0


class ParkedContract:
    """Beside ``StoreContract``, with the same fixture ``bench``."""

    LEASE_SECONDS: float

    async def test_a_parked_node_has_a_start_and_no_worker(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk(sleep("a"))
        assert await walk.begin() == []
        at = walk.clock.now()
        status = await status_of(walk, "a")
        assert (status.phase, status.attempt, status.worker) == ("parked", 1, None)
        assert (status.queued_at, status.started_at, status.due_at) == (at, at, at + micros(SECONDS))
        assert await free_nodes(walk) == []
        # A parked node has no lease and no task: nobody renews it, and it does not run out.
        assert await walk.store.running("x1") == {}
        assert await walk.store.running_by_queue() == {}
        if bench.sent is not None:
            assert list(await bench.sent()) == []
        walk.clock.advance(self.LEASE_SECONDS * 2)
        await due(walk)
        walk.clock.advance(self.LEASE_SECONDS)
        assert await expired(walk) == []

    async def test_it_is_due_at_its_time_and_again_after_a_while(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(sleep("a"), sleep("b", seconds=SECONDS * 2))
        await walk.begin()
        begun = walk.clock.now()
        walk.clock.advance(SECONDS - 0.001)
        assert await due(walk) == []
        assert (await walk.store.due(idle_seconds=NEVER)).next_at == begun + micros(SECONDS)
        walk.clock.advance(0.001)
        assert await due(walk) == [AttemptRef("x1", 1, "a", 1)]
        # The commit that should follow may be lost.
        assert await due(walk) == []
        assert await phases(walk) == {"a": "parked", "b": "parked"}
        walk.clock.advance(PARKED_LISTED_SECONDS)
        assert await due(walk) == [AttemptRef("x1", 1, "a", 1)]

    async def test_what_is_behind_it_is_free_when_its_end_is_recorded(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(sleep("a"), node("b", "a"))
        await walk.begin()
        walk.clock.advance(SECONDS)
        assert await walk.advance(*events(await due(walk))) == ["b"]
        walk.clock.advance(self.LEASE_SECONDS * 2)
        assert await due(walk) == []
        row = await walk.row("a")
        assert row.output == b'{"seconds":60.0}'
        assert (row.worker, row.finished_at) == (None, (row.started_at or 0) + micros(SECONDS))

    async def test_the_same_row_again_changes_no_time(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(sleep("a"))
        await walk.begin()
        before = await status_of(walk, "a")
        for _ in range(2):
            walk.clock.advance(1)
            await merge(walk, "a")
        assert await status_of(walk, "a") == before
        assert await in_flight(walk) == (0, 1)
        walk.clock.advance(SECONDS - 2)
        assert await due(walk) == [AttemptRef("x1", 1, "a", 1)]

    async def test_what_is_not_due_for_the_journal_yet_is_due_again_soon(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(sleep("a"))
        await walk.begin()
        walk.clock.advance(SECONDS)
        assert len(await due(walk)) == 1
        await merge(walk, "a")
        assert await due(walk) == []
        walk.clock.advance(PARKED_AGAIN_SECONDS)
        assert len(await due(walk)) == 1

    async def test_without_a_limit_of_its_execution_it_takes_no_slot(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        sleepers = [sleep(f"s{number}") for number in range(5)]
        walk = new_walk(*sleepers, "a", "b", "c", "d")
        assert await walk.begin() == ["a", "b", "c"]
        assert set((await phases(walk)).values()) == {"parked", "running", "free"}
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.slots_taken, status.slots) == (3, 3)
        assert await in_flight(walk) == (0, 8)
        walk.clock.advance(SECONDS)
        await walk.advance(*events(await due(walk)))
        assert await in_flight(walk) == (0, 3)

    async def test_under_max_concurrency_it_takes_a_slot_until_it_ends(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(sleep("s"), "a", "b", max_concurrency=2)
        assert await walk.begin() == ["a"]
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.slots_taken, status.slots) == (2, 2)
        assert await in_flight(walk) == (0, 2)
        assert await free_nodes(walk) == []
        walk.clock.advance(SECONDS)
        assert await walk.advance(*events(await due(walk))) == ["b"]

    async def test_a_rebuild_keeps_its_time(self, new_walk: Callable[..., Walk], bench: StoreBench) -> None:
        for fields in ({}, {"max_concurrency": 2}):
            name = f"x{len(fields)}"
            walk = new_walk("a", sleep("s", "a"), "b", execution_id=name, **fields)
            await walk.begin()
            await walk.complete("a")
            before, counted = await status_of(walk, "s"), await in_flight(walk)
            walk.clock.advance(SECONDS / 2)
            await bench.flush()
            assert await walk.rebuild() is Answer.YES
            # The other one may be in hand: it has a slot, and is not known to run.
            assert counted == (0, 2)
            assert await in_flight(walk) == (1, 1)
            assert await phases(walk) == {"s": "parked", "b": "orphaned"}
            assert await status_of(walk, "s") == before
            walk.clock.advance(SECONDS / 2)
            assert await due(walk) == [AttemptRef(name, 1, "s", 1)]

    async def test_a_rebuild_long_after_its_time_lets_it_be_due_at_once(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(sleep("s"))
        await walk.begin()
        walk.clock.advance(SECONDS * 10)
        assert await walk.rebuild() is Answer.YES
        assert await due(walk) == [AttemptRef("x1", 1, "s", 1)]

    async def test_a_rebuild_orphans_none_that_has_not_started(self, new_walk: Callable[..., Walk]) -> None:
        """Nobody can have it in hand: its start would be in the journal."""
        walk = new_walk(sleep("s"), "a")
        snapshot = await walk.submit()
        assert await walk.install(snapshot, fresh=True) is Answer.YES
        assert await walk.rebuild() is Answer.YES
        assert await phases(walk) == {"s": "free", "a": "orphaned"}

    async def test_a_pause_lets_it_go_on(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(sleep("s"), node("a", "s"))
        await walk.begin()
        await walk.advance(walk.paused())
        walk.clock.advance(SECONDS)
        assert await walk.advance(*events(await due(walk))) == []
        assert (await walk.row("s")).is_settled
        assert await walk.advance(walk.resumed()) == ["a"]

    async def test_nothing_of_it_is_due_when_its_execution_has_ended(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(sleep("s"))
        await walk.begin()
        await walk.advance(walk.cancelled())
        walk.clock.advance(SECONDS)
        assert await due(walk) == []
        row = await walk.row("s")
        assert (row.ended, row.worker, row.started_at is not None) == (1, None, True)

    @pytest.mark.parametrize("is_told_of_the_rows", [False, True])
    async def test_no_timer_is_left_of_sleeps_when_their_execution_has_ended(
        self, new_walk: Callable[..., Walk], is_told_of_the_rows: bool
    ) -> None:
        other = new_walk(sleep("z", seconds=SECONDS * 5), execution_id="x2")
        await other.begin()
        walk = new_walk(*[sleep(f"s{number}") for number in range(1500)])
        await park_all(walk)
        ended = await walk.record(walk.cancelled())
        assert ended.execution is not None
        row = ended.execution
        if is_told_of_the_rows:
            await walk.apply(ended)
        else:
            await walk.store.close(row.id, generation=row.generation, epoch=row.epoch, plan=walk.plan)
        # The sweep need not wake for them, and is not kept from what goes on.
        assert (await walk.store.due(idle_seconds=NEVER)).next_at == (await status_of(other, "z")).due_at
        other.clock.advance(SECONDS * 5)
        assert await due(other) == [AttemptRef("x2", 1, "z", 1)]

    async def test_a_retry_parks_the_next_attempt_anew(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(sleep("s"))
        await walk.begin()
        await walk.advance(walk.cancelled())
        walk.clock.advance(SECONDS / 2)
        await walk.record(walk.retried())
        await walk.reopen()
        status = await status_of(walk, "s")
        assert (status.phase, status.attempt, status.started_at) == ("parked", 2, walk.clock.now())
        walk.clock.advance(SECONDS)
        assert await due(walk) == [AttemptRef("x1", 2, "s", 2)]

    async def test_many_are_due_at_once(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(*[sleep(f"s{number}") for number in range(1500)])
        await park_all(walk)
        assert await in_flight(walk) == (0, 1500)
        walk.clock.advance(SECONDS)
        assert len(set(await due(walk))) == 1500


def sleep(node_id: str, *dependencies: str, seconds: float = SECONDS, **fields: Any) -> Json:
    """Write a node that sleeps."""
    return node(node_id, *dependencies, handler="sleep", config={"seconds": seconds}, **fields)


async def park_all(walk: Walk) -> None:
    """Begin a walk whose nodes all sleep at once."""
    assert await walk.install(await walk.submit(), fresh=True) is Answer.YES
    while free := await free_nodes(walk):
        for one in free:
            decision = walk.decide(one)
            assert isinstance(decision, ParkNode)
            await walk.apply(await walk.record(walk.event_of(one, decision)))


async def due(walk: Walk) -> list[AttemptRef]:
    """Sweep, and give the parked attempts whose time has come."""
    return list((await walk.store.due(idle_seconds=NEVER)).parked)


def events(attempts: Sequence[AttemptRef]) -> list[ParkedDue]:
    return [ParkedDue(one.execution_id, one.generation, one.node_id, one.attempt) for one in attempts]


async def merge(walk: Walk, node_id: str) -> None:
    """Apply the node's row once more."""
    row = await walk.execution()
    await walk.store.apply([RowUpdate(row, walk.plan, (await walk.row(node_id),))])


async def status_of(walk: Walk, node_id: str) -> NodeStatus:
    status = await walk.store.inspect(walk.execution_id)
    assert status is not None
    return status.nodes[node_id]
