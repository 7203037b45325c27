"""One execution taken by hand: a journal and a store in memory, and each step said in a line.

For tests that tell a story. What a mover would do between two steps happens at once and in order: record,
apply, decide, hand out. Nothing runs a handler; the test says how each attempt ended.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from weft.clock import VirtualClock
from weft.core.decide import CallWorkflow, Decision, DispatchNode, ParkNode, SkipNode, StartWait, decide
from weft.core.event import (
    AttemptParked,
    CancelRequested,
    Event,
    ExecutionStarted,
    NodeFailed,
    NodeSkipped,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    WaitStarted,
)
from weft.core.judge import judge
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.output import node_value
from weft.core.payload import Json, decode, encode
from weft.core.rows import ExecutionRow, NodeRow
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.task import Result, Task
from weft.definition.plan import compile_plan
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.store.contract import Answer, Lease, StartRequest, StateStore
from weft.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.decide import FreeNode

WORKER = "worker-1"
MAX_BYTES = 1_000_000
MAX_DELIVERIES = 3


class Walk:
    def __init__(
        self,
        document: Json,
        *,
        store: StateStore | None = None,
        clock: VirtualClock | None = None,
        input: Json = None,  # noqa: A002 - the word of the language
        execution_id: str = "x1",
    ) -> None:
        self.clock = clock or VirtualClock()
        ids = count(1)
        self._new_id = lambda: f"id-{next(ids)}"
        self.journal = MemoryJournal(now=self.clock.now, new_id=self._new_id)
        self.published: list[Result] = []
        self.store = store or MemoryStore(
            now=self.clock.now, new_id=self._new_id, publish=self.published.extend
        )
        self.plan = compile_plan(document)
        self.execution_id = execution_id
        self._input = encode({} if input is None else input, max_bytes=MAX_BYTES)
        # Every attempt that was started, in order: (node, generation, attempt).
        self.started: list[tuple[str, int, int]] = []

    # -- the beginning -----------------------------------------------------------------------------

    async def submit(self) -> Snapshot:
        """Record the execution; give what is to be installed."""
        submission = Submission(id=self.execution_id, plan=self.plan, document=b"{}", input=self._input)
        (row,) = await self.journal.submit([submission])
        return Snapshot(row, self.plan, ())

    async def begin(self) -> list[str]:
        """Submit, install and start; give the nodes that were handed out."""
        snapshot = await self.submit()
        assert await self.install(snapshot, fresh=True) is Answer.YES
        return await self.advance(ExecutionStarted(execution_id=self.execution_id, generation=1))

    async def install(self, snapshot: Snapshot, *, fresh: bool) -> Answer:
        token = await self.store.incarnation_id()
        (answer,) = await self.store.install([snapshot], incarnation_id=token, fresh=fresh)
        return answer

    async def rebuild(self) -> Answer:
        """Install the execution in the store anew, as after its loss."""
        row = await self.execution()
        snapshot = await self.journal.rebuild(self.execution_id, seen_epoch=row.epoch)
        assert snapshot is not None
        return await self.install(snapshot, fresh=False)

    async def reopen(self) -> list[str]:
        """Install what a retry has opened; give the nodes that were handed out."""
        row = await self.execution()
        rows = list((await self.journal.nodes(self.execution_id)).values())
        assert await self.install(Snapshot(row, self.plan, rows), fresh=True) is Answer.YES
        (applied,) = await self.store.free([self.execution_id])
        return await self.carry_on(applied.free)

    # -- one step ----------------------------------------------------------------------------------

    async def record(self, event: Event) -> RecordedEvent:
        (recorded_event,) = await self.journal.record([event])
        return recorded_event

    async def apply(self, recorded_event: RecordedEvent) -> Sequence[FreeNode]:
        """Merge what the journal answered; give the free nodes."""
        execution = recorded_event.execution
        if execution is None or recorded_event.verdict is Verdict.UNKNOWN:
            return ()
        (applied,) = await self.store.apply([RowUpdate(execution, self.plan, recorded_event.rows)])
        return applied.free

    def decide(self, free: FreeNode) -> Decision:
        return decide(
            free, decode=decode, value_of=lambda row: node_value(row, _no_blob), max_bytes=MAX_BYTES
        )

    async def hand_out(self, free: FreeNode, config: bytes = b"null") -> bool:
        """Queue a free node and start it; False where it may not be."""
        (answer,) = await self.store.queue([self.task(free, config)])
        if answer is not Answer.YES:
            return False
        request = StartRequest(
            self.execution_id,
            free.execution.generation,
            free.node_id,
            free.attempt,
            nonce=nonce(free.node_id, free.attempt),
            worker=WORKER,
        )
        (started,) = await self.store.start([request])
        assert started.answer is Answer.YES
        self.started.append((free.node_id, free.execution.generation, free.attempt))
        return True

    async def advance(self, *events: Event) -> list[str]:
        """Take events all the way; give the nodes that were handed out."""
        handed_out: list[str] = []
        for event in events:
            handed_out += await self.carry_on(await self.apply(await self.record(event)))
        return handed_out

    async def carry_on(self, free: Sequence[FreeNode]) -> list[str]:
        """Decide free nodes and hand them out, until nothing more follows; give those handed out."""
        handed_out: list[str] = []
        for node in free:
            match self.decide(node):
                case DispatchNode(config=config):
                    if await self.hand_out(node, config):
                        handed_out.append(node.node_id)
                case decision:
                    handed_out += await self.advance(self.event_of(node, decision))
        return handed_out

    # -- what is said of nodes ---------------------------------------------------------------------

    def event_of(self, free: FreeNode, decision: Decision) -> Event:
        """Make of a decision the event that is recorded: not of a call, which takes another execution."""
        assert not isinstance(decision, DispatchNode | CallWorkflow)
        if isinstance(decision, ParkNode):
            return AttemptParked(
                execution_id=self.execution_id,
                generation=free.execution.generation,
                node_id=free.node_id,
                attempt=free.attempt,
                epoch=free.execution.epoch,
                seconds=decision.seconds,
                output=decision.config,
                output_bytes=len(decision.config),
                cache_key=decision.cache_key,
            )
        if isinstance(decision, StartWait):
            return WaitStarted(
                execution_id=self.execution_id,
                generation=free.execution.generation,
                node_id=free.node_id,
                attempt=free.attempt,
                epoch=free.execution.epoch,
                wait=decision.wait,
                seconds=decision.terms.seconds,
                due_at=decision.terms.due_at,
                default=decision.terms.default,
            )
        if isinstance(decision, SkipNode):
            return NodeSkipped(
                execution_id=self.execution_id,
                generation=free.execution.generation,
                node_id=free.node_id,
                attempt=free.attempt,
                reason=decision.reason,
                cause=decision.cause,
                skips=decision.skips,
            )
        return NodeFailed(
            execution_id=self.execution_id,
            generation=free.execution.generation,
            node_id=free.node_id,
            attempt=free.attempt,
            error=decision.error,
            skips=decision.skips,
        )

    def cancelled(self, generation: int = 0) -> Event:
        return CancelRequested(execution_id=self.execution_id, generation=generation)

    def paused(self) -> Event:
        return PauseRequested(execution_id=self.execution_id, generation=0)

    def resumed(self) -> Event:
        return ResumeRequested(execution_id=self.execution_id, generation=0)

    def retried(self, *nodes: str) -> Event:
        return RetryRequested(execution_id=self.execution_id, generation=0, nodes=nodes)

    async def result(self, node_id: str, **fields: Any) -> Result:
        """Make the result of the node's current attempt; without a field it is a completed one."""
        row = await self.row(node_id)
        execution = await self.execution()
        now = self.clock.now()
        given = {
            "execution_id": self.execution_id,
            "generation": execution.generation,
            "node_id": node_id,
            "attempt": row.attempt,
            "digest": self.plan.digest,
            "failures": row.failures,
            "losses": row.losses,
            "worker": WORKER,
            "queued_at": now,
            "started_at": now,
            "finished_at": now,
        }
        if "error" not in fields and not fields.get("lost"):
            given["output"] = b"{}"
        return Result(**{**given, **fields})

    def judge(self, result: Result, *, draw: float = 0.0) -> Event:
        return judge(result, self.plan, draw=draw, max_deliveries=MAX_DELIVERIES)

    async def completed(self, node_id: str, output: Json = None, **fields: Any) -> Event:
        payload = encode({} if output is None else output, max_bytes=MAX_BYTES)
        return self.judge(await self.result(node_id, output=payload, **fields))

    async def failed(self, node_id: str, *, retryable: bool = False, **fields: Any) -> Event:
        return self.judge(await self.result(node_id, error=an_error(retryable=retryable), **fields))

    async def lost(self, node_id: str, **fields: Any) -> Event:
        return self.judge(await self.result(node_id, lost=True, **fields))

    async def complete(self, *node_ids: str, output: Json = None) -> list[str]:
        """Let each complete, one after the other; give the nodes that were handed out."""
        handed_out: list[str] = []
        for node_id in node_ids:
            handed_out += await self.advance(await self.completed(node_id, output))
        return handed_out

    async def fail(self, *node_ids: str) -> list[str]:
        """Let each fail for good, one after the other; give the nodes that were handed out."""
        handed_out: list[str] = []
        for node_id in node_ids:
            handed_out += await self.advance(await self.failed(node_id))
        return handed_out

    def task(self, free: FreeNode, config: bytes = b"null") -> Task:
        node = self.plan.nodes[free.node_id]
        return Task(
            execution_id=free.execution.id,
            generation=free.execution.generation,
            node_id=free.node_id,
            attempt=free.attempt,
            digest=free.execution.digest,
            handler=node.handler,
            queue=node.queue,
            priority=1,
            config=config,
            timeout_seconds=node.timeout_seconds,
            queued_at=self.clock.now(),
            failures=free.failures,
            losses=free.losses,
            epoch=free.execution.epoch,
        )

    # -- what is true now --------------------------------------------------------------------------

    async def execution(self) -> ExecutionRow:
        row = await self.journal.execution(self.execution_id)
        assert row is not None
        return row

    async def row(self, node_id: str) -> NodeRow:
        return (await self.journal.nodes(self.execution_id)).get(node_id) or NodeRow(node_id=node_id)

    async def rows(self) -> dict[str, NodeRow]:
        """Return every node's row; for a node without one, the row of an unsettled node."""
        return {node_id: await self.row(node_id) for node_id in self.plan.graph.ids}

    async def states(self) -> dict[str, str]:
        """Return the state, reason and cause of each settled node as text: ``SKIPPED upstream_failed a``."""
        return {
            node_id: " ".join(str(part) for part in (row.state, row.reason, row.cause) if part is not None)
            for node_id, row in (await self.rows()).items()
            if row.state is not None
        }

    def lease(self, node_id: str, attempt: int = 1, *, generation: int = 1, **fields: Any) -> Lease:
        """Return the lease of the worker that started this attempt."""
        now = self.clock.now()
        given = {
            "execution_id": self.execution_id,
            "generation": generation,
            "node_id": node_id,
            "attempt": attempt,
            "nonce": nonce(node_id, attempt),
            "worker": WORKER,
            "queued_at": now,
            "started_at": now,
        }
        return Lease(**{**given, **fields})


def workflow(*nodes: Json, **fields: Json) -> Json:
    """Write a definition: each node by its id alone, or as ``node`` makes it."""
    return {"nodes": [node(given) if isinstance(given, str) else given for given in nodes], **fields}


def node(node_id: str, *dependencies: str, rule: str | None = None, **fields: Json) -> Json:
    """Write a node that runs after these."""
    document: dict[str, Json] = {"id": node_id, "handler": "echo", **fields}
    if dependencies:
        document["dependencies"] = list(dependencies)
    if rule is not None:
        document["trigger_rule"] = rule
    return document


def an_error(*, retryable: bool = False, code: str = "handler_error") -> dict[str, Any]:
    return {"code": code, "message": "it did not work", "retryable": retryable}


def nonce(node_id: str, attempt: int) -> str:
    return f"{node_id}/{attempt}"


def _no_blob(name: str) -> bytes:
    raise KeyError(name)
