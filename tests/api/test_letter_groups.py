"""Groups of dead letters over REST, and calls on many letters at once."""

from __future__ import annotations

from typing import Any

import pytest
from tests.api.play import Play, check_problem
from tests.walks.stage import echo, fails

from weft.api import letter_groups


async def groups_of(play: Play, query: str = "") -> list[dict[str, Any]]:
    answer = await play.get(f"/v1/dead-letters/groups{query}")
    assert answer.status == 200, answer.json
    return list(answer.json["items"])


async def counted(play: Play, query: str = "") -> list[tuple[str | None, str, str | None, int]]:
    groups = await groups_of(play, query)
    return [(group["workflow"], group["node"], group["code"], group["count"]) for group in groups]


async def fail_some(play: Play) -> list[str]:
    """Leave two letters of one group behind, one of another, and one without a workflow."""
    await play.store(fails("fetch"), name="import")
    await play.store(echo("show", config="{{ input.x }}", max_retries=0), name="report")
    ids = [await play.start(name) for name in ("import", "report", "import")]
    nameless = await play.post("/v1/executions", json={"definition": {"nodes": [fails("fetch")]}})
    for execution_id in (*ids, nameless.json["id"]):
        await play.ended(execution_id)
    return ids


async def test_letters_are_grouped_by_workflow_node_and_code(play: Play) -> None:
    ids = await fail_some(play)
    assert await counted(play) == [
        (None, "fetch", "handler_error", 1),
        ("import", "fetch", "handler_error", 2),
        ("report", "show", "template_error", 1),
    ]
    (group,) = await groups_of(play, "?workflow=import")
    assert (group["executions"], group["sample"]["execution"]) == (2, ids[2])
    assert group["sample"] == (await play.get(f"/v1/dead-letters/{group['sample']['id']}")).json
    assert group["last_at"] == group["sample"]["created_at"] > group["first_at"]
    assert await counted(play, "?state=dropped") == []
    first = (await play.get("/v1/dead-letters/groups?limit=2")).json
    second = (await play.get(f"/v1/dead-letters/groups?limit=2&cursor={first['next_cursor']}")).json
    assert [*first["items"], *second["items"]] == await groups_of(play)
    assert second["next_cursor"] is None
    for query, pointer in (("state=all", "/state"), ("cursor=x", "/cursor"), ("node=a", "/node")):
        check_problem(await play.get(f"/v1/dead-letters/groups?{query}"), 422, "invalid_request", pointer)


async def test_a_group_is_retried_in_one_call(play: Play) -> None:
    ids = await fail_some(play)
    chosen = {"workflow": "import", "node": "fetch", "code": "handler_error"}
    answer = await play.post("/v1/dead-letters/retry", json=chosen)
    assert (answer.status, answer.json) == (
        202,
        {"matched": 2, "done": 2, "refused": [], "next_cursor": None},
    )
    for execution_id, generation in zip(ids, (2, 1, 2), strict=True):
        assert (await play.ended(execution_id))["generation"] == generation
    assert [count for *_, count in await counted(play, "?state=retried")] == [2]
    answer = await play.post("/v1/dead-letters/retry", json={"workflow": None})
    assert (answer.json["matched"], answer.json["done"]) == (1, 1)


async def test_an_execution_with_several_letters_is_retried_once(play: Play) -> None:
    await play.store(fails("a"), fails("b"), failure_policy="continue")
    execution_id = await play.start()
    await play.ended(execution_id)
    answer = await play.post("/v1/dead-letters/retry")
    assert (answer.json["matched"], answer.json["done"]) == (2, 2)
    assert (await play.ended(execution_id))["generation"] == 2


async def test_what_cannot_be_retried_is_told_letter_by_letter(play: Play) -> None:
    await play.store(fails("a"), echo("b", "a", trigger_rule="one_failed"))
    execution_id = await play.start()
    assert (await play.ended(execution_id))["state"] == "COMPLETED"
    (letter,) = (await play.get("/v1/dead-letters")).json["items"]
    answer = await play.post("/v1/dead-letters/retry", json={"ids": [letter["id"], "stranger"]})
    assert answer.status == 202
    assert (answer.json["matched"], answer.json["done"]) == (2, 0)
    assert [(each["id"], each["code"]) for each in answer.json["refused"]] == [
        ("stranger", "not_found"),
        (letter["id"], "not_allowed"),
    ]
    assert "COMPLETED" in answer.json["refused"][1]["message"]


async def test_the_same_key_retries_nothing_twice(play: Play) -> None:
    (execution_id, *_) = await fail_some(play)
    (letter,) = (await play.get(f"/v1/dead-letters?q={execution_id}")).json["items"]
    headers = {"Idempotency-Key": "again"}
    for _ in range(2):
        answer = await play.post("/v1/dead-letters/retry", json={"ids": [letter["id"]]}, headers=headers)
        assert (answer.status, answer.json["done"]) == (202, 1)
        assert (await play.ended(execution_id))["generation"] == 2
    other = await play.post("/v1/dead-letters/retry", json={"ids": [letter["id"], "more"]}, headers=headers)
    check_problem(other, 409, "idempotency_conflict")


async def test_a_group_is_dropped_in_one_call(play: Play) -> None:
    await fail_some(play)
    answer = await play.post("/v1/dead-letters/drop", json={"workflow": "import"})
    assert (answer.status, answer.json["matched"], answer.json["done"]) == (202, 2, 2)
    assert [count for *_, count in await counted(play, "?state=dropped")] == [2]
    changes = (await play.get("/v1/changes")).json["items"]
    assert [change["action"] for change in changes].count("dead_letter.dropped") == 2
    (letter,) = (await play.get("/v1/dead-letters?state=open&workflow=report")).json["items"]
    answer = await play.post("/v1/dead-letters/drop", json={"ids": [letter["id"], "stranger"]})
    assert (answer.json["matched"], answer.json["done"]) == (2, 1)
    assert answer.json["refused"][0]["code"] == "not_found"
    assert await counted(play) == [(None, "fetch", "handler_error", 1)]


@pytest.mark.parametrize("verb", ["retry", "drop"])
async def test_a_call_is_bounded_and_says_where_to_go_on(
    play: Play, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await fail_some(play)
    monkeypatch.setattr(letter_groups, "MAX_LETTERS", 1)
    done, body = 0, {"workflow": "import"}
    while True:
        answer = (await play.post(f"/v1/dead-letters/{verb}", json=body)).json
        assert answer["matched"] <= 1
        done += answer["done"]
        if answer["next_cursor"] is None:
            break
        body = {"workflow": "import", "cursor": answer["next_cursor"]}
    assert done == 2
    for execution_id in ids:
        await play.ended(execution_id)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"ids": ["a"], "node": "b"}, "/node"),
        ({"ids": ["a"] * 201}, "/ids"),
        ({"cursor": "x"}, "/cursor"),
        ({"node": None}, "/node"),
        ({"state": "open"}, "/state"),
        ({"ids": "a"}, "/ids"),
    ],
)
async def test_a_bad_choice_is_refused(play: Play, body: dict[str, Any], pointer: str) -> None:
    for verb in ("retry", "drop"):
        answer = await play.post(f"/v1/dead-letters/{verb}", json=body)
        check_problem(answer, 422, "invalid_request", pointer)
