"""The reference: what SQLite alone does with the same node rows, on the same disk, in the same run.

WAL and ``synchronous=FULL`` as in the journal, one transaction for every 256 rows, nothing else: no fence,
no events, no graph. No journal on SQLite can be faster, and a slow disk slows both.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.core.rows import NodeRow

_BATCH = 256


def insert_rate(rows: Iterable[tuple[str, NodeRow]]) -> float:
    """Return how many rows of (execution, node) a second SQLite takes."""
    values = [
        (
            execution,
            row.node_id,
            row.attempt,
            row.state,
            row.generation,
            row.output,
            row.worker,
            row.queued_at,
            row.started_at,
            row.finished_at,
            row.seq,
        )
        for execution, row in rows
    ]
    with _database() as database:
        begun = time.perf_counter()
        for start in range(0, len(values), _BATCH):
            _insert(database, values[start : start + _BATCH])
        return len(values) / (time.perf_counter() - begun)


def commit_milliseconds(count: int) -> list[float]:
    """Time so many transactions of a single row: what no durable hop can be faster than."""
    times = []
    with _database() as database:
        for number in range(count):
            begun = time.perf_counter()
            _insert(database, [(str(number), "n", 1, "COMPLETED", 1, b"1", "w", 1, 1, 1, 1)])
            times.append((time.perf_counter() - begun) * 1000)
    return times


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path(__file__).parent) as folder:
        database = sqlite3.connect(Path(folder) / "raw.db", isolation_level=None)
        try:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute(
                "CREATE TABLE node (execution TEXT, node TEXT, attempt INTEGER, state TEXT,"
                " generation INTEGER, output BLOB, worker TEXT, queued_at INTEGER, started_at INTEGER,"
                " finished_at INTEGER, seq INTEGER, PRIMARY KEY (execution, node)) WITHOUT ROWID"
            )
            yield database
        finally:
            database.close()


def _insert(database: sqlite3.Connection, values: Sequence[tuple[object, ...]]) -> None:
    database.execute("BEGIN IMMEDIATE")
    database.executemany("INSERT INTO node VALUES (?,?,?,?,?,?,?,?,?,?,?)", values)
    database.execute("COMMIT")
