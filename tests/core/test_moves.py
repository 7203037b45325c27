"""Whatever the ledger is told, and in whatever order: a state changes by the tables of legal moves."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.workflows import workflows

from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptLost,
    AttemptParked,
    CancelRequested,
    DeadlinePassed,
    ExecutionStarted,
    NodeCached,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    ParkedDue,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from weft.core.ledger.changes import Verdict, move_execution
from weft.core.rows import NodeRow
from weft.core.state import (
    EXECUTION_MOVES,
    ROW_MOVES,
    SETTLED,
    ExecutionState,
    IllegalMoveError,
    NodeState,
    Reason,
)
from weft.testing.walk import Walk, an_error, node, workflow

if TYPE_CHECKING:
    from weft.core.event import Event
    from weft.core.payload import Json

MOVES = {
    *((old, new) for old, targets in EXECUTION_MOVES.items() for new in targets),
    *((old, new) for old, targets in ROW_MOVES.items() for new in targets),
}


class Told:
    """An execution that is told of events by themselves: no store or decision says which may come."""

    def __init__(self, document: Json) -> None:
        self.walk = Walk(document)
        # Every change that an event made: of the execution's state, of a row that is another row now.
        self.moves: set[tuple[object, object]] = set()

    async def tell(self, kind: type[Any], node_id: str, attempt: int | None, generation: int) -> None:
        execution, rows = await self.walk.execution(), await self.walk.rows()
        if attempt is None:
            attempt = rows[node_id].attempt
        event = an_event(kind, node_id, attempt=attempt, generation=generation, epoch=execution.epoch)
        recorded_event = await self.walk.record(event)
        now, after = await self.walk.execution(), await self.walk.rows()
        if now.state is not execution.state:
            self.moves.update(await self._states_passed(execution.state, execution.seq))
        changed = {(rows[n].state, after[n].state) for n in rows if rows[n] != after[n]}
        self.moves |= changed
        assert recorded_event.verdict is Verdict.ACCEPTED or not changed

    async def _states_passed(self, first: ExecutionState, seq: int) -> set[tuple[object, object]]:
        """Return the moves of one commit, which may be several."""
        events = await self.walk.journal.events(self.walk.execution_id, after=seq, limit=1000)
        states = [event.state for event in events if event.type.startswith("execution.")]
        passed = [first, *(ExecutionState(state) for state in states if state is not None)]
        return set(pairwise(passed))


def an_event(kind: type[Any], node_id: str, *, attempt: int, generation: int, epoch: int) -> Event:
    fields: dict[str, Any] = {"execution_id": "x1", "generation": generation}
    if kind in (
        NodeCompleted,
        NodeCached,
        AttemptFailed,
        AttemptLost,
        NodeFailed,
        NodeSkipped,
        AttemptIssued,
        AttemptParked,
        ParkedDue,
    ):
        fields |= {"node_id": node_id, "attempt": attempt}
    more: dict[type[Any], dict[str, Any]] = {
        NodeCompleted: {"output": b"1", "output_bytes": 1, "started_at": 1},
        NodeCached: {"output": b"1"},
        AttemptFailed: {"error": an_error(), "delay_seconds": 1.0, "started_at": 1},
        AttemptLost: {"counted": True},
        NodeFailed: {"error": an_error(), "started_at": 1},
        NodeSkipped: {"reason": Reason.CONDITION, "cause": None},
        AttemptIssued: {"epoch": epoch},
        AttemptParked: {"epoch": epoch, "seconds": 0.0, "output": b"1", "output_bytes": 1},
    }
    made: Event = kind(**fields, **more.get(kind, {}))
    return made


KINDS = [
    ExecutionStarted,
    NodeCompleted,
    NodeCompleted,
    NodeCached,
    AttemptFailed,
    AttemptLost,
    NodeFailed,
    NodeSkipped,
    AttemptIssued,
    AttemptParked,
    ParkedDue,
    DeadlinePassed,
    CancelRequested,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
]


@settings(max_examples=200, deadline=None)
@given(workflows(max_nodes=4), st.data())
async def test_no_sequence_of_events_makes_an_illegal_move(document: Json, data: st.DataObject) -> None:
    told = Told(document)
    await told.walk.submit()
    for _ in range(data.draw(st.integers(1, 15), label="events")):
        await told.tell(
            data.draw(st.sampled_from(KINDS), label="event"),
            data.draw(st.sampled_from(told.walk.plan.graph.ids), label="node"),
            # None: the current one.
            data.draw(st.sampled_from([None, None, None, 1, 2]), label="attempt"),
            (await told.walk.execution()).generation - data.draw(st.sampled_from([0, 0, 0, 1])),
        )
    assert told.moves <= MOVES


TWO = workflow("a", node("b", "a"), failure_policy="continue")
# What is told of an execution of two nodes, in order; an event of a node with its name.
SEQUENCES: list[list[tuple[type[Any], str]]] = [
    [(ExecutionStarted, ""), (NodeCompleted, "a"), (NodeCached, "b")],
    [(ExecutionStarted, ""), (AttemptLost, "a"), (NodeFailed, "a"), (NodeSkipped, "b"), (RetryRequested, "")],
    [(PauseRequested, ""), (ResumeRequested, ""), (CancelRequested, ""), (RetryRequested, "a")],
    [(ExecutionStarted, ""), (PauseRequested, ""), (ResumeRequested, ""), (CancelRequested, "")],
    [(ExecutionStarted, ""), (PauseRequested, ""), (NodeCompleted, "a"), (NodeCompleted, "b")],
    [(ExecutionStarted, ""), (PauseRequested, ""), (NodeFailed, "a"), (NodeSkipped, "b")],
    [(PauseRequested, ""), (CancelRequested, "")],
]


async def test_every_legal_move_is_made_by_some_sequence_of_events() -> None:
    made: set[tuple[object, object]] = set()
    for sequence in SEQUENCES:
        told = Told(TWO)
        await told.walk.submit()
        for kind, node_id in sequence:
            await told.tell(kind, node_id or "a", None, (await told.walk.execution()).generation)
        made |= told.moves
    # In a group a retry waits for its turn.
    for kind in (NodeFailed, CancelRequested):
        told = Told(workflow("a", name="w", concurrency={"group": "g"}))
        (await told.walk.submit()).execution.group_name = "g"
        for event in (kind, RetryRequested):
            await told.tell(event, "a", None, 1)
        made |= told.moves
    # A retry of a node that completed, beside one that failed.
    told = Told(workflow("a", "b", failure_policy="continue"))
    await told.walk.submit()
    for kind, node_id in [(NodeCompleted, "a"), (NodeFailed, "b")]:
        await told.tell(kind, node_id, None, 1)
    before = (await told.walk.row("a")).state
    assert (await told.walk.record(told.walk.retried("a"))).verdict is Verdict.ACCEPTED
    made.add((before, (await told.walk.row("a")).state))
    assert made == MOVES


async def test_a_result_of_an_execution_that_nobody_has_started_starts_it() -> None:
    walk = Walk(workflow("a"))
    await walk.submit()
    recorded_event = await walk.record(await walk.completed("a"))
    assert [event.type for event in recorded_event.history] == [
        "execution.started",
        "node.completed",
        "execution.completed",
    ]
    execution = await walk.execution()
    assert execution.started_at is not None
    assert execution.state is ExecutionState.COMPLETED


@pytest.mark.parametrize("old", sorted(SETTLED))
@pytest.mark.parametrize("new", sorted(SETTLED))
async def test_the_ledger_settles_no_node_a_second_time(old: NodeState, new: NodeState) -> None:
    walk = Walk(workflow("a"))
    execution = (await walk.submit()).execution
    settled = NodeRow(node_id="a", state=old)
    ledger = walk.journal._ledger()
    change = ledger._change_of(execution.id)
    assert change is not None
    with pytest.raises(IllegalMoveError, match=f"node a: {old} → {new}"):
        ledger.changes.put(change, settled, replace(settled, state=new))


async def test_the_ledger_opens_no_completed_execution_again() -> None:
    walk = Walk(workflow("a"))
    execution = (await walk.submit()).execution
    execution.state = ExecutionState.COMPLETED
    with pytest.raises(IllegalMoveError, match="execution x1: COMPLETED → FAILED"):
        move_execution(execution, ExecutionState.FAILED)
