"""Groups over REST: only some executions of a group run at once; the others wait, or are refused."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import check_problem
from tests.walks.stage import PATIENCE_SECONDS, node

if TYPE_CHECKING:
    from tests.api.play import Play

    from weft.core.payload import Json

ACME: dict[str, Any] = {"input": {"customer": "acme"}}


async def store(play: Play, **terms: Json) -> None:
    concurrency = {"group": "{{ input.customer }}", **terms}
    await play.store(node("a"), concurrency=concurrency)


async def state(play: Play, execution_id: str) -> str:
    return str((await play.show(execution_id, "?nodes=none"))["state"])


async def test_the_next_one_starts_when_one_has_ended(play: Play) -> None:
    await store(play)
    first, second, third = [await play.start(**ACME) for _ in range(3)]
    other = await play.start(input={"customer": "umbrella"})
    await play.until(first, "RUNNING")
    await play.until(other, "RUNNING")
    shown = await play.show(second)
    assert (shown["state"], shown["group"], shown["started_at"]) == ("PENDING", "acme", None)
    explained = (await play.get(f"/v1/executions/{third}/nodes/a/explain")).json
    assert [reason["code"] for reason in explained["reasons"]] == ["waiting_for_group"]
    assert "1 of 1" in explained["reasons"][0]["message"]
    assert "1 wait before it" in explained["reasons"][0]["message"]
    await play.control(first, "cancel")
    await play.until(second, "RUNNING")
    assert await state(play, third) == "PENDING"
    await play.control(third, "cancel")
    assert (await play.show(third))["started_at"] is None
    listed = (await play.get("/v1/executions?group=acme")).json["items"]
    assert [each["id"] for each in listed] == [third, second, first]
    assert {each["group"] for each in listed} == {"acme"}


async def test_an_end_of_its_own_lets_the_next_one_start(play: Play) -> None:
    concurrency = {"group": "all"}
    await play.store({"id": "a", "handler": "echo", "config": "{{ input.n }}"}, concurrency=concurrency)
    ids = [await play.start(input={"n": n}) for n in range(5)]
    ended = [await play.ended(each) for each in ids]
    assert [each["output"] for each in ended] == [{"a": n} for n in range(5)]
    times = [(each["started_at"], each["finished_at"]) for each in ended]
    assert all(end <= start for (_, end), (start, _) in pairwise(times))


async def test_a_full_group_refuses(play: Play) -> None:
    await store(play, limit=2, on_conflict="reject")
    await play.start(**ACME)
    second = await play.start(**ACME)
    refused = await play.post("/v1/workflows/flow/executions", json=ACME)
    check_problem(refused, 409, "group_busy")
    assert len((await play.get("/v1/executions?group=acme")).json["items"]) == 2
    inputs = [{"customer": "umbrella"}, {"customer": "acme"}]
    check_problem(
        await play.post("/v1/batches", json={"workflow": "flow", "inputs": inputs}), 409, "group_busy"
    )
    assert (await play.get("/v1/executions?group=umbrella")).json["items"] == []
    await play.control(second, "cancel")
    third = await play.start(**ACME)
    await play.until(third, "RUNNING")
    check_problem(await play.control(second, "retry"), 409, "group_busy")
    await play.control(third, "cancel")
    assert (await play.control(second, "retry")).status == 202
    await play.until(second, "RUNNING")


async def test_a_newcomer_takes_the_place_of_the_others(play: Play) -> None:
    await store(play, on_conflict="cancel_running")
    ids = [await play.start(**ACME) for _ in range(3)]
    for each in ids[:-1]:
        assert (await play.ended(each))["state"] == "CANCELLED"
    await play.until(ids[-1], "RUNNING")
    # A retry is a newcomer, too.
    assert (await play.control(ids[0], "retry")).status == 202
    assert (await play.ended(ids[-1]))["state"] == "CANCELLED"
    await play.until(ids[0], "RUNNING")
    events = (await play.get(f"/v1/executions/{ids[-1]}/events?limit=500")).json["items"]
    assert [event["actor"] for event in events if event["type"] == "execution.cancelled"] == ["group"]


async def test_all_versions_of_a_workflow_count_and_the_newcomers_limit_holds(play: Play) -> None:
    await store(play)
    first = await play.start(**ACME)
    await store(play, limit=2)
    second = await play.start(**ACME)
    await play.until(first, "RUNNING")
    await play.until(second, "RUNNING")
    assert await state(play, await play.start(version=1, **ACME)) == "PENDING"


async def test_a_paused_one_that_waits_is_passed_over(play: Play) -> None:
    await store(play)
    first, second, third = [await play.start(**ACME) for _ in range(3)]
    await play.control(second, "pause")
    await play.control(first, "cancel")
    await play.until(third, "RUNNING")
    await play.control(third, "cancel")
    assert await state(play, second) == "PAUSED"
    await play.control(second, "resume")
    await play.until(second, "RUNNING")


async def test_a_batch_runs_as_many_as_its_groups_allow(play: Play) -> None:
    await store(play)
    inputs = [{"customer": name} for name in ("acme", "acme", "umbrella")]
    answer = await play.post("/v1/batches", json={"workflow": "flow", "inputs": inputs})
    assert answer.status == 202
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (counts := (await play.get(f"/v1/batches/{answer.json['id']}")).json["counts"])["RUNNING"] < 2:
            pass
    assert (counts["RUNNING"], counts["PENDING"]) == (2, 1)


@pytest.mark.parametrize("given", [{}, {"customer": 7}, {"customer": None}, {"customer": "x" * 300}])
async def test_a_group_that_is_no_name_is_refused(play: Play, given: Json) -> None:
    await store(play)
    refused = await play.post("/v1/workflows/flow/executions", json={"input": given})
    check_problem(refused, 422, "invalid_input", "/input")
    assert (await play.get("/v1/executions")).json["items"] == []


async def test_a_definition_without_a_name_has_no_group(play: Play) -> None:
    definition: dict[str, Any] = {"nodes": [node("a")], "concurrency": {"group": "all"}}
    refused = await play.post("/v1/executions", json={"definition": definition})
    check_problem(refused, 422, "invalid_definition", "/definition/concurrency")
    definition["name"] = "named"
    assert (await play.post("/v1/executions", json={"definition": definition})).status == 202


async def test_a_trigger_keeps_the_refusal_and_a_start_by_hand_is_told(play: Play) -> None:
    await store(play, on_conflict="reject")
    trigger = {"workflow": "flow", "input": {"customer": "acme"}, "event": {"type": "paid"}}
    assert (await play.call("PUT", "/v1/triggers/paid", json=trigger)).status == 201
    event = {"specversion": "1.0", "type": "paid", "source": "shop", "id": "1"}
    first = await play.post("/v1/events", json=event)
    assert (first.status, len(first.json["started"])) == (202, 1)
    second = await play.post("/v1/events", json={**event, "id": "2"})
    assert (second.status, second.json["started"]) == (202, [])
    shown = (await play.get("/v1/triggers/paid")).json
    assert shown["error"]["code"] == "group_busy"
    check_problem(await play.post("/v1/triggers/paid/fire", json={"event": event}), 409, "group_busy")
    await play.control(first.json["started"][0], "cancel")
    third = await play.post("/v1/events", json={**event, "id": "3"})
    assert len(third.json["started"]) == 1


async def test_a_fork_joins_the_group_of_its_input(play: Play) -> None:
    await store(play)
    first = await play.start(**ACME)
    await play.until(first, "RUNNING")
    await play.control(first, "cancel")
    second = await play.start(**ACME)
    await play.until(second, "RUNNING")
    fork = (await play.control(first, "fork", json={})).json
    assert (fork["state"], fork["group"]) == ("PENDING", "acme")
    await play.control(second, "cancel")
    await play.until(fork["id"], "RUNNING")
