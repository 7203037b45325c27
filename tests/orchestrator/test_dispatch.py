"""Free nodes that two orchestrators decide at once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.decide import FreeNode, decide
from weft.core.event import NodeCached, NodeCompleted
from weft.core.payload import encode
from weft.core.rows import NodeRow
from weft.core.state import NodeState
from weft.core.task import Wake
from weft.definition.plan import compile_plan
from weft.journal.contract import Submission
from weft.orchestrator import dispatch as dispatching
from weft.orchestrator.advance import advance
from weft.orchestrator.context import Context
from weft.orchestrator.dispatch import dispatch
from weft.orchestrator.submit import submit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.decide import Decision
    from weft.ports import Ports

PLAN = compile_plan({"nodes": [{"id": "a", "handler": "echo", "cache": {"ttl_seconds": 60}}]})


async def test_a_task_carries_the_callers_place_in_a_trace(ports: Ports) -> None:
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    plan = compile_plan({"nodes": [{"id": "a", "handler": "echo"}, {"id": "b", "handler": "echo"}]})
    new = [Submission(id=name, plan=plan, document=b"{}", input=b"{}") for name in "xy"]
    await submit([replace(new[0], traceparent=traceparent, workflow="w", version=1), new[1]], ports)
    tasks = [
        delivery.task
        for delivery in await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    ]
    carried = {(task.execution_id, task.node_id): task.traceparent for task in tasks}
    assert carried == {
        ("x", "a"): traceparent,
        ("x", "b"): traceparent,
        ("y", "a"): None,
        ("y", "b"): None,
    }
    # The rest is for spans, and nobody exports any.
    assert [(task.workflow, task.version) for task in tasks] == [(None, None)] * 4


async def test_the_cache_does_not_answer_for_an_attempt_that_a_peer_has_sent(ports: Ports) -> None:
    await submit([Submission(id=name, plan=PLAN, document=b"{}", input=b"{}") for name in "xy"], ports)
    first, second = Context(ports, "first"), Context(ports, "second")
    free = [node for applied in await ports.store.free(["x", "y"]) for node in applied.free]
    # The first orchestrator finds nothing in the cache.
    assert await dispatch(free, first) == []
    sent = {
        delivery.task.execution_id: delivery.task
        for delivery in await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    }
    done = NodeCompleted(
        execution_id="x",
        generation=1,
        node_id="a",
        attempt=1,
        output=b'"of x"',
        output_bytes=6,
        cache_key=sent["x"].cache_key,
    )
    await advance([done], first)
    # The second one listed the free nodes before that, and looks into the cache behind it.
    late = [node for node in free if node.execution.id == "y"]
    events = await dispatch(late, second)
    assert [type(event) for event in events] == [NodeCached]
    await advance(events, second)
    row = (await ports.journal.nodes("y")).get("a")
    assert row is not None
    assert row.state is None
    await advance([replace(done, execution_id="y", output=b'"of y"')], first)
    row = (await ports.journal.nodes("y"))["a"]
    assert (row.state, row.output, row.cached) == (NodeState.COMPLETED, b'"of y"', False)


async def test_a_batch_takes_no_more_outputs_from_the_cache_than_it_may_hold(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "_MOST_CACHED_BYTES", 20)
    nodes = [
        {"id": name, "handler": "echo", "config": name, "cache": {"ttl_seconds": 60}} for name in "abcde"
    ]
    plan = compile_plan({"nodes": nodes})
    await submit([Submission(id=name, plan=plan, document=b"{}", input=b"{}") for name in "xy"], ports)
    context = Context(ports, "first")
    (listed,) = await ports.store.free(["x"])
    assert await dispatch(listed.free, context) == []
    for delivery in await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0):
        task = delivery.task
        # One of them is larger than all that a batch may hold.
        output = b'"%s"' % (b"x" * (40 if task.node_id == "c" else 6))
        done = NodeCompleted(
            execution_id="x",
            generation=1,
            node_id=task.node_id,
            attempt=1,
            output=output,
            output_bytes=len(output),
            cache_key=task.cache_key,
        )
        await advance([done], context)
    taken: list[int] = []
    cached = ports.journal.cached

    async def noting(keys: Sequence[str]) -> Mapping[str, bytes]:
        taken.append(len(keys))
        return await cached(keys)

    monkeypatch.setattr(ports.journal, "cached", noting)
    (others,) = await ports.store.free(["y"])
    events = await dispatch(others.free, context)
    assert [event.node_id for event in events if isinstance(event, NodeCached)] == ["a", "b"]
    await advance(events, context)
    # The large one alone, and then the others.
    assert taken == [2, 1, 2]
    rows = await ports.journal.nodes("y")
    assert all(row.cached for row in rows.values())
    assert len(rows) == 5


async def test_what_the_journal_knows_better_is_told_to_the_store(ports: Ports) -> None:
    behind = {"id": "b", "handler": "echo", "dependencies": ["a"]}
    plan = compile_plan({"nodes": [{"id": "a", "handler": "echo", "cache": {"ttl_seconds": 60}}, behind]})
    await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    (applied,) = await ports.store.free(["x"])
    # Whoever committed this has died before it told the store, and the output is no longer in the cache.
    hit = NodeCached(execution_id="x", generation=1, node_id="a", attempt=1, output=b"1")
    await ports.journal.record([hit])
    assert await dispatch(applied.free, Context(ports, "next")) == []
    sent = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert [delivery.task.node_id for delivery in sent] == ["b"]


@pytest.mark.parametrize("is_large", [True, False])
async def test_a_node_that_reads_much_is_decided_beside_the_loop(
    ports: Ports, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    threads = []

    def noting(node: FreeNode, **given: Any) -> Decision:
        threads.append(threading.current_thread() is threading.main_thread())
        return decide(node, **given)

    monkeypatch.setattr(dispatching, "decide", noting)
    plan = compile_plan({"nodes": [{"id": "a", "handler": "echo", "config": "{{ input.x | length }}"}]})
    size = 2**20 if is_large else 1000
    text = encode({"x": "x" * size}, max_bytes=2 * size)
    await submit([Submission(id="x", plan=plan, document=b"{}", input=text)], ports)
    if is_large:
        free = [node for applied in await ports.store.free(["x"]) for node in applied.free]
        assert await dispatch(free, Context(ports, "first")) == []
    (delivery,) = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert delivery.task.config == str(size).encode()
    assert threads[-1] is not is_large


async def test_a_node_that_reads_many_outputs_is_decided_beside_the_loop(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is too small to lie apart from its row."""
    on_loop: list[bool] = []

    def noting(node: FreeNode, **given: Any) -> Decision:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return decide(node, **given)

    monkeypatch.setattr(dispatching, "decide", noting)
    names = [f"n{number}" for number in range(6)]
    nodes = [{"id": name, "handler": "echo"} for name in names]
    reader = {"id": "all", "handler": "echo", "dependencies": names, "config": "{{ n0 ~ n5 }}"}
    plan = compile_plan({"nodes": [*nodes, reader]})
    (row,) = await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    seen = {
        name: NodeRow(node_id=name, state=NodeState.COMPLETED, output=b'"%s"' % (b"x" * 200_000))
        for name in names
    }
    free = FreeNode(row, plan, plan.nodes["all"], tuple(seen.values()), seen)
    await dispatch([free], Context(ports, "first"))
    assert on_loop == [True] * 6 + [False]


async def test_a_long_evaluation_is_decided_beside_the_loop_and_then_others_have_a_turn(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop: list[tuple[str, bool]] = []

    def noting(node: FreeNode, **given: Any) -> Decision:
        decision = decide(node, **given)
        on_loop.append((node.node_id, threading.current_thread() is threading.main_thread()))
        return decision

    monkeypatch.setattr(dispatching, "decide", noting)
    nodes = [{"id": name, "handler": "echo", "config": "{{ input.x | sort | length }}"} for name in "abc"]
    plan = compile_plan({"nodes": nodes})
    numbers = encode({"x": list(range(20_000))}, max_bytes=10**6)
    await submit([Submission(id="x", plan=plan, document=b"{}", input=numbers)], ports)
    free = [node for applied in await ports.store.free(["x"]) for node in applied.free]
    await ports.transport.read("first", limit=9, wait_seconds=0)
    context = Context(ports, "first")
    assert await dispatch(free, context) == []
    # The others of the execution are free still, and a wake says so.
    assert on_loop == [("a", False)]
    (wake,) = await ports.transport.read("first", limit=9, wait_seconds=0)
    assert wake.message == Wake("x", 1, plan.digest)
    for _ in range(2):
        free = [node for applied in await ports.store.free(["x"]) for node in applied.free]
        await dispatch(free, context)
    sent = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert [delivery.task.config for delivery in sent] == [b"20000"] * 3


async def test_short_evaluations_are_decided_on_the_loop_until_they_are_long_together(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatching, "STEPS_ON_LOOP", 250)
    monkeypatch.setattr("weft.orchestrator.context.STEPS_ON_LOOP", 0)
    nodes = [{"id": name, "handler": "echo", "config": "{{ input.x | unique }}"} for name in "abcd"]
    plan = compile_plan({"nodes": nodes})
    numbers = encode({"x": list(range(100))}, max_bytes=10**6)
    await submit([Submission(id="x", plan=plan, document=b"{}", input=numbers)], ports)
    free = [node for applied in await ports.store.free(["x"]) for node in applied.free]
    await dispatch(free, Context(ports, "first"))
    sent = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert 0 < len(sent) < 4
