"""Nodes that run workflows: children in lists and nodes, and control that reaches them, on each journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.api.play import Play, check_problem
from tests.walks.stage import PATIENCE_SECONDS, echo, node

if TYPE_CHECKING:
    from weft.core.payload import Json

WAITS = {"nodes": [{"id": "x", "handler": "wait", "config": {}}], "output": "{{ x.value }}"}


def call(node_id: str, *dependencies: str, **fields: Json) -> dict[str, Json]:
    return {"id": node_id, "workflow": WAITS, "dependencies": list(dependencies), **fields}


async def waiting(play: Play, *nodes: Json, **fields: Json) -> tuple[str, str]:
    """Start an execution; return its id, and that of the child of its node ``a`` once the child waits."""
    await play.store(*nodes, **fields)
    execution_id = await play.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (items := (await children(play, execution_id))["items"]):
            pass
        child: str = items[0]["id"]
        while (await play.get(f"/v1/executions/{child}/nodes/x")).json["state"] != "WAITING":
            pass
    return execution_id, child


async def children(play: Play, execution_id: str, node_id: str = "a", query: str = "") -> dict[str, Any]:
    answer = await play.get(f"/v1/executions/{execution_id}/nodes/{node_id}/children{query}")
    assert answer.status == 200, answer.json
    return dict(answer.json)


async def until(play: Play, execution_id: str, state: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (shown := (await play.get(f"/v1/executions/{execution_id}")).json)["state"] != state:
            pass
    return dict(shown)


async def test_a_child_is_shown_with_its_parent_and_left_out_of_lists(play: Play) -> None:
    execution_id, child = await waiting(play, call("a"), echo("b", "a"))
    listed = (await play.get("/v1/executions")).json["items"]
    assert [row["id"] for row in listed] == [execution_id]
    assert listed[0]["parent"] is None
    found = (await play.get(f"/v1/executions?parent={execution_id}")).json["items"]
    assert [row["id"] for row in found] == [child]
    parent = {"execution": execution_id, "node": "a", "index": None, "generation": 1}
    assert found[0]["parent"] == parent
    shown = await children(play, execution_id)
    assert [row["id"] for row in shown["items"]] == [child]
    assert (shown["next_cursor"], shown["counts"]) == (None, {"RUNNING": 1})
    assert (await children(play, execution_id, query="?state=FAILED"))["items"] == []
    assert await children(play, execution_id, "b") == {"items": [], "next_cursor": None, "counts": {}}
    nodes = {row["id"]: row for row in (await play.get(f"/v1/executions/{execution_id}")).json["nodes"]}
    assert nodes["a"]["state"] == "WAITING"
    assert nodes["a"]["children"] == {"counts": {"RUNNING": 1}}
    assert nodes["b"]["children"] is None
    explained = (await play.get(f"/v1/executions/{execution_id}/nodes/a/explain")).json
    (reason,) = explained["reasons"]
    assert reason["code"] == "waiting_for_children"
    assert reason["message"].startswith("0 of 1 children have ended (1 RUNNING)")
    answer = await play.get(f"/v1/executions/{execution_id}/nodes/z/children")
    check_problem(answer, 404, "not_found")


async def test_the_output_of_the_child_is_that_of_the_node(play: Play) -> None:
    execution_id, child = await waiting(play, call("a"), echo("b", "a", config="{{ a }}"))
    await play.post(f"/v1/executions/{child}/nodes/x/answer", json={"value": {"n": 7}})
    shown = await until(play, execution_id, "COMPLETED")
    assert shown["output"] == {"b": {"n": 7}}
    assert {row["id"]: row["children"] for row in shown["nodes"]}["a"] == {"counts": {"COMPLETED": 1}}
    events = (await play.get(f"/v1/executions/{execution_id}/events")).json["items"]
    assert [event["type"] for event in events if event.get("node") == "a"] == [
        "node.waiting",
        "node.completed",
    ]


async def test_cancel_and_pause_reach_the_child_before_they_are_answered(play: Play) -> None:
    execution_id, child = await waiting(play, call("a"))
    await play.post(f"/v1/executions/{execution_id}/pause")
    assert (await play.get(f"/v1/executions/{child}")).json["state"] == "PAUSED"
    await play.post(f"/v1/executions/{execution_id}/resume")
    assert (await play.get(f"/v1/executions/{child}")).json["state"] == "RUNNING"
    await play.post(f"/v1/executions/{execution_id}/cancel")
    shown = (await play.get(f"/v1/executions/{child}")).json
    assert (shown["state"], shown["nodes"][0]["reason"]) == ("CANCELLED", "parent")


async def test_a_cancelled_child_fails_its_node_and_the_retry_of_the_parent_opens_it(play: Play) -> None:
    execution_id, child = await waiting(play, call("a"))
    await play.post(f"/v1/executions/{child}/cancel")
    shown = await until(play, execution_id, "FAILED")
    error = shown["nodes"][0]["error"]
    assert (error["code"], error["details"]["first"]["execution"]) == ("child_failed", child)
    answer = await play.post(f"/v1/executions/{child}/retry")
    check_problem(answer, 409, "not_allowed")
    assert execution_id in answer.json["detail"]
    check_problem(
        await play.post(f"/v1/executions/{child}/retry", json={"dry_run": True}), 409, "not_allowed"
    )
    await play.post(f"/v1/executions/{execution_id}/retry")
    shown = await until(play, child, "RUNNING")
    assert (shown["generation"], shown["parent"]["generation"]) == (2, 2)


async def test_the_letter_of_a_child_is_retried_by_the_execution_that_nobody_calls(play: Play) -> None:
    inner = {"nodes": [node("x", handler="wait", config={"expires_seconds": 0})]}
    await play.store(call("a", workflow=inner), call("c"))
    execution_id = await play.start()
    await until(play, execution_id, "FAILED")
    letters = (await play.get("/v1/dead-letters")).json["items"]
    assert [letter["node"] for letter in letters] == ["x"]
    answer = await play.post(f"/v1/dead-letters/{letters[0]['id']}/retry")
    assert (answer.status, answer.json["id"], answer.json["generation"]) == (202, execution_id, 2)


async def test_a_workflow_that_is_not_stored_is_a_warning(play: Play) -> None:
    stored = {"name": "later", "version": "production"}
    inner = {"nodes": [call("i", workflow={"name": "deep"})]}
    document = {"name": "caller", "nodes": [call("a", workflow=stored), call("b", workflow=inner)]}
    found = (await play.post("/v1/workflows/validate", json=document)).json
    assert found["valid"]
    assert [(one["pointer"], one["message"]) for one in found["warnings"]] == [
        ("/nodes/0/workflow", "there is no version 'production' of workflow 'later'"),
        ("/nodes/1/workflow/nodes/0/workflow", "there is no workflow 'deep'"),
    ]
    await play.store(echo("x"), name="deep")
    found = (await play.post("/v1/workflows/validate", json=document)).json
    assert [one["pointer"] for one in found["warnings"]] == ["/nodes/0/workflow"]
