"""Group commit, and reads that wait for no writer."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from weft.clock import VirtualClock
from weft.errors import JournalError
from weft.journal.sqlite.threads import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
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
def clock() -> VirtualClock:
    """Time stands still: every commit is quick."""
    return VirtualClock()


@pytest.fixture
async def writer(path: Path, forgotten: list[str], clock: VirtualClock) -> AsyncIterator[Writer]:
    writer = Writer("writer", partial(connect, path), lambda: forgotten.append("forgotten"), now=clock.now)
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


def thread_name(connection: sqlite3.Connection) -> str:
    return threading.current_thread().name


async def test_a_short_job_is_committed_on_the_loop_while_commits_are_quick(
    writer: Writer, reader: Reader
) -> None:
    loop_thread = threading.current_thread().name
    # Nothing is known of the disk before the first commit.
    assert await writer.run_short(thread_name) == "writer"
    assert await writer.run_short(thread_name) == loop_thread
    assert await writer.run_short(write, "one") == "one"
    assert await reader.run(words) == ["one"]


async def test_after_a_slow_commit_the_thread_makes_the_next(writer: Writer, clock: VirtualClock) -> None:
    await writer.run(write, "one")
    assert await writer.run_short(thread_name) != "writer"

    def write_slowly(connection: sqlite3.Connection) -> None:
        write(connection, "two")
        clock.advance(0.01)

    await writer.run_short(write_slowly)
    assert await writer.run_short(thread_name) == "writer"
    # That commit was quick.
    assert await writer.run_short(thread_name) != "writer"


async def test_a_short_job_joins_the_jobs_that_wait_for_the_thread(writer: Writer, reader: Reader) -> None:
    await writer.run(write, "one")
    gate, entered = threading.Event(), threading.Event()

    def wait(connection: sqlite3.Connection) -> None:
        entered.set()
        gate.wait()

    under_way = asyncio.create_task(writer.run(wait))
    await asyncio.to_thread(entered.wait)
    behind = asyncio.create_task(writer.run_short(thread_name))
    await asyncio.sleep(0)
    assert not behind.done()
    gate.set()
    assert await behind == "writer"
    await under_way


async def test_a_short_job_that_fails_leaves_nothing(
    writer: Writer, reader: Reader, forgotten: list[str]
) -> None:
    await writer.run(write, "one")

    def write_and_fail(connection: sqlite3.Connection) -> None:
        write(connection, "undone")
        raise LookupError("a bug of ours")

    with pytest.raises(JournalError, match="UNIQUE"):
        await writer.run_short(write, "one")
    with pytest.raises(LookupError):
        await writer.run_short(write_and_fail)
    assert await reader.run(words) == ["one"]
    assert forgotten == []
    assert await writer.run_short(write, "two") == "two"


async def test_an_interrupt_within_a_short_job_rolls_it_back(writer: Writer, reader: Reader) -> None:
    await writer.run(write, "one")

    def interrupted(connection: sqlite3.Connection) -> None:
        write(connection, "undone")
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await writer.run_short(interrupted)
    assert await writer.run_short(write, "two") == "two"
    assert await reader.run(words) == ["one", "two"]


async def test_a_writer_that_was_started_again_uses_its_new_connection(writer: Writer) -> None:
    await writer.run(write, "one")
    await writer.stop()
    with pytest.raises(JournalError, match="not open"):
        await writer.run_short(write, "two")
    await writer.start()
    assert await writer.run_short(write, "two") == "two"


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
