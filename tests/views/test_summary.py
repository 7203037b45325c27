"""What is shown of an execution without its nodes: counts that add up, whatever was read when."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from weft.core.rows import ExecutionRow
from weft.core.state import ExecutionState, NodeState
from weft.views.summary import counts_of, summary


def a_row(*, state: ExecutionState = ExecutionState.RUNNING, **counts: Any) -> ExecutionRow:
    return ExecutionRow(
        id="x1",
        namespace="default",
        workflow=None,
        version=None,
        digest="d",
        state=state,
        generation=1,
        epoch=1,
        seq=1,
        input=b'{"n":1}',
        created_at=0,
        **counts,
    )


numbers = st.integers(0, 50)


@given(numbers, numbers, numbers, numbers, numbers, numbers, numbers)
def test_counts_add_up_to_the_nodes_also_where_the_store_was_read_at_another_moment(
    completed: int, unsettled: int, failed: int, skipped: int, cancelled: int, queued: int, running: int
) -> None:
    total = completed + unsettled + failed + skipped + cancelled
    row = a_row(total=total, unsettled=unsettled, failed=failed, skipped=skipped, cancelled=cancelled)
    counts = counts_of(row, (queued, running))
    assert list(counts) == list(NodeState)
    assert sum(counts.values()) == total
    assert min(counts.values()) >= 0
    assert (counts[NodeState.COMPLETED], counts[NodeState.FAILED]) == (completed, failed)
    if queued + running <= unsettled:
        assert (counts[NodeState.QUEUED], counts[NodeState.RUNNING]) == (queued, running)


def test_what_the_store_does_not_have_is_not_live_unless_it_is_over() -> None:
    assert summary(a_row(total=1, unsettled=1), None, trace_id=None, show=None)["live"] is False
    assert summary(a_row(total=1, unsettled=1), (0, 0), trace_id=None, show=None)["live"] is True
    over = a_row(total=1, unsettled=0, state=ExecutionState.COMPLETED)
    assert summary(over, None, trace_id=None, show=None)["live"] is True


def test_payloads_are_shown_as_they_are_asked_for_or_not_at_all() -> None:
    row = a_row(total=1, unsettled=1)
    assert summary(row, None, trace_id=None, show=bytes.decode)["input"] == '{"n":1}'
    assert not {"input", "output"} & summary(row, None, trace_id=None, show=None).keys()
