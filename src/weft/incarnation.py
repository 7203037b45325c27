"""The incarnation of the database: one unbroken history of commits.

A database that lost commits which weft has seen (a crash without a synchronous disk, a standby promoted
behind its primary, a restored copy) is another incarnation. What Redis holds then runs ahead of the journal.
"""

from __future__ import annotations

import msgspec


class Incarnation(msgspec.Struct, frozen=True, kw_only=True):
    """The database as a process of the fleet last saw it."""

    id: str
    # The system identifier of the server and its timeline, and when the server process started.
    line: str
    started: str
    # How far the log of the database was flushed to the disk.
    position: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The database as a new connection finds it."""

    line: str
    started: str
    position: int
    # Commits do not wait for the disk: crash recovery may lose the last of them.
    relaxed: bool
    # The row of the table ``incarnation``, which PostgreSQL empties in crash recovery: id, line, started.
    row: tuple[str, str, str] | None

    @property
    def is_marked(self) -> bool:
        """True if the row was written, or confirmed, since this server process started."""
        return self.row is not None and self.row[1:] == (self.line, self.started)


def surviving_id(server: Server, seen: Incarnation | None) -> str | None:
    """Return the id of the incarnation that goes on in this database; None if commits may be lost.

    ``seen``: what the fleet saw last; None if nobody can say.
    """
    row = server.row
    marked = row[0] if row is not None and server.is_marked else None
    if seen is None or (marked is not None and marked != seen.id):
        # Another process has compared this server with what was seen, or there is nothing to compare.
        return marked
    if server.line != seen.line or server.position < seen.position:
        return None
    if row is None:
        # Crash recovery keeps every commit that waited for the disk.
        return None if server.relaxed else seen.id
    if marked is not None:
        return marked
    # A restart in good order finds the row as the fleet left it. A copy of the data folder that was taken
    # before an earlier restart does not.
    return row[0] if (row[0], row[2]) == (seen.id, seen.started) else None
