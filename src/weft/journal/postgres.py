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

from weft.core.bounds import DEFAULT_BOUNDS, Bounds
from weft.journal import postgres_purge as purging
from weft.journal import postgres_queries as queries
from weft.journal.catalog import SqlCatalog
from weft.journal.contract import (
    DEFAULT_NAMESPACE,
    Claim,
    NewBatch,
    Submission,
)
from weft.journal.plans import PlanCache
from weft.journal.postgres_clock import DatabaseClock
from weft.journal.postgres_connection import Door, Pool
from weft.journal.postgres_incarnation import read_position
from weft.journal.postgres_record import Recorder
from weft.journal.postgres_rows import label
from weft.journal.postgres_schema import migrate, missing, refuse
from weft.journal.postgres_submit import Submit, Submitter
from weft.journal.postgres_writer import Transaction, Writer
from weft.journal.queries import ping, unnamed_definitions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from weft.core.event import Event
    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, History, NodeRow
    from weft.core.snapshot import Snapshot
    from weft.journal.contract import Version
    from weft.journal.postgres_incarnation import Watch
    from weft.journal.queries import Query

T = TypeVar("T")

_SEAL_BYTES = 32
# Events, or executions, in one commit that several calls share.
_MAX_GROUP = 512


class PostgresJournal(SqlCatalog):
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
        # Reads are short: few connections do many of them, and a server has not many to give.
        connections: int = 4,
        # A reader that would wait longer is told so instead.
        wait_seconds: float = 3.0,
    ) -> None:
        """Keep the journal in the database at ``url``.

        ``exclusive``: by this process alone, which brings the schema up to date itself. ``relaxed``: a
        commit is answered before it is on the server's disk. ``watch`` checks of every connection whether
        commits were lost. ``now`` is for tests that have a time of their own.
        """
        self._url = url
        self._now = now
        self._new_id = new_id
        self._exclusive = exclusive
        self._plans = PlanCache()
        door = Door(url, relaxed=relaxed, watch=watch)
        self._watch = watch
        self._pool = Pool(door, size=connections, wait_seconds=wait_seconds)
        clock = DatabaseClock(now)
        self._recorder = Recorder(clock=clock, new_id=new_id, bounds=bounds, plans=self._plans)
        self._submitter = Submitter(clock=clock, recorder=self._recorder)
        self._writer = Writer(door, max_size=_MAX_GROUP, exclusive=exclusive, forget=self._recorder.forget)
        self._seal_key: bytes | None = None

    async def open(self) -> None:
        """Make the journal ready.

        Raises SchemaError where the schema is behind: a fleet is not migrated by the first who comes. And
        DataFolderError where it is to be this process's alone, and another has it.
        """
        try:
            if self._exclusive:
                await self._writer.hold()
                await migrate(self._url)
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

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[Standing]:
        if not events:
            return []
        standings: Sequence[Standing]
        if claim is not None:
            standings = await self._writer.run(self._submitter.record_claimed, (events, claim))
        else:
            standings = await self._writer.run(self._recorder.record, events, size=len(events))
        return standings

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        snapshot: Snapshot | None = await self._writer.run(self._recorder.rebuild, (execution_id, seen_epoch))
        return snapshot

    async def put_blob(self, payload: bytes) -> str:
        name = self._new_id()
        await self._change(queries.put_blob, name, payload, self._time())
        return name

    async def put_version(
        self, name: str, plan: Plan, document: bytes, *, namespace: str = DEFAULT_NAMESPACE
    ) -> tuple[Version, bool]:
        self._plans.put(plan)
        now = await self._clock()
        return await self._change(queries.put_version, namespace, name, plan.digest, document, now)

    async def purge(self, *, finished_before: int, limit: int) -> int:
        purged = 0
        while purged < limit:
            hidden, digests = await self._change(purging.hide_some, finished_before, limit - purged)
            if not hidden:
                # None is left. There may be definitions that no execution was the last to name.
                digests = await self._query(unnamed_definitions, nothing=[])
            if digests:
                await self._change(purging.drop_definitions, digests)
                for digest in digests:
                    self._plans.drop(digest)
            if not hidden:
                break
            purged += hidden
        while numbers := await self._change(purging.hidden):
            while await self._change(purging.remove_some, numbers):
                pass
        await self._change(purging.drop_batches, finished_before)
        return purged

    async def sweep_blobs(self, *, older_than: int) -> int:
        while await self._change(purging.drop_stale, self._time()):
            pass
        swept = 0
        while some := await self._change(purging.sweep_blobs, older_than):
            swept += some
        return swept

    async def note_position(self) -> None:
        """Keep how far the log of the database has come, for the next comparison of incarnations."""
        if self._watch is not None:
            await self._watch.note(partial(self._read, read_position, nothing=0))

    async def check(self) -> None:
        await self._writer.run(_touch)
        await self._query(ping, nothing=None)

    async def seal_key(self) -> bytes:
        if self._seal_key is None:
            self._seal_key = await self._change(queries.seal_key, os.urandom(_SEAL_BYTES))
        return self._seal_key

    # -- reading -----------------------------------------------------------------------------------

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest) or await self._pool.read(
            lambda connection: self._recorder.find_plan(connection, digest), None
        )

    async def nodes(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> Mapping[str, NodeRow]:
        return await self._read(queries.nodes_of, execution_id, names, nothing={})

    async def events(
        self,
        execution_id: str,
        *,
        after: int = 0,
        limit: int = 500,
        nodes: Collection[str] | None = None,
    ) -> Sequence[History]:
        return await self._read(queries.events, execution_id, after, limit, nodes, nothing=[])

    async def batch_results(
        self, batch_id: str, *, after: int = -1, limit: int = 50
    ) -> Sequence[tuple[int, ExecutionRow]]:
        return await self._read(queries.batch_results, batch_id, after, limit, nothing=[])

    async def cached(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        return await self._read(queries.cached, keys, self._time(), nothing={})

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return await self._read(queries.blobs, names, nothing={})

    # ----------------------------------------------------------------------------------------------

    async def _query(self, query: Callable[..., Query[T]], *args: Any, nothing: T) -> T:
        return await self._pool.read(lambda connection: queries.run_query(connection, query(*args)), nothing)

    async def _transact(self, query: Callable[..., Query[T]], *args: Any) -> T:
        return await self._pool.change(lambda connection: queries.run_transaction(connection, query(*args)))

    @staticmethod
    def _stored_label(text: str) -> bytes:
        return label(text)

    async def _clock(self) -> int:
        return await self._read(queries.clock, nothing=0) if self._now is None else self._now()

    def _time(self) -> int | None:
        """Give the time where it is not the database's."""
        return None if self._now is None else self._now()

    async def _read(self, work: Callable[..., Awaitable[T]], *args: Any, nothing: T) -> T:
        return await self._pool.read(lambda connection: work(connection, *args), nothing)

    async def _change(self, work: Callable[..., Awaitable[T]], *args: Any) -> T:
        return await self._pool.change(lambda connection: work(connection, *args))


async def _touch(transaction: Transaction, requests: Sequence[None]) -> list[None]:
    """Change nothing, but so that the server has to be one that can be written to."""
    await transaction.begin()
    transaction.number = await transaction.connection.fetchval("SELECT pg_current_xact_id()::text")
    return [None for _ in requests]
