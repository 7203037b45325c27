"""What a purge leaves in the tables, also when it is cut short, and what it does to those who write."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

import pytest

from weft.clock import VirtualClock
from weft.core.ledger.changes import Verdict
from weft.journal import purge
from weft.journal.contract import Claim, NewBatch
from weft.journal.sqlite.journal import SqliteJournal
from weft.journal.sqlite.queries import run_query
from weft.journal.sqlite.schema import open_for_writing
from weft.testing.recording import Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def journal(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteJournal]:
    numbers = count(1)
    journal = SqliteJournal(tmp_path, now=clock.now, new_id=lambda: f"id-{next(numbers):08d}")
    await journal.open()
    yield journal
    await journal.close()


def rows_left(folder: Path) -> dict[str, int]:
    """Count the rows of every table that has one."""
    with closing(sqlite3.connect(folder / "weft.db")) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        counts = {
            name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for (name,) in tables
        }
    # The locks of lanes are there from the start.
    return {name: number for name, number in counts.items() if number and name != "lane_locks"}


async def make_history(journal: SqliteJournal) -> None:
    """Leave rows behind in every table that executions have a part in."""
    new = [
        submission(f"e{number}", node("a", cache={"ttl_seconds": 60}), node("b"), labels={"n": str(number)})
        for number in range(3)
    ]
    claim = Claim(key="key", request_digest="digest", resource="batch/batch")
    await journal.submit(new, claim=claim, batch=NewBatch(id="batch", workflow="w", version=1))
    for number in range(3):
        run = Recording(journal, f"e{number}", new[0].plan)
        blob = await journal.put_blob(b'"large"')
        await run.started()
        await run.completed("a", output=None, blob=blob, output_bytes=7, cache_key=f"key-{number}")
        await run.failed("b")


async def test_a_purge_leaves_no_row_behind(
    journal: SqliteJournal, clock: VirtualClock, tmp_path: Path
) -> None:
    await make_history(journal)
    filled = set(rows_left(tmp_path))
    assert filled == {
        *("executions", "progress", "labels", "nodes", "events", "dead_letters", "definitions", "batches"),
        *("idempotency_keys", "cache", "blobs", "failures"),
    }
    clock.advance(1)
    assert await journal.purge(finished_before=clock.now(), limit=100) == 3
    assert rows_left(tmp_path) == {"cache": 3, "blobs": 3}, "the cache gives its outputs for a minute"
    clock.advance(60)
    assert await journal.sweep_blobs(older_than=clock.now()) == 3
    assert rows_left(tmp_path) == {}


async def test_a_purge_that_was_cut_short_is_finished_by_the_next(
    journal: SqliteJournal, clock: VirtualClock, tmp_path: Path
) -> None:
    await make_history(journal)
    clock.advance(60)
    await journal.close()
    with closing(open_for_writing(tmp_path / "weft.db")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        assert run_query(connection, purge.hide_some(clock.now(), 100))[0] == 3
        connection.execute("COMMIT")
    await journal.open()
    assert await journal.executions() == []
    assert await journal.dead_letters() == []
    assert (await journal.stats()).open_letters == 0
    assert {"purging", "nodes", "events", "dead_letters", "failures"} <= set(rows_left(tmp_path))

    # A new execution gets none of the numbers that rows are still known by.
    run = await Recording.start(journal, node("a"), node("b"), execution_id="new")
    await run.completed("a")
    assert len(await journal.nodes("new")) == 1
    assert await journal.purge(finished_before=clock.now(), limit=100) == 0
    await journal.sweep_blobs(older_than=clock.now())
    await assert_consistent(journal, "new")
    assert set(rows_left(tmp_path)) == {"definitions", "executions", "progress", "nodes", "events"}


async def test_results_are_recorded_while_a_purge_is_under_way(
    journal: SqliteJournal, clock: VirtualClock
) -> None:
    names = [f"n{number}" for number in range(3_000)]
    old = await Recording.start(journal, *(node(name) for name in names), execution_id="old")
    await journal.record([old.completion(name) for name in names])
    clock.advance(1)
    run = await Recording.start(journal, *(node(name) for name in names[:100]), execution_id="new")
    purge = asyncio.create_task(journal.purge(finished_before=clock.now(), limit=10))
    recorded = 0
    while not purge.done() and recorded < 100:
        assert (await run.completed(names[recorded])).verdict is Verdict.ACCEPTED
        recorded += 1
    assert await purge == 1
    # The rows of the old one alone are more than five steps; between two of them there is room for a result.
    assert recorded >= 5
    await assert_consistent(journal, "new")
