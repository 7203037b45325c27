"""Opening the journal's SQLite file, and bringing its schema up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager, suppress
from functools import partial
from os import SEEK_END, fsync
from typing import TYPE_CHECKING, TypeAlias

from weft.errors import DataFolderError
from weft.journal.migrations import read_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Of an execution: its id, its workflow, its state.
Unfinished: TypeAlias = tuple[str, str | None, str]

migrations = partial(read_migrations, "sqlite")

# "weft", as SQLite's mark of whose file it is.
APPLICATION_ID = 0x77656674

# UPDATE … FROM came with this release.
OLDEST_SQLITE = (3, 33, 0)

_PAGE_BYTES = 4096
# So large that neither a batch nor the index pages it touches are written out before their commit.
_PAGE_CACHE_KIB = 65_536
# A checkpoint, made within a commit, every 16 MiB of log.
_CHECKPOINT_PAGES = 4_096
_LOG_BYTES = 64 * 1024 * 1024
# The log is given this size when it is opened. While a log grows, each commit waits for the file system to
# note its new length as well: 0.23 ms instead of 0.16 ms for the commit of a single result.
_GROWN_LOG_BYTES = 16 * 1024 * 1024
# Statements that write many rows exist in sizes; none of them should have to be prepared twice.
_CACHED_STATEMENTS = 256


def open_for_writing(path: Path, *, relaxed: bool = False) -> sqlite3.Connection:
    """Open the file, made where it is missing, with its schema up to date; raises DataFolderError.

    ``relaxed``: a commit returns before it is on the disk.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise DataFolderError(f"SQLite {needed} or newer is needed; this is {sqlite3.sqlite_version}")
    connection: sqlite3.Connection | None = None
    try:
        connection = _connect(path)
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}")
        _check_owner(connection, path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise DataFolderError(f"{path} lies on a file system without shared memory, which weft needs")
        # FULL: a commit is on the disk when it returns. NORMAL: the log is synced before it is written back
        # to the file, so that a power failure takes the last commits and leaves the file whole.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if relaxed else 'FULL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        migrate(connection, path)
        # A file that may only be read is refused now, not at the first commit.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("ROLLBACK")
        _grow_log(path)
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise DataFolderError(f"the journal {path} cannot be opened: {error}") from error
    except BaseException:
        if connection is not None:
            connection.close()
        raise
    return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open the file beside the writer, which it never waits for: each read sees the last commit."""
    try:
        connection = _connect(path)
        connection.execute("PRAGMA query_only = ON")
    except sqlite3.Error as error:
        raise DataFolderError(f"the journal {path} cannot be opened: {error}") from error
    return connection


def pending(path: Path) -> list[str]:
    """Return the migrations that the file has not had; changes nothing; raises DataFolderError.

    Where there is no file yet, these are all.
    """
    if not path.exists():
        return list(migrations())
    with _reading(path) as connection:
        return list(migrations())[_version(connection, path) :]


def unfinished(path: Path, *, limit: int) -> tuple[int, list[Unfinished]]:
    """Count the executions that are not terminal, whatever migrations the file has had; list some."""
    if not path.exists():
        return 0, []
    with _reading(path) as connection:
        if _version(connection, path) == 0:
            return 0, []
        active = (
            "progress JOIN executions ON number = execution WHERE state IN ('PENDING', 'RUNNING', 'PAUSED')"
        )
        (total,) = connection.execute(f"SELECT count(*) FROM {active}").fetchone()  # noqa: S608
        found = connection.execute(
            f"SELECT executions.id, workflow, state FROM {active} ORDER BY number LIMIT ?",  # noqa: S608
            (limit,),
        )
        return total, found.fetchall()


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a file that may be in use, and change nothing; raises DataFolderError."""
    # Without a log the file alone is the journal; read in any other way, SQLite would leave a log beside it.
    how = "mode=ro" if path.with_name(path.name + "-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
            _check_owner(connection, path)
            yield connection
    except sqlite3.Error as error:
        raise DataFolderError(f"the journal {path} cannot be read: {error}") from error


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Run the migrations the file has not had, each in a transaction of its own; there is no way back."""
    version = _version(connection, path)
    for number, script in list(enumerate(migrations().values(), 1))[version:]:
        try:
            connection.executescript(
                f"BEGIN IMMEDIATE;\n{script}\n"
                f"PRAGMA application_id = {APPLICATION_ID};\nPRAGMA user_version = {number};\nCOMMIT;"
            )
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the number of the last migration that the file has had."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    known = len(migrations())
    if version > known:
        raise DataFolderError(
            f"{path} was written by a newer weft (schema {version}; this weft knows up to {known}): "
            "upgrade weft to use it"
        )
    return version


def _grow_log(path: Path) -> None:
    """Write zeros behind the end of the log: SQLite reads it up to the first frame that is none.

    It holds no locks on the log, which closing the file would give up. Where there is no room, the log
    grows as it always does.
    """
    log = path.with_name(path.name + "-wal")
    with suppress(OSError), log.open("r+b") as file:
        missing = _GROWN_LOG_BYTES - file.seek(0, SEEK_END)
        if missing > 0:
            file.write(bytes(missing))
            file.flush()
            fsync(file.fileno())


def _connect(path: Path) -> sqlite3.Connection:
    # The writer's connection is used on two threads, by one at a time (``sqlite_threads.Writer``).
    return sqlite3.connect(
        path, isolation_level=None, cached_statements=_CACHED_STATEMENTS, check_same_thread=False
    )


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if owner == APPLICATION_ID:
        return
    is_empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if owner or not is_empty:
        raise DataFolderError(f"{path} is not a journal of weft")
