"""The memory of a worker in a fleet: of the large configs it is sent, it loads a few at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.payload import encode
from weft.core.state import ExecutionState
from weft.definition.plan import compile_plan
from weft.fleet import Fleet
from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.registry import Registry
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, submit
from weft.settings import Settings

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow

PATIENCE_SECONDS = 60.0
# More than travels in a message: it lies in PostgreSQL. Two of these have room at once.
LARGE, TWO = "x" * 300_000, 700_000
NODES = frozenset(f"n{number}" for number in range(6))


class _Gate:
    """A handler that holds its attempts until it is opened, and counts those that run at once."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.ran: list[str] = []
        self.most = 0
        self.opened = asyncio.Event()

    async def hold(self, config: Any, context: HandlerContext) -> int:
        self.running.add(context.node_id)
        self.most = max(self.most, len(self.running))
        await self.opened.wait()
        self.running.discard(context.node_id)
        self.ran.append(context.node_id)
        return len(config["text"])


async def _submit(fleet: Fleet) -> str:
    nodes = [{"id": name, "handler": "hold", "config": {"text": "{{ input.text }}"}} for name in NODES]
    document = {"name": "wide", "nodes": nodes}
    source = ResolvedDefinition(plan=compile_plan(document), document=encode(document, max_bytes=10**6))
    input_ = encode({"text": LARGE}, max_bytes=10**6)
    submission = make_submission(fleet.ports.new_id(), source, input_, SubmitOptions())
    (row,) = await submit([submission], fleet.ports)
    return row.id


async def _ended(fleet: Fleet, execution_id: str) -> ExecutionRow:
    while True:
        row = await fleet.ports.journal.execution(execution_id)
        assert row is not None
        if row.is_terminal:
            return row
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("process_bytes", "at_once"),
    [pytest.param(TWO, 2, id="two have room"), pytest.param(1, 1, id="one is larger than the bound")],
)
async def test_a_worker_runs_as_many_large_configs_as_have_room(
    redis_url: str, journal_url: str, process_bytes: int, at_once: int
) -> None:
    """F63: the others wait in the worker, unstarted, and none of them needs a second attempt."""
    gate, registry = _Gate(), Registry()
    registry.add(Handler("hold", HandlerKind.NATIVE, gate.hold))
    settings = Settings(redis_url=redis_url, database_url=journal_url, process_bytes=process_bytes)
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        Fleet(settings, registry=registry, roles={"orchestrator", "worker"}) as fleet,
    ):
        await fleet.started()
        worker = fleet.worker
        assert worker is not None
        execution_id = await _submit(fleet)
        while len(gate.running) + len(worker._deferred) < len(NODES):  # noqa: ASYNC110 - the worker is looked at
            await asyncio.sleep(0.01)
        assert len(gate.running) == at_once
        gate.opened.set()
        assert (await _ended(fleet, execution_id)).state is ExecutionState.COMPLETED
        rows = await fleet.ports.journal.nodes(execution_id)
    assert gate.most == at_once
    assert sorted(gate.ran) == sorted(NODES), "each ran once"
    assert {row.attempt for row in rows.values()} == {1}
