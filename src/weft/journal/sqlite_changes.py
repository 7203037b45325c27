"""Every change of the journal's tables, each made in the transaction that its caller has opened."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.core.time import micros
from weft.errors import ClaimedError, JournalError, UnstorableError
from weft.journal import sqlite_queries as queries
from weft.journal import sqlite_rows as rows
from weft.journal.sqlite_schema import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from sqlite3 import Connection

    from weft.core.ledger import Changes
    from weft.core.row import ExecutionRow, NodeRow
    from weft.journal.contract import Claim, NewBatch
    from weft.journal.held import Held

_NO_ROWS: Mapping[str, NodeRow] = {}


def put_definitions(connection: Connection, documents: Mapping[str, bytes], now: int) -> None:
    """Store what is not there yet, by its digest."""
    for digest, document in documents.items():
        # Asked first: a large document is not to be handed to SQLite anew for every execution.
        if not connection.execute("SELECT 1 FROM definitions WHERE digest = ?", (digest,)).fetchone():
            if not document:
                raise JournalError(f"the journal has no definition {digest}")
            connection.execute("INSERT INTO definitions VALUES (?, ?, ?)", (digest, document, now))


def put_executions(
    connection: Connection,
    executions: Iterable[ExecutionRow],
    numbers: Mapping[str, int],
    places: Mapping[str, int],
) -> None:
    """Store what never changes of new executions; ``places`` are those in their batch."""
    with _storing():
        values, labels = [], []
        for execution in executions:
            number = numbers[execution.id]
            values.append(rows.execution_values(number, execution, places.get(execution.id)))
            if execution.labels:
                labels += rows.label_values(number, execution)
        rows.INSERT_EXECUTIONS.run(connection, values)
        rows.INSERT_LABELS.run(connection, labels)


def put_batch(connection: Connection, batch: NewBatch, total: int, now: int) -> None:
    """Store a batch; one that is there already stays as it is."""
    connection.execute(
        "INSERT OR IGNORE INTO batches VALUES (?, ?, ?, ?, ?, ?)",
        (batch.id, batch.namespace, batch.workflow, batch.version, total, now),
    )


def refuse_taken(connection: Connection, claim: Claim | None) -> None:
    """Raise ClaimedError where the key is taken. It comes before all that is written for the claim."""
    taken = None if claim is None else queries.claim(connection, claim.key, claim.namespace)
    if taken is not None:
        raise ClaimedError(taken.key, request_digest=taken.request_digest, resource=taken.resource)


def put_claim(connection: Connection, claim: Claim | None, now: int) -> None:
    if claim is not None:
        connection.execute(
            "INSERT INTO idempotency_keys VALUES (?, ?, ?, ?, ?)",
            (claim.namespace, claim.key, claim.request_digest, claim.resource, now),
        )


def drop_letter(connection: Connection, letter_id: str, namespace: str) -> bool:
    """Mark a dead letter as dropped; False where there is none."""
    changed = connection.execute(
        "UPDATE dead_letters SET state = 'dropped' WHERE id = ? AND namespace = ?", (letter_id, namespace)
    )
    return changed.rowcount > 0


def touch(connection: Connection) -> None:
    """Change nothing, but so that it has to be written to the disk."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def put_blob(connection: Connection, name: str, payload: bytes, now: int) -> None:
    connection.execute("INSERT INTO blobs VALUES (?, ?, ?)", (name, payload, now))


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
            new.append(rows.new_progress_values(number, row))
        elif (
            row.state is not before.state
            or row.generation != before.generation
            or row.epoch != before.epoch
            or row.halt != before.halt
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
