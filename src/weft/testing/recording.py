"""One execution in a journal, told event by event: what the journal's contract suite is written in."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from weft.core.event import (
    AttemptFailed,
    AttemptIssued,
    AttemptLost,
    AttemptParked,
    CancelRequested,
    DeadlinePassed,
    Event,
    ExecutionStarted,
    HaltObserved,
    NodeCached,
    NodeCompleted,
    NodeFailed,
    NodeSkipped,
    ParkedDue,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    Running,
    Skip,
)
from weft.core.payload import encode
from weft.core.rows import ExecutionRow, History, NodeRow
from weft.core.state import SETTLED, NodeState
from weft.definition.bounds import MIB
from weft.definition.plan import Plan, compile_plan
from weft.journal.contract import DEFAULT_NAMESPACE, LetterQuery, Submission

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent, Verdict
    from weft.journal.contract import JournalAdapter

ERROR = {"code": "handler_error", "message": "it broke", "retryable": True}


def node(node_id: str, *dependencies: str, **fields: Any) -> dict[str, Any]:
    """Write down a node of the definition."""
    return {"id": node_id, "handler": "echo", "dependencies": list(dependencies), **fields}


def submission(
    execution_id: str,
    *nodes: Mapping[str, Any],
    namespace: str = DEFAULT_NAMESPACE,
    input: bytes = b"{}",  # noqa: A002 - the word for it
    labels: Mapping[str, str] | None = None,
    workflow: str | None = None,
    version: int | None = None,
    **fields: Any,
) -> Submission:
    """Make the submission of an execution of these nodes; ``fields`` are the definition's own."""
    document = {"nodes": list(nodes or (node("a"),)), **fields}
    return Submission(
        id=execution_id,
        plan=compile_plan(document),
        document=encode(document, max_bytes=MIB),
        input=input,
        namespace=namespace,
        workflow=workflow,
        version=version,
        labels=dict(labels or {}),
    )


class Recording:
    """An execution under way. Each method records one event, under the generation that is current."""

    def __init__(self, journal: JournalAdapter, execution_id: str, plan: Plan) -> None:
        self.journal = journal
        self.id = execution_id
        self.plan = plan
        self.generation = 1

    @classmethod
    async def start(
        cls,
        journal: JournalAdapter,
        *nodes: Mapping[str, Any],
        execution_id: str = "execution-1",
        **fields: Any,
    ) -> Recording:
        """Submit an execution and take it up."""
        recording = await cls.submit(journal, *nodes, execution_id=execution_id, **fields)
        await recording.started()
        return recording

    @classmethod
    async def submit(
        cls,
        journal: JournalAdapter,
        *nodes: Mapping[str, Any],
        execution_id: str = "execution-1",
        **fields: Any,
    ) -> Recording:
        """Submit an execution."""
        new = submission(execution_id, *nodes, **fields)
        await journal.submit([new])
        return cls(journal, execution_id, new.plan)

    # -- what happens ------------------------------------------------------------------------------

    async def record(self, event: Event) -> RecordedEvent:
        (recorded_event,) = await self.journal.record([event])
        return recorded_event

    async def started(self) -> RecordedEvent:
        return await self.record(ExecutionStarted(execution_id=self.id, generation=self.generation))

    def completion(
        self, node_id: str, attempt: int = 1, output: bytes | None = b"1", **fields: Any
    ) -> NodeCompleted:
        """Make the event; ``completed`` records it too."""
        fields.setdefault("generation", self.generation)
        fields.setdefault("output_bytes", 0 if output is None else len(output))
        fields.setdefault("worker", "worker-1")
        return NodeCompleted(execution_id=self.id, node_id=node_id, attempt=attempt, output=output, **fields)

    async def completed(
        self, node_id: str, attempt: int = 1, output: bytes | None = b"1", **fields: Any
    ) -> RecordedEvent:
        return await self.record(self.completion(node_id, attempt, output, **fields))

    async def cached(self, node_id: str, output: bytes, attempt: int = 1) -> RecordedEvent:
        return await self.record(NodeCached(**self._of(node_id, attempt), output=output))

    async def failed_once(self, node_id: str, attempt: int = 1, **fields: Any) -> RecordedEvent:
        fields = {"error": ERROR, "delay_seconds": 0, "started_at": 0, **fields}
        return await self.record(AttemptFailed(**self._of(node_id, attempt), **fields))

    async def lost(
        self, node_id: str, attempt: int = 1, *, counted: bool = True, **fields: Any
    ) -> RecordedEvent:
        return await self.record(AttemptLost(**self._of(node_id, attempt), counted=counted, **fields))

    def failure(self, node_id: str, attempt: int = 1, **fields: Any) -> NodeFailed:
        """Make the event; ``failed`` records it too."""
        fields = {"error": ERROR, "started_at": 0, "worker": "worker-1", **fields}
        return NodeFailed(**self._of(node_id, attempt), **fields)

    async def failed(
        self,
        node_id: str,
        attempt: int = 1,
        *,
        skips: Sequence[str] = (),
        running: Mapping[str, Running] | None = None,
        **fields: Any,
    ) -> RecordedEvent:
        """Record a failure for good. ``skips`` are behind it."""
        behind = tuple(Skip(skip, "upstream_failed", node_id) for skip in skips)
        return await self.record(
            self.failure(node_id, attempt, skips=behind, running=dict(running or {}), **fields)
        )

    async def skipped(
        self, node_id: str, reason: str = "condition", cause: str | None = None, attempt: int = 1
    ) -> RecordedEvent:
        return await self.record(NodeSkipped(**self._of(node_id, attempt), reason=reason, cause=cause))

    async def issued(self, node_id: str, attempt: int = 1, *, epoch: int = 1) -> RecordedEvent:
        return await self.record(AttemptIssued(**self._of(node_id, attempt), epoch=epoch))

    async def parked(
        self,
        node_id: str,
        attempt: int = 1,
        *,
        seconds: float,
        epoch: int = 1,
        output: bytes | None = b"1",
        **fields: Any,
    ) -> RecordedEvent:
        fields.setdefault("output_bytes", 0 if output is None else len(output))
        of = self._of(node_id, attempt)
        return await self.record(AttemptParked(**of, epoch=epoch, seconds=seconds, output=output, **fields))

    async def due(self, node_id: str, attempt: int = 1) -> RecordedEvent:
        """Record that the time of a parked attempt has come."""
        return await self.record(ParkedDue(**self._of(node_id, attempt)))

    async def deadline_passed(self, running: Mapping[str, Running] | None = None) -> RecordedEvent:
        return await self.record(
            DeadlinePassed(execution_id=self.id, generation=self.generation, running=dict(running or {}))
        )

    async def cancel(self, running: Mapping[str, Running] | None = None) -> RecordedEvent:
        return await self.record(
            CancelRequested(execution_id=self.id, generation=0, running=dict(running or {}), actor="ann")
        )

    async def pause(self) -> RecordedEvent:
        return await self.record(PauseRequested(execution_id=self.id, generation=0, actor="ann"))

    async def observe_halt(
        self, in_hand: Mapping[str, int], *, epoch: int = 1, paused_seq: int = 0
    ) -> RecordedEvent:
        return await self.record(
            HaltObserved(
                execution_id=self.id,
                generation=self.generation,
                epoch=epoch,
                paused_seq=paused_seq,
                in_hand=dict(in_hand),
            )
        )

    async def resume(self) -> RecordedEvent:
        return await self.record(ResumeRequested(execution_id=self.id, generation=0, actor="ann"))

    async def retry(self, *nodes: str) -> RecordedEvent:
        """Ask for the next generation; what is recorded from now on is of it."""
        recorded_event = await self.record(
            RetryRequested(execution_id=self.id, generation=0, nodes=nodes, actor="ann")
        )
        if recorded_event.execution is not None:
            self.generation = recorded_event.execution.generation
        return recorded_event

    async def control(self, call: str) -> Verdict:
        """Make the control call of this name."""
        calls = {"cancel": self.cancel, "pause": self.pause, "resume": self.resume, "retry": self.retry}
        return (await calls[call]()).verdict

    def _of(self, node_id: str, attempt: int) -> dict[str, Any]:
        return {
            "execution_id": self.id,
            "generation": self.generation,
            "node_id": node_id,
            "attempt": attempt,
        }

    # -- what the journal says of it ---------------------------------------------------------------

    async def row(self) -> ExecutionRow:
        row = await self.journal.execution(self.id)
        assert row is not None
        return row

    async def node(self, node_id: str) -> NodeRow:
        """Read a node's row, a missing one as what it means."""
        return (await self.journal.nodes(self.id)).get(node_id, NodeRow(node_id=node_id))

    async def states(self) -> dict[str, NodeState | None]:
        """Return the state of every node; None: the node is not settled."""
        rows = await self.journal.nodes(self.id)
        return {name: rows.get(name, NodeRow(node_id=name)).state for name in self.plan.nodes}

    async def events(self) -> Sequence[History]:
        return await self.journal.events(self.id)

    async def types(self) -> list[str]:
        return [event.type for event in await self.events()]

    async def letters(self) -> dict[tuple[str, int], str]:
        """Return the state of every dead letter, by node and generation."""
        found = await self.journal.dead_letters(LetterQuery(execution_id=self.id))
        return {(letter.node_id, letter.generation): letter.state for letter in found}


async def assert_consistent(journal: JournalAdapter, execution_id: str) -> None:
    """Hold an execution's rows against each other: what is true of them after every commit."""
    execution = await journal.execution(execution_id)
    assert execution is not None
    plan = await journal.plan(execution.digest)
    assert plan is not None
    rows = await journal.nodes(execution_id)
    events = await journal.events(execution_id, limit=execution.seq + 1)
    assert [event.seq for event in events] == list(range(1, execution.seq + 1)), "event numbers have no gaps"
    assert all(before.at <= after.at for before, after in pairwise(events))
    settled = [row for row in rows.values() if row.state in SETTLED]
    counted = Counter(row.state for row in settled)
    assert execution.total == len(plan.nodes)
    assert execution.unsettled == len(plan.nodes) - len(settled)
    assert execution.failed == counted[NodeState.FAILED]
    assert execution.skipped == counted[NodeState.SKIPPED]
    assert execution.cancelled == counted[NodeState.CANCELLED]
    assert execution.completed == counted[NodeState.COMPLETED]
    assert execution.waiting == sum(row.wait is not None for row in rows.values())
    assert execution.is_terminal == (execution.unsettled == 0)
    assert execution.is_terminal == (execution.finished_at is not None)
    for row in rows.values():
        assert row.node_id in plan.nodes
        assert row.seq <= execution.seq
        assert max(row.ended, row.answered, row.issued) <= row.attempt
        times = [row.queued_at, row.started_at, row.finished_at]
        if row.parked is None:
            # To park an attempt changes a node's row alone.
            times.append(execution.updated_at)
        known = [time for time in times if time is not None]
        assert known == sorted(known), f"the times of {row.node_id} are out of order"
