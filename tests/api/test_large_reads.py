"""Reads of an execution whose outputs are large together: a bounded part of them is in an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.api.play import check_problem
from tests.walks.stage import echo

from weft.views import describe

if TYPE_CHECKING:
    import pytest
    from tests.api.play import Play

NODES = 40
TEXT = "x" * 30_000


def wide(**fields: Any) -> dict[str, Any]:
    nodes = [echo("first", config="{{ input.text }}")]
    nodes += [echo(f"n{number}", "first", config="{{ first }}") for number in range(NODES - 1)]
    return {"nodes": nodes, "output": "done", **fields}


async def ended(play: Play, definition: dict[str, Any]) -> str:
    answer = await play.post(
        "/v1/executions?wait=60", json={"definition": definition, "input": {"text": TEXT}}
    )
    assert answer.status in (200, 202), answer.json
    return str(answer.json["id"])


async def test_an_answer_shows_the_outputs_that_fit_and_names_the_size_of_the_others(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    execution_id = await ended(play, wide())
    whole = (await play.get(f"/v1/executions/{execution_id}")).json["nodes"]
    assert [shown["output"] for shown in whole] == [TEXT] * NODES
    monkeypatch.setattr(describe, "SHOWN_OUTPUTS_BYTES", 10 * len(TEXT))
    shown = (await play.get(f"/v1/executions/{execution_id}")).json["nodes"]
    assert [one["output"] for one in shown] == [TEXT] * 9 + [None] * (NODES - 9)
    assert {one["output_bytes"] for one in shown} == {len(TEXT) + 2}
    page = (await play.get(f"/v1/executions/{execution_id}/nodes?limit=20")).json["items"]
    assert [one["output"] for one in page] == [TEXT] * 9 + [None] * 11
    last = (await play.get(f"/v1/executions/{execution_id}/nodes/n38")).json
    assert (last["output"], last["config"]) == (TEXT, TEXT)


async def test_a_read_that_finds_no_room_is_refused_and_small_ones_are_not(play: Play) -> None:
    execution_id = await ended(play, wide())
    held = play.server.service.load.value_bytes
    held.force("another", held.limit - NODES * len(TEXT))
    for path in ("", "/nodes?limit=40"):
        problem = await play.get(f"/v1/executions/{execution_id}{path}")
        check_problem(problem, 503, "overloaded")
    for path in ("?nodes=none", "?nodes=brief", "/nodes?limit=4", "/nodes/n3", "/nodes/n3/explain"):
        assert (await play.get(f"/v1/executions/{execution_id}{path}")).status == 200
    held.give_back("another", held.in_use)
    assert (await play.get(f"/v1/executions/{execution_id}")).status == 200
    assert held.in_use == 0


async def test_an_execution_whose_answer_finds_no_room_is_accepted_all_the_same(play: Play) -> None:
    """503 would say that it was not, and it would be started again."""
    held = play.server.service.load.value_bytes
    held.force("another", held.limit)
    answer = await play.post("/v1/executions?wait=60", json={"definition": wide(), "input": {"text": TEXT}})
    assert (answer.status, answer.json["state"]) == (202, "COMPLETED")
    assert "nodes" not in answer.json


async def test_a_page_of_large_configs_is_bounded(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = wide(failure_policy="continue")
    for one in definition["nodes"][1:]:
        one |= {"handler": "call_external_service", "config": {"url": "{{ first }}"}, "max_retries": 0}
    await ended(play, definition)
    letters = (await play.get("/v1/dead-letters?limit=50")).json["items"]
    assert [letter["config"] for letter in letters] == [{"url": TEXT}] * (NODES - 1)
    monkeypatch.setattr(describe, "SHOWN_OUTPUTS_BYTES", 10 * len(TEXT))
    letters = (await play.get("/v1/dead-letters?limit=50")).json["items"]
    assert [letter["config"] is None for letter in letters] == [False] * 9 + [True] * (NODES - 10)
    last = (await play.get(f"/v1/dead-letters/{letters[-1]['id']}")).json
    assert last["config"] == {"url": TEXT}
