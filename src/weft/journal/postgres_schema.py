"""The journal's schema in PostgreSQL, and the migrations that bring it up to date.

All tables lie in a schema of their own, so that they share a database with others without a clash.
Migrations go forward only, and the previous release runs on the new schema: one that is newer than this
weft is accepted.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from weft.errors import SchemaError
from weft.journal.postgres_connection import SCHEMA, Url, connected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.journal.postgres_connection import Connection

# "weft": of the advisory locks that are taken in a database, this one is for whoever migrates.
_MIGRATION_LOCK = 0x77656674_00000001
# Another process migrates: it may take its time.
_WAIT_SECONDS = 600.0


@cache
def migrations() -> Mapping[str, str]:
    """Give the SQL of every migration by its name, in order; the first is number 1."""
    folder = files("weft.journal") / "migrations" / "postgres"
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name
    )
    for number, entry in enumerate(found, 1):
        assert entry.name.startswith(f"{number:04d}_"), f"migrations are numbered without gaps: {entry.name}"
    return {entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8") for entry in found}


async def pending(url: Url) -> list[str]:
    """Name the migrations that the database has not had, and change nothing; raises JournalError."""
    async with connected(url) as connection:
        return await missing(connection)


async def migrate(url: Url) -> list[str]:
    """Make the migrations that the database has not had, and name them; raises JournalError.

    Of several processes that migrate at once one does it, and the others wait for it.
    """
    async with connected(url, seconds=_WAIT_SECONDS) as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", _MIGRATION_LOCK)
        names = await missing(connection)
        for name in names:
            async with connection.transaction():
                if name == next(iter(migrations())):
                    await connection.execute(_FIRST)
                await connection.execute(migrations()[name])
                await connection.execute("INSERT INTO schema_migrations (name) VALUES ($1)", name)
        return names


_FIRST = f"""
    CREATE SCHEMA IF NOT EXISTS {SCHEMA};
    CREATE TABLE IF NOT EXISTS schema_migrations (
        name text COLLATE "C" PRIMARY KEY,
        made_at timestamptz NOT NULL DEFAULT now()
    );
"""


async def missing(connection: Connection) -> list[str]:
    """Name the migrations that the database of this connection has not had."""
    try:
        made = {name for (name,) in await connection.fetch(f"SELECT name FROM {SCHEMA}.schema_migrations")}  # noqa: S608
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        made = set()
    return [name for name in migrations() if name not in made]


def refuse(names: Sequence[str]) -> None:
    """Raise SchemaError where migrations are missing."""
    if names:
        raise SchemaError(
            f"the schema of the database is behind this weft by {len(names)} (next: {names[0]}); "
            "bring it up to date with `weft migrate`"
        )
