"""Every change of the journal's tables, each made in the transaction that its caller has opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.time import micros
from weft.errors import ClaimedError
from weft.journal import children, notifications, queries, triggers, waits
from weft.journal.firing import turn_values
from weft.journal.rows import STORING, ExecutionChanges, execution_values, failure_values
from weft.journal.sqlite import rows
from weft.journal.sqlite.queries import run_query
from weft.journal.sqlite.schema import APPLICATION_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from sqlite3 import Connection

    from weft.core.ledger.changes import Change, Changes
    from weft.journal.children import ChildValues
    from weft.journal.contract import Claim
    from weft.journal.waits import WaitValues


_END_NOTIFICATION = (
    "UPDATE notifications SET due_at = NULL, state = ?3, ended_at = ?4, error = ?5"
    " WHERE id = ?1 AND execution = ?2 AND state = 'pending'"
)


def put_executions(
    connection: Connection,
    new: Iterable[Change],
    places: Mapping[str, int],
) -> None:
    """Store what never changes of new executions; ``places`` are those in their batch."""
    with STORING:
        values, labels = [], []
        for change in new:
            number, execution = change.live.number, change.row
            stored_labels = rows.write_json(execution.labels)
            index = places.get(execution.id)
            values.append((number, *execution_values(execution, index, stored_labels)))
            if execution.labels:
                labels += rows.label_values(number, execution)
        rows.INSERT_EXECUTIONS.run(connection, values)
        rows.INSERT_LABELS.run(connection, labels)


def put_children(connection: Connection, changes: Changes) -> None:
    """Store which of the new executions are children."""
    new = [change for change in changes.executions.values() if change.is_new]
    rows.INSERT_CHILDREN.run(connection, children.new_values(changes, new))


def refuse_taken(connection: Connection, claim: Claim | None) -> None:
    """Raise ClaimedError where the key is taken. It comes before all that is written for the claim."""
    taken = None if claim is None else run_query(connection, queries.claim(claim.key, claim.namespace))
    if taken is not None:
        raise ClaimedError(taken.key, request_digest=taken.request_digest, resource=taken.resource)


def put_claim(connection: Connection, claim: Claim | None, now: int) -> None:
    if claim is not None:
        connection.execute(
            "INSERT INTO idempotency_keys VALUES (?, ?, ?, ?, ?)",
            (claim.namespace, claim.key, claim.request_digest, claim.resource, now),
        )


def touch(connection: Connection) -> None:
    """Write the application id that the file has already, so that the commit has to reach the disk."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def write(connection: Connection, changes: Changes, now: int) -> None:
    """Write what the ledger gathered; if a value cannot be stored, the caller rolls back the rest."""
    with STORING:
        executions = changes.executions
        changed = ExecutionChanges(executions.values(), rows.write_json)
        new = [
            rows.new_progress_values(change.live.number, change.row)
            for change in executions.values()
            if change.is_new
        ]
        for statement, values in (
            (rows.INSERT_PROGRESS, new),
            (rows.UPDATE_PROGRESS, changed.moved),
            (rows.UPDATE_COUNTERS, changed.counted),
            (rows.INSERT_COMPLETED_NODES, changed.completed),
            (rows.INSERT_NODES, changed.added),
            (rows.REPLACE_NODES, changed.overwritten),
        ):
            if values:
                statement.run(connection, values)
        if changes.events or changes.overwritten:
            events = [
                rows.event_values(executions[event.execution].live.number, event)
                for event in (*changes.overwritten, *changes.events)
            ]
            rows.INSERT_EVENTS.run(connection, events)
            failures = [
                values
                for event in changes.events
                for values in failure_values(executions[event.execution], event)
            ]
            if failures:
                rows.INSERT_FAILURES.run(connection, failures)
        if changes.letters or changes.letter_states:
            _write_letters(connection, changes)
        if changes.notifications:
            rows.INSERT_NOTIFICATIONS.run(connection, notifications.new_values(changes))
        if changes.notification_ends:
            for ended in notifications.ended_values(changes):
                connection.execute(_END_NOTIFICATION, ended)
        if changes.touches_waits:
            _write_waits(connection, waits.written_values(changes))
        if changes.joined:
            numbers = {id_: change.live.number for id_, change in executions.items()}
            run_query(connection, triggers.put_turns(turn_values(changes.joined, numbers)))
        if changes.touches_children:
            _write_children(connection, children.written_values(changes))
        if changes.cache:
            rows.REPLACE_CACHE.run(
                connection,
                [(key, output, blob, now + micros(ttl)) for key, output, blob, ttl in changes.cache],
            )


def _write_waits(connection: Connection, waiting: WaitValues) -> None:
    rows.REPLACE_WAITS.run(connection, waiting.started)
    rows.INSERT_SIGNALS.run(connection, waiting.kept)
    for sql, values in (
        ("UPDATE waits SET settled_at = ?3 WHERE execution = ?1 AND node_id = ?2", waiting.settled),
        ("DELETE FROM waits WHERE execution = ? AND node_id = ?", waiting.gone),
        ("DELETE FROM signals WHERE execution = ? AND number = ?", waiting.taken),
        ("INSERT INTO late_answers (event, execution_id, node_id) VALUES (?, ?, ?)", waiting.late),
    ):
        for one in values:
            connection.execute(sql, one)


def _write_children(connection: Connection, kept: ChildValues) -> None:
    for sql, values in (
        (
            "UPDATE children SET changed_at = ?2, generation = ?3, attempt = ?4, phase = ?5"
            " WHERE execution = ?1",
            kept.moved,
        ),
        (
            "UPDATE children SET phase = 'told' WHERE phase = 'ended' AND parent = ?1"
            " AND execution = (SELECT number FROM executions WHERE id = ?2)",
            kept.told,
        ),
    ):
        for one in values:
            connection.execute(sql, one)


def _write_letters(connection: Connection, changes: Changes) -> None:
    executions = changes.executions
    for execution_id, node_id, state in changes.letter_states:
        connection.execute(
            "UPDATE dead_letters SET state = ? WHERE execution = ? AND state = 'open'"
            " AND (? IS NULL OR node_id = ?)",
            (state, executions[execution_id].live.number, node_id, node_id),
        )
    rows.INSERT_LETTERS.run(
        connection,
        [
            rows.letter_values(change.live.number, change.row.namespace, letter)
            for letter in changes.letters
            if (change := executions[letter.execution_id])
        ],
    )
