"""Connections to PostgreSQL: how they are made, how many there are, and what their errors mean.

Every wait has a bound. The server gives up on a lock or a statement first, so that its message says why; the
client's own bound is for a server that says nothing. While the server is away, a call fails at once with what
the last attempt to reach it said, and no more than two attempts are made in a second.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import asyncpg

from weft.core.time import MICROSECONDS
from weft.errors import JournalError, OutcomeUnknownError, UnstorableError, WeftError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from weft.journal.postgres.incarnation import Watch

Url: TypeAlias = str
Connection: TypeAlias = Any  # asyncpg has no types of its own

T = TypeVar("T")

SCHEMA = "weft"

# The database's clock, in microseconds. In a statement behind the lock it is the time of the commit's turn.
CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_CONNECT_SECONDS = 3.0
_CALL_SECONDS = 10.0
_RETRY_SECONDS = 0.5
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
        raise JournalError(f"PostgreSQL cannot be reached: {_said(error)}") from error


@asynccontextmanager
async def connected(url: Url, *, seconds: float = _CALL_SECONDS) -> AsyncIterator[Connection]:
    """Have a connection for a while; what goes wrong on it is a JournalError."""
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
    """Say what an error of the driver means for who called. A bug of ours stays what it is."""
    if isinstance(error, WeftError):
        return error
    if isinstance(error, asyncpg.PostgresError):
        if (error.sqlstate or "").startswith(_UNSTORABLE):
            return UnstorableError(f"nothing was written: a value cannot be stored: {_said(error)}")
        return JournalError(f"nothing was written: {_said(error)}")
    if isinstance(error, _LOST):
        return JournalError(f"nothing was written: the connection to PostgreSQL was lost: {_said(error)}")
    return error


def was_lost(error: BaseException) -> bool:
    """Say whether an error means that the connection ended, or that no answer came."""
    return isinstance(error, _LOST) and not isinstance(error, WeftError)


def is_conflict(error: BaseException) -> bool:
    """Say whether two transactions were in each other's way: then nothing happened, and it is tried again."""
    return isinstance(error, _CONFLICTS)


def _said(error: BaseException) -> str:
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

    def hear(self, said: int) -> int:
        """Note the time that the database has just said; give the time that counts."""
        self._ahead = said - int(asyncio.get_running_loop().time() * MICROSECONDS)
        return said if self._given is None else self._given()

    async def ask(self, connection: Connection) -> int:
        """Ask the database; return the time that counts."""
        return self.hear(await connection.fetchval(f"SELECT {CLOCK}"))

    def time(self) -> int | None:
        """Return the database's time by the known offset; None: the database was never asked for it."""
        if self._given is not None:
            return self._given()
        if self._ahead is None:
            return None
        return self._ahead + int(asyncio.get_running_loop().time() * MICROSECONDS)


class Door:
    """Opens connections, one at a time, and none for a moment after an attempt that failed."""

    def __init__(self, url: Url, *, relaxed: bool = False, watch: Watch | None = None) -> None:
        """``watch`` compares the database of every new connection with what the fleet has seen of it."""
        self._url = url
        self._relaxed = relaxed
        self._watch = watch
        # The incarnation of the database that connections lead to; None if nobody watches.
        self.incarnation: str | None = None
        self._one_at_a_time = asyncio.Lock()
        self._failed: JournalError | None = None
        self._closed_until = 0.0

    async def connect(self) -> Connection:
        """Open a connection; raises JournalError."""
        async with self._one_at_a_time:
            loop = asyncio.get_running_loop()
            if self._failed is not None and loop.time() < self._closed_until:
                raise JournalError(str(self._failed)) from self._failed
            try:
                connection = await connect(self._url, relaxed=self._relaxed)
                await self._check(connection)
            except JournalError as error:
                self._failed = error
                self._closed_until = loop.time() + _RETRY_SECONDS
                raise
            self._failed = None
            return connection

    async def _check(self, connection: Connection) -> None:
        if self._watch is None:
            return
        try:
            await self._watch.check(connection)
            if self._watch.current is not None:
                self.incarnation = self._watch.current.id
        except BaseException as error:
            connection.terminate()
            raise explained(error) from error


class Pool:
    """A few connections, for reads and for changes that are no part of the group commit."""

    def __init__(self, door: Door, *, size: int, wait_seconds: float) -> None:
        self._door = door
        self._places = asyncio.Semaphore(size)
        self._wait_seconds = wait_seconds
        # Each with the incarnation of the database that it leads to.
        self._idle: list[tuple[str | None, Connection]] = []
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Let go of all connections, after what is under way."""
        self._is_open = False
        await asyncio.gather(*self._under_way, return_exceptions=True)
        while self._idle:
            await let_go(self._idle.pop()[1])

    async def read(self, work: Callable[[Connection], Awaitable[T]], nothing: T) -> T:
        """Read what is committed. What PostgreSQL cannot hold it does not have: then it is ``nothing``."""
        try:
            return await self._run(work)
        except asyncpg.DataError:
            return nothing
        except Exception as error:
            raise _unread(error) from error

    async def change(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run statements that are transactions of their own, or one; a lost answer is OutcomeUnknownError."""
        while True:
            try:
                return await self._run(work)
            except Exception as error:
                if is_conflict(error):
                    continue
                if was_lost(error):
                    raise OutcomeUnknownError(f"the answer was lost: {_said(error)}") from error
                raise explained(error) from error

    async def _run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        if not self._is_open:
            raise JournalError("the journal is not open")
        try:
            # (``wait_for`` of Python 3.11 may forget that it was cancelled.)
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise JournalError(f"no connection came free within {self._wait_seconds:g} s") from None
        # Whoever asked may go away in the middle. A statement is not cut off for that, which would take a
        # connection more than it takes to let it end.
        task = asyncio.ensure_future(self._run_here(work))
        self._under_way.add(task)
        task.add_done_callback(self._end)
        return await asyncio.shield(task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._places.release()
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits any more

    async def _run_here(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        connection = self._take_idle() or await self._door.connect()
        incarnation = self._door.incarnation
        try:
            result = await work(connection)
        except BaseException as error:
            if isinstance(error, asyncpg.PostgresError) and not (
                connection.is_closed() or connection.is_in_transaction()
            ):
                self._idle.append((incarnation, connection))
            else:
                connection.terminate()
            raise
        self._idle.append((incarnation, connection))
        return result

    def _take_idle(self) -> Connection | None:
        while self._idle:
            incarnation, connection = self._idle.pop()
            if incarnation != self._door.incarnation:
                connection.terminate()
            if not connection.is_closed():
                return connection
        return None


def _unread(error: BaseException) -> BaseException:
    known = explained(error)
    if isinstance(known, JournalError) and known is not error:
        return JournalError(f"the journal cannot be read: {_said(error)}")
    return known


async def roll_back(connection: Connection) -> None:
    """Undo what is under way; a connection that cannot is given up."""
    if connection.is_closed():
        return
    with suppress(Exception):
        if connection.is_in_transaction():
            await connection.execute("ROLLBACK")
        return
    connection.terminate()
