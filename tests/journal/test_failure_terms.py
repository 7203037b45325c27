"""Only failures write what a search finds them by: a completion pays for no search."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from weft.clock import VirtualClock
from weft.journal.memory import MemoryJournal
from weft.journal.postgres.changes import _ADD_FAILURES, _pieces
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from weft.core.ledger.changes import Changes


async def _complete_then_fail(journal: Any) -> tuple[Recording, Recording]:
    """Complete an execution of two nodes, and start another one, which is about to fail."""
    run = await Recording.start(journal, node("a"), node("b"), workflow="w", version=1)
    await run.completed("a")
    await run.completed("b")
    return run, await Recording.start(journal, node("a"), execution_id="failing")


async def test_sqlite_writes_to_failures_for_a_failure_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection = sqlite3.Connection(*args, **kwargs)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr("weft.journal.sqlite.schema.sqlite3.connect", traced)
    journal = SqliteJournal(tmp_path, now=VirtualClock().now, new_id=lambda: "id")
    await journal.open()
    statements.clear()
    _, failing = await _complete_then_fail(journal)
    assert [text for text in statements if text.startswith("INSERT OR FAIL INTO nodes")]
    assert not [text for text in statements if "INTO failures" in text]
    await failing.failed("a")
    assert len([text for text in statements if "INTO failures" in text]) == 1
    await journal.close()


async def test_a_statement_of_postgres_has_failures_in_it_for_a_failure_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = MemoryJournal(now=VirtualClock().now, new_id=lambda: "id")
    commit, written = journal._commit, []

    def watched(changes: Changes, *args: Any) -> None:
        written.append(_pieces(changes).get(_ADD_FAILURES))
        commit(changes, *args)

    monkeypatch.setattr(journal, "_commit", watched)
    _, failing = await _complete_then_fail(journal)
    assert not any(written)
    await failing.failed("a")
    assert [(field, value) for _, _, field, value, *_ in written[-1] or ()] == [
        ("error", "handler_error"),
        ("node", "a"),
        ("worker", "worker-1"),
        ("error", "node_failed"),
    ]
