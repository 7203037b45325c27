"""The tables of the example: a SQLite file that the workers and the API share."""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from paperwork.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How long a writer waits for another; each of them needs about a millisecond.
WAIT_SECONDS = 30.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS extractions (
    sha256 TEXT NOT NULL,
    recipe TEXT NOT NULL,
    type TEXT NOT NULL,
    reply TEXT NOT NULL,
    PRIMARY KEY (sha256, recipe)
);
CREATE TABLE IF NOT EXISTS decisions (
    document TEXT PRIMARY KEY,
    decision TEXT NOT NULL,
    record TEXT NOT NULL,
    by TEXT,
    note TEXT NOT NULL,
    at TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS locked_fields (
    document TEXT NOT NULL,
    field TEXT NOT NULL,
    value TEXT,
    PRIMARY KEY (document, field)
);
CREATE TABLE IF NOT EXISTS processed (
    execution TEXT NOT NULL,
    generation INTEGER NOT NULL,
    document TEXT NOT NULL,
    status TEXT NOT NULL,
    seconds REAL NOT NULL,
    confidence REAL,
    at TEXT NOT NULL,
    PRIMARY KEY (execution, generation)
);
CREATE INDEX IF NOT EXISTS processed_at ON processed (at);
"""

# A connection stays open for each thread: the last that is closed would write the whole log back, each time.
_kept = threading.local()


@contextmanager
def transaction() -> Iterator[sqlite3.Connection]:
    """Have the database to write in: all of it, or, where an error comes out, nothing."""
    with _begun("BEGIN IMMEDIATE", "COMMIT") as connection:
        yield connection


@contextmanager
def reading() -> Iterator[sqlite3.Connection]:
    """Have the database as of one moment."""
    with _begun("BEGIN", "ROLLBACK") as connection:
        yield connection


def close() -> None:
    """Close what this thread has open."""
    for connection in vars(_kept).pop("connections", {}).values():
        connection.close()


@contextmanager
def _begun(begin: str, end: str) -> Iterator[sqlite3.Connection]:
    connection = _open(settings().database.absolute())
    connection.execute(begin)
    try:
        yield connection
        connection.execute(end)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _open(path: Path) -> sqlite3.Connection:
    connections: dict[Path, sqlite3.Connection] = vars(_kept).setdefault("connections", {})
    if path not in connections:
        _prepare(path)
        connections[path] = _connect(path)
    return connections[path]


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None)
    connection.row_factory = sqlite3.Row
    # What a node did is on the disk before weft records that the node is done.
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _prepare(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    give_up = time.monotonic() + WAIT_SECONDS
    while True:
        connection = _connect(path)
        try:
            # Of several processes that do this at once, SQLite turns all but one away without waiting.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE;{_SCHEMA}COMMIT;")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.02)
        finally:
            connection.close()
