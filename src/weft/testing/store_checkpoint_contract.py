"""What every store promises of executions that are committed at checkpoints, as tests.

An adapter's suite is a subclass of this beside ``StoreContract``, with the same fixture ``bench``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.event import NodeCompleted
from weft.core.ledger import Verdict
from weft.core.outcome import completion, settled_row
from weft.core.snapshot import Settlement
from weft.core.time import micros
from weft.store.contract import Answer, Applied, StateStore
from weft.testing.store_contract import as_seen_before, expired, in_flight, phases, start
from weft.testing.walk import WORKER, Walk, node, nonce, workflow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.clock import VirtualClock
    from weft.core.event import Event
    from weft.core.payload import Json
    from weft.testing.store_contract import StoreBench

LONG_AGO = 5


class CheckpointContract:
    LEASE_SECONDS = 15.0

    @pytest.fixture
    def new_run(self, store: StateStore, clock: VirtualClock) -> Callable[..., Walk]:
        """Make a walk on the store under test whose completions are committed at checkpoints."""

        def made(*nodes: Json, checkpoint: bool = True, execution_id: str = "x1", **fields: Any) -> Walk:
            return Walk(
                workflow(*nodes, **fields),
                store=store,
                clock=clock,
                execution_id=execution_id,
                checkpoint=checkpoint,
            )

        return made

    # -- taking ------------------------------------------------------------------------------------

    async def test_a_completion_that_is_taken_frees_what_waited_for_it(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        applied = await take(walk, "a", output={"n": 1})
        assert applied.answer is Answer.YES
        (free,) = applied.free
        assert (free.node_id, free.attempt) == ("b", 1)
        (parent,) = free.parents
        assert (parent.node_id, parent.state, parent.output) == ("a", "COMPLETED", b'{"n":1}')
        assert not applied.complete

    async def test_the_same_completion_again_is_known_and_answered_with_all_that_is_free(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", node("b", "a"), node("c", "a"))
        await walk.begin()
        first, second = await take(walk, "a"), await take(walk, "a")
        assert [one.node_id for one in second.free] == [one.node_id for one in first.free] == ["b", "c"]
        assert second.answer is Answer.YES
        assert len((await walk.store.outcomes("x1")).rows) == 1

    async def test_several_of_one_execution_are_answered_once_and_after_all(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", "b", node("c", "a", "b"))
        await walk.begin()
        rows = [("x1", 1, settled_row(await completed(walk, name))) for name in ("a", "b")]
        applied = await walk.store.settle(rows)
        assert [one.answer for one in applied] == [Answer.YES, Answer.YES]
        assert [[free.node_id for free in one.free] for one in applied] == [[], ["c"]]

    async def test_what_a_completion_makes_free_is_queued_with_it(
        self, new_run: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_run("a", node("b", "a"), node("c", "a"), node("d", "a", "z"), "z")
        await walk.begin()
        event = await completed(walk, "a")
        (applied,) = await settle_ahead(walk, [event], ["b", "d"])
        assert (list(applied.queued), [one.node_id for one in applied.free]) == (["b"], ["c"])
        assert (await phases(walk))["b"] == "queued"
        # Told once more, as after a crash: it is on its way already.
        (applied,) = await settle_ahead(walk, [event], ["b"])
        assert (list(applied.queued), [one.node_id for one in applied.free]) == ([], ["c"])
        assert await start(walk, "b") is Answer.YES
        if bench.sent is not None:
            assert [task.node_id for task in await bench.sent()] == ["a", "z", "b"]

    async def test_a_join_is_queued_with_the_last_of_several_completions(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", "b", node("c", "a", "b"))
        await walk.begin()
        first, second = await settle_ahead(walk, [await completed(walk, name) for name in ("a", "b")], ["c"])
        assert (first, second) == (Applied(Answer.YES), Applied(Answer.YES, (), False, ["c"]))
        assert await start(walk, "c") is Answer.YES

    async def test_where_a_completion_is_not_taken_nothing_goes_behind_the_others(
        self, new_run: Callable[..., Walk]
    ) -> None:
        last = node("c", "a", "b", trigger_rule="all_done")
        walk = new_run("a", "b", last, failure_policy="continue")
        await walk.begin()
        events = [await completed(walk, name) for name in ("a", "b")]
        await asked(walk, await walk.failed("b"))
        applied = await settle_ahead(walk, events, ["c"])
        # The task was made of a result of b that does not count.
        assert [one.answer for one in applied] == [Answer.YES, Answer.REFUSED]
        assert [list(one.queued) for one in applied] == [[], []]
        assert [[free.node_id for free in one.free] for one in applied] == [["c"], []]

    async def test_a_result_of_an_older_attempt_is_refused(self, new_run: Callable[..., Walk]) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        late = await completed(walk, "a")
        await asked(walk, await walk.lost("a"))
        assert (await settle(walk, late)).answer is Answer.REFUSED

    async def test_another_generation_than_the_stores_is_refused_or_unknown(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a")
        await walk.begin()
        event = await completed(walk, "a")
        assert (await settle(walk, replace(event, generation=2))).answer is Answer.UNKNOWN
        await asked(walk, await walk.failed("a"))
        await walk.record(walk.retried())
        await walk.reopen()
        assert (await settle(walk, event)).answer is Answer.REFUSED

    async def test_a_node_that_nobody_has_started_is_not_settled(self, new_run: Callable[..., Walk]) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        assert (await take(walk, "b")).answer is Answer.REFUSED

    async def test_an_execution_that_is_committed_at_once_is_refused(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", checkpoint=False)
        await walk.begin()
        assert (await take(walk, "a")).answer is Answer.REFUSED
        assert list(await walk.store.unrecorded(limit=9)) == []

    async def test_an_execution_that_is_not_here_is_unknown_and_one_that_is_closed_is_refused(
        self, new_run: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_run("a")
        await walk.begin()
        event = await completed(walk, "a")
        await walk.store.close("x1", generation=1, epoch=1)
        assert (await settle(walk, event)).answer is Answer.REFUSED
        assert (await walk.store.outcomes("x1")).answer is Answer.REFUSED
        await bench.flush()
        assert (await settle(walk, event)).answer is Answer.UNKNOWN
        assert (await walk.store.outcomes("x1")).answer is Answer.UNKNOWN

    async def test_what_is_in_limbo_may_be_settled(
        self, new_run: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        await bench.flush()
        await walk.rebuild()
        assert (await take(walk, "a")).answer is Answer.YES

    async def test_a_reported_attempt_that_is_taken_holds_no_lease_and_no_place(
        self, new_run: Callable[..., Walk], clock: VirtualClock
    ) -> None:
        walk = new_run("a", node("b", "a"), max_concurrency=1)
        await walk.begin()
        await walk.store.report([await walk.result("a")], [nonce("a", 1)])
        (free,) = (await take(walk, "a")).free
        assert await walk.hand_out(free)
        clock.advance(1000)
        assert [(one.node_id, one.attempt) for one in await expired(walk)] == [("b", 1)]

    async def test_a_time_that_is_not_yet_is_taken_as_now(
        self, new_run: Callable[..., Walk], clock: VirtualClock
    ) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        ahead = clock.now() + micros(3)
        event = await completed(walk, "a")
        await settle(walk, replace(event, started_at=ahead, finished_at=ahead))
        (row,) = (await walk.store.outcomes("x1")).rows
        assert (row.queued_at, row.started_at, row.finished_at) == (clock.now(),) * 3

    # -- the last one ------------------------------------------------------------------------------

    async def test_whoever_settles_the_last_node_is_told_so(self, new_run: Callable[..., Walk]) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        applied = await take(walk, "a")
        assert await walk.carry_on(applied.free) == ["b"]
        assert (await take(walk, "b")).complete
        assert (await take(walk, "b")).complete
        (free,) = await walk.store.free(["x1"])
        assert free.complete

    async def test_whoever_merges_the_last_node_is_told_so_too(self, new_run: Callable[..., Walk]) -> None:
        walk = new_run("a", "b")
        await walk.begin()
        # Asked before the other one was settled, recorded after it.
        found = await walk.store.outcomes("x1", hold=["a"])
        await take(walk, "b")
        standing = await walk.record(replace(await completed(walk, "a"), asked=found.epoch))
        assert standing.execution is not None
        (applied,) = await walk.store.apply([Settlement(standing.execution, walk.plan, standing.rows)])
        assert applied.complete

    # -- telling -----------------------------------------------------------------------------------

    async def test_outcomes_are_told_each_after_those_it_was_started_on(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run(node("c", "b"), node("b", "a"), "a")
        await walk.begin()
        for name in "abc":
            await walk.carry_on((await take(walk, name, output=name)).free)
        found = await walk.store.outcomes("x1")
        assert (found.answer, found.epoch) == (Answer.YES, 1)
        assert [(row.node_id, row.output) for row in found.rows] == [
            ("a", b'"a"'),
            ("b", b'"b"'),
            ("c", b'"c"'),
        ]

    async def test_what_is_told_is_the_event_that_was_taken(
        self, new_run: Callable[..., Walk], clock: VirtualClock
    ) -> None:
        walk = new_run("a", "b")
        await walk.begin()
        clock.advance(LONG_AGO)
        event = await completed(walk, "a", output={"large": "x" * 5000})
        await settle(walk, event)
        (row,) = (await walk.store.outcomes("x1")).rows
        assert completion("x1", row, asked=0) == event

    async def test_an_outcome_is_told_until_the_journals_row_of_it_is_merged(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", "b", node("c", "a", "b"))
        await walk.begin()
        await take(walk, "a")
        await take(walk, "b")
        assert list(await walk.store.unrecorded(limit=9)) == ["x1"]
        await asked(walk, await completed(walk, "a"))
        assert [row.node_id for row in (await walk.store.outcomes("x1")).rows] == ["b"]
        await asked(walk, await completed(walk, "b"))
        assert (await walk.store.outcomes("x1")).rows == []
        assert list(await walk.store.unrecorded(limit=9)) == []

    async def test_as_many_executions_are_listed_as_were_asked_for(
        self, new_run: Callable[..., Walk]
    ) -> None:
        for name in ("x1", "x2", "x3"):
            walk = new_run("a", "b", execution_id=name)
            await walk.begin()
            await take(walk, "a")
        assert len(await walk.store.unrecorded(limit=2)) == 2
        assert sorted(await walk.store.unrecorded(limit=9)) == ["x1", "x2", "x3"]
        await walk.store.close("x2", generation=1, epoch=1)
        assert sorted(await walk.store.unrecorded(limit=9)) == ["x1", "x3"]

    # -- holding -----------------------------------------------------------------------------------

    async def test_a_node_that_is_held_is_not_settled_until_its_next_attempt(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", "b")
        await walk.begin()
        await walk.store.outcomes("x1", hold=["a"])
        assert (await take(walk, "a")).answer is Answer.REFUSED
        assert (await take(walk, "b")).answer is Answer.YES
        await asked(walk, await walk.lost("a"))
        assert walk.started[-1] == ("a", 1, 2)
        assert (await take(walk, "a")).answer is Answer.YES

    async def test_an_execution_that_is_held_settles_nothing(self, new_run: Callable[..., Walk]) -> None:
        walk = new_run("a", "b")
        await walk.begin()
        await take(walk, "a")
        assert len((await walk.store.outcomes("x1", hold=None)).rows) == 1
        assert (await take(walk, "b")).answer is Answer.REFUSED
        assert (await take(walk, "a")).answer is Answer.YES  # it is here

    async def test_nothing_is_installed_over_outcomes_that_the_journal_has_not(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", node("b", "a"), "c")
        await walk.begin()
        snapshot = await walk.journal.rebuild("x1", seen_epoch=1)
        assert snapshot is not None
        await take(walk, "a")
        assert await walk.install(snapshot, fresh=False) is Answer.REFUSED
        assert [row.node_id for row in (await walk.store.outcomes("x1")).rows] == ["a"]

    async def test_another_generation_is_installed_over_whatever_was_left(
        self, new_run: Callable[..., Walk]
    ) -> None:
        walk = new_run("a", "b")
        await walk.begin()
        await take(walk, "a")
        assert (await walk.record(replace(walk.cancelled(), asked=1))).verdict is Verdict.ACCEPTED
        await walk.record(walk.retried())
        assert await walk.reopen() == ["a", "b"]
        assert (await walk.store.outcomes("x1")).rows == []

    async def test_what_the_store_loses_nobody_is_told(
        self, new_run: Callable[..., Walk], bench: StoreBench
    ) -> None:
        walk = new_run("a", node("b", "a"))
        await walk.begin()
        await take(walk, "a")
        await bench.flush()
        await walk.rebuild()
        assert (await walk.store.outcomes("x1")).rows == []
        assert list(await walk.store.unrecorded(limit=9)) == []
        assert await phases(walk) == {"a": "limbo", "b": "waiting"}

    # -- looking in --------------------------------------------------------------------------------

    async def test_until_it_is_recorded_a_node_is_shown_as_reported(
        self, new_run: Callable[..., Walk], clock: VirtualClock
    ) -> None:
        walk = new_run("a", "b", node("c", "a"))
        await walk.begin()
        begun_at = clock.now()
        await walk.carry_on((await take(walk, "a")).free)
        assert await phases(walk) == {"a": "reported", "b": "running", "c": "running"}
        assert await in_flight(walk) == (0, 3)
        sight = await walk.store.look("x1", names=["a"])
        assert sight is not None
        seen = sight.nodes["a"]
        assert (seen.attempt, seen.worker, seen.started_at) == (1, WORKER, begun_at)
        running = await walk.store.running("x1")
        assert (running["a"].attempt, running["a"].worker) == (1, WORKER)
        await asked(walk, await completed(walk, "a"))
        assert await phases(walk) == {"b": "running", "c": "running"}
        assert await in_flight(walk) == (0, 2)


async def completed(walk: Walk, node_id: str, output: Json = None) -> NodeCompleted:
    event = await walk.completed(node_id, output)
    assert isinstance(event, NodeCompleted)
    return event


async def settle(walk: Walk, event: NodeCompleted) -> Applied:
    (applied,) = await walk.store.settle([(walk.execution_id, event.generation, settled_row(event))])
    return applied


async def settle_ahead(
    walk: Walk, events: Sequence[NodeCompleted], names: Sequence[str]
) -> Sequence[Applied]:
    """Let the store have completions, with the tasks of these nodes."""
    row = await walk.execution()
    tasks = [(walk.task(as_seen_before(walk, row, name)), row.epoch) for name in names]
    rows = [(walk.execution_id, event.generation, settled_row(event)) for event in events]
    return await walk.store.settle(rows, tasks)


async def take(walk: Walk, node_id: str, output: Json = None) -> Applied:
    """Let the store have the completion of a node's current attempt."""
    return await settle(walk, await completed(walk, node_id, output))


async def asked(walk: Walk, event: Event) -> None:
    """Take an event all the way, as one for which the store was asked first."""
    execution = await walk.execution()
    await walk.advance(replace(event, asked=execution.epoch))
