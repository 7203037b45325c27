"""Events on their way into PostgreSQL and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.core.rows import History
from weft.journal.postgres.rows import event_values, read_event

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
TIME = st.integers(0, 2**62)
# As a service may send it: with whole numbers that no column takes.
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(
    st.builds(
        History,
        seq=st.integers(1, 2**31 - 1),
        at=TIME,
        type=TEXT,
        execution=TEXT,
        generation=st.integers(1, 2**31 - 1),
        node=st.none() | TEXT,
        attempt=st.none() | st.integers(0, 2**31 - 1),
        state=st.none() | TEXT,
        reason=st.none() | TEXT,
        cause=st.none() | TEXT,
        error=st.none() | st.dictionaries(TEXT, JSON, max_size=3),
        worker=st.none() | TEXT,
        queued_at=st.none() | TIME,
        started_at=st.none() | TIME,
        finished_at=st.none() | TIME,
        due_at=st.none() | TIME,
        output_digest=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
        actor=st.none() | TEXT,
    )
)
def test_an_event_comes_back_as_it_was(event: History) -> None:
    number, seq, node, body = event_values(7, event)
    assert number == 7
    assert read_event(event.execution, (seq, node, body)) == event


def test_what_has_a_column_is_not_written_twice() -> None:
    at = 1_794_801_841_544_000
    event = History(
        seq=4,
        at=at,
        type="node.completed",
        execution="01a1e286-b5a9-7070-9aab-7da605710001",
        generation=1,
        node="a-node-with-a-name",
        attempt=1,
        state="COMPLETED",
        worker="host-1234-abcdef",
        queued_at=at,
        started_at=at,
        finished_at=at,
        output_digest="0f" * 32,
    )
    assert len(event_values(7, event)[-1]) < 140
