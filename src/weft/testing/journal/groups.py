"""The contract of groups, of whose executions only some run at once: a part of ``JournalContract``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.ledger.changes import Verdict
from weft.core.state import ExecutionState
from weft.errors import NotAllowedError
from weft.journal.contract import Claim, ExecutionQuery, LaneRelease, NewBatch, Submission
from weft.journal.firing import QueuePlace
from weft.testing.journal.triggers import firing_of, put, row_of
from weft.testing.recording import Recording, submission
from weft.triggers.model import Overlap

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter

LANE = "group/orders/acme"


def grouped(execution_id: str, *, group: str = "acme", limit: int = 1, **terms: Any) -> Submission:
    """Return a new execution of a group."""
    concurrency = {"group": "{{ input.customer }}", "limit": limit, **terms}
    new = submission(execution_id, workflow="orders", version=1, name="orders", concurrency=concurrency)
    return replace(new, group_name=group, starts=True)


async def join(journal: JournalAdapter, *names: str, **terms: Any) -> None:
    for name in names:
        await journal.submit([grouped(name, **terms)])


def run_of(journal: JournalAdapter, execution_id: str) -> Recording:
    return Recording(journal, execution_id, grouped(execution_id).plan)


class GroupsContract:
    async def test_one_of_a_group_waits_until_it_is_released(self, journal: JournalAdapter) -> None:
        (row,) = await journal.submit([grouped("a")])
        assert (row.state, row.started_at, row.group_name) == (ExecutionState.PENDING, None, "acme")
        assert (await journal.execution("a")) == row
        assert row.group_lane == LANE
        assert await journal.is_queued("a")
        assert await journal.active(not_updated_since=2**60) == []
        assert await journal.stalled_lanes(limit=9) == [("default", LANE)]
        assert await journal.release_queued(LANE, namespace="other") == LaneRelease()
        assert (await journal.release_queued(LANE)).started == ("a",)
        assert not await journal.is_queued("a")
        assert [one.id for one in await journal.active(not_updated_since=2**60)] == ["a"]

    async def test_no_more_than_the_limit_run_in_the_order_of_acceptance(
        self, journal: JournalAdapter
    ) -> None:
        await join(journal, "c", "a", "d", "b", limit=2)
        await join(journal, "other", group="umbrella")
        assert (await journal.release_queued(LANE)).started == ("c", "a")
        assert await journal.release_queued(LANE) == LaneRelease()
        assert await journal.stalled_lanes(limit=9) == [("default", "group/orders/umbrella")]
        await run_of(journal, "a").cancel()
        both = [("default", LANE), ("default", "group/orders/umbrella")]
        assert await journal.stalled_lanes(limit=9) == both
        assert await journal.stalled_lanes(limit=1) == both[:1]
        assert await journal.stalled_lanes(limit=9, after=both[0]) == both[1:]
        assert await journal.stalled_lanes(limit=9, after=both[1]) == []
        done = await asyncio.gather(*(journal.release_queued(LANE) for _ in range(4)))
        assert [one.started for one in done if one.started] == [("d",)]
        # A paused one holds its place, and one that was cancelled in the queue none.
        await run_of(journal, "c").pause()
        await run_of(journal, "d").cancel()
        await join(journal, "e", limit=2)
        assert (await journal.release_queued(LANE)).started == ("b",)
        await run_of(journal, "e").cancel()
        assert (await journal.release_queued(LANE)).started == ()
        assert await journal.stalled_lanes(limit=9) == [("default", "group/orders/umbrella")]

    async def test_a_paused_one_is_passed_over_and_keeps_its_turn(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b", "c")
        assert (await journal.release_queued(LANE)).started == ("a",)
        await run_of(journal, "b").pause()
        await run_of(journal, "a").cancel()
        assert (await journal.release_queued(LANE)).started == ("c",)
        await run_of(journal, "c").cancel()
        assert await journal.stalled_lanes(limit=9) == []
        assert (await journal.release_queued(LANE)).started == ()
        await join(journal, "d")
        await run_of(journal, "b").resume()
        assert (await journal.release_queued(LANE)).started == ("b",)

    async def test_nobody_is_overtaken_by_one_with_a_higher_limit(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b")
        await join(journal, "c", limit=5)
        assert (await journal.release_queued(LANE)).started == ("a",)
        assert (await journal.release_queued(LANE)).started == ()
        await run_of(journal, "a").cancel()
        # The newcomer's limit holds.
        assert (await journal.release_queued(LANE)).started == ("b", "c")

    async def test_many_paused_ones_are_in_nobodys_way(self, journal: JournalAdapter) -> None:
        names = [f"e{number:03}" for number in range(120)]
        await journal.submit([grouped(name) for name in names])
        for name in names:
            await run_of(journal, name).pause()
        await join(journal, "last")
        assert await journal.stalled_lanes(limit=9) == [("default", LANE)]
        assert (await journal.release_queued(LANE)).started == ("last",)

    async def test_a_full_group_refuses_newcomers(self, journal: JournalAdapter) -> None:
        terms: dict[str, Any] = {"limit": 2, "on_conflict": "reject"}
        await join(journal, "a", "b", **terms)
        await journal.release_queued(LANE)
        claim = Claim(key="k", request_digest="d", resource="execution/c")
        with pytest.raises(NotAllowedError) as refused:
            await journal.submit([grouped("c", **terms)], claim=claim)
        assert refused.value.code == "group_busy"
        assert await journal.execution("c") is None
        assert await journal.claim("k") is None
        await join(journal, "d", group="umbrella", **terms)
        # The same submit again is no newcomer: its answer was lost.
        (again,) = await journal.submit([grouped("b", **terms)])
        assert again.id == "b"
        await run_of(journal, "a").cancel()
        await journal.submit([grouped("c", **terms)], claim=claim)
        assert (await journal.release_queued(LANE)).started == ("c",)

    async def test_of_many_that_come_at_once_the_limit_is_taken(self, journal: JournalAdapter) -> None:
        new = [grouped(f"e{number}", limit=2, on_conflict="reject") for number in range(6)]
        done = await asyncio.gather(*(journal.submit([one]) for one in new), return_exceptions=True)
        assert sum(isinstance(one, NotAllowedError) for one in done) == 4
        assert len(await journal.executions()) == 2

    async def test_a_batch_is_refused_as_a_whole(self, journal: JournalAdapter) -> None:
        terms: dict[str, Any] = {"on_conflict": "reject"}
        batch = NewBatch(id="batch", workflow="orders", version=1)
        new = [grouped("a", group="x", **terms), grouped("b", **terms), grouped("c", **terms)]
        with pytest.raises(NotAllowedError):
            await journal.submit(new, batch=batch)
        assert await journal.executions() == []
        assert await journal.batch("batch") is None
        await journal.submit(new[:2], batch=batch)
        assert len(await journal.executions()) == 2

    async def test_one_that_takes_over_names_what_is_in_its_way(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b", limit=2)
        await journal.release_queued(LANE)
        await join(journal, "q", limit=2)
        await join(journal, "n", limit=2, on_conflict="cancel_running")
        assert await journal.stalled_lanes(limit=9) == [("default", LANE)]
        # Nothing that is to be cancelled starts.
        released = await journal.release_queued(LANE)
        assert (released.started, released.doomed[0]) == ((), "q")
        await run_of(journal, "q").cancel()
        released = await journal.release_queued(LANE)
        assert (released.started, released.doomed) == ((), ("a",))
        assert await journal.release_queued(LANE) == released
        await run_of(journal, "a").cancel()
        assert await journal.release_queued(LANE) == LaneRelease(("n",))
        # The newest counts: it cancels one before it that waited to take over.
        await join(journal, "m", "o", limit=1, on_conflict="cancel_running")
        assert (await journal.release_queued(LANE)).doomed[0] == "m"
        await run_of(journal, "m").cancel()
        assert (await journal.release_queued(LANE)).doomed == ("b", "n")

    async def test_a_retry_joins_anew(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        await join(journal, "a", "b")
        await journal.release_queued(LANE)
        first = run_of(journal, "a")
        await first.started()
        await first.cancel()
        clock.advance(1)
        retried = await first.retry()
        assert retried.verdict is Verdict.ACCEPTED
        row = await journal.execution("a")
        assert row is not None
        assert (row.state, row.started_at, row.finished_at, row.generation) == (
            ExecutionState.PENDING,
            None,
            None,
            2,
        )
        assert await journal.is_queued("a")
        # Behind the one that waited already.
        assert (await journal.release_queued(LANE)).started == ("b",)
        await run_of(journal, "b").cancel()
        assert (await journal.release_queued(LANE)).started == ("a",)
        await first.started()
        row = await journal.execution("a")
        assert row is not None
        assert (row.state, row.started_at is None) == (ExecutionState.RUNNING, False)

    async def test_one_that_was_cancelled_in_the_queue_may_be_retried(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b")
        await journal.release_queued(LANE)
        second = run_of(journal, "b")
        await second.cancel()
        row = await journal.execution("b")
        assert row is not None
        assert row.started_at is None
        await second.retry()
        assert (await journal.release_queued(LANE)).started == ()
        await run_of(journal, "a").cancel()
        assert (await journal.release_queued(LANE)).started == ("b",)

    async def test_a_full_group_refuses_a_retry(self, journal: JournalAdapter) -> None:
        terms: dict[str, Any] = {"on_conflict": "reject"}
        await join(journal, "a", **terms)
        await journal.release_queued(LANE)
        first = Recording(journal, "a", grouped("a", **terms).plan)
        await first.cancel()
        await join(journal, "b", **terms)
        refused = await first.retry()
        assert refused.verdict is Verdict.REFUSED
        assert refused.execution is not None
        assert refused.execution.state is ExecutionState.CANCELLED
        await run_of(journal, "b").cancel()
        assert (await first.retry()).verdict is Verdict.ACCEPTED

    async def test_one_of_a_batch_goes_on_to_its_group(self, journal: JournalAdapter) -> None:
        new = [
            replace(grouped(f"e{number}"), lane="batch/b", queue_slots=0 if number < 2 else 2)
            for number in range(4)
        ]
        await journal.submit(new)
        assert (await journal.release_queued(LANE)).started == ("e0",)
        # The second has its place in the batch, and waits in the group.
        assert await journal.release_queued("batch/b") == LaneRelease()
        await run_of(journal, "e0").cancel()
        released = await journal.release_queued("batch/b")
        assert (released.started, released.lanes) == ((), (LANE,))
        assert (await journal.release_queued(LANE)).started == ("e1",)
        await run_of(journal, "e1").cancel()
        assert (await journal.release_queued("batch/b")).lanes == (LANE,)
        assert (await journal.release_queued(LANE)).started == ("e2",)

    async def test_a_trigger_starts_one_of_a_group(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of(overlap=Overlap.ALLOW))
        firing = firing_of(row)
        assert firing.submission is not None
        plain = grouped("execution-1", on_conflict="reject")
        new = replace(plain, trigger=row.name, lane=row.lane)
        await journal.fire([replace(firing, submission=new)])
        assert (await journal.release_queued(LANE)).started == ("execution-1",)
        seen = await journal.trigger("nightly")
        assert seen is not None
        again = firing_of(seen, "execution-2")
        with pytest.raises(NotAllowedError):
            await journal.fire([replace(again, submission=replace(new, id="execution-2"))])
        # Nothing was written.
        assert await journal.trigger("nightly") == seen

    async def test_its_place_in_the_queue_is_known(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b", "c", "d", limit=2)
        await journal.release_queued(LANE)
        await run_of(journal, "c").pause()
        assert await journal.place_in_queue("d") == QueuePlace(lane=LANE, slots=2, running=2, before=1)
        assert await journal.place_in_queue("c") == QueuePlace(lane=LANE, slots=2, running=2, before=0)
        assert await journal.place_in_queue("a") is None

    async def test_executions_are_listed_by_their_group(self, journal: JournalAdapter) -> None:
        await join(journal, "a", "b")
        await join(journal, "c", group="umbrella")
        listed = await journal.executions(ExecutionQuery(group="acme"))
        assert [(row.id, row.group_name) for row in listed] == [("b", "acme"), ("a", "acme")]
        states = (ExecutionState.PENDING, ExecutionState.FAILED)
        assert len(await journal.executions(ExecutionQuery(group="acme", states=states))) == 2
        assert await journal.executions(ExecutionQuery(group="acme", workflow="other")) == []
        found = await journal.search(ExecutionQuery(group="umbrella"))
        assert [row.id for row in found.rows] == ["c"]
