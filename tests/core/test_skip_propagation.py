"""What one failed or skipped parent is enough for, found in one walk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.core.event import Skip
from weft.core.readiness import SKIPPED_BY_FAILURE
from weft.core.skip_propagation import skips_behind_failure, skips_behind_skip
from weft.definition.model import TriggerRule
from weft.definition.plan import compile_plan
from weft.testing.walk import node, workflow

if TYPE_CHECKING:
    from weft.definition.plan import Plan


def ids(skips: tuple[Skip, ...]) -> list[str]:
    return sorted(skip.node_id for skip in skips)


def chain(*rules: TriggerRule) -> Plan:
    names = [f"n{index}" for index in range(len(rules) + 1)]
    nodes = [node(name, names[index], rule=rules[index]) for index, name in enumerate(names[1:])]
    return compile_plan(workflow("n0", *nodes))


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_failure_skips_exactly_the_rules_that_one_failure_breaks(rule: TriggerRule) -> None:
    skips = skips_behind_failure(chain(rule), "n0", cause="n0")
    broken = (Skip("n1", "upstream_failed", "n0"),)
    assert skips == (broken if rule in SKIPPED_BY_FAILURE else ())


@pytest.mark.parametrize("rule", TriggerRule)
def test_a_skip_skips_only_all_success(rule: TriggerRule) -> None:
    skips = skips_behind_skip(chain(rule), "n0", cause="n0")
    assert skips == ((Skip("n1", "upstream_skipped", "n0"),) if rule is TriggerRule.ALL_SUCCESS else ())


def test_the_walk_goes_on_to_the_end_with_one_cause() -> None:
    default = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    skips = skips_behind_failure(chain(default, TriggerRule.NONE_FAILED, default), "n0", cause="root")
    assert ids(skips) == ["n1", "n2", "n3"]
    assert {skip.cause for skip in skips} == {"root"}


def test_the_walk_ends_where_a_rule_asks_about_all_parents() -> None:
    default = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    plan = chain(default, TriggerRule.ALL_DONE, default)
    assert ids(skips_behind_failure(plan, "n0", cause="n0")) == ["n1"]


def test_the_walk_ends_at_what_is_settled() -> None:
    default = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    plan = chain(default, default, default)
    assert ids(skips_behind_failure(plan, "n0", cause="n0", settled={"n2"})) == ["n1"]
    assert ids(skips_behind_failure(plan, "n0", cause="n0", among={"n1", "n3"})) == ["n1"]


def test_a_node_that_is_reached_twice_is_listed_once() -> None:
    plan = compile_plan(workflow("a", node("b", "a"), node("c", "a"), node("d", "b", "c")))
    assert ids(skips_behind_failure(plan, "a", cause="a")) == ["b", "c", "d"]


def test_fifty_thousand_nodes_in_a_row_need_no_stack() -> None:
    plan = chain(*[TriggerRule.NONE_FAILED] * 50_000)
    assert len(skips_behind_failure(plan, "n0", cause="n0")) == 50_000
