"""The contract of every store, as tests. An adapter's suite is a subclass with the fixture ``bench``::

    class TestRedisStore(StoreContract):
        @pytest.fixture
        async def bench(self, clock: VirtualClock, redis_url: str) -> AsyncIterator[StoreBench]:
            ...

The store is built with the sizes and times below, and takes the time from ``clock``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import VirtualClock
from weft.core.decide import FreeNode
from weft.core.event import AttemptIssued, DeadlinePassed, Event, ExecutionStarted, HaltObserved
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.state import ExecutionState
from weft.core.time import micros
from weft.store.contract import (
    FIRST_INSTALL_SECONDS,
    Answer,
    Expired,
    Started,
    StartRequest,
    StateStore,
    StoreOptions,
    WorkerState,
    WorkerStatus,
)
from weft.testing.walk import WORKER, Walk, node, nonce, workflow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow
    from weft.core.task import Result, Task

NEVER = 1e9


@dataclass(frozen=True, slots=True)
class StoreBench:
    """A store to be tried, and what it does to the world."""

    store: StateStore
    # What was appended to the result stream so far.
    published: Callable[[], Awaitable[Sequence[Result]]]
    # What was sent to workers so far; None where moving and sending are two steps.
    sent: Callable[[], Awaitable[Sequence[Task]]] | None
    # Lose everything, as a server that is restarted empty does.
    flush: Callable[[], Awaitable[None]]


class StoreContract:
    WINDOW = 3
    LEASE_SECONDS = 15.0
    REPORTED_SECONDS = 300.0

    def options(self) -> StoreOptions:
        return StoreOptions(
            window=self.WINDOW, lease_seconds=self.LEASE_SECONDS, reported_seconds=self.REPORTED_SECONDS
        )

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    async def bench(self, clock: VirtualClock) -> StoreBench:
        raise NotImplementedError("an adapter's suite gives this fixture")

    @pytest.fixture
    def store(self, bench: StoreBench) -> StateStore:
        return bench.store

    @pytest.fixture
    def new_walk(self, store: StateStore, clock: VirtualClock) -> Callable[..., Walk]:
        """Make a walk on the store under test."""

        def made(*nodes: Json, **fields: Any) -> Walk:
            execution_id = fields.pop("execution_id", "x1")
            return Walk(workflow(*nodes, **fields), store=store, clock=clock, execution_id=execution_id)

        return made

    # -- install -----------------------------------------------------------------------------------

    async def test_a_fresh_install_frees_the_roots(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", node("c", "a"))
        await installed(walk)
        free = await free_nodes(walk)
        assert [one.node_id for one in free] == ["a", "b"]
        assert {(one.attempt, one.failures, one.losses, one.issued, one.released) for one in free} == {
            (1, 0, 0, 0, False)
        }
        assert all((one.parents, one.seen, one.waiting) == ((), {}, 0) for one in free)

    async def test_an_install_that_is_not_fresh_orphans_what_is_ready(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", node("c", "a"))
        await installed(walk)
        assert await walk.rebuild() is Answer.YES
        assert await free_nodes(walk) == []
        assert await phases(walk) == {"a": "orphaned", "b": "orphaned"}
        status = await walk.store.inspect("x1")
        assert status is not None
        assert status.slots_taken == 2

    async def test_only_what_a_paused_execution_had_in_hand_is_orphaned_by_a_rebuild(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        """A queued node was not started: the node is free again, as the same attempt, and starts once."""
        walk = new_walk("running", "queued", "done", node("behind", "done"))
        await installed(walk)
        await walk.apply(await walk.record(ExecutionStarted(execution_id="x1", generation=1)))
        nodes = {one.node_id: one for one in await free_nodes(walk)}
        for name in ("running", "done", "queued"):
            assert await queue(walk, nodes[name]) is Answer.YES
        for name in ("running", "done"):
            assert await start(walk, name) is Answer.YES
        paused = await walk.record(walk.paused())
        await walk.apply(paused)
        assert paused.execution is not None
        in_hand = {"running": 1, "done": 1}
        await walk.record(
            HaltObserved(
                execution_id="x1", generation=1, epoch=1, paused_seq=paused.execution.seq, in_hand=in_hand
            )
        )
        await walk.apply(await walk.record(await walk.completed("done")))
        assert await walk.rebuild() is Answer.YES
        free = ["behind", "queued"]
        assert await phases(walk) == {"running": "orphaned", **dict.fromkeys(free, "free")}
        assert await start(walk, "queued") is Answer.REFUSED
        await walk.apply(await walk.record(walk.resumed()))
        assert sorted(one.node_id for one in await free_nodes(walk)) == free

    async def test_nobody_starts_what_is_orphaned(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await installed(walk)
        await walk.rebuild()
        assert await start(walk, "a") is Answer.REFUSED
        assert await queue(walk, as_seen_before(walk, await walk.execution(), "a")) is Answer.REFUSED

    async def test_an_orphan_that_nobody_adopts_expires_without_a_holder(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        await walk.rebuild()
        assert await expired(walk) == []
        walk.clock.advance(self.LEASE_SECONDS)
        (lease,) = await expired(walk)
        assert (lease.node_id, lease.attempt, lease.worker) == ("a", 1, None)

    async def test_an_install_that_is_not_fresh_announces_no_free_nodes(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        await walk.rebuild()
        walk.clock.advance(self.LEASE_SECONDS - 1)
        assert list((await walk.store.due(idle_seconds=1)).woken) == []

    async def test_an_install_with_another_token_is_refused(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.store.incarnation_id()
        snapshot = await walk.submit()
        another = "another"
        assert list(await walk.store.install([snapshot], incarnation_id=another, fresh=True)) == [
            Answer.REFUSED
        ]
        assert await walk.store.inspect("x1") is None

    async def test_of_several_installs_each_is_answered_for_itself(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walks = [new_walk("a", node("b", "a"), execution_id=f"x{number}") for number in range(1, 121)]
        snapshots = [await walk.submit() for walk in walks]
        store = walks[0].store
        incarnation_id = await store.incarnation_id()
        await store.close("x7", generation=1, epoch=1)
        # One of them twice: the second finds the first.
        given = [*snapshots, snapshots[0]]
        answers = [Answer.YES] * 120 + [Answer.REFUSED]
        answers[6] = Answer.REFUSED
        assert list(await store.install(given, incarnation_id=incarnation_id, fresh=True)) == answers
        assert list(await store.install([], incarnation_id=incarnation_id, fresh=True)) == []
        assert await store.inspect("x7") is None
        for walk in walks:
            assert walk.execution_id == "x7" or await phases(walk) == {"a": "free"}
        assert await store.backlog() == 2 * 119

    async def test_a_builder_from_before_a_flush_is_refused(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        incarnation_id = await walk.store.incarnation_id()
        assert await walk.store.incarnation_id() == incarnation_id
        snapshot = await walk.submit()
        await bench.flush()
        assert list(await walk.store.install([snapshot], incarnation_id=incarnation_id, fresh=True)) == [
            Answer.REFUSED
        ]
        assert await walk.store.incarnation_id() != incarnation_id

    async def test_a_first_builder_that_comes_late_is_refused_and_a_later_one_is_not(
        self, new_walk: Callable[..., Walk], clock: VirtualClock
    ) -> None:
        in_time, late = new_walk("a"), new_walk("a", execution_id="x2")
        snapshots = [await in_time.submit(), await late.submit()]
        clock.advance(FIRST_INSTALL_SECONDS - 0.001)
        assert await in_time.install(snapshots[0], fresh=True) is Answer.YES
        clock.advance(0.001)
        assert await late.install(snapshots[1], fresh=True) is Answer.REFUSED
        assert await late.rebuild() is Answer.YES

    async def test_the_highest_epoch_wins(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        first = await walk.submit()
        second = await walk.journal.rebuild("x1", seen_epoch=1)
        assert second is not None
        assert await walk.install(second, fresh=True) is Answer.YES
        for late in (first, second):
            assert await walk.install(late, fresh=True) is Answer.REFUSED
        assert list(await walk.store.epochs(["x1", "nowhere"])) == [2, None]

    async def test_what_was_not_merged_lately_is_listed_with_its_last_change(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        execution = await walk.journal.execution("x1")
        assert execution is not None
        assert await walk.store.idle_since(execution.updated_at - 1) == {}
        assert await walk.store.idle_since(execution.updated_at) == {"x1": execution.updated_at}

    async def test_an_install_takes_up_where_the_rows_are(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", node("b", "a"), node("c", "b"), "d")
        await walk.begin()
        await walk.complete("a")
        await walk.rebuild()
        assert await phases(walk) == {"b": "orphaned", "d": "orphaned"}

    @pytest.mark.parametrize("order", [1, -1], ids=["in order", "backwards"])
    @pytest.mark.parametrize("fresh", [True, False])
    async def test_a_retry_that_is_not_due_is_a_timer_whatever_the_order_of_the_rows(
        self, new_walk: Callable[..., Walk], fresh: bool, order: int
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        await walk.complete("a")
        await walk.advance(await walk.failed("b", retryable=True))
        snapshot = await walk.journal.rebuild("x1", seen_epoch=1)
        assert snapshot is not None
        await walk.install(_reordered(snapshot, order), fresh=fresh)
        assert await phases(walk) == {"b": "timer"}
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.nodes["b"].attempt, status.slots_taken) == (2, 0)
        walk.clock.advance(1)
        assert list((await walk.store.due(idle_seconds=NEVER)).woken) == [("x1", 1)]
        (free,) = await free_nodes(walk)
        assert (free.node_id, free.attempt, free.failures) == ("b", 2, 1)

    @pytest.mark.parametrize(("fresh", "phase"), [(True, "free"), (False, "orphaned")])
    async def test_a_retry_that_is_overdue_is_like_any_ready_node(
        self, new_walk: Callable[..., Walk], fresh: bool, phase: str
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.failed("a", retryable=True))
        walk.clock.advance(2)
        snapshot = await walk.journal.rebuild("x1", seen_epoch=1)
        assert snapshot is not None
        await walk.install(snapshot, fresh=fresh)
        assert await phases(walk) == {"a": phase}

    async def test_the_next_generation_takes_the_place_of_the_last(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("bad", "slow")
        await walk.begin()
        await walk.fail("bad")
        assert await walk.store.inspect("x1") is None
        await walk.record(walk.retried())
        assert await walk.reopen() == ["bad", "slow"]
        assert walk.started[-2:] == [("bad", 2, 2), ("slow", 2, 2)]

    # -- what the store does not have ----------------------------------------------------------------

    async def test_an_execution_it_does_not_have_is_unknown_to_every_move(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        row = (await walk.submit()).execution
        store = walk.store
        moves = [
            (await store.apply([RowUpdate(row, walk.plan, ())]))[0].answer,
            (await store.free(["x1"]))[0].answer,
            await queue(walk, as_seen_before(walk, row, "a")),
            await store.throttle("x1", generation=1, node_id="a", attempt=1),
            await store.release("x1", generation=1, node_id="a", attempt=1),
            await start(walk, "a"),
            (await store.renew([walk.lease("a")]))[0],
        ]
        assert moves == [Answer.UNKNOWN] * len(moves)
        assert await store.inspect("x1") is None
        assert await store.running("x1") == {}

    async def test_a_later_life_than_it_has_is_unknown(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        later = await walk.journal.rebuild("x1", seen_epoch=1)
        assert later is not None
        (applied,) = await walk.store.apply([RowUpdate(later.execution, walk.plan, ())])
        assert (applied.answer, list(applied.free)) == (Answer.UNKNOWN, [])
        assert await queue(walk, as_seen_before(walk, later.execution, "a")) is Answer.UNKNOWN
        assert await start(walk, "a", generation=2) is Answer.UNKNOWN
        assert list(await walk.store.renew([walk.lease("a", generation=2)])) == [Answer.UNKNOWN]

    async def test_an_earlier_life_than_it_has_is_refused(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        old = (await walk.submit()).execution
        await walk.install(Snapshot(old, walk.plan, ()), fresh=True)
        old = await walk.execution()
        newer = await walk.journal.rebuild("x1", seen_epoch=1)
        assert newer is not None
        await walk.install(newer, fresh=True)
        (applied,) = await walk.store.apply([RowUpdate(old, walk.plan, ())])
        assert (applied.answer, list(applied.free)) == (Answer.REFUSED, [])
        assert await queue(walk, as_seen_before(walk, old, "a")) is Answer.REFUSED

    async def test_after_a_flush_everything_is_unknown(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        await bench.flush()
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.UNKNOWN]
        assert await walk.store.inspect("x1") is None
        due = await walk.store.due(idle_seconds=0)
        assert (list(due.woken), list(due.expired), list(due.deadlines)) == ([], [], [])

    # -- close -------------------------------------------------------------------------------------

    async def test_after_close_nothing_starts_and_whoever_runs_is_told_to_stop(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b")
        await installed(walk)
        a, b = await free_nodes(walk)
        await walk.hand_out(a)
        await queue(walk, b)
        await walk.advance(walk.cancelled())
        assert await start(walk, "b") is Answer.REFUSED
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.REFUSED]
        assert (await walk.store.free(["x1"]))[0].answer is Answer.REFUSED
        assert await queue(walk, b) is Answer.REFUSED
        walk.clock.advance(self.LEASE_SECONDS)
        assert await expired(walk) == []

    async def test_close_leaves_a_tombstone_even_if_the_execution_is_not_there(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        snapshot = await walk.submit()
        assert await walk.store.close("x1", generation=1, epoch=1) is Answer.YES
        # A rebuild that was under way when the execution was cancelled:
        assert await walk.install(snapshot, fresh=False) is Answer.REFUSED
        assert await start(walk, "a") is Answer.REFUSED

    async def test_the_last_row_of_an_execution_lets_it_go_as_close_does(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b")
        await walk.begin()
        before = await walk.execution()
        snapshot = Snapshot(before, walk.plan, ())
        recorded_event = await walk.record(walk.cancelled())
        assert recorded_event.execution is not None
        assert await walk.store.backlog() == 2
        last = RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows)
        # With what came before it, and behind it, in one call.
        old = RowUpdate(before, walk.plan, ())
        applied = await walk.store.apply([old, last, old])
        assert [one.answer for one in applied] == [Answer.YES, Answer.YES, Answer.REFUSED]
        assert not any(one.free for one in applied)
        assert await walk.store.inspect("x1") is None
        assert await walk.store.backlog() == 0
        assert await walk.install(snapshot, fresh=False) is Answer.REFUSED
        assert await start(walk, "a") is Answer.REFUSED
        walk.clock.advance(self.LEASE_SECONDS)
        assert await expired(walk) == []

    async def test_the_last_row_leaves_a_tombstone_even_if_the_execution_is_not_there(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        snapshot = await walk.submit()
        recorded_event = await walk.record(walk.cancelled())
        assert recorded_event.execution is not None
        (applied,) = await walk.store.apply(
            [RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows)]
        )
        assert applied.answer is Answer.YES
        assert await walk.install(snapshot, fresh=False) is Answer.REFUSED

    async def test_a_later_epoch_opens_what_was_closed(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(walk.cancelled())
        await walk.record(walk.retried())
        assert await walk.reopen() == ["a"]

    async def test_a_late_close_does_not_take_a_newer_life_away(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.rebuild()
        assert await walk.store.close("x1", generation=1, epoch=1) is Answer.REFUSED
        assert await phases(walk) == {"a": "orphaned"}

    async def test_closing_twice_is_closing_once(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        for _ in range(2):
            assert await walk.store.close("x1", generation=1, epoch=1) is Answer.YES
        assert await walk.store.inspect("x1") is None

    async def test_what_was_closed_is_refused_and_what_came_after_it_is_unknown(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        old = await walk.execution()
        await walk.store.close("x1", generation=1, epoch=1)
        later = await walk.journal.rebuild("x1", seen_epoch=1)
        assert later is not None
        for row, answer in ((old, Answer.REFUSED), (later.execution, Answer.UNKNOWN)):
            (applied,) = await walk.store.apply([RowUpdate(row, walk.plan, ())])
            assert applied.answer is answer

    # -- apply -------------------------------------------------------------------------------------

    async def test_a_join_is_free_when_its_last_parent_is_settled(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", node("c", "a", "b", config={"x": "{{ a.output }}"}))
        await walk.begin()
        await walk.record(await walk.completed("a", 1))
        await apply_rows(walk, "a")
        assert await free_nodes(walk) == []
        await walk.record(await walk.completed("b", 2))
        (free,) = await apply_rows(walk, "b")
        assert free.node_id == "c"
        assert [row.node_id for row in free.parents] == ["a", "b"]
        assert {name: row.output for name, row in free.seen.items()} == {"a": b"1"}
        assert free.waiting == 0

    async def test_a_row_again_changes_nothing(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", node("c", "a", "b"))
        await walk.begin()
        await walk.record(await walk.completed("a"))
        for _ in range(3):
            await apply_rows(walk, "a")
        assert await free_nodes(walk) == []
        assert await phases(walk) == {"b": "running", "c": "waiting"}

    async def test_all_free_nodes_are_given_and_not_only_those_just_freed(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", node("c", "a"))
        await installed(walk)
        (a, _) = await free_nodes(walk)
        await walk.hand_out(a)
        await walk.record(await walk.completed("a"))
        # The orchestrator that was to dispatch `b` has crashed; the next event of the execution finds `b`.
        assert [one.node_id for one in await apply_rows(walk, "a")] == ["b", "c"]
        assert [one.node_id for one in await apply_rows(walk, "a")] == ["b", "c"]

    async def test_every_settlement_of_a_call_has_its_own_answer(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b")
        other = new_walk("z", execution_id="x2")
        await installed(walk)
        unknown = (await other.submit()).execution
        current = await walk.execution()
        newer = await walk.journal.rebuild("x1", seen_epoch=1)
        assert newer is not None
        applied = await walk.store.apply(
            [
                RowUpdate(current, walk.plan, ()),
                RowUpdate(unknown, other.plan, ()),
                RowUpdate(current, walk.plan, ()),
                RowUpdate(newer.execution, walk.plan, ()),
            ]
        )
        assert [one.answer for one in applied] == [Answer.YES, Answer.UNKNOWN, Answer.YES, Answer.UNKNOWN]
        # The free nodes of an execution come once in a call: with the last that was merged.
        assert [[free.node_id for free in one.free] for one in applied] == [[], [], ["a", "b"], []]

    async def test_an_old_row_does_not_take_a_newer_one_back(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.record(await walk.lost("a"))
        older = await walk.row("a")
        await walk.record(await walk.lost("a"))
        execution = await walk.execution()
        newer = await walk.row("a")
        for row in (newer, newer, older):
            await walk.store.apply([RowUpdate(execution, walk.plan, (row,))])
        (free,) = await free_nodes(walk)
        assert (free.attempt, free.losses) == (3, 2)

    async def test_an_old_execution_row_does_not_take_a_pause_back(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        before = await walk.execution()
        await walk.advance(walk.paused())
        await walk.store.apply([RowUpdate(before, walk.plan, ())])
        assert await free_nodes(walk) == []

    async def test_a_row_again_does_not_take_a_reserved_token_away(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.failed("a", retryable=True))
        walk.clock.advance(2)
        await walk.store.due(idle_seconds=NEVER)
        await walk.store.release("x1", generation=1, node_id="a", attempt=2)
        (free,) = await apply_rows(walk, "a")
        assert free.released

    async def test_a_settled_node_gives_its_place_and_its_lease_back(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b")
        await walk.begin()
        await walk.complete("a")
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (set(status.nodes), status.slots_taken) == ({"b"}, 1)
        walk.clock.advance(self.LEASE_SECONDS)
        assert [lease.node_id for lease in await expired(walk)] == ["b"]
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.REFUSED]

    async def test_a_terminal_execution_has_nothing_free(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("bad", "other")
        await installed(walk)
        (bad, _) = await free_nodes(walk)
        await walk.hand_out(bad)
        recorded_event = await walk.record(await walk.failed("bad"))
        assert recorded_event.execution is not None
        assert recorded_event.execution.state is ExecutionState.FAILED
        (applied,) = await walk.store.apply(
            [RowUpdate(recorded_event.execution, walk.plan, recorded_event.rows)]
        )
        assert list(applied.free) == []

    # -- the view, fixed when a node becomes free -----------------------------------------------------

    @pytest.mark.parametrize(
        ("rule", "first", "second"),
        [("one_success", "complete", "fail"), ("one_failed", "fail", "complete")],
    )
    async def test_what_an_early_rule_sees_is_fixed_when_it_wakes(
        self, new_walk: Callable[..., Walk], rule: str, first: str, second: str
    ) -> None:
        walk = new_walk(
            "a",
            "b",
            "c",
            node("n", "a", "b", "c", rule=rule, config=["{{ nodes.b.state | default('not yet') }}"]),
            failure_policy="continue",
        )
        await walk.begin()
        endings = {"complete": walk.completed, "fail": walk.failed}
        await walk.record(await endings[first]("a"))
        (looked,) = await apply_rows(walk, "a")
        # Between two looks another parent settles.
        await walk.record(await endings[second]("b"))
        (again,) = await apply_rows(walk, "b")
        for free in (looked, again):
            assert free.node_id == "n"
            assert [row.node_id for row in free.parents] == ["a"]
            assert (free.seen, free.waiting) == ({}, 2)
        assert walk.decide(looked) == walk.decide(again)

    async def test_an_early_rule_that_nothing_woke_sees_all_its_parents(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", node("n", "a", "b", rule="one_failed"))
        await walk.begin()
        for name in ("a", "b"):
            await walk.record(await walk.completed(name))
            free = await apply_rows(walk, name)
        (free_node,) = free
        assert [row.node_id for row in free_node.parents] == ["a", "b"]
        assert free_node.waiting == 0

    async def test_what_a_node_sees_of_an_ancestor_that_a_skip_went_past_is_fixed_too(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        """No early rule is needed: `skipped` does not wait for `slow`, which `cleanup` behind it names."""
        walk = new_walk(
            "bad",
            "slow",
            node("skipped", "bad", "slow"),
            node("cleanup", "skipped", rule="all_done", config=["{{ nodes.slow.state | default('?') }}"]),
            failure_policy="continue",
        )
        await walk.begin()
        recorded_event = await walk.record(await walk.failed("bad"))
        (looked,) = await walk.apply(recorded_event)
        assert looked.node_id == "cleanup"
        await walk.record(await walk.completed("slow"))
        (again,) = await apply_rows(walk, "slow")
        assert (looked.seen, again.seen) == ({}, {})
        assert walk.decide(looked) == walk.decide(again)

    async def test_a_later_attempt_sees_what_the_first_saw(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", node("n", "a", "b", rule="one_success"))
        await walk.begin()
        assert await walk.complete("a") == ["n"]
        await walk.complete("b")
        await walk.record(await walk.lost("n"))
        (free,) = await apply_rows(walk, "n")
        assert (free.attempt, [row.node_id for row in free.parents], free.waiting) == (2, ["a"], 1)

    # -- queue and slots ----------------------------------------------------------------------------

    async def test_a_node_is_queued_and_sent_once(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        (free,) = await free_nodes(walk)
        assert await queue(walk, free) is Answer.YES
        assert await queue(walk, free) is Answer.REFUSED
        assert await free_nodes(walk) == []
        if bench.sent is not None:
            assert [(task.node_id, task.attempt) for task in await bench.sent()] == [("a", 1)]

    @pytest.mark.parametrize("wrong", [{"attempt": 2}, {"generation": 0}, {"node_id": "b"}])
    async def test_only_the_current_attempt_is_queued(
        self, new_walk: Callable[..., Walk], bench: StoreBench, wrong: dict[str, Any]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await installed(walk)
        (free,) = await free_nodes(walk)
        task = _replaced(walk.task(free), **wrong)
        assert list(await walk.store.queue([task])) == [Answer.REFUSED]
        assert [one.node_id for one in await free_nodes(walk)] == ["a"]
        if bench.sent is not None:
            assert list(await bench.sent()) == []

    async def test_an_execution_has_as_many_in_flight_as_the_window_allows(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        names = [f"n{index}" for index in range(self.WINDOW + 2)]
        walk = new_walk(*names)
        await installed(walk)
        free = await free_nodes(walk)
        assert [one.node_id for one in free] == names[: self.WINDOW]
        answers = [await queue(walk, one) for one in free]
        assert answers == [Answer.YES] * self.WINDOW
        assert await free_nodes(walk) == []
        late = as_seen_before(walk, free[0].execution, names[-1])
        assert await queue(walk, late) is Answer.NO_SLOT
        assert (await phases(walk))[names[-1]] == "free"
        # Whatever settles gives its slot on.
        await start(walk, names[0])
        await walk.record(await walk.completed(names[0]))
        assert [one.node_id for one in await apply_rows(walk, names[0])] == [names[self.WINDOW]]

    async def test_max_concurrency_binds_where_it_is_the_smaller(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", max_concurrency=1)
        await walk.begin()
        assert walk.started == [("a", 1, 1)]
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.slots_taken, status.slots) == (1, 1)
        assert await walk.complete("a") == ["b"]

    async def test_a_place_is_not_given_back_twice(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", "c", "d", max_concurrency=2)
        await walk.begin()
        event = await walk.completed("a")
        await walk.advance(event, event, event)
        assert [name for name, _, _ in walk.started] == ["a", "b", "c"]

    async def test_a_node_that_waits_for_its_retry_holds_no_slot(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", max_concurrency=1)
        await walk.begin()
        assert await walk.advance(await walk.failed("a", retryable=True)) == ["b"]
        assert await phases(walk) == {"a": "timer", "b": "running"}

    async def test_an_orphaned_node_and_a_reported_one_hold_their_slots(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", max_concurrency=1)
        await walk.begin()
        await walk.store.report([await walk.result("a")])
        assert await free_nodes(walk) == []
        await walk.rebuild()
        assert await free_nodes(walk) == []

    # -- throttling -------------------------------------------------------------------------------------

    async def test_a_throttled_node_holds_no_slot_and_is_not_free(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk(node("a", resource_tag="api"), "b", max_concurrency=1)
        await installed(walk)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        assert await walk.store.throttle("x1", **attempt) is Answer.YES
        assert [one.node_id for one in await free_nodes(walk)] == ["b"]
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.nodes["a"].phase, status.nodes["a"].resource_tag) == ("throttled", "api")
        assert status.slots_taken == 0

    async def test_a_released_node_is_free_with_its_token(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await installed(walk)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        await walk.store.throttle("x1", **attempt)
        for _ in range(2):
            assert await walk.store.release("x1", **attempt) is Answer.YES
        (free,) = await free_nodes(walk)
        assert free.released

    async def test_a_queued_node_that_found_no_token_goes_back_to_the_queue(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        (free,) = await free_nodes(walk)
        await queue(walk, free)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        assert await walk.store.throttle("x1", **attempt, was_queued=True) is Answer.YES
        assert await phases(walk) == {"a": "throttled"}
        assert await start(walk, "a") is Answer.REFUSED

    async def test_a_node_that_the_limits_have_released_is_not_throttled_again(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        """The late call decided before the release: the node would be in no queue, and wait for ever."""
        walk = new_walk("a")
        await installed(walk)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        assert await walk.store.release("x1", **attempt) is Answer.YES
        assert await walk.store.throttle("x1", **attempt) is Answer.REFUSED
        (free,) = await free_nodes(walk)
        assert free.released
        await queue(walk, free)
        assert await walk.store.throttle("x1", **attempt) is Answer.REFUSED
        assert await start(walk, "a") is Answer.YES

    async def test_a_free_node_is_not_throttled_in_the_place_of_a_queued_one(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        assert await walk.store.throttle("x1", **attempt, was_queued=True) is Answer.REFUSED
        assert [one.node_id for one in await free_nodes(walk)] == ["a"]

    async def test_without_a_place_a_reserved_token_is_given_up(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", max_concurrency=1)
        await installed(walk)
        await walk.store.release("x1", generation=1, node_id="b", attempt=1)
        (a,) = await free_nodes(walk)
        await walk.hand_out(a)
        assert await queue(walk, as_seen_before(walk, a.execution, "b")) is Answer.NO_SLOT
        (b,) = await _after(walk, await walk.completed("a"))
        assert (b.node_id, b.released) == ("b", False)

    @pytest.mark.parametrize("wrong", [{"attempt": 2}, {"generation": 0}, {"node_id": "b"}])
    async def test_only_the_current_attempt_is_throttled_or_released(
        self, new_walk: Callable[..., Walk], wrong: dict[str, Any]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await installed(walk)
        attempt = {"generation": 1, "node_id": "a", "attempt": 1, **wrong}
        assert await walk.store.throttle("x1", **attempt) is Answer.REFUSED
        assert await walk.store.release("x1", **attempt) is Answer.REFUSED
        assert [one.node_id for one in await free_nodes(walk)] == ["a"]

    # -- pause -------------------------------------------------------------------------------------

    async def test_a_paused_execution_gives_nothing_out(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b")
        await installed(walk)
        (a, b) = await free_nodes(walk)
        await walk.advance(walk.paused())
        assert await free_nodes(walk) == []
        assert await queue(walk, a) is Answer.REFUSED
        status = await walk.store.inspect("x1")
        assert status is not None
        assert status.paused
        free = await walk.apply(await walk.record(walk.resumed()))
        assert [one.node_id for one in free] == [a.node_id, b.node_id]

    async def test_a_task_that_is_started_while_paused_goes_back_to_free(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        (free,) = await free_nodes(walk)
        await queue(walk, free)
        await walk.advance(walk.paused())
        assert await start(walk, "a") is Answer.REFUSED
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.nodes["a"].phase, status.slots_taken) == ("free", 0)
        assert await walk.advance(walk.resumed()) == ["a"]
        assert walk.started == [("a", 1, 1)]

    async def test_a_running_attempt_finishes_and_counts_while_paused(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        await walk.advance(walk.paused())
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.YES]
        assert await walk.complete("a") == []
        assert await walk.advance(walk.resumed()) == ["b"]

    async def test_a_timer_that_comes_due_while_paused_waits_for_the_resume(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.failed("a", retryable=True), walk.paused())
        walk.clock.advance(2)
        await walk.store.due(idle_seconds=NEVER)
        assert await free_nodes(walk) == []
        assert await walk.advance(walk.resumed()) == ["a"]

    # -- start -------------------------------------------------------------------------------------

    async def test_an_attempt_is_started_by_one(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await installed(walk)
        (free,) = await free_nodes(walk)
        await queue(walk, free)
        started = await _started(walk, "a")
        assert (started.answer, started.at) == (Answer.YES, walk.clock.now())
        assert await start(walk, "a", nonce="another") is Answer.REFUSED

    async def test_a_start_whose_answer_was_lost_is_the_same_start(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        (free,) = await free_nodes(walk)
        await queue(walk, free)
        first = await _started(walk, "a")
        walk.clock.advance(3)
        assert await _started(walk, "a") == first

    @pytest.mark.parametrize("wrong", [{"attempt": 2}, {"generation": 0}, {"node_id": "b"}])
    async def test_only_the_queued_attempt_starts(
        self, new_walk: Callable[..., Walk], wrong: dict[str, Any]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await installed(walk)
        (free,) = await free_nodes(walk)
        await queue(walk, free)
        assert await start(walk, **{"node_id": "a", **wrong}) is Answer.REFUSED

    async def test_what_is_free_and_not_queued_does_not_start(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await installed(walk)
        assert await start(walk, "a") is Answer.REFUSED

    async def test_a_superseded_attempt_does_not_start(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.lost("a"))
        assert await start(walk, "a", attempt=1, nonce="another") is Answer.REFUSED
        assert walk.started == [("a", 1, 1), ("a", 1, 2)]

    async def test_what_is_in_hand_is_listed_with_its_times(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", "c")
        await installed(walk)
        a, b, _ = await free_nodes(walk)
        queued_at = walk.clock.now()
        await queue(walk, a)
        await queue(walk, b)
        walk.clock.advance(1)
        await start(walk, "a")
        running = await walk.store.running("x1")
        assert set(running) == {"a"}
        assert (running["a"].attempt, running["a"].worker) == (1, WORKER)
        assert (running["a"].queued_at, running["a"].started_at) == (queued_at, walk.clock.now())

    # -- leases ------------------------------------------------------------------------------------

    async def test_a_heartbeat_renews_the_lease(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        for _ in range(3):
            walk.clock.advance(self.LEASE_SECONDS - 1)
            assert await expired(walk) == []
            assert list(await walk.store.renew([walk.lease("a")])) == [Answer.YES]

    @pytest.mark.parametrize(
        "wrong", [{"nonce": "another"}, {"attempt": 2}, {"generation": 0}, {"node_id": "b"}]
    )
    async def test_a_heartbeat_of_another_attempt_is_told_to_stop(
        self, new_walk: Callable[..., Walk], wrong: dict[str, Any]
    ) -> None:
        walk = new_walk("a", node("b", "a"))
        await walk.begin()
        held = _replaced(walk.lease("a"), **wrong)
        walk.clock.advance(self.LEASE_SECONDS)
        assert list(await walk.store.renew([held])) == [Answer.REFUSED]
        assert [lease.node_id for lease in await expired(walk)] == ["a"]

    async def test_a_heartbeat_adopts_exactly_its_orphaned_attempt(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        held = walk.lease("a")
        walk.clock.advance(5)
        await walk.rebuild()
        assert list(await walk.store.renew([_replaced(held, attempt=2)])) == [Answer.REFUSED]
        assert list(await walk.store.renew([held])) == [Answer.YES]
        assert await phases(walk) == {"a": "running"}
        (running,) = (await walk.store.running("x1")).values()
        assert (running.worker, running.started_at) == (WORKER, held.started_at)
        # The attempt has a holder now: another is refused, and the lease counts from the adoption.
        assert list(await walk.store.renew([_replaced(held, nonce="another")])) == [Answer.REFUSED]
        walk.clock.advance(self.LEASE_SECONDS)
        (lease,) = await expired(walk)
        assert lease.worker == WORKER

    async def test_an_expired_lease_is_listed_and_not_changed(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk(node("a", delivery="at_most_once"))
        await installed(walk)
        await walk.advance(AttemptIssued(execution_id="x1", generation=1, node_id="a", attempt=1, epoch=1))
        queued_at = walk.clock.now()
        walk.clock.advance(self.LEASE_SECONDS)
        for _ in range(2):
            (lease,) = await expired(walk)
            assert lease == Expired("x1", 1, "a", 1, walk.plan.digest, 0, 0, 1, WORKER, queued_at, queued_at)
        # A worker that was only slow still has it.
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.YES]
        assert await expired(walk) == []

    async def test_a_lost_attempt_is_free_again_under_the_next_number(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        walk.clock.advance(self.LEASE_SECONDS)
        (free,) = await _after(walk, await walk.lost("a"))
        assert (free.attempt, free.losses) == (2, 1)
        assert await expired(walk) == []
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.REFUSED]

    async def test_a_lease_that_is_handed_back_has_run_out(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.store.abandon([_replaced(walk.lease("a"), nonce="another")])
        assert await expired(walk) == []
        await walk.store.abandon([walk.lease("a")])
        assert [lease.node_id for lease in await expired(walk)] == ["a"]

    # -- report ------------------------------------------------------------------------------------

    async def test_a_report_publishes_the_result_and_lengthens_the_lease(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        result = await walk.result("a")
        await walk.store.report([result])
        assert list(await bench.published()) == [result]
        assert await phases(walk) == {"a": "running"}
        # A journal that is away for longer than a lease costs no attempt.
        walk.clock.advance(self.REPORTED_SECONDS - 1)
        assert await expired(walk) == []
        walk.clock.advance(1)
        assert [lease.node_id for lease in await expired(walk)] == ["a"]

    async def test_a_heartbeat_that_crosses_its_report_is_welcome(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.store.report([await walk.result("a")])
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.YES]
        walk.clock.advance(self.LEASE_SECONDS)
        assert await expired(walk) == []

    async def test_a_report_of_an_earlier_attempt_lengthens_no_lease(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        await walk.begin()
        result = await walk.result("a")
        walk.clock.advance(self.LEASE_SECONDS)
        assert await walk.advance(await walk.lost("a")) == ["a"]
        await walk.store.report([result])
        assert len(await bench.published()) == 1
        walk.clock.advance(self.LEASE_SECONDS)
        assert [(lease.node_id, lease.attempt) for lease in await expired(walk)] == [("a", 2)]

    async def test_a_report_holds_its_orphaned_attempt(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        result = await walk.result("a")
        await walk.rebuild()
        await walk.store.report([result])
        assert await phases(walk) == {"a": "orphaned"}
        walk.clock.advance(self.LEASE_SECONDS)
        assert await expired(walk) == []

    async def test_nobody_ends_the_lease_of_a_current_attempt_by_its_name(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b")
        await walk.begin()
        await walk.store.end_leases([("x1", "a", 1), ("x1", "b", 2), ("x2", "b", 1)])
        walk.clock.advance(self.LEASE_SECONDS)
        assert sorted([lease.node_id for lease in await expired(walk)]) == ["a", "b"]

    async def test_nobody_ends_the_lease_of_an_orphaned_attempt_by_its_name(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        """A caller that says it is over knows that from a commit which the database has lost."""
        walk = new_walk("a")
        await walk.begin()
        await walk.rebuild()
        await walk.store.end_leases([("x1", "a", 1)])
        walk.clock.advance(self.LEASE_SECONDS)
        assert [lease.node_id for lease in await expired(walk)] == ["a"]

    async def test_a_result_is_published_whatever_the_store_knows(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a")
        await walk.submit()
        result = await walk.result("a")
        await walk.store.report([result])
        assert list(await bench.published()) == [result]

    # -- time --------------------------------------------------------------------------------------

    async def test_a_retry_is_free_when_it_is_due_and_not_before(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.failed("a", retryable=True))
        due = await walk.store.due(idle_seconds=NEVER)
        assert (list(due.woken), due.next_at) == ([], walk.clock.now() + micros(1))
        walk.clock.advance(0.999999)
        assert list((await walk.store.due(idle_seconds=NEVER)).woken) == []
        walk.clock.advance(0.000001)
        assert list((await walk.store.due(idle_seconds=NEVER)).woken) == [("x1", 1)]
        (free,) = await free_nodes(walk)
        assert (free.attempt, free.failures) == (2, 1)
        # Fired: it is announced once, and found by the sweep after that.
        assert list((await walk.store.due(idle_seconds=NEVER)).woken) == []

    async def test_free_nodes_that_nobody_dispatches_are_found_after_a_while(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a")
        await installed(walk)
        assert list((await walk.store.due(idle_seconds=10)).woken) == []
        walk.clock.advance(10)
        for _ in range(2):
            assert list((await walk.store.due(idle_seconds=10)).woken) == [("x1", 1)]
        (free,) = await free_nodes(walk)
        await walk.hand_out(free)
        assert list((await walk.store.due(idle_seconds=10)).woken) == []

    async def test_a_deadline_fires_again_until_it_is_recorded(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", timeout_seconds=60)
        await walk.begin()
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == []
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == [("x1", 1)]
        # The commit that should follow was lost.
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == [("x1", 1)]
        await walk.advance(DeadlinePassed(execution_id="x1", generation=1))
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == []

    async def test_a_deadline_of_a_lost_start_does_not_fire(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", timeout_seconds=60)
        await walk.begin()
        # The database lost the commit of the start, and with it the deadline; what is rebuilt has none.
        snapshot = await walk.journal.rebuild("x1", seen_epoch=1)
        assert snapshot is not None
        lost = _replaced(snapshot, execution=_replaced(snapshot.execution, deadline_at=None))
        assert await walk.install(lost, fresh=False) is Answer.YES
        walk.clock.advance(60)
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == []

    async def test_a_deadline_follows_from_the_journal_after_a_rebuild(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_walk("a", timeout_seconds=60)
        await walk.begin()
        walk.clock.advance(30)
        await bench.flush()
        await walk.rebuild()
        walk.clock.advance(30)
        assert list((await walk.store.due(idle_seconds=NEVER)).deadlines) == [("x1", 1)]

    async def test_the_next_look_is_at_the_earliest_of_leases_and_timers(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", timeout_seconds=600)
        assert (await walk.store.due(idle_seconds=NEVER)).next_at is None
        await walk.begin()
        now = walk.clock.now()
        assert (await walk.store.due(idle_seconds=NEVER)).next_at == now + micros(self.LEASE_SECONDS)
        await walk.advance(await walk.failed("a", retryable=True))
        assert (await walk.store.due(idle_seconds=NEVER)).next_at == now + micros(1)

    async def test_after_a_gap_without_sweeps_no_lease_runs_out_for_a_lease(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b")
        await walk.begin()
        sweep, longest_gap = 5, self.LEASE_SECONDS / 3 + 5
        assert list((await walk.store.due(idle_seconds=sweep)).expired) == []
        # Not too long for the workers to have renewed their leases.
        walk.clock.advance(longest_gap)
        assert list((await walk.store.due(idle_seconds=sweep)).expired) == []
        walk.clock.advance(longest_gap)
        assert len((await walk.store.due(idle_seconds=sweep)).expired) == 2
        walk.clock.advance(longest_gap + 0.000001)
        due = await walk.store.due(idle_seconds=sweep)
        assert list(due.expired) == []
        assert due.next_at == walk.clock.now() + micros(self.LEASE_SECONDS)
        # One worker is there again, the other is not: its lease runs out in its time, and no later.
        walk.clock.advance(self.LEASE_SECONDS / 2)
        assert list(await walk.store.renew([walk.lease("a")])) == [Answer.YES]
        assert list((await walk.store.due(idle_seconds=sweep)).expired) == []
        walk.clock.advance(self.LEASE_SECONDS / 2)
        assert [one.node_id for one in (await walk.store.due(idle_seconds=sweep)).expired] == ["b"]

    # -- looking in --------------------------------------------------------------------------------

    async def test_a_look_shows_every_node_that_something_has_happened_to(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", "c", node("d", "a", "b"), node("e", "d"), max_concurrency=2)
        await walk.begin()
        await walk.complete("a")
        now = walk.clock.now()
        status = await walk.store.inspect("x1")
        assert status is not None
        assert {name: seen.phase for name, seen in status.nodes.items()} == {
            "b": "running",
            "c": "running",
            "d": "waiting",
        }
        assert status.nodes["d"].awaited == ("b",)
        running = status.nodes["b"]
        assert (running.worker, running.queued_at, running.started_at) == (WORKER, now, now)
        assert (status.paused, status.slots_taken, status.slots) == (False, 2, 2)

    async def test_a_look_at_one_node_shows_that_alone(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a", "b", node("c", "a"))
        await installed(walk)
        everything = await walk.store.inspect("x1")
        status = await walk.store.inspect("x1", names=["b", "c", "stranger"])
        assert everything is not None
        assert status is not None
        assert everything.nodes.keys() == {"a", "b"}
        assert status.nodes == {"b": everything.nodes["b"]}
        assert (status.slots_taken, status.slots) == (everything.slots_taken, everything.slots)
        assert await walk.store.inspect("stranger", names=["a"]) is None

    async def test_a_look_says_until_when_a_timer_runs(self, new_walk: Callable[..., Walk]) -> None:
        walk = new_walk("a")
        await walk.begin()
        await walk.advance(await walk.failed("a", retryable=True))
        status = await walk.store.inspect("x1")
        assert status is not None
        assert (status.nodes["a"].attempt, status.nodes["a"].due_at) == (2, walk.clock.now() + micros(1))

    async def test_what_is_in_flight_is_counted_as_a_look_shows_it(
        self, new_walk: Callable[..., Walk]
    ) -> None:
        walk = new_walk("a", "b", node("c", "a"), failure_policy="continue")
        assert list(await walk.store.in_flight(["x1", "nobody"])) == [None, None]
        await installed(walk)
        assert await in_flight(walk) == (0, 0)
        (a, b) = await free_nodes(walk)
        await queue(walk, a)
        assert await in_flight(walk) == (1, 0)
        await walk.hand_out(b)
        assert await in_flight(walk) == (1, 1)
        attempt: dict[str, Any] = {"generation": 1, "node_id": "a", "attempt": 1}
        await walk.store.throttle("x1", **attempt, was_queued=True)
        assert await in_flight(walk) == (1, 1)
        await walk.store.release("x1", **attempt)
        assert await in_flight(walk) == (0, 1)
        await walk.store.report([await walk.result("b")])
        assert await in_flight(walk) == (0, 1)
        await _after(walk, await walk.completed("b"))
        assert await in_flight(walk) == (0, 0)
        (a,) = await free_nodes(walk)
        await walk.hand_out(a)
        assert await in_flight(walk) == (0, 1)
        await _after(walk, await walk.failed("a", retryable=True))
        assert await in_flight(walk) == (1, 0)  # a timer runs for it
        walk.clock.advance(2)
        await walk.store.due(idle_seconds=NEVER)
        assert await in_flight(walk) == (0, 0)
        (a,) = await free_nodes(walk)
        await walk.hand_out(a)
        await walk.rebuild()
        assert await in_flight(walk) == (1, 0)  # orphaned
        await walk.store.renew([walk.lease("a", 2)])
        assert await in_flight(walk) == (0, 1)
        await walk.store.report([await walk.result("a")])
        assert await in_flight(walk) == (0, 1)
        await walk.advance(walk.cancelled())
        assert list(await walk.store.in_flight(["x1"])) == [None]

    # -- the fleet ---------------------------------------------------------------------------------

    async def test_what_workers_have_in_hand_is_counted_by_queue(self, new_walk: Callable[..., Walk]) -> None:
        one = new_walk(node("a", queue="slow"), node("b", queue="slow"), "c", execution_id="x1")
        two = new_walk(node("a", queue="slow"), execution_id="x2")
        await installed(one)
        assert dict(await one.store.running_by_queue()) == {}
        (a, b, _) = await free_nodes(one)
        await queue(one, a)
        await one.hand_out(b)
        await two.begin()
        assert dict(await one.store.running_by_queue()) == {"slow": 2}
        await two.store.report([await two.result("a")])
        assert dict(await one.store.running_by_queue()) == {"slow": 2}
        await two.advance(two.cancelled())
        assert dict(await one.store.running_by_queue()) == {"slow": 1}

    async def test_the_backlog_counts_the_unsettled_nodes_of_all_executions(
        self, new_walk: Callable[..., Walk], store: StateStore
    ) -> None:
        assert await store.backlog() == 0
        one, two = new_walk("a", node("b", "a"), execution_id="x1"), new_walk("a", execution_id="x2")
        await one.begin()
        await two.begin()
        assert await store.backlog() == 3
        await one.complete("a")
        assert await store.backlog() == 2
        # The same rows again are no second row update, a rebuild no second execution.
        await apply_rows(one, "a")
        assert await one.rebuild() is Answer.YES
        assert await store.backlog() == 2
        await one.advance(one.cancelled())
        await two.complete("a")
        assert await store.backlog() == 0

    async def test_a_lost_store_has_no_backlog(
        self, new_walk: Callable[..., Walk], bench: StoreBench
    ) -> None:
        await new_walk("a").begin()
        await bench.flush()
        assert await bench.store.backlog() == 0

    async def test_a_worker_is_seen_as_it_last_announced_itself(
        self, store: StateStore, clock: VirtualClock
    ) -> None:
        assert list(await store.workers()) == []
        await store.announce_worker(worker_status("w2"))
        await store.announce_worker(worker_status("w1", running=1))
        clock.advance(3)
        await store.announce_worker(worker_status("w1", running=2, state=WorkerState.DRAINING))
        one, two = await store.workers()
        now = clock.now()
        assert one == worker_status("w1", running=2, state=WorkerState.DRAINING, heartbeat_at=now)
        assert two == worker_status("w2", heartbeat_at=now - micros(3))

    async def test_a_worker_without_a_heartbeat_for_a_lease_is_lost_until_it_is_heard_again(
        self, store: StateStore, clock: VirtualClock
    ) -> None:
        await store.announce_worker(worker_status("w1"))
        clock.advance(self.LEASE_SECONDS)
        assert [seen.state for seen in await store.workers()] == [WorkerState.ALIVE]
        clock.advance(1)
        assert [seen.state for seen in await store.workers()] == [WorkerState.LOST]
        await store.announce_worker(worker_status("w1"))
        assert [seen.state for seen in await store.workers()] == [WorkerState.ALIVE]

    async def test_a_lost_worker_is_forgotten_after_a_while(
        self, store: StateStore, clock: VirtualClock
    ) -> None:
        await store.announce_worker(worker_status("w1"))
        clock.advance(24 * 3600)
        await store.announce_worker(worker_status("w2"))
        assert [seen.id for seen in await store.workers()] == ["w2"]

    async def test_a_worker_that_stopped_is_not_seen(self, store: StateStore) -> None:
        await store.announce_worker(worker_status("w1"))
        await store.remove_worker("w1")
        await store.remove_worker("w1")
        assert list(await store.workers()) == []

    # -- several executions --------------------------------------------------------------------------

    async def test_executions_do_not_touch_each_other(self, new_walk: Callable[..., Walk]) -> None:
        one, two = new_walk("a", "b", execution_id="x1"), new_walk("a", "b", execution_id="x2")
        await one.begin()
        await two.begin()
        await one.advance(one.cancelled())
        assert await one.store.inspect("x1") is None
        assert await phases(two) == {"a": "running", "b": "running"}
        assert list(await two.store.renew([one.lease("a"), two.lease("a")])) == [Answer.REFUSED, Answer.YES]


# -- short words for what the tests do often -------------------------------------------------------------


def worker_status(
    worker_id: str, *, running: int = 0, state: WorkerState = WorkerState.ALIVE, heartbeat_at: int = 0
) -> WorkerStatus:
    """Make a worker's announcement."""
    return WorkerStatus(
        id=worker_id,
        host="host",
        pid=1,
        version="1.0",
        state=state,
        queues=None,
        handlers=("echo",),
        concurrency=4,
        running=running,
        started_at=1,
        functions=("shop:*", "tools:clean"),
        heartbeat_at=heartbeat_at,
    )


async def installed(walk: Walk) -> None:
    """Submit and install, and hand nothing out."""
    assert await walk.install(await walk.submit(), fresh=True) is Answer.YES


async def free_nodes(walk: Walk) -> list[FreeNode]:
    (applied,) = await walk.store.free([walk.execution_id])
    assert applied.answer is Answer.YES
    return list(applied.free)


async def apply_rows(walk: Walk, *node_ids: str) -> list[FreeNode]:
    """Apply the journal's rows of these nodes; give all that is free."""
    rows = [await walk.row(node_id) for node_id in node_ids]
    (applied,) = await walk.store.apply([RowUpdate(await walk.execution(), walk.plan, rows)])
    assert applied.answer is Answer.YES
    return list(applied.free)


async def phases(walk: Walk) -> dict[str, str]:
    status = await walk.store.inspect(walk.execution_id)
    assert status is not None
    return {name: seen.phase for name, seen in status.nodes.items()}


async def in_flight(walk: Walk) -> tuple[int, int] | None:
    """Return the counts of queued and running nodes, checked against ``inspect``."""
    (counted,) = await walk.store.in_flight([walk.execution_id])
    # A node that waits for something is parked, and counts nowhere.
    seen = [phase for name, phase in (await phases(walk)).items() if name not in walk.plan.waits]
    queued = sum(phase in ("queued", "throttled", "timer", "orphaned") for phase in seen)
    assert counted == (queued, seen.count("running") + seen.count("parked"))
    return counted


async def expired(walk: Walk) -> list[Expired]:
    return list((await walk.store.due(idle_seconds=NEVER)).expired)


async def queue(walk: Walk, free: FreeNode) -> Answer:
    (answer,) = await walk.store.queue([walk.task(free)])
    return answer


async def start(
    walk: Walk, node_id: str, *, attempt: int = 1, generation: int = 1, nonce: str | None = None
) -> Answer:
    return (await _started(walk, node_id, attempt=attempt, generation=generation, by=nonce)).answer


async def _started(
    walk: Walk, node_id: str, *, attempt: int = 1, generation: int = 1, by: str | None = None
) -> Started:
    request = StartRequest(
        walk.execution_id, generation, node_id, attempt, by or nonce(node_id, attempt), WORKER
    )
    (started,) = await walk.store.start([request])
    return started


async def _after(walk: Walk, event: Event) -> Sequence[FreeNode]:
    """Record and apply; give all that is free, and hand nothing out."""
    return await walk.apply(await walk.record(event))


def as_seen_before(walk: Walk, row: ExecutionRow, node_id: str) -> FreeNode:
    """Make a free node as somebody may have seen it who comes too late."""
    return FreeNode(row, walk.plan, walk.plan.nodes[node_id], (), {})


def _reordered(snapshot: Snapshot, order: int) -> Snapshot:
    return Snapshot(snapshot.execution, snapshot.plan, list(snapshot.rows)[::order])


def _replaced(struct: Any, **fields: Any) -> Any:
    return type(struct)(**{**{name: getattr(struct, name) for name in struct.__struct_fields__}, **fields})
