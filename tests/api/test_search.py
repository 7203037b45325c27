"""Executions searched over REST: by what failed, by text, by how long they took."""

from __future__ import annotations

import pytest
from tests.api.play import Play, check_problem
from tests.walks.stage import echo, fails, node

from weft.journal import pages


async def found(play: Play, query: str) -> list[str]:
    """Return the workflows of the executions that a search finds, turning its pages."""
    workflows: list[str] = []
    cursor = ""
    while True:
        answer = await play.get(f"/v1/executions?{query}&limit=2{cursor}")
        assert answer.status == 200, answer.json
        workflows += [item["workflow"] for item in answer.json["items"]]
        if answer.json["next_cursor"] is None:
            return workflows
        cursor = f"&cursor={answer.json['next_cursor']}"


async def test_executions_are_found_by_what_went_wrong_in_them(play: Play) -> None:
    await play.store(fails("fetch"), name="broken")
    await play.store(echo("show", config="{{ input.x }}", max_retries=0), name="unfilled")
    await play.store(echo("show"), name="fine")
    for name in ("broken", "unfilled", "fine", "broken"):
        await play.ended(await play.start(name))
    assert await found(play, "error=handler_error") == ["broken", "broken"]
    assert await found(play, "error=template_error") == ["unfilled"]
    assert await found(play, "error=node_failed") == ["broken", "unfilled", "broken"]
    assert await found(play, "node=fetch") == ["broken", "broken"]
    assert await found(play, "node=show") == ["unfilled"]
    assert await found(play, "error=node_failed&workflow=unfilled&state=FAILED") == ["unfilled"]
    assert await found(play, "error=stranger") == []
    letters = (await play.get("/v1/dead-letters?node=fetch")).json["items"]
    worker = letters[0]["attempts"][0]["worker"]
    assert await found(play, f"worker={worker}") == ["broken", "broken"]
    assert await found(play, "worker=stranger") == []


async def test_executions_are_found_by_text(play: Play) -> None:
    await play.store(echo("a"), name="order-report")
    await play.store(echo("a"), name="clean-up")
    for name, customer in (("order-report", "ann"), ("clean-up", "Report & Co"), ("clean-up", "bob")):
        execution_id = await play.start(name, labels={"customer": customer})
        await play.ended(execution_id)
    assert await found(play, "q=report") == ["clean-up", "order-report"]
    assert await found(play, "q=ORDER-") == ["order-report"]
    assert await found(play, "q=report%20%26") == ["clean-up"]
    assert await found(play, "q=stranger") == []
    answer = await play.get(f"/v1/executions?q={execution_id[:30]}")
    assert execution_id in [item["id"] for item in answer.json["items"]]
    answer = await play.get(f"/v1/executions?q={execution_id.upper()}")
    assert [item["id"] for item in answer.json["items"]] == [execution_id]
    assert await found(play, "q=%00") == []


async def test_executions_are_found_by_how_long_they_took_or_run(play: Play) -> None:
    await play.store(node("a"), name="runs")
    await play.store(echo("a"), name="ends")
    await play.ended(await play.start("ends"))
    running = await play.start("runs")
    call = await play.stage.call("a")
    assert await found(play, "max_seconds=1e6") == ["runs", "ends"]
    assert await found(play, "min_seconds=1e6") == []
    assert await found(play, "min_seconds=0.000001&state=RUNNING") == ["runs"]
    assert await found(play, "min_seconds=0&workflow=ends") == ["ends"]
    call.complete()
    await play.ended(running)


async def test_a_search_that_stops_early_says_where_to_go_on(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play.store(echo("a"), name="flow")
    for customer in ("ann", "bob", "bob", "bob"):
        await play.ended(await play.start(labels={"customer": customer}))
    monkeypatch.setattr(pages, "MAX_WALKED", 2)
    first = (await play.get("/v1/executions?q=ann")).json
    # The journal in memory walks over everything.
    assert bool(first["items"]) == (first["next_cursor"] is None)
    assert await found(play, "q=ann") == ["flow"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("q=", "/q"),
        (f"q={'x' * 201}", "/q"),
        ("error=", "/error"),
        ("node=", "/node"),
        ("min_seconds=-1", "/min_seconds"),
        ("min_seconds=nan", "/min_seconds"),
        ("max_seconds=soon", "/max_seconds"),
    ],
)
async def test_a_bad_search_is_refused(play: Play, query: str, pointer: str) -> None:
    check_problem(await play.get(f"/v1/executions?{query}"), 422, "invalid_request", pointer)
