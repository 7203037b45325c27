"""Letting go of old executions, in transactions so short that a result never waits long for one.

The first step takes executions out of sight, whole: their own rows go, and their numbers are noted in
``purging``. Their nodes, events and dead letters follow, some at a time; nothing finds them any more, because
all of them are found by way of the execution. What a crash leaves of them is removed by the next purge.

Several processes may purge at once: none waits for a row that another one holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.journal.postgres_queries import changed_rows
from weft.journal.postgres_rows import CLOCK
from weft.journal.queries import UNNAMED_DEFINITION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.journal.postgres_connection import Connection

# One step removes no more rows of a table.
_MAX_ROWS = 1_000
# Each is larger than what would lie in its node's row.
_MAX_BLOBS = 50

_HIDE = """
    WITH hidden AS (
        DELETE FROM executions WHERE number = ANY($1) RETURNING number, id, digest
    ), noted AS (
        INSERT INTO purging SELECT number FROM hidden
    ), ended AS (
        DELETE FROM progress WHERE execution = ANY($1)
    ), unlabelled AS (
        DELETE FROM labels WHERE execution = ANY($1)
    ), unclaimed AS (
        DELETE FROM idempotency_keys WHERE resource IN (SELECT 'execution/' || id FROM hidden)
    )
    SELECT DISTINCT digest FROM hidden
"""


async def hide_some(connection: Connection, finished_before: int, limit: int) -> tuple[int, list[str]]:
    """Take some executions out of sight that became terminal before then.

    Gives their number, and the definitions that they named.
    """
    async with connection.transaction():
        # Somebody may record a late result of one, or retry it: it is left for the next time.
        found = await connection.fetch(
            "SELECT execution FROM progress WHERE finished_at < $1 ORDER BY finished_at, execution LIMIT $2"
            " FOR UPDATE SKIP LOCKED",
            finished_before,
            min(limit, _MAX_ROWS),
        )
        numbers = [number for (number,) in found]
        if not numbers:
            return 0, []
        digests = await connection.fetch(_HIDE, numbers)
        return len(numbers), [digest for (digest,) in digests]


async def hidden(connection: Connection) -> list[int]:
    """Give the numbers of some hidden executions of which rows may be left."""
    found = await connection.fetch("SELECT number FROM purging ORDER BY number LIMIT $1", _MAX_ROWS)
    return [number for (number,) in found]


async def remove_some(connection: Connection, numbers: Sequence[int]) -> bool:
    """Remove some of the rows that these hidden executions left; False where none are left now."""
    async with connection.transaction():
        nodes = await connection.fetch(_some("nodes", "RETURNING blob"), numbers, _MAX_ROWS)
        blobs = [blob for (blob,) in nodes if blob is not None]
        if blobs:
            await connection.execute(
                "DELETE FROM blobs WHERE name = ANY($1)"
                " AND NOT EXISTS (SELECT 1 FROM nodes WHERE blob = name"
                " AND NOT EXISTS (SELECT 1 FROM purging WHERE number = nodes.execution))"
                " AND NOT EXISTS (SELECT 1 FROM cache WHERE blob = name)",
                blobs,
            )
        events = await connection.execute(_some("recorded_events"), numbers, _MAX_ROWS)
        letters = await connection.execute(_some("dead_letters"), numbers, _MAX_ROWS)
        if nodes or (events, letters) != ("DELETE 0", "DELETE 0"):
            return True
        await connection.execute("DELETE FROM purging WHERE number = ANY($1)", numbers)
        return False


def _some(table: str, returning: str = "") -> str:
    return (
        f"DELETE FROM {table} WHERE ctid = ANY(ARRAY("  # noqa: S608
        f"SELECT ctid FROM {table} WHERE execution = ANY($1) LIMIT $2 FOR UPDATE SKIP LOCKED)) {returning}"
    )


async def drop_batches(connection: Connection, created_before: int) -> None:
    """Remove batches from before then that have no execution left."""
    await connection.execute(
        "WITH dropped AS (DELETE FROM batches WHERE id IN (SELECT id FROM batches WHERE created_at < $1"
        " AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)"
        " ORDER BY created_at, id LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING id)"
        " DELETE FROM idempotency_keys WHERE resource IN (SELECT 'batch/' || id FROM dropped)",
        created_before,
        _MAX_ROWS,
    )


async def drop_definitions(connection: Connection, digests: Sequence[str]) -> None:
    """Remove those of these definitions that nothing has come to name since they were looked for.

    They are locked first, and looked for by the next statement: whoever stores an execution locks its
    definition too, so either the execution is seen here or the missing definition there.
    """
    async with connection.transaction():
        locked = await connection.fetch(
            "SELECT digest FROM definitions WHERE digest = ANY($1) FOR UPDATE SKIP LOCKED", digests
        )
        await connection.execute(
            f"DELETE FROM definitions WHERE digest = ANY($1) AND {UNNAMED_DEFINITION}",  # noqa: S608
            [digest for (digest,) in locked],
        )


async def drop_stale(connection: Connection, now: int | None) -> int:
    """Remove some outputs that the cache gives no longer; give their number."""
    done = await connection.execute(
        "DELETE FROM cache WHERE key IN (SELECT key FROM cache WHERE good_until <= coalesce($1,"  # noqa: S608
        f" {CLOCK}) ORDER BY good_until LIMIT $2 FOR UPDATE SKIP LOCKED)",
        now,
        _MAX_ROWS,
    )
    return changed_rows(done)


async def sweep_blobs(connection: Connection, older_than: int) -> int:
    """Remove some old blobs that no row names; give their number."""
    done = await connection.execute(
        "DELETE FROM blobs WHERE name IN (SELECT name FROM blobs WHERE created_at < $1"
        " AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM cache WHERE cache.blob = blobs.name) LIMIT $2)",
        older_than,
        _MAX_BLOBS,
    )
    return changed_rows(done)
