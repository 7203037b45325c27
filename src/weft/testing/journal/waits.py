"""The contract of nodes that wait for a time, an answer or an event: a part of ``JournalContract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import (
    AttemptPolled,
    DeadlinePassed,
    HotStateEvicted,
    SignalReceived,
    WaitAnswered,
    WaitDue,
    WaitStarted,
)
from weft.core.ledger.changes import Verdict
from weft.core.ledger.waits import MAILBOX_PAGE, MAILBOX_SIGNALS, wait_output
from weft.core.payload import canonical, decode
from weft.core.rows import Halt, Parked, Polled, Wait
from weft.core.skip_propagation import skips_behind_failure
from weft.core.state import ExecutionState, NodeState
from weft.core.time import micros, rfc3339
from weft.definition.waits import WaitKind
from weft.errors import ClaimedError
from weft.journal.contract import Claim, EndedWait, OpenWait, WaitQuery
from weft.journal.firing import answered_waits
from weft.testing.recording import Recording, assert_consistent, node
from weft.triggers.cloudevent import InboundEvent

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.core.ledger.changes import RecordedEvent
    from weft.journal.contract import JournalAdapter

SECONDS = 60.0
SIGNAL = Wait(WaitKind.SIGNAL, "go", "Go on?")
TIMER = Wait(WaitKind.TIMER)


def waiter(node_id: str, *dependencies: str, **config: Any) -> dict[str, Any]:
    """Write down a node that waits for the signal ``go``, unless its config says otherwise."""
    return node(node_id, *dependencies, handler="wait", config=config or {"signal": "go"})


class WaitRowsContract:
    async def test_the_commit_that_begins_a_wait_is_its_start(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), node("b", "a"))
        clock.advance(1)
        at = clock.now()
        recorded_event = await begin(run, "a", seconds=SECONDS)
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.rows == (row,)
        assert (row.state, row.worker, row.queued_at, row.started_at) == (None, None, at, at)
        assert row.parked == Parked(at + micros(SECONDS), None, None, SIGNAL)
        assert (await run.row()).waiting == 1
        event = (await run.events())[-1]
        assert (event.type, event.state, event.due_at) == ("node.waiting", "WAITING", at + micros(SECONDS))
        await assert_consistent(journal, run.id)

    async def test_it_begins_once_and_survives_a_rebuild(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"))
        await begin(run, "a", seconds=SECONDS)
        row = await run.node("a")
        clock.advance(30)
        assert (await begin(run, "a", seconds=SECONDS)).verdict is Verdict.KNOWN
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        assert list(snapshot.rows) == [row]
        assert snapshot.execution.waiting == 1
        assert (await begin(run, "a", seconds=SECONDS, epoch=2)).verdict is Verdict.KNOWN
        assert await run.node("a") == row

    async def test_none_begins_while_the_execution_is_paused(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"))
        assert (await begin(run, "a", epoch=2)).verdict is Verdict.STALE
        await run.pause()
        assert (await begin(run, "a")).verdict is Verdict.STALE
        await run.resume()
        assert (await begin(run, "a")).verdict is Verdict.ACCEPTED

    async def test_a_timer_completes_at_its_time_and_is_listed_until_then(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a", seconds=SECONDS), waiter("b", seconds=2 * SECONDS))
        await begin(run, "a", TIMER, seconds=SECONDS)
        await begin(run, "b", TIMER, seconds=2 * SECONDS)
        found = await journal.due_waits(limit=10)
        assert (list(found.due), found.next_in_seconds) == ([], SECONDS)
        assert (await due(run, "a")).verdict is Verdict.KNOWN
        clock.advance(SECONDS)
        due_at = clock.now()
        clock.advance(0.5)
        found = await journal.due_waits(limit=10)
        assert [(one.execution_id, one.node_id, one.attempt) for one in found.due] == [(run.id, "a", 1)]
        assert found.due[0].digest == run.plan.digest
        assert found.next_in_seconds == SECONDS - 0.5
        recorded_event = await due(run, "a")
        row = await run.node("a")
        assert recorded_event.completed_row == row
        assert row.output == wait_output(b"null", by=None, at=due_at)
        assert decode(row.output) == {"value": None, "by": None, "at": rfc3339(due_at), "expired": False}
        assert (row.ended, row.answered, row.finished_at, row.parked) == (1, 1, clock.now(), None)
        assert (await due(run, "a")).verdict is Verdict.KNOWN
        assert list((await journal.due_waits(limit=10)).due) == []
        assert (await run.row()).waiting == 1
        await assert_consistent(journal, run.id)

    async def test_an_expired_wait_completes_with_its_default(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"))
        await begin(run, "a", seconds=SECONDS, default=b'"no"')
        clock.advance(SECONDS)
        assert (await due(run, "a")).verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert row.output is not None
        assert decode(row.output) == {
            "value": "no",
            "by": None,
            "at": rfc3339(clock.now()),
            "expired": True,
        }
        assert (await run.row()).state is ExecutionState.COMPLETED

    async def test_an_expired_wait_without_a_default_fails(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(
            journal, waiter("a"), node("b", "a"), node("c"), failure_policy="continue"
        )
        await begin(run, "a", seconds=SECONDS)
        clock.advance(SECONDS)
        recorded_event = await due(run, "a", skips=skips_behind_failure(run.plan, "a", cause="a"))
        assert recorded_event.verdict is Verdict.ACCEPTED
        assert recorded_event.completed_row is None
        row = await run.node("a")
        assert (row.state, row.ended, (row.error or {})["code"]) == (NodeState.FAILED, 1, "expired")
        assert (row.started_at, row.finished_at) == (clock.now() - micros(SECONDS), clock.now())
        assert (await run.states())["b"] is NodeState.SKIPPED
        assert await run.letters() == {("a", 1): "open"}
        assert (await run.row()).waiting == 0
        assert list((await journal.due_waits(limit=10)).due) == []
        await assert_consistent(journal, run.id)

    async def test_the_first_answer_counts(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        run = await Recording.start(journal, waiter("a"), node("b", "a"))
        assert (await answer(run, "a")).verdict is Verdict.REFUSED
        await begin(run, "a", seconds=SECONDS)
        clock.advance(1)
        recorded_event = await answer(run, "a", b'{"value":1}')
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.completed_row == row
        assert recorded_event.rows == (row,)
        assert (row.state, row.output, row.finished_at) == (NodeState.COMPLETED, b'{"value":1}', clock.now())
        assert (await answer(run, "a", b'{"value":2}')).verdict is Verdict.REFUSED
        clock.advance(SECONDS)
        assert (await due(run, "a")).verdict is Verdict.KNOWN
        assert await run.node("a") == row
        assert (await run.types())[-2:] == ["signal.received", "node.completed"]
        assert [event.actor for event in await run.events()][-2:] == ["ann", None]
        assert (await answer(run, "nobody")).verdict is Verdict.UNKNOWN
        assert (await answer(run, "b")).verdict is Verdict.REFUSED
        await assert_consistent(journal, run.id)

    async def test_the_end_of_a_wait_is_listed_until_the_store_was_told(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b", seconds=SECONDS), node("c", "a"))
        await begin(run, "a", seconds=SECONDS)
        await begin(run, "b", TIMER, seconds=SECONDS)
        await answer(run, "a")
        assert list(await journal.untold_waits(older_than_seconds=5, limit=10)) == []
        clock.advance(SECONDS)
        await due(run, "b")
        assert list(await journal.untold_waits(older_than_seconds=5, limit=10)) == [EndedWait(run.id, 1, "a")]
        ended = [EndedWait(run.id, 1, name) for name in "ab"]
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == ended
        assert list(await journal.untold_waits(older_than_seconds=0, limit=1)) == ended[:1]
        await journal.forget_waits([EndedWait(run.id, 1, "b"), EndedWait("another", 1, "a")])
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == ended[:1]
        await journal.forget_waits(ended)
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == []

    async def test_who_told_of_an_end_forgets_none_of_a_later_generation(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"))
        await begin(run, "a")
        await answer(run, "a")
        first = EndedWait(run.id, 1, "a")
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == [first]
        await run.cancel()
        await run.retry("a")
        await begin(run, "a", attempt=2, epoch=2)
        # It waits again: nothing is left of its first end.
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == []
        await journal.forget_waits([first])
        assert [one.node_id for one in await journal.open_waits()] == ["a"]
        await answer(run, "a")
        await journal.forget_waits([first])
        second = EndedWait(run.id, 2, "a")
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == [second]

    async def test_an_answer_also_counts_while_the_execution_is_paused(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), node("c", "a", "b"))
        await begin(run, "a", seconds=SECONDS, default=b"1")
        await begin(run, "b")
        await run.pause()
        assert (await answer(run, "b")).verdict is Verdict.ACCEPTED
        clock.advance(SECONDS)
        assert (await due(run, "a")).verdict is Verdict.ACCEPTED
        assert (await run.row()).state is ExecutionState.PAUSED

    async def test_a_signal_answers_who_has_waited_longest(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), waiter("c"), node("d", "a", "b", "c"))
        await begin(run, "b")
        clock.advance(1)
        await begin(run, "c")
        await begin(run, "a")
        answered = [recorded.rows[0].node_id for _ in range(3) if (recorded := await signal(run)).rows]
        assert answered == ["b", "a", "c"]
        # The fourth is kept.
        recorded_event = await signal(run)
        assert (recorded_event.verdict, recorded_event.rows) == (Verdict.ACCEPTED, ())
        assert (await run.row()).mailbox == 1

    async def test_an_early_signal_is_read_by_the_commit_that_begins_the_wait(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b", "a"), node("c", "b"))
        await signal(run, b'{"value":1}')
        await signal(run, b'{"value":2}')
        await signal(run, b'{"value":3}', name="other")
        assert (await run.row()).mailbox == 3
        first = await begin(run, "a")
        assert (first.rows[0].state, first.rows[0].output) == (NodeState.COMPLETED, b'{"value":1}')
        assert first.completed_row == first.rows[0] == await run.node("a")
        second = await begin(run, "b")
        assert second.rows[0].output == b'{"value":2}'
        execution = await run.row()
        assert (execution.mailbox, execution.waiting) == (1, 0)
        # Whoever begins a wait tells the store.
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == []
        await assert_consistent(journal, run.id)

    async def test_an_early_signal_of_the_same_batch_is_read_too(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"), node("b", "a"))
        recorded_events = await journal.record([signal_event(run), start_event(run, "a")])
        assert [one.verdict for one in recorded_events] == [Verdict.ACCEPTED] * 2
        assert (await run.node("a")).state is NodeState.COMPLETED
        assert (await run.row()).mailbox == 0

    async def test_a_wait_and_its_answer_may_be_in_one_batch(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"), node("b", "a"))
        await journal.record([start_event(run, "a"), signal_event(run)])
        assert (await run.node("a")).state is NodeState.COMPLETED
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == [EndedWait(run.id, 1, "a")]
        assert list(await journal.open_waits()) == []

    async def test_a_kept_signal_that_does_not_fit_is_dropped(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"), node("b", "a"))
        await signal(run, b'{"value":1}', fits=())
        await signal(run, b'{"value":2}', fits=("a",))
        recorded_event = await begin(run, "a")
        assert recorded_event.rows[0].output == b'{"value":2}'
        assert "signal.discarded" in await run.types()
        assert (await run.row()).mailbox == 0

    async def test_a_mailbox_is_read_in_order_page_by_page(self, journal: JournalAdapter) -> None:
        names = tuple(f"n{number}" for number in range(MAILBOX_PAGE + 2))
        run = await Recording.start(journal, *(waiter(name) for name in names))
        # Those of the first page fit nobody but the second node; and of the last one comes in the same batch.
        await journal.record([signal_event(run, b"1", fits=()) for _ in range(MAILBOX_PAGE - 1)])
        await journal.record(
            [signal_event(run, b"%d" % number, fits=names) for number in range(len(names) - 1)]
        )
        begun = [start_event(run, name) for name in names]
        recorded_events = await journal.record([signal_event(run, b"65", fits=names), *begun])
        outputs = [recorded_event.rows[0].output for recorded_event in recorded_events[1:]]
        assert outputs == [b"%d" % number for number in range(len(names))]
        assert (await run.types()).count("signal.discarded") == MAILBOX_PAGE - 1
        assert (await run.row()).mailbox == 0

    async def test_a_signal_that_does_not_fit_who_waits_is_refused(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"))
        await begin(run, "a")
        before = await run.row()
        recorded_event = await signal(run, fits=())
        assert recorded_event.verdict is Verdict.REFUSED
        assert [row.node_id for row in recorded_event.rows] == ["a"]
        assert await run.row() == before

    async def test_a_mailbox_has_a_bound(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"))
        await journal.record([signal_event(run, name="later") for _ in range(MAILBOX_SIGNALS)])
        recorded_event = await signal(run, name="later")
        assert (recorded_event.verdict, recorded_event.rows) == (Verdict.REFUSED, ())
        # One that somebody waits for is no part of the mailbox.
        await begin(run, "a")
        assert (await signal(run)).verdict is Verdict.ACCEPTED

    async def test_a_large_answer_lies_in_a_blob_that_nobody_sweeps(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), node("c", "a", "b"))
        payload = b'"' + b"x" * 40_000 + b'"'
        kept, given = await journal.put_blob(payload), await journal.put_blob(payload)
        await signal(run, None, blob=kept, output_bytes=len(payload))
        clock.advance(1)
        # The mailbox names one, and nothing the other yet.
        assert await journal.sweep_blobs(older_than=clock.now()) == 1
        given = await journal.put_blob(payload)
        await begin(run, "a")
        await begin(run, "b")
        await answer(run, "b", None, blob=given, output_bytes=len(payload))
        clock.advance(1)
        assert await journal.sweep_blobs(older_than=clock.now()) == 0
        rows = [await run.node("a"), await run.node("b")]
        assert [row.blob for row in rows] == [kept, given]
        assert [row.output_bytes for row in rows] == [len(payload)] * 2

    async def test_open_waits_are_listed_the_longest_first(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), waiter("t", seconds=SECONDS))
        other = await Recording.start(journal, waiter("a"), execution_id="execution-2")
        await begin(run, "b")
        since = clock.now()
        clock.advance(1)
        await begin(other, "a", Wait(WaitKind.SIGNAL, "else"), seconds=SECONDS)
        await begin(run, "a")
        await begin(run, "t", TIMER, seconds=SECONDS)
        assert (await journal.namespace_counts()).open_waits == len(await journal.open_waits())
        assert (await journal.namespace_counts(namespace="nobody")).open_waits == 0
        found = await journal.open_waits()
        assert [(one.execution_id, one.node_id) for one in found] == [
            (run.id, "b"),
            (run.id, "a"),
            (other.id, "a"),
        ]
        assert found[0] == OpenWait(
            execution_id=run.id,
            workflow=None,
            digest=run.plan.digest,
            node_id="b",
            signal="go",
            prompt="Go on?",
            since=since,
            expires_at=None,
        )
        assert found[2].expires_at == clock.now() + micros(SECONDS)
        last = found[0]
        page = await journal.open_waits(after=(last.since, last.execution_id, last.node_id), limit=1)
        assert list(page) == [found[1]]
        assert list(await journal.open_waits(WaitQuery(signal="else"))) == [found[2]]
        assert list(await journal.open_waits(WaitQuery(execution_id=other.id))) == [found[2]]
        assert list(await journal.open_waits(WaitQuery(workflow="w"))) == []
        assert list(await journal.open_waits(namespace="elsewhere")) == []
        await answer(run, "b")
        assert [one.node_id for one in await journal.open_waits(WaitQuery(execution_id=run.id))] == ["a"]

    async def test_a_cancel_ends_a_wait_and_a_retry_begins_it_anew(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"))
        await begin(run, "a", seconds=SECONDS)
        await begin(run, "b")
        await answer(run, "b")
        started_at = clock.now()
        clock.advance(30)
        await run.cancel()
        row = await run.node("a")
        assert (row.state, row.ended, row.started_at) == (NodeState.CANCELLED, 1, started_at)
        assert (await run.row()).waiting == 0
        assert [one.node_id for one in await journal.open_waits()] == []
        assert (await answer(run, "a")).verdict is Verdict.REFUSED
        assert (await signal(run)).verdict is Verdict.REFUSED
        clock.advance(30)
        assert list((await journal.due_waits(limit=10)).due) == []
        await run.retry()
        # An answer that was given stays.
        assert (await run.node("b")).state is NodeState.COMPLETED
        recorded_event = await begin(run, "a", attempt=2, seconds=SECONDS, epoch=2)
        assert recorded_event.verdict is Verdict.ACCEPTED
        again = await run.node("a")
        assert again.parked is not None
        assert (again.attempt, again.parked.due_at) == (2, clock.now() + micros(SECONDS))
        await assert_consistent(journal, run.id)

    async def test_an_event_answers_every_wait_that_it_matches_of_each_execution_one(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        event_wait = {"event": "paid"}
        nodes = [waiter(name, **event_wait) for name in "abcd"]
        run = await Recording.start(journal, *nodes, node("e", *"abcd"))
        other = await Recording.start(journal, *nodes, execution_id="execution-2")
        await begin(run, "a", awaited(order=7))
        await begin(run, "c", awaited(order=8))
        await begin(run, "d", Wait(WaitKind.EVENT, "sent", match=b"{}"))
        await begin(other, "a", awaited(order=7, year=1))
        clock.advance(1)
        await begin(run, "b", awaited())
        await begin(other, "b", awaited(order=7))
        answer = await journal.fire([], event=inbound("1", order=7, amount=3))
        assert answered_waits(answer.answered) == [(run.id, "a"), (other.id, "b")]
        row = await run.node("a")
        assert (row.state, row.output, row.finished_at) == (NodeState.COMPLETED, b'{"x":1}', clock.now())
        clock.advance(10)
        untold = await journal.untold_waits(older_than_seconds=5, limit=10)
        ends = sorted((one.execution_id, one.node_id) for one in untold)
        assert ends == [(run.id, "a"), (other.id, "b")]
        # The same event again does nothing again, though another node waits for it.
        again = await journal.fire([], event=inbound("1", order=7, amount=3))
        assert again.known is not None
        assert again.known.answered == ((run.id, "a"), (other.id, "b"))
        assert (await run.node("b")).state is None
        # A wait that matches everything is answered by the next one.
        answer = await journal.fire([], event=inbound("2"))
        assert answered_waits(answer.answered) == [(run.id, "b")]
        elsewhere = await journal.fire([], event=inbound("3", namespace="elsewhere", order=8))
        assert answered_waits(elsewhere.answered) == []
        assert (await run.row()).waiting == 2
        await assert_consistent(journal, run.id)

    async def test_a_wait_that_looks_back_takes_the_first_event_that_it_matches(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        old = await journal.fire([], event=inbound("0", order=7))
        clock.advance(60)
        at = clock.now()
        await journal.fire([], event=inbound("1", order=8))
        await journal.fire([], event=inbound("2", order=7, n=1))
        await journal.fire([], event=inbound("3", order=7, n=2))
        await journal.fire([], event=inbound("4", namespace="elsewhere", order=7))
        clock.advance(10)
        names = "abcd"
        nodes = [waiter(name, event="paid") for name in names]
        run = await Recording.start(journal, *nodes, node("e", *names))
        other = await Recording.start(journal, *nodes, execution_id="execution-2")
        recorded_event = await begin(run, "a", awaited(order=7), lookback_seconds=30)
        assert recorded_event.rows[0].state is NodeState.COMPLETED
        value = {"n": 1, "order": 7}
        expected = {"value": value, "by": "/bank", "at": rfc3339(at), "expired": False}
        assert decode((await run.node("a")).output or b"") == expected
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == []
        # Each event ends one wait of an execution; and a batch takes no event twice.
        await run.record(
            start_event(run, "b", awaited(order=7), lookback_seconds=30),
        )
        assert decode((await run.node("b")).output or b"")["value"] == {"n": 2, "order": 7}
        await begin(run, "c", awaited(order=7), lookback_seconds=30)
        await begin(run, "d", awaited(order=8))
        assert [(await run.node(name)).state for name in "cd"] == [None, None]
        recorded_events = await journal.record(
            [start_event(other, name, awaited(order=7), lookback_seconds=60 + 30) for name in "abcd"]
        )
        states = [each.rows[0].state for each in recorded_events]
        assert states == [NodeState.COMPLETED] * 3 + [None]
        shown = {event.id: event for event in await journal.inbound_events()}
        assert shown["1"].answered_later == ()
        assert shown["2"].answered_later == ((run.id, "a"), (other.id, "b"))
        # What an event is answered with stays as it was.
        again = await journal.fire([], event=inbound("0", order=7))
        assert old.known is None
        assert again.known is not None
        assert again.known.answered == ()
        clock.advance(60)
        assert await journal.purge_events(received_before=clock.now(), limit=10) == 5
        assert list(await journal.inbound_events()) == []
        await assert_consistent(journal, run.id)

    async def test_an_event_that_has_answered_a_wait_ends_no_later_one_of_its_execution(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, waiter("a", event="paid"), waiter("b", event="paid"))
        await begin(run, "a", awaited(order=7))
        await journal.fire([], event=inbound("1", order=7))
        await begin(run, "b", awaited(order=7), lookback_seconds=30)
        assert (await run.node("a")).state is NodeState.COMPLETED
        assert (await run.node("b")).state is None

    async def test_a_signal_is_no_event_and_an_event_no_answer(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a", event="go"), waiter("b"), node("c", "a", "b"))
        await begin(run, "a", Wait(WaitKind.EVENT, "go", match=b"{}"))
        assert (await answer(run, "a")).verdict is Verdict.REFUSED
        await begin(run, "b")
        found = await journal.fire([], event=inbound("1", type="go"))
        assert answered_waits(found.answered) == [(run.id, "a")]
        assert (await run.node("b")).state is None

    async def test_a_look_makes_way_for_the_next(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        poll = {"until": "output.ok", "every_seconds": SECONDS}
        run = await Recording.start(journal, node("a", poll=poll))
        began = clock.now()
        clock.advance(1)
        for look in (1, 2):
            event = AttemptPolled(
                run.id,
                1,
                "a",
                look,
                worker="w",
                queued_at=began,
                started_at=began,
                finished_at=clock.now(),
                delay_seconds=SECONDS,
            )
            assert (await run.record(event)).verdict is Verdict.ACCEPTED
            assert (await run.record(event)).verdict is Verdict.KNOWN
            row = await run.node("a")
            assert (row.attempt, row.ended, row.answered, row.failures) == (look + 1, look, look, 0)
            assert row.retry_at == clock.now() + micros(SECONDS)
            assert row.polled == Polled(began, look)
            assert row.is_between_looks
            last = (await run.events())[-1]
            assert (last.type, last.attempt, last.due_at) == ("node.polled", look, row.retry_at)
        assert await run.letters() == {}
        await assert_consistent(journal, run.id)

    async def test_a_signal_with_a_key_counts_once(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, waiter("a"))
        claim = Claim(key="key", request_digest="digest", resource=f"execution/{run.id}")
        await journal.record([signal_event(run, name="later")], claim=claim)
        try:
            await journal.record([signal_event(run, name="later")], claim=claim)
        except ClaimedError:
            pass
        else:
            raise AssertionError("the key was taken twice")
        assert (await run.row()).mailbox == 1

    async def test_an_execution_in_which_only_waits_are_open_leaves_the_hot_state(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), node("c", "a"))
        other = await Recording.start(journal, node("a"), execution_id="execution-2")
        assert [one.id for one in await journal.waiting(not_updated_since=2**60)] == []
        await begin(run, "a")
        await begin(run, "b")
        (found,) = await journal.waiting(not_updated_since=2**60)
        before = await run.row()
        assert (found.id, found.generation, found.epoch, found.seq) == (run.id, 1, 1, before.seq)
        history = await run.events()
        assert (await evict(run)).verdict is Verdict.ACCEPTED
        row = await run.row()
        assert (row.evicted, row.epoch, row.halt) == (True, 2, Halt(2, 0, {}))
        assert await run.events() == history
        assert list(await journal.evicted()) == [run.id]
        assert [one.id for one in await journal.active(not_updated_since=2**60)] == [other.id]
        assert list(await journal.waiting(not_updated_since=2**60)) == []
        # The end of one wait brings it back, and what follows was never handed out.
        await answer(run, "a")
        assert not (await run.row()).evicted
        assert list(await journal.evicted()) == []
        snapshot = await journal.rebuild(run.id, seen_epoch=2)
        assert snapshot is not None
        assert not snapshot.may_be_in_hand("c", 1)
        await assert_consistent(journal, run.id)

    async def test_none_leaves_that_has_changed_or_has_nothing_to_wait_for(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, waiter("a"), waiter("b"), node("c"))
        assert (await evict(run)).verdict is Verdict.STALE
        await begin(run, "a")
        seq = (await run.row()).seq
        assert (await evict(run, epoch=2)).verdict is Verdict.STALE
        assert (await evict(run, generation=2)).verdict is Verdict.STALE
        await begin(run, "b")
        assert (await evict(run, seq=seq)).verdict is Verdict.STALE
        assert not (await run.row()).evicted
        await run.cancel()
        assert (await evict(run)).verdict is Verdict.STALE

    async def test_a_rebuild_a_cancel_and_a_retry_bring_back_what_was_evicted(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, waiter("a"))
        await begin(run, "a")
        await evict(run)
        assert await journal.rebuild(run.id, seen_epoch=2) is not None
        assert not (await run.row()).evicted
        await evict(run, epoch=3)
        assert (await run.row()).evicted
        await run.cancel()
        assert list(await journal.evicted()) == []
        await run.retry()
        assert not (await run.row()).evicted
        assert [one.id for one in await journal.active(not_updated_since=2**60)] == [run.id]

    async def test_the_deadline_of_what_was_evicted_is_listed_until_it_is_recorded(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"), timeout_seconds=SECONDS)
        await begin(run, "a", seconds=2 * SECONDS)
        found = await journal.due_waits(limit=10)
        assert (list(found.deadlines), found.next_in_seconds) == ([], 2 * SECONDS)
        await evict(run)
        assert (await journal.due_waits(limit=10)).next_in_seconds == SECONDS
        clock.advance(SECONDS)
        assert list((await journal.due_waits(limit=10)).deadlines) == [(run.id, 1)]
        await run.record(DeadlinePassed(execution_id=run.id, generation=1, running={}))
        assert (await run.row()).state is ExecutionState.FAILED
        found = await journal.due_waits(limit=10)
        assert (list(found.due), list(found.deadlines), found.next_in_seconds) == ([], [], None)

    async def test_what_waits_leave_goes_with_the_execution(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, waiter("a"))
        await signal(run, name="later")
        await begin(run, "a")
        await answer(run, "a")
        clock.advance(1)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 1
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == []
        assert list(await journal.open_waits()) == []


def awaited(**match: Any) -> Wait:
    return Wait(WaitKind.EVENT, "paid", match=canonical(match))


def inbound(event_id: str, *, type: str = "paid", namespace: str = "default", **data: Any) -> InboundEvent:  # noqa: A002 - the word of the specification
    body = {"id": event_id, "source": "/bank", "type": type, "data": data}
    output = b'{"x":1}'
    return InboundEvent(
        namespace=namespace,
        id=event_id,
        source="/bank",
        type=type,
        body=body,
        output=output,
        output_bytes=len(output),
    )


def start_event(
    run: Recording, node_id: str, wait: Wait = SIGNAL, *, attempt: int = 1, epoch: int = 1, **fields: Any
) -> WaitStarted:
    return WaitStarted(run.id, run.generation, node_id, attempt, epoch=epoch, wait=wait, **fields)


def signal_event(
    run: Recording,
    output: bytes | None = b'{"value":null}',
    *,
    name: str = "go",
    fits: tuple[str, ...] = ("a", "b", "c"),
    **fields: Any,
) -> SignalReceived:
    fields.setdefault("output_bytes", 0 if output is None else len(output))
    return SignalReceived(
        execution_id=run.id, generation=0, name=name, output=output, fits=fits, actor="ann", **fields
    )


async def begin(run: Recording, node_id: str, wait: Wait = SIGNAL, **fields: Any) -> RecordedEvent:
    return await run.record(start_event(run, node_id, wait, **fields))


async def due(run: Recording, node_id: str, attempt: int = 1, **fields: Any) -> RecordedEvent:
    return await run.record(WaitDue(run.id, run.generation, node_id, attempt, **fields))


async def answer(
    run: Recording, node_id: str, output: bytes | None = b'{"value":null}', **fields: Any
) -> RecordedEvent:
    fields.setdefault("output_bytes", 0 if output is None else len(output))
    return await run.record(
        WaitAnswered(execution_id=run.id, generation=0, node_id=node_id, output=output, actor="ann", **fields)
    )


async def evict(run: Recording, **fields: int) -> RecordedEvent:
    row = await run.row()
    known = {"generation": row.generation, "epoch": row.epoch, "seq": row.seq, **fields}
    return await run.record(HotStateEvicted(execution_id=run.id, **known))


async def signal(run: Recording, output: bytes | None = b'{"value":null}', **fields: Any) -> RecordedEvent:
    return await run.record(signal_event(run, output, **fields))
