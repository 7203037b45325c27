"""The contract of triggers, inbound events and lanes: a part of ``JournalContract``."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.core.time import MICROSECONDS
from weft.errors import ClaimedError, StillRunningError, TriggerChangedError
from weft.journal.contract import Claim, ExecutionQuery, Firing
from weft.testing.recording import Recording, submission
from weft.triggers.cloudevent import InboundEvent
from weft.triggers.model import EventFilter, Overlap, Schedule, Trigger, TriggerError, TriggerRow
from weft.triggers.overlap import Step

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.journal.contract import JournalAdapter

START = 1_700_000_000 * MICROSECONDS
EVERY = 60 * MICROSECONDS


def row_of(name: str = "nightly", **fields: Any) -> TriggerRow:
    """Return a trigger that is due every minute."""
    kind = {} if "event" in fields else {"schedule": Schedule(every_seconds=60)}
    trigger = Trigger(name=name, workflow="orders", **{**kind, **fields})
    is_due = trigger.schedule is not None and trigger.enabled
    return TriggerRow(
        namespace="default",
        trigger=trigger,
        revision=1,
        created_at=START,
        changed_at=START,
        next_at=START + EVERY if is_due else None,
        fire_at=START + EVERY + 5 if is_due else None,
    )


async def put(journal: JournalAdapter, row: TriggerRow) -> TriggerRow:
    assert await journal.put_trigger(row, seen_revision=None, action="trigger.stored", actor="ann")
    return row


def firing_of(row: TriggerRow, execution_id: str | None = "execution-1", **fields: Any) -> Firing:
    """Return the start of a trigger at the due time that it shows."""
    new = None
    if execution_id is not None:
        plain = submission(execution_id, workflow="orders", version=1)
        new = replace(plain, trigger=row.name, lane=row.lane, starts=True, actor=row.lane)
    due = {"due_at": row.next_at}
    if row.next_at is not None:
        due |= {"next_at": row.next_at + EVERY, "fire_at": row.next_at + EVERY + 5}
    given: dict[str, Any] = {**due, "submission": new, **fields}
    return Firing(
        namespace=row.namespace,
        trigger=row.name,
        revision=row.revision,
        overlap=row.trigger.overlap,
        **given,
    )


def event_of(event_id: str = "event-1", **fields: Any) -> InboundEvent:
    given = {"namespace": "default", "source": "/shop", "type": "order.paid", **fields}
    body = {"id": event_id, "source": given["source"], "type": given["type"], "data": {"order": 7}}
    return InboundEvent(id=event_id, body=body, **given)


def run_of(journal: JournalAdapter, execution_id: str) -> Recording:
    """Return the recording of an execution that a trigger has started."""
    return Recording(journal, execution_id, submission(execution_id).plan)


async def released(journal: JournalAdapter, lane: str, *, namespace: str = "default") -> list[str]:
    """Release a lane, and return the executions whose turn has come."""
    return list((await journal.release_queued(lane, namespace=namespace)).started)


class TriggersContract:
    # -- what is stored ----------------------------------------------------------------------------

    async def test_a_trigger_is_kept_as_it_was_put(self, journal: JournalAdapter) -> None:
        row = await put(
            journal, row_of(input={"day": "{{ trigger.due_at }}"}, labels={"team": "a"}, version=3)
        )
        assert await journal.trigger("nightly") == row
        assert await journal.trigger("nightly", namespace="other") is None
        assert await journal.trigger("other") is None
        (change,) = await journal.changes()
        assert (change.action, change.trigger, change.workflow, change.actor) == (
            "trigger.stored",
            "nightly",
            "orders",
            "ann",
        )

    async def test_a_change_counts_only_on_the_revision_that_was_seen(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        changed = replace(row, revision=2, trigger=replace(row.trigger, priority="high"))
        assert not await journal.put_trigger(row, seen_revision=None, action="trigger.stored")
        assert await journal.put_trigger(changed, seen_revision=1, action="trigger.stored")
        assert not await journal.put_trigger(changed, seen_revision=1, action="trigger.stored")
        assert await journal.trigger("nightly") == changed

    async def test_triggers_are_listed_by_name(self, journal: JournalAdapter) -> None:
        for name in ("c", "a", "b"):
            await put(journal, row_of(name))
        assert [row.name for row in await journal.triggers(limit=2)] == ["a", "b"]
        assert [row.name for row in await journal.triggers(after="b")] == ["c"]
        assert await journal.triggers(workflow="other") == []
        assert len(await journal.triggers(workflow="orders")) == 3
        assert await journal.triggers(namespace="other") == []

    async def test_the_triggers_that_fire_next_come_first(self, journal: JournalAdapter) -> None:
        for name, later in (("c", 2), ("a", 3), ("b", 1)):
            row = row_of(name)
            assert row.fire_at is not None
            await put(journal, replace(row, fire_at=row.fire_at + later))
        await put(journal, row_of("never", enabled=False))
        await put(journal, replace(row_of("elsewhere"), namespace="other"))
        assert [row.name for row in await journal.coming_triggers(limit=2)] == ["b", "c"]
        assert [row.name for row in await journal.coming_triggers()] == ["b", "c", "a"]
        assert [row.name for row in await journal.coming_triggers(namespace="other")] == ["elsewhere"]

    async def test_a_deleted_trigger_fires_no_more(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        assert await journal.delete_trigger("nightly", actor="bob")
        assert not await journal.delete_trigger("nightly")
        assert await journal.next_fire_at() is None
        with pytest.raises(TriggerChangedError):
            await journal.fire([firing_of(row)])
        assert await journal.execution("execution-1") is None
        assert [change.action for change in await journal.changes()] == ["trigger.deleted", "trigger.stored"]

    async def test_what_is_due_is_listed_in_the_order_in_which_it_fires(
        self, journal: JournalAdapter
    ) -> None:
        for name, at in (("late", 30), ("soon", 10), ("then", 20)):
            await put(journal, replace(row_of(name), fire_at=START + at))
        await put(journal, row_of("never", enabled=False))
        assert await journal.next_fire_at() == START + 10
        assert [row.name for row in await journal.due_triggers(now=START + 20, limit=9)] == ["soon", "then"]
        assert [row.name for row in await journal.due_triggers(now=START + 99, limit=1)] == ["soon"]
        assert await journal.due_triggers(now=START, limit=9) == []

    async def test_only_enabled_triggers_of_a_type_hear_an_event(self, journal: JournalAdapter) -> None:
        await put(journal, row_of("b", event=EventFilter(type="order.paid")))
        await put(journal, row_of("a", event=EventFilter(type="order.paid")))
        await put(journal, row_of("off", event=EventFilter(type="order.paid"), enabled=False))
        await put(journal, row_of("other", event=EventFilter(type="order.lost")))
        assert [row.name for row in await journal.event_triggers("order.paid")] == ["a", "b"]
        assert await journal.event_triggers("order.paid", namespace="other") == []

    # -- starts ------------------------------------------------------------------------------------

    async def test_a_start_moves_its_trigger_in_the_same_commit(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        answer = await journal.fire([firing_of(row)])
        (one,) = answer.fired
        assert one.step is Step.START
        assert one.execution is not None
        assert (one.execution.trigger, one.execution.lane) == ("nightly", "trigger/nightly")
        stored = await journal.execution("execution-1")
        assert stored is not None
        assert (stored.trigger, stored.lane, stored.state) == (
            "nightly",
            "trigger/nightly",
            ExecutionState.RUNNING,
        )
        moved = await journal.trigger("nightly")
        assert moved is not None
        assert (moved.next_at, moved.revision) == (START + 2 * EVERY, 1)
        assert await journal.next_fire_at() == START + 2 * EVERY + 5
        listed = await journal.executions(ExecutionQuery(trigger="nightly"))
        assert [(each.id, each.trigger) for each in listed] == [("execution-1", "nightly")]
        assert await journal.executions(ExecutionQuery(trigger="other")) == []

    async def test_each_due_time_starts_one_execution(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        done = await asyncio.gather(
            *(journal.fire([firing_of(row, f"execution-{n}")]) for n in range(5)), return_exceptions=True
        )
        refused = [one for one in done if isinstance(one, TriggerChangedError)]
        assert len(refused) == 4
        assert len(await journal.executions(ExecutionQuery(trigger="nightly"))) == 1

    async def test_a_start_that_was_decided_before_a_change_does_not_count(
        self, journal: JournalAdapter
    ) -> None:
        row = await put(journal, row_of())
        await journal.put_trigger(replace(row, revision=2), seen_revision=1, action="trigger.stored")
        with pytest.raises(TriggerChangedError):
            await journal.fire([firing_of(row)])
        assert await journal.execution("execution-1") is None
        assert await journal.trigger("nightly") == replace(row, revision=2)

    async def test_an_error_is_kept_and_moves_the_trigger_on(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        error = TriggerError(START, "not_found", "there is no workflow 'orders'")
        answer = await journal.fire([firing_of(row, None, error=error)])
        assert [one.execution for one in answer.fired] == [None]
        moved = await journal.trigger("nightly")
        assert moved is not None
        assert (moved.error, moved.next_at, moved.skipped) == (error, START + 2 * EVERY, 0)

    async def test_a_start_by_hand_leaves_the_schedule_where_it_is(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        await journal.fire([firing_of(row, due_at=None, next_at=None, fire_at=None)])
        assert await journal.trigger("nightly") == row

    async def test_a_key_stands_for_one_start(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        by_hand = {"due_at": None, "next_at": None, "fire_at": None}
        claim = Claim(key="k", request_digest="d", resource="execution/execution-1")
        await journal.fire([firing_of(row, **by_hand)], claim=claim)
        with pytest.raises(ClaimedError):
            await journal.fire([firing_of(row, "execution-2", **by_hand)], claim=claim)
        assert await journal.execution("execution-2") is None

    async def test_a_refused_key_moves_no_trigger(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of())
        claim = Claim(key="k", request_digest="d", resource="execution/other")
        await journal.submit([submission("other")], claim=claim)
        with pytest.raises(ClaimedError):
            await journal.fire([firing_of(row)], claim=claim)
        assert await journal.trigger("nightly") == row

    # -- overlap -----------------------------------------------------------------------------------

    async def test_a_skip_is_kept_on_the_trigger(self, journal: JournalAdapter, clock: VirtualClock) -> None:
        row = await put(journal, row_of(overlap=Overlap.SKIP))
        await journal.fire([firing_of(row)])
        second = await journal.trigger("nightly")
        assert second is not None
        claim = Claim(key="k", request_digest="d", resource="execution/execution-2")
        (one,) = (await journal.fire([firing_of(second, "execution-2")], claim=claim)).fired
        assert (one.step, one.execution) == (Step.SKIP, None)
        assert await journal.execution("execution-2") is None
        assert await journal.claim("k") is None
        third = await journal.trigger("nightly")
        assert third is not None
        assert (third.skipped, third.skipped_at) == (1, clock.now())
        run = run_of(journal, "execution-1")
        await run.cancel()
        (one,) = (await journal.fire([firing_of(third, "execution-3")])).fired
        assert one.step is Step.START

    async def test_a_retried_execution_is_in_the_way_again(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of(overlap=Overlap.SKIP))
        await journal.fire([firing_of(row)])
        run = run_of(journal, "execution-1")
        await run.cancel()
        await run.retry()
        second = await journal.trigger("nightly")
        assert second is not None
        (one,) = (await journal.fire([firing_of(second, "execution-2")])).fired
        assert one.step is Step.SKIP

    async def test_what_runs_is_named_before_it_is_cancelled(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of(overlap=Overlap.CANCEL_RUNNING))
        await journal.fire([firing_of(row)])
        second = await journal.trigger("nightly")
        assert second is not None
        with pytest.raises(StillRunningError) as raised:
            await journal.fire([firing_of(second, "execution-2")])
        assert list(raised.value.executions) == ["execution-1"]
        assert await journal.trigger("nightly") == second
        await run_of(journal, "execution-1").cancel()
        (one,) = (await journal.fire([firing_of(second, "execution-2")])).fired
        assert one.step is Step.START

    async def test_what_is_queued_starts_in_its_order(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of(overlap=Overlap.QUEUE))
        steps = []
        for n in range(1, 5):
            seen = await journal.trigger("nightly")
            assert seen is not None
            (one,) = (await journal.fire([firing_of(seen, f"execution-{n}")])).fired
            steps.append(one.step)
            assert one.execution is not None
        assert steps == [Step.START, Step.QUEUE, Step.QUEUE, Step.QUEUE]
        second = await journal.execution("execution-2")
        assert second is not None
        assert (second.state, second.started_at) == (ExecutionState.PENDING, None)
        # No recovery takes up what waits for its turn.
        active = await journal.active(not_updated_since=2**60)
        assert [each.id for each in active] == ["execution-1"]
        assert await journal.is_queued("execution-2")
        assert not await journal.is_queued("execution-1")
        assert await released(journal, row.lane) == []
        assert await journal.stalled_lanes(limit=9) == []
        await run_of(journal, "execution-2").cancel()
        await run_of(journal, "execution-1").cancel()
        assert await journal.stalled_lanes(limit=9) == [("default", row.lane)]
        assert await released(journal, row.lane) == ["execution-3"]
        # It is not terminal: the next one waits.
        assert await released(journal, row.lane) == []
        assert [each.id for each in await journal.active(not_updated_since=2**60)] == ["execution-3"]
        assert await released(journal, row.lane, namespace="other") == []
        await run_of(journal, "execution-3").cancel()
        done = await asyncio.gather(*(released(journal, row.lane) for _ in range(4)))
        assert [ids for ids in done if ids] == [["execution-4"]]
        assert not await journal.is_queued("execution-4")

    async def test_a_start_does_not_overtake_what_is_queued(self, journal: JournalAdapter) -> None:
        await put(journal, row_of(overlap=Overlap.QUEUE))
        for n in range(1, 3):
            seen = await journal.trigger("nightly")
            assert seen is not None
            await journal.fire([firing_of(seen, f"execution-{n}")])
        await run_of(journal, "execution-1").cancel()
        seen = await journal.trigger("nightly")
        assert seen is not None
        (one,) = (await journal.fire([firing_of(seen, "execution-3")])).fired
        assert one.step is Step.QUEUE

    async def test_a_batch_may_wait_in_a_lane_with_more_slots(self, journal: JournalAdapter) -> None:
        new = [
            replace(
                submission(f"execution-{n}", workflow="orders", version=1),
                lane="batch/b",
                queue_slots=0 if n < 2 else 2,
                starts=True,
            )
            for n in range(5)
        ]
        rows = await journal.submit(new)
        assert [row.started_at is not None for row in rows] == [True, True, False, False, False]
        assert await released(journal, "batch/b") == []
        for n in range(2):
            await run_of(journal, f"execution-{n}").cancel()
        assert await released(journal, "batch/b") == ["execution-2", "execution-3"]

    # -- inbound events ----------------------------------------------------------------------------

    async def test_an_event_is_kept_with_what_it_started(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        a = await put(journal, row_of("a", event=EventFilter(type="order.paid")))
        b = await put(journal, row_of("b", event=EventFilter(type="order.paid")))
        event = event_of()
        answer = await journal.fire([firing_of(a, "execution-1"), firing_of(b, "execution-2")], event=event)
        assert answer.known is None
        assert [one.step for one in answer.fired] == [Step.START, Step.START]
        stored = await journal.stored_event("/shop", "event-1")
        assert stored is not None
        assert (stored.type, json.loads(stored.body), stored.received_at) == (
            "order.paid",
            event.body,
            clock.now(),
        )
        assert stored.started == ("execution-1", "execution-2")
        assert await journal.inbound_events() == [stored]
        assert await journal.inbound_events(namespace="other") == []
        assert await journal.stored_event("/shop", "event-1", namespace="other") is None

    async def test_the_same_event_does_nothing_again(self, journal: JournalAdapter) -> None:
        row = await put(journal, row_of(event=EventFilter(type="order.paid")))
        done = await asyncio.gather(
            *(journal.fire([firing_of(row, f"execution-{n}")], event=event_of()) for n in range(4))
        )
        (first,) = [answer for answer in done if answer.known is None]
        assert first.fired[0].execution is not None
        started = (first.fired[0].execution.id,)
        assert [answer.known.started for answer in done if answer.known is not None] == [started] * 3
        assert len(await journal.executions()) == 1
        other = await journal.fire([firing_of(row, "execution-9")], event=event_of(source="/other"))
        assert other.known is None

    async def test_of_an_event_all_is_committed_or_nothing(self, journal: JournalAdapter) -> None:
        a = await put(journal, row_of("a", event=EventFilter(type="order.paid")))
        b = await put(journal, row_of("b", event=EventFilter(type="order.paid")))
        await journal.put_trigger(replace(b, revision=2), seen_revision=1, action="trigger.stored")
        with pytest.raises(TriggerChangedError):
            await journal.fire([firing_of(a, "execution-1"), firing_of(b, "execution-2")], event=event_of())
        assert await journal.executions() == []
        assert await journal.stored_event("/shop", "event-1") is None

    async def test_an_event_for_nobody_is_kept_for_its_time(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        for n in range(3):
            await journal.fire([], event=event_of(f"event-{n}", type=f"type-{n}"))
            clock.advance(10)
        listed = await journal.inbound_events(limit=2)
        assert [event.id for event in listed] == ["event-2", "event-1"]
        assert [event.id for event in await journal.inbound_events(before=listed[-1].number)] == ["event-0"]
        assert [event.id for event in await journal.inbound_events(event_type="type-1")] == ["event-1"]
        before = clock.now() - 15 * MICROSECONDS
        assert await journal.purge_events(received_before=before, limit=1) == 1
        assert await journal.purge_events(received_before=before, limit=9) == 1
        assert [event.id for event in await journal.inbound_events()] == ["event-2"]
        assert (await journal.fire([], event=event_of("event-0"))).known is None
