"""Migrations: which are pending, and that what an older weft has written is still there, and right."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from weft.clock import VirtualClock
from weft.core.state import ExecutionState
from weft.errors import DataFolderError
from weft.journal.contract import ExecutionQuery, LetterQuery
from weft.journal.sqlite.journal import SqliteJournal
from weft.journal.sqlite.rows import event_values
from weft.journal.sqlite.schema import APPLICATION_ID, migrations, pending, unfinished
from weft.testing.recording import ERROR, Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from weft.core.rows import History

# Every table of the first schema, with the columns it had.
FIRST_SCHEMA = {
    "definitions": "*",
    "executions": "number, id, namespace, workflow, version, digest, input, labels, priority, batch,"
    " partition, created_at",
    "progress": "execution, state, generation, epoch, unsettled, failed, seq, output, error, started_at,"
    " finished_at, deadline_at, updated_at",
    "nodes": "execution, node_id, attempt, ended, answered, state, generation, output, blob, output_bytes,"
    " worker, queued_at, started_at, finished_at, seq, reason, cause, error, failures, losses,"
    " retry_at, issued, cached",
    "events": "*",
    "dead_letters": "id, execution, namespace, workflow, node_id, generation, attempt, handler, queue, error,"
    " state, created_at",
    "cache": "*",
    "blobs": "*",
}


def make(folder: Path) -> SqliteJournal:
    numbers = count(1)
    return SqliteJournal(folder, now=VirtualClock().now, new_id=lambda: f"id-{next(numbers):08d}")


async def tell_stories(journal: SqliteJournal) -> dict[str, Recording]:
    """Leave executions behind in many states."""
    runs = {"new": await Recording.submit(journal, node("a"), node("b", "a"), execution_id="new")}
    nodes = [node("a"), node("b"), node("c", "a"), node("d", "b", condition="1 == 2"), node("e", "c")]

    async def start(name: str, **fields: object) -> Recording:
        runs[name] = run = await Recording.start(journal, *nodes, execution_id=name, **fields)
        return run

    running = await start("running", labels={"team": "blue", "env": "test"}, workflow="w", version=2)
    await running.completed("b")
    await running.skipped("d")
    await running.failed_once("a")
    failed = await start("failed", failure_policy="continue")
    await failed.failed("a", skips=["c", "e"], error={**ERROR, "code": "timeout"})
    await failed.completed("b")
    await failed.skipped("d")
    stopped = await start("stopped")
    await stopped.failed("a", skips=["c", "e"])
    again = await start("again")
    await again.completed("b")
    await again.cancel()
    await again.retry()
    done = await start("done", namespace="other")
    for name in "abce":
        await done.completed(name)
    await done.skipped("d")
    return runs


def write_back(new: Path, old: Path, histories: Mapping[str, Sequence[History]]) -> None:
    """Write the journal of ``new`` to ``old`` as the first release would have written it.

    In that release every event had a row of its own.
    """
    old.mkdir()
    with closing(sqlite3.connect(old / "weft.db", isolation_level=None)) as connection:
        connection.executescript(next(iter(migrations().values())))
        connection.execute("ATTACH ? AS new", (str(new / "weft.db"),))
        for table, columns in FIRST_SCHEMA.items():
            connection.execute(f"INSERT INTO main.{table} SELECT {columns} FROM new.{table}")
        numbers = dict(connection.execute("SELECT id, number FROM main.executions").fetchall())
        events = [event_values(numbers[name], event) for name, told in histories.items() for event in told]
        connection.executemany("INSERT OR IGNORE INTO main.events VALUES (?, ?, ?, ?, ?)", events)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")


async def test_a_folder_of_the_first_release_is_brought_up_to_date(tmp_path: Path) -> None:
    journal = make(tmp_path / "new")
    await journal.open()
    runs = await tell_stories(journal)
    rows = {name: await run.row() for name, run in runs.items()}
    nodes = {name: await journal.nodes(name) for name in runs}
    events = {name: await journal.events(name) for name in runs}
    letters = await journal.dead_letters()
    await journal.close()
    assert {(row.skipped, row.cancelled) for row in rows.values()} == {(0, 0), (1, 0), (3, 0), (2, 2)}

    write_back(tmp_path / "new", tmp_path / "old", events)
    named = [("new", None, "PENDING"), ("running", "w", "RUNNING"), ("again", None, "RUNNING")]
    assert unfinished(tmp_path / "old" / "weft.db", limit=5) == (3, named)
    assert unfinished(tmp_path / "new" / "weft.db", limit=2) == (3, named[:2])
    journal = make(tmp_path / "old")
    await journal.open()
    for name, run in runs.items():
        assert await journal.execution(name) == rows[name]
        # With its event in a row of its own, no row of a node stands for one.
        assert await journal.nodes(name) == {
            node_id: replace(row, recorded_at=None) for node_id, row in nodes[name].items()
        }
        assert await journal.events(name) == events[name]
        await assert_consistent(journal, name)
        run.journal = journal
    assert await journal.dead_letters() == letters
    assert len(await journal.dead_letters(LetterQuery(code="timeout"))) == 1
    for query, ids in (
        (ExecutionQuery(error="timeout"), ["failed"]),
        (ExecutionQuery(error="node_failed"), ["stopped", "failed"]),
        (ExecutionQuery(node="a"), ["stopped", "failed"]),
        (ExecutionQuery(worker="worker-1"), ["stopped", "failed"]),
    ):
        assert [row.id for row in (await journal.search(query)).rows] == ids
    labelled = await journal.executions(ExecutionQuery(labels=(("env", "test"), ("team", "blue"))))
    assert [row.id for row in labelled] == ["running"]
    of_states = await journal.executions(ExecutionQuery(states=(ExecutionState.FAILED,)))
    assert {row.id for row in of_states} == {"failed", "stopped"}

    # They go on, and new ones come, as if nothing had been.
    await runs["running"].completed("a", attempt=2)
    await runs["running"].completed("c")
    await runs["running"].completed("e")
    assert (await runs["running"].row()).state is ExecutionState.COMPLETED
    await runs["stopped"].retry()
    await journal.submit([submission("later")])
    for name in (*runs, "later"):
        await assert_consistent(journal, name)
    await journal.close()
    with closing(sqlite3.connect(tmp_path / "old" / "weft.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_every_migration_is_pending_where_there_is_no_file(tmp_path: Path) -> None:
    assert pending(tmp_path / "weft.db") == list(migrations())
    assert list(tmp_path.iterdir()) == []


async def test_pending_names_what_a_file_has_not_had_and_changes_nothing(tmp_path: Path) -> None:
    journal = make(tmp_path / "new")
    await journal.open()
    file = tmp_path / "new" / "weft.db"
    assert pending(file) == [], "also beside the process that has it open"
    await journal.close()
    assert pending(file) == []
    write_back(tmp_path / "new", tmp_path / "old", {})
    file = tmp_path / "old" / "weft.db"
    before = file.read_bytes()
    assert pending(file) == list(migrations())[1:]
    assert unfinished(file, limit=5) == (0, [])
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["weft.db"]


def test_pending_refuses_what_is_not_a_journal_that_it_knows(tmp_path: Path) -> None:
    file = tmp_path / "weft.db"
    file.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(DataFolderError, match="cannot be read: file is not a database"):
        pending(file)
    file.unlink()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE diary (entry)")
    with pytest.raises(DataFolderError, match="is not a journal of weft"):
        pending(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1000")
    with pytest.raises(DataFolderError, match="newer weft"):
        pending(file)
