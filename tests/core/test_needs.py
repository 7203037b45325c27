"""The ledger looks at no other rows than those that were said to be needed, in every case of its contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.test_ledger_properties import Story
from tests.core.workflows import workflows

from weft.core.event import CancelRequested, NodeCompleted, RetryRequested
from weft.core.ledger import Ledger, LiveExecution
from weft.core.needs import further_rows, named_rows, overwritten_rows
from weft.core.output import output_nodes
from weft.core.row import digest_of
from weft.core.state import ExecutionState
from weft.journal.memory import MemoryJournal, accepted_claim
from weft.testing.journal_contract import JournalContract
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.clock import VirtualClock
    from weft.core.event import Event
    from weft.core.ledger import Standing
    from weft.core.payload import Json
    from weft.core.row import NodeRow
    from weft.journal.contract import Claim, Journal


class OnlyThese(dict[str, "NodeRow"]):
    """Rows that are there to be looked at; any other must not be."""

    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.has_all = False

    def ask(self, names: Collection[str], stored: Mapping[str, NodeRow]) -> None:
        self.asked.update(names)
        self.update({name: stored[name] for name in names if name in stored})

    def get(self, node_id: str, default: Any = None) -> Any:
        assert self.has_all or node_id in self.asked, f"{node_id} was not said to be needed"
        return super().get(node_id, default)


class FrugalJournal(MemoryJournal):
    """Gives its ledger no more than a batch needs, as a journal that has to read every row does."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        # How many rows the last batch was given, of all executions.
        self.given = 0
        # Execution and node: digests that the last batch was given instead of outputs.
        self._digests: dict[tuple[str, str], str] = {}

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[Standing]:
        self._refuse_taken(claim)
        found = {}
        self._digests.clear()
        self.given = 0
        for execution_id in {event.execution_id for event in events} & self._executions.keys():
            row = self._executions[execution_id]
            own = self._needed(
                execution_id, [event for event in events if event.execution_id == execution_id]
            )
            self.given += len(own.asked | own.keys())
            found[execution_id] = LiveExecution(0, row, self._plans[row.digest], own)
        ledger = Ledger(
            found.get,
            load_blob=self._blobs.__getitem__,
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=self._now(),
            load_digest=lambda execution_id, node_id: self._digests[execution_id, node_id],
        )
        standings = [ledger.record(event) for event in events]
        self._commit(ledger.changes, accepted_claim(claim, standings))
        return standings

    def _needed(self, execution_id: str, events: Sequence[Event]) -> OnlyThese:
        execution = self._executions[execution_id]
        plan = self._plans[execution.digest]
        stored = self._nodes.get(execution_id, {})
        only = OnlyThese()
        for event in events:
            only.ask(named_rows(event, plan), stored)
        further = further_rows(events, execution, plan, only)
        only.ask(further.whole, stored)
        if further.every_state:
            only.has_all = True
            only.update({name: replace(row, output=None) for name, row in stored.items() if name not in only})
            for name in overwritten_rows(events, plan, only):
                digest = digest_of(stored[name].output)
                assert digest is not None
                self._digests[execution_id, name] = digest
        return only


class TestFrugalJournal(JournalContract):
    @pytest.fixture
    def journal(self, clock: VirtualClock, new_id: Callable[[], str]) -> Journal:
        return FrugalJournal(now=clock.now, new_id=new_id)


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
    (standing,) = await journal.record([last])
    assert standing.execution is not None
    assert standing.execution.is_terminal
    assert journal.given == 1 + len(output_nodes(run.plan)) == 2
