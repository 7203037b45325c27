"""The table of trigger rules, cell by cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.outcomes import (
    completed,
    failed,
    not_triggered,
    skipped_by_condition,
    skipped_by_failure,
    skipped_by_skip,
)

from weft.core.event import Skip
from weft.core.readiness import READY, WAIT, has_failed, readiness
from weft.definition.model import TriggerRule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.core.readiness import Readiness
    from weft.core.rows import NodeRow

DEFAULT = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
NONE_FAILED = TriggerRule.NONE_FAILED
ALL_SUCCESS = TriggerRule.ALL_SUCCESS
ALL_DONE = TriggerRule.ALL_DONE
ONE_SUCCESS = TriggerRule.ONE_SUCCESS
ONE_FAILED = TriggerRule.ONE_FAILED

OK, OK_TOO = completed("ok"), completed("ok_too")
BAD, BAD_TOO = failed("bad"), failed("bad_too")
AFTER_BAD = skipped_by_failure("after_bad", "bad")
OFF = skipped_by_condition("off")
AFTER_OFF = skipped_by_skip("after_off", "off")
IDLE = not_triggered("idle")

BY_BAD = Skip("n", "upstream_failed", "bad")
BY_OFF = Skip("n", "upstream_skipped", "off")
BY_IDLE = Skip("n", "upstream_skipped", "idle")
NOT_TRIGGERED = Skip("n", "not_triggered", None)

# A row for each set of settled parents and number of unsettled ones, a column for each rule.
COLUMNS = (DEFAULT, NONE_FAILED, ALL_SUCCESS, ALL_DONE, ONE_SUCCESS, ONE_FAILED)
TABLE: list[tuple[str, list[NodeRow], int, tuple[Readiness, ...]]] = [
    # all settled
    ("all completed", [OK, OK_TOO], 0, (READY, READY, READY, READY, READY, NOT_TRIGGERED)),
    ("one skipped", [OK, OFF], 0, (READY, READY, BY_OFF, READY, READY, NOT_TRIGGERED)),
    ("one not triggered", [OK, IDLE], 0, (READY, READY, BY_IDLE, READY, READY, NOT_TRIGGERED)),
    ("one failed", [OK, BAD], 0, (BY_BAD, BY_BAD, BY_BAD, READY, READY, READY)),
    ("one behind a failure", [OK, AFTER_BAD], 0, (BY_BAD, BY_BAD, BY_BAD, READY, READY, NOT_TRIGGERED)),
    ("all skipped", [OFF, AFTER_OFF], 0, (BY_OFF, READY, BY_OFF, READY, BY_OFF, NOT_TRIGGERED)),
    ("all behind a skip", [AFTER_OFF], 0, (BY_OFF, READY, BY_OFF, READY, BY_OFF, NOT_TRIGGERED)),
    ("all failed", [BAD, BAD_TOO], 0, (BY_BAD, BY_BAD, BY_BAD, READY, BY_BAD, READY)),
    ("all behind a failure", [AFTER_BAD], 0, (BY_BAD, BY_BAD, BY_BAD, READY, BY_BAD, NOT_TRIGGERED)),
    ("failed and skipped", [OFF, BAD], 0, (BY_BAD, BY_BAD, BY_BAD, READY, BY_BAD, READY)),
    ("of each", [OFF, OK, BAD], 0, (BY_BAD, BY_BAD, BY_BAD, READY, READY, READY)),
    ("no parents", [], 0, (READY, READY, READY, READY, READY, NOT_TRIGGERED)),
    # some not yet settled
    ("none yet", [], 2, (WAIT, WAIT, WAIT, WAIT, WAIT, WAIT)),
    ("first completed", [OK], 1, (WAIT, WAIT, WAIT, WAIT, READY, WAIT)),
    ("first skipped", [OFF], 1, (WAIT, WAIT, BY_OFF, WAIT, WAIT, WAIT)),
    ("first failed", [BAD], 1, (BY_BAD, BY_BAD, BY_BAD, WAIT, WAIT, READY)),
    ("first behind a failure", [AFTER_BAD], 1, (BY_BAD, BY_BAD, BY_BAD, WAIT, WAIT, WAIT)),
    ("skipped, then completed", [OFF, OK], 1, (WAIT, WAIT, BY_OFF, WAIT, READY, WAIT)),
    ("completed, then failed", [OK, BAD], 1, (BY_BAD, BY_BAD, BY_BAD, WAIT, READY, READY)),
]
CELLS = [
    pytest.param(rule, parents, waiting, expected, id=f"{rule}: {title}{' of more' if waiting else ''}")
    for title, parents, waiting, row in TABLE
    for rule, expected in zip(COLUMNS, row, strict=True)
]


def test_the_table_has_a_column_for_every_rule() -> None:
    assert set(COLUMNS) == set(TriggerRule)


@pytest.mark.parametrize(("rule", "parents", "waiting", "expected"), CELLS)
def test_a_rule_answers_by_its_table(
    rule: TriggerRule, parents: list[NodeRow], waiting: int, expected: Readiness
) -> None:
    assert readiness("n", rule, parents, waiting=waiting) == expected


def test_the_cause_is_the_failed_node_itself_however_far_upstream() -> None:
    assert readiness("n", DEFAULT, [skipped_by_failure("near", "far")]) == Skip("n", "upstream_failed", "far")


def test_the_cause_of_a_skip_is_where_the_skipping_began() -> None:
    assert readiness("n", ALL_SUCCESS, [AFTER_OFF]) == Skip("n", "upstream_skipped", "off")


@pytest.mark.parametrize("row", [BAD, AFTER_BAD])
def test_failed_is_failed_or_skipped_because_of_a_failure(row: NodeRow) -> None:
    assert has_failed(row)


@pytest.mark.parametrize("row", [OK, OFF, AFTER_OFF, IDLE])
def test_another_skip_is_no_failure(row: NodeRow) -> None:
    assert not has_failed(row)


@pytest.mark.parametrize("rule", TriggerRule)
def test_ten_thousand_parents_are_one_pass(rule: TriggerRule) -> None:
    looked_at = []

    def parents() -> Iterator[NodeRow]:
        for index in range(10_000):
            looked_at.append(index)
            yield completed(f"p{index}")

    readiness("n", rule, parents())
    assert looked_at == list(range(10_000))
