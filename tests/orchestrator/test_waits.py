"""Nodes that wait: begun by a commit, ended by their time or by an answer, whoever dies between two steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import WaitDue
from weft.core.payload import decode
from weft.core.state import NodeState
from weft.definition.plan import compile_plan
from weft.errors import StoreError
from weft.journal.contract import Submission
from weft.orchestrator.advance import advance_free
from weft.orchestrator.context import Context
from weft.orchestrator.submit import submit
from weft.orchestrator.sweep import sweep
from weft.orchestrator.waits.answers import answer, tell_untold

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


class Away:
    """A store that nobody reaches."""

    async def apply(self, *args: Any) -> None:
        raise StoreError("the store is away")
