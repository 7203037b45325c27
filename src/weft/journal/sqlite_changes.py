"""Every change of the journal's tables, each made in the transaction that its caller has opened."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.core.time import micros
from weft.errors import UnstorableError
from weft.journal import sqlite_rows as rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from weft.core.ledger import Changes
    from weft.core.row import ExecutionRow, NodeRow
    from weft.journal.contract import Submission
    from weft.journal.held import Held

_NO_ROWS: Mapping[str, NodeRow] = {}


def put_definitions(connection: Connection, submissions: Sequence[Submission], now: int) -> None:
    """Store what is not there yet."""
    documents = {submission.plan.digest: submission.document for submission in submissions}
    for digest, document in documents.items():
        # Asked first: a large document is not to be handed to SQLite anew for every execution.
        if not connection.execute("SELECT 1 FROM definitions WHERE digest = ?", (digest,)).fetchone():
            connection.execute("INSERT INTO definitions VALUES (?, ?, ?)", (digest, document, now))


def put_executions(
    connection: Connection, executions: Iterable[ExecutionRow], numbers: Mapping[str, int]
) -> None:
    """Store what never changes of new executions."""
    with _storing():
        rows.INSERT_EXECUTIONS.run(
            connection, [rows.execution_values(numbers[execution.id], execution) for execution in executions]
        )


def put_blob(connection: Connection, name: str, payload: bytes, now: int) -> None:
    connection.execute("INSERT INTO blobs VALUES (?, ?, ?)", (name, payload, now))


def sweep_blobs(connection: Connection, older_than: int, now: int) -> int:
    """Remove old blobs that no row names, and before them what the cache gives no longer."""
    connection.execute("DELETE FROM cache WHERE good_until <= ?", (now,))
    return connection.execute(
        "DELETE FROM blobs WHERE created_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM cache WHERE cache.blob = blobs.name)",
        (older_than,),
    ).rowcount


def write(connection: Connection, held: Held, changes: Changes, now: int) -> None:
    """Write what the ledger gathered; where a value cannot be stored, the caller rolls back the rest."""
    with _storing():
        _write_progress(connection, held, changes)
        _write_nodes(connection, held, changes)
        numbers = held.numbers
        rows.INSERT_EVENTS.run(
            connection, [rows.event_values(numbers[event.execution], event) for event in changes.events]
        )
        if changes.letters or changes.letter_states:
            _write_letters(connection, held, changes)
        if changes.cache:
            rows.REPLACE_CACHE.run(
                connection,
                [(key, output, blob, now + micros(ttl)) for key, output, blob, ttl in changes.cache],
            )


@contextmanager
def _storing() -> Iterator[None]:
    """Say of a value that it cannot be stored: an integer of more than 64 bits, half of a surrogate pair."""
    try:
        yield
    except (OverflowError, TypeError, ValueError) as error:
        raise UnstorableError(f"nothing was written: a value cannot be stored: {error}") from error


def _write_progress(connection: Connection, held: Held, changes: Changes) -> None:
    new, moved, counted = [], [], []
    for execution_id, row in changes.executions.items():
        number = held.numbers[execution_id]
        before = held.executions.get(execution_id)
        if before is None:
            new.append(rows.progress_values(number, row))
        elif (
            row.state is not before.state or row.generation != before.generation or row.epoch != before.epoch
        ):
            moved.append(rows.progress_values(number, row))
        elif row.seq != before.seq:
            # Within one state of one generation, events move the counters alone.
            counted.append(rows.counter_values(number, row))
    rows.INSERT_PROGRESS.run(connection, new)
    rows.UPDATE_PROGRESS.run(connection, moved)
    rows.UPDATE_COUNTERS.run(connection, counted)


def _write_nodes(connection: Connection, held: Held, changes: Changes) -> None:
    plain, new, changed = [], [], []
    for execution_id, nodes in changes.nodes.items():
        number = held.numbers[execution_id]
        stored = held.nodes.get(execution_id, _NO_ROWS)
        for node_id, row in nodes.items():
            if node_id in stored:
                changed.append(rows.node_values(number, row))
            elif rows.is_plain(row):
                plain.append(rows.plain_node_values(number, row))
            else:
                new.append(rows.node_values(number, row))
    rows.INSERT_PLAIN_NODES.run(connection, plain)
    rows.INSERT_NODES.run(connection, new)
    rows.REPLACE_NODES.run(connection, changed)


def _write_letters(connection: Connection, held: Held, changes: Changes) -> None:
    for execution_id, node_id, state in changes.letter_states:
        connection.execute(
            "UPDATE dead_letters SET state = ? WHERE execution = ? AND state = 'open'"
            " AND (? IS NULL OR node_id = ?)",
            (state, held.numbers[execution_id], node_id, node_id),
        )
    rows.INSERT_LETTERS.run(
        connection,
        [
            rows.letter_values(
                held.numbers[letter.execution_id], changes.executions[letter.execution_id].namespace, letter
            )
            for letter in changes.letters
        ],
    )
