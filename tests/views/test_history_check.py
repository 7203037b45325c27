"""The trace checker: true histories pass, and each kind of false one is seen for what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.core.workflows import workflows

from weft.core.event import CancelRequested, DeadlinePassed, NodeCached, Running, SignalReceived
from weft.core.rows import History
from weft.core.state import ExecutionState, NodeState
from weft.testing.walk import WORKER, Walk, node, workflow
from weft.views.history_check import check
from weft.views.history_state import Stored, Violation, stored_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.definition.plan import Plan

RETRY = {"base_delay_seconds": 2, "jitter": 0.5}


class Told:
    """An execution that has been told: its plan, its history, and what is stored of it."""

    def __init__(self, plan: Plan, history: list[History], stored: Stored) -> None:
        self.plan, self.history, self.stored = plan, history, stored

    def check(self) -> list[Violation]:
        return check(self.plan, self.history, self.stored)

    def index(self, type_: str, node_id: str | None = None, *, nth: int = 0) -> int:
        found = [n for n, e in enumerate(self.history) if (e.type, e.node) == (type_, node_id)]
        return found[nth]

    def forge(self, type_: str, node_id: str | None = None, *, nth: int = 0, **fields: Any) -> None:
        """Change one event."""
        index = self.index(type_, node_id, nth=nth)
        self.history[index] = replace(self.history[index], **fields)

    def drop(self, type_: str, node_id: str | None = None) -> None:
        del self.history[self.index(type_, node_id)]
        self.renumber()

    def double(self, type_: str, node_id: str, *, nth: int = 0, **fields: Any) -> None:
        """Let one event come twice."""
        index = self.index(type_, node_id, nth=nth)
        self.history.insert(index + 1, replace(self.history[index], **fields))
        self.renumber()

    def move(self, type_: str, node_id: str, *, behind: tuple[str, str | None]) -> None:
        """Let one event be recorded behind another, at the same moment."""
        event = self.history.pop(self.index(type_, node_id))
        place = self.index(*behind) + 1
        self.history.insert(place, replace(event, at=max(event.at, self.history[place - 1].at)))
        self.renumber()

    def renumber(self) -> None:
        """Make the numbers, and the times of recording, fit again."""
        at = 0
        for index, event in enumerate(self.history):
            at = max(at, event.at)
            self.history[index] = replace(event, seq=index + 1, at=at)

    def forge_node(self, node_id: str, **fields: Any) -> None:
        nodes = {**self.stored.nodes, node_id: replace(self.stored.nodes[node_id], **fields)}
        self.stored = replace(self.stored, nodes=nodes)


async def told(walk: Walk) -> Told:
    execution = await walk.execution()
    history = list(await walk.journal.events(walk.execution_id, limit=10_000))
    letters = await walk.journal.dead_letters(limit=500)
    return Told(walk.plan, history, stored_rows(execution, await walk.journal.nodes(execution.id), letters))


async def step(walk: Walk, *node_ids: str) -> None:
    """Let a second pass, and each of these complete."""
    for node_id in node_ids:
        walk.clock.advance(1)
        await walk.advance(await walk.completed(node_id, node_id, **times(walk)))


def times(walk: Walk) -> dict[str, Any]:
    now = walk.clock.now()
    return {"queued_at": now - 300_000, "started_at": now - 200_000, "finished_at": now - 100_000}


async def a_life() -> Told:
    """An execution in which most of what can happen to a node happens; it completes."""
    walk = Walk(
        workflow(
            "a",
            node("b", "a", max_retries=1, retry=RETRY),
            node("bad", "a", max_retries=0),
            node("handler", "bad", rule="one_failed"),
            node("behind", "bad"),
            node("far", "behind"),
            node("unasked", "a", condition="1 == 2"),
            node("after", "unasked", rule="all_success"),
            node("quiet", "a", rule="one_failed"),
            node("gone", "a"),
            node("hit", "a", cache={"ttl_seconds": 60}),
            node("join", "b", "handler", "gone"),
            failure_policy="continue",
        )
    )
    await walk.begin()
    await step(walk, "a")
    walk.clock.advance(1)
    await walk.advance(
        NodeCached(execution_id="x1", generation=1, node_id="hit", attempt=1, output=b'"kept"'),
        await walk.failed("b", retryable=True, **times(walk)),
        await walk.failed("bad", retryable=True, **times(walk)),
        await walk.lost("gone", **times(walk)),
    )
    walk.clock.advance(4)
    await step(walk, "handler", "b", "gone", "join")
    return await told(walk)


async def two_lives() -> Told:
    """An execution that fails at once, is retried, cancelled, retried from a node on, and completes."""
    walk = Walk(
        workflow("a", node("b", "a"), node("c", "b"), node("bad", "a", max_retries=0), node("d", "bad", "b"))
    )
    await walk.begin()
    await step(walk, "a")
    walk.clock.advance(1)
    in_hand = walk.clock.now()
    walk.clock.advance(1)
    failure = await walk.failed("bad", **times(walk))
    await walk.advance(replace(failure, running={"b": Running(1, WORKER, in_hand, in_hand)}))
    walk.clock.advance(1)
    await walk.record(walk.retried())
    await walk.reopen()
    await step(walk, "bad")
    walk.clock.advance(1)
    await walk.advance(CancelRequested(execution_id="x1", generation=0))
    walk.clock.advance(1)
    await walk.record(walk.retried("a"))
    await walk.reopen()
    await step(walk, "a", "b", "c", "bad", "d")
    return await told(walk)


async def test_true_histories_pass() -> None:
    for story in (a_life, two_lives):
        assert (await story()).check() == []


async def test_a_life_has_all_that_can_happen() -> None:
    types = {event.type for told in (await a_life(), await two_lives()) for event in told.history}
    assert types == {
        "execution.created",
        "execution.started",
        "execution.retried",
        "execution.completed",
        "execution.failed",
        "execution.cancelled",
        "node.completed",
        "node.failed",
        "node.skipped",
        "node.cancelled",
        "node.retrying",
        "node.lost",
    }


# What is forged in the first story, the invariants that break, and the sentence that says so.
FORGED: list[tuple[str, Callable[[Told], object], set[str], str]] = [
    (
        "a node before its parents",
        lambda t: t.move("node.completed", "gone", behind=("node.completed", "join")),
        {"I2"},
        "join: it ran, and none_failed_min_one_success says wait",
    ),
    (
        "a node behind a failure",
        lambda t: t.forge(
            "node.skipped",
            "behind",
            type="node.completed",
            state="COMPLETED",
            attempt=1,
            started_at=t.history[-1].at,
            finished_at=t.history[-1].at,
            reason=None,
            cause=None,
            at=t.history[-1].at,
        ),
        {"I2", "I20"},
        "behind: it ran, and none_failed_min_one_success says upstream_failed",
    ),
    (
        "a skip without a reason",
        lambda t: t.forge("node.skipped", "quiet", reason="upstream_failed", cause="a"),
        {"I2"},
        "quiet: it was skipped as upstream_failed, and its rule says not_triggered",
    ),
    (
        "an attempt before the start",
        lambda t: t.drop("execution.started"),
        {"I2"},
        "a: it came before the execution was started",
    ),
    (
        "two results",
        lambda t: t.double("node.completed", "b", attempt=3),
        {"I3", "I5", "I6"},
        "b: two results were accepted in generation 1",
    ),
    (
        "an attempt twice",
        lambda t: t.forge("node.completed", "b", attempt=1),
        {"I5"},
        "b: attempt 1 ended, and attempt 1 had before",
    ),
    (
        "a number left out",
        lambda t: t.forge("node.completed", "gone", attempt=3),
        {"I5"},
        "gone: attempt 3 ended, and 2 was to be the next",
    ),
    (
        "a settled node that changes",
        lambda t: t.double("node.skipped", "far"),
        {"I6"},
        "far: it was SKIPPED and became SKIPPED",
    ),
    (
        "a result after the end",
        lambda t: t.move("node.completed", "join", behind=("execution.completed", None)),
        {"I6", "I17"},
        "join: it counted after the execution was COMPLETED",
    ),
    (
        "a failure that retries allow for",
        lambda t: _fail_early(t),
        {"I15", "I17"},
        "b: it failed for good after 1 failures",
    ),
    (
        "more attempts than retries",
        lambda t: t.forge("node.retrying", "b", error={"code": "timeout", "retryable": False}),
        {"I14"},
        "b: it is tried again after failure 1",
    ),
    (
        "a failure without an attempt",
        lambda t: t.forge("node.failed", "bad", queued_at=None, started_at=None, finished_at=None),
        {"I15"},
        "bad: it failed without an attempt that did",
    ),
    (
        "a loss that was none",
        lambda t: t.forge("node.failed", "bad", error={"code": "deliveries_exhausted"}),
        {"I15"},
        "bad: it failed with deliveries_exhausted, and no attempt was lost",
    ),
    (
        "an answer from a cache that is none",
        lambda t: t.forge("node.completed", "a", attempt=0),
        {"I15"},
        "a: it was answered from the cache, and has none",
    ),
    (
        "a skipped node that ran",
        lambda t: t.forge("node.skipped", "far", started_at=t.history[-1].at),
        {"I16"},
        "far: it was skipped after it had been started",
    ),
    (
        "a cause that did nothing",
        lambda t: t.forge("node.skipped", "far", cause="a"),
        {"I16"},
        "far: its cause a is not what broke its rule",
    ),
    (
        "a wrong verdict",
        lambda t: t.forge("execution.completed", type="execution.failed", state="FAILED"),
        {"I17"},
        "it is FAILED; failures that nothing handled: none",
    ),
    (
        "an end with a node left",
        lambda t: t.drop("node.completed", "join"),
        {"I17"},
        "it is COMPLETED, and not settled are join",
    ),
    (
        "a gap",
        lambda t: t.history.__delitem__(t.index("node.skipped", "quiet")),
        {"I17", "I18"},
        "event 7: it follows event 5",
    ),
    (
        "an event of another execution",
        lambda t: t.forge("node.completed", "join", execution="x2"),
        {"I18"},
        "it is of another execution, x2",
    ),
    (
        "an event of no node",
        lambda t: t.forge("node.completed", "join", node="nobody"),
        {"I17", "I18"},
        "nobody: the definition has no such node",
    ),
    (
        "a retry too soon",
        lambda t: t.forge("node.retrying", "b", due_at=t.history[t.index("node.retrying", "b")].at),
        {"I19"},
        "b: the retry comes after 0 µs, its policy says 2000000 µs",
    ),
    (
        "a retry too late",
        lambda t: t.forge(
            "node.retrying", "b", due_at=t.history[t.index("node.retrying", "b")].at + 3_500_000
        ),
        {"I19"},
        "b: the retry comes after 3500000 µs, at most 3000000 µs apply",
    ),
    (
        "an attempt before its retry was due",
        lambda t: t.forge("node.completed", "b", queued_at=t.history[t.index("node.retrying", "b")].at),
        {"I19"},
        "b: it was queued 2000000 µs before its retry was due",
    ),
    (
        "times that go back",
        lambda t: t.forge("node.completed", "join", finished_at=t.history[0].at),
        {"I20"},
        "join: its times are not in the order queued, started, finished",
    ),
    (
        "a child before its parent",
        lambda t: t.forge("node.completed", "join", queued_at=t.history[0].at),
        {"I20"},
        "join: it was queued",
    ),
    (
        "an event from the past",
        lambda t: t.forge("execution.completed", at=t.history[0].at),
        {"I20"},
        "it was recorded before the event that it follows",
    ),
    (
        "a result that counts and is discarded",
        lambda t: t.forge("node.lost", "gone", type="result.discarded"),
        {"I5", "I12"},
        "gone: the result of attempt 1 was discarded as stale",
    ),
]


def _fail_early(told: Told) -> None:
    told.forge("node.retrying", "b", type="node.failed", state="FAILED", due_at=None)
    told.drop("node.completed", "b")
    told.drop("node.completed", "join")


@pytest.mark.parametrize(
    ("forge", "invariants", "sentence"), [case[1:] for case in FORGED], ids=[case[0] for case in FORGED]
)
async def test_a_forged_history_is_seen(
    forge: Callable[[Told], object], invariants: set[str], sentence: str
) -> None:
    told = await a_life()
    forge(told)
    found = check(told.plan, told.history)
    assert {violation.invariant for violation in found} == invariants, [*map(str, found)]
    assert any(sentence in str(violation) for violation in found), [*map(str, found)]


# The same for the second story: generations, fail_fast, cancel.
FORGED_LATER: list[tuple[str, Callable[[Told], object], set[str], str]] = [
    (
        "a result after the cancel",
        lambda t: t.move("node.completed", "bad", behind=("execution.cancelled", None)),
        {"I9", "I17"},
        "bad: it counted after the execution was cancelled",
    ),
    (
        "an attempt number that starts again",
        lambda t: t.forge("node.completed", "a", nth=1, attempt=1),
        {"I5"},
        "a: attempt 1 ended, and attempt 1 had before",
    ),
    (
        "an event of an old generation",
        lambda t: t.forge("node.completed", "d", generation=2),
        {"I6"},
        "d: generation 2 is not the current one",
    ),
    (
        "a generation left out",
        lambda t: t.forge("execution.retried", generation=3),
        {"I2", "I6", "I17"},
        "generation 3 follows 1",
    ),
    (
        "a failure that stops nothing",
        lambda t: t.move("node.failed", "bad", behind=("execution.started", None)),
        {"I2", "I17"},
        "a: it counted after bad had failed and nothing handled it",
    ),
    (
        "a stop because of a node that did not fail",
        lambda t: t.forge("node.cancelled", "b", cause="a"),
        {"I16", "I17"},
        "b: it was cancelled because of a, which did not fail",
    ),
    (
        "a cancel that ends as a failure",
        lambda t: t.forge(
            "execution.cancelled", type="execution.failed", state="FAILED", error={"node": "bad"}
        ),
        {"I17"},
        "it is FAILED, and its nodes were cancelled because of cancelled",
    ),
    (
        "what ran on an output that is replaced, and keeps its own",
        lambda t: t.drop("node.completed", "d"),
        {"I17"},
        "it is COMPLETED, and not settled are d",
    ),
]


@pytest.mark.parametrize(
    ("forge", "invariants", "sentence"),
    [case[1:] for case in FORGED_LATER],
    ids=[case[0] for case in FORGED_LATER],
)
async def test_a_forged_history_of_generations_is_seen(
    forge: Callable[[Told], object], invariants: set[str], sentence: str
) -> None:
    told = await two_lives()
    forge(told)
    found = check(told.plan, told.history)
    assert {violation.invariant for violation in found} == invariants, [*map(str, found)]
    assert any(sentence in str(violation) for violation in found), [*map(str, found)]


# What is stored, against a true history.
STORED: list[tuple[str, Callable[[Told], object], str]] = [
    ("state", lambda t: _store(t, state=ExecutionState.FAILED), "I18 stored: its state is stored as FAILED"),
    ("generation", lambda t: _store(t, generation=2), "I18 stored: its generation is stored as 2"),
    ("start", lambda t: _store(t, started_at=0), "I18 stored: its started_at is stored as 0"),
    ("end", lambda t: _store(t, finished_at=None), "I18 stored: its finished_at is stored as None"),
    (
        "counts",
        lambda t: _store(t, counts={**(t.stored.counts or {}), NodeState.FAILED: 2}),
        "I11 stored: its counts add up to 13 of 12 nodes",
    ),
    ("unsettled", lambda t: t.forge_node("b", state=None), "b: its state is stored as not settled"),
    ("attempt", lambda t: t.forge_node("b", attempt=1), "b: its attempt is stored as 1"),
    ("reset", lambda t: t.forge_node("b", current=1), "b: its current attempt is stored as 1"),
    ("failures", lambda t: t.forge_node("b", failures=0), "b: its number of failures is stored as 0"),
    ("reason", lambda t: t.forge_node("far", reason="condition"), "far: its reason is stored as condition"),
    ("worker", lambda t: t.forge_node("b", worker="other"), "b: its worker is stored as other"),
    ("times", lambda t: t.forge_node("b", started_at=1), "b: its started_at is stored as 1"),
    ("output", lambda t: t.forge_node("b", output_digest="00"), "I7 stored: b: its output is stored as 00"),
    (
        "missing row",
        lambda t: _store(t, nodes={k: v for k, v in t.stored.nodes.items() if k != "b"}),
        "I18 stored: b: its history tells of it, and nothing is stored",
    ),
    (
        "foreign row",
        lambda t: _store(t, nodes={**t.stored.nodes, "x": t.stored.nodes["a"]}),
        "I18 stored: x: it is stored, and the definition has no such node",
    ),
    ("no letter", lambda t: _store(t, letters={}), "I23 stored: bad: its failure in generation 1 left no"),
    (
        "a letter too many",
        lambda t: _store(t, letters={**_letters(t), ("a", 1): _letters(t)["bad", 1]}),
        "I23 stored: a: a dead letter of generation 1, and it did not fail",
    ),
    (
        "a letter left open",
        lambda t: _store(t, letters={("bad", 1): replace(_letters(t)["bad", 1], state="open")}),
        "I23 stored: bad: its dead letter is open, and should be handled",
    ),
    (
        "a letter of another attempt",
        lambda t: _store(t, letters={("bad", 1): replace(_letters(t)["bad", 1], attempt=2)}),
        "I23 stored: bad: its dead letter tells of another failure",
    ),
]


def _store(told: Told, **fields: Any) -> None:
    told.stored = replace(told.stored, **fields)


def _letters(told: Told) -> dict[tuple[str, int], Any]:
    return dict(told.stored.letters or {})


@pytest.mark.parametrize(("forge", "sentence"), [case[1:] for case in STORED], ids=[c[0] for c in STORED])
async def test_what_is_stored_otherwise_than_told_is_seen(
    forge: Callable[[Told], object], sentence: str
) -> None:
    told = await a_life()
    forge(told)
    found = [*map(str, told.check())]
    assert any(sentence in line for line in found), found


async def test_a_dropped_letter_is_nobodys_mistake() -> None:
    told = await a_life()
    _store(told, letters={("bad", 1): replace(_letters(told)["bad", 1], state="dropped")})
    assert told.check() == []


async def test_an_at_most_once_node_that_was_started_twice_is_seen() -> None:
    walk = Walk(workflow(node("once", delivery="at_most_once", max_retries=0)))
    await walk.begin()
    walk.clock.advance(1)
    told_ = await told(walk)
    now = walk.clock.now()
    lost = History(
        seq=3,
        at=now,
        type="node.lost",
        execution="x1",
        generation=1,
        node="once",
        attempt=1,
        started_at=now,
        finished_at=now,
    )
    told_.history += [lost, replace(lost, seq=4, attempt=2)]
    assert "I5 event 4: once: it is at_most_once, and was started twice" in [
        str(violation) for violation in check(told_.plan, told_.history)
    ]


async def test_a_deadline_says_so() -> None:
    walk = Walk(workflow("a", timeout_seconds=10))
    await walk.begin()
    walk.clock.advance(11)
    await walk.advance(DeadlinePassed(execution_id="x1", generation=1))
    told_ = await told(walk)
    assert told_.check() == []
    told_.forge("execution.failed", error={"code": "node_failed"})
    sentence = "I17 event 4: it was stopped at its deadline, and its error says something else"
    assert sentence in [str(violation) for violation in check(told_.plan, told_.history)]


async def test_a_history_that_is_still_being_written_passes() -> None:
    whole = await two_lives()
    for length in range(1, len(whole.history)):
        assert check(whole.plan, whole.history[:length]) == [], length


@settings(max_examples=60, deadline=None)
@given(workflows(), st.data())
async def test_whatever_the_ledger_lets_happen_passes(document: Any, data: st.DataObject) -> None:
    """Results, losses, control calls in any order: the fence lets through only what the checker accepts."""
    walk = Walk(document)
    await walk.begin()
    for _ in range(data.draw(st.integers(0, 15))):
        walk.clock.advance(data.draw(st.sampled_from([0, 1, 400])))
        execution = await walk.execution()
        what = data.draw(st.sampled_from(["complete", "fail", "retry", "lose", "cancel", "pause", "again"]))
        running = sorted(await walk.store.running("x1"))
        if what == "cancel" and data.draw(st.booleans()):
            running_now = await walk.store.running("x1")
            await walk.advance(CancelRequested(execution_id="x1", generation=0, running=running_now))
        elif what == "pause":
            await walk.advance(walk.paused(), walk.resumed())
        elif what == "again" and execution.state in (ExecutionState.FAILED, ExecutionState.CANCELLED):
            nodes = data.draw(st.lists(st.sampled_from(sorted(walk.plan.nodes)), max_size=1))
            await walk.record(walk.retried(*nodes))
            await walk.reopen()
        elif running:
            node_id = data.draw(st.sampled_from(running))
            since = (await walk.store.running("x1"))[node_id]
            at = {"queued_at": since.queued_at, "started_at": since.started_at}
            if what == "complete":
                await walk.advance(await walk.completed(node_id, **at))
            elif what == "lose":
                await walk.advance(await walk.lost(node_id, **at))
            else:
                await walk.advance(await walk.failed(node_id, retryable=what == "retry", **at))
        found = (await told(walk)).check()
        assert found == [], [*map(str, found)]


async def a_wait() -> Told:
    """An execution that waited for an answer, which completed with it."""
    walk = Walk(workflow("a", node("b", "a", handler="wait", config={}), "c", node("d", "b", "c")))
    await walk.begin()
    await step(walk, "a")
    await walk.advance(signal())
    await step(walk, "c", "d")
    return await told(walk)


def signal() -> SignalReceived:
    return SignalReceived(
        execution_id="x1", generation=0, name="b", output=b"{}", output_bytes=2, fits=("b",)
    )


async def test_what_waited_and_was_answered_is_as_it_must_be() -> None:
    life = await a_wait()
    assert {"node.waiting", "signal.received"} <= {event.type for event in life.history}
    assert life.check() == []


@pytest.mark.parametrize(
    ("forge", "invariant", "message"),
    [
        (lambda life: life.drop("node.waiting", "b"), "I12", "its wait ended, and had not begun"),
        (lambda life: life.double("node.waiting", "b"), "I5", "it began to wait twice in a generation"),
        (lambda life: life.forge("node.waiting", "b", attempt=2), "I5", "attempt 2 waits"),
        (lambda life: life.forge("node.waiting", "b", node="c"), "I15", "its definition does not say so"),
        (
            lambda life: life.move("node.waiting", "b", behind=("execution.started", None)),
            "I2",
            "it ran, and",
        ),
        (
            lambda life: life.forge("signal.received", "b", node="c"),
            "I12",
            "it was answered, and did not wait",
        ),
        (
            lambda life: life.forge("signal.received", "b", generation=2),
            "I6",
            "signal.received of generation 2",
        ),
    ],
)
async def test_a_wait_that_cannot_be_is_seen(
    forge: Callable[[Told], None], invariant: str, message: str
) -> None:
    life = await a_wait()
    forge(life)
    assert any(one.invariant == invariant and message in one.message for one in life.check())
