"""Workflows in SQLite: their versions, and the names given to them.

A workflow that is deleted keeps its row alone, for the last number that was given: its versions and aliases
are gone. Whoever writes here is within the transaction of the journal's only writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.journal.contract import LATEST, Version, Workflow

if TYPE_CHECKING:
    from sqlite3 import Connection

_VERSIONS = "SELECT workflow, version, digest, created_at FROM versions WHERE namespace = ? AND workflow = ?"
_WORKFLOWS = "SELECT name, latest, created_at FROM workflows WHERE namespace = ? AND deleted_at IS NULL"


def put_version(
    connection: Connection, namespace: str, name: str, digest: str, now: int
) -> tuple[Version, bool]:
    """Make the definition of this digest the latest version; True where it is a new one."""
    known = connection.execute(f"{_VERSIONS} AND digest = ?", (namespace, name, digest)).fetchone()
    if known is not None:
        version = _version(known)
        connection.execute(
            "UPDATE workflows SET latest = ? WHERE namespace = ? AND name = ?",
            (version.version, namespace, name),
        )
        return version, False
    found = connection.execute(
        "SELECT last_version + 1, deleted_at, created_at FROM workflows WHERE namespace = ? AND name = ?",
        (namespace, name),
    ).fetchone()
    number, deleted_at, created_at = found or (1, None, now)
    connection.execute(
        "REPLACE INTO workflows (namespace, name, latest, last_version, created_at) VALUES (?, ?, ?, ?, ?)",
        (namespace, name, number, number, created_at if deleted_at is None else now),
    )
    connection.execute("INSERT INTO versions VALUES (?, ?, ?, ?, ?)", (namespace, name, number, digest, now))
    return Version(workflow=name, version=number, digest=digest, created_at=now), True


def version(connection: Connection, namespace: str, name: str, wanted: int | str) -> Version | None:
    """Find a version by its number, by an alias, or the latest."""
    if wanted == LATEST:
        found = connection.execute(
            f"{_VERSIONS} AND version ="  # noqa: S608
            " (SELECT latest FROM workflows WHERE namespace = ? AND name = ?)",
            (namespace, name, namespace, name),
        )
    elif isinstance(wanted, str):
        found = connection.execute(
            f"{_VERSIONS} AND version ="  # noqa: S608
            " (SELECT version FROM aliases WHERE namespace = ? AND workflow = ? AND alias = ?)",
            (namespace, name, namespace, name, wanted),
        )
    else:
        found = connection.execute(f"{_VERSIONS} AND version = ?", (namespace, name, wanted))
    values = found.fetchone()
    return None if values is None else _version(values)


def versions(
    connection: Connection, namespace: str, name: str, before: int | None, limit: int
) -> list[Version]:
    found = connection.execute(
        f"{_VERSIONS} AND (? IS NULL OR version < ?) ORDER BY version DESC LIMIT ?",
        (namespace, name, before, before, limit),
    )
    return [_version(values) for values in found.fetchall()]


def workflow(connection: Connection, namespace: str, name: str) -> Workflow | None:
    found = connection.execute(f"{_WORKFLOWS} AND name = ?", (namespace, name)).fetchone()
    return None if found is None else _workflow(connection, namespace, *found)


def workflows(connection: Connection, namespace: str, after: str, limit: int) -> list[Workflow]:
    found = connection.execute(
        f"{_WORKFLOWS} AND name > ? ORDER BY name LIMIT ?", (namespace, after, limit)
    ).fetchall()
    return [_workflow(connection, namespace, *values) for values in found]


def put_alias(connection: Connection, namespace: str, name: str, alias: str, number: int) -> bool:
    """Let an alias mean that version; False where there is no such version."""
    if version(connection, namespace, name, number) is None:
        return False
    connection.execute("REPLACE INTO aliases VALUES (?, ?, ?, ?)", (namespace, name, alias, number))
    return True


def delete_alias(connection: Connection, namespace: str, name: str, alias: str) -> bool:
    """Remove an alias; False where there is none."""
    removed = connection.execute(
        "DELETE FROM aliases WHERE namespace = ? AND workflow = ? AND alias = ?", (namespace, name, alias)
    )
    return removed.rowcount > 0


def delete_workflow(connection: Connection, namespace: str, name: str, now: int) -> bool:
    """Remove all of a workflow but the last number it gave; False where there is none."""
    deleted = connection.execute(
        "UPDATE workflows SET deleted_at = ? WHERE namespace = ? AND name = ? AND deleted_at IS NULL",
        (now, namespace, name),
    )
    if deleted.rowcount == 0:
        return False
    for table in ("versions", "aliases"):
        connection.execute(f"DELETE FROM {table} WHERE namespace = ? AND workflow = ?", (namespace, name))  # noqa: S608
    return True


def _version(values: tuple[str, int, str, int]) -> Version:
    name, number, digest, created_at = values
    return Version(workflow=name, version=number, digest=digest, created_at=created_at)


def _workflow(connection: Connection, namespace: str, name: str, latest: int, created_at: int) -> Workflow:
    newest = version(connection, namespace, name, latest)
    assert newest is not None
    aliases = connection.execute(
        "SELECT alias, version FROM aliases WHERE namespace = ? AND workflow = ?", (namespace, name)
    )
    return Workflow(name=name, latest=newest, aliases=dict(aliases.fetchall()), created_at=created_at)
