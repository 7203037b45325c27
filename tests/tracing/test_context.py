"""W3C Trace Context, and the ids of spans."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from weft.core.rows import ExecutionRow
from weft.core.state import ExecutionState
from weft.tracing.context import (
    SpanContext,
    attempt_span_id,
    execution_span_id,
    own_trace_id,
    read_traceparent,
    trace_of,
)

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
ROW = ExecutionRow(
    id="x1",
    namespace="default",
    workflow=None,
    version=None,
    digest="d",
    state=ExecutionState.RUNNING,
    generation=1,
    epoch=1,
    total=1,
    unsettled=1,
    seq=2,
    input=b"{}",
    created_at=0,
    traceparent=TRACEPARENT,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRACEPARENT, (TRACEPARENT, True)),
        (f"00-{TRACE_ID}-{SPAN_ID}-00", (f"00-{TRACE_ID}-{SPAN_ID}-00", False)),
        # White space around a header's value is none of it.
        (f" {TRACEPARENT}\t", (TRACEPARENT, True)),
        # Of the flags, those that are defined: sampled, and that the trace id is random.
        (f"00-{TRACE_ID}-{SPAN_ID}-ff", (f"00-{TRACE_ID}-{SPAN_ID}-03", True)),
        # A later version is read as far as it is known, and sent on as the version that is.
        (f"01-{TRACE_ID}-{SPAN_ID}-01", (TRACEPARENT, True)),
        (f"cc-{TRACE_ID}-{SPAN_ID}-01-what-the-future-brings", (TRACEPARENT, True)),
    ],
)
def test_a_valid_traceparent_is_read(text: str, expected: tuple[str, bool]) -> None:
    found = read_traceparent(text)
    assert found is not None
    assert (found.traceparent, found.is_sampled) == expected
    assert (found.trace_id, found.span_id) == (TRACE_ID, SPAN_ID)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "no",
        TRACEPARENT.upper(),
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-01-more",
        f"00-{TRACE_ID}-{SPAN_ID}-1",
        f"cc-{TRACE_ID}-{SPAN_ID}-01.more",
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID[:-1]}-{SPAN_ID}-01",
        f"00-{TRACE_ID}-{SPAN_ID}-01\n",
        f"00-{'٠' * 32}-{SPAN_ID}-01",
    ],
)
def test_a_malformed_traceparent_is_none(text: str | None) -> None:
    assert read_traceparent(text) is None


def test_ids_of_spans_follow_from_names() -> None:
    ids = {
        execution_span_id("x1", 1),
        execution_span_id("x1", 2),
        execution_span_id("x2", 1),
        attempt_span_id("x1", 1, "a", 1),
        attempt_span_id("x1", 1, "a", 2),
        attempt_span_id("x1", 2, "a", 1),
        attempt_span_id("x1", 1, "b", 1),
    }
    assert len(ids) == 7
    assert {len(id_) for id_ in ids} == {16}
    # As releases write them: two processes of a fleet name the same span.
    assert execution_span_id("x1", 1) == execution_span_id("x1", 1)
    assert len(own_trace_id("x1")) == 32
    assert read_traceparent(SpanContext(own_trace_id("x1"), execution_span_id("x1", 1), 1).traceparent)


def test_an_execution_is_in_its_callers_trace() -> None:
    trace_id, caller = trace_of(ROW)
    assert (trace_id, caller) == (TRACE_ID, SpanContext(TRACE_ID, SPAN_ID, 1))
    assert trace_of(replace(ROW, traceparent=None)) == (own_trace_id("x1"), None)


def test_an_execution_of_a_batch_has_a_trace_of_its_own() -> None:
    assert trace_of(replace(ROW, batch="b1")) == (own_trace_id("x1"), SpanContext(TRACE_ID, SPAN_ID, 1))
