"""A journal in PostgreSQL: what a fleet runs on.

Any number of processes write. Nothing that can change is kept between two transactions: each locks the rows
of its executions first, in the order of their numbers, reads what the ledger looks at, and writes what it
decides. A process has one connection for these transactions, which calls that wait at the same time share,
and a few for everything else.

The time is the database's, read behind the lock: the times of an execution follow the order of its commits,
whoever makes them.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.journal.postgres import queries
from weft.journal.postgres.connection import DatabaseClock
from weft.journal.postgres.group_commit import GroupCommit, Transaction
from weft.journal.postgres.incarnation import read_position
from weft.journal.postgres.pool import READERS, Connector, Pool
from weft.journal.postgres.record import Recorder
from weft.journal.postgres.rows import label
from weft.journal.postgres.schema import migrate, missing, refuse
from weft.journal.postgres.submit import Fire, Submit, Submitter
from weft.journal.queries import ping
from weft.journal.sql import PlanCache, SqlJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.event import Event
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow
    from weft.core.snapshot import Snapshot
    from weft.definition.model import NotifyTarget
    from weft.definition.plan import Plan
    from weft.journal.contract import Claim, FireAnswer, Firing, NewBatch, Submission
    from weft.journal.postgres.incarnation import Watch
    from weft.journal.queries import Query
    from weft.triggers.cloudevent import InboundEvent

T = TypeVar("T")

_SEAL_BYTES = 32
# Events, or executions, in one commit that several calls share.
_MAX_GROUP = 512


class PostgresJournal(SqlJournal):
    _own = queries
    _event_table = "recorded_events"
    _readers = READERS

    def __init__(
        self,
        url: str,
        *,
        new_id: Callable[[], str],
        bounds: Bounds = DEFAULT_BOUNDS,
        now: Callable[[], int] | None = None,
        exclusive: bool = False,
        relaxed: bool = False,
        watch: Watch | None = None,
        notify: Sequence[NotifyTarget] | None = None,
    ) -> None:
        """Keep the journal in the database at ``url``.

        ``exclusive``: by this process alone, which brings the schema up to date itself. ``relaxed``: a
        commit is answered before it is on the server's disk. ``watch`` checks of every connection whether
        commits were lost. ``now`` is for tests that have a time of their own.
        """
        self._url = url
        self._new_id = new_id
        self._exclusive = exclusive
        self._plans = PlanCache()
        connector = Connector(url, relaxed=relaxed, watch=watch)
        self._watch = watch
        self._pool = Pool(connector, self._readers)
        self._time = DatabaseClock(now)
        self._recorder = Recorder(
            clock=self._time, new_id=new_id, bounds=bounds, plans=self._plans, notify=notify
        )
        self._submitter = Submitter(clock=self._time, recorder=self._recorder)
        self._writer = GroupCommit(
            connector, max_size=_MAX_GROUP, exclusive=exclusive, forget=self._recorder.forget
        )
        self._signing_key: bytes | None = None

    async def open(self) -> None:
        """Make the journal ready.

        Raises SchemaError where the schema is behind: a fleet is not migrated by the first who comes. And
        DataFolderError where it is to be this process's alone, and another has it.
        """
        try:
            if self._exclusive:
                await self._writer.hold()
                await migrate(self._url)
                await self._writer.enter()
            self._pool.open()
            refuse(await self._read(missing, nothing=[]))
            self._writer.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._writer.stop()
        await self._pool.close()

    # -- writing -----------------------------------------------------------------------------------

    async def submit(
        self,
        submissions: Sequence[Submission],
        *,
        claim: Claim | None = None,
        batch: NewBatch | None = None,
    ) -> Sequence[ExecutionRow]:
        for submission in submissions:
            self._plans.put(submission.plan)
        rows: Sequence[ExecutionRow] = await self._writer.run(
            self._submitter.submit, Submit(submissions, claim, batch), size=1 + len(submissions)
        )
        return rows

    async def fire(
        self, firings: Sequence[Firing], *, event: InboundEvent | None = None, claim: Claim | None = None
    ) -> FireAnswer:
        for firing in firings:
            if firing.submission is not None:
                self._plans.put(firing.submission.plan)
        call = Fire(firings, event, claim)
        answer: FireAnswer = await self._writer.run(self._submitter.fire, call, size=call.size)
        return answer

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[RecordedEvent]:
        if not events:
            return []
        recorded_events: Sequence[RecordedEvent]
        if claim is not None:
            recorded_events = await self._writer.run(self._submitter.record_claimed, (events, claim))
        else:
            recorded_events = await self._writer.run(self._recorder.record, events, size=len(events))
        return recorded_events

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        snapshot: Snapshot | None = await self._writer.run(self._recorder.rebuild, (execution_id, seen_epoch))
        return snapshot

    async def note_position(self) -> None:
        """Keep how far the log of the database has come, for the next comparison of incarnations."""
        if self._watch is not None:
            await self._watch.note(partial(self._read, read_position, nothing=0))

    async def check(self) -> None:
        await self._writer.run(_touch)
        await self._query(ping, nothing=None)

    async def signing_key(self) -> bytes:
        if self._signing_key is None:
            new = os.urandom(_SEAL_BYTES)
            self._signing_key = await self._pool.change(
                lambda connection: queries.signing_key(connection, new)
            )
        return self._signing_key

    # -- reading -----------------------------------------------------------------------------------

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest) or await self._pool.read(
            lambda connection: self._recorder.find_plan(connection, digest), None
        )

    # ----------------------------------------------------------------------------------------------

    async def _transact(self, query: Callable[..., Query[T]], *args: Any) -> T:
        return await self._pool.change(lambda connection: queries.run_transaction(connection, query(*args)))

    async def _execute(self, query: Callable[..., Query[T]], *args: Any) -> T:
        return await self._pool.change(lambda connection: queries.run_query(connection, query(*args)))

    @staticmethod
    def _stored_label(text: str) -> bytes:
        return label(text)

    async def _clock(self) -> int:
        now = self._time.time()
        return await self._pool.read(self._time.ask, 0) if now is None else now

    async def _read(self, work: Callable[..., Any], *args: Any, nothing: T) -> T:
        return await self._pool.read(lambda connection: work(connection, *args), nothing)


async def _touch(transaction: Transaction, requests: Sequence[None]) -> list[None]:
    """Take a transaction number and change nothing else: a standby, which takes no writes, refuses it."""
    await transaction.begin()
    transaction.number = await transaction.connection.fetchval("SELECT pg_current_xact_id()::text")
    return [None for _ in requests]
