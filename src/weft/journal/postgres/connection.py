"""Opens connections to PostgreSQL, tells its errors apart, and reads its clock.

Every wait has a bound. The server gives up on a lock or a statement first, so that its message says why; the
client's bound is for a server that does not answer.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from weft.core.time import MICROSECONDS
from weft.errors import JournalError, UnstorableError, WeftError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

Url: TypeAlias = str
Connection: TypeAlias = Any  # asyncpg has no types of its own

SCHEMA = "weft"

# The database's clock, in microseconds. In a statement behind the lock it is the time of the commit's turn.
CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_CONNECT_SECONDS = 3.0
_CALL_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

_SETTINGS = {
    "application_name": "weft",
    "search_path": SCHEMA,
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    "client_min_messages": "warning",
    "lock_timeout": "3s",
    "statement_timeout": "8s",
    # A process that is stopped in the middle of a transaction must not hold its locks against its peers.
    "idle_in_transaction_session_timeout": "10s",
    # Every statement here is meant to walk an index, in its order. Of a table that has just been made, or has
    # just grown, the planner knows too little to see that; and it plans once, not for each batch anew.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}

# InternalClientError: the driver says so where a connection ends in the middle of an answer.
_LOST = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    TimeoutError,
)
# Data exceptions, broken constraints, bounds of the server, and what a trigger raises.
_UNSTORABLE = ("22", "23", "54", "P0")
_CONFLICTS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


async def connect(url: Url, *, seconds: float = _CALL_SECONDS, relaxed: bool = False) -> Connection:
    """Open a connection whose calls end within so many seconds; raises JournalError.

    ``relaxed``: a commit is answered before it is on the server's disk.
    """
    settings = _SETTINGS
    if relaxed:
        settings = {**settings, "synchronous_commit": "off"}
    if seconds != _CALL_SECONDS:
        bound = f"{seconds * 0.8:.0f}s"
        settings = {**settings, "lock_timeout": bound, "statement_timeout": bound}
    try:
        return await asyncpg.connect(
            url, timeout=_CONNECT_SECONDS, command_timeout=seconds, server_settings=settings
        )
    except (*_LOST, asyncpg.PostgresError, ValueError) as error:
        raise JournalError(f"PostgreSQL cannot be reached: {message_of(error)}") from error


@asynccontextmanager
async def connected(url: Url, *, seconds: float = _CALL_SECONDS) -> AsyncIterator[Connection]:
    """Open a connection for the block; errors of the driver inside become JournalError."""
    connection = await connect(url, seconds=seconds)
    try:
        yield connection
    except Exception as error:
        raise explained(error) from error
    finally:
        await let_go(connection)


async def let_go(connection: Connection) -> None:
    """Close a connection, whatever state it is in."""
    try:
        await connection.close(timeout=_CLOSE_SECONDS)
    except Exception:
        connection.terminate()


def explained(error: BaseException) -> BaseException:
    """Return the error to raise for an error of the driver; a bug of ours is returned as it is."""
    if isinstance(error, WeftError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        if (error.sqlstate or "").startswith(_UNSTORABLE):
            return UnstorableError(f"nothing was written: a value cannot be stored: {message_of(error)}")
        return JournalError(f"nothing was written: {message_of(error)}")
    if isinstance(error, _LOST):
        return JournalError(
            f"nothing was written: the connection to PostgreSQL was lost: {message_of(error)}"
        )
    return error


def was_lost(error: BaseException) -> bool:
    """True if an error means that the connection ended, or that no answer came."""
    return isinstance(error, _LOST) and not isinstance(error, WeftError)


def is_conflict(error: BaseException) -> bool:
    """True if two transactions conflicted: nothing was written, and the caller tries again."""
    return isinstance(error, _CONFLICTS)


def message_of(error: BaseException) -> str:
    """Return what an error says, or the name of its type where it says nothing."""
    return str(error) or type(error).__name__


class DatabaseClock:
    """The database's clock, by which all processes of a fleet write their times.

    Asked, or known from what it said last.
    """

    def __init__(self, given: Callable[[], int] | None) -> None:
        """``given``: a time that counts instead, for tests that have one of their own."""
        self._given = given
        # How far it is ahead of the loop's; None: it was not asked yet.
        self._ahead: int | None = None

    def note(self, said: int) -> int:
        """Keep the offset of a time that the database has just returned; return the time that counts."""
        self._ahead = said - int(asyncio.get_running_loop().time() * MICROSECONDS)
        return said if self._given is None else self._given()

    async def ask(self, connection: Connection) -> int:
        """Ask the database; return the time that counts."""
        return self.note(await connection.fetchval(f"SELECT {CLOCK}"))

    def time(self) -> int | None:
        """Return the database's time by the known offset; None: the database was never asked for it."""
        if self._given is not None:
            return self._given()
        if self._ahead is None:
            return None
        return self._ahead + int(asyncio.get_running_loop().time() * MICROSECONDS)


async def roll_back(connection: Connection) -> None:
    """Roll back the open transaction; terminate the connection if that fails."""
    if connection.is_closed():
        return
    with suppress(Exception):
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
        return
    connection.terminate()
