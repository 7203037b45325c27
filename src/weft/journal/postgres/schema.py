"""The journal's schema in PostgreSQL, and the migrations that bring it up to date.

All tables lie in a schema of their own, so that they share a database with others without a clash.
Migrations go forward only. The previous release runs on the new schema, unless the migration is marked as
incompatible: then this release refuses a schema that is newer than it is, and otherwise accepts it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from weft.errors import SchemaError
from weft.journal.migrations import read_migrations
from weft.journal.postgres.connection import SCHEMA, Url, connected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.journal.postgres.connection import Connection

# Of an execution: its id, its workflow, its state.
Unfinished: TypeAlias = tuple[str, str | None, str]

migrations = partial(read_migrations, "postgres")

# "weft": the advisory lock of a process that migrates the database.
_MIGRATION_LOCK = 0x77656674_00000001
# Another process migrates: it may take its time.
_WAIT_SECONDS = 600.0


def is_incompatible(name: str) -> bool:
    """True if older releases must not run on the schema that the migration leaves: its file says so."""
    return migrations()[name].startswith("-- incompatible")


async def pending(url: Url) -> list[str]:
    """Return the migrations that the database has not had; changes nothing; raises JournalError."""
    async with connected(url) as connection:
        return await missing(connection)


async def unfinished(url: Url, *, limit: int) -> tuple[int, list[Unfinished]]:
    """Count the executions that are not terminal, whatever migrations the database has had; list some."""
    async with connected(url) as connection:
        if await connection.fetchval(f"SELECT to_regclass('{SCHEMA}.progress')") is None:
            return 0, []
        active = "progress WHERE state IN ('PENDING', 'RUNNING', 'PAUSED')"
        total = await connection.fetchval(f"SELECT count(*) FROM {active}")  # noqa: S608
        found = await connection.fetch(
            "SELECT id, (SELECT workflow FROM executions WHERE number = execution), state"  # noqa: S608
            f" FROM {active} ORDER BY execution LIMIT $1",
            limit,
        )
        return total, [(id_, workflow, state) for id_, workflow, state in found]


async def migrate(url: Url) -> list[str]:
    """Run the migrations that the database has not had, and return them; raises JournalError.

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
                if await _has_marks(connection):
                    sql = "INSERT INTO migrations (name, incompatible) VALUES ($1, $2)"
                    await connection.execute(sql, name, is_incompatible(name))
                else:
                    await connection.execute("INSERT INTO schema_migrations (name) VALUES ($1)", name)
        return names


_FIRST = f"""
    CREATE SCHEMA IF NOT EXISTS {SCHEMA};
    CREATE TABLE IF NOT EXISTS schema_migrations (
        name text COLLATE "C" PRIMARY KEY,
        made_at timestamptz NOT NULL DEFAULT now()
    );
"""


async def _has_marks(connection: Connection) -> bool:
    """True if the database has had the migration from which on each is marked as compatible or not."""
    return await connection.fetchval(f"SELECT to_regclass('{SCHEMA}.migrations')") is not None


async def missing(connection: Connection) -> list[str]:
    """Return the migrations that the database of this connection has not had.

    Raises SchemaError where it has had one that this release does not know and must not run on.
    """
    made: dict[str, bool] = {}
    if await _has_marks(connection):
        made = dict(await connection.fetch(f"SELECT name, incompatible FROM {SCHEMA}.migrations"))  # noqa: S608
    elif await connection.fetchval(f"SELECT to_regclass('{SCHEMA}.schema_migrations')") is not None:
        made = dict(await connection.fetch(f"SELECT name, false FROM {SCHEMA}.schema_migrations"))  # noqa: S608
    newer = [name for name, incompatible in made.items() if incompatible and name not in migrations()]
    if newer:
        raise SchemaError(
            f"the database was migrated by a newer release of weft ({max(newer)}), which this process is too "
            "old for: stop it and start the new release"
        )
    return [name for name in migrations() if name not in made]


def refuse(names: Sequence[str]) -> None:
    """Raise SchemaError where migrations are missing."""
    if names:
        raise SchemaError(
            f"the schema of the database is behind this weft by {len(names)} (next: {names[0]}); "
            "bring it up to date with `weft migrate`"
        )
