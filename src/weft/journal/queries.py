"""The queries, reading and writing, that both databases understand.

A query is a generator. It yields a statement with the values for each ``?``, and is sent the answer: the rows
of a SELECT, or how many rows another statement has changed. The adapters run it; one that changes something
is a transaction.

The statements are SQLite's but for two things: ``IN ?`` takes a list, and ``FOR … `` says what to lock where
others write too. SQLite's adapter writes the first in its words and leaves out the second. PostgreSQL's
numbers the values, leaves out which index to take, and knows a row by its ``ctid`` where SQLite has a rowid.
``label_text(…)`` is the text of a label's key or value, which is bytes in PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from weft.core.state import TERMINAL, ExecutionState
from weft.errors import JournalError
from weft.journal import rows
from weft.journal.contract import (
    LATEST,
    ActiveExecution,
    Batch,
    CatalogChange,
    Claim,
    JournalStats,
    Version,
    WorkflowRow,
)

if TYPE_CHECKING:
    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import NewBatch

T = TypeVar("T")


class Listing(NamedTuple):
    """A SELECT of many rows.

    SQLite joins them to one: for each row that is read, its thread may have to wait for Python's lock.
    """

    columns: str
    behind: str
    values: tuple[Any, ...]


Query: TypeAlias = Generator[tuple[str, tuple[Any, ...]] | Listing, Any, T]

IS_ACTIVE = "state IN ('PENDING', 'RUNNING', 'PAUSED')"
# Written like the predicate of the partial index.
IS_HOT = f"NOT evicted AND {IS_ACTIVE}"
_ACTIVE = "id, generation, epoch, updated_at, seq"
# Nothing needs a definition that neither a version nor an execution names.
UNNAMED_DEFINITION = """
    NOT EXISTS (SELECT 1 FROM versions WHERE versions.digest = definitions.digest)
    AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.digest = definitions.digest)
"""
_MAX_DEFINITIONS = 500
# Later than the creation of anything.
_LATEST_TIME = 2**62
_VERSIONS = "SELECT workflow, version, digest, created_at FROM versions WHERE namespace = ? AND workflow = ?"


# -- executions --------------------------------------------------------------------------------------


def execution(execution_id: str, *, lean: bool = False) -> Query[tuple[int, ExecutionRow] | None]:
    """Read an execution, and its number with it; ``lean``: without a large input (``b""``)."""
    columns = rows.LEAN_COLUMNS if lean else rows.EXECUTION_COLUMNS
    found = yield (
        f"SELECT {columns} FROM executions JOIN progress ON execution = number WHERE executions.id = ?",  # noqa: S608
        (execution_id,),
    )
    return (found[0][0], rows.read_execution(found[0])) if found else None


def inputs(execution_ids: list[str]) -> Query[dict[str, bytes]]:
    """Read the inputs of executions."""
    found = yield "SELECT id, input FROM executions WHERE id IN ?", (execution_ids,)
    return dict(found)


def active(not_updated_since: int) -> Query[list[ActiveExecution]]:
    # What waits for its turn in a lane is nowhere but in the journal.
    found = yield (
        f"SELECT {_ACTIVE} FROM progress INDEXED BY progress_hot WHERE {IS_HOT} AND updated_at <= ?"  # noqa: S608
        " AND NOT EXISTS (SELECT 1 FROM queued_executions AS queued"
        " WHERE queued.execution = progress.execution)",
        (not_updated_since,),
    )
    return [ActiveExecution(*values) for values in found]


def waiting(not_updated_since: int) -> Query[list[ActiveExecution]]:
    found = yield (
        f"SELECT {_ACTIVE} FROM progress INDEXED BY progress_hot"  # noqa: S608
        f" WHERE {IS_HOT} AND waiting > 0 AND updated_at <= ?",
        (not_updated_since,),
    )
    return [ActiveExecution(*values) for values in found]


def evicted() -> Query[list[str]]:
    found = yield f"SELECT id FROM progress WHERE {IS_ACTIVE} AND evicted ORDER BY execution", ()  # noqa: S608
    return [id_ for (id_,) in found]


def stats() -> Query[JournalStats]:
    counts = dict.fromkeys((state for state in ExecutionState if state not in TERMINAL), 0)
    found = yield f"SELECT state, count(*) FROM progress WHERE {IS_ACTIVE} GROUP BY state", ()  # noqa: S608
    counts |= {ExecutionState(state): number for state, number in found}
    # The letters of an execution that is being purged count no more.
    ((letters,),) = yield (
        "SELECT count(*) FROM dead_letters WHERE state = 'open'"
        " AND EXISTS (SELECT 1 FROM executions WHERE number = dead_letters.execution)",
        (),
    )
    return JournalStats(executions=counts, open_letters=letters)


def claim(key: str, namespace: str) -> Query[Claim | None]:
    found = yield (
        "SELECT request_digest, resource FROM idempotency_keys WHERE namespace = ? AND key = ?",
        (namespace, key),
    )
    for request_digest, resource in found:
        return Claim(key=key, request_digest=request_digest, resource=resource, namespace=namespace)
    return None


def put_batch(batch: NewBatch, total: int, now: int) -> Query[None]:
    """Store a batch; one that is there already stays as it is."""
    yield (
        "INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (batch.id, batch.namespace, batch.workflow, batch.version, total, now),
    )


def batch(batch_id: str, namespace: str) -> Query[Batch | None]:
    """Read a batch, and count its executions by their states."""
    found = yield (
        "SELECT workflow, version, total, created_at FROM batches WHERE id = ? AND namespace = ?",
        (batch_id, namespace),
    )
    if not found:
        return None
    workflow, version, total, created_at = found[0]
    counted = yield (
        "SELECT state, count(*), max(finished_at) FROM executions JOIN progress ON execution = number"
        " WHERE batch = ? GROUP BY state",
        (batch_id,),
    )
    ((retried,),) = yield (
        "SELECT coalesce(sum(attempt - 1), 0) FROM executions JOIN nodes ON execution = number"
        " WHERE batch = ? AND attempt > 1",
        (batch_id,),
    )
    ends = [end for _, _, end in counted]
    return Batch(
        id=batch_id,
        workflow=workflow,
        version=version,
        total=total,
        counts=dict.fromkeys(ExecutionState, 0) | {ExecutionState(state): n for state, n, _ in counted},
        retried=retried,
        created_at=created_at,
        finished_at=None if None in ends else max(ends, default=created_at),
    )


def batches(namespace: str, before: tuple[int, str] | None, limit: int) -> Query[list[Batch]]:
    """List batches, newest first, and count the executions of each."""
    created_at, batch_id = before or (_LATEST_TIME, "")
    found = yield (
        "SELECT id FROM batches WHERE namespace = ? AND (created_at, id) < (?, ?)"
        " ORDER BY created_at DESC, id DESC LIMIT ?",
        (namespace, created_at, batch_id, limit),
    )
    listed = []
    for (one,) in found:
        # A batch may be purged between the two statements.
        if (read := (yield from batch(one, namespace))) is not None:
            listed.append(read)
    return listed


def dead_letter(letter_id: str, namespace: str) -> Query[DeadLetter | None]:
    found = yield (
        f"SELECT {rows.LETTER_COLUMNS} FROM dead_letters JOIN executions ON number = execution"  # noqa: S608
        " WHERE dead_letters.id = ? AND dead_letters.namespace = ?",
        (letter_id, namespace),
    )
    return rows.read_letter(found[0]) if found else None


def drop_letter(by: CatalogWriter, letter_id: str) -> Query[bool]:
    changed = yield (
        "UPDATE dead_letters SET state = 'dropped' WHERE id = ? AND namespace = ?",
        (letter_id, by.namespace),
    )
    if changed:
        yield change(by, "dead_letter.dropped", dead_letter=letter_id)
    return bool(changed)


def drop_letters(by: CatalogWriter, letter_ids: list[str]) -> Query[int]:
    chosen = "namespace = ? AND id IN ? AND state <> 'dropped'"
    yield (
        "INSERT INTO changes (namespace, at, action, actor, dead_letter)"  # noqa: S608
        f" SELECT namespace, CAST(? AS bigint), 'dead_letter.dropped', CAST(? AS text), id"
        f" FROM dead_letters WHERE {chosen} ORDER BY id FOR UPDATE",
        (by.now, by.actor, by.namespace, letter_ids),
    )
    dropped: int = yield (
        f"UPDATE dead_letters SET state = 'dropped' WHERE {chosen}",  # noqa: S608
        (by.namespace, letter_ids),
    )
    return dropped


# -- who changed what --------------------------------------------------------------------------------


class CatalogWriter(NamedTuple):
    """The author and the time of a change of the catalog."""

    namespace: str
    actor: str | None
    now: int


def change(
    by: CatalogWriter,
    action: str,
    *,
    workflow: str | None = None,
    version: int | None = None,
    alias: str | None = None,
    dead_letter: str | None = None,
    trigger: str | None = None,
) -> tuple[str, tuple[Any, ...]]:
    return (
        "INSERT INTO changes (namespace, at, action, actor, workflow, version, alias, dead_letter, trigger)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (by.namespace, by.now, action, by.actor, workflow, version, alias, dead_letter, trigger),
    )


def changes(namespace: str, before: int | None, limit: int) -> Query[list[CatalogChange]]:
    earlier, given = ("", ()) if before is None else (" AND number < ?", (before,))
    found = yield (
        "SELECT number, at, action, actor, workflow, version, alias, dead_letter, trigger FROM changes"  # noqa: S608
        f" WHERE namespace = ?{earlier} ORDER BY number DESC LIMIT ?",
        (namespace, *given, limit),
    )
    names = CatalogChange.__struct_fields__
    return [CatalogChange(**dict(zip(names, values, strict=True))) for values in found]


def document(digest: str) -> Query[bytes | None]:
    found = yield "SELECT document FROM definitions WHERE digest = ?", (digest,)
    return found[0][0] if found else None


def put_definition(digest: str, document: bytes, now: int) -> Query[None]:
    """Store a definition that is not there yet, and keep it from being purged until the commit."""
    # Asked first: a large document is not to be handed to the database anew for every execution. And asked
    # again: a definition that another process has just stored may be purged in the next call.
    while not (yield "SELECT 1 FROM definitions WHERE digest = ? FOR KEY SHARE", (digest,)):
        if not document:
            raise JournalError(f"the journal has no definition {digest}")
        yield "INSERT INTO definitions VALUES (?, ?, ?) ON CONFLICT DO NOTHING", (digest, document, now)


def unnamed_definitions() -> Query[list[str]]:
    """List some definitions that nothing needs; the statement scans all definitions."""
    found = yield (
        f"SELECT digest FROM definitions WHERE {UNNAMED_DEFINITION} LIMIT ?",  # noqa: S608
        (_MAX_DEFINITIONS,),
    )
    return [digest for (digest,) in found]


def ping() -> Query[None]:
    yield "SELECT number FROM executions LIMIT 1", ()


def cached(keys: list[str], now: int) -> Query[dict[str, bytes]]:
    found = yield (
        "SELECT key, coalesce(output, payload) FROM cache LEFT JOIN blobs ON name = blob"
        " WHERE key IN ? AND good_until > ?",
        (keys, now),
    )
    return {key: output for key, output in found if output is not None}


def cached_sizes(keys: list[str], now: int) -> Query[dict[str, int]]:
    found = yield (
        "SELECT key, coalesce(length(output), length(payload)) FROM cache LEFT JOIN blobs ON name = blob"
        " WHERE key IN ? AND good_until > ?",
        (keys, now),
    )
    return {key: size for key, size in found if size is not None}


def put_blob(name: str, payload: bytes, now: int) -> Query[None]:
    yield "INSERT INTO blobs VALUES (?, ?, ?)", (name, payload, now)


def blobs(names: list[str]) -> Query[dict[str, bytes]]:
    found = yield "SELECT name, payload FROM blobs WHERE name IN ?", (names,)
    return dict(found)


# -- workflows ---------------------------------------------------------------------------------------
#
# A workflow that is deleted keeps its row alone, for the last number that was given: its versions and aliases
# are gone. Whoever changes a workflow changes its row first, which locks it: numbers are given one after the
# other, by all processes.


def put_version(by: CatalogWriter, name: str, digest: str, document: bytes) -> Query[tuple[Version, bool]]:
    """Make the definition of this digest the latest version; True where it is a new one."""
    namespace, _, now = by
    yield from put_definition(digest, document, now)
    yield (
        "INSERT INTO workflows (namespace, name, latest, last_version, created_at) VALUES (?, ?, 0, 0, ?)"
        " ON CONFLICT (namespace, name) DO UPDATE SET latest = workflows.latest",
        (namespace, name, now),
    )
    known = yield f"{_VERSIONS} AND digest = ?", (namespace, name, digest)
    if known:
        version = _version(known[0])
        yield (
            "UPDATE workflows SET latest = ? WHERE namespace = ? AND name = ?",
            (version.version, namespace, name),
        )
        yield change(by, "workflow.stored", workflow=name, version=version.version)
        return version, False
    ((number,),) = yield (
        "SELECT last_version + 1 FROM workflows WHERE namespace = ? AND name = ?",
        (namespace, name),
    )
    yield (
        "UPDATE workflows SET latest = ?, last_version = ?, deleted_at = NULL,"
        " created_at = CASE WHEN deleted_at IS NULL THEN created_at ELSE ? END"
        " WHERE namespace = ? AND name = ?",
        (number, number, now, namespace, name),
    )
    yield "INSERT INTO versions VALUES (?, ?, ?, ?, ?)", (namespace, name, number, digest, now)
    yield change(by, "workflow.stored", workflow=name, version=number)
    return Version(workflow=name, version=number, digest=digest, created_at=now), True


def version(namespace: str, name: str, wanted: int | str) -> Query[Version | None]:
    """Find a version by its number, by an alias, or the latest."""
    number, values = "?", [wanted]
    if wanted == LATEST:
        number = "(SELECT latest FROM workflows WHERE namespace = ? AND name = ?)"
        values = [namespace, name]
    elif isinstance(wanted, str):
        number = "(SELECT version FROM aliases WHERE namespace = ? AND workflow = ? AND alias = ?)"
        values = [namespace, name, wanted]
    found = yield f"{_VERSIONS} AND version = {number}", (namespace, name, *values)
    return _version(found[0]) if found else None


def versions(namespace: str, name: str, before: int | None, limit: int) -> Query[list[Version]]:
    earlier, given = ("", ()) if before is None else (" AND version < ?", (before,))
    found = yield f"{_VERSIONS}{earlier} ORDER BY version DESC LIMIT ?", (namespace, name, *given, limit)
    return [_version(values) for values in found]


def workflow(namespace: str, name: str) -> Query[WorkflowRow | None]:
    found = yield from _workflows("name = ?", (namespace, name))
    return found[0] if found else None


def workflows(namespace: str, after: str, limit: int) -> Query[list[WorkflowRow]]:
    return (yield from _workflows("name > ? ORDER BY name LIMIT ?", (namespace, after, limit)))


def _workflows(condition: str, values: tuple[Any, ...]) -> Query[list[WorkflowRow]]:
    """Read workflows in one statement: a row for each alias, or one."""
    found = yield (
        "SELECT shown.name, shown.created_at, versions.version, versions.digest, versions.created_at,"  # noqa: S608
        " alias, aliases.version"
        " FROM (SELECT * FROM workflows WHERE namespace = ? AND deleted_at IS NULL"
        f" AND {condition}) AS shown"
        " JOIN versions ON versions.namespace = shown.namespace AND versions.workflow = shown.name"
        " AND versions.version = shown.latest"
        " LEFT JOIN aliases ON aliases.namespace = shown.namespace AND aliases.workflow = shown.name"
        " ORDER BY shown.name, alias",
        values,
    )
    by_name: dict[str, WorkflowRow] = {}
    for name, created_at, number, digest, made_at, alias, meant in found:
        if name not in by_name:
            latest = Version(workflow=name, version=number, digest=digest, created_at=made_at)
            by_name[name] = WorkflowRow(name=name, latest=latest, aliases={}, created_at=created_at)
        if alias is not None:
            by_name[name].aliases[alias] = meant
    return list(by_name.values())


def put_alias(by: CatalogWriter, name: str, alias: str, number: int) -> Query[bool]:
    namespace = by.namespace
    yield "UPDATE workflows SET latest = latest WHERE namespace = ? AND name = ?", (namespace, name)
    if (yield from version(namespace, name, number)) is None:
        return False
    yield (
        "INSERT INTO aliases VALUES (?, ?, ?, ?)"
        " ON CONFLICT (namespace, workflow, alias) DO UPDATE SET version = excluded.version",
        (namespace, name, alias, number),
    )
    yield change(by, "alias.set", workflow=name, alias=alias, version=number)
    return True


def delete_alias(by: CatalogWriter, name: str, alias: str) -> Query[bool]:
    removed = yield (
        "DELETE FROM aliases WHERE namespace = ? AND workflow = ? AND alias = ?",
        (by.namespace, name, alias),
    )
    if removed:
        yield change(by, "alias.deleted", workflow=name, alias=alias)
    return bool(removed)


def delete_workflow(by: CatalogWriter, name: str) -> Query[bool]:
    deleted = yield (
        "UPDATE workflows SET deleted_at = ? WHERE namespace = ? AND name = ? AND deleted_at IS NULL",
        (by.now, by.namespace, name),
    )
    if not deleted:
        return False
    for table in ("versions", "aliases"):
        yield f"DELETE FROM {table} WHERE namespace = ? AND workflow = ?", (by.namespace, name)  # noqa: S608
    yield change(by, "workflow.deleted", workflow=name)
    return True


def _version(values: Any) -> Version:
    name, number, digest, created_at = values
    return Version(workflow=name, version=number, digest=digest, created_at=created_at)
