"""The group commit: one connection, one transaction at a time, for all calls of a kind that wait.

A call that comes while a transaction is under way waits for it, and shares the next one with the others of
its kind. A value that can never be stored fails the transaction of all of them; then each is done by
itself.

A transaction that meets another one's locks in the wrong order is undone by PostgreSQL, and run again.
Where the answer to a commit is lost, PostgreSQL is asked what became of the transaction, by its number.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg
import msgspec

from weft.errors import DataFolderError, JournalError, OutcomeUnknownError, UnstorableError, WeftError
from weft.journal.postgres.connection import Connection, explained, is_conflict, let_go, roll_back

if TYPE_CHECKING:
    from weft.journal.postgres.pool import Connector

# A transaction that others were in the way of so often is given up.
_TRIES = 8
_TRY_AGAIN_SECONDS = 0.005
# How long a commit whose answer was lost is asked after.
_ASKING_SECONDS = 3.0
_ASK_AGAIN_SECONDS = 0.05

# "weft": a process that runs alone on a database holds this advisory lock.
_EXCLUSIVE_LOCK = 0x77656674_00000002

_HELD = (
    "the database is in use by another weft that runs on it alone; stop that process, "
    "or choose another database"
)

_OTHER_INCARNATION = (
    "nothing was written: the database has lost commits since this was decided; it is decided anew"
)

_LOCK = "weft_lock"
_PREPARE = (
    f"PREPARE {_LOCK} (bigint[]) AS"  # noqa: S608
    " SELECT 1 FROM progress WHERE execution = ANY($1) ORDER BY execution FOR UPDATE"
)


class Transaction:
    """A transaction that is about to begin: whoever works in it begins it, perhaps with its first lock.

    Or does not, where one statement is enough.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        # The transaction's number, once it was read: it is needed to ask for the outcome of a lost commit.
        self.number: str | None = None
        self.has_begun = False
        # Whether a part was committed before it began.
        self.has_written = False
        self.incarnation: str | None = None

    async def begin(self, locked: Sequence[int] = ()) -> None:
        """Begin, and lock these executions in the order of their numbers, in one round trip."""
        self.has_begun = True
        await self.connection.execute(f"BEGIN; {_lock(locked)}" if locked else "BEGIN")

    async def lock(self, executions: Sequence[int]) -> None:
        """Lock executions in the order of their numbers."""
        if executions:
            await self.connection.execute(_lock(executions))


def _lock(executions: Sequence[int]) -> str:
    return f"EXECUTE {_LOCK} ('{{{','.join(map(str, executions))}}}')"


# Does all requests of one kind in a transaction, and answers each: by a result, or by an exception that its
# caller is to see.
Work: TypeAlias = Callable[[Transaction, Sequence[Any]], Awaitable[Sequence[Any]]]


class _Call(msgspec.Struct, eq=False):
    work: Work
    request: Any
    # None: it is done by itself.
    size: int | None
    # The incarnation of the database that the request was made for.
    incarnation: str | None
    future: asyncio.Future[Any]


_request_of = attrgetter("request")


class GroupCommit:
    def __init__(
        self, connector: Connector, *, max_size: int, exclusive: bool, forget: Callable[[], None]
    ) -> None:
        """``max_size``: how much the calls of one transaction may have together.

        ``forget`` drops what is remembered of an earlier incarnation of the database.
        """
        self._connector = connector
        self._forget = forget
        # The incarnation that the connection leads to.
        self._incarnation: str | None = None
        self._max_size = max_size
        self._exclusive = exclusive
        self._connection: Connection | None = None
        self._prepared: Connection | None = None
        self._waiting: deque[_Call] = deque()
        self._awake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve; once more does nothing: two would write in each other's transactions."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve(), name="weft-journal-writer")

    async def stop(self) -> None:
        """End after the calls that wait already."""
        task, self._task = self._task, None
        if task is not None:
            self._awake.set()
            await task
        if self._connection is not None:
            await let_go(self._connection)
            self._connection = self._prepared = None

    async def run(self, work: Work, request: Any = None, *, size: int | None = None) -> Any:
        """Run a request in a transaction, perhaps with others of the same work; return its answer."""
        if self._task is None:
            raise JournalError("the journal is not open")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(work, request, size, self._connector.incarnation, future))
        self._awake.set()
        return await future

    async def hold(self) -> None:
        """Connect now; raises DataFolderError where another process has the database for itself."""
        connection = await self._connector.connect()
        if not await self._is_alone(connection):
            raise DataFolderError(_HELD)
        self._connection = connection

    async def enter(self) -> None:
        """Check the held connection: before its schema was up to date there was nothing to compare."""
        assert self._connection is not None
        await self._connector.check(self._connection)
        self._incarnation = self._connector.incarnation

    async def _serve(self) -> None:
        while True:
            while self._waiting:
                await self._do(self._take())
            if self._task is None:
                return
            self._awake.clear()
            await self._awake.wait()

    def _take(self) -> list[_Call]:
        """Take the first call, and those behind it that can share its transaction."""
        calls = [self._waiting.popleft()]
        size = calls[0].size
        while size is not None and self._waiting:
            behind = self._waiting[0]
            if behind.size is None or behind.work != calls[0].work or size + behind.size > self._max_size:
                break
            if behind.incarnation != calls[0].incarnation:
                break
            size += behind.size
            calls.append(self._waiting.popleft())
        return calls

    async def _do(self, calls: Sequence[_Call]) -> None:
        try:
            requests = [*map(_request_of, calls)]
            answers = await self._transact(calls[0].work, requests, calls[0].incarnation)
        except UnstorableError as error:
            if len(calls) == 1:
                _answer(calls[0], error)
            else:
                for call in calls:
                    await self._do([call])
            return
        except Exception as error:
            for call in calls:
                _answer(call, error)
            return
        for call, answer in zip(calls, answers, strict=True):
            _answer(call, answer)

    async def _transact(self, work: Work, requests: Sequence[Any], incarnation: str | None) -> Sequence[Any]:
        loop = asyncio.get_running_loop()
        give_up_at: float | None = None
        attempt = 0
        while True:
            transaction: Transaction | None = None
            try:
                connection = await self._connected()
                if incarnation is not None and incarnation != self._incarnation:
                    raise JournalError(_OTHER_INCARNATION)
                transaction = Transaction(connection)
                transaction.incarnation = self._incarnation
                return await self._try(transaction, work, requests)
            except Exception as error:
                if is_conflict(error):
                    attempt += 1
                    if attempt == _TRIES:
                        raise explained(error) from error
                    await asyncio.sleep(_TRY_AGAIN_SECONDS * attempt)
                    continue
                alone = transaction is not None and not transaction.has_begun
                if isinstance(error, OutcomeUnknownError) and alone and give_up_at is None:
                    give_up_at = loop.time() + _ASKING_SECONDS
                if give_up_at is None:
                    said = explained(error)
                    if transaction is not None and transaction.has_written and type(said) is JournalError:
                        said = OutcomeUnknownError(f"a part was written before this: {said}")
                    raise said from error
                # Each part looks first for what an earlier statement of its own may have written.
                is_gone = incarnation is not None and incarnation != self._connector.incarnation
                if loop.time() >= give_up_at or is_gone:
                    raise OutcomeUnknownError(f"the commit may be lost: {error}") from error
                await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def _try(self, transaction: Transaction, work: Work, requests: Sequence[Any]) -> Sequence[Any]:
        connection = transaction.connection
        try:
            if self._prepared is not connection:
                await connection.execute(_PREPARE)
                self._prepared = connection
            answers = await work(transaction, requests)
        except Exception as error:
            if connection.is_closed() and not isinstance(error, WeftError):
                # Whatever the driver makes of it: nothing was committed.
                raise JournalError(f"nothing was written: the connection was lost: {error!r}") from error
            await roll_back(connection)
            raise
        if not transaction.has_begun:
            return answers  # it was done by statements that commit by themselves
        try:
            done = await connection.execute("COMMIT")
        except Exception as error:
            if isinstance(error, asyncpg.PostgresError) and not connection.is_closed():
                await roll_back(connection)  # refused: it is the server that says so
                raise
            connection.terminate()
            await self._ask_after(transaction, error)
            return answers
        if done != "COMMIT":
            raise JournalError(f"nothing was written: PostgreSQL answered {done} to the commit")
        return answers

    async def _ask_after(self, transaction: Transaction, error: Exception) -> None:
        """Return if the transaction has committed; raises JournalError if not, or OutcomeUnknownError."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _ASKING_SECONDS
        while transaction.number is not None and loop.time() < give_up_at:
            try:
                connection = await self._connected()
                if self._incarnation != transaction.incarnation:
                    break  # its numbers are of another history
                state = await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", transaction.number)
            except asyncpg.DataError:
                break  # a number that this server has not given yet: it is another one, or an older copy
            except Exception:
                state = None
            if state == "committed":
                return
            if state == "aborted":
                raise JournalError(f"nothing was written: the connection was lost: {error}") from error
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
        raise OutcomeUnknownError(f"the commit may be lost: {error or type(error).__name__}") from error

    async def _connected(self) -> Connection:
        if self._incarnation != self._connector.incarnation and self._connection is not None:
            self._connection.terminate()
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            connection = await self._connector.connect()
            if not await self._is_alone(connection):
                raise JournalError(_HELD)
            if self._incarnation != self._connector.incarnation:
                self._forget()
                self._incarnation = self._connector.incarnation
            self._connection = connection
        return self._connection

    async def _is_alone(self, connection: Connection) -> bool:
        """Take the database for this process, if it is to have it alone; False where another has it."""
        if not self._exclusive:
            return True
        try:
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _EXCLUSIVE_LOCK):
                return True
        except Exception as error:
            connection.terminate()
            raise explained(error) from error
        await let_go(connection)
        return False


def _answer(call: _Call, answer: Any) -> None:
    if call.future.done():
        return
    if isinstance(answer, Exception):
        call.future.set_exception(answer)
    else:
        call.future.set_result(answer)
