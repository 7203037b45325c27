"""What the SQLite journal promises beside the contract: of its folder, of the disk, and when it is killed."""

# ruff: noqa: ASYNC220, ASYNC240 - nothing else runs on these loops that would have to wait

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from weft.clock import VirtualClock
from weft.core.ledger.changes import Verdict
from weft.core.state import ExecutionState
from weft.errors import DataFolderError, JournalError
from weft.journal.sqlite import schema
from weft.journal.sqlite.journal import SqliteJournal
from weft.journal.sqlite.schema import migrations
from weft.testing.recording import Recording, assert_consistent, node, submission

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

# Opens the journal in the folder it is given, as the user it is given, and says how that went.
OPEN = """
import asyncio, os, sys, tempfile
from pathlib import Path
from weft.errors import WeftError
from weft.journal.sqlite.journal import SqliteJournal

async def main(folder):
    journal = SqliteJournal(Path(folder), now=lambda: 1, new_id=str)
    try:
        await journal.open()
    except WeftError as error:
        print(type(error).__name__, error)
    else:
        print("opened")
        await journal.close()

if len(sys.argv) > 2:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))  # loads what that user may not be able to read
    os.setuid(int(sys.argv[2]))
asyncio.run(main(sys.argv[1]))
"""

# Submits executions and completes their nodes for ever, and tells after each commit what was acknowledged.
WRITE = """
import asyncio, sys
from itertools import count
from pathlib import Path
from weft.clock import RealClock
from weft.journal.sqlite.journal import SqliteJournal
from weft.testing.recording import Recording, node

async def main():
    numbers = count()
    journal = SqliteJournal(
        Path(sys.argv[1]),
        now=RealClock().now,
        new_id=lambda: f"id-{next(numbers)}",
        relaxed=sys.argv[3] == "relaxed",
    )
    await journal.open()
    for number in count():
        run = await Recording.start(
            journal, node("a"), node("b", "a"), node("c", "a"), execution_id=f"{sys.argv[2]}-{number}"
        )
        for name in "abc":
            recorded_event = await run.completed(name)
            print(run.id, recorded_event.execution.seq, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def journal(folder: Path, clock: VirtualClock) -> AsyncIterator[SqliteJournal]:
    journal = make(folder, clock)
    await journal.open()
    yield journal
    await journal.close()


def make(folder: Path, clock: VirtualClock | None = None) -> SqliteJournal:
    numbers = count(1)
    return SqliteJournal(folder, now=(clock or VirtualClock()).now, new_id=lambda: f"id-{next(numbers):08d}")


async def write_journal(folder: Path) -> None:
    """Leave a journal behind that nobody holds."""
    journal = make(folder)
    await journal.open()
    await journal.close()


def ask_to_open(folder: Path, *, as_nobody: bool = False) -> str:
    """Open the journal in another process, and give what came of it. Root may write anywhere."""
    user = ["65534"] if as_nobody and os.geteuid() == 0 else []
    asked = subprocess.run(
        [sys.executable, "-c", OPEN, folder, *user], capture_output=True, text=True, check=True
    )
    return asked.stdout.splitlines()[-1]


@contextmanager
def file_size_limit(limit_bytes: int) -> Iterator[None]:
    """Let no file grow above the limit: to SQLite, a write to the disk fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# -- the data folder -------------------------------------------------------------------------------


async def test_a_second_process_is_refused_and_told_who_holds_the_folder(
    journal: SqliteJournal, folder: Path
) -> None:
    answer = ask_to_open(folder)
    assert answer.startswith("DataFolderError")
    assert f"is in use by process {os.getpid()};" in answer
    run = await Recording.start(journal, node("a"))
    assert (await run.completed("a")).verdict is Verdict.ACCEPTED


async def test_a_second_journal_in_this_process_is_refused_too(journal: SqliteJournal, folder: Path) -> None:
    with pytest.raises(DataFolderError, match="is in use by process"):
        await make(folder).open()


async def test_a_child_process_does_not_keep_the_folder(folder: Path) -> None:
    journal = make(folder)
    await journal.open()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        await journal.close()
        again = make(folder)
        await again.open()
        await again.close()
    finally:
        child.communicate(b"\n")


async def test_a_new_folder_is_readable_by_its_owner_alone(journal: SqliteJournal, folder: Path) -> None:
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


async def test_files_are_private_in_a_folder_that_others_may_read(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    before = os.umask(0)
    try:
        journal = make(folder)
        await journal.open()
        await Recording.start(journal, node("a"))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
        await journal.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("weft.db", "weft.db-shm", "weft.db-wal", "weft.lock"), 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


async def test_files_that_others_could_read_are_private_after_a_start(folder: Path) -> None:
    await write_journal(folder)
    foreign = folder / "notes.txt"
    for name in ("weft.db", "weft.db-wal", "weft.db-shm", "weft.db.backup", "weft.lock", "notes.txt"):
        (folder / name).touch()
        (folder / name).chmod(0o666)
    journal = make(folder)
    await journal.open()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    await journal.close()
    assert modes.pop(foreign.name) == 0o666
    assert set(modes.values()) == {0o600}
    assert "weft.db.backup" in modes


async def test_a_log_that_has_its_size_from_the_start_holds_what_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_GROWN_LOG_BYTES", 2**20)
    for number in range(3):
        journal = make(folder)
        await journal.open()
        (log,) = folder.glob("*-wal")
        assert log.stat().st_size == 2**20
        run = await Recording.start(journal, node("a"), execution_id=f"x{number}")
        await run.completed("a")
        assert log.stat().st_size == 2**20
        for before in range(number + 1):
            row = await journal.execution(f"x{before}")
            assert row is not None
            assert row.state is ExecutionState.COMPLETED
        await journal.close()


async def test_a_folder_that_may_not_be_written_is_refused(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    answer = ask_to_open(folder, as_nobody=True)
    assert answer.startswith(f"DataFolderError the data folder {folder} cannot be used: ")
    assert list(folder.iterdir()) == []


async def test_a_journal_that_may_only_be_read_is_refused() -> None:
    # Not below tmp_path, whose parents let nobody but their owner through.
    with TemporaryDirectory() as name:
        folder = Path(name) / "data"
        await write_journal(folder)
        file = folder / "weft.db"
        file.chmod(0o444)
        if os.geteuid() == 0:
            for path in (Path(name), folder, folder / "weft.lock"):
                os.chown(path, 65534, 65534)
        before = file.read_bytes()
        answer = ask_to_open(folder, as_nobody=True)
        assert answer.startswith("DataFolderError")
        assert "attempt to write a readonly database" in answer
        assert file.read_bytes() == before


async def test_a_file_in_the_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("a note")
    with pytest.raises(DataFolderError, match="cannot be used"):
        await make(folder).open()
    assert folder.read_text() == "a note"


async def test_a_journal_of_a_newer_weft_is_refused_unchanged(folder: Path) -> None:
    await write_journal(folder)
    file = folder / "weft.db"
    with sqlite3.connect(file) as connection:
        connection.execute(f"PRAGMA user_version = {len(migrations()) + 1}")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(DataFolderError, match=r"newer weft .* upgrade weft"):
        await make(folder).open()
    assert file.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_unchanged(folder: Path) -> None:
    folder.mkdir()
    file = folder / "weft.db"
    file.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(DataFolderError, match="cannot be opened: file is not a database"):
        await make(folder).open()
    assert file.read_bytes() == b"dear diary, " * 1_000


async def test_a_database_of_somebody_else_is_refused(folder: Path) -> None:
    folder.mkdir()
    with sqlite3.connect(folder / "weft.db") as connection:
        connection.execute("CREATE TABLE diary (entry)")
    connection.close()
    with pytest.raises(DataFolderError, match="is not a journal of weft"):
        await make(folder).open()


async def test_a_refused_open_lets_go_of_the_folder(folder: Path) -> None:
    folder.mkdir()
    file = folder / "weft.db"
    file.write_bytes(b"dear diary, " * 1_000)
    with pytest.raises(DataFolderError):
        await make(folder).open()
    file.unlink()
    await write_journal(folder)


async def test_opening_runs_every_migration(journal: SqliteJournal, folder: Path) -> None:
    connection = sqlite3.connect(folder / "weft.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (len(migrations()),)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


# -- commits ---------------------------------------------------------------------------------------


async def test_what_cannot_be_stored_fails_alone(journal: SqliteJournal) -> None:
    run = await Recording.start(journal, *(node(f"n{number}") for number in range(10)))
    events = [run.completion(f"n{number}") for number in range(10)]
    events[4] = run.completion("n4", worker="half of a pair: \ud83d")
    events[7] = run.completion("n7", output_bytes=1 << 64)
    answers = await asyncio.gather(*(journal.record([event]) for event in events), return_exceptions=True)
    failed = [number for number, answer in enumerate(answers) if isinstance(answer, JournalError)]
    assert failed == [4, 7]
    assert (await run.row()).unsettled == 2
    assert set(await journal.nodes(run.id)) == {f"n{number}" for number in range(10)} - {"n4", "n7"}
    await assert_consistent(journal, run.id)


async def test_a_batch_with_what_cannot_be_stored_leaves_nothing(journal: SqliteJournal) -> None:
    run = await Recording.start(journal, node("a"), node("b"))
    before = await run.row()
    with pytest.raises(JournalError, match="nothing was written"):
        await journal.record([run.completion("a"), run.completion("b", output_bytes=1 << 64)])
    assert await run.row() == before
    assert await journal.nodes(run.id) == {}
    assert (await run.completed("a")).verdict is Verdict.ACCEPTED
    await assert_consistent(journal, run.id)


async def test_a_submission_that_cannot_be_stored_leaves_nothing(journal: SqliteJournal) -> None:
    with pytest.raises(JournalError):
        await journal.submit([submission("good"), submission("bad", namespace="\ud83d")])
    assert await journal.executions() == []
    await journal.submit([submission("good")])
    await assert_consistent(journal, "good")


async def test_when_a_write_to_the_disk_fails_nothing_is_written_and_later_all_goes_on(
    journal: SqliteJournal,
) -> None:
    run = await Recording.start(journal, node("a"), node("b"))
    await run.completed("a")
    before = await run.row(), await journal.nodes(run.id), await run.events()
    # The log holds its migrations and a few rows by now; there is no room in it for one large output.
    with file_size_limit(300_000):
        large = [run.record(run.completion("b", output=b"1" * 300_000)) for _ in range(3)]
        answers = await asyncio.gather(*large, return_exceptions=True)
        assert [type(answer) for answer in answers] == [JournalError] * 3
        with pytest.raises(JournalError, match="nothing was written"):
            await journal.put_blob(b"1" * 300_000)
    assert (await run.row(), await journal.nodes(run.id), await run.events()) == before
    assert (await run.completed("b")).verdict is Verdict.ACCEPTED
    assert (await run.row()).state is ExecutionState.COMPLETED
    await assert_consistent(journal, run.id)


async def test_the_check_fails_while_nothing_can_be_written(journal: SqliteJournal) -> None:
    await journal.check()
    # The migrations alone take more of the log: there is no room behind them.
    with file_size_limit(50_000), pytest.raises(JournalError, match="nothing was written"):
        await journal.check()
    await journal.check()


async def test_a_caller_that_goes_away_does_not_take_its_events_along(journal: SqliteJournal) -> None:
    run = await Recording.start(journal, node("a"), node("b"))
    leaving = asyncio.create_task(run.completed("a"))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    assert (await run.completed("b")).verdict is Verdict.ACCEPTED
    assert (await run.row()).state is ExecutionState.COMPLETED


async def test_closing_waits_for_what_was_handed_over(folder: Path) -> None:
    journal = make(folder)
    await journal.open()
    await journal.submit([submission("e", *(node(f"n{number}") for number in range(100)))])
    run = Recording(journal, "e", submission("e").plan)
    handed_over = [asyncio.create_task(run.completed(f"n{number}")) for number in range(100)]
    await asyncio.sleep(0)
    await journal.close()
    assert {(await task).verdict for task in handed_over} == {Verdict.ACCEPTED}
    assert {path.name for path in folder.iterdir()} == {"weft.db", "weft.lock"}, "the log is in the file"


async def test_a_closed_journal_says_so(folder: Path) -> None:
    journal = make(folder)
    with pytest.raises(JournalError, match="not open"):
        await journal.record([])
    await journal.open()
    await journal.close()
    await journal.close()
    with pytest.raises(JournalError, match="not open"):
        await journal.execution("e")


async def test_a_closed_journal_may_be_opened_again(folder: Path) -> None:
    journal = make(folder)
    for name in "ab":
        await journal.open()
        await journal.submit([submission(name)])
        await journal.close()
    await journal.open()
    assert {row.id for row in await journal.executions()} == {"a", "b"}
    await journal.close()


@pytest.mark.parametrize("durability", ["strict", "relaxed"])
@pytest.mark.parametrize("round_", range(5))
async def test_a_killed_process_leaves_a_prefix_with_all_that_was_acknowledged(
    folder: Path, round_: int, durability: str
) -> None:
    """Without the disk's sync too: what a process has written, its death leaves to the operating system."""
    acknowledged: dict[str, int] = {}
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, folder, f"round{round_}", durability],
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        for _, line in zip(range(40 + 17 * round_), writer.stdout, strict=False):
            execution_id, number = line.split()
            acknowledged[execution_id] = int(number)
        writer.send_signal(signal.SIGKILL)
    assert acknowledged
    journal = make(folder)
    await journal.open()
    for execution_id, seq in acknowledged.items():
        row = await journal.execution(execution_id)
        assert row is not None
        assert row.seq >= seq
    for row in await journal.executions(limit=10_000):
        await assert_consistent(journal, row.id)
    unfinished = [row for row in await journal.executions(limit=10_000) if not row.is_terminal]
    for row in unfinished:
        plan = await journal.plan(row.digest)
        assert plan is not None
        run = Recording(journal, row.id, plan)
        for name in "abc":
            await run.completed(name)
        assert (await run.row()).state is ExecutionState.COMPLETED
    await journal.close()
