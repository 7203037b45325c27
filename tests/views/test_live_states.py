"""Letters of nodes follow the events, in whatever order, however often, and with whatever gaps these come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from weft.core.rows import ExecutionRow, History, NodeRow, Parked, Polled
from weft.core.state import ExecutionState, NodeState
from weft.definition.validation import check
from weft.handlers.registry import Registry
from weft.store.contract import NodeStatus
from weft.views.live_states import LETTERS, RETRY_SCHEDULED, LiveStates

if TYPE_CHECKING:
    from weft.definition.plan import Plan

NOW = 1_000_000
TYPES = {"C": "node.completed", "F": "node.failed", "X": "node.cancelled", "S": "node.skipped"}


def plan_of(count: int) -> Plan:
    nodes: list[dict[str, Any]] = [
        {"id": f"n{at}", "handler": "echo", "dependencies": [f"n{at - 1}"] if at else []}
        for at in range(count)
    ]
    checked = check({"name": "flow", "nodes": nodes}, handlers=Registry())
    assert checked.plan is not None
    return checked.plan


def row_of(total: int, *, seq: int = 2, generation: int = 1, **fields: Any) -> ExecutionRow:
    values: dict[str, Any] = {"state": ExecutionState.RUNNING, "unsettled": total, **fields}
    return ExecutionRow(
        id="x",
        namespace="default",
        workflow="flow",
        version=1,
        digest="d",
        generation=generation,
        epoch=1,
        total=total,
        seq=seq,
        input=b"{}",
        created_at=0,
        **values,
    )


def begun(count: int = 3, *rows: NodeRow, **fields: Any) -> LiveStates:
    return LiveStates(plan_of(count), row_of(count, **fields), {row.node_id: row for row in rows}, now=NOW)


def live(node: str, type_: str, attempt: int = 1) -> History:
    return History(seq=0, at=0, type=f"node.{type_}", execution="x", generation=1, node=node, attempt=attempt)


def recorded(seq: int, node: str | None, type_: str, attempt: int = 1, **fields: Any) -> History:
    values: dict[str, Any] = {"generation": 1, **fields}
    return History(seq=seq, at=0, type=type_, execution="x", node=node, attempt=attempt, **values)


def shown(states: LiveStates) -> str:
    return states.letters.decode()


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[History], str]:
    """Draw what happens to some nodes, to the end of the execution, and how it ends for each."""
    count = draw(st.integers(1, 5))
    events: list[History] = []
    ends = ""
    lives: list[list[tuple[str, int]]] = []
    for _ in range(count):
        moments: list[tuple[str, int]] = []
        tries = draw(st.integers(1, 3))
        for attempt in range(1, tries + 1):
            moments += [("queued", attempt), ("started", attempt)]
            moments += [(draw(st.sampled_from(["retrying", "lost"])), attempt)] if attempt < tries else []
        ends += draw(st.sampled_from("CFXS"))
        lives.append([*moments, (ends[-1], tries)])
    seq = 2
    while any(lives):
        at = draw(st.sampled_from([at for at in range(count) if lives[at]]))
        what, attempt = lives[at].pop(0)
        if what in ("queued", "started"):
            events.append(live(f"n{at}", what, attempt))
            continue
        seq += 1
        type_ = TYPES.get(what, f"node.{what}")
        due_at = NOW + 5 if what == "retrying" else None
        events.append(recorded(seq, f"n{at}", type_, attempt, due_at=due_at))
    events.append(recorded(seq + 1, None, "execution.failed", state="FAILED"))
    return events, ends


@settings(deadline=None)
@given(histories(), st.randoms(use_true_random=False), st.data())
def test_whatever_the_feed_does_the_end_is_that_of_the_journal(
    history: tuple[list[History], str], random: Any, data: st.DataObject
) -> None:
    events, ends = history
    states = begun(len(ends))
    told = [event for event in events if data.draw(st.booleans())] + [
        event for event in events if data.draw(st.booleans())
    ]
    random.shuffle(told)
    settled: dict[int, int] = {}
    for event in told:
        states.apply(event, now=NOW)
        assert not settled.items() - dict(enumerate(states.letters)).items(), "what is settled stays so"
        settled = {at: letter for at, letter in enumerate(states.letters) if chr(letter) in "CFXS"}
        assert sum(states.counts().values()) == len(ends)
    recorded_events = [event for event in events if event.seq]
    heard = {event.seq for event in told}
    first_missing = next(
        (event.seq for event in recorded_events if event.seq not in heard), recorded_events[-1].seq + 1
    )
    assert states.seq == first_missing - 1
    assert states.is_over == (first_missing > recorded_events[-1].seq)
    assert states.misses_the_end == (recorded_events[-1].seq in heard and not states.is_over)
    # What a look at the journal brings.
    for event in recorded_events[states.seq - 2 :]:
        states.apply(event, now=NOW)
    assert (shown(states), states.state, states.is_over) == (ends, ExecutionState.FAILED, True)


@settings(deadline=None)
@given(histories())
def test_without_gaps_every_moment_is_shown(history: tuple[list[History], str]) -> None:
    events, ends = history
    states = begun(len(ends))
    expected = {"node.queued": "Q", "node.started": "R", "node.retrying": "T", "node.lost": "Q"} | {
        type_: letter for letter, type_ in TYPES.items()
    }
    for event in events:
        states.apply(event, now=NOW)
        if event.node is not None:
            assert chr(states.letters[int(event.node[1:])]) == expected[event.type]
            assert set(states.take_changed()) <= {int(event.node[1:])}


def test_rows_are_where_it_begins() -> None:
    states = begun(
        6,
        NodeRow(node_id="n0", state=NodeState.COMPLETED, seq=3),
        NodeRow(node_id="n1", state=NodeState.FAILED, seq=4),
        NodeRow(node_id="n2", parked=Parked(NOW + 9), queued_at=1, started_at=1),
        NodeRow(node_id="n3", attempt=2, ended=1, retry_at=NOW + 9),
        NodeRow(node_id="n4", attempt=2, ended=1, retry_at=NOW),
        seq=6,
    )
    assert shown(states) == "CFRTPP"
    assert not states.has_changed
    # The end of the first attempt is in the row, and its start comes late.
    states.apply(live("n3", "started", 1), now=NOW)
    assert shown(states) == "CFRTPP"


def test_a_scheduled_retry_is_queued_when_it_is_due() -> None:
    states = begun(1)
    states.apply(recorded(3, "n0", "node.retrying", due_at=NOW + 5), now=NOW)
    assert (shown(states), states.next_due) == ("T", NOW + 5)
    states.fire_due(NOW + 4)
    assert shown(states) == "T"
    states.fire_due(NOW + 5)
    assert (shown(states), states.next_due) == ("Q", None)


def test_a_node_waits_between_the_looks_of_its_poll_and_not_before_a_retry() -> None:
    row = NodeRow(node_id="n1", attempt=2, ended=1, retry_at=NOW + 5, polled=Polled(0, 1))
    states = begun(2, row)
    states.apply(recorded(3, "n0", "node.polled", 1, due_at=NOW + 5), now=NOW)
    assert shown(states) == "WW"
    states.set_phases({"n0": NodeStatus("timer", 2, due_at=NOW + 5)}, now=NOW)
    assert (shown(states), states.counts()["WAITING"], states.in_flight()) == ("WW", 2, (0, 0))
    states.fire_due(NOW + 5)
    assert shown(states) == "QQ"
    states.apply(live("n0", "started", 2), now=NOW + 5)
    states.apply(recorded(4, "n0", "node.retrying", 2, due_at=NOW + 9), now=NOW + 5)
    assert shown(states) == "TQ"


def test_what_the_store_says_is_not_held_against_what_came_later() -> None:
    states = begun(3, NodeRow(node_id="n0", state=NodeState.COMPLETED, seq=3), seq=3)
    assert states.begin_look() == ["n1"]
    states.apply(live("n1", "started"), now=NOW)
    states.set_phases({"n1": NodeStatus("queued", 1)}, now=NOW)
    assert shown(states) == "CRP"
    states.begin_look()
    states.set_phases({"n1": NodeStatus("queued", 1)}, now=NOW)
    assert shown(states) == "CQP"


def test_a_queued_node_that_is_given_back_can_be_queued_again() -> None:
    states = begun(1)
    states.apply(live("n0", "queued"), now=NOW)
    states.begin_look()
    states.set_phases({"n0": NodeStatus("free", 1)}, now=NOW)
    assert shown(states) == "P"
    states.apply(live("n0", "queued"), now=NOW)
    assert shown(states) == "Q"


def test_the_store_knows_a_scheduled_retry_by_its_timer() -> None:
    states = begun(2)
    states.begin_look()
    states.set_phases({"n0": NodeStatus("timer", 2, due_at=NOW + 5)}, now=NOW)
    assert shown(states)[0] == chr(RETRY_SCHEDULED)
    states.begin_look()
    states.set_phases({"n0": NodeStatus("timer", 2, due_at=NOW - 5)}, now=NOW)
    assert shown(states)[0] == chr(LETTERS[NodeState.QUEUED])


def test_a_later_generation_is_not_drawn_on_an_older_one() -> None:
    states = begun(1)
    states.apply(recorded(3, "n0", "node.failed"), now=NOW)
    states.apply(recorded(5, None, "execution.retried", state="RUNNING", generation=2), now=NOW)
    assert states.is_outdated
    assert shown(states) == "F"


def test_events_of_an_older_generation_change_nothing() -> None:
    states = begun(1, generation=2, seq=9)
    states.apply(live("n0", "started"), now=NOW)
    states.apply(recorded(10, "n0", "result.discarded"), now=NOW)
    assert (shown(states), states.seq) == ("P", 10)
