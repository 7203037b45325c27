"""At least one reason for every unsettled node wherever it stands; none for a settled one."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.core.outcomes import completed
from tests.core.test_decide import execution

from weft.core.rows import History, NodeRow
from weft.core.state import TERMINAL, ExecutionState
from weft.definition.plan import compile_plan
from weft.testing.walk import node, workflow
from weft.views.explain import Position, RetryDelay, Why, explain

PLAN = compile_plan(
    workflow(
        *[f"p{index}" for index in range(7)],
        node("n", *[f"p{index}" for index in range(7)], resource_tag="api", queue="q"),
    )
)
PARENTS = frozenset(PLAN.graph.parents["n"])
PHASES = [None, "waiting", "free", "throttled", "queued", "running", "orphaned", "timer"]
OPEN = [state for state in ExecutionState if state not in TERMINAL]


def reasons(
    position: Position | None,
    *,
    state: ExecutionState = ExecutionState.RUNNING,
    row: NodeRow | None = None,
    settled: frozenset[str] = PARENTS,
    served: bool = True,
    max_concurrency_binds: bool = False,
    retrying: RetryDelay | None = None,
) -> list[Why]:
    return explain(
        PLAN,
        execution(state=state),
        row or NodeRow(node_id="n", attempt=2),
        position,
        settled=settled,
        served=served,
        max_concurrency_binds=max_concurrency_binds,
        retrying=retrying,
    )


def at(phase: str | None, **fields: Any) -> Position:
    return Position(phase, **{"slots": 5, **fields})


@pytest.mark.parametrize(
    ("phase", "state", "served", "settled", "slots"),
    [*product(PHASES, OPEN, [True, False], [frozenset[str](), PARENTS], [0, 5])],
)
def test_every_unsettled_node_has_a_reason_wherever_it_stands(
    phase: str | None, state: ExecutionState, served: bool, settled: frozenset[str], slots: int
) -> None:
    for position in (at(phase, slots=slots), None):
        found = reasons(position, state=state, served=served, settled=settled)
        assert found
        assert all(why.code and why.message for why in found)


@pytest.mark.parametrize("phase", PHASES)
def test_a_settled_node_has_none(phase: str | None) -> None:
    assert reasons(at(phase), row=completed("n")) == []


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_node_of_a_terminal_execution_has_none(state: ExecutionState) -> None:
    assert reasons(at("free"), state=state) == []


@pytest.mark.parametrize(
    ("position", "fields", "code"),
    [
        (at(None), {"settled": frozenset()}, "waiting_for_parents"),
        (at("waiting"), {"settled": frozenset()}, "waiting_for_parents"),
        (at("waiting"), {}, "starting"),
        (at("free"), {}, "starting"),
        (at("free", slots_taken=5), {}, "window"),
        (at("free", slots_taken=5), {"max_concurrency_binds": True}, "max_concurrency"),
        (at("throttled"), {}, "rate_limited"),
        (at("timer"), {}, "retry_scheduled"),
        (at("queued"), {}, "waiting_for_worker"),
        (at("queued"), {"served": False}, "no_worker"),
        (at("running"), {}, "running"),
        (at("orphaned"), {}, "recovering"),
        (None, {}, "recovering"),
        (None, {"state": ExecutionState.PENDING}, "starting"),
        (None, {"state": ExecutionState.PAUSED}, "paused"),
        (at("free"), {"state": ExecutionState.PAUSED}, "paused"),
    ],
)
def test_each_place_has_its_code(position: Position | None, fields: dict[str, Any], code: str) -> None:
    assert [why.code for why in reasons(position, **fields)] == [code]


def test_a_paused_execution_is_said_besides_what_else_holds_a_node_up() -> None:
    found = reasons(at("waiting"), state=ExecutionState.PAUSED, settled=frozenset())
    assert [why.code for why in found] == ["paused", "waiting_for_parents"]


def test_the_parents_it_waits_for_are_all_listed_and_five_are_shown() -> None:
    (why,) = reasons(at("waiting"), settled=frozenset({"p0"}))
    assert why.nodes == ("p1", "p2", "p3", "p4", "p5", "p6")
    assert why.message == "waits for p1, p2, p3, p4, p5 and 1 more"


def test_the_reasons_with_a_time_say_until_when() -> None:
    (timer,) = reasons(at("timer", due_at=77))
    (throttled,) = reasons(at("throttled", due_at=88))
    assert (timer.until, throttled.until) == (77, 88)
    assert "'api'" in throttled.message


def test_a_queue_without_a_worker_is_named_with_its_handler() -> None:
    (why,) = reasons(at("queued"), served=False)
    assert why.message == "no living worker serves the queue 'q' with handler 'echo'"


def delayed(seconds: float, *, code: str = "handler_error", asked: float | None = None) -> History:
    details = {} if asked is None else {"retry_after_seconds": asked}
    error = {"code": code, "message": "no", "retryable": True, "details": details}
    return History(
        seq=7,
        at=1_000_000,
        type="node.retrying",
        execution="e",
        generation=1,
        error=error,
        due_at=1_000_000 + round(seconds * 1_000_000),
    )


@pytest.mark.parametrize(
    ("retrying", "source"),
    [
        (delayed(30, code="http_status", asked=30), "the service asked for 30 s (Retry-After)"),
        (
            delayed(3600, code="http_status", asked=604_800),
            "the service asked for 604800 s (Retry-After), cut to 3600 s (WEFT_MAX_RETRY_AFTER)",
        ),
        (delayed(1.5, code="http_status", asked=1), "the node's backoff is 1.5 s (its `retry`)"),
        (delayed(1.5, code="http_status"), "the node's backoff is 1.5 s (its `retry`)"),
        (delayed(7200, asked=7200), "the function asked for 7200 s (weft.RetryAfter)"),
        (delayed(7200), "the function asked for 7200 s (weft.RetryAfter)"),
        (delayed(1), "the node's backoff is 1 s (its `retry`)"),
    ],
)
def test_a_delay_says_who_asked_for_it(retrying: History, source: str) -> None:
    (why,) = reasons(at("timer"), retrying=RetryDelay(retrying))
    assert why.message == f"attempt 2 follows after a failure; {source}"


@pytest.mark.parametrize(
    ("setting", "limit"), [(299.0, "the node's `max_delay_seconds`"), (300.0, "WEFT_MAX_RETRY_AFTER")]
)
def test_a_delay_that_was_cut_says_by_which_limit(setting: float, limit: str) -> None:
    """The node has the default, 300 s; the larger of the two counts."""
    delay = RetryDelay(delayed(300, code="http_status", asked=7200), max_retry_after_seconds=setting)
    (why,) = reasons(at("timer"), retrying=delay)
    assert why.message.endswith(f"the service asked for 7200 s (Retry-After), cut to 300 s ({limit})")
