"""Which completions may wait for a checkpoint, and that they come out of the store as they went in."""

from __future__ import annotations

from typing import Any

import pytest

from weft.core.event import AttemptLost, NodeCompleted
from weft.core.outcome import completion, is_plain, settled_row, taken_at
from weft.core.plan import compile_plan
from weft.testing.walk import node, workflow

PLAN = compile_plan(workflow("a", node("once", delivery="at_most_once")))


def completed(node_id: str = "a", **fields: Any) -> NodeCompleted:
    given = {
        "execution_id": "x",
        "generation": 2,
        "node_id": node_id,
        "attempt": 3,
        "output": b"1",
        "output_bytes": 1,
        "worker": "worker",
        "queued_at": 10,
        "started_at": 20,
        "finished_at": 30,
    }
    return NodeCompleted(**{**given, **fields})


def test_a_completion_that_does_nothing_else_may_wait() -> None:
    assert is_plain(completed(), PLAN)
    assert is_plain(completed(output=None, blob="blob"), PLAN)
    assert is_plain(completed(queued_at=None, worker=None), PLAN)


@pytest.mark.parametrize(
    "event",
    [
        completed(cache_key="key"),
        completed("once"),
        completed(worker="\ud800"),
        completed(finished_at=2**60),
        completed(started_at=-1),
        AttemptLost(execution_id="x", generation=2, node_id="a", attempt=3, counted=True),
    ],
)
def test_nothing_else_may(event: NodeCompleted | AttemptLost) -> None:
    assert not is_plain(event, PLAN)


def test_a_completion_comes_back_as_it_was() -> None:
    event = completed(blob="blob", output=None)
    row = settled_row(event)
    assert (row.state, row.ended, row.answered, row.seq) == ("COMPLETED", 3, 3, 0)
    assert completion("x", row, asked=7) == completed(blob="blob", output=None, asked=7)


@pytest.mark.parametrize(
    ("now", "times"), [(30, (10, 20, 30)), (25, (10, 20, 25)), (15, (10, 15, 15)), (5, (5, 5, 5))]
)
def test_no_time_is_after_the_moment_it_was_taken(now: int, times: tuple[int, int, int]) -> None:
    row = taken_at(settled_row(completed()), now)
    assert (row.queued_at, row.started_at, row.finished_at) == times
