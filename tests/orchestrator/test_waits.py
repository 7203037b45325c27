"""Nodes that wait: begun by a commit, ended by their time or by an answer, whoever dies between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import HotStateEvicted, WaitDue
from weft.core.payload import decode
from weft.core.state import ExecutionState, NodeState
from weft.definition.plan import compile_plan
from weft.errors import StoreError
from weft.journal.contract import Submission
from weft.orchestrator.advance import advance_free
from weft.orchestrator.context import Context
from weft.orchestrator.control import pause, resume
from weft.orchestrator.recover import recover
from weft.orchestrator.submit import submit
from weft.orchestrator.sweep import sweep
from weft.orchestrator.waits.answers import answer, signal, tell_untold
from weft.orchestrator.waits.evict import evict

if TYPE_CHECKING:
    from weft.clock import VirtualClock
    from weft.ports import Ports

BEHIND = {"id": "b", "handler": "echo", "dependencies": ["a"], "config": "{{ a.value | default(0) }}"}


async def begun(ports: Ports, *nodes: dict[str, Any], **fields: Any) -> Context:
    plan = compile_plan({"nodes": list(nodes), **fields})
    await submit([Submission(id="x", plan=plan, document=b"{}", input=b"{}")], ports)
    context = Context(ports, "one")
    await advance_free(["x"], context)
    return context


def wait(node_id: str, **config: Any) -> dict[str, Any]:
    return {"id": node_id, "handler": "wait", "config": config}


async def tasks(ports: Ports) -> list[tuple[str, bytes]]:
    found = await ports.transport.fetch("worker", queues=None, limit=9, wait_seconds=0)
    return [(delivery.task.node_id, delivery.task.config) for delivery in found]


async def free_nodes(ports: Ports) -> list[str]:
    (applied,) = await ports.store.free(["x"])
    return [node.node_id for node in applied.free]


async def test_a_time_that_comes_frees_what_follows_and_leaves_nothing_to_tell(
    ports: Ports, clock: VirtualClock
) -> None:
    context = await begun(ports, wait("a", seconds=60), BEHIND)
    assert await sweep(context) == clock.now() + 60_000_000
    clock.advance(60)
    await sweep(context)
    assert await tasks(ports) == [("b", b"null")]
    assert await ports.journal.untold_waits(older_than_seconds=0, limit=9) == []


async def test_a_time_that_came_is_told_to_the_store_by_a_peer_of_who_died(
    ports: Ports, clock: VirtualClock
) -> None:
    await begun(ports, wait("a", seconds=60), BEHIND)
    clock.advance(60)
    # A sweep records that the time has come, and dies.
    await ports.journal.record([WaitDue("x", 1, "a", 1)])
    assert await free_nodes(ports) == []
    await tell_untold(ports)
    assert await free_nodes(ports) == []
    clock.advance(2 * ports.sweep_seconds)
    await tell_untold(ports)
    assert await free_nodes(ports) == ["b"]
    assert await ports.journal.untold_waits(older_than_seconds=0, limit=9) == []


async def test_an_expiry_that_fails_its_node_is_told_with_what_it_skips(
    ports: Ports, clock: VirtualClock
) -> None:
    other = {"id": "c", "handler": "echo"}
    context = await begun(
        ports, wait("a", expires_seconds=60), BEHIND, wait("d"), other, failure_policy="continue"
    )
    clock.advance(60)
    await ports.journal.record([WaitDue("x", 1, "a", 1)])
    clock.advance(2 * ports.sweep_seconds)
    await tell_untold(ports)
    await advance_free(["x"], context)
    rows = await ports.journal.nodes("x")
    assert (rows["a"].state, rows["b"].state) == (NodeState.FAILED, NodeState.SKIPPED)


async def test_an_answer_whose_caller_died_is_told_to_the_store_by_a_sweep(
    ports: Ports, clock: VirtualClock
) -> None:
    await begun(ports, wait("a"), BEHIND)
    store = ports.store
    ports.store = Away()  # type: ignore[assignment]
    await answer("x", "a", 7, ports, by="ann")
    ports.store = store
    assert await free_nodes(ports) == []
    clock.advance(2 * ports.sweep_seconds)
    await tell_untold(ports)
    assert await free_nodes(ports) == ["b"]
    row = (await ports.journal.nodes("x"))["a"]
    assert row.output is not None
    assert decode(row.output)["value"] == 7


async def evicted(ports: Ports, clock: VirtualClock, *nodes: dict[str, Any], **fields: Any) -> Context:
    """Return the context of an execution that has waited until it left the hot state."""
    context = await begun(ports, *nodes, **fields)
    clock.advance(1)
    assert await evict(ports, idle_seconds=1) == 1
    assert await ports.store.inspect("x") is None
    return context


async def test_what_follows_on_the_wait_of_an_evicted_execution_starts_at_once(
    ports: Ports, clock: VirtualClock
) -> None:
    context = await evicted(ports, clock, wait("a"), BEHIND, wait("c", seconds=60))
    # Recovery leaves it where it is.
    assert await recover(ports, grace_seconds=0) == 0
    assert await ports.store.inspect("x") is None
    await answer("x", "a", 7, ports, by="ann")
    await advance_free(["x"], context)
    assert await tasks(ports) == [("b", b"7")]
    # The other wait goes on, and ends at its time.
    clock.advance(60)
    await sweep(context)
    row = (await ports.journal.nodes("x"))["c"]
    assert row.state is NodeState.COMPLETED


async def test_a_wait_of_an_evicted_execution_ends_at_its_time(ports: Ports, clock: VirtualClock) -> None:
    context = await evicted(ports, clock, wait("a", seconds=60), BEHIND)
    clock.advance(59)
    await sweep(context)
    await advance_free(["x"], context)
    assert await tasks(ports) == [("b", b"null")]


async def test_the_deadline_of_an_evicted_execution_ends_it(ports: Ports, clock: VirtualClock) -> None:
    context = await evicted(ports, clock, wait("a"), BEHIND, timeout_seconds=60)
    clock.advance(59)
    await sweep(context)
    row = await ports.journal.execution("x")
    assert row is not None
    assert (row.state, row.error and row.error["code"]) == (ExecutionState.FAILED, "deadline_exceeded")


async def test_what_a_crash_has_left_of_an_evicted_execution_is_dropped(
    ports: Ports, clock: VirtualClock
) -> None:
    await begun(ports, wait("a"), BEHIND)
    row = await ports.journal.execution("x")
    assert row is not None
    # Whoever evicts it dies behind the commit.
    await ports.journal.record(
        [HotStateEvicted(execution_id="x", generation=1, epoch=row.epoch, seq=row.seq)]
    )
    assert await ports.store.inspect("x") is not None
    await recover(ports, grace_seconds=0)
    assert await ports.store.inspect("x") is None


async def test_a_signal_that_is_kept_and_a_pause_leave_an_evicted_execution_right(
    ports: Ports, clock: VirtualClock
) -> None:
    context = await evicted(ports, clock, wait("a"), BEHIND, wait("c"))
    assert await signal("x", "none", 1, ports) is None
    await pause("x", ports)
    await answer("x", "a", 7, ports)
    await advance_free(["x"], context)
    assert await tasks(ports) == []
    await resume("x", ports)
    await advance_free(["x"], context)
    assert len(await tasks(ports)) == 1


class Away:
    """A store that nobody reaches."""

    async def apply(self, *args: Any) -> None:
        raise StoreError("the store is away")
