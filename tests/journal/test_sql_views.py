"""The views ``weft_events`` and ``weft_nodes`` show what the journal's own reads show, in plain columns."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from weft.clock import VirtualClock
from weft.core.time import rfc3339
from weft.journal.postgres.connection import SCHEMA
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.rows import decode_json
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.recording import ERROR, Recording, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from weft.core.rows import History, NodeRow

    Ask = Callable[[str], Awaitable[list[dict[str, Any]]]]

PAGE = Path(__file__).parents[2] / "docs/howto/sql.md"
# What the name of a worker and a message may have, and no text column takes; and what is a byte long or four.
HOSTILE = 'half \u0000 "quoted" \U0001f984 ' + "long " * 60
MICROSECONDS_LATER = 123_457


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str | None:
    """The URL of a database in PostgreSQL; None: a file of SQLite."""
    return str(request.getfixturevalue("journal_url")) if request.param == "postgres" else None


@pytest.fixture
async def journal(
    url: str | None, tmp_path: Path
) -> AsyncIterator[tuple[PostgresJournal | SqliteJournal, Ask]]:
    """A journal, and how somebody with another tool asks its database."""
    numbers = count(1)
    made: PostgresJournal | SqliteJournal
    if url is not None:
        made = PostgresJournal(url, new_id=lambda: f"id-{next(numbers):08d}")
        outside = await asyncpg.connect(url, server_settings={"search_path": SCHEMA})

        async def ask(sql: str) -> list[dict[str, Any]]:
            return [_plain(row.items()) for row in await outside.fetch(sql)]

    else:
        clock = VirtualClock(1_794_801_841_000_000 + MICROSECONDS_LATER)
        made = SqliteJournal(tmp_path, now=clock.now, new_id=lambda: f"id-{next(numbers):08d}")

        async def ask(sql: str) -> list[dict[str, Any]]:
            with closing(sqlite3.connect(f"file:{tmp_path}/weft.db?mode=ro", uri=True)) as reader:
                asked = reader.execute(sql)
                names = [column[0] for column in asked.description]
                return [_plain(zip(names, row, strict=True)) for row in asked]

    await made.open()
    yield made, ask
    await made.close()
    if url is not None:
        await outside.close()


def _plain(row: Any) -> dict[str, Any]:
    """Return a row with times as they are shown everywhere else, and errors read."""
    shown = {}
    for name, value in row:
        if isinstance(value, datetime):
            value = rfc3339(round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000))
        shown[name] = decode_json(value) if name == "error" and value is not None else value
    return shown


async def tell(journal: PostgresJournal | SqliteJournal) -> Recording:
    """Record events of every shape: failed and lost attempts, a retry, skips, a cancel by somebody."""
    nodes = [node("a"), node("b", "a"), node("c"), node("d"), node("e")]
    run = await Recording.start(journal, *nodes, failure_policy="continue", workflow="w", version=2)
    error = {**ERROR, "code": "timeout", "message": HOSTILE, "details": {"n": 2**70, "x": 0.5}}
    await run.failed_once("a", error=error, worker=HOSTILE)
    await run.lost("a", attempt=2)
    await run.failed("a", attempt=3, error=error, skips=["b"])
    await run.completed("c")
    await run.cached("d", b'"kept"')
    await run.completed("e")
    await run.retry()
    await run.completed("a", attempt=4, output=b'"x"')
    await run.pause()
    await run.cancel()
    return run


def _shown(event: History, code: str | None) -> dict[str, Any]:
    times = ("at", "queued_at", "started_at", "finished_at", "due_at")
    plain = ("seq", "type", "generation", "node", "attempt", "state", "error", "reason", "cause", "actor")
    return {
        "namespace": "default",
        "execution": event.execution,
        "workflow": "w",
        "version": 2,
        **{name: getattr(event, name) for name in plain},
        **{name: None if (at := getattr(event, name)) is None else rfc3339(at) for name in times},
        "error_code": code,
    }


async def test_every_event_is_a_row(journal: tuple[PostgresJournal | SqliteJournal, Ask]) -> None:
    made, ask = journal
    run = await tell(made)
    rows = await ask("SELECT * FROM weft_events ORDER BY execution, seq")
    workers = [row.pop("worker") for row in rows]
    events = await run.events()
    assert rows == [_shown(event, None if event.error is None else event.error["code"]) for event in events]
    assert len({row["type"] for row in rows}) > 8
    # No text has U+0000 in PostgreSQL, which writes such a name out, and SQLite ends it there.
    assert [
        worker and worker.startswith((event.worker or "").partition("\u0000")[0])
        for worker, event in zip(workers, events, strict=True)
    ] == [event.worker and True for event in events]


def _shown_node(row: NodeRow) -> dict[str, Any]:
    times = ("queued_at", "started_at", "finished_at")
    is_timed = row.started_at is not None and row.finished_at is not None
    return {
        "namespace": "default",
        "execution": "execution-1",
        "workflow": "w",
        "version": 2,
        "node": row.node_id,
        "state": None if row.state is None else row.state.value,
        "generation": row.generation,
        "attempts": 0 if row.has_no_attempt else row.ended,
        **{name: None if (at := getattr(row, name)) is None else rfc3339(at) for name in times},
        "seconds": (row.finished_at - row.started_at) / 1e6 if is_timed else None,  # type: ignore[operator]
        "worker": row.worker,
        "error_code": None if row.error is None else row.error["code"],
        **{name: getattr(row, name) for name in ("error", "reason", "cause", "cached", "reused")},
        "output_bytes": row.output_bytes,
    }


async def test_every_node_that_was_judged_is_a_row(
    journal: tuple[PostgresJournal | SqliteJournal, Ask],
) -> None:
    made, ask = journal
    run = await tell(made)
    rows = await ask("SELECT * FROM weft_nodes ORDER BY execution, node")
    nodes: Mapping[str, NodeRow] = await made.nodes(run.id)
    assert rows == [_shown_node(nodes[name]) for name in sorted(nodes)]
    assert [row["state"] for row in rows] == ["COMPLETED", "CANCELLED", "COMPLETED", "COMPLETED", "COMPLETED"]


async def test_the_page_lists_their_columns_and_its_queries_run(
    journal: tuple[PostgresJournal | SqliteJournal, Ask],
) -> None:
    made, ask = journal
    await tell(made)
    text = PAGE.read_text(encoding="utf-8")
    for view in ("weft_nodes", "weft_events"):
        (section,) = re.findall(rf"## `{view}`\n(.*?)(?:\n## |\Z)", text, re.DOTALL)
        listed = [
            name
            for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
            for name in re.findall(r"`(\w+)`", row)
        ]
        (row, *_) = await ask(f"SELECT * FROM {view}")
        assert sorted(listed) == sorted(row)
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert queries
    for query in queries:
        assert await ask(query)
