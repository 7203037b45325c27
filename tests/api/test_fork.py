"""Forks over REST: a new execution that keeps what has settled in an old one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import EXECUTION, Play, check_problem
from tests.walks.stage import echo, node

from weft.cli.trace import read_journal
from weft.orchestrator import submit

if TYPE_CHECKING:
    from tests.api.conftest import Answer

CHAIN = (
    echo("fetch", config="{{ input.url | default('none') }}"),
    echo("fixed", config=1),
    echo("parse", "fetch", config="parsed {{ fetch.output }}"),
    echo("report", "parse", "fixed", config="{{ parse.output }}, {{ fixed.output }}"),
)


async def fork(play: Play, execution_id: str, **body: Any) -> Answer:
    return await play.post(f"/v1/executions/{execution_id}/fork", json=body)


async def completed(play: Play, *nodes: Any, **body: Any) -> str:
    await play.store(*(nodes or CHAIN))
    execution_id = await play.start(**body)
    assert (await play.ended(execution_id))["state"] == "COMPLETED"
    return execution_id


async def check_trace(play: Play, execution_id: str) -> None:
    """Hold the history of an execution to the invariants, as ``weft doctor --execution`` does."""
    trace = await read_journal(play.server.engine.ports.catalog, execution_id)
    assert trace.check() == []


def by_id(execution: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in execution["nodes"]}


async def test_what_is_not_in_or_behind_from_is_kept(play: Play) -> None:
    old = await completed(play, labels={"team": "blue"}, priority="high")
    answer = await fork(play, old, **{"from": ["parse"]})
    assert (answer.status, answer.json.keys()) == (202, EXECUTION)
    new = answer.json["id"]
    assert answer.headers["Location"] == f"/v1/executions/{new}"
    assert (answer.json["forked_from"], answer.json["state"]) == (old, "PENDING")
    ended = await play.ended(new)
    assert (ended["state"], ended["output"]) == ("COMPLETED", {"report": "parsed none, 1"})
    assert (ended["labels"], ended["priority"], ended["version"]) == ({"team": "blue"}, "high", 1)
    nodes = by_id(ended)
    assert {name: (one["reused"], one["attempt"]) for name, one in nodes.items()} == {
        "fetch": (True, 0),
        "fixed": (True, 0),
        "parse": (False, 1),
        "report": (False, 1),
    }
    kept = nodes["fetch"]
    assert (kept["state"], kept["output"], kept["worker"], kept["cached"]) == (
        "COMPLETED",
        "none",
        None,
        False,
    )
    assert kept["queued_at"] == kept["started_at"] == kept["finished_at"] == ended["created_at"]
    assert nodes["parse"]["queued_at"] >= kept["finished_at"]
    events = (await play.get(f"/v1/executions/{new}/events")).json["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    await check_trace(play, new)
    old_one = await play.show(old)
    assert (old_one["forked_from"], [one["reused"] for one in old_one["nodes"]]) == (None, [False] * 4)


async def test_without_from_everything_runs(play: Play) -> None:
    old = await completed(play)
    answer = await fork(play, old, input={"url": "here"})
    ended = await play.ended(answer.json["id"])
    assert ended["output"] == {"report": "parsed here, 1"}
    assert not any(one["reused"] for one in ended["nodes"])


async def test_a_failed_execution_is_forked_and_what_failed_runs_again(play: Play) -> None:
    await play.store(
        echo("kept"),
        echo("never", condition="false"),
        node("a", "kept", max_retries=0),
        echo("tidy", "a", trigger_rule="all_done"),
        echo("quiet", "a", trigger_rule="all_done", condition="false"),
        echo("again", "kept"),
        failure_policy="continue",
    )
    old = await play.start()
    (await play.stage.call("a")).fail()
    assert (await play.ended(old))["state"] == "FAILED"
    new = (await fork(play, old, **{"from": ["again"]})).json["id"]
    (await play.stage.call("a")).complete("well")
    ended = await play.ended(new)
    assert ended["state"] == "COMPLETED"
    nodes = by_id(ended)
    assert {name for name, one in nodes.items() if one["reused"]} == {"kept", "never", "tidy", "quiet"}
    assert (nodes["never"]["state"], nodes["never"]["reason"]) == ("SKIPPED", "condition")
    # It had completed behind the failure, and is not behind `again`: kept, though `a` runs again.
    assert (nodes["tidy"]["attempt"], nodes["tidy"]["output"]) == (
        0,
        by_id(await play.show(old))["tidy"]["output"],
    )
    assert nodes["tidy"]["finished_at"] == ended["created_at"] <= nodes["a"]["queued_at"]
    await check_trace(play, new)


async def test_a_large_output_is_kept_and_outlives_its_execution(play: Play) -> None:
    old = await completed(
        play,
        echo("large", config="{{ input.text }}"),
        echo("size", "large", config="{{ large.output | length }}"),
        input={"text": "x" * 400_000},
    )
    new = (await fork(play, old, **{"from": ["size"]})).json["id"]
    assert (await play.ended(new))["output"] == {"size": 400_000}
    shown = (await play.get(f"/v1/executions/{new}/nodes/large")).json
    assert (shown["output_bytes"], len(shown["output"]), shown["attempts"]) == (400_002, 400_000, [])


async def test_outputs_that_are_too_large_together_are_not_kept(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await completed(play, input={"url": "x" * 100})
    monkeypatch.setattr(submit, "_MAX_KEPT_BYTES", 200)
    answer = await fork(play, old, **{"from": ["report"]})
    check_problem(answer, 422, "invalid_request", "/from")
    assert "the limit is 200" in answer.json["problems"][0]["message"]
    new = (await fork(play, old, **{"from": ["parse"]})).json["id"]
    assert (await play.ended(new))["state"] == "COMPLETED"


async def test_another_input_names_each_kept_node_that_reads_it(play: Play) -> None:
    old = await completed(play)
    answer = await fork(play, old, **{"from": ["report"]}, input={"url": "there"})
    check_problem(answer, 422, "invalid_request", "/from", "/from")
    messages = [problem["message"] for problem in answer.json["problems"]]
    assert messages[0].startswith("fetch would be kept, but it reads the input")
    assert messages[1].startswith("parse would be kept, but it runs after 'fetch'")
    allowed = await fork(play, old, **{"from": ["fetch"]}, input={"url": "there"})
    ended = await play.ended(allowed.json["id"])
    assert (ended["output"], ended["input"]) == ({"report": "parsed there, 1"}, {"url": "there"})
    assert by_id(ended)["fixed"]["reused"]
    # The same input is no other input.
    assert (await fork(play, old, **{"from": ["report"]}, input={})).status == 202


async def test_another_version_names_each_kept_node_that_differs(play: Play) -> None:
    old = await completed(play)
    await play.store(*CHAIN[:1], echo("fixed", config=2), *CHAIN[2:])
    answer = await fork(play, old, **{"from": ["report"]}, version=2)
    check_problem(answer, 422, "invalid_request", "/from")
    assert "fixed would be kept, but it differs" in answer.json["problems"][0]["message"]
    new = (await fork(play, old, **{"from": ["report", "fixed"]}, version="latest")).json["id"]
    ended = await play.ended(new)
    assert (ended["version"], ended["output"]) == (2, {"report": "parsed none, 2"})


async def test_a_kept_node_is_named_behind_one_that_runs_again_and_differs(play: Play) -> None:
    tidy, again = echo("tidy", "a", trigger_rule="all_done"), echo("again")
    await play.store(node("a", max_retries=0), tidy, again, failure_policy="continue")
    old = await play.start()
    (await play.stage.call("a")).fail()
    await play.ended(old)
    await play.store(node("a", max_retries=1), tidy, again, failure_policy="continue")
    answer = await fork(play, old, **{"from": ["again"]}, version=2)
    check_problem(answer, 422, "invalid_request", "/from")
    assert answer.json["problems"][0]["message"].startswith("tidy would be kept, but it runs after 'a'")


async def test_an_unknown_field_is_told_with_the_fields_as_they_are_written(play: Play) -> None:
    answer = await fork(play, "any", nodes=["a"])
    check_problem(answer, 422, "invalid_request", "/nodes")
    assert answer.json["problems"][0]["message"] == "unknown field 'nodes'; known are from, input, version"
    answer = await fork(play, "any", from_=["a"])
    assert answer.json["problems"][0]["message"] == "unknown field 'from_'; did you mean 'from'?"


async def test_only_what_has_ended_is_forked(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    await play.stage.call("a")
    answer = await fork(play, execution_id)
    check_problem(answer, 409, "not_allowed")
    assert answer.json["state"] == "RUNNING"
    check_problem(await fork(play, "nobody"), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"from": ["nobody"]}, "/from/0"),
        ({"from": "parse"}, "/from"),
        ({"nodes": ["parse"]}, "/nodes"),
        ({"input": 7}, "/input"),
    ],
)
async def test_a_bad_request_starts_nothing(play: Play, body: dict[str, Any], pointer: str) -> None:
    old = await completed(play)
    answer = await fork(play, old, **body)
    assert answer.status == 422
    assert answer.json["problems"][0]["pointer"] == pointer
    assert len((await play.get("/v1/executions")).json["items"]) == 1


async def test_the_same_key_forks_once(play: Play) -> None:
    old = await completed(play)
    headers = {"Idempotency-Key": "once"}
    path, body = f"/v1/executions/{old}/fork", {"from": ["report"]}
    first = await play.post(path, json=body, headers=headers)
    again = await play.post(path, json=body, headers=headers)
    assert (first.status, again.status, again.json["id"]) == (202, 200, first.json["id"])
    check_problem(await play.post(path, json={}, headers=headers), 409, "idempotency_conflict")


async def test_a_definition_that_is_not_stored_is_forked(play: Play) -> None:
    body = {"definition": {"nodes": list(CHAIN)}}
    old = (await play.post("/v1/executions", json=body)).json["id"]
    await play.ended(old)
    new = (await fork(play, old, **{"from": ["report"]})).json["id"]
    assert (await play.ended(new))["output"] == {"report": "parsed none, 1"}
    check_problem(await fork(play, old, version=1), 422, "invalid_request", "/version")


async def test_a_fork_is_retried_and_forked_again(play: Play) -> None:
    await play.store(echo("kept"), node("a", "kept", max_retries=0))
    old = await play.start()
    (await play.stage.call("a")).fail()
    await play.ended(old)
    new = (await fork(play, old, **{"from": ["a"]})).json["id"]
    (await play.stage.call("a")).fail()
    assert (await play.ended(new))["state"] == "FAILED"
    assert (await play.control(new, "retry")).status == 202
    (await play.stage.call("a")).complete("well")
    ended = await play.ended(new)
    assert (ended["state"], by_id(ended)["kept"]["reused"], by_id(ended)["a"]["attempt"]) == (
        "COMPLETED",
        True,
        2,
    )
    third = (await fork(play, new, **{"from": ["a"]})).json["id"]
    (await play.stage.call("a")).complete("again")
    assert (await play.ended(third))["output"] == {"a": "again"}
