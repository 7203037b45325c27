"""Recording events in PostgreSQL: lock the executions, read what the ledger looks at, judge, write.

What can be judged by what this process has seen last is recorded without all that (``QuickRecorder``).

Four round trips for a batch: BEGIN with the locks, the rows, all changes, COMMIT. The rows are read by a
statement of their own behind the locks: within one statement with them, it would see the tables as they were
before it waited. A fifth is needed where an event stops, retries or finishes a wide execution.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.core.event import NodeCompleted
from weft.core.ledger import Ledger, Standing
from weft.core.needs import further_rows, named_rows, overwritten_rows, settled_by
from weft.core.output import output_nodes
from weft.core.payload import decode
from weft.core.plan import Plan, compile_plan
from weft.core.snapshot import Snapshot
from weft.errors import JournalError
from weft.journal import postgres_changes as changes
from weft.journal import postgres_queries as queries
from weft.journal import postgres_rows as rows
from weft.journal.postgres_quick import QuickRecorder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from weft.core.bounds import Bounds
    from weft.core.event import Event
    from weft.core.row import ExecutionRow, NodeRow
    from weft.journal.plans import PlanCache
    from weft.journal.postgres_clock import DatabaseClock
    from weft.journal.postgres_connection import Connection
    from weft.journal.postgres_recent import Facts
    from weft.journal.postgres_writer import Transaction

# The rows that an execution's output is made from are read with the others where its end may be near, unless
# they are more than these.
_MAX_GUESSED = 16
# A row that is wanted whatever is unsettled.
_ALWAYS = 2**31 - 1
# Plans of so many nodes and more are compiled in a thread, though that takes the same lock of Python's.
_LARGE_DOCUMENT_BYTES = 64 * 1024


def _by_execution(events: Iterable[Event]) -> dict[str, list[Event]]:
    grouped: dict[str, list[Event]] = {}
    for event in events:
        grouped.setdefault(event.execution_id, []).append(event)
    return grouped


def _guessed(plan: Plan) -> Collection[str]:
    """Name the rows to read in case an execution of the plan comes to its end."""
    outputs = output_nodes(plan)
    return outputs if len(outputs) <= _MAX_GUESSED else ()


class Rows(dict[str, "NodeRow | None"]):
    """The rows of one execution that were read: None is one that is not there.

    A row that was looked for and not read is noted, and all is read and judged again.
    """

    def __init__(self) -> None:
        self.has_all = False
        self.missed = False
        # How many nodes the events of the execution settle, if they do not stop it.
        self.settled = 0

    def get(self, node_id: str, default: Any = None) -> Any:
        try:
            return self[node_id]
        except KeyError:
            self.missed = self.missed or not self.has_all
            return default

    def present(self) -> dict[str, NodeRow]:
        return {node_id: row for node_id, row in self.items() if row is not None}


class Locked:
    """Executions that this transaction has locked, and what it has read of them."""

    def __init__(self) -> None:
        self.executions: dict[str, ExecutionRow] = {}
        self.numbers: dict[str, int] = {}
        self.nodes: dict[str, Rows] = {}
        self.plans: dict[str, Plan] = {}
        # Those that the output of an execution may be made from.
        self.blobs: dict[str, bytes] = {}
        # By execution and node: digests of outputs that were not read.
        self.digests: dict[tuple[str, str], str] = {}
        self.now = 0

    def blob(self, name: str) -> bytes:
        try:
            return self.blobs[name]
        except KeyError:
            raise JournalError(f"the journal has no blob {name}, though a row names it") from None


class Recorder:
    def __init__(
        self,
        *,
        clock: DatabaseClock,
        new_id: Callable[[], str],
        bounds: Bounds,
        plans: PlanCache,
        facts: Facts,
    ) -> None:
        self._clock = clock
        self._new_id = new_id
        self._bounds = bounds
        self._plans = plans
        self._facts = facts
        self._quick = QuickRecorder(
            clock=clock, new_id=new_id, bounds=bounds, plans=plans, facts=facts, find_plan=self.plan_of
        )

    def forget(self) -> None:
        """Drop every row that is remembered: the database has lost commits."""
        self._quick.clear()

    async def record(
        self, transaction: Transaction, batches: Sequence[Sequence[Event]]
    ) -> list[list[Standing]]:
        """Record batches of events, one behind the other, and give the standings of each."""
        by_execution = _by_execution(event for batch in batches for event in batch)
        done = await self._quick.record(transaction.connection, by_execution)
        left = [event for id_, own in by_execution.items() if id_ not in done for event in own]
        if left:
            transaction.has_written = bool(done)
            for standing in await self.record_all(transaction, left):
                done.setdefault(standing.event.execution_id, []).append(standing)
        standings = {id_: iter(own) for id_, own in done.items()}
        return [[next(standings[event.execution_id]) for event in batch] for batch in batches]

    async def record_all(
        self,
        transaction: Transaction,
        events: Sequence[Event],
        *,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> list[Standing]:
        """Begin, and record events; ``first`` is done before anything is locked."""
        by_execution = _by_execution(events)
        self._quick.forget(by_execution)
        locked = await self._lock(transaction, by_execution, first)
        await self._read_further(transaction.connection, locked, by_execution)
        while True:
            ledger = self._ledger(locked)
            standings = [ledger.record(event) for event in events]
            missed = [id_ for id_, held in locked.nodes.items() if held.missed]
            if not missed:
                break
            for execution_id in missed:
                await self._read_all(transaction.connection, locked, execution_id, by_execution[execution_id])
        await changes.write(
            transaction.connection,
            ledger.changes,
            locked.executions,
            locked.nodes,
            locked.numbers,
            locked.now,
        )
        return standings

    async def rebuild(
        self, transaction: Transaction, requests: Sequence[tuple[str, int]]
    ) -> list[Snapshot | None]:
        """Begin, raise the epoch of an execution, and read all its rows."""
        ((execution_id, seen_epoch),) = requests
        self._quick.forget([execution_id])
        connection = transaction.connection
        locked = await self._lock(transaction, {execution_id: ()})
        if execution_id not in locked.executions:
            return [None]
        held = locked.nodes[execution_id]
        if locked.executions[execution_id].epoch == seen_epoch:
            held.update(await queries.nodes(connection, locked.numbers[execution_id]))
        held.has_all = True
        ledger = self._ledger(locked)
        execution = ledger.rebuild(execution_id, seen_epoch=seen_epoch)
        if execution is None:
            return [None]
        await changes.write(
            connection, ledger.changes, locked.executions, locked.nodes, locked.numbers, locked.now
        )
        return [Snapshot(execution, locked.plans[execution.digest], list(held.present().values()))]

    # -- locking and reading -----------------------------------------------------------------------

    async def _lock(
        self,
        transaction: Transaction,
        events: Mapping[str, Sequence[Event]],
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> Locked:
        """Begin, lock executions, and read them with the rows that the events name."""
        connection = transaction.connection
        while True:
            facts = await self._known(connection, events)
            locked = Locked()
            for _, row in facts.values():
                if row.digest not in locked.plans:
                    locked.plans[row.digest] = await self.plan_of(connection, row.digest)
            numbers = sorted(number for number, _ in facts.values())
            if first is None:
                await transaction.begin(numbers)
            else:
                await transaction.begin()
                await first()
                await transaction.lock(numbers)
            found = await queries.wanted(connection, self._wanted(events, facts, locked))
            by_number = dict(facts.values())
            for values in found:
                self._take(locked, by_number, values)
            if found:
                locked.now = self._clock.hear(found[0][queries.WANTED_CLOCK])
                transaction.number = found[0][queries.WANTED_CLOCK + 1]
            gone = facts.keys() - locked.executions.keys()
            if not gone:
                return locked
            # Purged since it was in hand here; its id may be that of a new one.
            for execution_id in gone:
                self._facts.drop(execution_id)
            await connection.execute("ROLLBACK")

    async def _known(self, connection: Connection, ids: Iterable[str]) -> dict[str, tuple[int, ExecutionRow]]:
        """Give what never changes of these executions; one that the journal does not have is left out."""
        known = {}
        missing = []
        for execution_id in ids:
            facts = self._facts.get(execution_id)
            if facts is not None:
                known[execution_id] = facts
            elif "\0" not in execution_id:
                missing.append(execution_id)
        if missing:
            for number, row in await queries.facts(connection, missing):
                self._facts.put(row.id, (number, row))
                known[row.id] = number, row
        return known

    def _wanted(
        self,
        events: Mapping[str, Sequence[Event]],
        facts: Mapping[str, tuple[int, ExecutionRow]],
        locked: Locked,
    ) -> list[tuple[int, str, int]]:
        """List the rows to read with the executions, and note what they are read for."""
        values: list[tuple[int, str, int]] = []
        guesses = {digest: _guessed(plan) for digest, plan in locked.plans.items()}
        for execution_id, (number, row) in facts.items():
            plan = locked.plans[row.digest]
            held = locked.nodes[execution_id] = Rows()
            own = events[execution_id]
            for event in own:
                for name in named_rows(event, plan):
                    held[name] = None
            held.settled = settled = settled_by(own)
            if held:
                values += [(number, name, _ALWAYS) for name in held]
            else:
                values.append((number, "", 0))
            if settled:
                values += [(number, name, settled) for name in guesses[row.digest] if name not in held]
        return values

    @staticmethod
    def _take(locked: Locked, facts: Mapping[int, ExecutionRow], values: Any) -> None:
        number = values[0]
        execution_id = facts[number].id
        if execution_id not in locked.executions:
            locked.executions[execution_id] = rows.read_progress(facts[number], values, 1)
            locked.numbers[execution_id] = number
        stored = values[queries.WANTED_NODE]
        if stored is not None:
            node = rows.read_node(stored)
            locked.nodes[execution_id][node.node_id] = node

    async def _read_further(
        self, connection: Connection, locked: Locked, events: Mapping[str, Sequence[Event]]
    ) -> None:
        """Read what the events need besides the rows they name."""
        for execution_id, execution in locked.executions.items():
            held = locked.nodes[execution_id]
            if held.settled == len(events[execution_id]) < execution.unsettled and all(
                type(event) is NodeCompleted for event in events[execution_id]
            ):
                continue  # as most are: results of an execution that is not near its end
            plan = locked.plans[execution.digest]
            further = further_rows(events[execution_id], execution, plan, held.present())
            number = locked.numbers[execution_id]
            missing = further.whole - held.keys()
            was_guessed = bool(_guessed(plan)) and execution.unsettled <= held.settled
            if missing and was_guessed:
                held.update(dict.fromkeys(missing))  # they were asked for with the first: there are none
            elif missing:
                found = await queries.nodes(connection, number, missing)
                held.update({name: found.get(name) for name in missing})
            if further.every_state:
                found = await queries.nodes(connection, number, states_only=True)
                held.update({name: row for name, row in found.items() if name not in held})
                held.has_all = True
                await self._read_digests(connection, locked, execution, events[execution_id])
            if further.whole:
                await self._read_blobs(connection, locked, held, further.whole, events[execution_id])

    @staticmethod
    async def _read_digests(
        connection: Connection, locked: Locked, execution: ExecutionRow, events: Sequence[Event]
    ) -> None:
        """Read the digests of the outputs whose rows a retry may overwrite."""
        held = locked.nodes[execution.id]
        names = overwritten_rows(events, locked.plans[execution.digest], held.present())
        digests = await queries.output_digests(connection, locked.numbers[execution.id], names)
        locked.digests.update(((execution.id, name), digest) for name, digest in digests.items())

    async def _read_all(
        self, connection: Connection, locked: Locked, execution_id: str, events: Sequence[Event]
    ) -> None:
        held = locked.nodes[execution_id]
        held.update(await queries.nodes(connection, locked.numbers[execution_id]))
        held.has_all, held.missed = True, False
        plan = locked.plans[locked.executions[execution_id].digest]
        await self._read_blobs(connection, locked, held, output_nodes(plan), events)

    @staticmethod
    async def _read_blobs(
        connection: Connection, locked: Locked, held: Rows, outputs: Collection[str], events: Sequence[Event]
    ) -> None:
        stored = [row.blob for name in outputs if (row := dict.get(held, name)) is not None]
        coming = [
            event.blob for event in events if isinstance(event, NodeCompleted) and event.node_id in outputs
        ]
        names = [name for name in (*stored, *coming) if name is not None and name not in locked.blobs]
        if names:
            locked.blobs.update(await queries.blobs(connection, names))

    def admission(self, known: dict[str, ExecutionRow], now: int) -> Ledger:
        """Make a ledger that takes in new executions, beside those that are known."""
        locked = Locked()
        locked.executions, locked.now = known, now
        return self._ledger(locked)

    def _ledger(self, locked: Locked) -> Ledger:
        return Ledger(
            executions=locked.executions,
            nodes=locked.nodes,  # type: ignore[arg-type]
            plan_of=locked.plans.__getitem__,
            load_blob=locked.blob,
            new_id=self._new_id,
            max_payload_bytes=self._bounds.max_payload_bytes,
            now=locked.now,
            load_digest=lambda execution_id, node_id: locked.digests[execution_id, node_id],
        )

    # -- plans -------------------------------------------------------------------------------------

    async def plan_of(self, connection: Connection, digest: str) -> Plan:
        """Give the plan of an execution; raises JournalError where there is none."""
        plan = await self.find_plan(connection, digest)
        if plan is None:
            raise JournalError(f"the journal has no definition {digest}, though an execution names it")
        return plan

    async def find_plan(self, connection: Connection, digest: str) -> Plan | None:
        """Give a plan that is kept, or compile it anew."""
        plan = self._plans.get(digest)
        if plan is not None:
            return plan
        document = await queries.document(connection, digest)
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
