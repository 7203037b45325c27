"""The check that every new connection makes: has this database lost commits that the fleet has seen?

One statement where nothing has changed. After a restart of the server the row of the table ``incarnation`` is
compared with what the store keeps, and one process writes the verdict into the row for all others.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import asyncpg
from msgspec.structs import replace

from weft.errors import JournalError, StoreError
from weft.incarnation import Incarnation, Server, surviving_id
from weft.journal.postgres.connection import SCHEMA, Connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger("weft.journal")

# Two processes that compare at the same time agree on the second look.
_LOOKS = 10

_POSITION = "(pg_current_wal_flush_lsn() - '0/0')::bigint"
_LOOK = f"""
    SELECT system_identifier || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8),
        extract(epoch FROM pg_postmaster_start_time())::text, {_POSITION},
        current_setting('synchronous_commit') = 'off', id, line, started
    FROM pg_control_system() LEFT JOIN {SCHEMA}.incarnation ON true
"""  # noqa: S608
_MARK = f"""
    INSERT INTO {SCHEMA}.incarnation AS marked (id, line, started) VALUES ($1, $2, $3)
    ON CONFLICT (one) DO UPDATE SET (id, line, started) = ($1, $2, $3)
        WHERE (marked.id, marked.line, marked.started) = ($4, $5, $6)
"""  # noqa: S608


class Witness(Protocol):
    """Where the fleet keeps what it saw of the database."""

    async def incarnation(self) -> Incarnation | None:
        """Return what the fleet saw last; None if nothing is kept. Raises StoreError."""

    async def enter(self, incarnation: Incarnation) -> None:
        """Drop the hot state unless it belongs to this incarnation, now or before the store is used again."""

    async def note(self, incarnation: Incarnation) -> None:
        """Keep a later position of the same incarnation. Raises StoreError."""


class Watch:
    """The incarnation that this process works on. ``changed`` is called when another one begins."""

    def __init__(
        self, witness: Witness | None, *, new_id: Callable[[], str], changed: Callable[[], None]
    ) -> None:
        """``witness``: None where one process has the database for itself, and remembers what it saw."""
        self._witness = witness
        self._new_id = new_id
        self._changed = changed
        self.current: Incarnation | None = None

    async def check(self, connection: Connection) -> None:
        """Read the incarnation behind a new connection, and make the store enter it."""
        server = await _look(connection)
        if server is None:
            return  # the schema is behind: nobody works on this database yet
        if server.row is None or not server.is_marked or surviving_id(server, self.current) != server.row[0]:
            server = await self._compare(connection)
        assert server.row is not None
        before, now = self.current, _incarnation(server)
        is_new = before is None or (before.id, before.started) != (now.id, now.started)
        if self._witness is not None and is_new:
            await self._witness.enter(now)
        self.current = now
        if before is not None and before.id != now.id:
            log.warning("journal.incarnation", extra={"was": before.id, "is": now.id})
            self._changed()

    async def _compare(self, connection: Connection) -> Server:
        """Compare the database with what the fleet saw, and mark it with the verdict."""
        seen = await self._seen()
        is_lost = False
        for _ in range(_LOOKS):
            # After what was seen: a position that was read before proves nothing.
            server = await _look(connection)
            assert server is not None
            survivor = surviving_id(server, seen)
            is_lost = is_lost or survivor is None
            if is_lost and seen is not None and survivor == seen.id:
                survivor = None
            if server.row is not None and survivor == server.row[0] and server.is_marked:
                return server
            row = server.row or (None, None, None)
            await connection.execute(_MARK, survivor or self._new_id(), server.line, server.started, *row)
        raise JournalError("the incarnation of the database changes as fast as it is read")

    async def _seen(self) -> Incarnation | None:
        if self._witness is None:
            return self.current
        try:
            kept = await self._witness.incarnation()
        except StoreError:
            kept = None
        if kept is None or self.current is None or kept.id != self.current.id:
            return kept or self.current
        return replace(kept, position=max(kept.position, self.current.position))

    async def note(self, read_position: Callable[[], Awaitable[int]]) -> None:
        """Keep how far the log has come: a copy that is restored later is known by an earlier position."""
        current = self.current
        position = await read_position()
        if current is not None and current is self.current:
            self.current = replace(current, position=position)
            if self._witness is not None:
                await self._witness.note(self.current)


async def read_position(connection: Connection) -> int:
    """Return how far the log of the database is flushed to the disk."""
    position: int = await connection.fetchval(f"SELECT {_POSITION}")
    return position


async def _look(connection: Connection) -> Server | None:
    try:
        values = await connection.fetchrow(_LOOK)
    except (asyncpg.UndefinedTableError, asyncpg.InvalidSchemaNameError):
        return None
    line, started, position, relaxed, *row = values
    marked = None if row[0] is None else (row[0], row[1], row[2])
    return Server(line=line, started=started, position=position, relaxed=relaxed, row=marked)


def _incarnation(server: Server) -> Incarnation:
    assert server.row is not None
    return Incarnation(id=server.row[0], line=server.line, started=server.started, position=server.position)
