"""The contract of nodes that run workflows, and of their children: a part of ``JournalContract``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import CallStarted, CancelRequested, ChildEnded, NewChild, PauseRequested
from weft.core.ledger.changes import Verdict
from weft.core.ledger.waits import child_id
from weft.core.payload import encode
from weft.core.rows import Called, Parent, Wait
from weft.core.state import ExecutionState, NodeState
from weft.definition.bounds import MIB
from weft.definition.plan import compile_plan
from weft.definition.waits import WaitKind
from weft.journal.contract import ChildQuery, EndedWait, ExecutionQuery, StrayReason
from weft.testing.journal.waits import due
from weft.testing.recording import ERROR, Recording, assert_consistent, node

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.core.ledger.changes import RecordedEvent
    from weft.journal.contract import JournalAdapter

_INNER = {"nodes": [node("x"), node("y", "x")]}
_OUTPUT = b'{"y":1}'
_WAIT_ID = child_id("execution-1", "a", 1)


def caller(node_id: str, *dependencies: str, **fields: Any) -> dict[str, Any]:
    """Write down a node that runs a workflow of two nodes."""
    return {"id": node_id, "workflow": _INNER, "dependencies": list(dependencies), **fields}


class ChildRowsContract:
    async def test_the_commit_that_begins_a_call_creates_the_child(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(
            journal, caller("a"), node("b", "a"), labels={"team": "a"}, timeout_seconds=90
        )
        deadline_at = (await run.row()).deadline_at
        clock.advance(1)
        recorded_event = await call(run, "a", input=b'{"n":1}')
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.rows == (row,)
        assert (row.state, row.started_at, row.wait) == (None, clock.now(), Wait(WaitKind.CHILD, _WAIT_ID))
        assert (await run.row()).waiting == 1
        child = await journal.execution(_WAIT_ID)
        assert child is not None
        assert child.parent == Parent(run.id, "a", None, 1, 1, 1, deadline_at)
        assert (child.state, child.input, child.total) == (ExecutionState.RUNNING, b'{"n":1}', 2)
        assert (child.labels, child.namespace) == ({"team": "a"}, (await run.row()).namespace)
        assert child.deadline_at == deadline_at
        (opened,) = recorded_event.children
        assert opened.execution is not None
        assert (opened.execution.id, opened.rows) == (child.id, ())
        assert [event.type for event in await journal.events(child.id)] == [
            "execution.created",
            "execution.started",
        ]
        assert (await run.events())[-1].type == "node.waiting"
        assert await journal.document(child.digest) is not None
        await assert_consistent(journal, run.id)
        await assert_consistent(journal, child.id)

    async def test_it_begins_once_and_not_while_paused(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"))
        assert (await call(run, "a", epoch=2)).verdict is Verdict.STALE
        await run.pause()
        assert (await call(run, "a")).verdict is Verdict.STALE
        assert await journal.execution(_WAIT_ID) is None
        await run.resume()
        assert (await call(run, "a")).verdict is Verdict.ACCEPTED
        again = await call(run, "a")
        assert (again.verdict, again.children) == (Verdict.KNOWN, ())
        snapshot = await journal.rebuild(run.id, seen_epoch=1)
        assert snapshot is not None
        assert list(snapshot.rows) == [await run.node("a")]

    async def test_the_end_of_the_child_completes_the_node_once(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, caller("a"), node("b", "a"))
        child = await begun(run, "a")
        assert list(await journal.untold_children(older_than_seconds=0, limit=10)) == []
        await child.completed("x")
        await child.completed("y")
        assert (await child.row()).output == _OUTPUT
        assert await untold(journal) == [child.id]
        clock.advance(1)
        recorded_event = await ended(run, "a", output=_OUTPUT)
        assert recorded_event.verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert recorded_event.completed_row == row
        assert (row.state, row.output, row.finished_at) == (NodeState.COMPLETED, _OUTPUT, clock.now())
        assert await untold(journal) == []
        assert (await ended(run, "a", output=b"2")).verdict is Verdict.KNOWN
        assert await run.node("a") == row
        # The store is still to be told of the end of the wait.
        assert list(await journal.untold_waits(older_than_seconds=0, limit=10)) == [EndedWait(run.id, 1, "a")]
        await journal.forget_waits([EndedWait(run.id, 1, "a")])
        await run.completed("b")
        assert (await run.row()).state is ExecutionState.COMPLETED
        await assert_consistent(journal, run.id)

    async def test_a_child_that_failed_fails_the_node_without_a_letter(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"), node("b"), failure_policy="continue")
        child = await begun(run, "a")
        await child.failed("x", started_at=0)
        assert await child.letters() == {("x", 1): "open"}
        error = {"code": "child_failed", "message": "it failed", "retryable": False, "details": {}}
        assert (await ended(run, "a", error=error)).verdict is Verdict.ACCEPTED
        row = await run.node("a")
        assert (row.state, row.error) == (NodeState.FAILED, error)
        assert await run.letters() == {}
        await assert_consistent(journal, run.id)

    async def test_an_end_that_is_not_awaited_changes_nothing(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"), caller("b"))
        await begun(run, "a")
        assert (await ended(run, "a", child="another")).verdict is Verdict.STALE
        assert (await ended(run, "b")).verdict is Verdict.STALE
        assert (await ended(run, "a", attempt=2)).verdict is Verdict.STALE
        await run.cancel()
        assert (await ended(run, "a")).verdict is Verdict.KNOWN
        assert (await run.node("a")).state is NodeState.CANCELLED

    async def test_the_deadline_of_the_parent_decides_before_the_end_of_the_child(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, caller("a"), timeout_seconds=5)
        child = await begun(run, "a")
        clock.advance(5)
        await child.deadline_passed()
        row = await child.row()
        assert row.state is ExecutionState.CANCELLED
        assert {node_row.reason for node_row in (await journal.nodes(child.id)).values()} == {"parent"}
        assert (await ended(run, "a", error=ERROR)).verdict is Verdict.STALE
        await run.deadline_passed()
        assert ((await run.row()).error or {})["code"] == "deadline_exceeded"
        assert await untold(journal) == [child.id]
        await journal.forget_children([row])
        assert await untold(journal) == []

    async def test_a_call_that_takes_too_long_fails(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, caller("a"), failure_policy="continue")
        child = await begun(run, "a", seconds=3)
        clock.advance(3)
        found = await journal.due_waits(limit=10)
        assert [(one.execution_id, one.node_id) for one in found.due] == [(run.id, "a")]
        await due(run, "a")
        row = await run.node("a")
        assert (row.state, (row.error or {})["code"]) == (NodeState.FAILED, "timeout")
        assert [one.id for one in await journal.idle_children(run.id, limit=10)] == [child.id]

    async def test_what_an_ended_parent_left_is_found_and_cancelled(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"), caller("b"))
        child, other = await begun(run, "a"), await begun(run, "b")
        assert await stray(journal) == {}
        assert list(await journal.idle_children(run.id, limit=10)) == []
        assert {one.id for one in await journal.open_children(run.id)} == {child.id, other.id}
        await run.cancel()
        assert await stray(journal) == dict.fromkeys((child.id, other.id), StrayReason.IDLE)
        assert len(await journal.idle_children(run.id, limit=1)) == 1
        for one in (child, other):
            request = CancelRequested(execution_id=one.id, generation=1, by_parent=True)
            assert (await one.record(request)).verdict is Verdict.ACCEPTED
        assert (await child.node("x")).reason == "parent"
        assert await stray(journal) == {}
        assert await untold(journal) == []
        assert [one.id for one in await journal.ended_children(run.id, limit=10)] == sorted(
            (child.id, other.id)
        )
        await assert_consistent(journal, child.id)

    async def test_a_child_is_paused_and_resumed_with_its_parent(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"), caller("b"))
        child, other = await begun(run, "a"), await begun(run, "b")
        await other.pause()
        assert await stray(journal) == {}
        await run.pause()
        assert await stray(journal) == {child.id: StrayReason.PARENT_PAUSED}
        await child.record(PauseRequested(execution_id=child.id, generation=1, by_parent=True))
        assert await stray(journal) == {}
        await run.resume()
        # The other one was paused by itself.
        assert await stray(journal) == {child.id: StrayReason.PARENT_RESUMED}
        await child.resume()
        assert await stray(journal) == {}

    async def test_a_retry_of_the_parent_opens_the_child_again(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, caller("a"))
        child = await begun(run, "a")
        await child.completed("x")
        await child.failed("y", started_at=0)
        await ended(run, "a", error=ERROR)
        assert (await run.row()).state is ExecutionState.FAILED
        assert (await child.retry()).verdict is Verdict.REFUSED
        called = (await run.node("a")).called
        assert called is not None
        await run.retry()
        run.generation = 2
        assert (await run.node("a")).called == called
        clock.advance(1)
        recorded_event = await call(run, "a", attempt=2, called=called)
        assert recorded_event.verdict is Verdict.ACCEPTED
        (opened,) = recorded_event.children
        assert {row.node_id: row.state for row in opened.rows} == {"x": NodeState.COMPLETED, "y": None}
        row = await child.row()
        assert (row.state, row.generation) == (ExecutionState.RUNNING, 2)
        assert row.parent == Parent(run.id, "a", None, 2, 1, 2, None)
        child.generation = 2
        await child.completed("y", attempt=2)
        # The end of the first generation comes late.
        assert (await ended(run, "a", generation=1)).verdict is Verdict.STALE
        assert await untold(journal) == [child.id]
        assert (await ended(run, "a", attempt=2, output=_OUTPUT)).verdict is Verdict.ACCEPTED
        assert (await run.row()).state is ExecutionState.COMPLETED
        await assert_consistent(journal, run.id)
        await assert_consistent(journal, child.id)

    async def test_a_retry_takes_over_a_child_that_runs_or_has_completed(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, caller("a"), caller("b"))
        child, other = await begun(run, "a"), await begun(run, "b")
        await other.completed("x")
        await other.completed("y")
        called = {name: (await run.node(name)).called for name in ("a", "b")}
        await run.cancel()
        await run.retry()
        run.generation = 2
        # Nobody has come to the children yet.
        first = await call(run, "a", attempt=2, called=called["a"])
        assert first.children[0].execution is not None
        assert (await child.row()).state is ExecutionState.RUNNING
        assert (await child.row()).generation == 2
        second = await call(run, "b", attempt=2, called=called["b"])
        assert second.children[0].execution is not None
        row = await other.row()
        assert (row.state, row.generation) == (ExecutionState.COMPLETED, 1)
        assert row.parent == Parent(run.id, "b", None, 2, 1, 2, None)
        assert (await ended(run, "b", attempt=2, output=_OUTPUT)).verdict is Verdict.ACCEPTED
        await assert_consistent(journal, run.id)
        await assert_consistent(journal, child.id)

    async def test_a_retry_that_names_the_node_forgets_its_child(self, journal: JournalAdapter) -> None:
        run = await Recording.start(journal, caller("a"))
        await begun(run, "a")
        await run.cancel()
        await run.retry("a")
        assert (await run.node("a")).called is None

    async def test_lists_leave_children_out_unless_their_parent_is_named(
        self, journal: JournalAdapter
    ) -> None:
        run = await Recording.start(journal, caller("a"), caller("b"), labels={"team": "a"})
        child = await begun(run, "a")
        await begun(run, "b")
        for query in (
            ExecutionQuery(),
            ExecutionQuery(states=(ExecutionState.RUNNING,)),
            ExecutionQuery(labels=(("team", "a"),)),
        ):
            assert [row.id for row in await journal.executions(query)] == [run.id]
            assert [row.id for row in (await journal.search(query)).rows] == [run.id]
        found = await journal.executions(ExecutionQuery(parent=run.id))
        assert {row.parent.node for row in found if row.parent is not None} == {"a", "b"}
        assert len(found) == 2
        of_node = ChildQuery(execution_id=run.id, node_id="a")
        assert [row.id for row in await journal.children(of_node)] == [child.id]
        assert list(await journal.children(of_node, after=0)) == []
        await child.cancel()
        counts = {"a": {ExecutionState.CANCELLED: 1}, "b": {ExecutionState.RUNNING: 1}}
        assert await journal.child_counts(run.id) == counts
        cancelled = ChildQuery(execution_id=run.id, node_id="a", states=(ExecutionState.CANCELLED,))
        assert [row.id for row in await journal.children(cancelled)] == [child.id]
        running = ChildQuery(execution_id=run.id, node_id="a", states=(ExecutionState.RUNNING,))
        assert list(await journal.children(running)) == []

    async def test_children_are_purged_with_their_parent(
        self, journal: JournalAdapter, clock: VirtualClock
    ) -> None:
        run = await Recording.start(journal, caller("a"), node("b"))
        child = await begun(run, "a")
        await child.completed("x")
        await child.completed("y")
        await ended(run, "a", output=_OUTPUT)
        clock.advance(10)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 0
        assert await journal.execution(child.id) is not None
        await run.completed("b")
        clock.advance(10)
        assert await journal.purge(finished_before=clock.now(), limit=10) == 2
        assert await journal.execution(run.id) is None
        assert await journal.execution(child.id) is None


async def call(
    run: Recording,
    node_id: str,
    *,
    attempt: int = 1,
    epoch: int | None = None,
    input: bytes = b"{}",  # noqa: A002 - the word for it
    seconds: float | None = None,
    called: Called | None = None,
) -> RecordedEvent:
    """Record the begin of a call."""
    plan = compile_plan(_INNER)
    called = called or Called(plan.digest, None, None, "", attempt, child_id(run.id, node_id, attempt))
    return await run.record(
        CallStarted(
            run.id,
            run.generation,
            node_id,
            attempt,
            epoch=(await run.row()).epoch if epoch is None else epoch,
            called=called,
            new=NewChild(plan, encode(_INNER, max_bytes=MIB), input, 0, True),
            seconds=seconds,
        )
    )


async def begun(run: Recording, node_id: str, **fields: Any) -> Recording:
    """Record the begin of a call; return its child."""
    recorded_event = await call(run, node_id, **fields)
    assert recorded_event.verdict is Verdict.ACCEPTED
    return Recording(run.journal, child_id(run.id, node_id, 1), compile_plan(_INNER))


async def ended(
    run: Recording,
    node_id: str,
    *,
    attempt: int = 1,
    generation: int | None = None,
    child: str | None = None,
    output: bytes | None = None,
    error: dict[str, Any] | None = None,
) -> RecordedEvent:
    """Record that the child of a node has ended."""
    return await run.record(
        ChildEnded(
            run.id,
            run.generation if generation is None else generation,
            node_id,
            attempt,
            child=child or child_id(run.id, node_id, 1),
            output=output if error is not None or output is not None else b"null",
            output_bytes=len(output or b"null"),
            error=error,
        )
    )


async def untold(journal: JournalAdapter) -> list[str]:
    return [row.id for row in await journal.untold_children(older_than_seconds=0, limit=10)]


async def stray(journal: JournalAdapter) -> dict[str, StrayReason]:
    return {one.execution.id: one.reason for one in await journal.stray_children(limit=10)}
