"""The two threads that use SQLite: one commits, the other reads.

A caller on the event loop hands over a job and awaits its future. A thread takes all the jobs that wait, does
them, and wakes the loop once for all of them. The queues need no bound of their own: everyone in them is a
caller who waits for the answer.

A short job may be committed on the event loop itself (``Writer.run_short``): the way to the writer's thread
and back takes 0.1 ms, half as long as the commit of a single result on a quick disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeAlias, TypeVar, TypeVarTuple

from weft.core.time import micros
from weft.errors import JournalError, OutcomeUnknownError, UnstorableError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Job: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]
# What came of a job: its result, or the exception to raise in its caller.
Answer: TypeAlias = tuple["asyncio.Future[Any]", Any, Exception | None]

# Jobs in one commit. It bounds how long the first of them waits for the last.
_MAX_JOBS = 1_000
# The event loop commits short jobs itself while commits take no longer than this. After a slower one (another
# disk, a checkpoint) the thread makes the next, so a slow disk holds up the loop for one commit at most.
_QUICK = micros(0.001)


class ConnectionThread:
    """A thread with a connection of its own, and the jobs that wait for it."""

    def __init__(self, name: str, connect: Callable[[], sqlite3.Connection]) -> None:
        self._name = name
        self._connect = connect
        # Made anew by each start: nothing that an earlier thread left unread reaches the next.
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped: asyncio.Future[Any] | None = None

    async def start(self) -> None:
        """Open the connection; raises what that raises."""
        self._loop = asyncio.get_running_loop()
        self._jobs = SimpleQueue()
        started = self._loop.create_future()
        self._stopped = self._loop.create_future()
        # A daemon: a script that forgets to close its journal still ends, and has lost nothing.
        Thread(
            target=self._main, args=(self._jobs, started, self._stopped), name=self._name, daemon=True
        ).start()
        try:
            await started
        except BaseException:
            self._loop = None
            self._jobs.put(None)
            raise

    async def run(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        """Run the work in the thread, on its connection, and return the result."""
        if self._loop is None:
            raise JournalError("the journal is not open")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((work, args, future))
        return await future

    async def stop(self) -> None:
        """End the thread after the jobs that wait already, and close the connection."""
        if self._loop is not None:
            self._loop = None
            self._jobs.put(None)
            assert self._stopped is not None
            await self._stopped

    def serve(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[Answer]:
        """Do the jobs and answer every one of them."""
        raise NotImplementedError

    def finish(self, connection: sqlite3.Connection) -> None:
        """Do what is to be done before the connection is closed."""

    def _main(
        self,
        waiting: SimpleQueue[Job | None],
        started: asyncio.Future[Any],
        stopped: asyncio.Future[Any],
    ) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            _deliver([(started, None, error)])
            return
        _deliver([(started, None, None)])
        try:
            while jobs := _take(waiting):
                _deliver(self.serve(connection, jobs))
            self.finish(connection)
        finally:
            connection.close()
            _deliver([(stopped, None, None)])


class Writer(ConnectionThread):
    """Group commit: the jobs that wait at one moment share a transaction, and fail alone.

    ``forget`` is called when work that succeeded was rolled back all the same, because the commit failed.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], sqlite3.Connection],
        forget: Callable[[], None],
        *,
        now: Callable[[], int],
    ) -> None:
        super().__init__(name, connect)
        self._forget = forget
        self._now = now
        # Held during a transaction by the thread, or by the event loop for a short job.
        self._turn = Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_quick = False

    async def start(self) -> None:
        # Until the thread has made a commit, nothing is known of the disk, nor of the connection.
        self._is_quick = False
        await super().start()

    async def run_short(self, work: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        """Do the work as ``run`` does; on the event loop, if no job is under way and commits are quick."""
        if (
            self._loop is None
            or not self._is_quick
            or not self._jobs.empty()
            or not self._turn.acquire(blocking=False)
        ):
            return await self.run(work, *args)
        future: asyncio.Future[T] = self._loop.create_future()
        try:
            assert self._connection is not None
            _settle(self._transact(self._connection, [(work, args, future)]))
        finally:
            self._turn.release()
        return await future

    def serve(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[Answer]:
        with self._turn:
            self._connection = connection
            return self._transact(connection, jobs)

    def _transact(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[Answer]:
        answers: list[Answer] = []
        began_at = self._now()
        try:
            connection.execute("BEGIN IMMEDIATE")
            if len(jobs) == 1:
                work, args, future = jobs[0]
                answers.append((future, work(connection, *args), None))
            else:
                for job in jobs:
                    answers.append(self._apart(connection, job))  # noqa: PERF401 - kept up to a failure
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                # Where even that fails, the next BEGIN does too, and says so to its callers.
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
            if answers:
                self._forget()
            if not isinstance(error, Exception):
                raise  # an interrupt, on the event loop
            return [(future, None, _explained(error)) for _, _, future in jobs]
        self._is_quick = self._now() - began_at < _QUICK
        return answers

    def finish(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # the log holds it all: the next to open the file reads it from there
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _apart(self, connection: sqlite3.Connection, job: Job) -> Answer:
        work, args, future = job
        connection.execute("SAVEPOINT job")
        try:
            result = work(connection, *args)
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite gave the whole transaction up: a full disk, for one
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            return future, None, _explained(error)
        connection.execute("RELEASE job")
        return future, result, None


class Reader(ConnectionThread):
    """Reads what is committed, one job after the other."""

    def serve(self, connection: sqlite3.Connection, jobs: Sequence[Job]) -> list[Answer]:
        return [self._read(connection, job) for job in jobs]

    def _read(self, connection: sqlite3.Connection, job: Job) -> Answer:
        work, args, future = job
        try:
            return future, work(connection, *args), None
        except Exception as error:
            return future, None, _explained(error)


def _take(waiting: SimpleQueue[Job | None]) -> list[Job]:
    """Wait for a job and take the others that wait with it; an empty list is the end."""
    jobs: list[Job] = []
    while not jobs or (len(jobs) < _MAX_JOBS and not waiting.empty()):
        job = waiting.get()
        if job is None:
            if jobs:
                waiting.put(None)  # the end comes after these
            return jobs
        jobs.append(job)
    return jobs


def _explained(error: Exception) -> Exception:
    """Return a new exception for one caller; a bug of ours is returned as it is."""
    if isinstance(error, sqlite3.Error):
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_FSYNC:
            # The commit is in the log, but perhaps not on the disk: a crash now may leave it or take it.
            explained: JournalError = OutcomeUnknownError(f"the commit may be lost: {error}")
        elif isinstance(error, sqlite3.DataError):
            explained = UnstorableError(f"nothing was written: {error}")
        else:
            explained = JournalError(f"nothing was written: {error}")
        explained.__cause__ = error
        return explained
    return error


def _deliver(answers: Sequence[Answer]) -> None:
    """Answer callers on their loop, which is the same for all, by waking it once."""
    loop = answers[0][0].get_loop()
    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, answers)


def _settle(answers: Sequence[Answer]) -> None:
    for future, result, error in answers:
        if future.done():  # cancelled by its caller; the work was done all the same
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
