"""The contract of notifications: a part of ``JournalContract``. The journal is made with ``notify=()``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.event import NotificationEnded
from weft.core.ledger.changes import Verdict
from weft.core.rows import Told, Wait
from weft.core.state import ExecutionState
from weft.core.time import micros
from weft.definition.waits import WaitKind
from weft.testing.journal.waits import begin, due, signal, waiter
from weft.testing.recording import ERROR, Recording, node

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.clock import VirtualClock
    from weft.core.rows import Notification
    from weft.journal.contract import JournalAdapter

URL = "https://hooks.example/weft"
EVERYTHING = {"url": URL, "on": ["completed", "failed", "dead_letter", "waiting"]}


def ended(one: Notification, error: str | None = None) -> NotificationEnded:
    """Make the event of a notification that was delivered, or given up."""
    return NotificationEnded(
        execution_id=one.execution_id,
        generation=one.generation,
        notification_id=one.id,
        on=one.on,
        attempts=one.attempts,
        error=error,
    )


async def claim(journal: JournalAdapter, *, limit: int = 10, lease: float = 30) -> Sequence[Notification]:
    return await journal.claim_notifications(limit=limit, lease_seconds=lease)


async def finish(
    journal: JournalAdapter, execution_id: str = "execution-1", notify: Any = EVERYTHING
) -> Recording:
    """Leave an execution behind that completed, and whoever asked for it is to be told."""
    run = await Recording.start(journal, node("a"), execution_id=execution_id, notify=notify)
    await run.completed("a")
    return run


class NotificationsContract:
    async def test_the_commit_that_ends_an_execution_has_its_notification(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        clock.advance(1)
        run = await finish(journal)
        (one,) = await journal.notifications(run.id)
        assert (one.execution_id, one.namespace, one.generation) == (run.id, "default", 1)
        assert (one.on, one.url, one.state) == ("completed", URL, "pending")
        assert (one.created_at, one.due_at, one.attempts) == (clock.now(), clock.now(), 0)
        assert one.told == Told(workflow=None, version=None, state=ExecutionState.COMPLETED)

    async def test_nobody_is_told_what_nobody_asked_for(self, journal: JournalAdapter) -> None:
        plain = await Recording.start(journal, node("a"), execution_id="plain")
        await plain.failed("a")
        asked = await finish(journal, notify={"url": URL})
        cancelled = await Recording.start(journal, node("a"), execution_id="cancelled", notify=EVERYTHING)
        await cancelled.cancel()
        for run in (plain, asked, cancelled):
            assert await journal.notifications(run.id) == []
        assert await claim(journal) == []

    async def test_a_failure_tells_the_message_and_the_node(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, node("a"), notify=EVERYTHING, name="daily")
        await run.failed("a", error={"code": "boom", "message": "<b> & \0 more", "retryable": False})
        # The dead letter ended the execution: that is told once.
        (one,) = await journal.notifications(run.id)
        assert (one.on, one.told.node, one.told.dead_letter) == ("failed", "a", None)
        assert (one.told.code, one.told.message) == ("node_failed", "node a failed: <b> & \0 more")

    async def test_the_first_dead_letter_of_a_generation_is_told(self, journal: JournalAdapter) -> None:
        fields: dict[str, Any] = {"notify": EVERYTHING, "failure_policy": "continue"}
        run = await Recording.start(journal, node("a"), node("b"), node("c"), **fields)
        await run.failed("a")
        await run.failed("b")
        (one,) = await journal.notifications(run.id)
        (_, letter) = await journal.dead_letters()
        assert (one.on, one.told.node, one.told.state) == ("dead_letter", "a", ExecutionState.RUNNING)
        assert (one.told.code, one.told.dead_letter) == (ERROR["code"], letter.id)
        await run.completed("c")
        assert sorted(one.on for one in await journal.notifications(run.id)) == ["dead_letter", "failed"]
        await run.retry()
        await run.failed("a", attempt=2)
        told = sorted((one.generation, one.on) for one in await journal.notifications(run.id))
        assert told == [(1, "dead_letter"), (1, "failed"), (2, "dead_letter")]

    async def test_a_deadline_tells_that_it_failed(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, node("a"), notify=EVERYTHING, timeout_seconds=5)
        clock.advance(6)
        await run.deadline_passed()
        (one,) = await journal.notifications(run.id)
        assert one.told.code == "deadline_exceeded"

    async def test_the_commit_that_begins_a_wait_for_a_signal_tells_of_it(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), notify=EVERYTHING, name="daily")
        await begin(run, "a", seconds=60.0)
        (one,) = await journal.notifications(run.id)
        assert (one.on, one.url, one.generation, one.created_at) == ("waiting", URL, 1, clock.now())
        assert one.told == Told(
            workflow=None,
            version=None,
            state=ExecutionState.RUNNING,
            node="a",
            signal="go",
            prompt="Go on?",
            expires_at=clock.now() + micros(60.0),
        )
        # Every question is told, and each once.
        assert (await begin(run, "a", seconds=60.0)).verdict is Verdict.KNOWN
        await begin(run, "b", Wait(WaitKind.SIGNAL, "go", "x" * 5_000))
        (_, other) = await journal.notifications(run.id)
        assert (other.told.node, other.told.expires_at) == ("b", None)
        assert other.told.prompt == "x" * 4_000 + "…"

    async def test_a_wait_that_asks_nobody_is_not_told(self, journal: JournalAdapter) -> None:
        timer, event = Wait(WaitKind.TIMER), Wait(WaitKind.EVENT, "order.paid")
        nodes = [waiter("t", seconds=60), waiter("e", event="order.paid"), waiter("s")]
        run = await Recording.start(journal, *nodes, notify=EVERYTHING)
        await begin(run, "t", timer, seconds=60.0)
        await begin(run, "e", event)
        # Its answer lay in the mailbox already.
        await signal(run, fits=("s",))
        assert (await begin(run, "s")).completed_row is not None
        plain = await Recording.start(journal, waiter("s"), notify={"url": URL}, execution_id="plain")
        await begin(plain, "s")
        assert [await journal.notifications(one.id) for one in (run, plain)] == [[], []]

    async def test_a_question_that_a_retry_asks_anew_is_told_anew(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), notify=EVERYTHING)
        await begin(run, "a", seconds=60.0)
        clock.advance(60)
        await due(run, "a")
        await run.retry()
        await begin(run, "a", attempt=2, epoch=2)
        told = sorted((one.generation, one.on) for one in await journal.notifications(run.id))
        assert told == [(1, "failed"), (1, "waiting"), (2, "waiting")]

    async def test_each_url_is_told_once(self, journal: JournalAdapter) -> None:
        other = {"url": "https://other.example", "on": ["completed"]}
        run = await finish(journal, notify=[EVERYTHING, other, EVERYTHING])
        told = await journal.notifications(run.id)
        assert sorted(one.url for one in told) == [URL, "https://other.example"]
        assert len({one.id for one in told}) == 2

    async def test_a_result_that_comes_again_tells_nothing_again(self, journal: JournalAdapter) -> None:
        run = await finish(journal)
        assert (await run.completed("a")).verdict is Verdict.KNOWN
        assert len(await journal.notifications(run.id)) == 1

    async def test_nobody_else_is_given_it_while_the_lease_lives(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await finish(journal)
        taken = await asyncio.gather(*(claim(journal, lease=30) for _ in range(4)))
        ((one,),) = [some for some in taken if some]
        assert one.attempts == 1
        clock.advance(29)
        assert await claim(journal) == []
        # The process that took it has died.
        clock.advance(2)
        (again,) = await claim(journal)
        assert (again.id, again.told, again.attempts) == (one.id, one.told, 2)
        assert [each.attempts for each in await journal.notifications(run.id)] == [2]

    async def test_the_oldest_are_claimed_first_and_no_more_than_asked(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        for name in "cab":
            await finish(journal, name)
            clock.advance(1)
        assert sorted(one.execution_id for one in await claim(journal, limit=2)) == ["a", "c"]
        assert [one.execution_id for one in await claim(journal, limit=2)] == ["b"]

    async def test_one_that_was_put_off_comes_again_then(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await finish(journal)
        (one,) = await claim(journal)
        await journal.put_off_notification(one.id, attempts=1, seconds=5, error="500\nServer Error")
        (shown,) = await journal.notifications(run.id)
        assert (shown.due_at, shown.error) == (clock.now() + micros(5), "500 Server Error")
        clock.advance(4)
        assert await claim(journal) == []
        clock.advance(1)
        (again,) = await claim(journal)
        assert (again.id, again.attempts) == (one.id, 2)
        # The one who was slow has lost it: its word does not count.
        await journal.put_off_notification(one.id, attempts=1, seconds=0, error="late")
        assert await claim(journal) == []

    async def test_its_end_is_an_event_of_the_execution(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await finish(journal)
        before = await run.row()
        (one,) = await claim(journal)
        clock.advance(1)
        recorded = await run.record(ended(one))
        assert recorded.verdict is Verdict.ACCEPTED
        (event,) = recorded.events
        assert (event.type, event.reason, event.at) == ("notification.delivered", "completed", clock.now())
        assert list(await run.events())[-1] == event
        row = await run.row()
        assert (row.state, row.seq) == (ExecutionState.COMPLETED, before.seq + 1)
        assert (row.finished_at, row.updated_at, row.output) == (
            before.finished_at,
            before.updated_at,
            before.output,
        )
        (shown,) = await journal.notifications(run.id)
        assert (shown.state, shown.ended_at, shown.due_at) == ("delivered", clock.now(), None)
        clock.advance(3600)
        assert await claim(journal) == []

    async def test_one_that_is_given_up_says_why(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        run = await finish(journal)
        (one,) = await claim(journal)
        await run.record(ended(one, "410 Gone"))
        (shown,) = await journal.notifications(run.id)
        assert (shown.state, shown.error) == ("failed", "410 Gone")
        event = list(await run.events())[-1]
        assert event.type == "notification.failed"
        assert event.error is not None
        assert event.error["message"] == "410 Gone"
        assert event.error["details"] == {"notification": one.id, "attempts": 1}
        # A notification ends once.
        clock.advance(60)
        await run.record(ended(one))
        assert [each.state for each in await journal.notifications(run.id)] == ["failed"]

    async def test_its_end_may_come_while_the_execution_goes_on(self, journal: JournalAdapter) -> None:
        fields: dict[str, Any] = {"notify": EVERYTHING, "failure_policy": "continue"}
        run = await Recording.start(journal, node("a"), node("b"), **fields)
        await run.failed("a")
        (one,) = await claim(journal)
        await run.record(ended(one))
        await run.completed("b")
        assert (await run.types())[-3:] == ["notification.delivered", "node.completed", "execution.failed"]

    @pytest.mark.parametrize("retried", [False, True])
    async def test_a_purge_takes_them_along(
        self, journal: JournalAdapter, clock: VirtualClock, retried: bool
    ) -> None:
        run = await Recording.start(journal, node("a"), notify=EVERYTHING)
        await run.failed("a")
        if retried:
            await run.retry()
            await run.completed("a", attempt=2)
        (first, *_) = await claim(journal)
        clock.advance(100)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert await claim(journal) == []
        assert await journal.notifications(run.id) == []
        assert (await run.record(ended(first))).verdict is Verdict.UNKNOWN
