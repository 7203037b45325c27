"""A journal in one SQLite file: what the embedded engine runs on.

One process owns the data folder, and in it one thread writes. That thread therefore knows, without asking,
what the file holds: it keeps the rows of active executions in memory, lets the ledger judge a batch by them,
and writes the changes in one transaction. Only an execution that it does not hold is read. What it holds runs
ahead of the file between a statement and its commit; no other thread sees it, and where the commit fails it
is thrown away.

Reads have a thread and a connection of their own: they see the last commit, and wait for no writer.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.event import CallStarted, RetryRequested
from weft.core.ledger.changes import Change, Changes, LiveExecution, RecordedEvent, live_executions
from weft.core.ledger.fence import Ledger, Loaders, NodeEvent
from weft.core.payload import decode
from weft.core.rows import without_output
from weft.core.snapshot import Snapshot
from weft.core.state import TERMINAL
from weft.definition.bounds import DEFAULT_BOUNDS, Bounds
from weft.definition.plan import Plan, compile_plan
from weft.errors import JournalError
from weft.journal import triggers
from weft.journal.data_folder import DataFolder
from weft.journal.firing import FireAnswer, GroupCounts, answered_waits, fired, submitted
from weft.journal.memory import accepted_claim, admit
from weft.journal.queries import document as find_document
from weft.journal.queries import execution as find_execution
from weft.journal.queries import inputs as find_inputs
from weft.journal.queries import ping, put_batch, put_definition
from weft.journal.sql import PlanCache, SqlJournal
from weft.journal.sqlite import changes, queries
from weft.journal.sqlite.schema import open_for_reading, open_for_writing
from weft.journal.sqlite.threads import Reader, Writer
from weft.journal.waits import matching
from weft.journal.waits import past_event as find_past_event
from weft.journal.waits import signal_output as find_signal_output
from weft.journal.waits import signals as find_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from sqlite3 import Connection

    from weft.core.event import Event
    from weft.core.rows import ExecutionRow, PastEvent, Signal, Wait
    from weft.definition.model import NotifyTarget
    from weft.journal.contract import Claim, Firing, NewBatch, Submission
    from weft.journal.queries import Query
    from weft.triggers.cloudevent import InboundEvent

T = TypeVar("T")

FILE_NAME = "weft.db"

# Inputs and outputs of the executions in memory: one that was let go is read again, whole, when it changes
# next. The rows themselves are the very objects that the memory store holds too, and count for nothing.
_MAX_BYTES = 128 * 1024 * 1024
# Of larger outputs the rows in memory hold a reference, and of fewer bytes where many are held already.
_INLINE_OUTPUT_BYTES = 16 * 1024
_FEW_OUTPUT_BYTES = 512
_MANY_BYTES = 32 * 1024 * 1024
# So few events are recorded in well under a millisecond; the loop may do that itself.
_FEW_EVENTS = 4


class SqliteJournal(SqlJournal):
    _own = queries
    _event_table = "events"

    def __init__(
        self,
        path: Path,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
        bounds: Bounds = DEFAULT_BOUNDS,
        relaxed: bool = False,
        notify: Sequence[NotifyTarget] | None = None,
    ) -> None:
        """Keep the journal in the data folder ``path``; its thread calls ``now`` and ``new_id``.

        ``relaxed``: a commit returns before it is on the disk.
        """
        self._now = now
        self._new_id = new_id
        self._bounds = bounds
        self._notify = notify
        self._folder = DataFolder(path, file_name=FILE_NAME)
        self._plans = PlanCache()
        # By id: executions that are not terminal, with all their rows. Only the writer's thread looks at it.
        self._live = live_executions(_MAX_BYTES, LiveExecution.weigh_payloads)
        self._next_number = 1
        # No message of this process outlives it, so it need not be stored.
        self._signing_key = os.urandom(32)
        file = path / FILE_NAME
        connect = partial(open_for_writing, file, relaxed=relaxed)
        self._writer = Writer("weft-journal-writer", connect, self._live.clear, now=now)
        self._reader = Reader("weft-journal-reader", partial(open_for_reading, file))

    async def open(self) -> None:
        self._folder.acquire()
        try:
            await self._writer.start()
            await self._reader.start()
            await self._writer.run(self._start_numbering)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._reader.stop()
        await self._writer.stop()
        self._live.clear()
        self._folder.release()

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
        return await self._writer.run(self._submit, submissions, claim, batch)

    async def fire(
        self, firings: Sequence[Firing], *, event: InboundEvent | None = None, claim: Claim | None = None
    ) -> FireAnswer:
        for firing in firings:
            if firing.submission is not None:
                self._plans.put(firing.submission.plan)
        return await self._writer.run(self._fire, firings, event, claim)

    async def record(self, events: Sequence[Event], *, claim: Claim | None = None) -> Sequence[RecordedEvent]:
        if len(events) <= _FEW_EVENTS:
            return await self._writer.run_short(self._record, events, claim)
        return await self._writer.run(self._record, events, claim)

    async def rebuild(self, execution_id: str, *, seen_epoch: int) -> Snapshot | None:
        return await self._writer.run(self._rebuild, execution_id, seen_epoch)

    async def check(self) -> None:
        await self._writer.run(changes.touch)
        await self._query(ping, nothing=None)

    async def signing_key(self) -> bytes:
        return self._signing_key

    # What follows runs in the writer's thread, within a transaction.

    def _start_numbering(self, connection: Connection) -> None:
        self._next_number = queries.next_number(connection)

    def _submit(
        self,
        connection: Connection,
        submissions: Sequence[Submission],
        claim: Claim | None,
        batch: NewBatch | None,
    ) -> list[ExecutionRow]:
        changes.refuse_taken(connection, claim)
        _refuse_busy(connection, submissions)
        return self._store(connection, submissions, claim, batch)

    def _fire(
        self,
        connection: Connection,
        firings: Sequence[Firing],
        event: InboundEvent | None,
        claim: Claim | None,
    ) -> FireAnswer:
        now = self._now()
        if event is not None and not queries.run_query(connection, triggers.put_event(event, now)):
            known = triggers.stored_event(event.namespace, event.source, event.id)
            return FireAnswer((), queries.run_query(connection, known))
        changes.refuse_taken(connection, claim)
        steps = queries.run_query(connection, triggers.advance(firings, now))
        submissions = submitted(firings, steps)
        _refuse_busy(connection, submissions)
        rows = self._store(connection, submissions, claim if submissions else None, None)
        recorded_events: Sequence[RecordedEvent] = ()
        if event is not None:
            recorded_events = self._record(connection, queries.run_query(connection, matching(event)), None)
            answered = answered_waits(recorded_events)
            note = triggers.note_effect(event, [row.id for row in rows], answered)
            queries.run_query(connection, note)
        return FireAnswer(fired(steps, rows), None, recorded_events)

    def _store(
        self,
        connection: Connection,
        submissions: Sequence[Submission],
        claim: Claim | None,
        batch: NewBatch | None,
    ) -> list[ExecutionRow]:
        now = self._now()
        # Asked once for all: an execution that is there already came with a submit whose answer was lost.
        known = queries.known(connection, [submission.id for submission in submissions])
        ledger = self._ledger(
            connection, now, lambda id_: self._find(connection, (), id_) if id_ in known else None
        )
        admitted = [admit(submission, ledger, batch) for submission in submissions]
        new = self._number_new(ledger.changes)
        documents = {submission.plan.digest: submission.document for submission in submissions}
        for digest, document in documents.items():
            queries.run_query(connection, put_definition(digest, document, now))
        places: dict[str, int] = {}
        if batch is not None:
            queries.run_query(connection, put_batch(batch, len(submissions), now))
            places = {submission.id: place for place, submission in enumerate(submissions)}
        changes.put_executions(connection, new, places)
        self._write(connection, ledger.changes, now)
        changes.put_claim(connection, claim, now)
        return admitted

    def _number_new(self, gathered: Changes) -> list[Change]:
        """Number the new executions of a transaction; return them."""
        new = [change for change in gathered.executions.values() if change.is_new]
        for number, change in enumerate(new, self._next_number):
            change.live.number = number
        self._next_number += len(new)
        return new

    def _record(
        self, connection: Connection, events: Sequence[Event], claim: Claim | None
    ) -> list[RecordedEvent]:
        if claim is not None:
            changes.refuse_taken(connection, claim)
        now = self._now()
        ledger = self._ledger(connection, now, partial(self._find, connection, events))
        recorded_events = [ledger.record(event) for event in events]
        if claim is not None:
            changes.put_claim(connection, accepted_claim(claim, recorded_events), now)
        new = self._number_new(ledger.changes)
        if new:
            for event in events:
                if isinstance(event, CallStarted) and event.called.child in ledger.changes.executions:
                    self._plans.put(event.new.plan)
                    document = put_definition(event.called.digest, event.new.document, now)
                    queries.run_query(connection, document)
            changes.put_executions(connection, new, {})
            changes.put_children(connection, ledger.changes)
        self._write(connection, ledger.changes, now)
        return recorded_events

    def _rebuild(self, connection: Connection, execution_id: str, seen_epoch: int) -> Snapshot | None:
        now = self._now()
        ledger = self._ledger(connection, now, partial(self._find, connection, ()))
        change = ledger.rebuild(execution_id, seen_epoch=seen_epoch)
        if change is None:
            return None
        snapshot = Snapshot(change.row, change.plan, list(change.live.rows.values()))
        self._write(connection, ledger.changes, now)
        return snapshot

    def _write(self, connection: Connection, gathered: Changes, now: int) -> None:
        """Write the gathered changes, and bring the executions in memory up to date with them."""
        changes.write(connection, gathered, now)
        for execution_id, change in gathered.executions.items():
            if change.row.state in TERMINAL or change.row.evicted:
                self._live.drop(execution_id)
            else:
                most = _INLINE_OUTPUT_BYTES if self._live.weight < _MANY_BYTES else _FEW_OUTPUT_BYTES
                for node_id, row in change.rows.items():
                    if row.output is not None and len(row.output) > most:
                        change.rows[node_id] = without_output(execution_id, row)
                change.commit()
                change.live.drop_large_input()
                self._live.put(execution_id, change.live)

    def _ledger(
        self, connection: Connection, now: int, find: Callable[[str], LiveExecution | None]
    ) -> Ledger:
        return Ledger(
            find,
            loaders=Loaders(
                partial(queries.blob, connection),
                partial(_input, connection),
                _Mailboxes(connection),
                partial(_is_group_busy, connection),
            ),
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=now,
            notify=self._notify,
        )

    def _find(
        self, connection: Connection, events: Sequence[Event], execution_id: str
    ) -> LiveExecution | None:
        """Return an execution that is in memory, or read it for these events.

        Of a terminal one only the rows are read that the events name, unless one retries it: late results of
        a wide execution that was cancelled come one by one.
        """
        live = self._live.get(execution_id)
        if live is not None:
            return live
        found = queries.run_query(connection, find_execution(execution_id, lean=True))
        if found is None:
            return None
        number, row = found
        names: list[str] | None = None
        opens = any(isinstance(event, RetryRequested | CallStarted) for event in events)
        if row.is_terminal and events and not opens:
            names = [event.node_id for event in events if isinstance(event, NodeEvent)]
        # A retry stores digests of the outputs that it replaces.
        lean = None if row.is_terminal else execution_id
        rows = queries.nodes(connection, number, names, execution_id=lean)
        return LiveExecution(number, row, self._plan_of(connection, row.digest), rows, is_whole=names is None)

    def _plan_of(self, connection: Connection, digest: str) -> Plan:
        plan = self._find_plan(connection, digest)
        if plan is None:
            raise JournalError(f"the journal has no definition {digest}, though an execution names it")
        return plan

    def _find_plan(self, connection: Connection, digest: str) -> Plan | None:
        """Return a plan that is kept, or compile it anew: in this thread, for a large one takes seconds."""
        plan = self._plans.get(digest)
        if plan is None:
            document = queries.run_query(connection, find_document(digest))
            if document is None:
                return None
            plan = compile_plan(decode(document), self._bounds)
            self._plans.put(plan)
        return plan

    # -- reading -----------------------------------------------------------------------------------

    async def _read(self, work: Callable[..., Any], *args: Any, nothing: T) -> T:
        found: T = await self._reader.run(work, *args)
        return found

    async def _transact(self, query: Callable[..., Query[T]], *args: Any) -> T:
        return await self._writer.run(queries.run_query, query(*args))

    async def _clock(self) -> int:
        return self._now()

    async def blobs(self, names: Sequence[str]) -> Mapping[str, bytes]:
        return await self._reader.run(queries.payloads, list(names)) if names else {}

    async def plan(self, digest: str) -> Plan | None:
        return self._plans.get(digest) or await self._reader.run(self._find_plan, digest)


class _Mailboxes:
    """The mailboxes as the transaction on a connection sees them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        return queries.run_query(self._connection, find_signals(execution_id, name, after))

    def output(self, execution_id: str, number: int) -> bytes:
        return queries.run_query(self._connection, find_signal_output(execution_id, number))

    def past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        return queries.run_query(self._connection, find_past_event(execution, wait, since, taken))


def _refuse_busy(connection: Connection, submissions: Sequence[Submission]) -> None:
    """Raise NotAllowedError where the group of a new execution is full and refuses it."""
    counts = GroupCounts()
    if counts.missing(submissions):
        there = queries.known(connection, [submission.id for submission in submissions])
        new = [submission for submission in submissions if submission.id not in there]
        lanes = counts.missing(new)
        found = queries.run_query(connection, triggers.count_groups(lanes))
        for (namespace, lane), count in zip(lanes, found, strict=True):
            counts.put(namespace, lane, count)
        counts.admit(new)


def _is_group_busy(connection: Connection, execution: ExecutionRow, limit: int) -> bool:
    assert execution.group_lane is not None
    lane = triggers.count_in_group(execution.namespace, execution.group_lane)
    return queries.run_query(connection, lane) >= limit


def _input(connection: Connection, execution_id: str) -> bytes:
    """Read the input of an execution that the journal has."""
    (payload,) = queries.run_query(connection, find_inputs([execution_id])).values()
    return payload
