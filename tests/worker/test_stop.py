"""What a worker that stops hands back: the attempts that have not ended, and no others."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from weft.clock import RealClock
from weft.definition.plan import compile_plan
from weft.handlers.outcome import Completed
from weft.handlers.registry import Registry
from weft.journal.contract import Submission
from weft.journal.memory import MemoryJournal
from weft.limits.memory import MemoryLimits
from weft.orchestrator.submit import submit
from weft.ports import Ports
from weft.store.memory import MemoryStore
from weft.transport.inprocess import InProcessTransport
from weft.worker.run import Runner
from weft.worker.service import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.task import Result
    from weft.handlers.outcome import Outcome
    from weft.store.contract import Lease
    from weft.worker.call import HandlerCall

NODES = ("ends", "heeds")


class RecordingStore(MemoryStore):
    """Keeps, in their order, the nodes that were reported and those that were handed back."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.reported: list[str] = []
        self.handed_back: list[str] = []

    async def report(self, results: Sequence[Result]) -> None:
        await super().report(results)
        self.reported += [result.node_id for result in results]

    async def abandon(self, held: Sequence[Lease]) -> None:
        self.handed_back += [one.node_id for one in held]
        await super().abandon(held)


class StubbornCaller:
    """Calls that wait to be stopped: node ``ends`` then returns an output all the same, after a while."""

    def __init__(self, ends_after_seconds: float) -> None:
        self._ends_after_seconds = ends_after_seconds
        self.begun: set[str] = set()

    async def call(self, call: HandlerCall) -> Outcome:
        self.begun.add(call.node_id)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if call.node_id != "ends":
                raise
        await asyncio.sleep(self._ends_after_seconds)
        return Completed(b"1")

    def functions(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("ends_after_seconds", [0.0, 0.05])
async def test_an_attempt_that_ends_while_the_worker_stops_is_reported_and_not_handed_back(
    ends_after_seconds: float,
) -> None:
    """A report does not protect an attempt from being handed back: the next attempt would run besides."""
    ids = count(1)
    clock = RealClock()
    transport = InProcessTransport(now=clock.now)
    store = RecordingStore(
        now=clock.now, new_id=lambda: f"id-{next(ids)}", publish=transport.append, send=transport.put
    )
    ports = Ports(
        store=store,
        journal=MemoryJournal(now=clock.now, new_id=lambda: f"id-{next(ids)}"),
        transport=transport,
        limits=MemoryLimits({}, now=clock.now),
        clock=clock,
        draw=random.random,
        new_id=lambda: f"id-{next(ids)}",
    )
    registry = Registry()
    registry.add_function("here:function", lambda: None)
    caller = StubbornCaller(ends_after_seconds)
    runner = Runner(ports, registry, caller, worker="worker")
    worker = Worker(ports, runner, name="worker", concurrency=2, grace_seconds=0.2)
    node = {"handler": "python", "config": {"function": "here:function"}}
    plan = compile_plan({"nodes": [{"id": name, **node} for name in NODES]})
    await worker.start()
    await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    async with asyncio.timeout(10):
        while caller.begun != set(NODES):  # noqa: ASYNC110 - no event announces both
            await asyncio.sleep(0.01)
    await worker.stop()
    assert store.reported == ["ends"]
    assert store.handed_back == ["heeds"]
