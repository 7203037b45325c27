"""The store on Redis, held to the memory store: the same calls on both, drawn, and the same answers.

A journal in memory says what is true, and both stores are told of it as movers would: in order, late,
twice, or not at all. Between the calls a server forgets its scripts, a key, a sorted set, or everything; its
streams are cut; another process takes over. After each step both show the same of every execution.

Not compared: the order of lists, the order in which nodes are free once a sweep has freed several, and when
to look again (early is legal). ``WEFT_TEST_EXAMPLES=2000`` draws so many stories, and others every time;
without it they are few and always the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from functools import wraps
from itertools import count
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import replace
from tests.store.drawn import ANY, INDEXES, MOSTLY, OFFSETS, PAYLOADS, RARELY, SOME, documents
from tests.store.model import Model

from weft.clock import VirtualClock
from weft.core.event import (
    AttemptIssued,
    AttemptParked,
    CancelRequested,
    DeadlinePassed,
    Event,
    ExecutionStarted,
    HaltObserved,
    NodeSkipped,
    ParkedDue,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
)
from weft.core.judge import judge
from weft.core.ledger.changes import Verdict
from weft.core.rows import NodeRow
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.state import ExecutionState
from weft.core.task import Result, Task
from weft.definition.plan import compile_plan
from weft.envelope import unpack_all, unpack_message, unpack_task
from weft.errors import StoreError
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.redis.connection import Redis
from weft.store.contract import Answer, Applied, Lease, StartRequest, StoreOptions
from weft.store.redis import RedisStore
from weft.testing.walk import an_error, nonce

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from tests.support.servers.redis import RedisServer

    from weft.core.decide import FreeNode
    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow
    from weft.definition.plan import Plan
    from weft.redis.script import Script

GIVEN = os.environ.get("WEFT_TEST_EXAMPLES")
EXAMPLES = int(GIVEN or 30)
STEPS = 40

MOST_EXECUTIONS = 2
LEASE_SECONDS = 15.0
INLINE_INPUT_BYTES = 4
# A memory store forgets tombstones after 900 s, Redis by its own clock: in no story does so much time pass.
MOST_SECONDS = 850.0
# Where an attempt stands of which a result may come.
IN_HAND = "running orphaned"
SORTED_SETS = ["leases", "timers", "free", "active"]
# With these a few nodes are already too many for one call, and an output for its record.
NARROW = {
    "weft.store.redis.store.MOST_FIELDS": 6,
    "weft.store.redis.calls.MOST_FIELDS": 6,
    "weft.store.redis.calls.MOST_TASKS": 2,
    "weft.store.redis.calls.MOST_CHILDREN": 2,
    "weft.store.redis.calls.PIECE_BITS": 2,
    "weft.store.redis.partitions.MOST_ITEMS": 2,
    "weft.store.redis.partitions.MOST_TASKS": 2,
    "weft.store.redis.snapshot.MOST_FIELDS": 6,
    "weft.store.redis.inspect.MOST_FIELDS": 2,
    "weft.store.redis.sweep.MOST_ITEMS": 2,
    "weft.store.redis.layout.INLINE_OUTPUT_BYTES": 4,
}

P = ParamSpec("P")
M = TypeVar("M", bound="StoreMachine")


class Bench:
    """A server, a connection to it, and a loop to call it from, for many stories."""

    def __init__(self, url: str, *, partitions: int, server: RedisServer | None = None) -> None:
        self.url = url
        self.partitions = partitions
        self.server = server
        self.runner = asyncio.Runner()
        self.redis = Redis(url, partitions=partitions)
        self.steps = Counter[str]()

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        self.runner.run(story)

    def close(self) -> None:
        self.run(self.redis.close())
        self.runner.close()


def told(
    step: Callable[Concatenate[M, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[M, P], None]:
    """Let a step be written as a coroutine."""

    @wraps(step)
    def run(machine: M, /, *arguments: P.args, **named: P.kwargs) -> None:
        machine.bench.steps[step.__name__] += 1
        machine.bench.run(step(machine, *arguments, **named))

    return run


class StoreMachine(RuleBasedStateMachine):
    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.redis = bench.redis
        self.clock = VirtualClock()
        self.passed = 0.0
        self._ids = count(1)
        self._numbers = count(1)
        self.journal = MemoryJournal(now=self.clock.now, new_id=lambda: f"id-{next(self._ids)}")
        self.plans: dict[str, Plan] = {}
        self.executions: list[str] = []
        self.payloads: list[bytes] = [b""]
        # What was told before, to be told again.
        self.row_updates: list[RowUpdate] = []
        self.snapshots: list[Snapshot] = []
        # Ids of earlier incarnations, on both sides.
        self.incarnation_ids: list[tuple[str, str]] = []
        # Executions whose nodes a sweep has freed, in whatever order.
        self.unordered: set[str] = set()
        # Partitions whose counts include an execution that was lost; and those whose incarnation is over,
        # where lists may name what was in it until another begins.
        self.doubtful: set[int] = set()
        self.over: set[int] = set()

    # -- telling both ------------------------------------------------------------------------------

    def new_store(self) -> RedisStore:
        """Make a store as another process has it, that has seen nothing."""

        async def plan(digest: str) -> Plan | None:
            return self.plans.get(digest)

        return RedisStore(
            self.redis,
            plans=plan,
            new_id=lambda: f"incarnation-{next(self._ids)}",
            now=self.clock.now,
            options=StoreOptions(**self.settings),
        )

    async def both(self, name: str, *arguments: Any, by: RedisStore | None = None, **named: Any) -> Any:
        """Call both stores, Redis by this process or another; give what both answered."""
        expected = await getattr(self.model, name)(*arguments, **named)
        answered = await getattr(by or self.store, name)(*arguments, **named)
        if name in ("apply", "free"):
            await self.compare_applied(answered, expected)
        else:
            assert answered == expected, name
        return expected

    async def compare_applied(self, answered: Sequence[Applied], expected: Sequence[Applied]) -> None:
        assert [one.answer for one in answered] == [one.answer for one in expected]
        for ours, theirs in zip(answered, expected, strict=True):
            got, wanted = [free_node(one) for one in ours.free], [free_node(one) for one in theirs.free]
            execution_id = theirs.free[0].execution.id if theirs.free else None
            if execution_id not in self.unordered:
                assert got == wanted
                continue
            # As many, each of them free, and the same of each that both have chosen.
            assert len(got) == len(wanted)
            status = await self.model.inspect(str(execution_id))
            assert status is not None
            assert {status.nodes[one.node_id].phase for one in ours.free} == {"free"}
            by_name = {one["node_id"]: one for one in wanted}
            for one in got:
                assert one == by_name.get(one["node_id"], one)

    async def apply(self, row_updates: Sequence[RowUpdate], ahead: Sequence[Task] = ()) -> None:
        """Apply the rows to both; tell the model which tasks Redis had room for."""
        self.row_updates += row_updates
        answered = await self.store.apply(row_updates, ahead)
        queued = {
            (row_update.execution.id, node_id)
            for row_update, applied in zip(row_updates, answered, strict=True)
            for node_id in applied.queued
        }
        moved = [task for task in ahead if (task.execution_id, task.node_id) in queued]
        expected = await self.model.apply(row_updates, moved)
        await self.compare_applied(answered, expected)
        assert [sorted(one.queued) for one in answered] == [sorted(one.queued) for one in expected]

    async def record(self, event: Event, *, is_told: bool = True, is_ahead: bool = False) -> None:
        """Record an event, and tell the stores what follows, unless whoever recorded it is gone.

        ``is_ahead``: with the tasks of all nodes that are not settled, as far as they may be queued then.
        """
        (recorded_event,) = await self.journal.record([event])
        execution = recorded_event.execution
        if execution is None or recorded_event.verdict is Verdict.UNKNOWN:
            return
        row_update = RowUpdate(execution, self.plans[execution.digest], recorded_event.rows)
        if not is_told:
            self.row_updates.append(row_update)
        else:
            nodes = await self.journal.nodes(execution.id) if is_ahead else {}
            known = [nodes.get(name, NodeRow(node_id=name)) for name in row_update.plan.nodes if is_ahead]
            ahead = [self.task(execution, one) for one in known if one.state is None]
            await self.apply([row_update], ahead)

    async def end(self, execution_id: str, generation: int, epoch: int) -> None:
        # Where it is, is found out: who does not know leaves a tombstone in every partition.
        await self.store.epochs([execution_id])
        await self.both("close", execution_id, generation=generation, epoch=epoch)

    async def install(
        self,
        snapshot: Snapshot,
        *,
        fresh: bool,
        incarnation_ids: tuple[str, str] | None = None,
        ahead: Sequence[Task] = (),
    ) -> None:
        ours, theirs = incarnation_ids or await self.new_incarnations()
        expected = await self.model.install(snapshot, incarnation_id=theirs, fresh=fresh, ahead=ahead)
        (answered,) = await self.store.install([snapshot], incarnation_id=ours, fresh=fresh, ahead=ahead)
        assert answered is expected
        self.keep(snapshot, expected)

    async def new_incarnations(self) -> tuple[str, str]:
        """Return the incarnation ids of both stores; where an incarnation is over, another begins."""
        self.over.clear()
        return await self.store.incarnation_id(), await self.model.incarnation_id()

    def keep(self, snapshot: Snapshot, answer: Answer) -> None:
        self.snapshots.append(snapshot)
        if answer is Answer.YES:
            self.unordered.discard(snapshot.execution.id)

    # -- what is true now --------------------------------------------------------------------------

    async def execution(self, execution_id: str) -> ExecutionRow:
        row = await self.journal.execution(execution_id)
        assert row is not None
        return row

    async def live(self) -> list[str]:
        """Name the executions that the store has."""
        epochs = await self.model.epochs(self.executions)
        return [name for name, epoch in zip(self.executions, epochs, strict=True) if epoch is not None]

    async def revived(self) -> list[str]:
        """Have something in the store again: a story in which nothing can happen is not worth its time."""
        await self.build_all(0)
        await self.retry_all(0)
        if not await self.live():
            # All are completed.
            last = await self.execution(self.executions[-1])
            await self.add(self.plans[last.digest], last.partition, last.input)
        return await self.live()

    async def chosen(self, x: int, n: int = 0, phases: str = "") -> tuple[ExecutionRow, Plan, NodeRow]:
        """Return an execution's row, its plan, and the row of one of its nodes.

        Mostly it is one that the store has, and a node in one of these phases.
        """
        names = self.executions
        if x < ANY:
            names = await self.live() or await self.revived()
        row = await self.execution(names[x % len(names)])
        plan = self.plans[row.digest]
        status = await self.model.inspect(row.id) if n < ANY else None
        fitting = sorted(name for name, one in status.nodes.items() if one.phase in phases) if status else []
        ids = fitting or plan.graph.ids
        node_id = ids[n % len(ids)]
        rows = await self.journal.nodes(row.id)
        return row, plan, rows.get(node_id) or NodeRow(node_id=node_id)

    async def attempts(
        self, x: int, ns: Sequence[int], generation: int, attempt: int, phases: str
    ) -> list[dict[str, Any]]:
        """Name attempts of an execution's nodes, each number off by so much."""
        found = []
        for n in ns:
            row, _, node = await self.chosen(x, n, phases)
            found.append(
                {
                    "execution_id": row.id,
                    "generation": max(0, row.generation + generation),
                    "node_id": node.node_id,
                    "attempt": max(0, node.attempt + attempt),
                }
            )
        return found

    async def ended(self, x: int, n: int, **fields: Any) -> Result:
        """Make the result of an attempt that somebody has in hand."""
        row, _, node = await self.chosen(x, n, IN_HAND)
        return self.result(row, node, **fields)

    def result(self, row: ExecutionRow, node: NodeRow, **fields: Any) -> Result:
        now = self.clock.now()
        given: dict[str, Any] = {
            "execution_id": row.id,
            "generation": row.generation,
            "node_id": node.node_id,
            "attempt": node.attempt,
            "digest": row.digest,
            "failures": node.failures,
            "losses": node.losses,
            "worker": "worker-1",
            "queued_at": now - 2,
            "started_at": now - 1,
            "finished_at": now,
        }
        if "error" not in fields and not fields.get("lost"):
            given["output"] = self.output(node)
        return Result(**{**given, **fields})

    def output(self, node: NodeRow) -> bytes:
        """Return what an attempt returns: always the same."""
        return self.payloads[(int(node.node_id[1:]) + node.attempt) % len(self.payloads)]

    def judged(self, result: Result) -> Event:
        return judge(result, self.plans[result.digest], draw=0.0, max_deliveries=3)

    # -- the journal moves on ----------------------------------------------------------------------

    @initialize(
        document=documents(),
        window=st.sampled_from([1, 2, 2, 3, 1000]),
        queued_seconds=st.sampled_from([None, 7.0]),
        payloads=st.lists(PAYLOADS, min_size=1, max_size=4),
        partition=INDEXES,
    )
    @told
    async def begin(
        self,
        document: Json,
        window: int,
        queued_seconds: float | None,
        payloads: list[bytes],
        partition: int,
    ) -> None:
        await self.redis.call("FLUSHDB")
        self.payloads = payloads
        self.settings: dict[str, Any] = {
            "window": window,
            "lease_seconds": LEASE_SECONDS,
            "reported_seconds": 40.0,
            "queued_seconds": queued_seconds,
            "inline_input_bytes": INLINE_INPUT_BYTES,
        }
        self.model = Model(self.bench.partitions, now=self.clock.now, **self.settings)
        self.store = self.new_store()
        await self.add(compile_plan(document), partition, payloads[0])

    async def add(self, plan: Plan, partition: int, given: bytes, *, is_ahead: bool = False) -> None:
        self.plans[plan.digest] = plan
        submission = Submission(
            id=f"x{next(self._numbers)}",
            plan=plan,
            document=b"{}",
            input=given,
            partition=partition % self.bench.partitions,
        )
        (row,) = await self.journal.submit([submission])
        self.executions = [*self.executions, row.id][-MOST_EXECUTIONS:]
        self.model.put(row)
        names = plan.nodes if is_ahead else ()
        ahead = [self.task(row, NodeRow(node_id=name)) for name in names]
        await self.install(Snapshot(row, plan, ()), fresh=True, ahead=ahead)
        await self.drain()
        await self.record(ExecutionStarted(execution_id=row.id, generation=1))

    @precondition(lambda self: len(self.executions) < MOST_EXECUTIONS)
    @rule(document=documents(), partition=INDEXES, given=PAYLOADS, is_ahead=MOSTLY)
    @told
    async def submit(self, document: Json, partition: int, given: bytes, is_ahead: bool) -> None:
        await self.add(compile_plan(document), partition, given, is_ahead=is_ahead)

    @rule(x=INDEXES, n=INDEXES, is_told=MOSTLY, twice=RARELY)
    @told
    async def complete(self, x: int, n: int, is_told: bool, twice: bool) -> None:
        event = self.judged(await self.ended(x, n))
        for _ in range(2 if twice else 1):
            await self.record(event, is_told=is_told)

    @rule(x=INDEXES, n=INDEXES, retryable=MOSTLY, is_told=MOSTLY)
    @told
    async def fail(self, x: int, n: int, retryable: bool, is_told: bool) -> None:
        result = await self.ended(x, n, error=an_error(retryable=retryable))
        await self.record(self.judged(result), is_told=is_told)

    @rule(x=INDEXES, n=INDEXES)
    @told
    async def lose_attempt(self, x: int, n: int) -> None:
        await self.record(self.judged(await self.ended(x, n, lost=True)))

    @rule(x=INDEXES, n=INDEXES, is_told=MOSTLY)
    @told
    async def skip(self, x: int, n: int, is_told: bool) -> None:
        row, _, node = await self.chosen(x, n, "free")
        event = NodeSkipped(
            execution_id=row.id,
            generation=row.generation,
            node_id=node.node_id,
            attempt=node.attempt,
            reason="condition",
            cause=None,
        )
        await self.record(event, is_told=is_told)

    @rule(x=INDEXES, n=INDEXES)
    @told
    async def issue(self, x: int, n: int) -> None:
        row, _, node = await self.chosen(x, n, "free waiting")
        event = AttemptIssued(
            execution_id=row.id,
            generation=row.generation,
            node_id=node.node_id,
            attempt=node.attempt,
            epoch=row.epoch,
        )
        await self.record(event)

    @rule(x=INDEXES, n=INDEXES, seconds=st.sampled_from([0.0, 3.0, 20.0]), is_told=MOSTLY)
    @told
    async def park(self, x: int, n: int, seconds: float, is_told: bool) -> None:
        """Start an attempt that no worker runs; the journal asks for no handler."""
        row, _, node = await self.chosen(x, n, "free waiting")
        event = AttemptParked(
            execution_id=row.id,
            generation=row.generation,
            node_id=node.node_id,
            attempt=node.attempt,
            epoch=row.epoch,
            seconds=seconds,
            output=self.output(node),
            output_bytes=len(self.output(node)),
        )
        await self.record(event, is_told=is_told)

    @rule(x=INDEXES, n=INDEXES, is_told=MOSTLY)
    @told
    async def wake(self, x: int, n: int, is_told: bool) -> None:
        """Record that a parked attempt is due, whether or not it is."""
        row, _, node = await self.chosen(x, n, "parked")
        await self.record(ParkedDue(row.id, row.generation, node.node_id, node.attempt), is_told=is_told)

    @rule(x=INDEXES, rebuilds=st.booleans(), order=INDEXES)
    @told
    async def halt(self, x: int, rebuilds: bool, order: int) -> None:
        """Pause, and record what is in hand then: a rebuild holds that alone orphaned."""
        row, _, _ = await self.chosen(x)
        await self.record(PauseRequested(execution_id=row.id, generation=0))
        row, status = await self.execution(row.id), await self.model.inspect(row.id)
        if row.halt is None or status is None:
            return
        event = HaltObserved(
            execution_id=row.id,
            generation=row.generation,
            epoch=row.epoch,
            paused_seq=row.halt.paused_seq,
            in_hand={name: one.attempt for name, one in status.nodes.items() if one.phase in IN_HAND.split()},
        )
        await self.record(event)
        snapshot = await self.rebuilt(row.id, order) if rebuilds else None
        if snapshot is not None:
            await self.install(snapshot, fresh=False)

    @rule(x=INDEXES, what=st.sampled_from(["pause", "resume", "cancel"]), is_told=MOSTLY)
    @told
    async def control(self, x: int, what: str, is_told: bool) -> None:
        row, _, _ = await self.chosen(x)
        requests: dict[str, Event] = {
            "pause": PauseRequested(execution_id=row.id, generation=0),
            "resume": ResumeRequested(execution_id=row.id, generation=0),
            "cancel": CancelRequested(execution_id=row.id, generation=0),
        }
        await self.record(requests[what], is_told=is_told)

    @rule(is_told=MOSTLY, order=INDEXES)
    @told
    async def retry(self, is_told: bool, order: int) -> None:
        await self.retry_all(order, is_told=is_told)

    async def retry_all(self, order: int, *, is_told: bool = True) -> None:
        for name in self.executions:
            if not (await self.execution(name)).is_terminal:
                continue
            await self.journal.record([RetryRequested(execution_id=name, generation=0)])
            row = await self.execution(name)
            rows = list((await self.journal.nodes(name)).values())
            if not row.is_terminal and is_told:
                snapshot = Snapshot(row, self.plans[row.digest], in_turn(rows, order))
                await self.install(snapshot, fresh=True)

    @rule(which=st.lists(st.integers(0, 1000), min_size=1, max_size=4))
    @told
    async def tell_again(self, which: list[int]) -> None:
        """Rows that come late, or once more: of older states, epochs and generations too."""
        if self.row_updates:
            await self.apply([self.row_updates[index % len(self.row_updates)] for index in which])

    @rule(x=INDEXES, late=RARELY)
    @told
    async def close(self, x: int, late: bool) -> None:
        """Close what the journal has ended, and what it has ended in an earlier generation."""
        row, _, _ = await self.chosen(x)
        if row.is_terminal:
            await self.end(row.id, row.generation, row.epoch)
        elif late and row.generation > 1:
            await self.end(row.id, row.generation - 1, row.epoch - 1)

    # -- building anew -----------------------------------------------------------------------------

    async def rebuilt(self, execution_id: str, order: int) -> Snapshot | None:
        row = await self.execution(execution_id)
        snapshot = await self.journal.rebuild(row.id, seen_epoch=row.epoch)
        if snapshot is None or snapshot.execution.is_terminal:
            return None
        return Snapshot(snapshot.execution, snapshot.plan, in_turn(snapshot.rows, order))

    @rule(x=INDEXES, fresh=RARELY, order=INDEXES, old=RARELY)
    @told
    async def rebuild(self, x: int, fresh: bool, order: int, old: bool) -> None:
        row, _, _ = await self.chosen(x)
        snapshot = await self.rebuilt(row.id, order)
        if snapshot is not None:
            await self.install(
                snapshot,
                fresh=fresh,
                incarnation_ids=self.incarnation_ids[-1] if old and self.incarnation_ids else None,
            )

    @rule(order=INDEXES)
    @told
    async def recover(self, order: int) -> None:
        """Build anew all that the store has lost."""
        await self.build_all(order)

    async def build_all(self, order: int) -> None:
        live = await self.live()
        for name in self.executions:
            snapshot = None if name in live else await self.rebuilt(name, order)
            if snapshot is not None:
                await self.install(snapshot, fresh=False)

    @rule(which=st.integers(0, 1000), fresh=st.booleans())
    @told
    async def build_again(self, which: int, fresh: bool) -> None:
        """A builder that was overtaken."""
        if self.snapshots:
            await self.install(self.snapshots[which % len(self.snapshots)], fresh=fresh)

    @rule(x=INDEXES, order=INDEXES, parts=st.integers(1, 3))
    @told
    async def break_off(self, x: int, order: int, parts: int) -> None:
        """A builder that dies between two parts: what it leaves is there for nobody."""
        row, _, _ = await self.chosen(x)
        snapshot = await self.rebuilt(row.id, order)
        if snapshot is None:
            return
        ours, theirs = await self.new_incarnations()
        with patch.object(self.redis, "scripts", dies_after(parts, self.redis.scripts)):
            try:
                (answered,) = await self.store.install([snapshot], incarnation_id=ours, fresh=False)
            except StoreError:
                number = self.model.where(row.id)
                self.model.partitions[number].break_off(snapshot, theirs.split(" ")[number])
                assert list(await self.store.epochs([row.id])) == [None]
                return
        assert answered is await self.model.install(snapshot, incarnation_id=theirs, fresh=False)
        self.keep(snapshot, answered)

    # -- tasks -------------------------------------------------------------------------------------

    def task(self, row: ExecutionRow, node: NodeRow) -> Task:
        described = self.plans[row.digest].nodes[node.node_id]
        return Task(
            execution_id=row.id,
            generation=row.generation,
            node_id=node.node_id,
            attempt=node.attempt,
            digest=row.digest,
            handler=described.handler,
            queue=described.queue,
            priority=1,
            config=self.payloads[-1],
            timeout_seconds=described.timeout_seconds,
            queued_at=self.clock.now(),
            failures=node.failures,
            losses=node.losses,
            epoch=row.epoch,
        )

    @rule(x=INDEXES, ns=SOME, epoch=OFFSETS, attempt=OFFSETS)
    @told
    async def queue(self, x: int, ns: list[int], epoch: int, attempt: int) -> None:
        """Queue what is free, also more of it than there is room for."""
        tasks = []
        for n in ns:
            row, _, node = await self.chosen(x, n, "free")
            task = self.task(row, node)
            attempted = max(0, node.attempt + attempt)
            tasks.append(replace(task, attempt=attempted, epoch=row.epoch + epoch))
        await self.both("queue", tasks)
        await self.drain()

    @rule(x=INDEXES, starts=MOSTLY)
    @told
    async def hand_out(self, x: int, starts: bool) -> None:
        """Queue all that is free, and start it, as movers do."""
        row, _, _ = await self.chosen(x)
        await self.carry_on(row.id, starts=starts)

    @rule(x=INDEXES, n=INDEXES, is_ahead=MOSTLY)
    @told
    async def hand_out_what_follows(self, x: int, n: int, is_ahead: bool) -> None:
        """Let an attempt complete, and hand out all that is free behind it."""
        row, _, node = await self.chosen(x, n, IN_HAND)
        await self.record(self.judged(self.result(row, node)), is_ahead=is_ahead)
        await self.drain()
        await self.carry_on(row.id)

    async def carry_on(self, name: str, *, starts: bool = True) -> None:
        (applied,) = await self.both("free", [name])
        rows = [NodeRow(node_id=free.node_id, attempt=free.attempt) for free in applied.free]
        given = [free.execution for free in applied.free]
        tasks = [self.task(row, node) for row, node in zip(given, rows, strict=True)]
        await self.both("queue", tasks)
        if starts:
            requests = [
                StartRequest(
                    *(name, task.generation, task.node_id, task.attempt),
                    *(nonce(task.node_id, task.attempt), "worker-1"),
                )
                for task in tasks
            ]
            await self.both("start", requests)
        await self.drain()

    @rule(x=INDEXES, ns=SOME, generation=OFFSETS, attempt=OFFSETS, wrong=RARELY, pauses=RARELY)
    @told
    async def start(
        self, x: int, ns: list[int], generation: int, attempt: int, wrong: bool, pauses: bool
    ) -> None:
        """Start what is queued, perhaps just after somebody has paused the execution."""
        row, _, _ = await self.chosen(x)
        await self.carry_on(row.id, starts=False)
        if pauses:
            await self.record(PauseRequested(execution_id=row.id, generation=0))
        requests = [
            StartRequest(**one, nonce=nonce_of(one, wrong), worker="worker-1")
            for one in await self.attempts(x, ns, generation, attempt, "queued running")
        ]
        await self.both("start", requests)

    async def held(
        self, x: int, ns: Sequence[int], generation: int, attempt: int, wrong: bool
    ) -> list[Lease]:
        now = self.clock.now()
        return [
            Lease(**one, nonce=nonce_of(one, wrong), worker="worker-2", queued_at=now - 9, started_at=now - 5)
            for one in await self.attempts(x, ns, generation, attempt, IN_HAND)
        ]

    @rule(x=INDEXES, ns=SOME, generation=OFFSETS, attempt=OFFSETS, wrong=RARELY)
    @told
    async def beat(self, x: int, ns: list[int], generation: int, attempt: int, wrong: bool) -> None:
        await self.both("renew", await self.held(x, ns, generation, attempt, wrong))

    @rule(x=INDEXES, ns=SOME, wrong=RARELY)
    @told
    async def abandon(self, x: int, ns: list[int], wrong: bool) -> None:
        await self.both("abandon", await self.held(x, ns, 0, 0, wrong))

    @rule(x=INDEXES, n=INDEXES, generation=OFFSETS, attempt=OFFSETS)
    @told
    async def report(self, x: int, n: int, generation: int, attempt: int) -> None:
        row, _, node = await self.chosen(x, n, IN_HAND)
        (one,) = await self.attempts(x, [n], generation, attempt, IN_HAND)
        # A result is appended once, so its execution is not sought: whoever has started it knows where it is.
        await self.store.epochs([one["execution_id"]])
        await self.both("report", [replace(self.result(row, node), **one)])
        await self.drain()

    @rule(x=INDEXES, n=INDEXES, generation=OFFSETS, attempt=OFFSETS, was_queued=st.booleans())
    @told
    async def line(self, x: int, n: int, generation: int, attempt: int, was_queued: bool) -> None:
        (one,) = await self.attempts(x, [n], generation, attempt, "free queued")
        await self.both("throttle", one.pop("execution_id"), **one, was_queued=was_queued)

    @rule(x=INDEXES, n=INDEXES, generation=OFFSETS, attempt=OFFSETS, queues=st.booleans())
    @told
    async def release(self, x: int, n: int, generation: int, attempt: int, queues: bool) -> None:
        (one,) = await self.attempts(x, [n], generation, attempt, "throttled free queued")
        name = one.pop("execution_id")
        await self.both("release", name, **one)
        if queues:
            await self.carry_on(name, starts=False)

    async def drain(self) -> None:
        """Take what was sent and published out of the streams: it is what it should be."""
        tasks: list[Task] = []
        results: list[Result] = []
        for keys in self.redis.partitions:
            for lane in await self.lanes(keys.partition):
                for _, fields in await self.redis.call("XRANGE", lane, "-", "+"):
                    assert int(fields[3]) == self.clock.now()
                    tasks.append(unpack_task(fields[1]))
                await self.redis.call("XTRIM", lane, "MAXLEN", 0)
            for _, fields in await self.redis.call("XRANGE", keys.results, "-", "+"):
                for wire in unpack_all(fields[1]):
                    message = unpack_message(wire)
                    assert isinstance(message, Result)
                    results.append(message)
            await self.redis.call("XTRIM", keys.results, "MAXLEN", 0)
        assert sorted(tasks, key=repr) == sorted(self.model.sent, key=repr)
        assert sorted(results, key=repr) == sorted(self.model.published, key=repr)
        self.model.sent.clear()
        self.model.published.clear()

    async def lanes(self, partition: int) -> list[str]:
        keys = self.redis.partitions[partition]
        lanes = [lane.decode().split("|") for lane in await self.redis.call("SMEMBERS", keys.lanes)]
        return [keys.lane(queue, handler, int(priority)) for queue, handler, priority in sorted(lanes)]

    # -- time --------------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0, 8.0, 20.0, 50.0]),
        idle_seconds=st.sampled_from([0.0, 5.0, 1e9]),
        sweeps=MOSTLY,
        follows=st.booleans(),
    )
    @told
    async def wait(self, seconds: float, idle_seconds: float, sweeps: bool, follows: bool) -> None:
        if self.passed + seconds <= MOST_SECONDS:
            self.passed += seconds
            self.clock.advance(seconds)
        if sweeps:
            await self.sweep(idle_seconds=idle_seconds, follows=follows)

    @rule(follows=st.booleans())
    @told
    async def wait_for_a_lease(self, follows: bool) -> None:
        """Let every lease run out that is not of a result on its way."""
        if self.passed + LEASE_SECONDS + 1 <= MOST_SECONDS:
            self.passed += LEASE_SECONDS + 1
            self.clock.advance(LEASE_SECONDS + 1)
        await self.sweep(follows=follows)

    async def lose_tasks(self) -> None:
        for keys in self.redis.partitions:
            lanes = await self.redis.call("SMEMBERS", keys.lanes, partition=keys.partition)
            for lane in lanes:
                await self.redis.call("DEL", keys.lane_of(lane.decode()), partition=keys.partition)

    async def sweep(self, *, idle_seconds: float = 1e9, follows: bool = False) -> None:
        # The model cannot look for a task: whatever waits too long is lost.
        await self.lose_tasks()
        expected = await self.model.due(idle_seconds=idle_seconds)
        answered = await self.store.due(idle_seconds=idle_seconds)
        for name in ("woken", "expired", "deadlines", "parked"):
            ours, theirs = getattr(answered, name), getattr(expected, name)
            assert sorted(ours, key=repr) == sorted(theirs, key=repr), name
        self.unordered.update(name for name, _ in expected.woken)
        # Not later than the first timer: of leases a look shows nothing.
        for execution_id in self.executions:
            status = await self.model.inspect(execution_id)
            times = [one.due_at for one in status.nodes.values() if one.due_at is not None] if status else []
            # What was listed as due is listed again, but not at once.
            times = [time for time in times if time > self.clock.now()]
            assert not times or (answered.next_at is not None and answered.next_at <= min(times))
        if follows:
            for name, generation in expected.deadlines:
                await self.record(DeadlinePassed(execution_id=name, generation=generation))
            for due in expected.parked:
                await self.record(ParkedDue(due.execution_id, due.generation, due.node_id, due.attempt))
            for one in expected.expired:
                row = await self.execution(one.execution_id)
                nodes = await self.journal.nodes(row.id)
                node = nodes.get(one.node_id) or NodeRow(node_id=one.node_id)
                await self.record(self.judged(self.result(row, node, lost=True)))

    # -- what goes wrong ---------------------------------------------------------------------------

    async def new_life(self) -> None:
        """Remember the ids of an incarnation that is over."""
        self.incarnation_ids.append(await self.new_incarnations())

    @rule(x=INDEXES, n=INDEXES, how=st.sampled_from(["DEL", "UNLINK", "PEXPIRE"]))
    @told
    async def lose_an_execution(self, x: int, n: int, how: str) -> None:
        row, plan, node = await self.chosen(x, n)
        number = self.model.where(row.id)
        key = self.redis.partitions[number].execution(row.id)
        await self.redis.call(how, key, *([0] if how == "PEXPIRE" else []))
        await self.lose_tombstones([row.id])
        if row.id in await self.live():
            self.doubtful.add(number)
        self.model.partitions[number].lose(row.id)
        await self.expect_unknown(row, plan, node)

    @rule(
        x=INDEXES,
        what=st.sampled_from(["server", "incarnation", "set", "everything"]),
        which=st.sampled_from(SORTED_SETS),
    )
    @told
    async def lose_a_life(self, x: int, what: str, which: str) -> None:
        row, _, _ = await self.chosen(x)
        self.incarnation_ids.append(await self.new_incarnations())
        number = self.model.where(row.id)
        keys = self.redis.partitions[number]
        if what == "everything":
            # Of a server that is shared with others, this is all that is ours.
            await self.redis.call("FLUSHDB" if self.bench.server is None else "FLUSHALL")
            self.lose_everything()
            return
        await self.lose_partition(number, keeps_list=what == "incarnation")
        if what == "incarnation":
            await self.redis.call("DEL", keys.incarnation_id)
            self.over.add(number)
        elif what == "set":
            # The next look at the time finds out, and ends this incarnation of the partition.
            await self.redis.call("DEL", getattr(keys, which))
            await self.sweep()
        else:
            # Of a server that was restarted, or has taken over, nothing is believed.
            await self.redis.call("SET", keys.server, "another")
            await self.reconnect()
            self.over.add(number)

    async def expect_unknown(self, row: ExecutionRow, plan: Plan, node: NodeRow) -> None:
        """What is lost is unknown to every move: never "nothing left"."""
        attempt = (row.id, row.generation, node.node_id, node.attempt)
        if row.is_terminal:  # as somebody has it who was late; the end itself leaves a tombstone
            row = replace(row, state=ExecutionState.RUNNING)
        started = await self.store.start([StartRequest(*attempt, "any", "worker-1")])
        answers = [
            (await self.store.apply([RowUpdate(row, plan, (node,))]))[0].answer,
            (await self.store.free([row.id]))[0].answer,
            (await self.store.renew([Lease(*attempt, "any", "worker-1", 0, 0)]))[0],
            started[0].answer,
        ]
        assert answers == [Answer.UNKNOWN] * len(answers)

    def lose_everything(self) -> None:
        for partition in self.model.partitions:
            partition.flush()
        self.doubtful.clear()

    async def lose_partition(self, number: int, *, keeps_list: bool = False) -> None:
        self.model.partitions[number].end_incarnation(keeps_list=keeps_list)
        self.doubtful.discard(number)
        await self.lose_tombstones([name for name in self.executions if self.model.where(name) == number])

    async def lose_tombstones(self, execution_ids: Sequence[str]) -> None:
        """Lose the tombstones in partitions other than those of the executions."""
        for name in execution_ids:
            for keys in self.redis.partitions:
                if keys.partition != self.model.where(name):
                    await self.redis.call("DEL", keys.execution(name))

    async def reconnect(self) -> None:
        await self.redis.close()
        self.redis = self.bench.redis = Redis(self.bench.url, partitions=self.bench.partitions)
        await self.redis.open()
        self.store = self.new_store()

    @rule(
        what=st.sampled_from(["process", "connection", "scripts", "streams", "streams"]),
        partition=INDEXES,
        how=st.sampled_from(["XTRIM", "DEL", "DESTROY", "DELCONSUMER", "SETID", "garbage"]),
    )
    @told
    async def disturb(self, what: str, partition: int, how: str) -> None:
        """What is to change no answer: scripts are told again, and what is on its way is not looked at."""
        if what == "scripts":
            await self.redis.call("SCRIPT", "FLUSH")
        elif what == "process":
            self.store = self.new_store()
        elif what == "connection":
            await self.reconnect()
        else:
            await self.spoil_the_streams(partition % self.bench.partitions, how)

    async def spoil_the_streams(self, number: int, how: str) -> None:
        for stream in [self.redis.partitions[number].results, *await self.lanes(number)]:
            await self.redis.run([("XGROUP", "CREATE", stream, "group", "0", "MKSTREAM")])
            await self.redis.call("XADD", stream, "*", "m", b"\xff\x00")
            await self.redis.call("XREADGROUP", "GROUP", "group", "one", "STREAMS", stream, ">")
            commands: dict[str, tuple[Any, ...]] = {
                "XTRIM": ("XTRIM", stream, "MAXLEN", 0),
                "DEL": ("DEL", stream),
                "DESTROY": ("XGROUP", "DESTROY", stream, "group"),
                "DELCONSUMER": ("XGROUP", "DELCONSUMER", stream, "group", "one"),
                "SETID": ("XGROUP", "SETID", stream, "group", "0"),
                "garbage": ("XADD", stream, "*", "x", b"\xff"),
            }
            await self.redis.call(*commands[how])
            await self.redis.call("XTRIM", stream, "MAXLEN", 0)

    # -- and both are the same ---------------------------------------------------------------------

    @invariant()
    def both_show_the_same(self) -> None:
        if self.executions:
            self.bench.run(self.compare())

    async def compare(self) -> None:
        names = [*self.executions, "nobody"]
        # As one sees it who has seen nothing before.
        stranger = self.new_store()
        await self.both("free", names, by=stranger)
        for name in names:
            await self.both("inspect", name, by=stranger)
            await self.both("running", name, by=stranger)
        await self.both("inspect", names[0], names=["n0", "n3", "nobody"])
        await self.both("in_flight", names)
        await self.both("epochs", names)
        await self.both("running_by_queue")
        if not self.doubtful and not self.over:
            await self.both("backlog")
        await self.both("idle_since", self.clock.now() - 5_000_000)
        await self.both("idle_since", self.clock.now())
        # These have counted anew: whatever was lost before, the number is right.
        self.doubtful.clear()
        self.over.clear()
        await self.both("backlog")


class RestartMachine(StoreMachine):
    @rule(kill=st.booleans())
    @told
    async def restart(self, kill: bool) -> None:
        """It comes back with its data, or with what it had written of them: neither is believed."""
        assert self.bench.server is not None
        self.incarnation_ids.append(await self.new_incarnations())
        if kill:
            self.bench.server.kill()
        else:
            self.bench.server.stop()
        self.bench.server.start()
        await self.reconnect()
        await self.lose_partition(0)
        self.over.add(0)


def in_turn(rows: Sequence[NodeRow], order: int) -> list[NodeRow]:
    """Return rows in another order: it is of no consequence."""
    start = order % (len(rows) or 1)
    return [*rows[start:], *rows[:start]]


def nonce_of(attempt: dict[str, Any], wrong: bool) -> str:
    return "other" if wrong else nonce(attempt["node_id"], attempt["attempt"])


def free_node(free: FreeNode) -> dict[str, Any]:
    """Return what is to be the same of a free node.

    Of parents, an output that nobody reads is not kept. A large input is read from the journal, unless the
    row that was applied had it.
    """
    execution = free.execution
    if len(execution.input) > INLINE_INPUT_BYTES:
        execution = replace(execution, input=b"")
    return {
        "node_id": free.node_id,
        "attempt": (free.attempt, free.failures, free.losses, free.issued, free.released),
        "parents": [replace(parent, output=None) for parent in free.parents],
        "seen": free.seen,
        "waiting": free.waiting,
        "execution": execution,
        "plan": free.plan.digest,
    }


def dies_after(calls: int, script: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Let so many calls of scripts through, and no more."""
    left = count(calls, -1)

    async def counted(one: Script, *arguments: Any, **named: Any) -> Any:
        if next(left) == 0:
            raise StoreError("the store cannot be reached: this is the end")
        return await script(one, *arguments, **named)

    return counted


def tell_stories(
    bench: Bench, machine: type[StoreMachine], *, examples: int = EXAMPLES, steps: int = STEPS
) -> None:
    given = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=not GIVEN,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    # Hypothesis makes five stories of six by repeating a step of another. Here nearly every step taken
    # twice changes nothing more, and as many stories of their own find several times as much.
    with patch.object(ConjectureRunner, "generate_mutations_from", lambda *_: None, create=True):
        run_state_machine_as_test(lambda: machine(bench), settings=given)  # type: ignore[arg-type]
    if GIVEN:
        print(sum(bench.steps.values()), "steps:", dict(bench.steps.most_common()))


@pytest.fixture(params=[1, 3], ids=["one_partition", "three_partitions"])
def bench(redis_url: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(redis_url, partitions=request.param)
    yield bench
    bench.close()


def test_redis_answers_as_memory_does(bench: Bench) -> None:
    tell_stories(bench, StoreMachine)


def test_redis_answers_as_memory_does_where_a_call_takes_little(bench: Bench) -> None:
    """With limits so low that what is wide in earnest happens to a few nodes."""
    for name, limit in NARROW.items():
        patch(name, limit).start()
    try:
        tell_stories(bench, StoreMachine)
    finally:
        patch.stopall()


def test_a_server_that_comes_back_with_its_data_has_lost_them(private_redis: RedisServer) -> None:
    bench = Bench(private_redis.url, partitions=1, server=private_redis)
    tell_stories(bench, RestartMachine, examples=max(12, EXAMPLES // 10))
    assert bench.steps["restart"] > 0
    bench.close()
