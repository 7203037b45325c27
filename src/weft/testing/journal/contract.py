"""The contract of every journal, as tests. An adapter's suite is a subclass with the fixture ``journal``.

::

    class TestMyJournal(JournalContract):
        @pytest_asyncio.fixture
        async def journal(self, clock, new_id):
            journal = MyJournal(now=clock.now, new_id=new_id, notify=())
            await journal.open()
            yield journal
            await journal.close()

A durable journal runs the suite a second time as ``Reopened``: closed and opened anew before every call.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from weft.clock import VirtualClock
from weft.core.event import NodeCompleted, RetryRequested, Running
from weft.core.ledger.changes import Verdict
from weft.core.rows import Halt
from weft.core.state import ExecutionState, NodeState
from weft.core.time import MICROSECONDS, micros
from weft.definition.model import Delivery
from weft.journal.contract import LetterQuery
from weft.testing.journal.children import ChildRowsContract
from weft.testing.journal.groups import GroupsContract
from weft.testing.journal.history import HistoryContract
from weft.testing.journal.lists import BatchesContract, ClaimsContract, ListsContract
from weft.testing.journal.logs import LogsContract
from weft.testing.journal.notifications import NotificationsContract
from weft.testing.journal.parked import ParkedRowsContract
from weft.testing.journal.purge import PurgeContract
from weft.testing.journal.search import ActivityContract, LetterGroupsContract, SearchContract
from weft.testing.journal.triggers import TriggersContract
from weft.testing.journal.waits import WaitRowsContract
from weft.testing.journal.workflows import WorkflowsContract
from weft.testing.recording import ERROR, Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from weft.journal.contract import JournalAdapter

ACCEPTED, KNOWN, STALE, REFUSED, UNKNOWN = Verdict

COMPLETED, FAILED, SKIPPED, CANCELLED = (
    NodeState.COMPLETED,
    NodeState.FAILED,
    NodeState.SKIPPED,
    NodeState.CANCELLED,
)

# What is in hand when an execution is stopped.
IN_HAND = Running(attempt=1, worker="worker-7", queued_at=10, started_at=20)

# The table of control calls: per state, what each call is answered with.
CONTROL = {
    ExecutionState.PENDING: {"cancel": ACCEPTED, "pause": ACCEPTED, "resume": KNOWN, "retry": REFUSED},
    ExecutionState.RUNNING: {"cancel": ACCEPTED, "pause": ACCEPTED, "resume": KNOWN, "retry": REFUSED},
    ExecutionState.PAUSED: {"cancel": ACCEPTED, "pause": KNOWN, "resume": ACCEPTED, "retry": REFUSED},
    ExecutionState.COMPLETED: {"cancel": REFUSED, "pause": REFUSED, "resume": REFUSED, "retry": REFUSED},
    ExecutionState.FAILED: {"cancel": REFUSED, "pause": REFUSED, "resume": REFUSED, "retry": ACCEPTED},
    ExecutionState.CANCELLED: {"cancel": KNOWN, "pause": REFUSED, "resume": REFUSED, "retry": ACCEPTED},
}
CELLS = [(state, call, verdict) for state, calls in CONTROL.items() for call, verdict in calls.items()]


class Reopened:
    """A durable journal that is closed and opened anew before every call: nothing may live in it alone."""

    def __init__(self, make: Callable[[], JournalAdapter]) -> None:
        self._make = make
        self._one_at_a_time = asyncio.Lock()

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            async with self.opened() as journal:
                return await getattr(journal, method)(*args, **kwargs)

        return call

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[JournalAdapter]:
        """Open the journal for more than one call."""
        async with self._one_at_a_time:
            journal = self._make()
            await journal.open()
            try:
                yield journal
            finally:
                await journal.close()


class JournalContract(
    ClaimsContract,
    BatchesContract,
    ListsContract,
    SearchContract,
    LetterGroupsContract,
    ActivityContract,
    WorkflowsContract,
    PurgeContract,
    HistoryContract,
    LogsContract,
    NotificationsContract,
    ParkedRowsContract,
    WaitRowsContract,
    ChildRowsContract,
    TriggersContract,
    GroupsContract,
):
    pytestmark = pytest.mark.asyncio

    # A journal in memory has the inputs at hand.
    HOLDS_INPUTS = False

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def new_id(self) -> Callable[[], str]:
        numbers = count(1)
        return lambda: f"id-{next(numbers):08d}"

    @pytest.fixture
    def journal(self) -> JournalAdapter:
        raise NotImplementedError("a suite gives the journal that it is about, opened")

    @pytest_asyncio.fixture(autouse=True)
    async def _rows_agree_in_the_end(self, journal: JournalAdapter) -> AsyncIterator[None]:
        yield
        async with journal.opened() if isinstance(journal, Reopened) else nullcontext(journal) as opened:
            for namespace in ("default", "other"):
                for row in await opened.executions(namespace=namespace, limit=1_000):
                    await assert_consistent(opened, row.id)

    # -- submit ------------------------------------------------------------------------------------

    async def test_a_new_execution_is_pending_in_generation_and_epoch_1(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        new = submission("e", node("a"), node("b", "a"), input=b'{"n": 1}', labels={"team": "blue"})
        new = replace(new, actor="ann")
        (given,) = await journal.submit([new])
        row = await journal.execution("e")
        assert row == given
        assert (row.state, row.generation, row.epoch) == (ExecutionState.PENDING, 1, 1)
        assert (row.unsettled, row.failed, row.seq) == (2, 0, 1)
        assert (row.input, row.labels, row.digest) == (b'{"n": 1}', {"team": "blue"}, new.plan.digest)
        assert (row.created_at, row.started_at, row.finished_at) == (clock.now(), None, None)
        assert await journal.nodes("e") == {}
        (created,) = await journal.events("e")
        assert (created.seq, created.type, created.execution) == (1, "execution.created", "e")
        assert created.actor == "ann"

    async def test_an_execution_that_starts_with_its_submit_runs_after_one_commit(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        new = [
            replace(submission("timed", node("a"), timeout_seconds=60), starts=True),
            replace(submission("labelled", node("a"), labels={"team": "blue"}), starts=True),
            submission("later", node("a")),
        ]
        given = await journal.submit(new)
        rows = [await journal.execution(each.id) for each in new]
        assert rows == list(given)
        timed, labelled, later = given
        assert (timed.state, timed.seq, timed.started_at) == (ExecutionState.RUNNING, 2, clock.now())
        assert timed.deadline_at == clock.now() + micros(60)
        assert (labelled.state, labelled.seq, labelled.deadline_at) == (ExecutionState.RUNNING, 2, None)
        assert (later.state, later.seq, later.started_at) == (ExecutionState.PENDING, 1, None)
        history = await journal.events("timed")
        assert [(event.seq, event.type, event.at, event.state) for event in history] == [
            (1, "execution.created", clock.now(), None),
            (2, "execution.started", clock.now(), "RUNNING"),
        ]
        assert [event.type for event in await journal.events("later")] == ["execution.created"]

    async def test_a_submission_that_comes_again_changes_nothing(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.completed("a")
        before = await run.row()
        (row,) = await journal.submit([submission(run.id, node("a"), node("b"))])
        assert row == before == await run.row()
        assert await run.types() == ["execution.created", "execution.started", "node.completed"]

    async def test_many_executions_are_submitted_at_once(self, journal: JournalAdapter) -> None:
        ids = [f"e-{number:04d}" for number in range(300)]
        rows = await journal.submit([submission(execution_id) for execution_id in ids])
        assert [row.id for row in rows] == ids
        assert {row.id for row in await journal.executions(limit=1_000)} == set(ids)

    async def test_a_plan_is_given_by_its_digest(self, journal: JournalAdapter) -> None:
        new = submission("e", node("a"), node("b", "a", condition="a > 1"), output="{{ b }}")
        await journal.submit([new])
        plan = await journal.plan(new.plan.digest)
        assert plan is not None
        assert (plan.digest, plan.definition) == (new.plan.digest, new.plan.definition)
        assert await journal.plan("0" * 64) is None

    # -- the fence ---------------------------------------------------------------------------------

    async def test_an_accepted_result_is_the_nodes_row(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"))
        now = clock.now()
        recorded_event = await run.completed(
            "a", output=b'{"x": 1.0}', queued_at=now - 3, started_at=now - 2, finished_at=now - 1
        )
        assert recorded_event.verdict is ACCEPTED
        row = await run.node("a")
        assert recorded_event.rows == (row,)
        assert recorded_event.execution == await run.row()
        assert recorded_event.plan is not None
        assert recorded_event.plan.digest == run.plan.digest
        assert (row.state, row.output, row.output_bytes) == (COMPLETED, b'{"x": 1.0}', 10)
        assert (row.attempt, row.ended, row.answered, row.generation) == (1, 1, 1, 1)
        assert (row.worker, row.queued_at, row.started_at, row.finished_at) == (
            "worker-1",
            now - 3,
            now - 2,
            now - 1,
        )
        event = (await run.events())[-1]
        assert (event.type, event.node, event.attempt, event.state) == ("node.completed", "a", 1, "COMPLETED")
        assert (event.seq, event.started_at, event.finished_at) == (row.seq, now - 2, now - 1)
        assert event.output_digest is not None
        assert (await run.row()).unsettled == 1

    async def test_the_same_result_again_is_known_and_changes_nothing(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.completed("a", output=b"1")
        before = await run.row(), await run.node("a"), await run.events()
        recorded_event = await run.completed("a", output=b"2")
        assert recorded_event.verdict is KNOWN
        assert recorded_event.rows == (before[1],)
        assert (await run.row(), await run.node("a"), await run.events()) == before

    async def test_the_same_result_twice_in_one_batch_counts_once(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        first, second = await journal.record(
            [run.completion("a", output=b"1"), run.completion("a", output=b"2")]
        )
        assert (first.verdict, second.verdict) == (ACCEPTED, KNOWN)
        assert (await run.node("a")).output == b"1"
        assert (await run.row()).unsettled == 1

    async def test_a_known_result_of_a_finished_execution_is_still_known(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.completed("a")
        assert (await run.completed("a")).verdict is KNOWN
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_the_result_of_a_superseded_attempt_is_stale_and_discarded(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.lost("a", attempt=1)
        recorded_event = await run.completed("a", attempt=1)
        assert recorded_event.verdict is STALE
        assert (await run.node("a")).state is None
        assert recorded_event.rows == (await run.node("a"),)
        discarded = (await run.events())[-1]
        assert (discarded.type, discarded.node, discarded.attempt) == ("result.discarded", "a", 1)
        assert (await run.completed("a", attempt=2)).verdict is ACCEPTED

    async def test_the_result_of_an_older_generation_is_stale_and_discarded(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"))
        await run.failed("a", skips=["b"])
        await run.retry()
        recorded_event = await run.completed("a", attempt=2, generation=1)
        assert recorded_event.verdict is STALE
        discarded = (await run.events())[-1]
        assert (discarded.type, discarded.generation) == ("result.discarded", 1)
        assert (await run.node("a")).state is None

    async def test_a_late_result_of_a_cancelled_execution_is_discarded(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.cancel()
        row = await run.node("a")
        assert (await run.completed("a")).verdict is STALE
        assert (await run.node("a")) == row
        assert (await run.types())[-1] == "result.discarded"

    async def test_a_result_for_an_attempt_never_issued_is_stale(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        assert (await run.completed("a", attempt=2)).verdict is STALE

    async def test_what_the_journal_does_not_have_is_unknown(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        stranger = Recording(journal, "stranger", run.plan)
        recorded_event = await stranger.completed("a")
        assert (recorded_event.verdict, recorded_event.execution, recorded_event.rows) == (UNKNOWN, None, ())
        assert (await stranger.cancel()).verdict is UNKNOWN
        assert await journal.execution("stranger") is None
        before = await run.row()
        assert (await run.completed("ghost")).verdict is UNKNOWN
        assert await run.row() == before

    async def test_a_batch_is_judged_in_order_across_executions(self, journal: JournalAdapter) -> None:
        one = await Recording.start(journal, node("a"), node("b"), execution_id="one")
        two = await Recording.start(journal, node("a"), execution_id="two")
        recorded_events = await journal.record(
            [
                two.completion("a"),
                one.completion("a"),
                one.completion("ghost"),
                one.completion("b"),
                two.completion("a"),
            ]
        )
        assert [recorded_event.verdict for recorded_event in recorded_events] == [
            ACCEPTED,
            ACCEPTED,
            UNKNOWN,
            ACCEPTED,
            KNOWN,
        ]
        assert (await one.row()).state is ExecutionState.COMPLETED
        assert (await two.row()).state is ExecutionState.COMPLETED

    async def test_no_events_are_no_commit(self, journal: JournalAdapter) -> None:
        assert await journal.record([]) == []

    async def test_a_wide_batch_keeps_every_row(self, journal: JournalAdapter) -> None:
        names = [f"n{number}" for number in range(2500)]
        run = await Recording.start(journal, *(node(name) for name in names))
        recorded_events = await journal.record(
            [run.completion(name, output=b'"%s"' % name.encode()) for name in names]
        )
        assert {recorded_event.verdict for recorded_event in recorded_events} == {ACCEPTED}
        rows = await journal.nodes(run.id)
        assert {name: row.output for name, row in rows.items()} == {
            name: b'"%s"' % name.encode() for name in names
        }
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_a_recorded_event_has_all_that_recording_added_to_the_history(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.submit(
            journal, node("a"), node("b", "a"), node("c", "b"), node("d"), execution_id="e"
        )
        recorded_events = [await run.started(), await run.lost("a"), await run.completed("a", attempt=1)]
        recorded_events.append(await run.failed("a", attempt=2, skips=["b", "c"]))
        recorded_events += [await run.completed("d"), await run.cancel(), await run.retry()]
        recorded_events += await journal.record([run.completion("d"), run.completion("a", attempt=3)])
        assert [[event.type for event in recorded_event.history] for recorded_event in recorded_events] == [
            ["execution.started"],
            ["node.lost"],
            ["result.discarded"],
            ["node.failed", "node.skipped", "node.skipped", "node.cancelled", "execution.failed"],
            ["result.discarded"],
            [],
            ["execution.retried"],
            ["result.discarded"],
            ["node.completed"],
        ]
        told = [event for recorded_event in recorded_events for event in recorded_event.history]
        assert told == (await journal.events("e"))[1:]

    # -- attempts ----------------------------------------------------------------------------------

    async def test_a_failure_with_another_attempt_to_come_issues_it(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"))
        due_at = clock.now() + micros(5)
        assert (await run.failed_once("a", delay_seconds=5)).verdict is ACCEPTED
        row = await run.node("a")
        assert (row.attempt, row.ended, row.answered, row.state) == (2, 1, 1, None)
        assert (row.failures, row.losses, row.retry_at, row.error) == (1, 0, due_at, ERROR)
        event = (await run.events())[-1]
        assert (event.type, event.attempt, event.due_at, event.error) == ("node.retrying", 1, due_at, ERROR)
        assert (await run.failed_once("a", delay_seconds=5)).verdict is KNOWN
        assert (await run.completed("a", attempt=2)).verdict is ACCEPTED
        done = await run.node("a")
        assert (done.attempt, done.failures, done.retry_at, done.error) == (2, 1, None, None)

    async def test_a_lost_attempt_is_followed_by_the_next_and_counts_as_a_loss(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        assert (await run.lost("a", attempt=1)).verdict is ACCEPTED
        assert (await run.lost("a", attempt=2, counted=False)).verdict is ACCEPTED
        row = await run.node("a")
        assert (row.attempt, row.ended, row.answered, row.losses, row.failures) == (3, 2, 0, 1, 0)
        assert (await run.types())[-2:] == ["node.lost", "node.lost"]

    async def test_the_same_loss_again_is_known(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        await run.lost("a", attempt=1)
        assert (await run.lost("a", attempt=1)).verdict is KNOWN
        assert (await run.node("a")).attempt == 2

    async def test_a_result_ends_the_row_of_losses(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        await run.lost("a", attempt=1)
        await run.failed_once("a", attempt=2)
        row = await run.node("a")
        assert (row.losses, row.failures) == (0, 1)

    async def test_a_node_from_the_cache_has_no_attempt(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        assert (await run.cached("a", b'{"hit": true}')).verdict is ACCEPTED
        row = await run.node("a")
        assert (row.state, row.cached, row.output, row.ended, row.worker) == (
            COMPLETED,
            True,
            b'{"hit": true}',
            0,
            None,
        )
        assert row.queued_at == row.started_at == row.finished_at == clock.now()
        event = (await run.events())[-1]
        assert (event.type, event.attempt) == ("node.completed", 0)
        assert (await run.cached("a", b"2")).verdict is KNOWN

    async def test_a_callers_place_in_a_trace_is_kept(self, journal: JournalAdapter) -> None:
        traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        traced = replace(submission("traced", workflow="orders", version=1), traceparent=traceparent)
        rows = await journal.submit([traced, submission("untraced", workflow="orders", version=1)])
        assert [row.traceparent for row in rows] == [traceparent, None]
        for id_, expected in (("traced", traceparent), ("untraced", None)):
            stored = await journal.execution(id_)
            assert stored is not None
            assert stored.traceparent == expected
        listed = {row.id: row.traceparent for row in await journal.executions()}
        assert listed == {"traced": traceparent, "untraced": None}

    async def test_a_fork_begins_with_the_rows_that_it_keeps(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        nodes = (node("a"), node("b"), node("c"), node("d", "a"))
        old = await Recording.start(journal, *nodes)
        await old.completed("a", output=b'{"n": 1}')
        blob = await journal.put_blob(b'"large"')
        await old.completed("b", output=None, blob=blob, output_bytes=7)
        await old.skipped("c", reason="condition")
        clock.advance(60)
        rows = await journal.nodes(old.id)
        forked = replace(
            submission("fork", *nodes, labels={"team": "blue"}),
            forked_from=old.id,
            kept=[rows["a"], rows["b"], rows["c"]],
        )
        (row,) = await journal.submit([forked])
        assert (row.unsettled, row.skipped, row.forked_from, row.state) == (1, 1, old.id, "PENDING")
        stored = await journal.execution("fork")
        assert stored is not None
        assert (stored.unsettled, stored.skipped, stored.completed, stored.seq) == (1, 1, 2, row.seq)
        assert stored.forked_from == old.id
        # The submit came again: its answer was lost.
        assert [again.seq for again in await journal.submit([forked])] == [row.seq]
        fork = Recording(journal, "fork", forked.plan)
        kept = await journal.nodes("fork")
        assert kept.keys() == {"a", "b", "c"}
        assert (kept["a"].output, kept["b"].blob, kept["c"].state) == (b'{"n": 1}', blob, "SKIPPED")
        assert all(one.reused and not one.cached and one.ended == 0 for one in kept.values())
        assert kept["a"].queued_at == kept["a"].finished_at == clock.now()
        events = await fork.events()
        assert [event.seq for event in events] == list(range(1, 5))
        assert [(event.type, event.node, event.attempt) for event in events[1:]] == [
            ("node.completed", "a", 0),
            ("node.completed", "b", 0),
            ("node.skipped", "c", None),
        ]
        snapshot = await journal.rebuild("fork", seen_epoch=1)
        assert snapshot is not None
        assert {one.node_id for one in snapshot.rows} == {"a", "b", "c"}
        await fork.started()
        assert (await fork.completed("a")).verdict is not ACCEPTED
        assert (await fork.completed("d")).verdict is ACCEPTED
        done = await journal.execution("fork")
        assert done is not None
        assert (done.state, done.output) == ("COMPLETED", b'{"b":"large","d":1}')

    async def test_an_attempt_that_was_issued_is_not_answered_from_the_cache(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a", cache={"ttl_seconds": 60}))
        await run.issued("a", attempt=1)
        assert (await run.cached("a", b"1")).verdict is STALE
        assert (await run.node("a")).state is None
        await run.failed_once("a", attempt=1)
        assert (await run.cached("a", b"1", attempt=2)).verdict is ACCEPTED

    async def test_an_at_most_once_attempt_is_issued_under_the_stores_epoch(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a", delivery=Delivery.AT_MOST_ONCE))
        assert (await run.issued("a", epoch=2)).verdict is STALE
        assert (await run.node("a")).issued == 0
        recorded_event = await run.issued("a", epoch=1)
        assert recorded_event.verdict is ACCEPTED
        assert (await run.node("a")).issued == 1
        assert recorded_event.rows == (await run.node("a"),)
        assert (await run.issued("a", epoch=1)).verdict is ACCEPTED
        assert (await run.completed("a")).verdict is ACCEPTED
        assert (await run.issued("a", epoch=1)).verdict is KNOWN

    async def test_an_issued_attempt_that_was_lost_fails_for_good(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a", delivery=Delivery.AT_MOST_ONCE))
        await run.issued("a")
        lost = {"code": "lost", "message": "it may have run", "retryable": False}
        assert (await run.failed("a", error=lost, lost=True, started_at=None)).verdict is ACCEPTED
        row = await run.node("a")
        assert (row.state, row.error, row.issued, row.losses, row.failures) == (FAILED, lost, 1, 1, 0)
        assert (await run.types())[-3:] == ["node.lost", "node.failed", "execution.failed"]

    async def test_times_of_a_clock_that_is_ahead_are_held_in_order(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"), node("c"))
        now = clock.now()
        await run.completed("a", queued_at=now + 9, started_at=now + 8, finished_at=now + 7)
        row = await run.node("a")
        assert row.queued_at == row.started_at == row.finished_at == now
        await run.completed("b", queued_at=now - 1, started_at=now - 5, finished_at=now - 9)
        row = await run.node("b")
        assert row.queued_at == row.started_at == row.finished_at == now - 9
        await run.failed("c", queued_at=now + 9, started_at=None)
        assert (await run.node("c")).queued_at == now

    # -- the end -----------------------------------------------------------------------------------

    async def test_the_last_result_finishes_the_execution_in_its_commit(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(
            journal, node("a"), node("b", "a"), output={"sum": "{{ a.n + b.n }}", "of": "{{ input.who }}"},
            input=b'{"who": "us"}',
        )  # fmt: skip
        await run.completed("a", output=b'{"n": 1}')
        clock.advance(1)
        recorded_event = await run.completed("b", output=b'{"n": 2}')
        row = await run.row()
        assert recorded_event.execution == row
        assert (row.state, row.output, row.error) == (
            ExecutionState.COMPLETED,
            b'{"sum":3,"of":"us"}',
            None,
        )
        assert row.finished_at == clock.now()
        assert (await run.types())[-2:] == ["node.completed", "execution.completed"]

    async def test_without_an_output_the_leaves_are_given_byte_for_byte(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c", "a"))
        await journal.record(
            [
                run.completion("a"),
                run.completion("c", output=b'{ "z" : 1.0 }'),
                run.completion("b", output=b"[ ]"),
            ]
        )
        assert (await run.row()).output == b'{"b":[ ],"c":{ "z" : 1.0 }}'

    async def test_an_output_that_cannot_be_made_leaves_the_state_and_says_why(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), output="{{ a + 1 }}")
        await run.completed("a", output=b'"text"')
        row = await run.row()
        assert (row.state, row.output) == (ExecutionState.COMPLETED, None)
        assert row.error is not None
        assert row.error["code"] == "output_error"

    async def test_an_output_may_be_read_from_a_blob(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), output="{{ a.n }}")
        name = await journal.put_blob(b'{"n": 7}')
        await run.completed("a", output=None, blob=name, output_bytes=8)
        row = await run.node("a")
        assert (row.output, row.blob, row.output_bytes) == (None, name, 8)
        assert (await run.row()).output == b"7"

    async def test_skipped_nodes_never_fail_an_execution(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"))
        assert (await run.skipped("a")).verdict is ACCEPTED
        assert (await run.skipped("b", "upstream_skipped", "a")).verdict is ACCEPTED
        assert await run.states() == {"a": SKIPPED, "b": SKIPPED}
        row = await run.node("b")
        assert (row.reason, row.cause, row.ended, row.queued_at) == ("upstream_skipped", "a", 0, None)
        assert (await run.row()).state is ExecutionState.COMPLETED
        assert (await run.skipped("b", "upstream_skipped", "a")).verdict is KNOWN

    async def test_under_fail_fast_a_failure_stops_everything_in_its_commit(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c"), node("d", "c"))
        recorded_event = await run.failed("a", skips=["b"], running={"c": IN_HAND})
        row = await run.row()
        assert recorded_event.execution == row
        assert await run.states() == {"a": FAILED, "b": SKIPPED, "c": CANCELLED, "d": CANCELLED}
        assert row.state is ExecutionState.FAILED
        assert row.error is not None
        assert (row.error["code"], row.error["node"]) == ("node_failed", "a")
        behind, running, unrun = [await run.node(name) for name in "bcd"]
        assert (behind.reason, behind.cause) == ("upstream_failed", "a")
        assert (running.reason, running.cause, running.ended, running.worker) == (
            "fail_fast",
            "a",
            1,
            "worker-7",
        )
        assert (running.queued_at, running.started_at, running.finished_at) == (10, 20, clock.now())
        assert (unrun.ended, unrun.worker, unrun.started_at) == (0, None, None)
        assert (await run.types())[2:] == [
            "node.failed",
            "node.skipped",
            "node.cancelled",
            "node.cancelled",
            "execution.failed",
        ]

    async def test_under_continue_independent_branches_go_on(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c"), failure_policy="continue")
        await run.failed("a", skips=["b"])
        assert (await run.row()).state is ExecutionState.RUNNING
        await run.completed("c")
        row = await run.row()
        assert row.state is ExecutionState.FAILED
        assert row.error is not None
        assert row.error["node"] == "a"

    async def test_of_several_failures_the_first_is_the_executions(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("b"), node("a"), failure_policy="continue")
        await run.failed("a")
        await run.failed("b")
        error = (await run.row()).error
        assert error is not None
        assert error["node"] == "a"

    async def test_a_failure_whose_handler_can_still_run_ends_nothing(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("h", "a", trigger_rule="one_failed"), node("c"))
        await run.failed("a")
        assert (await run.row()).state is ExecutionState.RUNNING
        assert await run.letters() == {("a", 1): "open"}
        await run.completed("h")
        assert await run.letters() == {("a", 1): "handled"}
        await run.completed("c")
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_a_handler_that_fails_too_makes_the_failure_fatal(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("h", "a", trigger_rule="one_failed"), node("c"))
        await run.failed("a")
        await run.failed("h")
        row = await run.row()
        assert row.state is ExecutionState.FAILED
        assert await run.states() == {"a": FAILED, "h": FAILED, "c": CANCELLED}
        assert await run.letters() == {("a", 1): "open", ("h", 1): "open"}

    async def test_a_failure_that_was_handled_before_it_came_leaves_a_handled_letter(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(
            journal, node("a"), node("b"), node("h", "a", "b", trigger_rule="one_failed")
        )
        await run.failed("a")
        await run.completed("h")
        await run.failed("b")
        assert await run.letters() == {("a", 1): "handled", ("b", 1): "handled"}
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_a_dead_letter_says_what_failed(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        run = await Recording.start(journal, node("a", queue="slow"))
        await run.failed_once("a")
        await run.failed("a", attempt=2)
        (letter,) = await journal.dead_letters()
        assert (letter.execution_id, letter.node_id, letter.generation) == (run.id, "a", 1)
        assert (letter.attempt, letter.handler, letter.queue) == (2, "echo", "slow")
        assert (letter.error, letter.state, letter.created_at) == (ERROR, "open", clock.now())

    # -- control -----------------------------------------------------------------------------------

    @pytest.mark.parametrize(("state", "call", "verdict"), CELLS)
    async def test_control_calls_follow_the_table(
        self, journal: JournalAdapter, state: ExecutionState, call: str, verdict: Verdict
    ) -> None:
        run = await self._in_state(journal, state)
        before = await run.row(), await run.events()
        assert before[0].state is state
        assert await run.control(call) is verdict
        if verdict is not ACCEPTED:
            assert (await run.row(), await run.events()) == before
            return
        event = (await run.events())[-1]
        assert event.actor == "ann"
        states = {"cancel": "CANCELLED", "pause": "PAUSED", "resume": "RUNNING", "retry": "RUNNING"}
        assert event.state == (await run.row()).state == states[call]

    async def _in_state(self, journal: JournalAdapter, state: ExecutionState) -> Recording:
        run = await Recording.submit(journal, node("a"), node("b"))
        if state is not ExecutionState.PENDING:
            await run.started()
        match state:
            case ExecutionState.PAUSED:
                await run.pause()
            case ExecutionState.COMPLETED:
                await run.completed("a")
                await run.completed("b")
            case ExecutionState.FAILED:
                await run.failed("a")
            case ExecutionState.CANCELLED:
                await run.cancel()
        return run

    async def test_an_execution_is_started_once(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        run = await Recording.submit(journal, node("a"))
        clock.advance(3)
        assert (await run.started()).verdict is ACCEPTED
        row = await run.row()
        assert (row.state, row.started_at) == (ExecutionState.RUNNING, clock.now())
        clock.advance(3)
        assert (await run.started()).verdict is KNOWN
        assert await run.row() == row

    async def test_cancel_settles_all_that_is_unsettled(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"), node("c", "b"))
        await run.completed("a")
        await run.cancel({"b": IN_HAND})
        assert await run.states() == {"a": COMPLETED, "b": CANCELLED, "c": CANCELLED}
        row = await run.row()
        assert (row.state, row.error, row.finished_at) == (ExecutionState.CANCELLED, None, clock.now())
        stopped = await run.node("b")
        assert (stopped.reason, stopped.ended, stopped.worker, stopped.finished_at) == (
            "cancelled",
            1,
            "worker-7",
            clock.now(),
        )

    async def test_an_execution_of_thousands_of_nodes_is_cancelled_in_one_commit(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, *(node(f"n{number}") for number in range(3_000)))
        await run.cancel()
        assert set((await run.states()).values()) == {CANCELLED}
        assert (await run.row()).seq == 3_003

    async def test_running_attempts_of_a_paused_execution_count_and_may_finish_it(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.pause()
        assert (await run.completed("a")).verdict is ACCEPTED
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_what_is_in_hand_of_a_paused_execution_is_kept_for_a_rebuild(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.pause()
        seq = (await run.row()).seq
        history = await run.events()
        assert (await run.observe_halt({"a": 1}, epoch=2, paused_seq=seq)).verdict is STALE
        assert (await run.observe_halt({"a": 1}, paused_seq=seq - 1)).verdict is STALE
        assert (await run.row()).halt == Halt(1, seq)
        assert (await run.observe_halt({"a": 1}, paused_seq=seq)).verdict is ACCEPTED
        assert await run.events() == history
        for epoch in (2, 3):
            snapshot = await journal.rebuild(run.id, seen_epoch=epoch - 1)
            assert snapshot is not None
            assert snapshot.execution.halt == Halt(1, seq, {"a": 1})
            assert [snapshot.may_be_in_hand(name, 1) for name in "ab"] == [True, False]
            assert not snapshot.may_be_in_hand("a", 2)
        await run.resume()
        assert (await run.row()).halt is None
        # Of the next pause nothing is known, whatever was seen of the one before.
        await run.pause()
        assert (await run.observe_halt({}, epoch=3, paused_seq=seq)).verdict is STALE
        snapshot = await journal.rebuild(run.id, seen_epoch=3)
        assert snapshot is not None
        assert snapshot.may_be_in_hand("b", 1)

    async def test_what_was_in_hand_at_a_stop_is_known_to_the_first_store_after_it(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        assert (await run.observe_halt({"a": 1})).verdict is ACCEPTED
        snapshots = [await journal.rebuild(run.id, seen_epoch=epoch) for epoch in (1, 2)]
        assert [one is not None and one.may_be_in_hand("a", 1) for one in snapshots] == [True, True]
        assert [one is not None and one.may_be_in_hand("b", 1) for one in snapshots] == [False, True]

    async def test_what_was_paused_before_it_was_taken_up_is_pending_again(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.submit(journal, node("a"))
        await run.pause()
        await run.resume()
        assert (await run.row()).state is ExecutionState.PENDING
        assert (await run.started()).verdict is ACCEPTED

    async def test_the_deadline_counts_from_the_start(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.submit(journal, node("a"), node("b"), timeout_seconds=60)
        clock.advance(100)
        await run.started()
        assert (await run.row()).deadline_at == clock.now() + 60 * MICROSECONDS
        clock.advance(59)
        assert (await run.deadline_passed()).verdict is STALE
        clock.advance(1)
        await run.completed("a")
        assert (await run.deadline_passed({"b": IN_HAND})).verdict is ACCEPTED
        row = await run.row()
        assert row.state is ExecutionState.FAILED
        assert row.error is not None
        assert row.error["code"] == "deadline_exceeded"
        late = await run.node("b")
        assert (late.state, late.reason, late.ended) == (CANCELLED, "deadline", 1)
        assert (await run.deadline_passed()).verdict is KNOWN
        assert (await run.letters()) == {}

    # -- generations -------------------------------------------------------------------------------

    async def test_a_retry_opens_the_next_generation(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c", "b"), timeout_seconds=60)
        await run.completed("a", output=b'"kept"')
        await run.failed_once("b")
        await run.failed("b", attempt=2, skips=["c"])
        kept = await run.node("a")
        clock.advance(5)
        recorded_event = await run.retry()
        row = await run.row()
        assert recorded_event.execution == row
        assert (row.state, row.generation, row.epoch) == (ExecutionState.RUNNING, 2, 2)
        assert (row.unsettled, row.failed, row.error, row.finished_at) == (2, 0, None, None)
        assert row.deadline_at == clock.now() + 60 * MICROSECONDS
        assert await run.node("a") == kept
        again, behind = await run.node("b"), await run.node("c")
        assert (again.attempt, again.ended, again.answered, again.failures, again.error) == (3, 2, 2, 0, None)
        assert (again.state, again.generation, again.retry_at) == (None, 2, None)
        assert (behind.attempt, behind.state) == (1, None)
        assert await run.letters() == {("b", 1): "retried"}
        await run.completed("b", attempt=3)
        await run.completed("c", attempt=1)
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_an_attempt_that_may_have_started_is_not_reused(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"))
        await run.cancel()
        await run.retry()
        assert (await run.node("a")).attempt == 2, "it was ready, and perhaps handed out"
        assert (await run.node("b")).attempt == 1, "it waited for a, and nobody saw its attempt"

    async def test_a_retry_runs_named_nodes_again_with_everything_behind(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b", "a"), node("c"), node("d"))
        for name in "abc":
            await run.completed(name)
        await run.failed("d")
        await run.retry("a")
        assert await run.states() == {"a": None, "b": None, "c": COMPLETED, "d": None}
        assert (await run.node("b")).attempt == 2

    async def test_a_retry_that_names_an_unknown_node_is_unknown(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        before = await run.row()
        assert (await run.retry("ghost")).verdict is UNKNOWN
        assert await run.row() == before

    async def test_a_second_failure_leaves_a_letter_of_its_own(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        await run.retry()
        await run.failed("a", attempt=2)
        assert await run.letters() == {("a", 1): "retried", ("a", 2): "open"}

    async def test_a_failure_in_the_batch_of_its_retry_leaves_an_open_letter(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.failed("a")
        retry = RetryRequested(execution_id=run.id, generation=0)
        run.generation = 2
        recorded_events = await journal.record([retry, run.failure("a", attempt=2)])
        assert [recorded_event.verdict for recorded_event in recorded_events] == [ACCEPTED, ACCEPTED]
        assert await run.letters() == {("a", 1): "retried", ("a", 2): "open"}

    # -- rebuild -----------------------------------------------------------------------------------

    async def test_a_rebuild_raises_the_epoch_and_gives_the_rows(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"), node("c"))
        await run.completed("a")
        await run.failed_once("b")
        clock.advance(1)
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        assert snapshot.execution == await run.row()
        assert (snapshot.execution.epoch, snapshot.execution.updated_at) == (2, clock.now())
        assert snapshot.plan.digest == run.plan.digest
        assert {row.node_id: row for row in snapshot.rows} == await journal.nodes(run.id)
        assert {row.node_id for row in snapshot.rows} == {"a", "b"}

    async def test_of_two_rebuilds_the_quicker_wins(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"))
        assert await journal.rebuild(run.id, seen_epoch=1) is not None
        assert await journal.rebuild(run.id, seen_epoch=1) is None
        assert (await run.row()).epoch == 2
        assert (await run.completed("a")).execution is not None

    async def test_the_snapshot_of_a_terminal_execution_keeps_its_epoch(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        await run.completed("a")
        await run.cancel()
        before = await run.row()
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        assert snapshot.execution == before == await run.row()
        assert {row.node_id for row in snapshot.rows} == {"a", "b"}

    async def test_nothing_is_rebuilt_from_nothing(self, journal: JournalAdapter) -> None:
        assert await journal.rebuild("stranger", seen_epoch=1) is None

    async def test_active_lists_what_is_not_terminal_and_has_not_changed_since(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        states = [ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED]
        runs = []
        for state in states:
            run = await Recording.submit(journal, node("a"), execution_id=state.lower())
            if state is not ExecutionState.PENDING:
                await run.started()
            if state is ExecutionState.PAUSED:
                await run.pause()
            runs.append(run)
        finished = await Recording.start(journal, node("a"), execution_id="finished")
        await finished.completed("a")
        old = clock.now()
        clock.advance(10)
        await Recording.start(journal, node("a"), execution_id="young")
        found = await journal.active(not_updated_since=old)
        assert {active.id for active in found} == {run.id for run in runs}
        assert {(active.generation, active.epoch, active.updated_at) for active in found} == {(1, 1, old)}
        await journal.rebuild("running", seen_epoch=1)
        assert {active.id for active in await journal.active(not_updated_since=old)} == {"pending", "paused"}

    async def test_a_retried_execution_is_active_again(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"))
        await run.cancel()
        assert await journal.active(not_updated_since=clock.now()) == []
        await run.retry()
        (active,) = await journal.active(not_updated_since=clock.now())
        assert (active.id, active.generation, active.epoch) == (run.id, 2, 2)

    # -- cache and blobs ---------------------------------------------------------------------------

    async def test_a_cached_output_is_given_until_its_time_is_over(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a", cache={"ttl_seconds": 60}), node("b"))
        assert await journal.cached(["key"]) == {}
        await run.completed("a", output=b'{"n":  1}', cache_key="key")
        assert await journal.cached(["other", "key"]) == {"key": b'{"n":  1}'}
        assert await journal.cached_sizes(["other", "key"]) == {"key": 9}
        clock.advance(59)
        assert await journal.cached(["key"]) == {"key": b'{"n":  1}'}
        clock.advance(1)
        assert await journal.cached(["key"]) == {}
        assert await journal.cached_sizes(["key"]) == {}

    async def test_the_cache_gives_what_came_last(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        cache = {"ttl_seconds": 60}
        run = await Recording.start(journal, node("a", cache=cache), node("b", cache=cache))
        await run.completed("a", output=b"1", cache_key="key")
        clock.advance(30)
        await run.completed("b", output=b"2", cache_key="key")
        clock.advance(59)
        assert await journal.cached(["key"]) == {"key": b"2"}

    async def test_the_cache_gives_outputs_that_lie_in_blobs(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a", cache={"ttl_seconds": 60}))
        name = await journal.put_blob(b'"large"')
        await run.completed("a", output=None, blob=name, output_bytes=7, cache_key="key")
        assert await journal.cached(["key"]) == {"key": b'"large"'}
        assert await journal.cached_sizes(["key"]) == {"key": 7}

    async def test_a_result_that_does_not_count_is_not_cached(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a", cache={"ttl_seconds": 60}))
        await run.cancel()
        await run.completed("a", cache_key="key")
        assert await journal.cached(["key"]) == {}

    async def test_a_blob_that_nothing_names_is_dropped(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a", cache={"ttl_seconds": 60}), node("b"), node("c"))
        output, cached, config = [await journal.put_blob(payload) for payload in (b'"a"', b'"b"', b'"c"')]
        await run.completed("b", output=None, blob=output, output_bytes=3)
        await run.completed("a", output=None, blob=cached, output_bytes=3, cache_key="key")
        await journal.drop_blobs([output, cached, config, "stranger"])
        assert set(await journal.blobs([output, cached, config])) == {output, cached}

    async def test_blobs_come_back_byte_for_byte(self, journal: JournalAdapter) -> None:
        payload = bytes(range(256)) * 4_096
        large, empty = await journal.put_blob(payload), await journal.put_blob(b"")
        assert large != empty
        assert await journal.blobs([large, "stranger", empty]) == {large: payload, empty: b""}

    # -- reading -----------------------------------------------------------------------------------

    async def test_payloads_come_back_byte_for_byte(self, journal: JournalAdapter) -> None:
        payload = (
            '{ "ü\\u0000\\/" : [1.0, 1e2, -0.0, 123456789012345678901234567890], "a":1,"a":2 }\n'.encode()
        )
        run = await Recording.start(journal, node("a"), input=payload, output="{{ input.a }}")
        await run.completed("a", output=payload)
        assert (await run.row()).input == payload
        assert (await run.node("a")).output == payload

    async def test_a_large_input_is_read_only_where_it_is_needed(self, journal: JournalAdapter) -> None:
        payload = b'{"who": "%s"}' % (b"x" * 50_000)
        run = await Recording.start(
            journal, node("a"), node("b", "a"), input=payload, output="{{ input.who | length }}"
        )
        first = (await run.completed("a")).execution
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert first is not None
        assert snapshot is not None
        shown = payload if self.HOLDS_INPUTS else b""
        assert (first.input, snapshot.execution.input) == (shown, shown)
        await run.completed("b")
        row = await run.row()
        assert (row.input, row.output) == (payload, b"50000")

    async def test_errors_come_back_as_they_were(self, journal: JournalAdapter) -> None:
        error = {**ERROR, "details": {"list": [1, 2.5, None, True], "text": "ü\x00\U0001f600"}}
        run = await Recording.start(journal, node("a"))
        await run.failed("a", error=error)
        (letter,) = await journal.dead_letters()
        assert (await run.node("a")).error == letter.error == error
        (failed,) = [event for event in await run.events() if event.type == "node.failed"]
        assert failed.error == error

    async def test_the_history_is_read_in_pages(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, *(node(f"n{number}") for number in range(10)))
        await journal.record([run.completion(f"n{number}") for number in range(10)])
        seqs: list[int] = []
        while page := await journal.events(run.id, after=seqs[-1] if seqs else 0, limit=4):
            assert len(page) <= 4
            seqs += [event.seq for event in page]
        assert seqs == list(range(1, 14))
        assert await journal.events("stranger") == []

    async def test_the_history_of_some_nodes_is_read_in_pages(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, *(node(f"n{number}") for number in range(10)))
        await journal.record([run.completion(f"n{number}") for number in range(9)])
        await run.lost("n9")
        await run.completed("n9", attempt=2)
        about = {"n9", "n2", "n1", "stranger"}
        seen: list[tuple[str, str | None]] = []
        after = 0
        while page := await journal.events(run.id, after=after, limit=3, nodes=about):
            assert len(page) <= 3
            seen += [(event.type, event.node) for event in page]
            after = page[-1].seq
        assert seen == [
            ("node.completed", "n1"),
            ("node.completed", "n2"),
            ("node.lost", "n9"),
            ("node.completed", "n9"),
        ]
        assert await journal.events(run.id, nodes=()) == []

    async def test_rows_of_some_nodes_are_read_alone(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b-1"), node("c"), node("d"))
        await journal.record([run.completion(name) for name in ("a", "b-1", "c")])
        everything = await journal.nodes(run.id)
        some = await journal.nodes(run.id, names=["b-1", "d", "stranger", "a"])
        assert some == {name: everything[name] for name in ("a", "b-1")}
        assert await journal.nodes(run.id, names=()) == {}
        assert await journal.nodes("stranger", names=["a"]) == {}

    @pytest.mark.parametrize("size", [0, 4000, 4096, 4097, 300_000])
    async def test_an_output_comes_back_byte_for_byte(self, journal: JournalAdapter, size: int) -> None:
        text = '{ "a\\"\\\\\\u00e9\\n":\t[1.0, "é漢\U0001f600\u2028\x7f", null],"filled":"%s"}\n'
        output = (text % ("x" * max(0, size - len(text.encode()) + 2))).encode()
        run = await Recording.start(journal, node("a"), node("b"))
        await run.completed("a", output=output)
        assert (await journal.nodes(run.id))["a"].output == output
        assert (await journal.nodes(run.id, names=["a"]))["a"].output == output

    async def test_executions_are_listed_newest_first(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        for execution_id in ("b", "a", "c"):
            await journal.submit([submission(execution_id)])
            clock.advance(1)
        await journal.submit([submission("e"), submission("d")])
        assert [row.id for row in await journal.executions()] == ["e", "d", "c", "a", "b"]
        assert [row.id for row in await journal.executions(limit=2)] == ["e", "d"]

    async def test_dead_letters_are_listed_newest_first(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, *(node(name) for name in "abc"), failure_policy="continue")
        for name in "bca":
            await run.failed(name)
            clock.advance(1)
        assert [letter.node_id for letter in await journal.dead_letters()] == ["a", "c", "b"]
        assert [letter.node_id for letter in await journal.dead_letters(limit=1)] == ["a"]
        assert await journal.dead_letters(LetterQuery(execution_id="stranger")) == []

    async def test_a_namespace_sees_nothing_of_another(self, journal: JournalAdapter) -> None:
        ours = await Recording.start(journal, node("a"), execution_id="ours")
        theirs = await Recording.start(journal, node("a"), execution_id="theirs", namespace="other")
        await ours.failed("a")
        await theirs.failed("a")
        assert await journal.execution("theirs", namespace="default") is None
        assert await journal.execution("theirs", namespace="other") == await theirs.row()
        assert [row.id for row in await journal.executions()] == ["ours"]
        assert [row.id for row in await journal.executions(namespace="other")] == ["theirs"]
        assert [letter.execution_id for letter in await journal.dead_letters()] == ["ours"]
        assert await journal.dead_letters(LetterQuery(execution_id="theirs")) == []
        assert len(await journal.dead_letters(LetterQuery(execution_id="theirs"), namespace="other")) == 1

    async def test_what_was_given_out_does_not_change_afterwards(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), node("b"))
        recorded_event = await run.completed("a")
        assert recorded_event.execution is not None
        seq = recorded_event.execution.seq
        await run.completed("b")
        assert (recorded_event.execution.seq, recorded_event.execution.state) == (seq, ExecutionState.RUNNING)

    async def test_calls_made_at_once_are_each_judged_alone(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, *(node(f"n{number}") for number in range(50)))
        events: list[NodeCompleted] = [run.completion(f"n{number}") for number in range(50)]
        answers = await asyncio.gather(*(journal.record([event]) for event in events * 2))
        verdicts = [recorded_event.verdict for (recorded_event,) in answers]
        assert (verdicts.count(ACCEPTED), verdicts.count(KNOWN)) == (50, 50)
        assert (await run.row()).state is ExecutionState.COMPLETED
