"""Migrations: who makes them, who waits for them, and who goes without."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import asyncpg
import pytest

from weft.errors import JournalError, SchemaError
from weft.journal.postgres import PostgresJournal
from weft.journal.postgres_schema import migrate, migrations, pending

if TYPE_CHECKING:
    from weft.testing.postgres_server import PostgresServer


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
        "INSERT INTO weft.schema_migrations (name) VALUES ('9999_of_the_future')", url=journal_url
    )
    journal = journal_at(journal_url)
    await journal.open()
    await journal.check()
    await journal.close()
    assert await pending(journal_url) == []


async def test_of_processes_that_migrate_at_once_one_does(postgres_url: str) -> None:
    program = (
        "import asyncio, sys\n"
        "from weft.journal.postgres_schema import migrate\n"
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
    monkeypatch.setattr("weft.journal.postgres_schema.migrations", lambda: broken)
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
