"""``WEFT_DURABILITY``: how long a commit waits for the disk, as the committing connections say."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.operation.serving import serving

from weft.cli.roles import open_engine
from weft.handlers.registry import Registry
from weft.journal.postgres.journal import PostgresJournal
from weft.journal.sqlite.journal import SqliteJournal
from weft.settings import Settings
from weft.testing.recording import Recording, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FULL, NORMAL = 2, 1
# What PRAGMA synchronous and SHOW synchronous_commit say.
SQLITE = [("strict", FULL), ("relaxed", NORMAL)]
POSTGRES = [("strict", "on"), ("relaxed", "off")]

# Note, within each transaction that writes rows of these tables, what its connection is set to.
WATCH = """
    CREATE TABLE public.seen (of_table text, synchronous_commit text);
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO public.seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE TRIGGER note AFTER INSERT ON weft.executions EXECUTE FUNCTION public.note();
    CREATE TRIGGER note AFTER INSERT ON weft.nodes EXECUTE FUNCTION public.note();
    CREATE TRIGGER note AFTER INSERT ON weft.blobs EXECUTE FUNCTION public.note();
"""
SEEN = "SELECT DISTINCT of_table, synchronous_commit FROM public.seen"

CHAIN: dict[str, Any] = {
    "nodes": [{"id": "a", "handler": "echo"}, {"id": "b", "handler": "echo", "dependencies": ["a"]}]
}


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[set[tuple[str, str]]]:
    """Return a set, filled at the end: the tables that were written, and what the commits waited for."""
    seen: set[tuple[str, str]] = set()
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(WATCH)
        yield seen
        seen.update([(row[0], row[1]) for row in await connection.fetch(SEEN)])
    finally:
        await connection.close()


async def synchronous(journal: Any) -> int:
    """Return what the writer's own connection answers."""
    assert isinstance(journal, SqliteJournal)
    level: int = await journal._writer.run(lambda one: one.execute("PRAGMA synchronous").fetchone()[0])
    return level


@pytest.mark.parametrize(("durability", "level"), SQLITE)
async def test_the_engine_of_weft_up_opens_its_file_as_the_setting_says(
    durability: str, level: int, tmp_path: Path
) -> None:
    settings = Settings(data=tmp_path / "data", durability=durability)
    async with open_engine(settings, Registry()) as engine:
        assert await synchronous(engine.ports.journal) == level


@pytest.mark.parametrize(("durability", "value"), POSTGRES)
async def test_a_journal_in_postgresql_commits_as_the_setting_says(
    durability: str, value: str, journal_url: str
) -> None:
    journal = PostgresJournal(
        journal_url, new_id=lambda: os.urandom(8).hex(), relaxed=durability == "relaxed"
    )
    async with watched(journal_url) as seen:
        await journal.open()
        # The writer's connection, in one statement and in a transaction, and the pool beside it.
        run = await Recording.start(journal, node("a"), node("b", "a", delivery="at_most_once"))
        for name in "ab":
            await run.completed(name)
        await journal.put_blob(b"a large output")
        await journal.close()
    assert seen == {("blobs", value), ("executions", value), ("nodes", value)}


@pytest.mark.parametrize("is_fleet", [False, True], ids=["one process", "a fleet"])
@pytest.mark.parametrize(("durability", "value"), POSTGRES)
async def test_processes_on_postgresql_commit_as_the_setting_says(
    durability: str, value: str, is_fleet: bool, tmp_path: Path, journal_url: str, redis_url: str
) -> None:
    settings = {"WEFT_DATABASE_URL": journal_url, "WEFT_DURABILITY": durability}
    if is_fleet:
        settings["WEFT_REDIS_URL"] = redis_url
    async with watched(journal_url) as seen, serving(tmp_path / "data", settings=settings) as (_, api):
        shown = await api.terminal(await api.start(CHAIN))
        assert shown["state"] == "COMPLETED"
    assert seen == {("executions", value), ("nodes", value)}
