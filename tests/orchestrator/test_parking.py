"""Nodes that no worker runs: started by a commit, ended by the sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.attempt import AttemptRef
from weft.core.event import AttemptParked
from weft.core.state import NodeState
from weft.definition.plan import compile_plan
from weft.journal.contract import Submission
from weft.limits.contract import Rate
from weft.limits.memory import MemoryLimits
from weft.orchestrator.advance import advance, advance_free
from weft.orchestrator.context import Context
from weft.orchestrator.dispatch import dispatch
from weft.orchestrator.submit import submit
from weft.orchestrator.sweep import sweep

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.ports import Ports


async def begun(ports: Ports, *nodes: dict[str, Any], **fields: Any) -> Context:
    plan = compile_plan({"nodes": list(nodes), **fields})
    await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    return Context(ports, "one")


def nap(node_id: str, seconds: float = 60, **fields: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "sleep", "config": {"seconds": seconds}, **fields}


async def test_a_sleep_is_no_task_and_ends_by_the_sweep(ports: Ports, clock: VirtualClock) -> None:
    behind = {"id": "b", "handler": "echo", "dependencies": ["a"], "config": "{{ a.seconds }}"}
    context = await begun(ports, nap("a"), behind)
    await advance_free(["x"], context)
    assert await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0) == []
    next_at = await sweep(context)
    assert next_at == clock.now() + 60_000_000
    clock.advance(60)
    await sweep(context)
    (delivery,) = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    assert (delivery.task.node_id, delivery.task.config) == ("b", b"60")


async def test_a_peer_that_died_before_it_told_the_store_has_begun_the_time(
    ports: Ports, clock: VirtualClock
) -> None:
    context = await begun(ports, nap("a"))
    (applied,) = await ports.store.free(["x"])
    # It records the start, and dies.
    await ports.journal.record(await dispatch(applied.free, Context(ports, "dead")))
    started = (await ports.journal.nodes("x"))["a"]
    clock.advance(30)
    await advance_free(["x"], context)
    assert (await ports.journal.nodes("x"))["a"] == started
    clock.advance(30)
    await sweep(context)
    assert (await ports.journal.nodes("x"))["a"].state is NodeState.COMPLETED


async def test_two_that_sweep_at_once_agree(ports: Ports, clock: VirtualClock) -> None:
    context = await begun(ports, nap("a"))
    await advance_free(["x"], context)
    clock.advance(60)
    listed = (await ports.store.due(idle_seconds=1)).parked
    assert listed == [AttemptRef("x", 1, "a", 1)]
    clock.advance(2)
    await sweep(context)
    await sweep(Context(ports, "other"))
    history = await ports.journal.events("x")
    assert [event.type for event in history].count("node.completed") == 1


async def test_a_large_config_lies_in_a_blob_while_it_sleeps(ports: Ports, clock: VirtualClock) -> None:
    ports.inline_bytes = 100
    context = await begun(ports, nap("a", text="x") | {"config": {"seconds": 1, "text": "x" * 200}})
    await advance_free(["x"], context)
    row = (await ports.journal.nodes("x"))["a"]
    assert row.parked is not None
    assert row.parked.output is None
    clock.advance(1)
    await sweep(context)
    done = (await ports.journal.nodes("x"))["a"]
    assert done.blob == row.blob
    assert done.blob is not None
    assert b"x" * 200 in (await ports.journal.blobs([done.blob]))[done.blob]


async def test_a_start_of_a_limited_tag_takes_a_token(ports: Ports, clock: VirtualClock) -> None:
    ports.limits = MemoryLimits({"tag": Rate(1.0, 1)}, now=clock.now)
    context = await begun(ports, *[nap(name, resource_tag="tag") for name in "abc"])
    await advance_free(["x"], context)
    for expected in (1, 2, 3):
        await sweep(context)
        rows = await ports.journal.nodes("x")
        assert sum(row.parked is not None for row in rows.values()) == expected
        clock.advance(1)


async def test_an_output_of_the_cache_takes_no_time(ports: Ports, clock: VirtualClock) -> None:
    cached = {"cache": {"ttl_seconds": 600}, "config": {"seconds": 1}}
    context = await begun(ports, nap("a") | cached, nap("b", dependencies=["a"]) | cached)
    await advance_free(["x"], context)
    clock.advance(1)
    await sweep(context)
    rows = await ports.journal.nodes("x")
    assert (rows["a"].cached, rows["b"].cached) == (False, True)
    assert rows["b"].state is NodeState.COMPLETED


async def test_nothing_is_parked_by_who_listed_it_before_the_pause(ports: Ports) -> None:
    from weft.orchestrator.control import pause

    context = await begun(ports, nap("a"))
    (applied,) = await ports.store.free(["x"])
    events = await dispatch(applied.free, context)
    assert [type(event) for event in events] == [AttemptParked]
    await pause("x", ports)
    await advance(events, context)
    assert "a" not in await ports.journal.nodes("x")
