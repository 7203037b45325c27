"""Reading messages ahead, and what becomes of those that were not taken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.core.state import ExecutionState, NodeState
from weft.core.task import Result, Wake
from weft.definition.plan import compile_plan
from weft.journal.contract import Submission
from weft.orchestrator.collect import collect, next_batch
from weft.orchestrator.context import Context
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.submit import submit
from weft.store.memory import MemoryStore
from weft.testing.walk import node, workflow
from weft.worker.service import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.clock import VirtualClock
    from weft.definition.plan import Plan
    from weft.ports import Ports
    from weft.transport.contract import MessageDelivery

PLAN = compile_plan(workflow("a"))


@pytest.fixture
def orchestrator(ports: Ports) -> Orchestrator:
    return Orchestrator(ports, name="orchestrator")


async def _submit(orchestrator: Orchestrator, ids: Sequence[str]) -> None:
    new = [Submission(id=one, plan=PLAN, document=b"{}", input=b"{}") for one in ids]
    await submit(new, orchestrator.ports)


async def _finish_tasks(ports: Ports) -> None:
    """Publish a result for every task that waits."""
    for delivery in await ports.transport.fetch("worker", queues=None, limit=100, wait_seconds=0):
        task = delivery.task
        result = Result(
            execution_id=task.execution_id,
            generation=task.generation,
            node_id=task.node_id,
            attempt=task.attempt,
            digest=task.digest,
            failures=0,
            losses=0,
            worker="worker",
            queued_at=task.queued_at,
            started_at=task.queued_at,
            finished_at=task.queued_at,
            output=task.config,
        )
        await ports.transport.publish([result])


async def test_a_message_behind_many_of_another_execution_is_in_the_next_batch(
    orchestrator: Orchestrator,
) -> None:
    wide = [Wake("wide", 1, PLAN.digest)] * 150
    await orchestrator.ports.transport.publish([*wide, Wake("small", 1, PLAN.digest)])
    batch = await next_batch(orchestrator.context, limit=64, wait_seconds=0)
    names = [delivery.message.execution_id for delivery in batch]
    assert names.count("small") == 1
    assert names.count("wide") == 16


async def test_what_comes_while_others_are_in_hand_is_seen_at_once(orchestrator: Orchestrator) -> None:
    transport = orchestrator.ports.transport
    await transport.publish([Wake("wide", 1, PLAN.digest)] * 200)
    orchestrator.context.fair_queue.done(await next_batch(orchestrator.context, limit=64, wait_seconds=0))
    await transport.publish([Wake("small", 1, PLAN.digest)])
    batch = await next_batch(orchestrator.context, limit=64, wait_seconds=0)
    assert "small" in {delivery.message.execution_id for delivery in batch}


async def test_no_more_is_read_than_a_few_batches(orchestrator: Orchestrator) -> None:
    await orchestrator.ports.transport.publish([Wake("wide", 1, PLAN.digest)] * 100)
    await next_batch(orchestrator.context, limit=10, wait_seconds=0)
    assert len(orchestrator.context.fair_queue) == 30
    (more, _) = await orchestrator.ports.transport.claim("peer", idle_seconds=0, limit=1000)
    assert len(more) == 40


async def test_who_leaves_takes_all_the_way_what_it_has_read(orchestrator: Orchestrator) -> None:
    names = [f"x{number}" for number in range(8)]
    await _submit(orchestrator, names)
    # Each waits for an orchestrator: to read its result is to end it.
    await _finish_tasks(orchestrator.ports)
    await collect(orchestrator.context, limit=2, wait_seconds=0)
    assert len(orchestrator.context.fair_queue) == 6
    await orchestrator.finish(within_seconds=30)
    assert len(orchestrator.context.fair_queue) == 0
    states = [await orchestrator.ports.journal.execution(name) for name in names]
    assert [row and row.state for row in states] == [ExecutionState.COMPLETED] * 8
    (left, _) = await orchestrator.ports.transport.claim("peer", idle_seconds=0, limit=100)
    assert left == []


class TestTheStart:
    """An orchestrator reads what waits for it before it recovers, and only then starts its loops."""

    async def reported(self, ports: Ports, clock: VirtualClock, plan: Plan) -> None:
        """Let an attempt of node a be reported while no orchestrator is there."""
        first = Context(ports, "first")
        await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
        await collect(first, limit=64, wait_seconds=0)
        ((task, *_),) = await begin(
            await ports.transport.fetch("w", queues=None, limit=9, wait_seconds=0), ports, worker="w"
        )
        now = clock.now()
        result = Result(
            execution_id="x",
            generation=1,
            node_id=task.node_id,
            attempt=1,
            digest=plan.digest,
            failures=0,
            losses=0,
            worker="w",
            queued_at=now,
            started_at=now,
            finished_at=now,
            output=b"1",
            output_bytes=1,
        )
        await ports.store.report([result])

    async def test_what_has_finished_is_not_sent_again_though_its_hot_state_is_gone(
        self, ports: Ports, clock: VirtualClock
    ) -> None:
        await self.reported(ports, clock, PLAN)
        assert isinstance(ports.store, MemoryStore)
        ports.store.flush()
        clock.advance(1000)
        orchestrator = Orchestrator(ports, name="next")
        await orchestrator.start()
        # Nothing has had a turn since: the start itself has recorded the result, and had nothing to rebuild.
        row = await ports.journal.execution("x")
        await orchestrator.stop()
        assert row is not None
        assert (row.state, row.epoch) == (ExecutionState.COMPLETED, 1)
        assert not await ports.transport.fetch("w", queues=None, limit=9, wait_seconds=0)

    async def test_what_has_finished_is_not_taken_for_lost_after_a_long_absence(
        self, ports: Ports, clock: VirtualClock
    ) -> None:
        await self.reported(ports, clock, compile_plan(workflow("a", node("b", "a"))))
        clock.advance(100_000)
        orchestrator = Orchestrator(ports, name="next")
        await orchestrator.start()
        rows = await ports.journal.nodes("x")
        await orchestrator.stop()
        assert (rows["a"].attempt, rows["a"].state) == (1, NodeState.COMPLETED)
        sent = await ports.transport.fetch("w", queues=None, limit=9, wait_seconds=0)
        assert [(delivery.task.node_id, delivery.task.attempt) for delivery in sent] == [("b", 1)]

    async def test_a_stream_that_never_runs_empty_does_not_hold_the_start_up(
        self, ports: Ports, clock: VirtualClock
    ) -> None:
        """Each read finds one more result, of an execution that nobody knows, that has just finished."""
        orchestrator = Orchestrator(ports, name="next")
        read, count = ports.transport.read, 0

        async def endless(consumer: str, *, limit: int, wait_seconds: float) -> Sequence[MessageDelivery]:
            nonlocal count
            count += 1
            clock.advance(0.001)
            now = clock.now()
            result = Result(
                execution_id=f"y{count}",
                generation=1,
                node_id="a",
                attempt=1,
                digest=PLAN.digest,
                failures=0,
                losses=0,
                worker="w",
                queued_at=now,
                started_at=now,
                finished_at=now,
                output=b"1",
                output_bytes=1,
            )
            await ports.transport.publish([result])
            return await read(consumer, limit=limit, wait_seconds=wait_seconds)

        ports.transport.read = endless  # type: ignore[method-assign]
        await orchestrator.take_over()
        assert count == 1
