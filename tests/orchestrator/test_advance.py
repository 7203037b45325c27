"""Events all the way: one that cannot be stored fails its own node, and never the batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.core.event import ExecutionStarted, NodeCompleted
from weft.core.state import NodeState
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.errors import UnstorableError
from weft.handlers.registry import Registry
from weft.journal.contract import Submission
from weft.orchestrator.advance import advance
from weft.orchestrator.context import Context
from weft.orchestrator.submit import submit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from weft.ports import Ports

DOCUMENT = {
    "name": "wide",
    "failure_policy": "continue",
    "nodes": [
        {"id": "root", "handler": "echo"},
        *({"id": f"n{i}", "handler": "echo", "dependencies": ["root"], "config": i} for i in range(50)),
        {"id": "behind", "handler": "echo", "dependencies": ["n7"]},
    ],
}


async def test_one_unstorable_result_fails_its_own_node_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncio.timeout(20), Engine(registry=Registry()) as engine:
        record = engine.ports.journal.record
        sizes = []

        async def refusing(events: Sequence[Any]) -> Any:
            sizes.append(len(events))
            if any(isinstance(event, NodeCompleted) and event.node_id == "n7" for event in events):
                raise UnstorableError("a trigger refuses it")
            return await record(events)

        monkeypatch.setattr(engine.ports.journal, "record", refusing)
        execution_id = await engine.submit(compile_plan(DOCUMENT), document=DOCUMENT)
        await engine.wait(execution_id)
        rows = await engine.ports.journal.nodes(execution_id)
    assert rows["n7"].state is NodeState.FAILED
    assert rows["n7"].error is not None
    assert "a trigger refuses it" in rows["n7"].error["message"]
    assert rows["behind"].state is NodeState.SKIPPED
    others = {row.state for name, row in rows.items() if name not in ("n7", "behind")}
    assert others == {NodeState.COMPLETED}
    # Halved until it was found, not tried one by one.
    assert len(sizes) < 30


async def test_of_the_commits_of_a_split_batch_the_last_says_that_the_execution_ended(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ports.journal.record

    async def refusing(events: Sequence[Any]) -> Any:
        if any(isinstance(event, NodeCompleted) and event.node_id == "z" for event in events):
            raise UnstorableError("a trigger refuses it")
        return await record(events)

    monkeypatch.setattr(ports.journal, "record", refusing)
    nodes = [{"id": "a", "handler": "echo"}, {"id": "z", "handler": "echo"}]
    plan = compile_plan({"nodes": [*nodes, {"id": "behind", "handler": "echo", "dependencies": ["a"]}]})
    await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    context = Context(ports, "orchestrator")
    await advance([ExecutionStarted(execution_id="x", generation=1)], context)
    sent = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert {delivery.task.node_id for delivery in sent} == {"a", "z"}
    # `a` is committed while the execution runs; `z`, as a failure, ends it.
    await advance([completion("a"), completion("z")], context)
    row = await ports.journal.execution("x")
    assert row is not None
    assert row.is_terminal
    assert await ports.store.epochs(["x"]) == [None]
    assert not await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)


def completion(node_id: str) -> NodeCompleted:
    return NodeCompleted(
        execution_id="x", generation=1, node_id=node_id, attempt=1, output=b"1", output_bytes=1
    )
