"""Migrations: who makes them, who waits for them, and who goes without."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec
import pytest

from weft.clock import VirtualClock
from weft.core.state import ExecutionState
from weft.errors import JournalError, SchemaError
from weft.journal.contract import ExecutionQuery
from weft.journal.postgres.connection import connected
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.postgres.schema import migrate, migrations, pending, unfinished
from weft.testing.recording import Recording, assert_consistent, node

if TYPE_CHECKING:
    from tests.support.servers.postgres import PostgresServer

    from weft.core.rows import History


def journal_at(url: str) -> PostgresJournal:
    return PostgresJournal(url, new_id=lambda: "id")


async def test_a_new_database_is_brought_up_to_date_once(postgres_url: str) -> None:
    everything = list(migrations())
    assert await pending(postgres_url) == everything
    assert await migrate(postgres_url) == everything
    assert await pending(postgres_url) == []
    assert await migrate(postgres_url) == []


async def test_a_schema_that_is_behind_is_refused_by_name_of_the_remedy(postgres_url: str) -> None:
    journal = journal_at(postgres_url)
    with pytest.raises(SchemaError, match="weft migrate"):
        await journal.open()
    await migrate(postgres_url)
    await journal.open()
    await journal.check()
    await journal.close()


async def test_a_schema_that_is_newer_is_used(journal_url: str, postgres_server: PostgresServer) -> None:
    postgres_server.execute(
        "INSERT INTO weft.migrations (name) VALUES ('9999_of_the_future')", url=journal_url
    )
    journal = journal_at(journal_url)
    await journal.open()
    await journal.check()
    await journal.close()
    assert await pending(journal_url) == []


async def test_of_processes_that_migrate_at_once_one_does(postgres_url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from weft.journal.postgres.schema import migrate\n"
        "print(len(asyncio.run(migrate(sys.argv[1]))))"
    )
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, postgres_url, stdout=asyncio.subprocess.PIPE
        )
        for _ in range(3)
    ]
    said = [await process.communicate() for process in processes]
    assert sorted(int(out) for out, _ in said) == [0, 0, len(migrations())]
    assert {process.returncode for process in processes} == {0}


async def test_the_journal_shares_a_database_with_others(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "CREATE TABLE executions (theirs text); CREATE TABLE schema_migrations (version text)"
    )
    await migrate(postgres_url)
    journal = journal_at(postgres_url)
    await journal.open()
    assert await journal.executions() == []
    await journal.close()
    assert await connection.fetch("SELECT * FROM executions") == []
    await connection.close()


async def test_a_migration_that_fails_leaves_nothing(
    postgres_url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"0001_initial": "CREATE TABLE a (b text); SELECT 1 / 0"}
    monkeypatch.setattr("weft.journal.postgres.schema.migrations", lambda: broken)
    with pytest.raises(JournalError, match="division by zero"):
        await migrate(postgres_url)
    assert postgres_server.execute("SELECT to_regclass('weft.a')", url=postgres_url) is None
    monkeypatch.undo()
    assert await migrate(postgres_url) == list(migrations())


async def test_a_server_that_is_not_there_is_named_and_no_password(postgres_url: str) -> None:
    nowhere = "postgresql://weft:hunter2@127.0.0.1:1/nothing"
    for work in (pending(nowhere), migrate(nowhere), journal_at(nowhere).open()):
        with pytest.raises(JournalError, match="cannot be reached") as raised:
            await work
        assert "hunter2" not in str(raised.value)


# -- a newer schema --------------------------------------------------------------------------------------


async def test_a_newer_schema_that_is_marked_as_incompatible_is_refused(
    journal_url: str, postgres_server: PostgresServer
) -> None:
    postgres_server.execute(
        "INSERT INTO weft.migrations (name, incompatible) VALUES ('9999_of_the_future', true)",
        url=journal_url,
    )
    for work in (pending(journal_url), migrate(journal_url), journal_at(journal_url).open()):
        with pytest.raises(SchemaError, match=r"newer release of weft \(9999_of_the_future\).* stop it"):
            await work


# What a release from before the mark says when it starts, and with the events of every commit.
OLD_STATEMENTS = (
    "SELECT name FROM weft.schema_migrations",
    "SELECT seq, node_id, body FROM events WHERE execution = 1 AND seq > 0 ORDER BY seq LIMIT 10",
    "INSERT INTO events (execution, seq, node_id, body)"
    " SELECT execution, seq, node_id, body FROM (VALUES (1, 3, 'a', ''::bytea))"
    " AS new (execution, seq, node_id, body)",
    "WITH counted AS (UPDATE progress SET seq = seq + 1 FROM (VALUES (1)) AS new (execution)"
    " WHERE progress.execution = new.execution), told AS (INSERT INTO events (execution, seq, body)"
    " SELECT 1, 9, ''::bytea) SELECT",
    "DELETE FROM events WHERE execution = 1",
)


@pytest.mark.parametrize("statement", OLD_STATEMENTS)
async def test_a_release_that_knows_no_mark_is_told_to_stop(journal_url: str, statement: str) -> None:
    journal = journal_at(journal_url)
    await journal.open()
    run = await Recording.start(journal, node("a"), node("b"))
    await run.completed("a")
    before = await run.events()
    with pytest.raises(JournalError, match="newer release of weft, which this process is too old for"):
        async with connected(journal_url) as connection:
            await connection.execute(statement)
    assert await run.events() == before
    await journal.close()


# -- what the release before has left --------------------------------------------------------------------

KEPT = Path(__file__).parent.parent.parent / "history" / "0.1"


@pytest.fixture
async def left_behind(postgres_url: str) -> dict[str, Any]:
    """The database as release 0.1 left it; returns the history of each execution, as it was shown."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(gzip.decompress((KEPT / "postgres.sql.gz").read_bytes()).decode())
    await connection.close()
    shown: dict[str, Any] = json.loads(gzip.decompress((KEPT / "postgres.json.gz").read_bytes()))
    return shown


async def test_executions_that_are_not_terminal_are_named_before_the_migration(
    postgres_url: str, left_behind: dict[str, Any]
) -> None:
    total, named = await unfinished(postgres_url, limit=3)
    assert (total, len(named)) == (5, 3)
    assert named[:2] == [("running", "report", "RUNNING"), ("again", None, "RUNNING")]
    assert await pending(postgres_url) == list(migrations())[2:]
    await migrate(postgres_url)
    assert await unfinished(postgres_url, limit=3) == (total, named)


async def test_where_there_is_no_schema_nothing_is_unfinished(postgres_url: str) -> None:
    assert await unfinished(postgres_url, limit=3) == (0, [])


async def test_what_the_release_before_has_written_is_shown_as_it_was_and_goes_on(
    postgres_url: str, left_behind: dict[str, Any]
) -> None:
    await migrate(postgres_url)
    clock = VirtualClock()
    clock.advance(1_000)
    numbers = count()
    journal = PostgresJournal(postgres_url, now=clock.now, new_id=lambda: f"later-{next(numbers):08d}")
    await journal.open()
    histories = {}
    for name, was in left_behind.items():
        histories[name] = events = await journal.events(name, limit=1_000)
        assert [msgspec.to_builtins(event) for event in events] == was["events"], name
        pages: list[History] = []
        while page := await journal.events(name, after=len(pages), limit=7):
            pages += page
        assert pages == events
        await assert_consistent(journal, name)
        node_ids = [event.node for event in events if event.node is not None][:3]
        assert await journal.events(name, nodes=node_ids) == [e for e in events if e.node in node_ids]

    letters = await journal.dead_letters(limit=1_000)
    failed = [row.id for row in await journal.executions(limit=1_000) if row.error is not None]
    assert letters
    assert failed
    for letter in letters:
        for query in (ExecutionQuery(node=letter.node_id), ExecutionQuery(error=letter.error["code"])):
            assert letter.execution_id in [row.id for row in (await journal.search(query)).rows]
    found = (await journal.search(ExecutionQuery(error="node_failed"), limit=1_000)).rows
    assert {row.id for row in found} >= set(failed)

    async def goes_on(name: str) -> Recording:
        row = await journal.execution(name)
        assert row is not None
        plan = await journal.plan(row.digest)
        assert plan is not None
        run = Recording(journal, name, plan)
        run.generation = row.generation
        return run

    running = await goes_on("running")
    for node_id, attempt in (("a", 2), ("c", 1), ("e", 1)):
        await running.completed(node_id, attempt=attempt)
    assert (await running.row()).state is ExecutionState.COMPLETED
    # Rows that are overwritten: of the release before, with event rows, and of this one, without.
    again = await goes_on("again")
    await again.failed("c", attempt=3)
    for attempt in (3, 4):
        await again.retry("a")
        for node_id in "ab":
            await again.completed(node_id, attempt=attempt, output=b'"%d"' % attempt)
        await again.failed("c", attempt=attempt + 1)
    wide = await goes_on("wide")
    await journal.record([wide.completion(f"n{n}") for n in range(140, 150)])
    assert (await wide.row()).state is ExecutionState.COMPLETED
    for name, before in histories.items():
        assert (await journal.events(name, limit=1_000))[: len(before)] == before
        await assert_consistent(journal, name)
    await journal.close()
