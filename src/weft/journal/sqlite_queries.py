"""Every question that is put to the journal's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.state import TERMINAL, ExecutionState
from weft.errors import JournalError
from weft.journal import sqlite_rows as rows
from weft.journal.contract import ActiveExecution, Batch, Census, Claim

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

    from weft.core.row import DeadLetter, ExecutionRow, History, NodeRow

_EXECUTIONS = f"SELECT {rows.EXECUTION_COLUMNS} FROM executions JOIN progress ON execution = number"  # noqa: S608
_NODES = f"SELECT {rows.NODE_COLUMNS} FROM nodes WHERE execution = ?"  # noqa: S608
_LETTERS = f"SELECT {rows.LETTER_COLUMNS} FROM dead_letters JOIN executions ON number = execution"  # noqa: S608
_NUMBERED = ("executions", "purging")
_IS_ACTIVE = "state IN ('PENDING', 'RUNNING', 'PAUSED')"


def next_number(connection: Connection) -> int:
    """Give the number that the next new execution gets."""
    # Of one that is being purged there may still be rows: its number is not free.
    used = [connection.execute(f"SELECT max(number) FROM {table}").fetchone() for table in _NUMBERED]  # noqa: S608
    return 1 + max(last or 0 for (last,) in used)


def execution(connection: Connection, execution_id: str) -> tuple[int, ExecutionRow] | None:
    """Read an execution, and its number with it."""
    values = connection.execute(f"{_EXECUTIONS} WHERE executions.id = ?", (execution_id,)).fetchone()
    return None if values is None else (values[0], rows.read_execution(values))


def active(connection: Connection, not_updated_since: int) -> list[ActiveExecution]:
    found = connection.execute(
        f"SELECT id, generation, epoch, updated_at FROM progress WHERE {_IS_ACTIVE} AND updated_at <= ?",  # noqa: S608
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


def dead_letter(connection: Connection, letter_id: str, namespace: str) -> DeadLetter | None:
    values = connection.execute(
        f"{_LETTERS} WHERE dead_letters.id = ? AND dead_letters.namespace = ?", (letter_id, namespace)
    ).fetchone()
    return None if values is None else rows.read_letter(values)


def claim(connection: Connection, key: str, namespace: str) -> Claim | None:
    values = connection.execute(
        "SELECT request_digest, resource FROM idempotency_keys WHERE namespace = ? AND key = ?",
        (namespace, key),
    ).fetchone()
    if values is None:
        return None
    return Claim(key=key, request_digest=values[0], resource=values[1], namespace=namespace)


def batch(connection: Connection, batch_id: str, namespace: str) -> Batch | None:
    """Read a batch, and count its executions by their states."""
    found = connection.execute(
        "SELECT workflow, version, total, created_at FROM batches WHERE id = ? AND namespace = ?",
        (batch_id, namespace),
    ).fetchone()
    if found is None:
        return None
    counted = connection.execute(
        "SELECT state, count(*), max(finished_at) FROM executions JOIN progress ON execution = number"
        " WHERE batch = ? GROUP BY state",
        (batch_id,),
    ).fetchall()
    workflow, version, total, created_at = found
    ends = [end for _, _, end in counted]
    return Batch(
        id=batch_id,
        workflow=workflow,
        version=version,
        total=total,
        counts=dict.fromkeys(ExecutionState, 0) | {ExecutionState(state): n for state, n, _ in counted},
        created_at=created_at,
        finished_at=None if None in ends else max(ends, default=created_at),
    )


def batch_results(
    connection: Connection, batch_id: str, after: int, limit: int
) -> list[tuple[int, ExecutionRow]]:
    found = connection.execute(
        f"SELECT {rows.RESULT_COLUMNS}, batch_index FROM executions JOIN progress ON execution = number"  # noqa: S608
        " WHERE batch = ? AND batch_index > ? ORDER BY batch_index LIMIT ?",
        (batch_id, after, limit),
    )
    return [(values[-1], rows.read_execution(values)) for values in found.fetchall()]


def census(connection: Connection) -> Census:
    active = dict.fromkeys((state for state in ExecutionState if state not in TERMINAL), 0)
    sql = f"SELECT state, count(*) FROM progress WHERE {_IS_ACTIVE} GROUP BY state"  # noqa: S608
    active |= {ExecutionState(state): number for state, number in connection.execute(sql).fetchall()}
    (letters,) = connection.execute("SELECT count(*) FROM dead_letters WHERE state = 'open'").fetchone()
    return Census(executions=active, open_letters=letters)


def ping(connection: Connection) -> None:
    connection.execute("SELECT number FROM executions LIMIT 1").fetchone()


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
