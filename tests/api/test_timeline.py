"""The timeline of an execution: attempts as columns, what decided its end, and when it is expected."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import Play, check_problem
from tests.walks.stage import LATER_SECONDS, echo, fails, node

from weft.api.timeline_columns import Timeline
from weft.core.time import parse_rfc3339
from weft.errors import StoreError
from weft.views import timeline as timelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.api.conftest import Server


def path_of(execution_id: str) -> str:
    return f"/v1/executions/{execution_id}/timeline"


async def shown(play: Play, execution_id: str) -> dict[str, Any]:
    answer = await play.get(path_of(execution_id))
    assert answer.status == 200, answer.json
    Timeline.model_validate(answer.json)
    columns = answer.json["attempts"]
    assert len({len(column) for column in columns.values()}) == 1
    return dict(answer.json)


@pytest.fixture(autouse=True)
def _always_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.api.timeline._FRESH_SECONDS", 1e-6)
    monkeypatch.setattr("weft.api.timeline._DURATIONS_SECONDS", 1e-6)


def attempts_of(timeline: dict[str, Any]) -> list[tuple[int, int, str | None]]:
    columns = timeline["attempts"]
    return sorted(zip(columns["node"], columns["number"], columns["outcome"], strict=True))


async def test_an_execution_that_has_ended_shows_its_attempts_and_what_decided_its_end(play: Play) -> None:
    await play.store(node("a"), node("b", "a"), echo("c", "a"), echo("d", "b", "c"))
    execution_id = await play.start()
    for name in ("a", "b"):
        (await play.stage.call(name)).complete(1)
    ended = await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "C"), (1, 1, "C"), (2, 1, "C"), (3, 1, "C")]
    assert timeline["workers"] == [play.server.engine.worker.name]
    assert timeline["attempts"]["worker"] == [0] * 4
    assert [step["node"] for step in timeline["critical_path"]] == ["a", "b", "d"]
    assert (timeline["state"], timeline["expected"], timeline["is_cut"]) == ("COMPLETED", None, False)
    assert timeline["finished_at"] == ended["finished_at"]
    for place, index in enumerate(timeline["attempts"]["node"]):
        described = ended["nodes"][index]
        for column, name in (("queued", "queued_at"), ("started", "started_at"), ("finished", "finished_at")):
            ms = (parse_rfc3339(described[name]) - parse_rfc3339(ended["started_at"])) / 1000
            assert timeline["attempts"][column][place] == round(ms)


async def test_attempts_that_failed_are_bars_of_their_own(play: Play) -> None:
    await play.store(node("a", max_retries=2), echo("b", "a"))
    execution_id = await play.start()
    for _ in range(2):
        (await play.stage.call("a")).fail(ValueError("once"))
    (await play.stage.call("a")).complete(1)
    await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "F"), (0, 2, "F"), (0, 3, "C"), (1, 1, "C")]
    assert [(step["node"], step["attempt"]) for step in timeline["critical_path"]] == [("a", 3), ("b", 1)]


async def test_what_is_under_way_is_shown_as_far_as_it_is(play: Play) -> None:
    await play.store(
        node("a"),
        node("b", "a"),
        node("s", handler="sleep", config={"seconds": 250}),
        node("r", max_retries=1, retry={"base_delay_seconds": LATER_SECONDS}),
        echo("last", "b", "s", "r"),
    )
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    (await play.stage.call("r")).fail(ValueError("once"))
    await play.stage.call("b")

    def is_there(timeline: dict[str, Any]) -> bool:
        return attempts_of(timeline) == [(0, 1, "C"), (1, 1, None), (2, 1, None), (3, 1, "F")]

    timeline = await until(play, execution_id, is_there)
    columns = timeline["attempts"]
    running = columns["node"].index(1)
    assert columns["started"][running] is not None
    assert columns["finished"][running] is None
    assert columns["worker"][running] == timeline["workers"].index(play.server.engine.worker.name)
    assert columns["worker"][columns["node"].index(2)] is None
    assert (timeline["critical_path"], timeline["expected"]) == ([], None)


async def until(play: Play, execution_id: str, is_there: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for _ in range(500):
        timeline = await shown(play, execution_id)
        if is_there(timeline):
            return timeline
    raise AssertionError(attempts_of(timeline))


async def test_each_look_of_a_poll_is_a_bar(play: Play) -> None:
    poll = {"until": "output == 2", "every_seconds": 0.05, "timeout_seconds": LATER_SECONDS}
    await play.store(node("a", poll=poll), echo("b", "a"))
    execution_id = await play.start()
    for output in (1, 2):
        (await play.stage.call("a")).complete(output)
    await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "P"), (0, 2, "C"), (1, 1, "C")]
    assert [step["node"] for step in timeline["critical_path"]] == ["a", "b"]


async def test_a_node_that_waits_is_a_bar_without_a_worker(play: Play) -> None:
    await play.store(node("a", handler="wait", config={}), echo("b", "a"))
    execution_id = await play.start()
    await until(play, execution_id, lambda timeline: attempts_of(timeline) == [(0, 1, None)])
    await play.post(f"/v1/executions/{execution_id}/nodes/a/answer", json={"value": 1})
    await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "C"), (1, 1, "C")]
    assert timeline["attempts"]["worker"][timeline["attempts"]["node"].index(0)] is None


async def test_a_retry_keeps_the_attempts_of_the_generation_before(play: Play) -> None:
    await play.store(node("a"), node("b", "a"), echo("c", "b"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    (await play.stage.call("b")).fail()
    await play.ended(execution_id)
    failed = await shown(play, execution_id)
    assert attempts_of(failed) == [(0, 1, "C"), (1, 1, "F")]
    assert [step["node"] for step in failed["critical_path"]] == ["a", "b"]
    await play.control(execution_id, "retry")
    (await play.stage.call("b")).complete(1)
    await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "C"), (1, 1, "F"), (1, 2, "C"), (2, 1, "C")]
    assert [step["node"] for step in timeline["critical_path"]] == ["b", "c"]
    columns = timeline["attempts"]
    generations = zip(columns["node"], columns["number"], columns["generation"], strict=True)
    assert sorted(generations) == [(0, 1, 1), (1, 1, 1), (1, 2, 2), (2, 1, 2)]


async def test_what_was_cancelled_while_it_ran_is_a_bar_and_what_never_ran_is_none(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    await play.stage.call("a")
    await play.control(execution_id, "cancel")
    timeline = await shown(play, execution_id)
    assert attempts_of(timeline) == [(0, 1, "X")]
    assert [step["node"] for step in timeline["critical_path"]] == ["a"]


async def test_what_a_fork_keeps_is_no_attempt_of_it(play: Play) -> None:
    await play.store(node("a"), echo("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    await play.ended(execution_id)
    forked = (await play.post(f"/v1/executions/{execution_id}/fork", json={"from": ["b"]})).json["id"]
    await play.ended(forked)
    timeline = await shown(play, forked)
    assert attempts_of(timeline) == [(1, 1, "C")]


async def test_the_end_is_expected_by_what_nodes_took_in_completed_executions(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    for _ in range(2):
        execution_id = await play.start()
        for name in ("a", "b"):
            (await play.stage.call(name)).complete(1)
        await play.ended(execution_id)
    failing = await play.start()
    (await play.stage.call("a", failing)).fail()
    await play.ended(failing)
    execution_id = await play.start()
    await play.stage.call("a", execution_id)
    timeline = await shown(play, execution_id)
    expected = timeline["expected"]
    assert (expected["samples"], expected["deciding"]) == (2, ["a", "b"])
    assert expected["low_at"] <= expected["finish_at"] <= expected["high_at"]
    assert timeline["now"] <= expected["finish_at"]
    assert 0 <= expected["remaining_seconds"] < 30
    alone = (await play.get(path_of(execution_id) + "?attempts=none")).json
    assert (alone["attempts"]["node"], alone["workers"], alone["is_cut"]) == ([], [], False)
    assert alone["expected"]["deciding"] == ["a", "b"]
    check_problem(
        await play.get(path_of(execution_id) + "?attempts=some"), 422, "invalid_request", "/attempts"
    )
    await play.control(execution_id, "pause")
    await play.until(execution_id, "PAUSED")
    assert (await shown(play, execution_id))["expected"] is None


async def test_a_new_version_is_expected_to_take_what_the_one_before_took(play: Play) -> None:
    await play.store(node("a"))
    first = await play.start()
    (await play.stage.call("a")).complete(1)
    await play.ended(first)
    await play.store(node("a"), node("new", "a"))
    execution_id = await play.start()
    await play.stage.call("a")
    expected = (await shown(play, execution_id))["expected"]
    assert (expected["samples"], expected["deciding"]) == (1, ["a", "new"])


async def test_what_a_first_execution_took_is_known_at_once(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.api.timeline._DURATIONS_SECONDS", 3600.0)
    await play.store(node("a"))
    first = await play.start()
    call = await play.stage.call("a")
    assert (await shown(play, first))["expected"] is None
    call.complete(1)
    await play.ended(first)
    second = await play.start()
    await play.stage.call("a", second)
    assert (await shown(play, second))["expected"]["samples"] == 1


async def test_a_first_execution_has_no_expected_end(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    await play.stage.call("a")
    assert (await shown(play, execution_id))["expected"] is None


async def test_without_the_store_the_journal_is_shown(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreError("the store is away")

    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    await play.stage.call("b")
    monkeypatch.setattr(play.server.engine.ports.store, "inspect", away)
    assert attempts_of(await shown(play, execution_id)) == [(0, 1, "C")]


async def test_no_more_attempts_are_shown_than_may_be(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MAX_ATTEMPTS", 5)
    await play.store(*(echo(f"n{number}") for number in range(6)), fails("f"), failure_policy="continue")
    execution_id = await play.start()
    await play.ended(execution_id)
    timeline = await shown(play, execution_id)
    assert (len(timeline["attempts"]["node"]), timeline["is_cut"]) == (5, True)


async def test_it_is_made_once_for_all_who_ask_within_a_second(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.api.timeline._FRESH_SECONDS", 3600.0)
    made: list[str] = []

    def counted(reading: timelines.Reading, *, whole: bool) -> dict[str, Any]:
        made.append(reading.execution.id)
        return timelines.timeline_of(reading, whole=whole)

    monkeypatch.setattr("weft.api.timeline.timeline_of", counted)
    nodes = [{"id": "a", "handler": "sleep", "config": {"seconds": 250}}]
    execution_id = (await server.post("/v1/executions", json={"definition": {"nodes": nodes}})).json["id"]
    for _ in range(5):
        assert (await server.get(path_of(execution_id))).status == 200
    assert made == [execution_id]
    await server.post(f"/v1/executions/{execution_id}/cancel")
    assert (await server.get(path_of(execution_id))).json["state"] == "CANCELLED"


async def test_a_large_one_is_compressed_and_built_beside_the_loop(server: Server) -> None:
    nodes = [{"id": f"n{number}", "handler": "echo"} for number in range(2000)]
    started = await server.post("/v1/executions?wait=60", json={"definition": {"nodes": nodes}})
    assert started.json["state"] == "COMPLETED"
    url = server.url + path_of(started.json["id"])
    async with server.session.get(url, headers={"Accept-Encoding": "gzip"}, auto_decompress=False) as answer:
        body = await answer.read()
    assert answer.headers["Content-Encoding"] == "gzip"
    async with server.session.get(url, headers={"Accept-Encoding": "identity"}) as answer:
        plain = await answer.json()
    assert gzip.decompress(body).count(b'"C"') == 2000
    assert len(plain["attempts"]["node"]) == 2000


async def test_an_execution_that_is_not_there_has_no_timeline(server: Server) -> None:
    check_problem(await server.get(path_of("none")), 404, "not_found")
