"""Workflows in PostgreSQL: their versions, and the names given to them.

Whoever changes a workflow locks its row first, so that numbers are given one after the other, by all
processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.journal.contract import LATEST, Version, Workflow
from weft.journal.postgres_changes import add_definitions, lock_definitions
from weft.journal.postgres_rows import CLOCK

if TYPE_CHECKING:
    from weft.journal.postgres_connection import Connection

_VERSIONS = (
    "SELECT workflow, version, digest, created_at FROM versions WHERE namespace = $1 AND workflow = $2"
)
_WORKFLOWS = """
    SELECT name, workflows.created_at, versions.version, versions.digest, versions.created_at,
        ARRAY(SELECT alias FROM aliases WHERE aliases.namespace = $1 AND workflow = name ORDER BY alias),
        ARRAY(SELECT version FROM aliases WHERE aliases.namespace = $1 AND workflow = name ORDER BY alias)
    FROM workflows JOIN versions ON versions.namespace = $1 AND workflow = name AND version = latest
    WHERE workflows.namespace = $1 AND deleted_at IS NULL
"""


async def put_version(
    connection: Connection, namespace: str, name: str, digest: str, document: bytes, at: int | None
) -> tuple[Version, bool]:
    """Make the definition of this digest the latest version; True where it is a new one."""
    async with connection.transaction():
        # A row that is there already is locked by this; it is changed below.
        last, deleted_at, now = await connection.fetchrow(
            f"INSERT INTO workflows VALUES ($1, $2, 0, 0, coalesce($3, {CLOCK}))"  # noqa: S608
            " ON CONFLICT (namespace, name) DO UPDATE SET latest = workflows.latest"
            f" RETURNING last_version, deleted_at, coalesce($3, {CLOCK})",
            namespace,
            name,
            at,
        )
        if not await lock_definitions(connection, [digest]):
            await add_definitions(connection, {digest: document}, now)
        known = await connection.fetchrow(f"{_VERSIONS} AND digest = $3", namespace, name, digest)
        if known is not None:
            await connection.execute(
                "UPDATE workflows SET latest = $3 WHERE namespace = $1 AND name = $2",
                namespace,
                name,
                known[1],
            )
            return _version(known), False
        await connection.execute(
            "UPDATE workflows SET latest = $3, last_version = $3, deleted_at = NULL,"
            " created_at = CASE WHEN $5 THEN $4 ELSE created_at END WHERE namespace = $1 AND name = $2",
            namespace,
            name,
            last + 1,
            now,
            deleted_at is not None,
        )
        await connection.execute(
            "INSERT INTO versions VALUES ($1, $2, $3, $4, $5)", namespace, name, last + 1, digest, now
        )
        return Version(workflow=name, version=last + 1, digest=digest, created_at=now), True


async def version(connection: Connection, namespace: str, name: str, wanted: int | str) -> Version | None:
    """Find a version by its number, by an alias, or the latest."""
    if wanted == LATEST:
        number = "(SELECT latest FROM workflows WHERE namespace = $1 AND name = $2)"
        found = await connection.fetchrow(f"{_VERSIONS} AND version = {number}", namespace, name)
    elif isinstance(wanted, str):
        number = "(SELECT version FROM aliases WHERE namespace = $1 AND workflow = $2 AND alias = $3)"
        found = await connection.fetchrow(f"{_VERSIONS} AND version = {number}", namespace, name, wanted)
    else:
        found = await connection.fetchrow(f"{_VERSIONS} AND version = $3", namespace, name, wanted)
    return None if found is None else _version(found)


async def versions(
    connection: Connection, namespace: str, name: str, before: int | None, limit: int
) -> list[Version]:
    found = await connection.fetch(
        f"{_VERSIONS} AND ($3::bigint IS NULL OR version < $3) ORDER BY version DESC LIMIT $4",
        namespace,
        name,
        before,
        limit,
    )
    return [_version(values) for values in found]


async def workflow(connection: Connection, namespace: str, name: str) -> Workflow | None:
    found = await connection.fetchrow(f"{_WORKFLOWS} AND name = $2", namespace, name)
    return None if found is None else _workflow(found)


async def workflows(connection: Connection, namespace: str, after: str, limit: int) -> list[Workflow]:
    found = await connection.fetch(
        f"{_WORKFLOWS} AND name > $2 ORDER BY name LIMIT $3", namespace, after, limit
    )
    return [_workflow(values) for values in found]


async def put_alias(connection: Connection, namespace: str, name: str, alias: str, number: int) -> bool:
    """Let an alias mean that version; False where there is no such version."""
    async with connection.transaction():
        await _lock(connection, namespace, name)
        if await version(connection, namespace, name, number) is None:
            return False
        await connection.execute(
            "INSERT INTO aliases VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (namespace, workflow, alias) DO UPDATE SET version = $4",
            namespace,
            name,
            alias,
            number,
        )
        return True


async def delete_alias(connection: Connection, namespace: str, name: str, alias: str) -> bool:
    """Remove an alias; False where there is none."""
    removed = await connection.fetchval(
        "DELETE FROM aliases WHERE namespace = $1 AND workflow = $2 AND alias = $3 RETURNING version",
        namespace,
        name,
        alias,
    )
    return removed is not None


async def delete_workflow(connection: Connection, namespace: str, name: str, at: int | None) -> bool:
    """Remove all of a workflow but the last number it gave; False where there is none."""
    async with connection.transaction():
        deleted = await connection.fetchval(
            f"UPDATE workflows SET deleted_at = coalesce($3, {CLOCK})"  # noqa: S608
            " WHERE namespace = $1 AND name = $2 AND deleted_at IS NULL RETURNING name",
            namespace,
            name,
            at,
        )
        if deleted is None:
            return False
        for table in ("versions", "aliases"):
            await connection.execute(
                f"DELETE FROM {table} WHERE namespace = $1 AND workflow = $2",  # noqa: S608
                namespace,
                name,
            )
        return True


async def _lock(connection: Connection, namespace: str, name: str) -> None:
    await connection.execute(
        "SELECT 1 FROM workflows WHERE namespace = $1 AND name = $2 FOR UPDATE", namespace, name
    )


def _version(values: Any) -> Version:
    name, number, digest, created_at = values
    return Version(workflow=name, version=number, digest=digest, created_at=created_at)


def _workflow(values: Any) -> Workflow:
    name, created_at, number, digest, made_at, aliases, numbers = values
    latest = Version(workflow=name, version=number, digest=digest, created_at=made_at)
    return Workflow(
        name=name, latest=latest, aliases=dict(zip(aliases, numbers, strict=True)), created_at=created_at
    )
