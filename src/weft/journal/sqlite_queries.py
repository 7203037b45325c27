"""Every question that is put to the journal's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import JournalError
from weft.journal import sqlite_rows as rows
from weft.journal.contract import ActiveExecution

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from weft.core.row import DeadLetter, ExecutionRow, History, NodeRow

_EXECUTIONS = f"SELECT {rows.EXECUTION_COLUMNS} FROM executions JOIN progress ON execution = number"  # noqa: S608
_NODES = f"SELECT {rows.NODE_COLUMNS} FROM nodes WHERE execution = ?"  # noqa: S608
_LETTERS = f"SELECT {rows.LETTER_COLUMNS} FROM dead_letters JOIN executions ON number = execution"  # noqa: S608


def next_number(connection: Connection) -> int:
    """Give the number that the next new execution gets."""
    (last,) = connection.execute("SELECT max(number) FROM executions").fetchone()
    return 1 if last is None else int(last) + 1


def execution(connection: Connection, execution_id: str) -> tuple[int, ExecutionRow] | None:
    """Read an execution, and its number with it."""
    values = connection.execute(f"{_EXECUTIONS} WHERE id = ?", (execution_id,)).fetchone()
    return None if values is None else (values[0], rows.read_execution(values))


def executions(connection: Connection, namespace: str, limit: int) -> list[ExecutionRow]:
    found = connection.execute(
        f"{_EXECUTIONS} WHERE namespace = ? ORDER BY created_at DESC, id DESC LIMIT ?", (namespace, limit)
    )
    return [rows.read_execution(values) for values in found.fetchall()]


def active(connection: Connection, not_updated_since: int) -> list[ActiveExecution]:
    # The states are listed as in the partial index, word for word: else SQLite would not use it.
    found = connection.execute(
        "SELECT id, generation, epoch, updated_at FROM progress JOIN executions ON number = execution"
        " WHERE state IN ('PENDING', 'RUNNING', 'PAUSED') AND updated_at <= ?",
        (not_updated_since,),
    )
    return [ActiveExecution(*values) for values in found.fetchall()]


def nodes(connection: Connection, number: int, names: Iterable[str] | None = None) -> dict[str, NodeRow]:
    """Read the rows of an execution's nodes: of those named, or of all."""
    if names is None:
        found = connection.execute(_NODES, (number,)).fetchall()
    else:
        sought = (
            connection.execute(f"{_NODES} AND node_id = ?", (number, name)).fetchone() for name in names
        )
        found = [values for values in sought if values is not None]
    return {values[0]: rows.read_node(values) for values in found}


def nodes_of(connection: Connection, execution_id: str) -> dict[str, NodeRow]:
    number = connection.execute("SELECT number FROM executions WHERE id = ?", (execution_id,)).fetchone()
    return {} if number is None else nodes(connection, number[0])


def events(connection: Connection, execution_id: str, after: int, limit: int) -> list[History]:
    # SQLite joins them to one row: with a row each, every one of them would wait for Python's lock.
    (joined,) = connection.execute(
        "SELECT CAST(group_concat(body, ',') AS BLOB) FROM (SELECT body FROM events WHERE execution ="
        " (SELECT number FROM executions WHERE id = ?) AND seq > ? ORDER BY seq LIMIT ?)",
        (execution_id, after, limit),
    ).fetchone()
    return rows.read_events(joined)


def dead_letters(
    connection: Connection, execution_id: str | None, namespace: str, limit: int
) -> Sequence[DeadLetter]:
    of_one = "" if execution_id is None else "AND executions.id = ?"
    found = connection.execute(
        f"{_LETTERS} WHERE dead_letters.namespace = ? {of_one}"
        " ORDER BY dead_letters.created_at DESC, dead_letters.id DESC LIMIT ?",
        (namespace, limit) if execution_id is None else (namespace, execution_id, limit),
    )
    return [rows.read_letter(values) for values in found.fetchall()]


def document(connection: Connection, digest: str) -> bytes | None:
    found = connection.execute("SELECT document FROM definitions WHERE digest = ?", (digest,)).fetchone()
    return None if found is None else found[0]


def cached(connection: Connection, keys: Sequence[str], now: int) -> dict[str, bytes]:
    sql = (
        "SELECT ifnull(output, payload) FROM cache LEFT JOIN blobs ON name = blob"
        " WHERE key = ? AND good_until > ?"
    )
    found = ((key, connection.execute(sql, (key, now)).fetchone()) for key in keys)
    return {key: values[0] for key, values in found if values is not None}


def blobs(connection: Connection, names: Sequence[str]) -> dict[str, bytes]:
    sql = "SELECT payload FROM blobs WHERE name = ?"
    found = ((name, connection.execute(sql, (name,)).fetchone()) for name in names)
    return {name: values[0] for name, values in found if values is not None}


def blob(connection: Connection, name: str) -> bytes:
    payload = blobs(connection, [name]).get(name)
    if payload is None:
        raise JournalError(f"the journal has no blob {name}, though a row names it")
    return payload
