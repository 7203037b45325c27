"""Recording events in PostgreSQL: in one statement where this process knows the execution, else behind locks.

Most events are of executions that this process has in memory, with every row. They are judged there, and one
statement writes: it locks the executions in the order of their numbers, passes over those that another
process has changed since, and commits. An execution that was passed over is read and judged again.

Everything else is recorded in a transaction: BEGIN with the locks, the rows, all changes, COMMIT. That is an
execution with too many rows for this memory, of which only those are read that its events are judged by; one
with ``at_most_once`` nodes; and whatever was passed over twice. The rows are read by a statement of their own
behind the locks: within one statement with them, it would see the tables as they were before it waited.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.core.event import CallStarted, CancelRequested, NodeCompleted, RetryRequested, WaitStarted
from weft.core.ledger.changes import LiveExecution, RecordedEvent, live_executions
from weft.core.ledger.fence import Ledger, Loaders, NodeEvent
from weft.core.output import output_nodes
from weft.core.payload import decode
from weft.core.snapshot import Snapshot
from weft.definition.plan import Plan, compile_plan
from weft.errors import JournalError, OutcomeUnknownError
from weft.journal import rows, triggers
from weft.journal.postgres import changes, queries
from weft.journal.postgres.connection import was_lost
from weft.journal.queries import blobs as find_blobs
from weft.journal.queries import document as find_document
from weft.journal.queries import inputs as find_inputs
from weft.journal.queries import put_definition
from weft.journal.waits import past_event as find_past_event
from weft.journal.waits import signal_output as find_signal_output
from weft.journal.waits import signals as find_signals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from weft.core.event import Event
    from weft.core.ledger.changes import Changes
    from weft.core.rows import ExecutionRow, NodeRow, PastEvent, Signal, Wait
    from weft.definition.bounds import Bounds
    from weft.definition.model import NotifyTarget
    from weft.journal.postgres.connection import Connection, DatabaseClock
    from weft.journal.postgres.group_commit import Transaction
    from weft.journal.sql import PlanCache

MAX_BYTES = 64 * 1024 * 1024
# Of more nodes than this the rows are read as they are needed: of a wide execution that is a small part.
_MAX_NODES = 1_000
# More rows than this are not looked for by their names: all that the execution has are read.
_MAX_NAMES = 1_000
# So often an execution is judged in memory before it is locked.
_TRIES = 2
# Plans of so many nodes and more are compiled in a thread, though that takes the same lock of Python's.
_LARGE_DOCUMENT_BYTES = 64 * 1024
# "weft": of the advisory locks that are taken in a database, these are for types of inbound events.
_EVENTS_LOCK = 0x77656674_00000003

# An execution, a wait, the time from which on it looks for an event, and the events that others take.
_Past: TypeAlias = "tuple[str, Wait, int, tuple[int, ...]]"


def _by_execution(events: Iterable[Event]) -> dict[str, list[Event]]:
    grouped: dict[str, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.execution_id, []).append(event)
    return grouped


def _is_small(plan: Plan) -> bool:
    """True if executions of a plan are few rows, and every commit changes what is compared of them."""
    # To issue an attempt changes a node's row alone.
    return len(plan.nodes) <= _MAX_NODES and not plan.issues_attempts


class Reads:
    """The rows that events are judged by: read before, or noted as missing when the ledger looks for them.

    The ledger judges by what there is. If it missed something, that is read, and the ledger judges anew: so
    a result among thousands of nodes is judged by one row, and a cancel by all of them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.has_missed = False
        # Executions that were locked, with the rows that were read.
        self.executions: dict[str, LiveExecution] = {}
        self._rows: dict[str, Rows] = {}
        # By execution and node, of outputs that were not read; None: it is to be read.
        self._digests: dict[tuple[str, str], str | None] = {}
        self._blobs: dict[str, bytes | None] = {}
        self._inputs: dict[str, bytes | None] = {}
        # By execution and name, and by execution and number.
        self._signals: dict[tuple[str, str, int], Sequence[Signal] | None] = {}
        self._signal_outputs: dict[tuple[str, int], bytes | None] = {}
        # By execution, wait, time and what others take: the events that were read, and the executions of
        # those that are to be read.
        self._past_events: dict[_Past, PastEvent | None] = {}
        self._past_missed: dict[_Past, ExecutionRow] = {}
        # By namespace and lane of a group: how many executions count there.
        self._in_groups: dict[tuple[str, str], int | None] = {}

    def take(self, facts: LiveExecution, values: Any) -> None:
        """Take a row of an answer: the execution as it is now, and perhaps a row of a node."""
        own = self._rows.get(facts.row.id)
        if own is None:
            own = self.add(facts.number, rows.read_progress(facts.row, values, 1), facts.plan)
        own.asked.add(values[queries.WANTED_NAME])
        stored = values[queries.WANTED_NODE]
        if stored is not None:
            node = rows.read_node(stored)
            own[node.node_id] = node

    def add(self, number: int, row: ExecutionRow, plan: Plan) -> Rows:
        """Add an execution of which no row was read; return what its rows are added to."""
        own = self._rows[row.id] = Rows(self)
        self.executions[row.id] = LiveExecution(number, row, plan, own)
        return own

    async def read_all(self, execution_id: str) -> None:
        """Read the rows of a locked execution that were not read yet."""
        own = self._rows[execution_id]
        own.missed.update(self.executions[execution_id].plan.nodes.keys() - own.asked)
        await self.read_missed()

    def blob(self, name: str) -> bytes:
        payload = self._blobs.setdefault(name, None)
        if payload is None:
            self.has_missed = True
        return b"null" if payload is None else payload

    def input(self, execution_id: str) -> bytes:
        payload = self._inputs.setdefault(execution_id, None)
        if payload is None:
            self.has_missed = True
        return b"{}" if payload is None else payload

    def digest(self, execution_id: str, node_id: str) -> str:
        digest = self._digests.setdefault((execution_id, node_id), None)
        if digest is None:
            self.has_missed = True
        return digest or ""

    def signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        found = self._signals.setdefault((execution_id, name, after), None)
        if found is None:
            self.has_missed = True
        return found or ()

    def output(self, execution_id: str, number: int) -> bytes:
        payload = self._signal_outputs.setdefault((execution_id, number), None)
        if payload is None:
            self.has_missed = True
        return b"null" if payload is None else payload

    def past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        key = (execution.id, wait, since, taken)
        if key not in self._past_events:
            self.has_missed = True
            self._past_missed[key] = execution
        return self._past_events.get(key)

    def is_group_busy(self, execution: ExecutionRow, limit: int) -> bool:
        assert execution.group_lane is not None
        count = self._in_groups.setdefault((execution.namespace, execution.group_lane), None)
        if count is None:
            self.has_missed = True
        return count is not None and count >= limit

    async def read_missed(self) -> None:
        """Read what the ledger has missed; raises JournalError where there is no such blob."""
        self.has_missed = False
        for id_, own in self._rows.items():
            live = self.executions[id_]
            # Only what the execution's output is made from is read with outputs, which may be large.
            outputs = own.missed & output_nodes(live.plan)
            for names, states_only in ((outputs, False), (own.missed - outputs, True)):
                if names:
                    some = names if len(names) <= _MAX_NAMES else None
                    found = await self._read_rows(live, some, states_only=states_only)
                    own.update({name: row for name, row in found.items() if name in names})
            own.asked |= own.missed
            own.missed.clear()
            missed = [name for (of, name), digest in self._digests.items() if of == id_ and digest is None]
            for name, digest in (await self._read_digests(live, missed)).items():
                self._digests[id_, name] = digest
        for key, signals in self._signals.items():
            if signals is None:
                self._signals[key] = await self._read_signals(*key)
        for place, payload in self._signal_outputs.items():
            if payload is None:
                self._signal_outputs[place] = await self._read_signal_output(*place)
        for past, execution in self._past_missed.items():
            self._past_events[past] = await self._read_past_event(execution, *past[1:])
        self._past_missed.clear()
        lanes = [lane for lane, count in self._in_groups.items() if count is None]
        if lanes:
            counts = await self._count_groups(lanes)
            self._in_groups.update(zip(lanes, counts, strict=True))
        inputs = [name for name, payload in self._inputs.items() if payload is None]
        if inputs:
            self._inputs |= await queries.run_query(self._connection, find_inputs(inputs))
        blobs = [name for name, payload in self._blobs.items() if payload is None]
        if blobs:
            self._blobs |= await self._read_blobs(blobs)
        for name in blobs:
            if self._blobs[name] is None:
                raise JournalError(f"the journal has no blob {name}, though a row names it")

    async def _read_rows(
        self, live: LiveExecution, names: Collection[str] | None, *, states_only: bool
    ) -> dict[str, NodeRow]:
        return await queries.nodes(self._connection, live.number, names, states_only=states_only)

    async def _read_digests(self, live: LiveExecution, names: Sequence[str]) -> dict[str, str]:
        return await queries.output_digests(self._connection, live.number, names)

    async def _count_groups(self, lanes: Sequence[tuple[str, str]]) -> list[int]:
        return await queries.run_query(self._connection, triggers.count_groups(lanes))

    async def _read_blobs(self, names: list[str]) -> dict[str, bytes]:
        return await queries.run_query(self._connection, find_blobs(names))

    async def _read_signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        return await queries.run_query(self._connection, find_signals(execution_id, name, after))

    async def _read_past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        return await queries.run_query(self._connection, find_past_event(execution, wait, since, taken))

    async def _read_signal_output(self, execution_id: str, number: int) -> bytes:
        return await queries.run_query(self._connection, find_signal_output(execution_id, number))


class Rows(dict[str, "NodeRow"]):
    """The rows of one locked execution that were read. One that is looked for and was not read is noted."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        # The nodes whose rows were read, as far as there are any, and those whose rows are to be read.
        self.asked: set[str] = set()
        self.missed: set[str] = set()

    def get(self, node_id: str, default: Any = None) -> Any:
        row = super().get(node_id, default)
        if row is None and node_id not in self.asked:
            self.missed.add(node_id)
            self._reads.has_missed = True
        return row


class Recorder:
    def __init__(
        self,
        *,
        clock: DatabaseClock,
        new_id: Callable[[], str],
        bounds: Bounds,
        plans: PlanCache,
        notify: Sequence[NotifyTarget] | None = None,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._bounds = bounds
        self._plans = plans
        self._notify = notify
        # Other processes write too: this is what *was* in the journal. Of an execution that is not whole,
        # only what never changes means anything.
        self._live = live_executions(MAX_BYTES)
        # By execution: recorded events that were written, perhaps. The answer was lost.
        self._unknown: dict[str, list[RecordedEvent]] = {}

    def forget(self) -> None:
        """Drop everything that is remembered: the database has lost commits."""
        self._live.clear()
        self._unknown.clear()

    def remember(self, admitted: Changes, numbers: Mapping[str, int]) -> None:
        """Keep new executions, which have no rows yet; the rows of a fork are read when they are needed."""
        for execution_id, number in numbers.items():
            if admitted.executions[execution_id].rows:
                continue
            live = admitted.executions[execution_id].live
            live.number, live.is_whole = number, _is_small(live.plan)
            live.drop_large_input()
            self._live.put(execution_id, live)

    async def record(
        self, transaction: Transaction, batches: Sequence[Sequence[Event]]
    ) -> list[list[RecordedEvent]]:
        """Record batches of events, one behind the other, and return the recorded events of each."""
        by_execution = _by_execution(chain.from_iterable(batches))
        done = await self._record_known(transaction.connection, by_execution)
        if len(done) < len(by_execution):
            transaction.has_written = bool(done)
            left = {id_: own for id_, own in by_execution.items() if id_ not in done}
            types, calls = _looked_back_for(left), _calls_in(left)
            first = partial(_begin, transaction, types, calls, self._clock) if types or calls else None
            done |= await self.record_locked(transaction, left, first=first)
        recorded_events = dict(zip(done, map(iter, done.values()), strict=True))
        return [[next(recorded_events[event.execution_id]) for event in batch] for batch in batches]

    # -- in memory ---------------------------------------------------------------------------------

    async def _record_known(
        self, connection: Connection, events: Mapping[str, Sequence[Event]]
    ) -> dict[str, list[RecordedEvent]]:
        """Record the events of executions that are in memory, or fit in; return their recorded events."""
        left = {id_: own for id_, own in events.items() if self._may_be_known(id_, own)}
        done = await self._ask_after(connection, left) if self._unknown else {}
        for _ in range(_TRIES):
            if not left:
                break
            known = await self._known(connection, left)
            if len(known) < len(left):
                # What did not get to be known now does not the next time.
                left = {id_: own for id_, own in left.items() if id_ in known}
            for execution_id, recorded_events in (await self._try(connection, left, known)).items():
                done[execution_id] = recorded_events
                del left[execution_id]
        return done

    def _may_be_known(self, execution_id: str, events: Sequence[Event]) -> bool:
        for event in events:
            # An output for the cache belongs to no execution whose version could be compared.
            if type(event) is NodeCompleted and event.cache_key is not None:
                return False
            # It holds off events of its type until it has committed: behind locks.
            if type(event) is WaitStarted and event.lookback_seconds:
                return False
            # It creates an execution, or opens another one again.
            if type(event) is CallStarted:
                return False
        live = self._live.get(execution_id)
        if live is None:
            return "\0" not in execution_id
        return live.is_whole or _is_small(live.plan)

    async def _known(self, connection: Connection, execution_ids: Iterable[str]) -> dict[str, LiveExecution]:
        """Return executions with every row; what is not in memory is read without a lock."""
        known: dict[str, LiveExecution] = {}
        missing: list[str] = []
        for execution_id in execution_ids:
            live = self._live.get(execution_id)
            if live is not None and live.is_whole:
                known[execution_id] = live
            else:
                missing.append(execution_id)
        if not missing:
            return known
        begun: list[tuple[int, ExecutionRow, Plan]] = []
        for number, row in await queries.executions(connection, missing, lean=True):
            plan = await self.plan_of(connection, row.digest)
            if row.is_terminal or not _is_small(plan):
                self._live.put(row.id, LiveExecution(number, row, plan, {}))
            else:
                begun.append((number, row, plan))
        # With two events it was created and started: no node has a row.
        with_rows = [number for number, row, _ in begun if row.seq > 2]
        nodes = await queries.all_nodes(connection, with_rows) if with_rows else {}
        for number, row, plan in begun:
            own = nodes.get(number) or {}
            # The second statement may see a later commit than the first. Rows of two commits cannot be
            # judged: such an execution is read again, behind a lock.
            if any(node.seq > row.seq for node in own.values()):
                continue
            live = LiveExecution(number, row, plan, own, is_whole=True)
            known[row.id] = live
            self._live.put(row.id, live)
        return known

    async def _try(
        self,
        connection: Connection,
        events: Mapping[str, Sequence[Event]],
        known: Mapping[str, LiveExecution],
    ) -> dict[str, list[RecordedEvent]]:
        """Judge by what is in memory, and write; return what was recorded where that was still so."""
        if not known:
            return {}
        now = await self._time_behind(connection, known.values())
        recorded_events: dict[str, list[RecordedEvent]] = {}
        try:
            recorded_events, ledger = await self._judge(events, known.get, Reads(connection), now)
            written = await changes.write_if_current(connection, ledger.changes)
        except Exception as error:
            self._drop(known)
            if was_lost(error) or connection.is_closed():
                self._unknown = recorded_events
                raise OutcomeUnknownError(f"the answer was lost: {error!r}") from error
            raise
        if written is None:
            return {}
        self._clock.note(written[0])
        for execution_id, change in ledger.changes.executions.items():
            if change.live.number not in written[1]:
                del recorded_events[execution_id]
                self._live.drop(execution_id)
            elif change.row.is_terminal or change.row.evicted:
                self._live.drop(execution_id)
            else:
                change.commit()
                self._live.put(execution_id, change.live)
        return recorded_events

    async def _ask_after(
        self, connection: Connection, left: dict[str, Sequence[Event]]
    ) -> dict[str, list[RecordedEvent]]:
        """Read whether a write without an answer was committed: its last event is in the history then.

        What others have written there instead differs at least in its time.
        """
        unknown, self._unknown = self._unknown, {}
        done = {}
        for execution_id, recorded_events in unknown.items():
            if [recorded_event.event for recorded_event in recorded_events] != left.get(execution_id):
                continue
            told = [event for recorded_event in recorded_events for event in recorded_event.history]
            if told and await queries.event_at(connection, execution_id, told[-1].seq) == told[-1]:
                done[execution_id] = recorded_events
        for execution_id in done:
            del left[execution_id]
        return done

    async def _time_behind(self, connection: Connection, known: Iterable[LiveExecution]) -> int:
        """Return the database's time, as far as it is known, and none that is before what is recorded."""
        now = self._clock.time() or await self._clock.ask(connection)
        for live in known:
            now = max(now, live.row.updated_at)
        return now

    def _drop(self, execution_ids: Iterable[str]) -> None:
        for execution_id in execution_ids:
            self._live.drop(execution_id)

    # -- behind locks ------------------------------------------------------------------------------

    async def record_locked(
        self,
        transaction: Transaction,
        events: Mapping[str, Sequence[Event]],
        *,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, list[RecordedEvent]]:
        """Begin, and record the events of executions; ``first`` is done before anything is locked."""
        connection = transaction.connection
        calls = _calls_in(events)
        # A child of an earlier generation is opened again: then it is there, and is locked as its parent is.
        locked = {**{event.called.child: () for event in calls}, **events}
        reads, now = await self._lock(transaction, locked, first)
        for event in calls:
            if event.called.child in reads.executions:
                await reads.read_all(event.called.child)
        for execution_id in events.keys() & reads.executions.keys():
            live = reads.executions[execution_id]
            controls = RetryRequested if live.row.is_terminal else CancelRequested | RetryRequested
            if any(isinstance(event, controls) for event in events[execution_id]):
                # A control event looks at every node: without their rows, the events would be judged twice.
                await reads.read_all(execution_id)
        recorded_events, ledger = await self._judge(events, reads.executions.get, reads, now)
        await changes.write(connection, ledger.changes, now)
        numbers = await changes.add_children(connection, ledger.changes)
        if numbers:
            for event in calls:
                self._plans.put(event.new.plan)
            self.remember(ledger.changes, numbers)
        return recorded_events

    async def _judge(
        self,
        events: Mapping[str, Sequence[Event]],
        find: Callable[[str], LiveExecution | None],
        reads: Reads,
        now: int,
    ) -> tuple[dict[str, list[RecordedEvent]], Ledger]:
        """Judge events by what was read, and again as long as something has to be read for that."""
        while True:
            ledger = self._ledger(find, reads, now)
            try:
                recorded_events = {}
                for execution_id, own in events.items():
                    recorded_events[execution_id] = [*map(ledger.record, own)]
            except Exception:
                # No wonder, where a row that was not read is taken for that of a node that has not run.
                if not reads.has_missed:
                    raise
            if not reads.has_missed:
                return recorded_events, ledger
            await reads.read_missed()

    async def rebuild(
        self, transaction: Transaction, requests: Sequence[tuple[str, int]]
    ) -> list[Snapshot | None]:
        """Begin, raise the epoch of an execution, and read all its rows."""
        ((execution_id, seen_epoch),) = requests
        connection = transaction.connection
        reads, now = await self._lock(transaction, {execution_id: ()})
        live = reads.executions.get(execution_id)
        if live is None or live.row.epoch != seen_epoch:
            return [None]
        live.rows.update(await queries.nodes(connection, live.number))
        ledger = self._ledger(reads.executions.get, reads, now)
        change = ledger.rebuild(execution_id, seen_epoch=seen_epoch)
        assert change is not None
        await changes.write(connection, ledger.changes, now)
        return [Snapshot(change.row, change.plan, list(live.rows.values()))]

    async def _lock(
        self,
        transaction: Transaction,
        events: Mapping[str, Sequence[Event]],
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[Reads, int]:
        """Begin, lock executions, and read them with the rows that the events name; return the time, too."""
        connection = transaction.connection
        while True:
            facts = await self._facts(connection, events)
            numbers = sorted(live.number for live in facts.values())
            if first is None:
                await transaction.begin(numbers)
            else:
                await transaction.begin()
                await first()
                await transaction.lock(numbers)
            reads, now = Reads(connection), 0
            found = await queries.wanted(connection, _named(events, facts))
            by_number = {live.number: live for live in facts.values()}
            for values in found:
                reads.take(by_number[values[0]], values)
            if found:
                now = self._clock.note(found[0][queries.WANTED_CLOCK])
                transaction.number = found[0][queries.WANTED_CLOCK + 1]
            # What is in memory is not what these are when the transaction has committed.
            self._drop([id_ for id_, live in facts.items() if live.is_whole])
            gone = facts.keys() - reads.executions.keys()
            if not gone:
                return reads, now
            # Purged since it was in hand here; its id may be that of a new one.
            self._drop(gone)
            await connection.execute("ROLLBACK")

    async def _facts(self, connection: Connection, execution_ids: Iterable[str]) -> dict[str, LiveExecution]:
        """Return what never changes of these executions; one that the journal does not have is left out."""
        facts = {}
        missing = []
        for execution_id in execution_ids:
            live = self._live.get(execution_id)
            if live is not None:
                facts[execution_id] = live
            elif "\0" not in execution_id:
                missing.append(execution_id)
        for number, row in await queries.executions(connection, missing, lean=True) if missing else ():
            live = LiveExecution(number, row, await self.plan_of(connection, row.digest), {})
            facts[row.id] = live
            self._live.put(row.id, live)
        return facts

    # -- ledgers and plans -------------------------------------------------------------------------

    def admission(self, known: Mapping[str, LiveExecution], now: int) -> Ledger:
        """Make a ledger that takes in new executions, beside those that are known."""
        return self._ledger(known.get, Reads(None), now)

    def _ledger(
        self,
        find: Callable[[str], LiveExecution | None],
        reads: Reads,
        now: int,
    ) -> Ledger:
        return Ledger(
            find,
            loaders=Loaders(reads.blob, reads.input, reads, reads.is_group_busy, reads.digest),
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=now,
            notify=self._notify,
        )

    async def plan_of(self, connection: Connection, digest: str) -> Plan:
        """Return the plan of an execution; raises JournalError where there is none."""
        plan = await self.find_plan(connection, digest)
        if plan is None:
            raise JournalError(f"the journal has no definition {digest}, though an execution names it")
        return plan

    async def find_plan(self, connection: Connection, digest: str) -> Plan | None:
        """Return a plan that is kept, or compile it anew."""
        plan = self._plans.get(digest)
        if plan is not None:
            return plan
        document = await queries.run_query(connection, find_document(digest))
        if document is None:
            return None
        if len(document) < _LARGE_DOCUMENT_BYTES:
            plan = self._compile(document)
        else:
            plan = await asyncio.to_thread(self._compile, document)
        self._plans.put(plan)
        return plan

    def _compile(self, document: bytes) -> Plan:
        return compile_plan(decode(document), self._bounds)


def _looked_back_for(events: Mapping[str, Sequence[Event]]) -> list[str]:
    """Return the types of the inbound events that waits look back for, in one order for all processes."""
    found = {
        event.wait.name
        for own in events.values()
        for event in own
        if type(event) is WaitStarted and event.lookback_seconds
    }
    return sorted(found)


async def hold_events(transaction: Transaction, types: Sequence[str], *, shared: bool = False) -> None:
    """Hold off the other side until the commit: an event, or with ``shared`` a wait that looks back.

    Else neither would see the other: a wait that begins while an event of its type is being committed.
    """
    function = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
    for name in types:
        await transaction.connection.execute(
            f"SELECT {function}(hashtextextended($1, {_EVENTS_LOCK}))",
            name,
        )


def _calls_in(events: Mapping[str, Sequence[Event]]) -> list[CallStarted]:
    return [event for own in events.values() for event in own if isinstance(event, CallStarted)]


async def _begin(
    transaction: Transaction, types: Sequence[str], calls: Sequence[CallStarted], clock: DatabaseClock
) -> None:
    """Do what comes before any execution is locked: hold off inbound events, and store definitions."""
    await hold_events(transaction, types, shared=True)
    if calls:
        await _put_definitions(transaction.connection, calls, clock)


async def _put_definitions(
    connection: Connection, calls: Sequence[CallStarted], clock: DatabaseClock
) -> None:
    """Store what new children run, and lock it against the purge: before any execution is locked."""
    now = await clock.ask(connection)
    for digest, document in sorted({(call.called.digest, call.new.document) for call in calls}):
        await queries.run_query(connection, put_definition(digest, document, now))


def _named(
    events: Mapping[str, Sequence[Event]], facts: Mapping[str, LiveExecution]
) -> list[tuple[int, str]]:
    """List the rows to read with the executions; each is read, if only with the name of no node."""
    values: list[tuple[int, str]] = []
    for execution_id, live in facts.items():
        names = {event.node_id for event in events[execution_id] if isinstance(event, NodeEvent)}
        values += [(live.number, name) for name in names & live.plan.nodes.keys() or ("",)]
    return values
