"""What nodes print and log: in pages, and as a stream to the end of the execution."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.play import QUICK, Play, check_problem
from tests.api.sse import watch
from tests.walks.stage import PATIENCE_SECONDS, Stage, echo, node

from weft.api import logs
from weft.journal.contract import LogChunk, LogLine, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.api.conftest import Serve

    from weft.handlers.registry import Registry

AT = 1_700_000_000_000_000


@pytest.fixture
def stage() -> Stage:
    return Stage(None)


@pytest.fixture
def registry(stage: Stage) -> Registry:
    return stage.registry


@pytest.fixture
async def play(serve: Serve, stage: Stage) -> AsyncIterator[Play]:
    async with serve(**QUICK) as server:
        stage._engine = server.engine
        await (play := Play(server, stage)).store(node("a"), echo("b", "a"))
        yield play


def line(message: str, stream: Stream = "stdout", level: str | None = None) -> LogLine:
    return LogLine(AT, stream, message, level, None if level is None else "shop")


async def write(
    play: Play,
    execution_id: str,
    *lines: LogLine,
    node_id: str = "a",
    attempt: int = 1,
    number: int = 1,
    before: int = 0,
    keep_from: int = 1,
) -> None:
    await play.server.engine.ports.journal.append_logs(
        [
            LogChunk(
                execution_id=execution_id,
                node_id=node_id,
                attempt=attempt,
                number=number,
                lines_before=before,
                lines=lines,
                keep_from=keep_from,
            )
        ]
    )


async def lines_of(play: Play, path: str) -> list[Any]:
    answer = await play.get(f"/v1/executions/{path}")
    assert answer.status == 200, answer.json
    return [item["message"] for item in answer.json["items"]]


async def test_lines_are_told_oldest_first_with_all_that_is_known_of_them(play: Play) -> None:
    execution_id = await play.start()
    await write(play, execution_id, line("one"), line("bad", "log", "ERROR"))
    answer = (await play.get(f"/v1/executions/{execution_id}/logs")).json
    first, second = answer["items"]
    assert first == {
        "seq": first["seq"],
        "at": "2023-11-14T22:13:20.000000Z",
        "node": "a",
        "attempt": 1,
        "stream": "stdout",
        "level": None,
        "logger": None,
        "message": "one",
    }
    assert (second["stream"], second["level"], second["logger"]) == ("log", "ERROR", "shop")
    assert second["seq"] > first["seq"]
    assert answer["next_cursor"] is None


async def test_lines_are_chosen_by_node_attempt_and_level(play: Play) -> None:
    execution_id = await play.start()
    await write(play, execution_id, line("a1"), line("info", "log", "INFO"))
    await write(play, execution_id, line("b1"), node_id="b")
    await write(play, execution_id, line("a2"), line("late", "log", "WARNING"), attempt=2)
    path = f"{execution_id}/logs"
    assert await lines_of(play, f"{path}?node=b") == ["b1"]
    assert await lines_of(play, f"{execution_id}/nodes/b/logs") == ["b1"]
    assert await lines_of(play, f"{path}?attempt=2") == ["a2", "late"]
    assert await lines_of(play, f"{execution_id}/nodes/a/logs?attempt=1&level=INFO") == ["info"]
    assert await lines_of(play, f"{path}?level=WARNING") == ["late"]
    assert await lines_of(play, f"{path}?level=warning") == ["late"]


async def test_pages_go_on_where_the_last_one_ended(play: Play) -> None:
    execution_id = await play.start()
    for number in range(30):
        first = number * 3
        await write(
            play,
            execution_id,
            *(line(str(first + index)) for index in range(3)),
            number=number + 1,
            before=first,
        )
    found: list[str] = []
    after = ""
    while True:
        page = (await play.get(f"/v1/executions/{execution_id}/logs?limit=7{after}")).json
        found += [item["message"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        after = f"&after={page['next_cursor']}"
    assert found == [str(number) for number in range(90)]


async def test_lines_that_are_gone_are_counted_by_the_first_that_is_left(play: Play) -> None:
    execution_id = await play.start()
    await write(play, execution_id, line("one"), line("two"))
    await write(play, execution_id, line("three"), number=2, before=2, keep_from=2)
    notice, three = (await play.get(f"/v1/executions/{execution_id}/logs")).json["items"]
    assert notice["message"] == "2 older lines are gone: they were over WEFT_MAX_LOG_BYTES"
    assert (three["message"], three["seq"]) == ("three", notice["seq"] + 1)
    assert await lines_of(play, f"{execution_id}/logs?after={notice['seq']}") == ["three"]


async def test_what_does_not_exist_is_not_found_and_nonsense_is_refused(play: Play) -> None:
    execution_id = await play.start()
    for path in ("nobody/logs", f"{execution_id}/logs?node=c", f"{execution_id}/nodes/c/logs"):
        check_problem(await play.get(f"/v1/executions/{path}"), 404, "not_found")
    for query in ("level=LOUD", "attempt=0", "after=x", "limit=0", "other=1"):
        check_problem(await play.get(f"/v1/executions/{execution_id}/logs?{query}"), 422, "invalid_request")


async def test_a_stream_has_every_line_to_the_end_of_the_execution(play: Play) -> None:
    execution_id = await play.start()
    await write(play, execution_id, line("before"))
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        watch(play.server, f"/v1/executions/{execution_id}/logs") as stream,
    ):
        before = await stream.event()
        assert (before.type, before.data["message"]) == ("log", "before")
        assert before.id == str(before.data["seq"])
        await write(play, execution_id, line("while"), number=2, before=1)
        assert (await stream.event()).data["message"] == "while"
        await write(play, execution_id, line("last"), number=3, before=2)
        (await play.stage.call("a")).complete(1)
        last = await stream.event()
        assert last.data["message"] == "last"
        assert (await stream.event()).type == "end"
        assert await stream.next() is None
    # Whoever comes again has it all.
    async with watch(play.server, f"/v1/executions/{execution_id}/logs", last_event_id=last.id) as stream:
        assert stream.status == 204
    # And whoever comes late reads it from the beginning.
    async with watch(play.server, f"/v1/executions/{execution_id}/nodes/a/logs") as stream:
        assert [(await stream.event()).data.get("message") for _ in range(4)] == [
            "before",
            "while",
            "last",
            None,
        ]


async def test_a_stream_has_the_lines_of_an_attempt_as_soon_as_its_end(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 3600.0)
    await play.store(node("a"), node("b", "a"), name="two")
    execution_id = await play.start("two")
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        watch(play.server, f"/v1/executions/{execution_id}/logs") as stream,
    ):
        call = await play.stage.call("a")
        await write(play, execution_id, line("the last of a"))
        call.complete(1)
        assert (await stream.event()).data["message"] == "the last of a"
        (await play.stage.call("b")).complete(1)
        assert (await stream.event()).type == "end"


async def test_the_progress_of_a_node_is_shown_and_told_live(play: Play) -> None:
    execution_id = await play.start()
    call = await play.stage.call("a")
    assert (await play.show(execution_id))["nodes"][0]["progress"] is None
    async with watch(play.server, f"/v1/executions/{execution_id}/events") as stream:
        await stream.until("execution.started")
        call.context.progress(40, 100, "page 4")
        told = await stream.until("node.progress")
        shown = {"done": 40, "total": 100, "message": "page 4", "at": told.data["at"]}
        assert told.id is None
        assert told.data == {
            "at": told.data["at"],
            "type": "node.progress",
            "execution": execution_id,
            "generation": 1,
            "node": "a",
            "attempt": 1,
            "state": "RUNNING",
            "progress": shown,
        }
        whole = await play.show(execution_id, "?nodes=brief")
        assert [node["progress"] for node in whole["nodes"]] == [shown, None]
        one = (await play.get(f"/v1/executions/{execution_id}/nodes/a")).json
        assert one["progress"] == shown
        page = (await play.get(f"/v1/executions/{execution_id}/nodes")).json
        assert [node["progress"] for node in page["items"]] == [shown, None]
        call.context.progress(100, 100)
        call.complete(1)
        rest = await stream.rest()
    recorded = [one for one in rest if one.id is not None]
    assert [one.data["seq"] for one in recorded] == list(range(3, 3 + len(recorded)))
    # Settled, a node keeps the last word of its last attempt.
    ended = (await play.ended(execution_id))["nodes"][0]["progress"]
    assert (ended["done"], ended["total"], ended["message"]) == (100, 100, None)


async def test_the_progress_of_an_attempt_before_is_not_shown(play: Play) -> None:
    await play.store(node("a", max_retries=1, retry={"base_delay_seconds": 0}))
    execution_id = await play.start()
    first = await play.stage.call("a")
    first.context.progress(9, 10)
    first.fail(ValueError("again"))
    second = await play.stage.call("a")
    assert second.context.attempt == 2
    assert (await play.show(execution_id))["nodes"][0]["progress"] is None
    second.complete(1)
    assert (await play.ended(execution_id))["nodes"][0]["progress"] is None
