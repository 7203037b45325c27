"""Completions that count before they are committed: what is started on them, and what becomes of them."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import VirtualClock
from weft.core.plan import compile_plan
from weft.core.state import ExecutionState, NodeState
from weft.core.task import Result, Task, Wake
from weft.core.trace import check
from weft.core.trace_state import stored_rows
from weft.errors import JournalError
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.limits.memory import MemoryLimits
from weft.orchestrator.checkpoint import checkpoint
from weft.orchestrator.collect import collect
from weft.orchestrator.control import cancel, retry
from weft.orchestrator.reap import sweep
from weft.orchestrator.recover import rebuild
from weft.orchestrator.service import Orchestrator
from weft.ports import Ports
from weft.store.contract import Answer, StartRequest
from weft.store.memory import MemoryStore
from weft.testing.walk import an_error, node, workflow
from weft.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.ledger import Standing
    from weft.core.payload import Json

CHAIN = workflow("a", node("b", "a"), node("c", "b"))


class Fleet:
    """An orchestrator with its ports, and a worker by hand."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        numbers = itertools.count(1)
        self.transport = InProcessTransport(now=self.clock.now)
        self.journal = MemoryJournal(now=self.clock.now, new_id=lambda: f"{next(numbers):04d}")
        self.store = MemoryStore(
            now=self.clock.now,
            new_id=lambda: f"{next(numbers):04d}",
            publish=self.transport.append,
            send=self.transport.put,
        )
        self.ports = Ports(
            store=self.store,
            journal=self.journal,
            transport=self.transport,
            limits=MemoryLimits({}, now=self.clock.now),
            clock=self.clock,
            draw=lambda: 0.5,
            new_id=lambda: f"{next(numbers):04d}",
            checkpoint_seconds=10.0,
        )
        self.orchestrator = Orchestrator(self.ports, name="orchestrator")
        self.tasks: dict[str, Task] = {}

    async def begin(self, document: Json) -> None:
        from weft.orchestrator.submit import submit

        plan = compile_plan(document)
        await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], self.ports)
        await self.collect()

    async def collect(self) -> None:
        """Take all messages, and start all tasks that follow."""
        while self.transport._messages:
            await collect(self.orchestrator, limit=100, wait_seconds=0)
        deliveries = await self.transport.fetch("worker", queues=None, limit=100, wait_seconds=0)
        for delivery in deliveries:
            task = delivery.task
            (started,) = await self.store.start(
                [StartRequest("x", task.generation, task.node_id, task.attempt, self._nonce(task), "worker")]
            )
            if started.answer is Answer.YES:
                self.tasks[task.node_id] = task
        await self.transport.ack_tasks("worker", [delivery.id for delivery in deliveries])

    @staticmethod
    def _nonce(task: Task) -> str:
        return f"{task.node_id}/{task.attempt}"

    async def report(self, node_id: str, *, task: Task | None = None, **fields: Any) -> None:
        """Let the worker report how an attempt ended: completed, if nothing else is said."""
        task = task or self.tasks[node_id]
        now = self.clock.now()
        given: dict[str, Any] = {} if "error" in fields else {"output": f'"{node_id}"'.encode()}
        result = Result(
            execution_id="x",
            generation=task.generation,
            node_id=node_id,
            attempt=task.attempt,
            digest=task.digest,
            failures=task.failures,
            losses=task.losses,
            worker="worker",
            queued_at=task.queued_at,
            started_at=now,
            finished_at=now,
            **given,
            **fields,
        )
        await self.store.report([result], [self._nonce(task)])

    async def end(self, *node_ids: str, **fields: Any) -> None:
        """Let attempts end, and go on from there."""
        for node_id in node_ids:
            await self.report(node_id, **fields)
            await self.collect()

    async def states(self) -> dict[str, str]:
        rows = await self.journal.nodes("x")
        return {name: str(row.state) for name, row in rows.items() if row.state is not None}

    async def state(self) -> ExecutionState:
        row = await self.journal.execution("x")
        assert row is not None
        return row.state

    async def history(self) -> list[str]:
        return [f"{event.type} {event.node or ''}".strip() for event in await self.journal.events("x")]

    def hold_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let every commit fail from now on."""

        async def away(*_: Any, **__: Any) -> Any:
            raise JournalError("it is away")

        monkeypatch.setattr(self.journal, "record", away)

    async def hold_against_the_checker(self) -> None:
        row = await self.journal.execution("x")
        plan = None if row is None else await self.journal.plan(row.digest)
        assert row is not None
        assert plan is not None
        stored = stored_rows(row, await self.journal.nodes("x"))
        assert check(plan, await self.journal.events("x"), stored) == []


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


async def test_what_follows_from_a_completion_starts_without_a_commit(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fleet.begin(CHAIN)
    fleet.hold_back(monkeypatch)
    await fleet.end("a", "b")
    assert fleet.tasks["c"].attempt == 1
    assert await fleet.states() == {}
    # Acknowledged: the store carries it.
    assert await fleet.transport.unacknowledged("orchestrator", limit=9) == []


async def test_the_last_completion_commits_all_and_the_end_with_them(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a", "b")
    assert await fleet.state() is ExecutionState.RUNNING
    await fleet.end("c")
    assert await fleet.state() is ExecutionState.COMPLETED
    assert (await fleet.history())[2:] == [
        "node.completed a",
        "node.completed b",
        "node.completed c",
        "execution.completed",
    ]
    assert await fleet.store.epochs(["x"]) == [None]
    await fleet.hold_against_the_checker()


async def test_no_end_is_shown_while_its_commit_fails(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    await fleet.begin(workflow("a"))
    with monkeypatch.context() as patch:
        fleet.hold_back(patch)
        with suppress(JournalError):
            await fleet.end("a")
        assert await fleet.state() is ExecutionState.RUNNING
        assert await fleet.store.in_flight(["x"]) == [(0, 1)]
    await collect(fleet.orchestrator, limit=9, wait_seconds=0)
    assert await fleet.state() is ExecutionState.COMPLETED


async def test_a_checkpoint_commits_what_the_store_has(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a", "b")
    await checkpoint(fleet.orchestrator)
    assert await fleet.states() == {"a": "COMPLETED", "b": "COMPLETED"}
    assert await fleet.store.unrecorded(limit=9) == []
    before = await fleet.history()
    await checkpoint(fleet.orchestrator)
    assert await fleet.history() == before
    await fleet.hold_against_the_checker()


async def test_two_checkpoints_at_once_record_everything_once(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a", "b")
    await asyncio.gather(
        checkpoint(fleet.orchestrator), checkpoint(Orchestrator(fleet.ports, name="another"))
    )
    assert (await fleet.history())[2:] == ["node.completed a", "node.completed b"]


async def test_a_failure_is_committed_behind_what_the_store_has(fleet: Fleet) -> None:
    await fleet.begin(workflow("a", node("b", "a", max_retries=1), node("c", "b")))
    await fleet.end("a")
    await fleet.end("b", error=an_error(retryable=True))
    assert (await fleet.history())[2:] == ["node.completed a", "node.retrying b"]
    await fleet.hold_against_the_checker()


async def test_what_had_completed_before_a_cancel_stays_completed(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a")
    row = await cancel("x", fleet.ports)
    assert row.state is ExecutionState.CANCELLED
    assert await fleet.states() == {"a": "COMPLETED", "b": "CANCELLED", "c": "CANCELLED"}
    await fleet.end("b")
    assert (await fleet.history())[-1] == "result.discarded b"
    await retry("x", fleet.ports)
    await fleet.collect()
    assert (fleet.tasks["b"].generation, fleet.tasks["b"].attempt) == (2, 2)
    await fleet.end("b", "c")
    assert await fleet.state() is ExecutionState.COMPLETED
    await fleet.hold_against_the_checker()


async def test_a_deadline_is_committed_behind_what_the_store_has(fleet: Fleet) -> None:
    await fleet.begin(workflow("a", node("b", "a"), timeout_seconds=5))
    await fleet.end("a")
    fleet.clock.advance(6)
    await sweep(fleet.orchestrator)
    assert await fleet.states() == {"a": "COMPLETED", "b": "CANCELLED"}
    assert await fleet.state() is ExecutionState.FAILED
    await fleet.hold_against_the_checker()


async def test_nothing_that_may_run_once_starts_on_what_is_not_committed(fleet: Fleet) -> None:
    await fleet.begin(workflow("a", node("b", "a"), node("once", "b", delivery="at_most_once"), "z"))
    await fleet.end("a")
    assert await fleet.states() == {}
    await fleet.end("b")
    assert await fleet.states() == {"a": "COMPLETED", "b": "COMPLETED"}
    assert (await fleet.journal.nodes("x"))["once"].issued == 1
    # Its own result could not be had a second time: it is committed at once.
    await fleet.end("once")
    assert (await fleet.states())["once"] == "COMPLETED"


async def test_what_was_started_on_a_lost_result_gets_another_number_and_does_not_count(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a")
    late = fleet.tasks["b"]
    fleet.store.flush()
    await fleet.report("b", task=late)
    await fleet.collect()
    rows = await fleet.journal.nodes("x")
    assert {name: (row.attempt, row.state) for name, row in rows.items()} == {"b": (2, None), "c": (2, None)}
    assert (await fleet.history())[-1] == "result.discarded b"
    # What the store had taken runs again, and all goes on from there.
    fleet.clock.advance(20)
    await sweep(fleet.orchestrator)
    await fleet.collect()
    assert fleet.tasks["a"].attempt == 2
    await fleet.end("a", "b", "c")
    assert await fleet.state() is ExecutionState.COMPLETED
    assert {name: row.attempt for name, row in (await fleet.journal.nodes("x")).items()} == {
        "a": 2,
        "b": 2,
        "c": 2,
    }
    await fleet.hold_against_the_checker()


async def test_a_result_of_what_was_ready_by_the_journal_survives_the_loss_of_the_store(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a")
    await checkpoint(fleet.orchestrator)
    fleet.store.flush()
    await fleet.end("b")
    assert await fleet.states() == {"a": "COMPLETED", "b": "COMPLETED"}
    assert (await fleet.journal.nodes("x"))["b"].attempt == 1


async def test_a_store_that_is_rebuilt_by_mistake_loses_nothing(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a", "b")
    assert await rebuild("x", fleet.ports) is Answer.YES
    assert await fleet.states() == {"a": "COMPLETED", "b": "COMPLETED"}
    await fleet.end("c")
    assert await fleet.state() is ExecutionState.COMPLETED


async def test_of_a_loss_and_a_late_result_the_journal_takes_one(fleet: Fleet) -> None:
    """Somebody finds a lease run out and asks the store; before he commits, the result comes after all."""
    await fleet.begin(workflow("a", node("b", "a")))
    task = fleet.tasks["a"]
    record = fleet.journal.record
    came: list[str] = []

    async def slow(events: Sequence[Any], **more: Any) -> Sequence[Standing]:
        if events[0].asked and not came:
            came.append("late")
            await fleet.report("a", task=task)
            await collect(Orchestrator(fleet.ports, name="another"), limit=9, wait_seconds=0)
        return await record(events, **more)

    fleet.clock.advance(20)
    fleet.journal.record = slow  # type: ignore[method-assign]
    await sweep(fleet.orchestrator)
    fleet.journal.record = record  # type: ignore[method-assign]
    await fleet.collect()
    assert came == ["late"]
    # The result was recorded by the other one, in between; the loss comes too late.
    assert await fleet.states() == {"a": "COMPLETED"}
    await fleet.end("b")
    assert await fleet.state() is ExecutionState.COMPLETED
    await fleet.hold_against_the_checker()


async def test_a_process_with_the_other_setting_keeps_the_executions_own(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    await fleet.end("a")
    fleet.ports.checkpoint_seconds = None
    await fleet.end("b")
    # It commits at once, and in front of it what the store had.
    assert await fleet.states() == {"a": "COMPLETED", "b": "COMPLETED"}
    fleet.store.flush()
    await rebuild("x", fleet.ports)
    assert "c" not in await fleet.journal.nodes("x")  # all that it was started on is committed
    await fleet.hold_against_the_checker()


async def test_an_execution_that_was_committed_at_once_stays_so(fleet: Fleet) -> None:
    fleet.ports.checkpoint_seconds = None
    await fleet.begin(CHAIN)
    fleet.ports.checkpoint_seconds = 10.0
    await fleet.end("a")
    assert await fleet.states() == {"a": "COMPLETED"}


async def test_what_fills_a_cache_is_committed_at_once(fleet: Fleet) -> None:
    await fleet.begin(workflow(node("a", cache={"ttl_seconds": 60}), "z"))
    await fleet.end("a", cache_key="key")
    assert await fleet.states() == {"a": "COMPLETED"}


async def test_an_orchestrator_makes_checkpoints_of_itself_and_one_more_when_it_leaves(fleet: Fleet) -> None:
    await fleet.begin(workflow("a", "b", "z"))
    recorded = asyncio.Event()
    fleet.ports.checkpoint_seconds = 0.01
    fleet.ports.announce = lambda standings: recorded.set() if standings else None
    await fleet.report("a")
    orchestrator = Orchestrator(fleet.ports, name="real")
    async with asyncio.timeout(20):
        await orchestrator.start()
        await recorded.wait()
        assert await fleet.states() == {"a": str(NodeState.COMPLETED)}
        fleet.ports.checkpoint_seconds = 1000.0
        await orchestrator.stop()
        late = Orchestrator(fleet.ports, name="late")
        await fleet.end("b")
        assert await fleet.states() == {"a": str(NodeState.COMPLETED)}
        await late.finish()
    assert set(await fleet.states()) == {"a", "b"}


async def test_what_a_store_takes_between_two_builders_is_recorded_by_the_next(fleet: Fleet) -> None:
    await fleet.begin(CHAIN)
    token = await fleet.store.token()
    first = await fleet.journal.rebuild("x", seen_epoch=1)
    second = await fleet.journal.rebuild("x", seen_epoch=2)
    assert first is not None
    assert second is not None
    assert list(await fleet.store.install([first], token=token, fresh=False)) == [Answer.YES]
    await fleet.end("a")
    assert list(await fleet.store.install([second], token=token, fresh=False)) == [Answer.REFUSED]
    # The journal is an epoch ahead of a store that has what it has not.
    assert await rebuild("x", fleet.ports) is Answer.YES
    assert await fleet.states() == {"a": "COMPLETED"}
    assert await fleet.store.epochs(["x"]) == [4]
    await fleet.hold_against_the_checker()


async def test_of_several_commits_the_last_says_whether_an_execution_has_ended(fleet: Fleet) -> None:
    await fleet.begin(workflow("a", node("behind", "a", trigger_rule="all_done"), "z"))
    # What wakes it is known already and needs no asking; what ends it does, and comes with a second commit.
    await fleet.transport.publish([Wake("x", 1, fleet.tasks["a"].digest)])
    await fleet.end("a", error=an_error(retryable=False))
    assert await fleet.state() is ExecutionState.FAILED
    assert "behind" not in fleet.tasks
    assert await fleet.store.epochs(["x"]) == [None]
