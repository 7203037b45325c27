"""Group commit, and reads that wait for no writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from weft.errors import JournalError
from weft.journal.sqlite_threads import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE IF NOT EXISTS words (word TEXT UNIQUE)")
    return connection


def write(connection: sqlite3.Connection, word: str) -> str:
    connection.execute("INSERT INTO words VALUES (?)", (word,))
    return word


def words(connection: sqlite3.Connection) -> list[str]:
    return [word for (word,) in connection.execute("SELECT word FROM words ORDER BY word")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.db"


@pytest.fixture
def forgotten() -> list[str]:
    """One entry for each time the writer asked to forget."""
    return []


@pytest.fixture
async def writer(path: Path, forgotten: list[str]) -> AsyncIterator[Writer]:
    writer = Writer("writer", partial(connect, path), lambda: forgotten.append("forgotten"))
    await writer.start()
    yield writer
    await writer.stop()


@pytest.fixture
async def reader(path: Path, writer: Writer) -> AsyncIterator[Reader]:
    reader = Reader("reader", partial(connect, path))
    await reader.start()
    yield reader
    await reader.stop()


@pytest.fixture
async def gate(writer: Writer) -> AsyncIterator[threading.Event]:
    """Keep the writer busy until the event is set: what is handed over until then waits together."""
    gate = threading.Event()
    entered = threading.Event()

    def wait(connection: sqlite3.Connection) -> None:
        entered.set()
        gate.wait()

    waiting = asyncio.create_task(writer.run(wait))
    await asyncio.to_thread(entered.wait)
    yield gate
    gate.set()
    await waiting


async def test_jobs_that_wait_together_are_committed_together(
    writer: Writer, reader: Reader, path: Path, gate: threading.Event
) -> None:
    def seen_by_others(connection: sqlite3.Connection) -> list[str]:
        assert words(connection) == ["one", "two"]
        other = sqlite3.connect(path)
        try:
            return words(other)
        finally:
            other.close()

    jobs = [
        asyncio.create_task(writer.run(write, "one")),
        asyncio.create_task(writer.run(write, "two")),
    ]
    seen = asyncio.create_task(writer.run(seen_by_others))
    await asyncio.sleep(0)
    gate.set()
    assert await seen == []
    assert await asyncio.gather(*jobs) == ["one", "two"]
    assert await reader.run(words) == ["one", "two"]


async def test_a_job_that_fails_is_undone_alone(
    writer: Writer, reader: Reader, gate: threading.Event, forgotten: list[str]
) -> None:
    def write_and_fail(connection: sqlite3.Connection) -> None:
        write(connection, "undone")
        raise LookupError("a bug of ours")

    jobs = [
        asyncio.create_task(writer.run(write, "one")),
        asyncio.create_task(writer.run(write_and_fail)),
        asyncio.create_task(writer.run(write, "one")),
        asyncio.create_task(writer.run(write, "two")),
    ]
    await asyncio.sleep(0)
    gate.set()
    one, bug, twice, two = await asyncio.gather(*jobs, return_exceptions=True)
    assert (one, two) == ("one", "two")
    assert isinstance(bug, LookupError)
    assert isinstance(twice, JournalError)
    assert await reader.run(words) == ["one", "two"]
    assert forgotten == []


async def test_on_a_full_disk_every_job_of_the_transaction_fails(
    writer: Writer, reader: Reader, gate: threading.Event, forgotten: list[str]
) -> None:
    def fill_the_disk(connection: sqlite3.Connection) -> None:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        write(connection, "much" * 100_000)

    jobs = [
        asyncio.create_task(writer.run(write, "one")),
        asyncio.create_task(writer.run(fill_the_disk)),
        asyncio.create_task(writer.run(write, "two")),
    ]
    await asyncio.sleep(0)
    gate.set()
    answers = await asyncio.gather(*jobs, return_exceptions=True)
    assert [type(answer) for answer in answers] == [JournalError] * 3
    assert {str(answer) for answer in answers} == {"nothing was written: database or disk is full"}
    assert await reader.run(words) == []
    assert forgotten == ["forgotten"]
    assert await writer.run(write, "three") == "three"


async def test_a_reader_does_not_wait_for_the_writer(
    writer: Writer, reader: Reader, gate: threading.Event
) -> None:
    writing = asyncio.create_task(writer.run(write, "one"))
    assert await reader.run(words) == []
    assert not writing.done()
    gate.set()
    await writing
    assert await reader.run(words) == ["one"]


async def test_a_thread_that_cannot_connect_says_why(path: Path) -> None:
    path = path / "missing" / "words.db"
    reader = Reader("reader", partial(connect, path))
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await reader.start()
    with pytest.raises(JournalError, match="not open"):
        await reader.run(words)
    await reader.stop()
