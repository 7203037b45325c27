"""Letting go of old executions, in steps so small that a result never waits long for one.

The first step takes executions out of sight, whole: their own rows go, and their numbers are noted in
``purging``. Their nodes, events and dead letters follow, some at a time; nothing finds them any more, because
all of them are found by way of the execution. What a crash leaves of them is removed by the next purge.

Each step is a few statements over many rows: for every statement, as for every row that is read, the thread
may have to wait for Python's lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.journal.queries import UNNAMED_DEFINITION

if TYPE_CHECKING:
    from collections.abc import Sequence
    from sqlite3 import Connection

# One step removes no more rows of a table, and no more payload but for the last row of it.
_MAX_ROWS = 500
_MAX_BYTES = 16 * 1024 * 1024
# Each is larger than what would lie in its node's row.
_MAX_BLOBS = 20

_OLD_EXECUTIONS = """
    SELECT number, sum(bytes) OVER (ORDER BY finished_at, number ROWS UNBOUNDED PRECEDING) - bytes AS ahead
    FROM (
        SELECT number, finished_at, length(input) + ifnull(length(output), 0) AS bytes
        FROM progress JOIN executions ON number = execution
        WHERE finished_at < ? ORDER BY finished_at, number LIMIT ?
    )
"""
_HIDDEN_NODES = """
    SELECT nodes.rowid AS node, blob, ifnull(output_bytes, 0) AS bytes, execution, node_id
    FROM purging CROSS JOIN nodes ON execution = number ORDER BY execution, node_id LIMIT ?
"""
_EMPTY_BATCHES = """
    SELECT id FROM batches
    WHERE created_at < ? AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)
    ORDER BY created_at, id LIMIT ?
"""


def hide_some(connection: Connection, finished_before: int, limit: int) -> tuple[int, list[str]]:
    """Take some executions out of sight that became terminal before then.

    Gives their number, and the definitions that they named.
    """
    hidden = connection.execute(
        f"INSERT INTO purging SELECT number FROM ({_OLD_EXECUTIONS}) WHERE ahead <= ?",  # noqa: S608
        (finished_before, min(limit, _MAX_ROWS), _MAX_BYTES),
    ).rowcount
    if hidden == 0:
        return 0, []
    (digests,) = connection.execute(
        "SELECT group_concat(DISTINCT digest) FROM executions WHERE number IN (SELECT number FROM purging)"
    ).fetchone()
    connection.execute(
        "DELETE FROM idempotency_keys WHERE resource IN"
        " (SELECT 'execution/' || id FROM executions WHERE number IN (SELECT number FROM purging))"
    )
    for table, column in (("labels", "execution"), ("progress", "execution"), ("executions", "number")):
        connection.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT number FROM purging)")  # noqa: S608
    return hidden, digests.split(",")


def remove_some(connection: Connection) -> bool:
    """Remove some of the rows that hidden executions left; False where none are left now."""
    if connection.execute("SELECT 1 FROM purging LIMIT 1").fetchone() is None:
        return False
    removed = _remove_nodes(connection)
    for table in ("events", "dead_letters"):
        removed += connection.execute(
            f"DELETE FROM {table} WHERE rowid IN"  # noqa: S608
            f" (SELECT {table}.rowid FROM purging CROSS JOIN {table} ON execution = number LIMIT ?)",
            (_MAX_ROWS,),
        ).rowcount
    if removed:
        return True
    connection.execute("DELETE FROM purging")
    return False


def _remove_nodes(connection: Connection) -> int:
    """Remove nodes in order, so that both statements mean the same ones, and give their number."""
    (count,) = connection.execute(
        "SELECT count(*) FROM (SELECT sum(bytes) OVER"  # noqa: S608
        " (ORDER BY execution, node_id ROWS UNBOUNDED PRECEDING) - bytes AS ahead"
        f" FROM ({_HIDDEN_NODES})) WHERE ahead <= ?",
        (_MAX_ROWS, _MAX_BYTES),
    ).fetchone()
    if count:
        connection.execute(
            f"DELETE FROM blobs WHERE name IN (SELECT blob FROM ({_HIDDEN_NODES}) WHERE blob IS NOT NULL)"  # noqa: S608
            " AND NOT EXISTS (SELECT 1 FROM nodes WHERE blob = name"
            " AND execution NOT IN (SELECT number FROM purging))"
            " AND NOT EXISTS (SELECT 1 FROM cache WHERE blob = name)",
            (count,),
        )
        connection.execute(f"DELETE FROM nodes WHERE rowid IN (SELECT node FROM ({_HIDDEN_NODES}))", (count,))  # noqa: S608
    return int(count)


def drop_batches(connection: Connection, created_before: int) -> None:
    """Remove batches from before then that have no execution left."""
    connection.execute(
        f"DELETE FROM idempotency_keys WHERE resource IN (SELECT 'batch/' || id FROM ({_EMPTY_BATCHES}))",  # noqa: S608
        (created_before, _MAX_ROWS),
    )
    connection.execute(
        f"DELETE FROM batches WHERE id IN ({_EMPTY_BATCHES})",  # noqa: S608
        (created_before, _MAX_ROWS),
    )


def drop_definitions(connection: Connection, digests: Sequence[str]) -> None:
    """Remove those of these definitions that nothing has come to name since they were looked for."""
    connection.execute(
        f"DELETE FROM definitions WHERE digest IN ({','.join('?' * len(digests))}) AND {UNNAMED_DEFINITION}",  # noqa: S608
        digests,
    )


def drop_stale(connection: Connection, now: int) -> int:
    """Remove some outputs that the cache gives no longer; give their number."""
    return connection.execute(
        "DELETE FROM cache WHERE rowid IN (SELECT rowid FROM cache WHERE good_until <= ? LIMIT ?)",
        (now, _MAX_ROWS),
    ).rowcount


def sweep_blobs(connection: Connection, older_than: int) -> int:
    """Remove some old blobs that no row names; give their number."""
    return connection.execute(
        "DELETE FROM blobs WHERE rowid IN (SELECT rowid FROM blobs WHERE created_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM cache WHERE cache.blob = blobs.name) LIMIT ?)",
        (older_than, _MAX_BLOBS),
    ).rowcount
