"""The queries that only PostgreSQL understands, and how it runs those that both databases share."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from weft.journal import rows
from weft.journal.contract import JournalSchema
from weft.journal.migrations import read_migrations
from weft.journal.postgres import rows as postgres_rows
from weft.journal.postgres.connection import CLOCK
from weft.journal.queries import Listing

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.journal.postgres.connection import Connection
    from weft.journal.queries import Query

T = TypeVar("T")

_EXECUTIONS = f"SELECT {rows.EXECUTION_COLUMNS} FROM executions JOIN progress ON execution = number"  # noqa: S608
_LEAN_EXECUTIONS = _EXECUTIONS.replace(rows.EXECUTION_COLUMNS, rows.LEAN_COLUMNS)
_RESULT_COLUMNS = rows.EXECUTION_COLUMNS.replace("executions.input", "NULL")
# The length of an output is known without reading it: the outputs behind the last of the page are not read.
_RESULTS = f"""
    SELECT {_RESULT_COLUMNS}, batch_index FROM (
        SELECT listed, place, coalesce(sum(octet_length(output)) OVER (
            ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS bytes_before
        FROM (
            SELECT number AS listed, batch_index AS place FROM executions
            WHERE batch = $1 AND batch_index > $2 ORDER BY batch_index LIMIT $3
        ) AS page JOIN progress ON execution = listed
    ) AS page
    JOIN executions ON number = listed JOIN progress ON execution = number
    WHERE bytes_before < $4 ORDER BY place
"""  # noqa: S608
_NUMBER = "(SELECT number FROM executions WHERE id = $1)"
# Rows in one answer: while they are read into Python, nothing else is done there.
_PAGE_ROWS = 2_000
# Outputs that are digested by one statement: each may be large.
_DIGESTS = 200

# One row for each row of a node that is wanted, found or not. Every execution is wanted at least once, if
# only with the name of no node.
_WANTED = f"""
    SELECT progress.execution, {rows.PROGRESS_COLUMNS},
        (SELECT {CLOCK}), (SELECT pg_current_xact_id()::text),
        wanted.node_id, CASE WHEN nodes.node_id IS NOT NULL THEN ROW({rows.NODE_COLUMNS}) END
    FROM {postgres_rows.WANTED.unnested(1, "wanted")}
    JOIN progress ON progress.execution = wanted.execution
    LEFT JOIN nodes ON nodes.execution = wanted.execution AND nodes.node_id = wanted.node_id
"""  # noqa: S608
_EVENTS = f"""
    SELECT {postgres_rows.EVENT_COLUMNS} FROM recorded_events
    WHERE execution = {_NUMBER} AND seq > $2::bigint AND seq <= $3::bigint
    UNION ALL
    SELECT {postgres_rows.COMPLETION_COLUMNS} FROM nodes
    WHERE execution = (SELECT number FROM executions WHERE id = $1 AND total <= {postgres_rows.PAGE_EVENTS})
        AND seq > $2::bigint AND seq <= $3::bigint AND recorded_at IS NOT NULL
    UNION ALL
    SELECT {postgres_rows.COMPLETION_COLUMNS} FROM nodes
    WHERE execution = (SELECT number FROM executions WHERE id = $1 AND total > {postgres_rows.PAGE_EVENTS})
        AND page >= $2::bigint / {postgres_rows.PAGE_EVENTS}
        AND page <= $3::bigint / {postgres_rows.PAGE_EVENTS}
        AND seq > $2::bigint AND seq <= $3::bigint
"""  # noqa: S608
# Node by node (OFFSET 0 keeps it so): planned while the table is small, ``= ANY`` or a join would walk all
# rows of the execution, and go on to do so when it has grown.
_EVENTS_OF_NODES = f"""
    (SELECT {postgres_rows.EVENT_COLUMNS} FROM recorded_events
    WHERE execution = {_NUMBER} AND seq > $2::bigint AND node_id = ANY($4) ORDER BY seq LIMIT $3)
    UNION ALL
    SELECT {postgres_rows.COMPLETION_COLUMNS} FROM unnest($4::text[]) AS wanted (node_id), LATERAL (
        SELECT * FROM nodes WHERE execution = {_NUMBER} AND nodes.node_id = wanted.node_id OFFSET 0
    ) AS nodes
    WHERE seq > $2::bigint AND recorded_at IS NOT NULL
"""  # noqa: S608
# A value with U+0000, which text cannot hold, has no text that is searched.
_LABEL_TEXT = (
    r"CASE WHEN position('\\x00'::bytea IN \1) = 0 THEN convert_from(\1, 'UTF8')"
    r' COLLATE "C" END'
)
WANTED_CLOCK = 1 + len(rows.PROGRESS)
WANTED_NAME = WANTED_CLOCK + 2
WANTED_NODE = WANTED_CLOCK + 3


def schema() -> Query[JournalSchema]:
    found = yield "SELECT max(name) FROM migrations", ()
    return JournalSchema(database="postgresql", have=found[0][0], want=max(read_migrations("postgres")))


async def run_query(connection: Connection, query: Query[T]) -> T:
    """Run a query."""
    answer: Any = None
    while True:
        try:
            statement = query.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        sql, values = translated(statement)
        if sql.startswith("SELECT"):
            answer = await connection.fetch(sql, *values)
        else:
            answer = changed_rows(await connection.execute(sql, *values))


async def run_transaction(connection: Connection, query: Query[T]) -> T:
    """Run a query that changes something, as a transaction."""
    async with connection.transaction():
        return await run_query(connection, query)


def translated(statement: tuple[str, tuple[Any, ...]] | Listing) -> tuple[str, tuple[Any, ...]]:
    """Return a statement as PostgreSQL understands it, and its values."""
    if isinstance(statement, Listing):
        return _translated(f"SELECT {statement.columns} {statement.behind}"), statement.values
    return _translated(statement[0]), statement[1]


@cache
def _translated(sql: str) -> str:
    sql = re.sub(r" INDEXED BY \w+", "", sql).replace("CROSS JOIN", "JOIN")
    # As text, both ways: the driver takes a tuple among the values of an array for another array.
    sql = sql.replace("rowid IN ?", "ctid = ANY(?::text[]::tid[])").replace("rowid", "ctid::text")
    sql = sql.replace(" IN ?", " = ANY(?)").replace("instr(", "strpos(")
    sql = re.sub(r"label_text\(([\w.]+)\)", _LABEL_TEXT, sql)
    first, *others = sql.split("?")
    return first + "".join(f"${number}{other}" for number, other in enumerate(others, 1))


def changed_rows(done: str) -> int:
    """Return how many rows a statement has changed, from the command tag of PostgreSQL."""
    return int(done.split()[-1])


async def wanted(connection: Connection, values: Sequence[tuple[int, str]]) -> Any:
    """Read executions by their numbers, and some rows of theirs with them."""
    return await connection.fetch(_WANTED, *postgres_rows.WANTED.parameters(values)) if values else []


async def executions(
    connection: Connection, ids: Collection[str], *, lean: bool = False
) -> list[tuple[int, ExecutionRow]]:
    """Read executions whole, with their numbers; ``lean``: without large inputs (``b""``)."""
    select = _LEAN_EXECUTIONS if lean else _EXECUTIONS
    found = await connection.fetch(f"{select} WHERE executions.id = ANY($1)", list(ids))
    return [(values[0], rows.read_execution(values)) for values in found]


async def nodes(
    connection: Connection, number: int, names: Collection[str] | None = None, *, states_only: bool = False
) -> dict[str, NodeRow]:
    """Read rows of an execution's nodes, all or those named; ``states_only``: without outputs.

    They are read in pages, so they are those of one commit only under its lock, or in one snapshot.
    """
    found: dict[str, NodeRow] = {}
    last = ""
    while True:
        page = await _nodes_page(connection, "$1", number, last, names, states_only=states_only)
        found |= page
        if len(page) < _PAGE_ROWS:
            return found
        last = next(reversed(page))


async def _nodes_page(
    connection: Connection,
    execution: str,
    key: int | str,
    last: str,
    names: Collection[str] | None,
    *,
    states_only: bool = False,
) -> dict[str, NodeRow]:
    """Read the rows behind the last name that was read; ``execution``: its number, made of the key."""
    columns = postgres_rows.NODE_STATES if states_only else rows.NODE_COLUMNS
    chosen = "" if names is None else " AND node_id = ANY($4)"
    wanted = () if names is None else ([name for name in names if "\0" not in name],)
    page = await connection.fetch(
        f"SELECT {columns} FROM nodes WHERE execution = {execution} AND node_id > $2{chosen}"  # noqa: S608
        " ORDER BY node_id LIMIT $3",
        key,
        last,
        _PAGE_ROWS,
        *wanted,
    )
    return {values[0]: rows.read_node(values) for values in page}


async def all_nodes(connection: Connection, numbers: Sequence[int]) -> dict[int, dict[str, NodeRow]]:
    """Read all rows of the nodes of executions that have not many."""
    found = await connection.fetch(
        f"SELECT {rows.NODE_COLUMNS}, execution FROM nodes WHERE execution = ANY($1)",  # noqa: S608
        numbers,
    )
    of_execution: dict[int, dict[str, NodeRow]] = {number: {} for number in numbers}
    for values in found:
        of_execution[values[-1]][values[0]] = rows.read_node(values)
    return of_execution


async def nodes_of(
    connection: Connection, execution_id: str, names: Collection[str] | None, *, states_only: bool = False
) -> dict[str, NodeRow]:
    # Most have few: one statement reads them, and sees one commit.
    page = await _nodes_page(connection, _NUMBER, execution_id, "", names, states_only=states_only)
    if len(page) < _PAGE_ROWS:
        return page
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        number = await connection.fetchval(f"SELECT {_NUMBER}", execution_id)
        return {} if number is None else await nodes(connection, number, names, states_only=states_only)


async def node_states(
    connection: Connection, execution_id: str, names: Collection[str] | None
) -> dict[str, NodeRow]:
    """Read the rows of an execution's nodes, all or those named, without outputs."""
    return await nodes_of(connection, execution_id, names, states_only=True)


async def event_at(connection: Connection, execution_id: str, seq: int) -> History | None:
    """Read one event."""
    found = await events(connection, execution_id, seq - 1, 1, None)
    return found[0] if found else None


async def events(
    connection: Connection, execution_id: str, after: int, limit: int, nodes: Collection[str] | None
) -> list[History]:
    """Read a page of the history: event rows, and the rows of nodes that stand for an event.

    One statement, so that all of it is as of one commit.
    """
    if nodes is None:
        # Numbers have no gaps: these are the page.
        found = await connection.fetch(_EVENTS, execution_id, after, after + limit)
    else:
        names = [name for name in set(nodes) if "\0" not in name]
        found = await connection.fetch(_EVENTS_OF_NODES, execution_id, after, limit, names)
    history = [postgres_rows.read_event(execution_id, values) for values in found]
    history.sort(key=lambda event: event.seq)
    return history[:limit]


async def output_digests(connection: Connection, number: int, names: Collection[str]) -> dict[str, str]:
    """Read the digests of outputs, without the outputs."""
    left = list(names)
    digests: dict[str, str] = {}
    while left:
        found = await connection.fetch(
            "SELECT node_id, sha256(output) FROM nodes WHERE execution = $1 AND node_id = ANY($2)",
            number,
            left[:_DIGESTS],
        )
        digests.update((node_id, digest.hex()) for node_id, digest in found)
        del left[:_DIGESTS]
    return digests


async def batch_results(
    connection: Connection, batch_id: str, after: int, limit: int, most_bytes: int
) -> list[tuple[int, ExecutionRow]]:
    found = await connection.fetch(_RESULTS, batch_id, after, limit, most_bytes)
    return [(values[-1], rows.read_execution(values)) for values in found]


async def signing_key(connection: Connection, new: bytes) -> bytes:
    """Return the key of this journal; ``new`` becomes its key if it has none yet."""
    await connection.execute("INSERT INTO seal (key) VALUES ($1) ON CONFLICT DO NOTHING", new)
    key: bytes = await connection.fetchval("SELECT key FROM seal")
    return key
