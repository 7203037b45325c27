"""Dead letters over REST."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.api.play import EXECUTION, Play, check_problem
from tests.api.sse import watch
from tests.walks.stage import echo, fails, node

from weft.handlers.contract import BadConfig
from weft.views.describe import SHOWN_OUTPUT_BYTES

LETTER = {
    *("id", "execution", "workflow", "node", "generation", "attempt", "handler", "queue", "config", "error"),
    *("attempts", "state", "created_at"),
}


async def letters_of(play: Play, query: str = "") -> list[dict[str, Any]]:
    answer = await play.get(f"/v1/dead-letters{query}")
    assert answer.status == 200, answer.json
    return list(answer.json["items"])


async def test_a_node_that_failed_for_good_leaves_one_with_all_that_is_known_of_it(play: Play) -> None:
    await play.store(node("a", queue="slow", config={"n": "{{ input.n }}"}, max_retries=1))
    execution_id = await play.start(input={"n": 7})
    for text in ("once", "twice"):
        (await play.stage.call("a")).fail(RuntimeError(text))
    await play.ended(execution_id)
    (letter,) = await letters_of(play)
    assert letter.keys() == LETTER
    assert (letter["execution"], letter["workflow"], letter["node"]) == (execution_id, "flow", "a")
    assert (letter["generation"], letter["attempt"], letter["state"]) == (1, 2, "open")
    assert (letter["handler"], letter["queue"], letter["config"]) == ("held", "slow", {"n": 7})
    assert (letter["error"]["code"], letter["error"]["message"]) == ("handler_error", "RuntimeError: twice")
    assert [(each["number"], each["outcome"]) for each in letter["attempts"]] == [
        (1, "failed"),
        (2, "failed"),
    ]
    assert (await play.get(f"/v1/dead-letters/{letter['id']}")).json == letter


async def test_a_large_config_is_shown_where_one_letter_is_asked_for(play: Play) -> None:
    await play.store(node("a", config={"text": "{{ input.text }}"}, max_retries=0))
    text = "x" * SHOWN_OUTPUT_BYTES
    execution_id = await play.start(input={"text": text})
    (await play.stage.call("a")).fail(RuntimeError("no"))
    await play.ended(execution_id)
    (letter,) = await letters_of(play)
    assert letter["config"] is None
    assert (await play.get(f"/v1/dead-letters/{letter['id']}")).json["config"] == {"text": text}
    assert (await play.get(f"/v1/executions/{execution_id}/nodes/a")).json["config"] == {"text": text}


async def test_a_list_is_filtered_and_comes_in_pages_newest_first(play: Play) -> None:
    await play.store(fails("a"), name="one")
    await play.store(echo("b", config="{{ input.x }}", max_retries=0), name="two")
    for name in ("one", "two", "one"):
        await play.ended(await play.start(name))

    async def found(query: str = "") -> list[str]:
        return [letter["workflow"] for letter in await letters_of(play, query)]

    assert await found() == ["one", "two", "one"]
    assert await found("?workflow=two") == ["two"]
    assert await found("?code=handler_error") == ["one", "one"]
    assert await found("?code=template_error&state=open") == ["two"]
    assert await found("?state=retried") == []
    assert await found("?node=b") == ["two"]
    assert await found("?q=TW") == ["two"]
    assert await found("?q=one&node=b") == []
    first = (await play.get("/v1/dead-letters?limit=2")).json
    second = (await play.get(f"/v1/dead-letters?limit=2&cursor={first['next_cursor']}")).json
    assert [len(first["items"]), len(second["items"])] == [2, 1]
    assert [*first["items"], *second["items"]] == await letters_of(play)
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "pointer"),
    [("state=closed", "/state"), ("limit=0", "/limit"), ("cursor=x", "/cursor"), ("q=", "/q"), ("x=1", "/x")],
)
async def test_a_bad_parameter_is_refused(play: Play, query: str, pointer: str) -> None:
    check_problem(await play.get(f"/v1/dead-letters?{query}"), 422, "invalid_request", pointer)


async def test_a_retry_is_that_of_its_execution_and_marks_all_its_letters(play: Play) -> None:
    await play.store(node("a", max_retries=0), node("b", max_retries=0), failure_policy="continue")
    execution_id = await play.start()
    for call in await play.stage.calls_of(["a", "b"]):
        call.fail()
    await play.ended(execution_id)
    letters = await letters_of(play)
    assert len(letters) == 2
    answer = await play.post(f"/v1/dead-letters/{letters[0]['id']}/retry")
    assert answer.status == 202
    assert answer.json.keys() == EXECUTION
    assert (answer.json["id"], answer.json["state"], answer.json["generation"]) == (
        execution_id,
        "RUNNING",
        2,
    )
    assert [letter["state"] for letter in await letters_of(play)] == ["retried", "retried"]
    for call in await play.stage.calls_of(["a", "b"]):
        call.complete()
    assert (await play.ended(execution_id))["state"] == "COMPLETED"
    check_problem(await play.post(f"/v1/dead-letters/{letters[0]['id']}/retry"), 409, "not_allowed")


async def test_a_retry_is_refused_until_its_execution_is_terminal(play: Play) -> None:
    await play.store(fails("a"), node("b"), failure_policy="continue")
    execution_id = await play.start()
    call = await play.stage.call("b")

    async def is_there() -> bool:
        return bool(await letters_of(play))

    await play.stage.until(is_there)
    (letter,) = await letters_of(play)
    answer = await play.post(f"/v1/dead-letters/{letter['id']}/retry")
    check_problem(answer, 409, "not_allowed")
    assert answer.json["state"] == "RUNNING"
    call.complete()
    await play.ended(execution_id)
    assert (await play.post(f"/v1/dead-letters/{letter['id']}/retry")).status == 202


async def test_a_retry_with_a_key_is_done_once(play: Play) -> None:
    await play.store(node("a", max_retries=0))
    execution_id = await play.start()
    (await play.stage.call("a")).fail()
    await play.ended(execution_id)
    (letter,) = await letters_of(play)
    path, headers = f"/v1/dead-letters/{letter['id']}/retry", {"Idempotency-Key": "again"}
    answers = await asyncio.gather(*[play.post(path, headers=headers) for _ in range(5)])
    assert sorted(answer.status for answer in answers) == [200, 200, 200, 200, 202]
    assert {answer.json["id"] for answer in answers} == {execution_id}
    assert {answer.json["generation"] for answer in answers} == {2}


async def test_a_handled_failure_is_handled(play: Play) -> None:
    await play.store(fails("a"), echo("handler", "a", rule="one_failed"))
    assert (await play.ended(await play.start()))["state"] == "COMPLETED"
    (letter,) = await letters_of(play, "?state=handled")
    assert letter["node"] == "a"


async def test_one_that_is_dropped_stays_and_says_so(play: Play) -> None:
    await play.store(fails("a"))
    await play.ended(await play.start())
    (letter,) = await letters_of(play)
    for _ in range(2):
        answer = await play.call("DELETE", f"/v1/dead-letters/{letter['id']}")
        assert (answer.status, answer.body) == (204, b"")
    assert await letters_of(play, "?state=open") == []
    assert await letters_of(play) == [{**letter, "state": "dropped"}]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/retry"), ("DELETE", "")])
async def test_one_that_does_not_exist_is_not_found(play: Play, method: str, path: str) -> None:
    check_problem(await play.call(method, f"/v1/dead-letters/nobody{path}"), 404, "not_found")


async def test_an_error_has_an_object_of_details_wherever_it_is_shown(play: Play) -> None:
    """Not every error has details to tell: then they are empty, not missing."""
    await play.store(
        echo("a", config="{{ input.x }}"),
        echo(
            "handles",
            dependencies=["a"],
            trigger_rule="one_failed",
            condition="nodes.a.error.details.status | default(0) == 0 and not nodes.a.error.details",
            config="{{ nodes.a.error.details }}",
        ),
        node("fails", dependencies=["handles"]),
        timeout_seconds=60,
    )
    answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": [{}]})
    path = f"/v1/batches/{answer.json['id']}/results"
    execution_id = (await play.get(path)).json["items"][0]["execution"]
    (await play.stage.call("fails")).fail(BadConfig("no"))
    execution = await play.ended(execution_id)
    nodes = {each["id"]: each for each in execution["nodes"]}
    one_node = (await play.get(f"/v1/executions/{execution_id}/nodes/fails")).json
    listed = (await play.get(f"/v1/executions/{execution_id}/nodes?state=FAILED")).json["items"]
    (letter, _) = await letters_of(play)
    history = (await play.get(f"/v1/executions/{execution_id}/events")).json["items"]
    (result,) = (await play.get(path)).json["items"]
    async with watch(play.server, f"/v1/executions/{execution_id}/events") as stream:
        told = [event.data for event in await stream.rest()]
    assert nodes["handles"]["output"] == {}
    assert execution["error"]["details"] == {"code": "bad_config"}
    assert result["error"] == execution["error"]
    for shown in (nodes["a"], one_node, one_node["attempts"][0], *listed, letter, letter["attempts"][0]):
        assert shown["error"].keys() == {"code", "message", "retryable", "details"}
        # A handler raised the one in Python; the other is of a template, and has nothing to tell.
        raised = shown["error"]["code"] == "bad_config"
        assert shown["error"]["details"].keys() == ({"traceback"} if raised else set())
    for events in (history, told):
        errors = {event.get("node"): event["error"] for event in events if "error" in event}
        assert errors.keys() == {"a", "fails", None}
        assert [errors[each]["details"].keys() for each in ("a", "fails")] == [set(), {"traceback"}]
