"""Nodes that run workflows: what a child runs, and who hears of its end and of its parent's end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import RFC_4122, UUID

import pytest

from weft.clock import new_id
from weft.core.event import CancelRequested, NodeCompleted
from weft.core.ledger.waits import child_id
from weft.core.payload import encode
from weft.core.state import ExecutionState, NodeState
from weft.definition.bounds import MIB
from weft.definition.plan import compile_plan
from weft.errors import NotAllowedError, StoreError
from weft.journal.contract import Submission
from weft.orchestrator import control
from weft.orchestrator.advance import advance, advance_free
from weft.orchestrator.children.mend import mend_children
from weft.orchestrator.context import Context
from weft.orchestrator.submit import submit
from weft.orchestrator.waits.answers import answer

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.core.rows import ExecutionRow
    from weft.ports import Ports

INNER = {"nodes": [{"id": "x", "handler": "echo", "config": "{{ input }}"}]}
BEHIND = {"id": "b", "handler": "echo", "dependencies": ["a"], "config": "{{ a | default(0) }}"}
CHILD = child_id("p", "a", 1)


def call(node_id: str = "a", **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "workflow": INNER, **fields}


async def begun(ports: Ports, *nodes: dict[str, Any], **fields: Any) -> Context:
    document = {"nodes": list(nodes), **fields}
    plan = compile_plan(document)
    await submit(
        [Submission(id="p", plan=plan, document=encode(document, max_bytes=MIB), input=b"{}")], ports
    )
    context = Context(ports, "one")
    await advance_free(["p"], context)
    return context


async def store_workflow(ports: Ports, document: dict[str, Any], name: str = "report") -> int:
    plan = compile_plan(document)
    journal: Any = ports.journal
    version, _ = await journal.put_version(name, plan, encode(document, max_bytes=MIB))
    return int(version.version)


async def completed(ports: Ports, execution_id: str, node_id: str, attempt: int = 1) -> NodeCompleted:
    row = await execution(ports, execution_id)
    return NodeCompleted(execution_id, row.generation, node_id, attempt, output=b"7", output_bytes=1)


async def execution(ports: Ports, execution_id: str) -> ExecutionRow:
    row = await ports.journal.execution(execution_id)
    assert row is not None
    return row


async def node(ports: Ports, node_id: str = "a", execution_id: str = "p") -> Any:
    return (await ports.journal.nodes(execution_id))[node_id]


async def tasks(ports: Ports) -> list[tuple[str, str]]:
    found = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    return [(delivery.task.execution_id, delivery.task.node_id) for delivery in found]


def test_the_id_of_a_child_is_a_uuid_of_version_7_beside_its_parents() -> None:
    parent = new_id()
    ids = [UUID(child_id(parent, "a", attempt, index)) for attempt in (1, 2) for index in (None, 0, 1)]
    assert len(set(ids)) == 6
    assert {(one.version, one.variant) for one in ids} == {(7, RFC_4122)}
    assert {str(one)[:13] for one in ids} == {parent[:13]}
    assert child_id(parent, "a", 1) == str(ids[0])


async def test_a_child_is_sent_at_once_and_its_end_frees_what_follows(ports: Ports) -> None:
    context = await begun(ports, call(input={"n": 1}), BEHIND)
    assert await tasks(ports) == [(CHILD, "x")]
    assert (await execution(ports, CHILD)).input == b'{"n":1}'
    await advance([await completed(ports, CHILD, "x")], context)
    assert await tasks(ports) == [("p", "b")]
    assert (await node(ports)).output == b'{"x":7}'
    assert await ports.journal.untold_children(older_than_seconds=0, limit=9) == []
    assert await ports.journal.untold_waits(older_than_seconds=0, limit=9) == []


async def test_the_end_of_a_child_is_told_by_a_sweep_where_who_recorded_it_died(
    ports: Ports, clock: VirtualClock
) -> None:
    context = await begun(ports, call(), BEHIND)
    await tasks(ports)
    await ports.journal.record([await completed(ports, CHILD, "x")])
    await mend_children(context)
    assert (await node(ports)).state is None
    clock.advance(2 * ports.sweep_seconds)
    await mend_children(context)
    assert (await node(ports)).state is NodeState.COMPLETED
    assert await tasks(ports) == [("p", "b")]
    assert await ports.journal.untold_children(older_than_seconds=0, limit=9) == []


async def test_a_large_output_of_a_child_is_a_blob(ports: Ports) -> None:
    ports.inline_bytes = 3
    context = await begun(ports, call())
    await advance([await completed(ports, CHILD, "x")], context)
    row = await node(ports)
    assert (row.state, row.output, row.output_bytes) == (NodeState.COMPLETED, None, 7)
    assert (await ports.journal.blobs([row.blob]))[row.blob] == b'{"x":7}'


async def test_a_stored_workflow_is_resolved_once_for_all_retries(ports: Ports) -> None:
    await store_workflow(ports, INNER)
    context = await begun(ports, call(workflow={"name": "report"}), failure_policy="continue")
    child = await execution(ports, CHILD)
    assert (child.workflow, child.version) == ("report", 1)
    await control.cancel("p", ports)
    await store_workflow(ports, {"nodes": [{"id": "other", "handler": "echo"}]})
    await control.retry("p", ports)
    await advance_free(["p"], context)
    again = await execution(ports, CHILD)
    assert (again.version, again.generation, again.state) == (1, 2, ExecutionState.RUNNING)
    # A new execution runs what is stored now.
    other = Context(ports, "two")
    plan = await ports.journal.plan((await execution(ports, "p")).digest)
    assert plan is not None
    await submit([Submission(id="q", plan=plan, document=b"", input=b"{}")], ports)
    await advance_free(["q"], other)
    assert (await execution(ports, child_id("q", "a", 1))).version == 2


@pytest.mark.parametrize(
    ("workflow", "value", "code"),
    [
        ({"name": "nothing"}, {}, "workflow_not_found"),
        ({"name": "report", "version": 7}, {}, "workflow_not_found"),
        ({"name": "report", "version": "production"}, {}, "workflow_not_found"),
        ({"name": "report"}, {"n": "text"}, "bad_input"),
        ({"name": "report"}, [1], "bad_input"),
    ],
)
async def test_what_cannot_be_called_fails_the_node_before_there_is_a_child(
    ports: Ports, workflow: dict[str, Any], value: Any, code: str
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    await store_workflow(ports, {**INNER, "input_schema": schema})
    await begun(ports, call(workflow=workflow, input=value))
    row = await node(ports)
    assert (row.state, row.error["code"]) == (NodeState.FAILED, code)
    assert await ports.journal.execution(CHILD) is None


async def test_calls_end_at_the_limit_of_the_depth(ports: Ports) -> None:
    ports.max_child_depth = 3
    await store_workflow(ports, {"nodes": [call(workflow={"name": "report"})]})
    context = await begun(ports, call(workflow={"name": "report"}))
    chain = ["p"]
    for _ in range(3):
        chain.append(child_id(chain[-1], "a", 1))
        await advance_free([chain[-1]], context)
    assert [(await execution(ports, each)).state for each in chain] == [ExecutionState.FAILED] * 4
    assert (await node(ports, execution_id=chain[-1])).error["code"] == "too_deep"
    error = (await node(ports)).error
    assert error["code"] == "child_failed"
    assert error["details"]["first"]["execution"] == chain[1]
    assert await ports.journal.execution(child_id(chain[-1], "a", 1)) is None


async def test_a_cancel_reaches_the_children_and_their_children(ports: Ports) -> None:
    nested = {"nodes": [call("inner"), {"id": "y", "handler": "echo"}]}
    context = await begun(ports, call(workflow=nested), call("c"))
    await advance_free([CHILD], context)
    below = [CHILD, child_id(CHILD, "inner", 1), child_id("p", "c", 1)]
    await control.cancel("p", ports)
    for each in below:
        assert (await execution(ports, each)).state is ExecutionState.CANCELLED
        assert {row.reason for row in (await ports.journal.nodes(each)).values()} == {"parent"}
    assert await ports.store.epochs(["p", *below]) == [None] * 4


async def test_a_cancel_that_could_not_tell_the_store_of_a_child_does_when_it_is_repeated(
    ports: Ports,
) -> None:
    await begun(ports, call())
    store = ports.store
    ports.store = ClosesOnly("p", store)
    with pytest.raises(StoreError):
        await control.cancel("p", ports)
    ports.store = store
    assert await store.epochs([CHILD]) == [1]
    await control.cancel("p", ports)
    assert await store.epochs([CHILD]) == [None]


async def test_a_cancel_reaches_what_a_crash_has_left_below_an_ended_child(ports: Ports) -> None:
    nested = {"nodes": [call("inner"), {"id": "y", "handler": "echo"}]}
    context = await begun(ports, call(workflow=nested))
    await advance_free([CHILD], context)
    below = child_id(CHILD, "inner", 1)
    # Whoever cancelled the child died behind the commit.
    await ports.journal.record([CancelRequested(execution_id=CHILD, generation=0)])
    assert (await execution(ports, below)).state is ExecutionState.RUNNING
    await control.cancel("p", ports)
    assert (await execution(ports, below)).state is ExecutionState.CANCELLED
    assert await ports.store.epochs(["p", CHILD, below]) == [None] * 3


async def test_what_a_crash_left_of_an_ended_parent_is_cancelled_by_a_sweep(ports: Ports) -> None:
    context = await begun(ports, call())
    await ports.journal.record([CancelRequested(execution_id="p", generation=0)])
    assert (await execution(ports, CHILD)).state is ExecutionState.RUNNING
    await mend_children(context)
    assert (await execution(ports, CHILD)).state is ExecutionState.CANCELLED


async def test_a_failure_that_stops_the_parent_ends_its_children(ports: Ports) -> None:
    context = await begun(ports, call(), call("c"))
    other = child_id("p", "c", 1)
    await control.cancel(CHILD, ports)
    assert (await execution(ports, "p")).state is ExecutionState.FAILED
    row = await node(ports)
    assert (row.state, row.error["code"]) == (NodeState.FAILED, "child_failed")
    assert row.error["details"]["first"]["error"]["code"] == "cancelled"
    assert (await execution(ports, other)).state is ExecutionState.CANCELLED
    await mend_children(context)
    assert await ports.journal.stray_children(limit=9) == []


async def test_an_answer_that_ends_a_child_is_told_to_its_parent(ports: Ports) -> None:
    context = await begun(ports, call(workflow={"nodes": [{"id": "w", "handler": "wait"}]}))
    await advance_free([CHILD], context)
    await answer(CHILD, "w", 7, ports)
    assert (await execution(ports, "p")).state is ExecutionState.COMPLETED
    assert await ports.journal.untold_children(older_than_seconds=0, limit=9) == []


async def test_a_child_is_paused_and_resumed_with_its_parent(ports: Ports) -> None:
    context = await begun(ports, call())
    await control.pause("p", ports)
    assert (await execution(ports, CHILD)).state is ExecutionState.PAUSED
    await control.resume("p", ports)
    assert (await execution(ports, CHILD)).state is ExecutionState.RUNNING
    # By itself: then the sweep leaves it so.
    await control.pause(CHILD, ports)
    await mend_children(context)
    assert (await execution(ports, CHILD)).state is ExecutionState.PAUSED


async def test_a_retry_goes_on_where_the_child_stopped(ports: Ports) -> None:
    inner = {"nodes": [{"id": "x", "handler": "echo"}, {"id": "y", "handler": "echo", "dependencies": ["x"]}]}
    context = await begun(ports, call(workflow=inner))
    await advance([await completed(ports, CHILD, "x")], context)
    await control.cancel("p", ports)
    await tasks(ports)
    with pytest.raises(NotAllowedError, match="retry its parent, p"):
        await control.retry(CHILD, ports)
    assert await control.root_of(CHILD, ports) == "p"
    await control.retry("p", ports)
    await advance_free(["p"], context)
    await advance_free([CHILD], context)
    assert await tasks(ports) == [(CHILD, "y")]
    await advance([await completed(ports, CHILD, "y", attempt=2)], context)
    assert (await execution(ports, "p")).state is ExecutionState.COMPLETED


async def test_a_retry_with_another_input_or_that_names_the_node_has_a_new_child(ports: Ports) -> None:
    first = {"id": "f", "handler": "echo"}
    context = await begun(ports, first, call(dependencies=["f"], input={"n": "{{ f }}"}))
    await advance([await completed(ports, "p", "f")], context)
    await control.cancel("p", ports)
    await control.retry("p", ports, nodes=("a",))
    await advance_free(["p"], context)
    assert (await execution(ports, CHILD)).state is ExecutionState.CANCELLED
    second = child_id("p", "a", 2)
    assert (await execution(ports, second)).state is ExecutionState.RUNNING
    await control.cancel("p", ports)
    await control.retry("p", ports, nodes=("f",))
    await advance_free(["p"], context)
    row = await node(ports, "f")
    done = NodeCompleted("p", 3, "f", row.attempt, output=b"8", output_bytes=1)
    await advance([done], context)
    assert (await execution(ports, second)).state is ExecutionState.CANCELLED
    assert (await execution(ports, (await node(ports)).called.child)).input == b'{"n":8}'


class ClosesOnly:
    """A store that closes one execution, and does not answer to the close of any other."""

    def __init__(self, execution_id: str, store: Any) -> None:
        self._id = execution_id
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def close(self, execution_id: str, **kwargs: Any) -> Any:
        if execution_id != self._id:
            raise StoreError("the store is away")
        return await self._store.close(execution_id, **kwargs)
