"""Removal of old executions, in steps so small that a result never waits long for one.

The first step soft-deletes a batch of executions: their own rows go, and their numbers are noted in
``purging``. Their nodes, events and dead letters follow, some at a time; nothing finds them any more, because
all of them are found by way of the execution. What a crash leaves of them is removed by the next purge.

Each step is a transaction of a few statements over many rows. Several processes may purge a PostgreSQL
database at once: none waits for a row that another one holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.journal.queries import UNNAMED_DEFINITION, Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.journal.queries import Query

# One step removes no more rows of a table, and no more payload but for the last row of it.
_MAX_ROWS = 500
_MAX_BYTES = 16 * 1024 * 1024
# Each is larger than what would lie in its node's row.
_MAX_BLOBS = 20


def hide_some(finished_before: int, limit: int) -> Query[tuple[int, list[str]]]:
    """Soft-delete some executions that became terminal before then.

    Return their number, and the definitions that they named.
    """
    # A late result or a retry may lock an execution: the next purge takes it.
    old = Listing(
        "number, executions.id, digest, length(input) + coalesce(length(output), 0)",
        "FROM progress CROSS JOIN executions ON number = execution WHERE finished_at < ?"
        # A child goes behind its parent.
        " AND NOT EXISTS (SELECT 1 FROM children CROSS JOIN executions AS above"
        " ON above.number = children.parent WHERE children.execution = progress.execution)"
        " ORDER BY finished_at, execution LIMIT ? FOR UPDATE OF progress SKIP LOCKED",
        (finished_before, min(limit, _MAX_ROWS)),
    )
    found = _bounded((yield old))
    if not found:
        return 0, []
    numbers = [number for number, *_ in found]
    yield "INSERT INTO purging SELECT number FROM executions WHERE number IN ?", (numbers,)
    yield _drop_claims([f"execution/{id_}" for _, id_, *_ in found])
    for table, column in (("labels", "execution"), ("progress", "execution"), ("executions", "number")):
        yield f"DELETE FROM {table} WHERE {column} IN ?", (numbers,)  # noqa: S608
    return len(numbers), list({digest for _, _, digest, _ in found})


def remove_some(event_table: str) -> Query[bool]:
    """Remove some of the rows that hidden executions left; False if no hidden executions are left."""
    # Locked, so that two who purge remove the rows of different executions.
    hidden = yield Listing(
        "number", "FROM purging ORDER BY number LIMIT ? FOR UPDATE SKIP LOCKED", (_MAX_ROWS,)
    )
    if not hidden:
        return False
    numbers = [number for (number,) in hidden]
    has_removed = False
    for table, columns in (
        ("nodes", "rowid, blob, coalesce(output_bytes, 0)"),
        (event_table, "rowid, NULL, 0"),
        ("dead_letters", "rowid, NULL, 0"),
        ("failures", "rowid, NULL, 0"),
        ("notifications", "rowid, NULL, 0"),
        ("waits", "rowid, NULL, 0"),
        ("signals", "rowid, blob, output_bytes"),
        ("children", "rowid, NULL, 0"),
        ("log_chunks", "rowid, NULL, length(body)"),
        ("log_heads", "rowid, NULL, 0"),
        ("node_progress", "rowid, NULL, 0"),
    ):
        some = Listing(columns, f"FROM {table} WHERE execution IN ? LIMIT ?", (numbers, _MAX_ROWS))
        found = _bounded((yield some))
        blobs = [blob for _, blob, _ in found if blob is not None]
        if blobs:
            yield (
                "DELETE FROM blobs WHERE name IN ?"
                " AND NOT EXISTS (SELECT 1 FROM nodes WHERE blob = name"
                " AND NOT EXISTS (SELECT 1 FROM purging WHERE number = nodes.execution))"
                " AND NOT EXISTS (SELECT 1 FROM cache WHERE blob = name)"
                " AND NOT EXISTS (SELECT 1 FROM signals WHERE blob = name"
                " AND NOT EXISTS (SELECT 1 FROM purging WHERE number = signals.execution))",
                (blobs,),
            )
        if found:
            has_removed = True
            yield f"DELETE FROM {table} WHERE rowid IN ?", ([rowid for rowid, *_ in found],)  # noqa: S608
    if not has_removed:
        yield "DELETE FROM purging WHERE number IN ?", (numbers,)
    return True


def _bounded(found: Sequence[Any]) -> list[Any]:
    """Return the first of these rows; the last column of each is the size of its payload."""
    some, size = [], 0
    for row in found:
        if size > _MAX_BYTES:
            break
        some.append(row)
        size += row[-1]
    return some


def drop_batches(created_before: int) -> Query[None]:
    """Remove batches from before then that have no execution left."""
    found = yield Listing(
        "id",
        "FROM batches WHERE created_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM executions WHERE batch = batches.id)"
        " ORDER BY created_at, id LIMIT ? FOR UPDATE SKIP LOCKED",
        (created_before, _MAX_ROWS),
    )
    ids = [id_ for (id_,) in found]
    yield _drop_claims([f"batch/{id_}" for id_ in ids])
    yield "DELETE FROM batches WHERE id IN ?", (ids,)


def _drop_claims(resources: list[str]) -> tuple[str, tuple[Any, ...]]:
    return "DELETE FROM idempotency_keys WHERE resource IN ?", (resources,)


def drop_definitions(digests: list[str]) -> Query[None]:
    """Remove those of these definitions that nothing has come to name since they were looked for.

    They are locked first, and looked for by the next statement: whoever stores an execution locks its
    definition too, so either the execution is seen here or the missing definition there.
    """
    locked = yield Listing("digest", "FROM definitions WHERE digest IN ? FOR UPDATE SKIP LOCKED", (digests,))
    yield (
        f"DELETE FROM definitions WHERE digest IN ? AND {UNNAMED_DEFINITION}",  # noqa: S608
        ([digest for (digest,) in locked],),
    )


def drop_changes(before: int) -> Query[int]:
    """Remove some changes of the catalog from before then; return their number."""
    removed: int = yield (
        "DELETE FROM changes WHERE number IN (SELECT number FROM changes WHERE at < ?"
        " ORDER BY number LIMIT ? FOR UPDATE SKIP LOCKED)",
        (before, _MAX_ROWS),
    )
    return removed


def drop_stale(now: int) -> Query[int]:
    """Remove some outputs that the cache gives no longer; return their number."""
    removed: int = yield (
        "DELETE FROM cache WHERE key IN (SELECT key FROM cache WHERE good_until <= ?"
        " ORDER BY good_until LIMIT ? FOR UPDATE SKIP LOCKED)",
        (now, _MAX_ROWS),
    )
    return removed


def drop_blobs(names: list[str]) -> Query[None]:
    """Remove the blobs of these names that no row names."""
    yield (
        "DELETE FROM blobs WHERE name IN ?"
        " AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM signals WHERE signals.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM cache WHERE cache.blob = blobs.name)",
        (names,),
    )


def sweep_blobs(older_than: int) -> Query[int]:
    """Remove some old blobs that no row names; return their number."""
    removed: int = yield (
        "DELETE FROM blobs WHERE name IN (SELECT name FROM blobs WHERE created_at < ?"
        " AND NOT EXISTS (SELECT 1 FROM nodes WHERE nodes.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM signals WHERE signals.blob = blobs.name)"
        " AND NOT EXISTS (SELECT 1 FROM cache WHERE cache.blob = blobs.name) LIMIT ?)",
        (older_than, _MAX_BLOBS),
    )
    return removed
