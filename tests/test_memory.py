"""The memory of an engine: large configs are in flight a few at a time, and lie in the journal meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.state import ExecutionState
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.registry import Registry
from weft.settings import Settings
from weft.store.memory import MemoryStore
from weft.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    from pathlib import Path

    from weft.core.task import Task
    from weft.handlers.contract import HandlerContext

LARGE = "x" * 300_000
# Room for two of these at once.
TWO = 700_000


class _Gate:
    """A handler that holds its attempts until it is opened, and counts those that run at once."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.registry.add(Handler("held", HandlerKind.USER, self.held))
        self.running: set[str] = set()
        self.most = 0
        self.seen: dict[str, int] = {}
        self.started = asyncio.Event()
        self.opened = asyncio.Event()

    async def held(self, config: Any, context: HandlerContext) -> int:
        self.running.add(context.node_id)
        self.most = max(self.most, len(self.running))
        self.started.set()
        await self.opened.wait()
        self.running.discard(context.node_id)
        self.seen[context.node_id] = len(config["text"])
        return 1

    async def full(self, count: int) -> None:
        """Return when so many attempts run."""
        while len(self.running) < count:
            self.started.clear()
            await self.started.wait()


def _wide(count: int, handler: str = "held", **fields: Any) -> dict[str, Any]:
    nodes = [
        {"id": f"n{i}", "handler": handler, "config": {"text": "{{ input.text }}"}} for i in range(count)
    ]
    return {"name": "wide", "nodes": nodes, **fields}


def _engine(gate: _Gate | None, data: Path | None, **settings: Any) -> Engine:
    registry = Registry() if gate is None else gate.registry
    return Engine(registry=registry, settings=Settings(worker_grace_seconds=0.0, **settings), data=data)


def _blobs(folder: Path) -> int:
    with sqlite3.connect(folder / "weft.db") as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM blobs")
        return int(count)


async def _why(engine: Engine, execution_id: str, node_id: str) -> dict[str, Any]:
    """Return the reason why a node waits, once the orchestrator has come to it."""
    while True:
        reason: dict[str, Any]
        (reason,) = (await engine.explain(execution_id, node_id))["reasons"]
        if reason["code"] != "starting":
            return reason
        await engine.ports.clock.sleep(0)


@pytest.mark.parametrize("on_disk", [True, False])
async def test_large_configs_are_in_flight_a_few_at_a_time(tmp_path: Path, on_disk: bool) -> None:
    gate, document = _Gate(), _wide(6)
    data = tmp_path if on_disk else None
    async with asyncio.timeout(60), _engine(gate, data, execution_bytes=TWO) as engine:
        execution_id = await engine.submit(compile_plan(document), document=document, input={"text": LARGE})
        await gate.full(2)
        waiting = [name for name in (f"n{i}" for i in range(6)) if name not in gate.running]
        for name in waiting:
            reason = await _why(engine, execution_id, name)
            assert reason["code"] == "waiting_for_memory"
            assert "of the 0.7 MiB that WEFT_EXECUTION_BYTES allows" in reason["message"]
        gate.opened.set()
        assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
    assert (gate.most, set(gate.seen.values()), len(gate.seen)) == (2, {300_000}, 6)
    if on_disk:
        # A config goes with its attempt: in a day it would be gigabytes.
        assert _blobs(tmp_path) == 0


async def test_an_execution_goes_on_as_soon_as_another_has_given_its_memory_back(tmp_path: Path) -> None:
    gate, document = _Gate(), _wide(2)
    # A sweep would find it, too, in an hour.
    settings = {"process_bytes": TWO, "orchestrator_sweep_interval_seconds": 3600.0}
    async with asyncio.timeout(60), _engine(gate, tmp_path, **settings) as engine:
        plan = compile_plan(document)
        first = await engine.submit(plan, document=document, input={"text": LARGE})
        await gate.full(2)
        second = await engine.submit(plan, document=document, input={"text": LARGE})
        reason = await _why(engine, second, "n0")
        assert reason["code"] == "waiting_for_memory"
        assert "large configs of all executions in flight" in reason["message"]
        gate.opened.set()
        for execution_id in (first, second):
            assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED


async def test_one_config_larger_than_the_budget_runs_alone(tmp_path: Path) -> None:
    gate, document = _Gate(), _wide(3)
    gate.opened.set()
    async with asyncio.timeout(60), _engine(gate, tmp_path, execution_bytes=1, process_bytes=1) as engine:
        execution_id = await engine.submit(compile_plan(document), document=document, input={"text": LARGE})
        assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
    assert gate.most == 1


async def test_a_queued_task_holds_no_large_config_and_the_store_no_large_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Task] = []

    def put(self: InProcessTransport, tasks: list[Task]) -> None:
        sent.extend(tasks)
        original(self, tasks)

    original = InProcessTransport.put
    monkeypatch.setattr(InProcessTransport, "put", put)
    gate, document = _Gate(), _wide(2)
    async with asyncio.timeout(60), _engine(gate, tmp_path) as engine:
        execution_id = await engine.submit(compile_plan(document), document=document, input={"text": LARGE})
        await gate.full(2)
        assert [(task.config, task.config_bytes > 300_000) for task in sent] == [(b"", True)] * 2
        assert isinstance(engine.ports.store, MemoryStore)
        assert engine.ports.store._executions[execution_id].row.input == b""
        shown = await engine.describe(execution_id)
        assert shown["input"] == {"text": LARGE}
        gate.opened.set()
        await engine.wait(execution_id)


async def test_what_is_passed_on_as_it_is_lies_in_the_journal_once(tmp_path: Path) -> None:
    document = _wide(3, "echo", output="{{ n0.text | length }}")
    async with asyncio.timeout(60), _engine(None, tmp_path) as engine:
        execution_id = await engine.submit(compile_plan(document), document=document, input={"text": LARGE})
        row = await engine.wait(execution_id)
        assert row.output == b"300000"
        node = await engine.describe_node(execution_id, "n1")
        assert (node["output"], node["output_bytes"]) == ({"text": LARGE}, 300_011)
    assert _blobs(tmp_path) == 3


async def test_a_restart_takes_up_large_executions_within_the_same_bounds(tmp_path: Path) -> None:
    gate, document = _Gate(), _wide(4)
    async with asyncio.timeout(60), _engine(gate, tmp_path, execution_bytes=TWO) as engine:
        plan = compile_plan(document)
        ids = [await engine.submit(plan, document=document, input={"text": LARGE}) for _ in range(3)]
        await gate.full(2)
    again = _Gate()
    again.opened.set()
    settings = {"execution_bytes": TWO, "process_bytes": TWO}
    async with asyncio.timeout(60), _engine(again, tmp_path, **settings) as engine:
        for execution_id in ids:
            assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
    assert again.most <= 2


@pytest.mark.parametrize("on_disk", [True, False])
@pytest.mark.parametrize("size", [30_000, 300_000])
async def test_what_is_over_at_once_takes_no_memory_of_the_worker(
    tmp_path: Path, on_disk: bool, size: int
) -> None:
    document = _wide(12, "echo", output="{{ n11.text | length }}")
    settings = {"execution_bytes": 2 * size, "process_bytes": 3 * size}
    async with asyncio.timeout(60), _engine(None, tmp_path if on_disk else None, **settings) as engine:
        execution_id = await engine.submit(
            compile_plan(document), document=document, input={"text": "x" * size}
        )
        assert (await engine.wait(execution_id)).output == str(size).encode()
        assert engine.worker._bytes == 0


async def test_settled_nodes_hold_no_large_outputs_in_memory(tmp_path: Path) -> None:
    gate = _Gate()
    document = _wide(3, "echo")
    document["nodes"] += [
        {"id": "gate", "handler": "held", "dependencies": ["n0"], "config": {"text": ""}},
        {
            "id": "reader",
            "handler": "echo",
            "dependencies": ["gate", "n0", "n1", "n2"],
            "config": "{{ (n0.text ~ n1.text ~ n2.text) | length }}",
        },
    ]
    document["output"] = "{{ [n0.text | length, reader.output] }}"
    async with asyncio.timeout(60), _engine(gate, tmp_path) as engine:
        execution_id = await engine.submit(
            compile_plan(document), document=document, input={"text": "y" * 50_000}
        )
        await gate.full(1)
        assert isinstance(engine.ports.store, MemoryStore)
        outcomes = engine.ports.store._executions[execution_id].outcomes
        assert [row.output for row in outcomes.values()] == [None] * len(outcomes)
    # In the next life, too.
    again = _Gate()
    again.opened.set()
    async with asyncio.timeout(60), _engine(again, tmp_path) as engine:
        assert (await engine.wait(execution_id)).output == b"[50000,150000]"
        node = await engine.describe_node(execution_id, "n2")
        assert (node["output"], node["output_bytes"]) == ({"text": "y" * 50_000}, 50_011)
