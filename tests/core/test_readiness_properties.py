"""What holds of the trigger rules whatever the parents did, and in whatever order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.outcomes import (
    completed,
    failed,
    not_triggered,
    skipped_by_condition,
    skipped_by_failure,
    skipped_by_skip,
)

from weft.core.event import Skip
from weft.core.readiness import EARLY_RULES, READY, WAIT, Readiness, has_failed, readiness
from weft.core.state import NodeState, Reason
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from random import Random

    from weft.core.rows import NodeRow

OUTCOMES = [
    completed,
    failed,
    skipped_by_condition,
    not_triggered,
    lambda node_id: skipped_by_failure(node_id, f"before_{node_id}"),
    lambda node_id: skipped_by_skip(node_id, f"before_{node_id}"),
]
PARENTS = st.lists(st.sampled_from(OUTCOMES), max_size=8).map(
    lambda made: [make(f"p{index}") for index, make in enumerate(made)]
)
RULES = st.sampled_from(TriggerRule)


def without_cause(answer: Readiness) -> object:
    return (answer.node_id, answer.reason) if isinstance(answer, Skip) else answer


@given(RULES, PARENTS, st.integers(0, 3), st.randoms())
def test_the_order_of_parents_decides_at_most_which_cause_is_named(
    rule: TriggerRule, parents: list[NodeRow], waiting: int, random: Random
) -> None:
    shuffled = list(parents)
    random.shuffle(shuffled)
    one = readiness("n", rule, parents, waiting=waiting)
    other = readiness("n", rule, shuffled, waiting=waiting)
    assert without_cause(one) == without_cause(other)


@given(RULES, PARENTS)
def test_once_decided_whether_to_run_it_is_decided_for_good(
    rule: TriggerRule, parents: list[NodeRow]
) -> None:
    decided: Readiness | None = None
    for settled in range(len(parents) + 1):
        answer = readiness("n", rule, parents[:settled], waiting=len(parents) - settled)
        if decided is None:
            decided = None if answer == WAIT else answer
        else:
            # A skip stays a skip; a later failure may only become the better reason for it.
            assert (answer == READY) is (decided == READY)
            assert answer != WAIT


@given(st.sampled_from(sorted(EARLY_RULES)), PARENTS)
def test_an_early_rule_that_is_ready_stays_ready(rule: TriggerRule, parents: list[NodeRow]) -> None:
    answers = [
        readiness("n", rule, parents[:settled], waiting=len(parents) - settled)
        for settled in range(len(parents) + 1)
    ]
    if READY in answers:
        assert set(map(str, answers[answers.index(READY) :])) == {READY}


@given(RULES, PARENTS)
def test_nobody_waits_when_all_parents_are_settled(rule: TriggerRule, parents: list[NodeRow]) -> None:
    assert readiness("n", rule, parents) != WAIT


@given(RULES, PARENTS, st.integers(0, 3))
def test_a_skip_says_why_and_names_a_parent_or_what_stopped_it(
    rule: TriggerRule, parents: list[NodeRow], waiting: int
) -> None:
    answer = readiness("n", rule, parents, waiting=waiting)
    if not isinstance(answer, Skip):
        return
    match answer.reason:
        case Reason.UPSTREAM_FAILED:
            causes = {p.node_id if p.state is NodeState.FAILED else p.cause for p in parents if has_failed(p)}
            assert answer.cause in causes
        case Reason.UPSTREAM_SKIPPED:
            assert answer.cause in {parent.cause or parent.node_id for parent in parents}
        case _:
            assert answer == Skip("n", Reason.NOT_TRIGGERED, None)


@given(PARENTS)
def test_all_done_never_skips(parents: list[NodeRow]) -> None:
    assert readiness("n", TriggerRule.ALL_DONE, parents) == READY


@pytest.mark.parametrize("rule", TriggerRule)
@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=200))
def test_a_wide_join_reads_all_its_parents(rule: TriggerRule, outcomes: list[bool]) -> None:
    parents = [(completed if good else failed)(f"p{index}") for index, good in enumerate(outcomes)]
    expected = {
        TriggerRule.ALL_DONE: True,
        TriggerRule.ONE_SUCCESS: any(outcomes),
        TriggerRule.ONE_FAILED: not all(outcomes),
    }.get(rule, all(outcomes))
    assert (readiness("n", rule, parents) == READY) is expected
