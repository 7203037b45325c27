"""Reading messages ahead, and what becomes of those that were not taken up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from weft.core.plan import compile_plan
from weft.core.state import ExecutionState
from weft.core.task import Wake
from weft.journal.contract import Submission
from weft.orchestrator.collect import collect, next_batch
from weft.orchestrator.service import Orchestrator
from weft.orchestrator.submit import submit
from weft.testing.walk import workflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.ports import Ports

PLAN = compile_plan(workflow("a"))


@pytest.fixture
def orchestrator(ports: Ports) -> Orchestrator:
    return Orchestrator(ports, name="orchestrator")


async def _submit(orchestrator: Orchestrator, ids: Sequence[str]) -> None:
    new = [Submission(id=one, plan=PLAN, document=b"{}", input=b"{}") for one in ids]
    await submit(new, orchestrator.ports)


async def test_a_message_behind_many_of_another_execution_is_in_the_next_batch(
    orchestrator: Orchestrator,
) -> None:
    wide = [Wake("wide", 1, PLAN.digest)] * 150
    await orchestrator.ports.transport.publish([*wide, Wake("small", 1, PLAN.digest)])
    batch = await next_batch(orchestrator, limit=64, wait_seconds=0)
    names = [delivery.message.execution_id for delivery in batch]
    assert names.count("small") == 1
    assert names.count("wide") == 16


async def test_what_comes_while_others_are_in_hand_is_seen_at_once(orchestrator: Orchestrator) -> None:
    transport = orchestrator.ports.transport
    await transport.publish([Wake("wide", 1, PLAN.digest)] * 200)
    await next_batch(orchestrator, limit=64, wait_seconds=0)
    await transport.publish([Wake("small", 1, PLAN.digest)])
    batch = await next_batch(orchestrator, limit=64, wait_seconds=0)
    assert "small" in {delivery.message.execution_id for delivery in batch}


async def test_no_more_is_read_than_a_few_batches(orchestrator: Orchestrator) -> None:
    await orchestrator.ports.transport.publish([Wake("wide", 1, PLAN.digest)] * 100)
    await next_batch(orchestrator, limit=10, wait_seconds=0)
    assert len(orchestrator.inbox) == 30
    (more, _) = await orchestrator.ports.transport.claim("peer", idle_seconds=0, limit=1000)
    assert len(more) == 40


async def test_who_leaves_takes_all_the_way_what_it_has_read(orchestrator: Orchestrator) -> None:
    names = [f"x{number}" for number in range(8)]
    await _submit(orchestrator, names)
    await collect(orchestrator, limit=2, wait_seconds=0)
    assert len(orchestrator.inbox) == 6
    await orchestrator.finish(within_seconds=30)
    assert len(orchestrator.inbox) == 0
    states = [await orchestrator.ports.journal.execution(name) for name in names]
    assert [row and row.state for row in states] == [ExecutionState.RUNNING] * 8
    (left, _) = await orchestrator.ports.transport.claim("peer", idle_seconds=0, limit=100)
    assert left == []
