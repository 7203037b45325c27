"""Drawn workflows with drawn outcomes, taken through journal, store and decide to their end."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.workflows import verdict, workflows

from weft.core.event import CancelRequested, NodeCompleted, RetryRequested
from weft.core.ledger.changes import Verdict
from weft.core.readiness import READY, readiness
from weft.core.retry_plan import plan_retry
from weft.core.rows import History, NodeRow
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.state import EXECUTION_MOVES, ExecutionState, NodeState, Reason
from weft.core.time import MICROSECONDS
from weft.definition.model import TriggerRule
from weft.store.contract import Answer
from weft.store.memory import MemoryStore
from weft.testing.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from weft.core.event import Event
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.payload import Json
    from weft.journal.memory import MemoryJournal
    from weft.store.contract import ExecutionStatus

SETTLING = {"node.completed", "node.failed", "node.skipped", "node.cancelled"}
OUTCOMES = ["complete", "complete", "complete", "fail", "fail", "retry", "lose"]


class Story:
    """A walk whose attempts end as hypothesis says; what must always hold is checked after every event."""

    def __init__(self, document: Json, data: st.DataObject) -> None:
        self.walk = Walk(document)
        self.data = data
        self.recorded: list[Event] = []
        self.in_hand: list[str] = []
        # The full history as each commit told it.
        self.told: list[History] = []
        self.keep_in(self.walk.journal)

    def keep_in(self, journal: MemoryJournal) -> None:
        """Use this journal, and hear what its commits add to the history."""
        self.walk.journal = journal
        self._commit = journal.record
        journal.record = self.record  # type: ignore[method-assign]

    async def record(self, events: Sequence[Event], **kwargs: Any) -> Sequence[RecordedEvent]:
        """Record events, and keep what the commit added to the history."""
        recorded_events = await self._commit(events, **kwargs)
        for recorded_event in recorded_events:
            self.told += recorded_event.history
            event = recorded_event.event
            if isinstance(event, NodeCompleted) and recorded_event.verdict is Verdict.ACCEPTED:
                (completed, *_) = recorded_event.history
                assert event.output is not None
                assert completed == History(
                    seq=completed.seq,
                    at=self.walk.clock.now(),
                    type="node.completed",
                    execution=event.execution_id,
                    generation=event.generation,
                    node=event.node_id,
                    attempt=event.attempt,
                    state="COMPLETED",
                    worker=event.worker,
                    queued_at=completed.queued_at,
                    started_at=completed.started_at,
                    finished_at=completed.finished_at,
                    output_digest=hashlib.sha256(event.output).hexdigest(),
                )
        return recorded_events

    async def tell(self) -> None:
        """Take the execution to its end."""
        await self.handed_out(await self.walk.begin())
        await self.check()
        await self.go_on()

    async def go_on(self) -> None:
        while self.in_hand:
            node_id = self.data.draw(st.sampled_from(sorted(self.in_hand)), label="who ends")
            self.in_hand.remove(node_id)
            event = await self.ending(node_id, self.data.draw(st.sampled_from(OUTCOMES), label="how"))
            self.recorded.append(event)
            await self.handed_out(await self.walk.advance(event))
            await self.let_timers_fire()
            await self.check()

    async def ending(self, node_id: str, outcome: str) -> Event:
        match outcome:
            case "complete":
                return await self.walk.completed(node_id, {"by": node_id})
            case "fail":
                return await self.walk.failed(node_id)
            case "retry":
                return await self.walk.failed(node_id, retryable=True)
            case _:
                return await self.walk.lost(node_id)

    async def let_timers_fire(self) -> None:
        due = await self.walk.store.due(idle_seconds=3600)
        if due.next_at is not None and due.next_at - self.walk.clock.now() < 10 * MICROSECONDS:
            self.walk.clock.advance((due.next_at - self.walk.clock.now()) / MICROSECONDS)
            due = await self.walk.store.due(idle_seconds=3600)
        for execution_id, _ in due.woken:
            (applied,) = await self.walk.store.free([execution_id])
            await self.handed_out(await self.walk.carry_on(applied.free))
        await self.walk.store.renew([self.walk.lease(n, await self._attempt(n)) for n in self.in_hand])

    async def _attempt(self, node_id: str) -> int:
        return (await self.walk.row(node_id)).attempt

    async def handed_out(self, node_ids: list[str]) -> None:
        rows = await self.walk.rows()
        for node_id in node_ids:
            parents = [rows[parent] for parent in self.walk.plan.graph.parents[node_id]]
            settled = [parent for parent in parents if parent.state is not None]
            rule = self.walk.plan.nodes[node_id].trigger_rule
            waiting = len(parents) - len(settled)
            assert readiness(node_id, rule, settled, waiting=waiting) == READY, node_id
        execution = await self.walk.execution()
        self.in_hand = [] if execution.is_terminal else [*self.in_hand, *node_ids]

    async def check(self) -> None:
        execution, rows = await self.walk.execution(), await self.walk.rows()
        states = Counter(row.state for row in rows.values())
        assert execution.unsettled == states[None]
        assert execution.total == len(rows)
        assert execution.failed == states[NodeState.FAILED]
        assert execution.skipped == states[NodeState.SKIPPED]
        assert execution.cancelled == states[NodeState.CANCELLED]
        assert execution.completed == states[NodeState.COMPLETED]
        assert execution.is_terminal == (execution.unsettled == 0)

        history = await self.walk.journal.events(execution.id, limit=10_000)
        assert [event.seq for event in history] == list(range(1, execution.seq + 1))
        assert history[1:] == self.told, "what is derived from rows is what was told"
        passed = ["PENDING", *(e.state for e in history if e.type.startswith("execution.") and e.state)]
        assert all(after in EXECUTION_MOVES[ExecutionState(one)] for one, after in pairwise(passed))
        assert passed[-1] == execution.state
        settled = Counter((e.generation, e.node) for e in history if e.type in SETTLING)
        assert not settled or max(settled.values()) == 1
        assert len(set(self.walk.started)) == len(self.walk.started), "an attempt was started twice"

        for row in rows.values():
            if row.state is NodeState.SKIPPED:
                assert not [s for s in self.walk.started if s[:2] == (row.node_id, row.generation)]
                self._check_cause(row, rows)
        if execution.is_terminal:
            await self._check_end(rows)

    def _check_cause(self, row: NodeRow, rows: dict[str, NodeRow]) -> None:
        ancestors = self.walk.plan.graph.ancestors(row.node_id)
        if row.reason == Reason.UPSTREAM_FAILED:
            assert row.cause in ancestors
            assert rows[row.cause].state is NodeState.FAILED
        elif row.reason == Reason.UPSTREAM_SKIPPED:
            assert row.cause in ancestors
            assert rows[row.cause].state is NodeState.SKIPPED
        else:
            assert row.cause is None

    async def _check_end(self, rows: dict[str, NodeRow]) -> None:
        execution = await self.walk.execution()
        if execution.state is not ExecutionState.CANCELLED:
            assert execution.state == verdict(self.walk.plan, rows)
        assert (execution.error is None) == (execution.state is not ExecutionState.FAILED)
        (applied,) = await self.walk.store.free([execution.id])
        assert (applied.answer, list(applied.free)) == (Answer.REFUSED, [])
        assert await self.walk.store.inspect(execution.id) is None


@settings(max_examples=150, deadline=None)
@given(workflows(), st.data())
async def test_every_node_settles_once_and_the_execution_with_the_last(
    document: Json, data: st.DataObject
) -> None:
    story = Story(document, data)
    await story.tell()
    execution = await story.walk.execution()
    assert execution.is_terminal
    assert execution.unsettled == 0


@settings(max_examples=150, deadline=None)
@given(workflows(), st.data())
async def test_an_event_again_changes_nothing(document: Json, data: st.DataObject) -> None:
    story = Story(document, data)
    await story.tell()
    before, rows = await story.walk.execution(), await story.walk.rows()
    letters = await story.walk.journal.dead_letters()
    for event in data.draw(st.permutations(story.recorded), label="told again"):
        recorded_event = await story.walk.record(event)
        assert recorded_event.verdict in (Verdict.KNOWN, Verdict.STALE)
    after = await story.walk.execution()
    assert await story.walk.rows() == rows
    assert await story.walk.journal.dead_letters() == letters
    assert (after.state, after.output, after.error) == (before.state, before.output, before.error)
    assert (after.unsettled, after.failed) == (before.unsettled, before.failed)
    # At most the history says that something came too late.
    new = await story.walk.journal.events(after.id, after=before.seq)
    assert {event.type for event in new} <= {"result.discarded"}


@settings(max_examples=100, deadline=None)
@given(workflows(), st.data())
async def test_the_last_event_again_at_once_leaves_no_trace_at_all(
    document: Json, data: st.DataObject
) -> None:
    story = Story(document, data)
    await story.handed_out(await story.walk.begin())
    while story.in_hand:
        node_id = story.in_hand.pop()
        event = await story.ending(node_id, data.draw(st.sampled_from(OUTCOMES), label="how"))
        await story.handed_out(await story.walk.advance(event))
        before, rows = await story.walk.execution(), await story.walk.rows()
        recorded_event = await story.walk.record(event)
        assert recorded_event.verdict is Verdict.KNOWN
        assert (await story.walk.execution(), await story.walk.rows()) == (before, rows)
        await story.let_timers_fire()


async def merged_one_by_one(store: MemoryStore, walk: Walk, rows: list[NodeRow]) -> ExecutionStatus | None:
    """Return what a new store makes of these rows, merged one at a time."""
    execution = await walk.execution()
    await store.install(
        [Snapshot(execution, walk.plan, ())], incarnation_id=await store.incarnation_id(), fresh=True
    )
    for row in rows:
        await store.apply([RowUpdate(execution, walk.plan, (row,))])
    return await store.inspect(execution.id)


@settings(max_examples=100, deadline=None)
@given(workflows(with_places=False), st.data(), st.randoms())
async def test_the_order_of_rows_and_their_doubles_are_of_no_consequence(
    document: Json, data: st.DataObject, random: Random
) -> None:
    story = Story(document, data)
    await story.handed_out(await story.walk.begin())
    for _ in range(data.draw(st.integers(0, len(story.walk.plan.nodes)), label="events")):
        if not story.in_hand:
            break
        event = await story.ending(story.in_hand.pop(0), data.draw(st.sampled_from(OUTCOMES), label="how"))
        await story.handed_out(await story.walk.advance(event))
    walk = story.walk
    execution = await walk.execution()
    if execution.is_terminal:
        return
    rows = list((await walk.journal.nodes(walk.execution_id)).values())

    def new_store() -> MemoryStore:
        return MemoryStore(now=walk.clock.now, new_id=lambda: "t", publish=lambda _: None)

    async def installed(rows: list[NodeRow]) -> ExecutionStatus | None:
        store = new_store()
        snapshot = Snapshot(execution, walk.plan, rows)
        assert list(
            await store.install([snapshot], incarnation_id=await store.incarnation_id(), fresh=True)
        ) == [Answer.YES]
        return await store.inspect(walk.execution_id)

    expected = await installed(rows)
    assert expected is not None
    assert await installed(rows[::-1]) == expected
    shuffled = [*rows, *rows]
    random.shuffle(shuffled)
    assert await merged_one_by_one(new_store(), walk, shuffled) == expected


NOT_ALL_SUCCESS = [rule for rule in TriggerRule if rule is not TriggerRule.ALL_SUCCESS]


@settings(max_examples=100, deadline=None)
@given(
    workflows(rules=NOT_ALL_SUCCESS, policies=["continue"], with_conditions=False),
    st.sets(st.integers(0, 6)),
    st.randoms(),
)
async def test_under_continue_the_end_does_not_depend_on_who_was_quicker(
    document: Json, bad: set[int], random: Random
) -> None:
    walk = Walk(document)
    in_hand = await walk.begin()
    while in_hand:
        node_id = in_hand.pop(random.randrange(len(in_hand)))
        ending = walk.fail if int(node_id[1:]) in bad else walk.complete
        in_hand += await ending(node_id)

    expected: dict[str, NodeRow] = {}
    for node_id in walk.plan.graph.order():
        parents = [expected[parent] for parent in walk.plan.graph.parents[node_id]]
        ready = readiness(node_id, walk.plan.nodes[node_id].trigger_rule, parents)
        if ready == READY:
            state = NodeState.FAILED if int(node_id[1:]) in bad else NodeState.COMPLETED
            expected[node_id] = NodeRow(node_id=node_id, state=state)
        else:
            assert not isinstance(ready, str)
            expected[node_id] = NodeRow(node_id=node_id, state=NodeState.SKIPPED, reason=ready.reason)
    rows = await walk.rows()
    assert {n: (r.state, r.reason) for n, r in rows.items()} == {
        n: (r.state, r.reason) for n, r in expected.items()
    }


@settings(max_examples=100, deadline=None)
@given(workflows(), st.data())
async def test_a_retry_does_what_its_plan_says_and_reuses_no_attempt(
    document: Json, data: st.DataObject
) -> None:
    story = Story(document, data)
    walk = story.walk
    await story.tell()
    for generation in (2, 3):
        execution, before = await walk.execution(), await walk.rows()
        if execution.state is ExecutionState.COMPLETED:
            return
        named = tuple(data.draw(st.lists(st.sampled_from(walk.plan.graph.ids), unique=True, max_size=2)))
        plan = plan_retry(walk.plan, before, named)
        recorded_event = await walk.record(
            RetryRequested(execution_id=execution.id, generation=generation - 1, nodes=named)
        )
        assert recorded_event.verdict is Verdict.ACCEPTED
        opened, after = await walk.execution(), await walk.rows()
        assert (opened.generation, opened.epoch) == (generation, execution.epoch + 1)
        assert opened.unsettled == len(plan.run)
        assert {n for n, row in after.items() if row.state is None} == set(plan.run)
        assert {n: after[n] for n in plan.reuse} == {n: before[n] for n in plan.reuse}
        story.in_hand = []
        await story.handed_out(await walk.reopen())
        await story.check()
        if data.draw(st.booleans(), label="cancelled midway"):
            await walk.advance(CancelRequested(execution_id=execution.id, generation=generation))
            story.in_hand = []
            await story.check()
        await story.go_on()
        kept = await walk.rows()
        assert {n: kept[n] for n in plan.reuse} == {n: before[n] for n in plan.reuse}
        ran_again = {node_id for node_id, started, _ in walk.started if started == generation}
        assert ran_again <= set(plan.run)


@settings(max_examples=100, deadline=None)
@given(workflows(), st.data())
async def test_attempts_of_a_node_only_go_up(document: Json, data: st.DataObject) -> None:
    story = Story(document, data)
    await story.tell()
    for node_id in story.walk.plan.graph.ids:
        numbers = [attempt for started, _, attempt in story.walk.started if started == node_id]
        assert numbers == list(range(1, len(numbers) + 1))
