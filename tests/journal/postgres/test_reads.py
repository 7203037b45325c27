"""The ledger judges by few rows as it does by all of them, in every case of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.test_ledger_properties import Story
from tests.core.workflows import workflows

from weft.core.event import CallStarted, CancelRequested, NodeCompleted, RetryRequested
from weft.core.ledger.fence import NodeEvent
from weft.core.output import output_nodes
from weft.core.rows import digest_of
from weft.core.state import ExecutionState
from weft.journal.memory import MemoryJournal, accepted_claim
from weft.journal.postgres.connection import DatabaseClock
from weft.journal.postgres.record import Reads, Recorder, _by_execution
from weft.journal.sql import PlanCache
from weft.testing.journal.contract import JournalContract
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from weft.clock import VirtualClock
    from weft.core.event import Event
    from weft.core.ledger.changes import LiveExecution, RecordedEvent
    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow, NodeRow, PastEvent, Signal, Wait
    from weft.journal.contract import Claim, Journal


class MemoryReads(Reads):
    """Reads what is missed from a journal in memory, and counts the rows."""

    def __init__(self, journal: FrugalJournal) -> None:
        super().__init__(None)
        self._journal = journal
        self.given = 0

    async def _read_rows(
        self, live: LiveExecution, names: Collection[str] | None, *, states_only: bool
    ) -> dict[str, NodeRow]:
        stored = await self._journal.nodes(live.row.id, names=names)
        self.given += len(stored if names is None else names)
        return {name: replace(row, output=None) if states_only else row for name, row in stored.items()}

    async def _read_digests(self, live: LiveExecution, names: Sequence[str]) -> dict[str, str]:
        stored = await self._journal.nodes(live.row.id, names=names)
        return {name: digest for name, row in stored.items() if (digest := digest_of(row.output))}

    async def _count_groups(self, lanes: Sequence[tuple[str, str]]) -> list[int]:
        return [sum(map(len, self._journal._in_lane(*lane))) for lane in lanes]

    async def _read_blobs(self, names: list[str]) -> dict[str, bytes]:
        return dict(await self._journal.blobs(names))

    async def _read_signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        # Without what they bring, as the database lists them.
        return [replace(one, output=None) for one in self._journal.signals(execution_id, name, after)]

    async def _read_past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        return self._journal.past_event(execution, wait, since, taken)

    async def _read_signal_output(self, execution_id: str, number: int) -> bytes:
        return self._journal.output(execution_id, number)


class FrugalJournal(MemoryJournal):
    """Hands its ledger no more than a batch needs, as a journal that has to read every row does."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        # How many rows the last batch was given, of all executions.
        self.given = 0
        self._recorder = Recorder(
            clock=DatabaseClock(self._now),
            new_id=self._new_id,
            bounds=self._bounds,
            plans=PlanCache(),
            notify=fields.get("notify"),
        )

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[RecordedEvent]:
        self._refuse_taken(claim)
        reads = MemoryReads(self)
        by_execution = _by_execution(events)
        for execution_id, own in by_execution.items():
            row = self._executions.get(execution_id)
            if row is not None:
                rows = reads.add(0, row, self._plans[row.digest])
                names = {event.node_id for event in own if isinstance(event, NodeEvent)}
                rows.asked |= names
                rows.update(await self.nodes(execution_id, names=names))
                reads.given += len(names)
        calls = [event for event in events if isinstance(event, CallStarted)]
        for event in calls:
            # A child of an earlier generation is opened again.
            child = self._executions.get(event.called.child)
            if child is not None:
                reads.add(0, child, self._plans[child.digest])
                await reads.read_all(child.id)
        judged, ledger = await self._recorder._judge(by_execution, reads.executions.get, reads, self._now())
        self.given = reads.given
        for event in calls:
            if event.called.child in ledger.changes.executions:
                self._put_definition(event.new.plan, event.new.document)
        recorded_events = {id_: iter(own) for id_, own in judged.items()}
        in_order = [next(recorded_events[event.execution_id]) for event in events]
        self._commit(ledger.changes, accepted_claim(claim, in_order))
        return in_order


class TestFrugalJournal(JournalContract):
    HOLDS_INPUTS = True

    @pytest.fixture
    def journal(self, clock: VirtualClock, new_id: Callable[[], str]) -> Journal:
        return FrugalJournal(now=clock.now, new_id=new_id, notify=())


def frugal(document: Json, data: st.DataObject) -> Story:
    story = Story(document, data)
    story.keep_in(FrugalJournal(now=story.walk.clock.now, new_id=story.walk._new_id))
    return story


@settings(max_examples=200, deadline=None)
@given(workflows(), st.data())
async def test_any_story_is_told_by_the_rows_it_needs(document: Json, data: st.DataObject) -> None:
    story = frugal(document, data)
    await story.tell()
    for event in data.draw(st.permutations(story.recorded), label="told again"):
        await story.walk.record(event)
    execution = await story.walk.execution()
    if execution.state is not ExecutionState.COMPLETED:
        await story.walk.record(RetryRequested(execution_id=execution.id, generation=0))
        story.in_hand = []
        await story.handed_out(await story.walk.reopen())
        await story.go_on()


@settings(max_examples=100, deadline=None)
@given(workflows(), st.data())
async def test_so_is_a_story_whose_events_come_in_one_batch(document: Json, data: st.DataObject) -> None:
    story = Story(document, data)
    await story.tell()
    again = frugal(document, data)
    await again.walk.begin()
    events: list[Event] = [*story.recorded]
    ends = [
        RetryRequested(execution_id="x1", generation=0),
        CancelRequested(execution_id="x1", generation=0),
    ]
    events += data.draw(st.lists(st.sampled_from(ends), max_size=3), label="control")
    await again.walk.journal.record(data.draw(st.permutations(events), label="batch"))
    execution, rows = await again.walk.execution(), await again.walk.rows()
    assert execution.unsettled == sum(row.state is None for row in rows.values())


@pytest.fixture
def journal() -> FrugalJournal:
    return FrugalJournal(now=lambda: 1, new_id=lambda: "id")


async def test_one_result_of_a_wide_execution_needs_one_row(journal: FrugalJournal) -> None:
    names = [f"n{number}" for number in range(500)]
    run = await Recording.start(journal, *(node(name) for name in names), node("end", *names))
    for name in names[:100]:
        await run.completed(name)
        assert journal.given == 1


async def test_a_failure_that_may_be_handled_does_not_need_all(journal: FrugalJournal) -> None:
    names = [f"n{number}" for number in range(500)]
    handler = node("h", "n0", trigger_rule="one_failed")
    run = await Recording.start(journal, *(node(name) for name in names), handler)
    await journal.record([run.completion(name) for name in names[1:400]])
    await run.failed("n0")
    assert journal.given == 2


async def test_the_end_needs_the_outputs_it_is_made_from(journal: FrugalJournal) -> None:
    names = [f"n{number}" for number in range(50)]
    run = await Recording.start(journal, *(node(name) for name in names), output="{{ n7 }}")
    await journal.record([run.completion(name) for name in names[:-1]])
    last: NodeCompleted = run.completion("n49")
    (recorded_event,) = await journal.record([last])
    assert recorded_event.execution is not None
    assert recorded_event.execution.is_terminal
    assert journal.given == 1 + len(output_nodes(run.plan)) == 2
