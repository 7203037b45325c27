"""Batches over REST: all inputs or none, counted as one, in the order of the inputs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.api.play import Play, check_problem, execution_counts
from tests.walks.stage import PATIENCE_SECONDS, echo, fails, node

from weft.core.state import ExecutionState

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.walks.stage import Stage

BATCH = {"id", "workflow", "version", "state", "total", "counts", "retried", "created_at", "finished_at"}


async def started(play: Play, inputs: list[Any], **fields: Any) -> dict[str, Any]:
    answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": inputs, **fields})
    assert answer.status == 202, answer.json
    return dict(answer.json)


async def ended(play: Play, batch_id: str) -> dict[str, Any]:
    """Look at a batch until all its executions are terminal."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            shown = dict((await play.get(f"/v1/batches/{batch_id}")).json)
            if shown["state"] == "COMPLETED":
                return shown


async def results(play: Play, batch_id: str, *, limit: int = 50) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = (await play.get(f"/v1/batches/{batch_id}/results?limit={limit}{cursor}")).json
        assert len(page["items"]) <= limit
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


async def test_every_input_becomes_an_execution_and_results_come_in_their_order(play: Play) -> None:
    await play.store(echo("a", config="{{ input.n }}"), output="{{ a.output }}")
    inputs = [{"n": n} for n in range(7)]
    answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": inputs})
    shown = answer.json
    assert (answer.status, shown.keys()) == (202, BATCH)
    assert UUID(shown["id"]).version == 7
    assert answer.headers["Location"] == f"/v1/batches/{shown['id']}"
    assert (shown["workflow"], shown["version"], shown["total"]) == ("flow", 1, 7)
    assert shown["counts"].keys() == set(ExecutionState)
    assert sum(shown["counts"].values()) == 7

    done = await ended(play, shown["id"])
    assert done["counts"] == execution_counts(COMPLETED=7)
    assert done["created_at"] <= done["finished_at"]
    for limit in (3, 50):
        found = await results(play, shown["id"], limit=limit)
        assert [list(each) for each in found] == [["index", "execution", "state", "output", "error"]] * 7
        assert [(each["index"], each["output"]) for each in found] == [(n, n) for n in range(7)]
        assert {(each["state"], each["error"]) for each in found} == {("COMPLETED", None)}


async def test_its_executions_carry_its_id_labels_priority_and_version(play: Play) -> None:
    await play.store(echo("a"))
    await play.store(echo("a", config=2))
    batch = await started(play, [{}, {}], version=1, labels={"team": "blue"}, priority="low")
    await started(play, [{}])
    listed = (await play.get(f"/v1/executions?batch={batch['id']}")).json["items"]
    assert len(listed) == 2
    for each in listed:
        assert (each["batch"], each["version"], each["workflow"]) == (batch["id"], 1, "flow")
        assert (each["labels"], each["priority"]) == ({"team": "blue"}, "low")
    assert {each["id"] for each in listed} == {each["execution"] for each in await results(play, batch["id"])}


async def test_a_batch_runs_until_its_last_execution_is_terminal(play: Play) -> None:
    await play.store(node("a", config="{{ input.n }}"), echo("b", "a"))
    batch = await started(play, [{"n": 0}, {"n": 1}])
    one, two = await play.stage.calls_of(["a", "a"])
    one.fail()
    await play.until((await results(play, batch["id"]))[one.config]["execution"], "FAILED")
    shown = (await play.get(f"/v1/batches/{batch['id']}")).json
    assert (shown["state"], shown["finished_at"]) == ("RUNNING", None)
    assert shown["counts"] == execution_counts(RUNNING=1, FAILED=1)
    two.complete()
    done = await ended(play, batch["id"])
    assert done["counts"] == execution_counts(COMPLETED=1, FAILED=1)
    failed, completed = sorted(
        await results(play, batch["id"]), key=lambda each: str(each["state"]), reverse=True
    )
    assert (failed["output"], failed["error"]["node"]) == (None, "a")
    assert completed["output"] == {"b": {}}


async def test_one_bad_input_is_no_batch_and_every_problem_is_listed(play: Play) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    await play.store(echo("a"), input_schema=schema)
    inputs: list[Any] = [{"n": 1}, {"n": "2"}, {"n": 3}, {}, None]
    answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": inputs})
    check_problem(answer, 422, "invalid_input", "/inputs/1/n", "/inputs/3", "/inputs/4")
    assert (await play.get("/v1/executions")).json["items"] == []


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"workflow": "flow", "inputs": []}, "/inputs"),
        ({"workflow": "flow", "inputs": {}}, "/inputs"),
        ({"workflow": "flow"}, ""),
        ({"inputs": [{}]}, ""),
        ({"workflow": "flow", "inputs": [{}], "priority": "urgent"}, "/priority"),
        ({"workflow": "flow", "inputs": [{}], "labels": {"a": 1}}, "/labels/a"),
        ({"workflow": "flow", "inputs": [{}], "input": {}}, "/input"),
    ],
)
async def test_a_bad_field_is_refused(play: Play, body: object, pointer: str) -> None:
    await play.store(echo("a"))
    check_problem(await play.post("/v1/batches", json=body), 422, "invalid_request", pointer)


async def test_more_inputs_than_the_limit_are_refused(serve: Serve, stage: Stage) -> None:
    async with serve(data=None, max_batch=3) as server:
        play = Play(server, stage)
        await play.store(echo("a"))
        await started(play, [{}] * 3)
        answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": [{}] * 4})
        check_problem(answer, 422, "invalid_request", "/inputs")


async def test_what_does_not_exist_is_not_found(play: Play) -> None:
    for body in ({"workflow": "nobody"}, {"workflow": "flow", "version": 2}, {"workflow": "\0"}):
        answer = await play.post("/v1/batches", json={**body, "inputs": [{}]})
        check_problem(answer, 404, "not_found")
        await play.store(echo("a"))
    check_problem(await play.get("/v1/batches/nobody"), 404, "not_found")
    check_problem(await play.get("/v1/batches/nobody/results"), 404, "not_found")
    check_problem(await play.post("/v1/batches/nobody/cancel"), 404, "not_found")


@pytest.mark.parametrize(
    ("query", "pointer"), [("limit=501", "/limit"), ("cursor=x", "/cursor"), ("x=1", "/x")]
)
async def test_a_bad_parameter_of_the_results_is_refused(play: Play, query: str, pointer: str) -> None:
    await play.store(echo("a"))
    batch = await started(play, [{}])
    answer = await play.get(f"/v1/batches/{batch['id']}/results?{query}")
    check_problem(answer, 422, "invalid_request", pointer)


async def test_a_cancel_ends_every_execution_that_is_not_terminal_and_no_other(play: Play) -> None:
    await play.store(node("a", condition="input.n > 0"), node("b", "a"))
    batch = await started(play, [{"n": n} for n in range(4)])
    others = await started(play, [{"n": 1}])
    await play.stage.calls_of(["a"] * 4)
    await play.until((await results(play, batch["id"]))[0]["execution"], "COMPLETED")
    for _ in range(2):
        answer = await play.post(f"/v1/batches/{batch['id']}/cancel")
        assert (answer.status, answer.json.keys(), answer.json["state"]) == (202, BATCH, "COMPLETED")
        assert answer.json["counts"] == execution_counts(COMPLETED=1, CANCELLED=3)
    assert (await play.get(f"/v1/batches/{others['id']}")).json["counts"]["RUNNING"] == 1
    cancelled = [each["execution"] for each in await results(play, batch["id"])][1:]
    assert list(await play.server.engine.ports.store.in_flight(cancelled)) == [None] * 3


async def test_a_cancel_of_more_than_one_commit_takes_leaves_nothing(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.orchestrator.control._CANCELLED_AT_ONCE", 4)
    monkeypatch.setattr("weft.orchestrator.control._NODES_AT_ONCE", 5)
    await play.store(node("a"), node("b", "a"))
    batch = await started(play, [{}] * 10)
    answer = await play.post(f"/v1/batches/{batch['id']}/cancel")
    assert answer.json["counts"]["CANCELLED"] == 10


async def test_a_batch_of_failures_leaves_every_letter(play: Play) -> None:
    await play.store(fails("a"))
    batch = await started(play, [{}] * 3)
    assert (await ended(play, batch["id"]))["counts"]["FAILED"] == 3
    assert len((await play.get("/v1/dead-letters?workflow=flow")).json["items"]) == 3


async def test_a_large_batch_does_not_hold_up_others(play: Play) -> None:
    await play.store(echo("a"), input_schema={"properties": {"n": {"type": "integer"}}})
    inputs = [{"n": n} for n in range(5000)]
    starting = asyncio.create_task(started(play, inputs))
    looks = 0
    while not starting.done():
        assert (await play.get("/v1/executions?limit=1")).status == 200
        looks += 1
    batch = await starting
    assert looks > 1
    done = await ended(play, batch["id"])
    assert done["counts"]["COMPLETED"] == done["total"] == 5000


async def test_batches_are_listed_newest_first_in_pages(play: Play) -> None:
    await play.store(echo("a"))
    assert (await play.get("/v1/batches")).json == {"items": [], "next_cursor": None}
    ids = [(await started(play, [{}] * number))["id"] for number in (1, 2, 3)]
    for batch_id in ids:
        await ended(play, batch_id)
    first = (await play.get("/v1/batches?limit=2")).json
    assert [item["id"] for item in first["items"]] == [ids[2], ids[1]]
    assert first["items"][0] == (await play.get(f"/v1/batches/{ids[2]}")).json
    second = (await play.get(f"/v1/batches?limit=2&cursor={first['next_cursor']}")).json
    assert [item["id"] for item in second["items"]] == [ids[0]]
    assert second["next_cursor"] is None
    check_problem(await play.get("/v1/batches?cursor=nonsense"), 422, "invalid_request", "/cursor")
