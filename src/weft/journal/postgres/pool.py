"""The pool of connections to PostgreSQL: their number, who may open one, and who may use one.

While the server is away, a call fails at once with what the last attempt to reach it said, and no more than
two attempts are made in a second.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import asyncpg

from weft.errors import JournalError, OutcomeUnknownError
from weft.journal.postgres.connection import connect, explained, is_conflict, let_go, message_of, was_lost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.journal.postgres.connection import Connection, Url
    from weft.journal.postgres.incarnation import Watch

T = TypeVar("T")

_RETRY_SECONDS = 0.5


class Connector:
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
                await self.check(connection)
            except JournalError as error:
                self._failed = error
                self._closed_until = loop.time() + _RETRY_SECONDS
                raise
            self._failed = None
            return connection

    async def check(self, connection: Connection) -> None:
        """Find out which incarnation of the database a connection leads to; raises JournalError."""
        if self._watch is None:
            return
        try:
            await self._watch.check(connection)
            if self._watch.current is not None:
                self.incarnation = self._watch.current.id
        except BaseException as error:
            connection.terminate()
            raise explained(error) from error


class PoolLimits(NamedTuple):
    # Reads are short: few connections do many of them, and a server has not many to give.
    connections: int = 4
    # A reader that would wait longer is told so instead.
    wait_seconds: float = 3.0


READERS = PoolLimits()


class Pool:
    """A few connections, for reads and for changes that are no part of the group commit."""

    def __init__(self, connector: Connector, limits: PoolLimits) -> None:
        self._connector = connector
        self._places = asyncio.Semaphore(limits.connections)
        self._wait_seconds = limits.wait_seconds
        # Each with the incarnation of the database that it leads to.
        self._idle: list[tuple[str | None, Connection]] = []
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_open = False

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Wait for the calls under way, then close all connections."""
        self._is_open = False
        await asyncio.gather(*self._under_way, return_exceptions=True)
        while self._idle:
            await let_go(self._idle.pop()[1])

    async def read(self, work: Callable[[Connection], Awaitable[T]], nothing: T) -> T:
        """Read what is committed; a value that PostgreSQL cannot hold is not there: returns ``nothing``."""
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
                    raise OutcomeUnknownError(f"the answer was lost: {message_of(error)}") from error
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
        # The caller may be cancelled in the middle. Its statement is not cut off: cutting it off would take
        # another connection, and letting it end takes less.
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
        connection = self._take_idle() or await self._connector.connect()
        incarnation = self._connector.incarnation
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
            if incarnation != self._connector.incarnation:
                connection.terminate()
            if not connection.is_closed():
                return connection
        return None


def _unread(error: BaseException) -> BaseException:
    known = explained(error)
    if isinstance(known, JournalError) and known is not error:
        return JournalError(f"the journal cannot be read: {message_of(error)}")
    return known
