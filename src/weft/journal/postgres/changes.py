"""Writes the changes of a transaction: one statement, put together from pieces.

All pieces of one statement see the tables as they were before it. Dead letters rely on that: letters that
were open before get their new state, and letters that the same statement adds keep the state they were given.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from weft.core.ledger.changes import Changes
from weft.core.time import micros
from weft.errors import JournalError
from weft.journal import children, notifications, triggers, waits
from weft.journal.firing import turn_values
from weft.journal.postgres import rows
from weft.journal.postgres.connection import CLOCK
from weft.journal.postgres.queries import run_query
from weft.journal.postgres.rows import Columns
from weft.journal.rows import FIRST_COMPLETION, STORING, ExecutionChanges, encode_json, execution_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.rows import ExecutionRow
    from weft.journal.contract import Claim
    from weft.journal.postgres.connection import Connection
    from weft.journal.rows import Values

# From so many rows on COPY is quicker, though it takes round trips of its own: the cancel of an execution
# with 5,000 unsettled nodes takes 0.30 s instead of 0.48 s. And no statement is to take longer than a moment.
_COPIED_ROWS = 1_000
# An execution is stored with so many of its events: it was created, and started.
_FIRST_EVENTS = 2
MAX_ROWS = 5_000


class Piece:
    """A statement about many rows, which stand at the place of ``{new}``."""

    def __init__(self, sql: str, columns: Columns) -> None:
        self.sql = sql
        self.columns = columns


def _insert(table: str, columns: Columns, conflict: str = "", further: Mapping[str, str] = {}) -> Piece:
    """``further``: other columns, with what stands for their values."""
    names, values = (", ".join((columns.listed, *some)) for some in (further, further.values()))
    return Piece(f"INSERT INTO {table} ({names}) SELECT {values} FROM {{new}} {conflict}", columns)  # noqa: S608


def _update(table: str, columns: Columns) -> Piece:
    key = columns.names[0]
    return Piece(f"UPDATE {table} SET {columns.set(1)} FROM {{new}} WHERE {table}.{key} = new.{key}", columns)  # noqa: S608


# Few rows that are not plain completions stand for an event: of these the execution is looked for.
_PAGE = f"""
    CASE WHEN recorded_at IS NOT NULL
        AND (SELECT total FROM executions WHERE number = new.execution) > {rows.PAGE_EVENTS}
    THEN seq / {rows.PAGE_EVENTS} END
"""  # noqa: S608
_ADD_COMPLETED = _insert("nodes", rows.COMPLETED_NODE, further=FIRST_COMPLETION)
_ADD_PAGED = _insert(
    "nodes", rows.COMPLETED_NODE, further={**FIRST_COMPLETION, "page": f"seq / {rows.PAGE_EVENTS}"}
)
_ADD_NODES = _insert("nodes", rows.NODE, further={"page": _PAGE})
_PUT_NODES = _insert(
    "nodes",
    rows.NODE,
    f"ON CONFLICT (execution, node_id) DO UPDATE SET {rows.NODE.set(2, 'excluded')}, page = excluded.page",
    {"page": _PAGE},
)
_PUT_COUNTERS = _update("progress", rows.COUNTERS)
_PUT_PROGRESS = _update("progress", rows.PROGRESS)
_ADD_EVENTS = _insert("recorded_events", rows.EVENT)
_ADD_LETTERS = _insert("dead_letters", rows.LETTER)
_ADD_FAILURES = _insert("failures", rows.FAILURE, "ON CONFLICT DO NOTHING")
# The first move of a letter counts: behind it the letter is open no more.
_MOVE_LETTERS = Piece(
    """
    UPDATE dead_letters SET state = moved.state FROM (
        SELECT DISTINCT ON (open.id) open.id, new.state
        FROM (SELECT *, row_number() OVER () AS place FROM {new}) AS new
        JOIN dead_letters AS open ON open.execution = new.execution AND open.state = 'open'
            AND (new.node_id IS NULL OR open.node_id = new.node_id)
        ORDER BY open.id, new.place
    ) AS moved
    WHERE dead_letters.id = moved.id AND dead_letters.state = 'open'
    """,
    Columns(execution="bigint", node_id="text", state="text"),
)
_ADD_NOTIFICATIONS = _insert("notifications", rows.NOTIFICATION)
_END_NOTIFICATIONS = Piece(
    """
    UPDATE notifications SET due_at = NULL, state = new.state, ended_at = new.ended_at, error = new.error
    FROM {new} WHERE notifications.id = new.id AND notifications.execution = new.execution
        AND notifications.state = 'pending'
    """,
    rows.ENDED_NOTIFICATION,
)
_PUT_WAITS = _insert(
    "waits", rows.WAIT, f"ON CONFLICT (execution, node_id) DO UPDATE SET {rows.WAIT.set(2, 'excluded')}"
)
_SETTLE_WAITS = Piece(
    "UPDATE waits SET settled_at = new.settled_at FROM {new}"
    " WHERE waits.execution = new.execution AND waits.node_id = new.node_id",
    rows.SETTLED_WAIT,
)
_DROP_WAITS = Piece(
    "DELETE FROM waits USING {new} WHERE waits.execution = new.execution AND waits.node_id = new.node_id",
    rows.WAIT_KEY,
)
_ADD_SIGNALS = _insert("signals", rows.SIGNAL)
_TAKE_SIGNALS = Piece(
    "DELETE FROM signals USING {new} WHERE signals.execution = new.execution AND signals.number = new.number",
    rows.SIGNAL_KEY,
)
_ADD_LATE_ANSWERS = _insert("late_answers", rows.LATE_ANSWER)
_ADD_CHILDREN = _insert("children", rows.CHILD)
_MOVE_CHILDREN = _update("children", rows.MOVED_CHILD)
_TELL_CHILDREN = Piece(
    "UPDATE children SET phase = 'told' FROM {new} JOIN executions ON executions.id = new.child"
    " WHERE children.execution = executions.number AND children.parent = new.execution"
    " AND children.phase = 'ended'",
    rows.TOLD_CHILD,
)
_PUT_CACHE = _insert("cache", rows.CACHE, f"ON CONFLICT (key) DO UPDATE SET {rows.CACHE.set(1, 'excluded')}")

# The statement locks the definitions, so that no purge removes them, and adds nothing where one is missing.
# Executions get their numbers before the insert, so that the first events find them by a set of numbers:
# PostgreSQL would join the two in a loop, which took most of the time.
_DEFINITIONS = f"${1 + rows.NEW_EXECUTION.width}::text[]"
_SUBMIT = f"""
    WITH kept AS MATERIALIZED (
        SELECT digest FROM definitions WHERE digest = ANY({_DEFINITIONS}) ORDER BY digest FOR KEY SHARE
    ), numbered AS MATERIALIZED (
        SELECT nextval('executions_number_seq') AS number, new.* FROM {rows.NEW_EXECUTION.unnested(1)}
        WHERE (SELECT count(*) FROM kept) = cardinality({_DEFINITIONS})
    ), added AS (
        INSERT INTO executions (number, {rows.EXECUTION.listed}) OVERRIDING SYSTEM VALUE
        SELECT number, {rows.EXECUTION.listed} FROM numbered
        ON CONFLICT (id) DO NOTHING
        RETURNING number, id
    ), begun AS (
        INSERT INTO progress (execution, namespace, created_at, id, state, generation, epoch, unsettled,
            failed, skipped, cancelled, seq, started_at, deadline_at, updated_at, lane_name, group_name,
            parent)
        SELECT number, namespace, created_at, id, state, 1, 1, total, 0, 0, 0, seq, started_at, deadline_at,
            created_at, lane, group_name, parent
        FROM numbered WHERE (number IN (SELECT number FROM added)) IS TRUE
    ), told AS (
        INSERT INTO recorded_events (execution, seq, body)
        SELECT number, told.seq, told.body
        FROM numbered, LATERAL (VALUES (1, created_body), (2, started_body)) AS told (seq, body)
        WHERE told.body IS NOT NULL AND (number IN (SELECT number FROM added)) IS TRUE
    )
    SELECT {CLOCK}, array_agg(number), array_agg(id) FROM added
"""  # noqa: S608
_LABEL = f"""
    INSERT INTO labels (namespace, key, value, created_at, id, execution)
    SELECT new.namespace, new.key, new.value, new.created_at, new.id, number
    FROM {rows.LABEL.unnested(1)} JOIN executions ON executions.id = new.id
"""  # noqa: S608


_CURRENT = f"""
    current AS (
        SELECT execution FROM progress
        WHERE execution = ANY($1::text::bigint[])
            AND ((execution, seq, epoch) IN (SELECT * FROM {rows.VERSION.unnested(1)})) IS TRUE
        ORDER BY execution FOR UPDATE
    )
"""  # noqa: S608
_CURRENT_ANSWER = f"{CLOCK}, ARRAY(SELECT execution FROM current)"  # noqa: S608
# Not a join: of many rows with many executions it would be made in a loop.
_IF_CURRENT = "(SELECT * FROM {new} WHERE (execution IN (SELECT execution FROM current)) IS TRUE) AS new"


@cache
def _statement(pieces: tuple[Piece, ...], *, if_current: bool = False) -> str:
    """Return one statement of all pieces; ``if_current``: its first values are versions of executions."""
    parts, first = ([_CURRENT], 1 + rows.VERSION.width) if if_current else ([], 1)
    for place, piece in enumerate(pieces):
        new = piece.columns.unnested(first)
        if if_current:
            new = _IF_CURRENT.format(new=new)
        parts.append(f"part_{place} AS ({piece.sql.format(new=new)})")
        first += piece.columns.width
    answer = _CURRENT_ANSWER if if_current else ""
    return f"WITH {', '.join(parts)} SELECT {answer}"


async def write_if_current(connection: Connection, changes: Changes) -> tuple[int, set[int]] | None:
    """Write the changes of executions that are still as they were judged: a transaction of its own.

    Return the database's time, and the numbers of these executions; None: it is too much for one statement.
    """
    with STORING:
        versions = []
        for change in changes.executions.values():
            before = change.live.row
            versions.append((change.live.number, before.seq, before.epoch))
        versions.sort()
        values = rows.VERSION.parameters(versions)
        chosen = []
        for piece, new in _pieces(changes).items():
            if len(new) > MAX_ROWS:
                return None
            if new:
                chosen.append(piece)
                values += piece.columns.parameters(new)
    clock, current = await connection.fetchrow(_statement(tuple(chosen), if_current=True), *values)
    return clock, set(current)


async def write(connection: Connection, changes: Changes, now: int) -> None:
    """Write the changes of executions that are locked."""
    with STORING:
        pieces = _pieces(changes)
    # The last of a key counts, and a statement may not put a row twice.
    cache = {key: (key, output, blob, now + micros(ttl)) for key, output, blob, ttl in changes.cache}
    pieces[_PUT_CACHE] = list(cache.values())
    await _write_pieces(connection, pieces)
    if changes.joined:
        numbers = {id_: change.live.number for id_, change in changes.executions.items()}
        await run_query(connection, triggers.put_turns(turn_values(changes.joined, numbers)))


async def add_kept(connection: Connection, changes: Changes, numbers: Mapping[str, int]) -> None:
    """Store the rows that forks keep, behind their executions and in the same transaction."""
    forks = {id_: change for id_, change in changes.executions.items() if change.is_new and change.rows}
    if not forks:
        return
    for execution_id, change in forks.items():
        change.live.number = numbers[execution_id]
    kept = Changes(changes.now)
    kept.executions = forks
    kept.events = [event for event in changes.events if event.execution in forks]
    with STORING:
        pieces = _pieces(kept)
    pieces[_PUT_COUNTERS] = [
        (change.live.number, row.unsettled, row.failed, row.skipped, row.seq, row.updated_at)
        for change in forks.values()
        if (row := change.row)
    ]
    await _write_pieces(connection, pieces)


async def add_children(connection: Connection, changes: Changes) -> dict[str, int]:
    """Store the children that events have created, in the same transaction; return their numbers."""
    new = [change for change in changes.executions.values() if change.is_new]
    if not new:
        return {}
    _, numbers = await add_executions(connection, changes, {})
    if len(numbers) < len(new):
        raise JournalError("a child was stored by another process in this moment; it is decided anew")
    for change in new:
        change.live.number = numbers[change.row.id]
    await _write_pieces(connection, {_ADD_CHILDREN: children.new_values(changes, new)})
    return numbers


async def _write_pieces(connection: Connection, pieces: dict[Piece, list[Values]]) -> None:
    for piece, table in ((_ADD_EVENTS, "recorded_events"), (_ADD_NODES, "nodes")):
        new = pieces.get(piece, ())
        # COPY knows no page, which is the number of an event.
        if len(new) >= _COPIED_ROWS and (piece is _ADD_EVENTS or not any(map(rows.stands_for_event, new))):
            for start in range(0, len(new), MAX_ROWS):
                some = new[start : start + MAX_ROWS]
                await connection.copy_records_to_table(table, records=some, columns=piece.columns.names)
            del pieces[piece]
    while chosen := tuple(piece for piece, new in pieces.items() if new):
        values: list[Any] = []
        for piece in chosen:
            # All moves of letters are in the first statement, which does not see the letters that are new.
            most = len(pieces[piece]) if piece is _MOVE_LETTERS else MAX_ROWS
            with STORING:
                values += piece.columns.parameters(pieces[piece][:most])
            del pieces[piece][:most]
        await connection.execute(_statement(chosen), *values)


def _pieces(changes: Changes) -> dict[Piece, list[Values]]:
    """Return the values of everything that is to be written, but for cached outputs."""
    executions = changes.executions
    changed = ExecutionChanges(executions.values(), encode_json, wide=rows.PAGE_EVENTS)
    pieces: dict[Piece, list[Values]] = {
        _PUT_COUNTERS: changed.counted,
        _PUT_PROGRESS: changed.moved,
        _ADD_COMPLETED: changed.completed,
        _ADD_PAGED: changed.completed_in_wide,
        _ADD_NODES: [*map(rows.storable, changed.added)],
        _PUT_NODES: [*map(rows.storable, changed.overwritten)],
    }
    if changes.events or changes.overwritten:
        pieces[_ADD_EVENTS] = [
            rows.event_values(executions[event.execution].live.number, event)
            for event in (*changes.overwritten, *changes.events)
            # The first events of a new execution are stored with it.
            if event.seq > _FIRST_EVENTS or not executions[event.execution].is_new
        ]
        pieces[_ADD_FAILURES] = [
            values
            for event in changes.events
            for values in rows.failure_values(executions[event.execution], event)
        ]
    if changes.letters:
        pieces[_ADD_LETTERS] = [
            rows.letter_values(change.live.number, change.row.namespace, letter)
            for letter in changes.letters
            if (change := executions[letter.execution_id])
        ]
    if changes.letter_states:
        pieces[_MOVE_LETTERS] = [
            (executions[id_].live.number, node_id, state) for id_, node_id, state in changes.letter_states
        ]
    if changes.notifications:
        pieces[_ADD_NOTIFICATIONS] = notifications.new_values(changes)
    if changes.notification_ends:
        pieces[_END_NOTIFICATIONS] = notifications.ended_values(changes)
    if changes.touches_waits:
        waiting = waits.written_values(changes)
        pieces[_PUT_WAITS] = waiting.started
        pieces[_SETTLE_WAITS] = waiting.settled
        pieces[_DROP_WAITS] = waiting.gone
        pieces[_ADD_SIGNALS] = waiting.kept
        pieces[_TAKE_SIGNALS] = waiting.taken
        pieces[_ADD_LATE_ANSWERS] = waiting.late
    if changes.touches_children:
        kept = children.written_values(changes)
        pieces[_MOVE_CHILDREN] = kept.moved
        pieces[_TELL_CHILDREN] = kept.told
    return pieces


async def add_executions(
    connection: Connection, changes: Changes, places: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """Store new executions, with their first events, if their definitions are there.

    Return the database's time and the numbers of those that were added: an execution that was stored since
    it was looked for has none. ``places`` are those in a batch. Up to MAX_ROWS executions without labels
    take one statement, which may be a transaction by itself.
    """
    values = _new_values(changes, places)
    with STORING:
        labels = [values for row in _in_order(changes) for values in rows.label_values(row)]
    digests = sorted({change.row.digest for change in changes.executions.values() if change.is_new})
    clock, added = 0, dict[str, int]()
    for start in range(0, len(values), MAX_ROWS):
        with STORING:
            parameters = rows.NEW_EXECUTION.parameters(values[start : start + MAX_ROWS])
        clock, numbers, ids = await connection.fetchrow(_SUBMIT, *parameters, digests)
        added.update(zip(ids or (), numbers or (), strict=True))
    if len(added) == len(values):
        for start in range(0, len(labels), MAX_ROWS):
            await connection.execute(_LABEL, *rows.LABEL.parameters(labels[start : start + MAX_ROWS]))
    return clock, added


def _in_order(changes: Changes) -> list[ExecutionRow]:
    """Return new executions ordered by id: two processes that store the same ones cannot deadlock."""
    new = [change.row for change in changes.executions.values() if change.is_new]
    return sorted(new, key=lambda row: row.id)


def _new_values(changes: Changes, places: Mapping[str, int]) -> list[Values]:
    with STORING:
        bodies = {(event.execution, event.seq): rows.event_values(0, event)[-1] for event in changes.events}
        return [
            (
                *execution_values(row, places.get(row.id), encode_json(row.labels)),
                row.state,
                row.seq,
                row.started_at,
                row.deadline_at,
                None if row.parent is None else encode_json(row.parent),
                bodies[row.id, 1],
                bodies.get((row.id, 2)),
                row.group_name,
            )
            for row in _in_order(changes)
        ]


async def lock_definitions(connection: Connection, digests: Iterable[str]) -> set[str]:
    """Lock definitions against the purge until the commit; return those that exist."""
    found = await connection.fetch(
        "SELECT digest FROM definitions WHERE digest = ANY($1) ORDER BY digest FOR KEY SHARE", sorted(digests)
    )
    return {digest for (digest,) in found}


async def take_claims(connection: Connection, claims: Sequence[Claim], now: int) -> set[int]:
    """Take idempotency keys; return the indexes of those that were free.

    Waits for a transaction that is taking one of the same keys.
    """
    found = await connection.fetch(
        """
        INSERT INTO idempotency_keys
        SELECT new.namespace, new.key, new.request_digest, new.resource, $5
        FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
            WITH ORDINALITY AS new (namespace, key, request_digest, resource, place)
        ORDER BY new.namespace, new.key, new.place
        ON CONFLICT DO NOTHING RETURNING namespace, key
        """,
        [claim.namespace for claim in claims],
        [claim.key for claim in claims],
        [claim.request_digest for claim in claims],
        [claim.resource for claim in claims],
        now,
    )
    free = {(namespace, key) for namespace, key in found}
    taken = set()
    for place, claim in enumerate(claims):
        if (claim.namespace, claim.key) in free:
            free.remove((claim.namespace, claim.key))
            taken.add(place)
    return taken


async def drop_claim(connection: Connection, claim: Claim) -> None:
    """Delete the claim of a key that this transaction has taken."""
    await connection.execute(
        "DELETE FROM idempotency_keys WHERE namespace = $1 AND key = $2", claim.namespace, claim.key
    )
