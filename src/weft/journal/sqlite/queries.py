"""The queries that only SQLite understands, and how it runs those that both databases share."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.rows import completion_event, digest_of, own_output, without_output
from weft.errors import JournalError
from weft.journal.contract import JournalSchema
from weft.journal.migrations import read_migrations
from weft.journal.queries import Listing, blobs
from weft.journal.sqlite import rows as sqlite_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from sqlite3 import Connection

    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.journal.queries import Query

T = TypeVar("T")

# So many are joined: it bounds what is in memory twice.
_JOINED_NODES = 2000
_OUTPUT_OF_NODE = "SELECT output FROM nodes WHERE execution = ? AND node_id = ?"
_OWN_OUTPUT = (
    "SELECT output FROM nodes WHERE execution = (SELECT number FROM executions WHERE id = ?) AND node_id = ?"
)
_JOINED_EVENTS = (
    "SELECT CAST(group_concat(body, ',') AS BLOB) FROM"
    " (SELECT body FROM events WHERE execution = ? AND seq > ? AND seq <= ?{} ORDER BY seq LIMIT ?)"
)
_EVENTS = _JOINED_EVENTS.format("")
_EVENTS_OF_NODES = _JOINED_EVENTS.format(" AND json_extract(CAST(body AS TEXT), '$.node') IN ?")
# The rows of nodes that stand for an event. Few rows by their ids: SQLite would rather walk all that have a
# number.
_COMPLETED = (
    "FROM nodes INDEXED BY {} WHERE execution = ? AND seq > ? AND seq <= ?{}"
    " AND recorded_at IS NOT NULL ORDER BY seq LIMIT ?"
)
_ALL_COMPLETED = _COMPLETED.format("nodes_recorded", "")
_COMPLETED_NODES = _COMPLETED.format("sqlite_autoindex_nodes_1", " AND node_id IN ?")
# No event has a larger number.
_LAST_NUMBER = 2**63 - 1
_NUMBERED = ("executions", "purging")


def schema() -> Query[JournalSchema]:
    found = yield "SELECT user_version FROM pragma_user_version", ()
    names = list(read_migrations("sqlite"))
    return JournalSchema(database="sqlite", have=names[found[0][0] - 1], want=names[-1])


def run_query(connection: Connection, query: Query[T]) -> T:
    """Run a query. One that changes something is within the transaction of the journal's only writer."""
    answer: Any = None
    while True:
        try:
            statement = query.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        sql, values = translated(statement)
        done = connection.execute(sql, values)
        if isinstance(statement, Listing):
            answer = sqlite_rows.read_joined(done.fetchone()[0])
        else:
            answer = done.fetchall() if sql.startswith("SELECT") else done.rowcount


def translated(statement: tuple[str, tuple[Any, ...]] | Listing) -> tuple[str, list[Any]]:
    """Return a statement as SQLite understands it, and its values; rows of a listing are joined to one."""
    if isinstance(statement, Listing):
        lines = f"SELECT json_array({statement.columns}) AS line {statement.behind}"
        sql, values = f"SELECT CAST(group_concat(line, ',') AS BLOB) FROM ({lines})", statement.values  # noqa: S608
    else:
        sql, values = statement
    return _translated(sql), [
        sqlite_rows.write_json(value) if type(value) is list else value for value in values
    ]


@cache
def _translated(sql: str) -> str:
    sql = re.sub(r" FOR (UPDATE|KEY SHARE)( OF \w+)?( SKIP LOCKED)?", "", sql)
    return sql.replace(" IN ?", " IN (SELECT value FROM json_each(?))").replace("label_text(", "(")


def next_number(connection: Connection) -> int:
    """Return the number that the next new execution gets."""
    # Of one that is being purged there may still be rows: its number is not free.
    used = [connection.execute(f"SELECT max(number) FROM {table}").fetchone() for table in _NUMBERED]  # noqa: S608
    return 1 + max(last or 0 for (last,) in used)


def known(connection: Connection, execution_ids: Sequence[str]) -> set[str]:
    """Return those of the ids that the journal has an execution of."""
    sql = "SELECT id FROM executions WHERE id IN ?"
    return {id_ for (id_,) in connection.execute(*translated((sql, (list(execution_ids),))))}


def nodes(
    connection: Connection,
    number: int,
    names: Iterable[str] | None = None,
    *,
    execution_id: str | None = None,
    columns: str = sqlite_rows.NODE_COLUMNS,
) -> dict[str, NodeRow]:
    """Read the rows of an execution's nodes: of those named, or of all.

    ``execution_id``: large outputs are left out, and the rows refer to them (``core.rows.without_output``).
    ``columns``: ``NODE_STATES`` leaves all outputs out.
    """
    found: dict[str, NodeRow] = {}
    chosen, named = ("", ()) if names is None else (" AND node_id IN ?", (list(names),))
    behind = f"FROM nodes WHERE execution = ? AND node_id > ?{chosen} ORDER BY node_id LIMIT ?"
    last = ""
    while True:
        values = (number, last, *named, _JOINED_NODES)
        page = run_query(connection, _nodes(behind, values, execution_id, columns))
        found.update((row.node_id, row) for row in page)
        if len(page) < _JOINED_NODES:
            return found
        last = max(row.node_id for row in page)


def _nodes(
    behind: str,
    values: tuple[Any, ...],
    execution_id: str | None = None,
    columns: str = sqlite_rows.NODE_COLUMNS,
) -> Query[list[NodeRow]]:
    """Read rows of nodes of the execution that is the first value; large outputs are read one by one.

    Those of ``execution_id`` are let go again at once.
    """
    found = []
    for node in (yield Listing(columns, behind, values)):
        output = None
        if node[-1]:
            ((output,),) = yield _OUTPUT_OF_NODE, (values[0], node[0])
        row = sqlite_rows.read_node(node, output)
        found.append(row if output is None or execution_id is None else without_output(execution_id, row))
    return found


def nodes_of(
    connection: Connection,
    execution_id: str,
    names: Iterable[str] | None,
    *,
    columns: str = sqlite_rows.NODE_COLUMNS,
) -> dict[str, NodeRow]:
    connection.execute("BEGIN")  # all of it as of one commit
    try:
        number = connection.execute("SELECT number FROM executions WHERE id = ?", (execution_id,)).fetchone()
        return {} if number is None else nodes(connection, number[0], names, columns=columns)
    finally:
        connection.execute("ROLLBACK")


def node_states(connection: Connection, execution_id: str, names: Iterable[str] | None) -> dict[str, NodeRow]:
    """Read the rows of an execution's nodes, all or those named, without outputs."""
    return nodes_of(connection, execution_id, names, columns=sqlite_rows.NODE_STATES)


def events(
    connection: Connection, execution_id: str, after: int, limit: int, nodes: Collection[str] | None
) -> list[History]:
    """Read a page of the history: event rows, and the rows of nodes that stand for an event."""
    # Numbers have no gaps: without a choice of nodes, these are the page.
    place: list[Any] = [after, after + limit if nodes is None else _LAST_NUMBER]
    chosen, completed = _EVENTS, _ALL_COMPLETED
    if nodes is not None:
        chosen, completed = _EVENTS_OF_NODES, _COMPLETED_NODES
        place.append(list(nodes))
    connection.execute("BEGIN")  # all of it as of one commit
    try:
        found = connection.execute("SELECT number FROM executions WHERE id = ?", (execution_id,)).fetchone()
        if found is None:
            return []
        arguments = (*found, *place, limit)
        (joined,) = connection.execute(*translated((chosen, arguments))).fetchone()
        history = sqlite_rows.read_events(joined)
        history += run_query(connection, _completions(completed, arguments, execution_id))
    finally:
        connection.execute("ROLLBACK")
    history.sort(key=lambda event: event.seq)
    return history[:limit]


def _completions(behind: str, values: tuple[Any, ...], execution_id: str) -> Query[list[History]]:
    """Read the rows of nodes that stand for an event, as that; one large output is in memory at a time."""
    found = []
    for node in (yield Listing(sqlite_rows.NODE_COLUMNS, behind, values)):
        output = None
        if node[-1]:
            ((output,),) = yield _OUTPUT_OF_NODE, (values[0], node[0])
        row = sqlite_rows.read_node(node, output)
        found.append(completion_event(execution_id, row, digest_of(row.output)))
    return found


def batch_results(
    connection: Connection, batch_id: str, after: int, limit: int, most_bytes: int
) -> list[tuple[int, ExecutionRow]]:
    return run_query(connection, _batch_results(batch_id, after, limit, most_bytes))


def _batch_results(
    batch_id: str, after: int, limit: int, most_bytes: int
) -> Query[list[tuple[int, ExecutionRow]]]:
    joined = yield Listing(
        sqlite_rows.RESULT_COLUMNS,
        "FROM executions JOIN progress ON execution = number"
        " WHERE batch = ? AND batch_index > ? ORDER BY batch_index LIMIT ?",
        (batch_id, after, limit),
    )
    found = []
    # Joined rows have no order that SQLite promises.
    for *values, index, is_large in sorted(joined, key=lambda line: line[-2]):
        output = None
        if is_large:
            ((output,),) = yield "SELECT output FROM progress WHERE execution = ?", (values[0],)
        row = sqlite_rows.read_result(values, output)
        found.append((index, row))
        most_bytes -= len(row.output or b"")
        if most_bytes <= 0:
            break
    return found


def payloads(connection: Connection, names: list[str]) -> dict[str, bytes]:
    """Read blobs, and outputs that rows in memory refer to."""
    own = {name: reference for name in names if (reference := own_output(name)) is not None}
    found = run_query(connection, blobs([name for name in names if name not in own]))
    for name, reference in own.items():
        for (output,) in connection.execute(_OWN_OUTPUT, reference):
            if output is not None:
                found[name] = output
    return found


def blob(connection: Connection, name: str) -> bytes:
    payload = payloads(connection, [name]).get(name)
    if payload is None:
        raise JournalError(f"the journal has no blob {name}, though a row names it")
    return payload
