"""Tasks that go with the rows that make their nodes ready: the same as would have followed, and no others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.orchestrator import advance
from weft.orchestrator.dispatch import dispatch
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.task import Task


def node(name: str, *parents: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "handler": "echo", "dependencies": list(parents), **fields}


CHAIN = (
    node("a", config={"n": "{{ input.n }}"}),
    node("b", "a", config="{{ nodes.a.output.n }}"),
    node("c", "b", config=["{{ nodes.b.output }}", "{{ execution.id }}"]),
    node("d", "c"),
)


async def run(
    monkeypatch: pytest.MonkeyPatch,
    nodes: Sequence[dict[str, Any]],
    *,
    ahead: bool,
    **fields: Any,
) -> tuple[list[Task], set[str]]:
    """Run a workflow; give the tasks that were queued, and the nodes that were dispatched as free ones."""
    document = {"nodes": list(nodes), **fields}
    queued: list[Task] = []
    dispatched: set[str] = set()

    async def watched(free: Any, orchestrator: Any) -> Any:
        dispatched.update(each.node_id for each in free)
        return await dispatch(free, orchestrator)

    monkeypatch.setattr(advance, "dispatch", watched)
    async with asyncio.timeout(20), Engine(registry=Registry()) as engine:
        ports = engine.ports
        ports.dispatches_speculatively = ahead
        queue = ports.store.queue

        async def told(tasks: Sequence[Task]) -> Sequence[Answer]:
            answers = await queue(tasks)
            queued.extend(task for task, answer in zip(tasks, answers, strict=True) if answer is Answer.YES)
            return answers

        monkeypatch.setattr(ports.store, "queue", told)
        execution_id = await engine.submit(compile_plan(document), document=document, input={"n": 7})
        assert (await engine.wait(execution_id)).state is ExecutionState.COMPLETED
    monkeypatch.undo()
    made = [
        replace(
            task,
            execution_id="",
            queued_at=0,
            config=task.config.replace(execution_id.encode(), b"EXECUTION"),
        )
        for task in queued
    ]
    return sorted(made, key=lambda task: task.node_id), dispatched


async def test_what_is_sent_ahead_is_what_would_have_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead, dispatched = await run(monkeypatch, CHAIN, ahead=True)
    assert dispatched == set()
    behind, dispatched = await run(monkeypatch, CHAIN, ahead=False)
    assert dispatched == {"b", "c", "d"}  # the root goes with the submit
    assert ahead == behind
    assert [task.config for task in ahead[:2]] == [b'{"n":7}', b"7"]


@pytest.mark.parametrize(
    "last",
    [
        node("last", "a", "c", config=["{{ nodes.a.output.n }}", "{{ nodes.c.output }}"]),
        node("last", "c", config="{{ nodes.a.output }}"),
        node("last", "c", condition="nodes.a.output.n == 7"),
        node("last", "c", "b", "a", trigger_rule="all_done"),
    ],
    ids=["two parents", "reads another", "asks for another", "another rule"],
)
async def test_a_join_goes_with_the_last_row_it_sees(
    monkeypatch: pytest.MonkeyPatch, last: dict[str, Any]
) -> None:
    ahead, dispatched = await run(monkeypatch, [*CHAIN, last], ahead=True)
    assert dispatched == set()
    behind, _ = await run(monkeypatch, [*CHAIN, last], ahead=False)
    assert ahead == behind


async def test_a_join_whose_parents_come_at_once_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [*[node(name) for name in "abcdef"], node("last", *"abcdef")]
    tasks, dispatched = await run(monkeypatch, nodes, ahead=True)
    assert dispatched == set()
    assert [task.node_id for task in tasks] == [*"abcdef", "last"]


@pytest.mark.parametrize(
    "nodes",
    [
        [*CHAIN, node("last", "c", delivery="at_most_once")],
        [*CHAIN, node("last", "c", cache={"ttl_seconds": 60})],
        [*CHAIN, node("last", "a", "c", trigger_rule="one_success")],
    ],
    ids=["at most once", "cached", "an early rule"],
)
async def test_what_takes_more_than_the_rows_at_hand_is_left_until_it_is_free(
    monkeypatch: pytest.MonkeyPatch, nodes: Sequence[dict[str, Any]]
) -> None:
    tasks, dispatched = await run(monkeypatch, nodes, ahead=True)
    assert dispatched == {"last"}
    assert len(tasks) == len(nodes)


async def test_a_condition_on_the_parent_is_decided_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [*CHAIN[:1], node("b", "a", condition="nodes.a.output.n == 7"), node("c", "a", condition="false")]
    tasks, dispatched = await run(monkeypatch, nodes, ahead=True)
    assert [task.node_id for task in tasks] == ["a", "b"]
    # What is skipped is an event, and has its way through the journal.
    assert dispatched == {"c"}


async def test_where_places_are_scarce_nothing_goes_ahead_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, dispatched = await run(monkeypatch, CHAIN, ahead=True, max_concurrency=3)
    assert dispatched == {"b", "c", "d"}  # the root goes with the submit
