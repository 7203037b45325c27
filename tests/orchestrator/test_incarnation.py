"""What counts on another incarnation of the database, which has lost commits."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from weft.core.event import ExecutionStarted
from weft.core.task import Result
from weft.definition.plan import compile_plan
from weft.errors import JournalError
from weft.journal.contract import Submission
from weft.orchestrator.advance import record
from weft.orchestrator.collect import collect, without_orphans
from weft.orchestrator.context import Context, begin_step
from weft.orchestrator.dispatch import running_now
from weft.orchestrator.recover import rebuild
from weft.orchestrator.submit import submit
from weft.orchestrator.sweep import sweep
from weft.store.contract import Answer, Lease
from weft.store.memory import MemoryStore
from weft.testing.walk import node, workflow
from weft.transport.contract import MessageDelivery

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.ports import Ports

PLAN = compile_plan(workflow("a", node("b", "a")))
BEGAN_AT = 10


def result(node_id: str) -> Result:
    return Result(
        execution_id="x",
        generation=1,
        node_id=node_id,
        attempt=1,
        digest=PLAN.digest,
        failures=0,
        losses=0,
        worker="worker",
        queued_at=1,
        started_at=2,
        finished_at=3,
        output=b"1",
    )


async def kept(ports: Ports, *results: Result) -> list[Result]:
    """Return those of these results that count."""
    deliveries = [MessageDelivery(str(number), one) for number, one in enumerate(results)]
    return [one.message for one in await without_orphans(deliveries, ports)]  # type: ignore[misc]


async def lose_the_store(ports: Ports, clock: VirtualClock) -> None:
    """Start an execution, then let another incarnation begin, with nothing in the store."""
    await submit([Submission(id="x", plan=PLAN, document=b"{}", input=b"{}")], ports)
    await collect(Context(ports, "orchestrator"), limit=10, wait_seconds=0)
    ports.store = another_store(ports, clock)
    ports.incarnation_began = lambda: BEGAN_AT


def another_store(ports: Ports, clock: VirtualClock) -> MemoryStore:
    numbers = map(str, itertools.count(1000))
    return MemoryStore(
        now=clock.now,
        new_id=lambda: next(numbers),
        publish=ports.transport.append,  # type: ignore[attr-defined]
        send=ports.transport.put,  # type: ignore[attr-defined]
    )


async def test_a_result_counts_only_if_the_journal_has_what_its_attempt_was_started_on(
    ports: Ports, clock: VirtualClock
) -> None:
    await lose_the_store(ports, clock)
    # The node b was started on a result of a that the database has lost.
    assert await kept(ports, result("a"), result("b")) == [result("a")]


async def test_a_result_does_not_count_if_a_parent_has_finished_again_since(
    ports: Ports, clock: VirtualClock
) -> None:
    await lose_the_store(ports, clock)
    again = replace(result("a"), started_at=BEGAN_AT, finished_at=BEGAN_AT)
    ports.transport.append([again])  # type: ignore[attr-defined]
    await collect(Context(ports, "orchestrator"), limit=10, wait_seconds=0)
    # The store is lost once more: now the rebuild orphans b, under the number that saw the first end of a.
    ports.store = another_store(ports, clock)
    assert await kept(ports, result("b")) == []
    assert await kept(ports, replace(result("b"), started_at=BEGAN_AT - 1)) == []


async def test_a_result_of_another_attempt_or_without_its_blob_does_not_count(
    ports: Ports, clock: VirtualClock
) -> None:
    await lose_the_store(ports, clock)
    assert await kept(ports, replace(result("a"), attempt=2), replace(result("a"), blob="lost")) == []


async def test_a_result_of_an_attempt_that_was_started_since_counts(
    ports: Ports, clock: VirtualClock
) -> None:
    await lose_the_store(ports, clock)
    since = replace(result("b"), started_at=BEGAN_AT)
    assert await kept(ports, since) == [since]


async def test_an_attempt_that_saw_a_lost_end_is_lost_without_its_start(
    ports: Ports, clock: VirtualClock
) -> None:
    await lose_the_store(ports, clock)
    again = replace(result("a"), started_at=BEGAN_AT, finished_at=BEGAN_AT)
    ports.transport.append([again])  # type: ignore[attr-defined]
    context = Context(ports, "orchestrator")
    await collect(context, limit=10, wait_seconds=0)
    ports.store = another_store(ports, clock)
    await rebuild("x", ports)
    # Its worker goes on, and the store takes it for the holder of the orphan.
    held = Lease("x", 1, "b", 1, nonce="nonce", worker="worker", queued_at=1, started_at=2)
    assert list(await ports.store.renew([held])) == [Answer.YES]
    assert (await ports.store.running("x"))["b"].started_at == 2
    assert await running_now("x", ports) == {}
    clock.advance(3600)
    for _ in range(2):  # the first sweep after a gap takes nothing for lost
        await sweep(context)
        clock.advance(ports.sweep_seconds * 10)
    lost = [event for event in await ports.journal.events("x") if event.type == "node.lost"]
    assert [(event.node, event.attempt, event.started_at, event.worker) for event in lost] == [
        ("b", 1, None, None)
    ]


async def test_a_step_that_began_before_records_nothing(ports: Ports) -> None:
    context = Context(ports, "orchestrator")
    started = ExecutionStarted(execution_id="x", generation=1)
    ports.incarnation = lambda: "first"
    begin_step(ports)
    await record([started], context)
    ports.incarnation = lambda: "second"
    with pytest.raises(JournalError, match="lost commits"):
        await record([started], context)
    begin_step(ports)
    await record([started], context)
