"""Events: the history in pages, and as a stream that loses nothing."""

from __future__ import annotations

import asyncio
import random
import re
import socket
import sqlite3
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.api.play import QUICK, Play, check_problem
from tests.api.sse import Stream, Told, watch
from tests.support.hold.handler import HANDLER
from tests.walks.stage import PATIENCE_SECONDS, Stage, echo, fails, node

from weft.api import stream as streams
from weft.clock import new_id
from weft.core.event import CancelRequested
from weft.core.rows import History
from weft.feed.memory import MemoryFeed
from weft.journal.sqlite.journal import FILE_NAME, SqliteJournal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.api.conftest import Serve

    from weft.handlers.registry import Registry

LIVE = {"node.queued", "node.started"}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


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
        yield Play(server, stage)


def events_of(execution_id: str) -> str:
    return f"/v1/executions/{execution_id}/events"


def numbers(told: list[Told]) -> list[int]:
    return [int(one.id) for one in told if one.id is not None]


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110 - what changes here tells nobody
            await asyncio.sleep(0.001)


# --- The history, page by page.


async def test_the_history_has_every_event_in_the_order_of_commit(play: Play) -> None:
    await play.store(echo("a"), fails("b", "a"), echo("c", "b"))
    execution_id = await play.start()
    await play.ended(execution_id)
    page = (await play.get(events_of(execution_id))).json
    assert page["next_cursor"] is None
    assert [event["seq"] for event in page["items"]] == list(range(1, 7))
    assert [(event["type"], event.get("node")) for event in page["items"]] == [
        ("execution.created", None),
        ("execution.started", None),
        ("node.completed", "a"),
        ("node.failed", "b"),
        ("node.skipped", "c"),
        ("execution.failed", None),
    ]


async def test_an_event_has_the_fields_that_are_known_of_it_and_no_others(play: Play) -> None:
    await play.store(echo("a"), fails("b", "a"), echo("c", "b"))
    execution_id = await play.start()
    await play.ended(execution_id)
    events = (await play.get(events_of(execution_id))).json["items"]
    common = {"seq", "at", "type", "execution", "generation"}
    assert set(events[0]) == common | {"actor"}
    attempt = {"node", "attempt", "state", "worker", "queued_at", "started_at", "finished_at"}
    assert set(events[2]) == common | attempt | {"output_digest"}
    assert set(events[3]) == common | attempt | {"error"}
    assert set(events[4]) == common | {"node", "attempt", "state", "reason", "cause"}
    assert events[3]["error"]["code"] == "handler_error"
    for event in events:
        assert event["execution"] == execution_id
        assert all(TIME.fullmatch(event[name]) for name in event if name == "at" or name.endswith("_at"))


async def test_an_attempt_that_will_be_repeated_says_when(play: Play) -> None:
    await play.store(node("a", max_retries=1, retry={"base_delay_seconds": 0}))
    execution_id = await play.start()
    (await play.stage.call("a")).fail(ValueError("once"))
    (await play.stage.call("a")).complete(1)
    await play.ended(execution_id)
    (retrying,) = [
        event
        for event in (await play.get(events_of(execution_id))).json["items"]
        if event["type"] == "node.retrying"
    ]
    assert TIME.fullmatch(retrying["due_at"])


async def test_pages_join_without_a_gap_by_the_cursor_and_by_the_number(play: Play) -> None:
    await play.store(*(echo(f"n{number}") for number in range(7)))
    execution_id = await play.start()
    await play.ended(execution_id)
    got: list[int] = []
    after = ""
    while True:
        page = (await play.get(f"{events_of(execution_id)}?limit=4{after}")).json
        got += [event["seq"] for event in page["items"]]
        if page["next_cursor"] is None:
            break
        after = f"&after={page['next_cursor']}"
    assert got == list(range(1, 11))
    behind = (await play.get(f"{events_of(execution_id)}?after=8")).json
    assert [event["seq"] for event in behind["items"]] == [9, 10]
    nothing = (await play.get(f"{events_of(execution_id)}?after=10")).json
    assert nothing == {"items": [], "next_cursor": None}


async def test_what_cannot_be_read_as_a_place_in_the_history_is_refused(play: Play) -> None:
    await play.store(echo("a"))
    path = events_of(await play.start())
    for text in ("x", "-1", "1.5", "", "%D9%A1", "1" * 19):
        check_problem(await play.get(f"{path}?after={text}"), 422, "invalid_request", "/after")
        headers = {"Accept": "text/event-stream", "Last-Event-ID": text.replace("%D9%A1", "x1")}
        check_problem(await play.get(path, headers=headers), 422, "invalid_request", "/Last-Event-ID")
    check_problem(await play.get(f"{path}?limit=0"), 422, "invalid_request", "/limit")
    check_problem(await play.get(f"{path}?limit=501"), 422, "invalid_request", "/limit")


async def test_an_execution_that_is_not_there_has_no_events(play: Play) -> None:
    for headers in ({}, {"Accept": "text/event-stream"}):
        check_problem(await play.get(events_of("none"), headers=headers), 404, "not_found")


# --- One execution as a stream.


async def test_a_stream_of_what_has_ended_tells_the_whole_history_and_ends(play: Play) -> None:
    await play.store(echo("a"), echo("b", "a"))
    execution_id = await play.start()
    await play.ended(execution_id)
    history = (await play.get(events_of(execution_id))).json["items"]
    async with watch(play.server, events_of(execution_id)) as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-store"
        told = await stream.rest()
    assert [one.data for one in told] == history
    assert [(one.id, one.type) for one in told] == [(str(event["seq"]), event["type"]) for event in history]


async def test_what_happens_is_told_while_it_happens(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    first = await play.stage.call("a")
    async with watch(play.server, events_of(execution_id)) as stream:
        assert [(await stream.event()).type for _ in range(2)] == ["execution.created", "execution.started"]
        first.complete(1)
        completed = await stream.until("node.completed")
        assert completed.data["node"] == "a"
        queued, started = await stream.until("node.queued"), await stream.until("node.started")
        assert (queued.id, started.id) == (None, None)
        assert queued.data == {
            **{name: queued.data[name] for name in ("at", "queued_at")},
            "type": "node.queued",
            "execution": execution_id,
            "generation": 1,
            "node": "b",
            "attempt": 1,
            "state": "QUEUED",
        }
        assert (started.data["state"], started.data["worker"]) == ("RUNNING", play.server.engine.worker.name)
        (await play.stage.call("b")).complete(2)
        told = await stream.rest()
    assert [one.type for one in told] == ["node.completed", "execution.completed"]
    assert numbers([completed, *told]) == [3, 4, 5]


async def test_a_stream_goes_on_behind_the_last_event_that_was_heard(play: Play) -> None:
    await play.store(echo("a"), echo("b", "a"))
    execution_id = await play.start()
    await play.ended(execution_id)
    path = events_of(execution_id)
    async with watch(play.server, path, last_event_id="3") as stream:
        assert numbers(await stream.rest()) == [4, 5]
    async with watch(play.server, f"{path}?after=4") as stream:
        assert numbers(await stream.rest()) == [5]
    # A browser repeats the address it began with, and says beside it how far it came.
    async with watch(play.server, f"{path}?after=1", last_event_id="4") as stream:
        assert numbers(await stream.rest()) == [5]


async def test_a_reconnect_with_nothing_left_to_tell_gets_204(play: Play) -> None:
    await play.store(echo("a"))
    execution_id = await play.start()
    await play.ended(execution_id)
    async with watch(play.server, events_of(execution_id), last_event_id="4") as stream:
        assert stream.status == 204
        assert await stream.next() is None


async def test_a_stream_that_resumes_behind_the_end_starts_again_at_the_first_event(play: Play) -> None:
    """A database that lost its last commits never recorded such a number."""
    await play.store(echo("a"), node("b", "a"))
    execution_id = await play.start()
    held = await play.stage.call("b")
    path = events_of(execution_id)
    async with watch(play.server, path, last_event_id="99") as stream:
        assert (await stream.until("execution.created")).id == "1"
        held.complete(1)
        assert numbers(await stream.rest()) == [2, 3, 4, 5]
    for last in ("6", "99"):
        async with watch(play.server, path, last_event_id=last) as stream:
            assert stream.status == 200
            assert numbers(await stream.rest()) == [1, 2, 3, 4, 5]


async def test_an_open_stream_starts_again_when_the_journal_has_lost_its_last_events(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.02)
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    first = await play.stage.call("a")
    service = play.server.service
    older = await copied(play, tmp_path)
    async with watch(play.server, events_of(execution_id)) as stream:
        first.complete(1)
        await stream.until("node.completed")
        whole, service.ports.catalog = service.ports.catalog, older
        assert (await stream.until("execution.created")).id == "1"
        service.ports.catalog = whole
        (await play.stage.call("b")).complete(2)
        assert numbers(await stream.rest()) == [2, 3, 4, 5]
    await older.close()


async def test_an_open_stream_starts_again_when_its_last_number_is_of_another_event(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number was used again before the stream has looked."""
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.02)
    await play.store(node("a"))
    execution_id = await play.start()
    held = await play.stage.call("a")
    other = await copied(play, tmp_path)
    async with watch(play.server, events_of(execution_id)) as stream:
        await stream.until("execution.started")
        assert (await play.control(execution_id, "pause")).status == 202
        await stream.until("execution.paused")
        await other.record([CancelRequested(execution_id=execution_id, generation=0)])
        play.server.service.ports.catalog = other
        told = await stream.rest()
        assert [(one.id, one.type) for one in told if one.id] == [
            ("1", "execution.created"),
            ("2", "execution.started"),
            ("3", "node.cancelled"),
            ("4", "execution.cancelled"),
        ]
    held.complete(1)
    await other.close()


async def copied(play: Play, folder: Path) -> SqliteJournal:
    """Open a copy of the server's journal as it is now; its data folder is ``folder / "data"``."""
    (folder / "copy").mkdir()
    with (
        closing(sqlite3.connect(folder / "data" / FILE_NAME)) as journal,
        closing(sqlite3.connect(folder / "copy" / FILE_NAME)) as copy,
    ):
        journal.backup(copy)
    opened = SqliteJournal(folder / "copy", now=play.server.engine.ports.clock.now, new_id=new_id)
    await opened.open()
    return opened


async def test_an_end_that_a_retry_took_back_does_not_end_the_stream(play: Play) -> None:
    await play.store(node("a", max_retries=0))
    execution_id = await play.start()
    (await play.stage.call("a")).fail()
    await play.ended(execution_id)
    assert (await play.control(execution_id, "retry")).status == 202
    again = await play.stage.call("a")
    async with watch(play.server, events_of(execution_id)) as stream:
        assert (await stream.until("execution.failed")).data["generation"] == 1
        assert (await stream.until("execution.retried")).data["generation"] == 2
        again.complete(1)
        assert [one.type for one in await stream.rest() if one.id] == [
            "node.completed",
            "execution.completed",
        ]
    async with watch(play.server, events_of(execution_id), last_event_id="4") as stream:
        assert numbers(await stream.rest()) == [5, 6, 7]


async def test_a_completion_stays_in_the_history_when_its_node_runs_again(play: Play) -> None:
    await play.store(node("a"), node("b", "a", max_retries=0))
    execution_id = await play.start()
    path = events_of(execution_id)
    (await play.stage.call("a")).complete({"run": 1})
    (await play.stage.call("b")).fail()
    await play.ended(execution_id)
    before = (await play.get(path)).json["items"]
    assert (await play.control(execution_id, "retry", json={"nodes": ["a"]})).status == 202
    (await play.stage.call("a")).complete({"run": 2})
    (await play.stage.call("b")).complete(1)
    await play.ended(execution_id)
    history = (await play.get(path)).json["items"]
    assert history[: len(before)] == before
    assert [event["seq"] for event in history] == list(range(1, len(before) + 5))
    runs = [event for event in history if (event["type"], event.get("node")) == ("node.completed", "a")]
    assert [(event["generation"], event["attempt"]) for event in runs] == [(1, 1), (2, 2)]
    assert runs[0]["output_digest"] != runs[1]["output_digest"]
    for seen in range(len(history)):
        async with watch(play.server, path, last_event_id=str(seen)) as stream:
            assert [one.data for one in await stream.rest()] == history[seen:]
    shown = (await play.get(f"/v1/executions/{execution_id}/nodes/a")).json
    assert [(one["number"], one["generation"], one["outcome"]) for one in shown["attempts"]] == [
        (1, 1, "completed"),
        (2, 2, "completed"),
    ]


async def test_what_is_recorded_behind_the_end_is_told_once_and_ends_the_stream_again(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    call = await play.stage.call("a")
    assert (await play.control(execution_id, "cancel")).status == 202
    ended_at = len((await play.get(events_of(execution_id))).json["items"])
    await play.stage.publish_late(call)
    async with watch(play.server, events_of(execution_id), last_event_id=str(ended_at)) as stream:
        assert [one.type for one in await stream.rest()] == ["result.discarded"]
    async with watch(play.server, events_of(execution_id)) as stream:
        assert numbers(await stream.rest()) == list(range(1, ended_at + 2))


async def test_a_quiet_stream_is_kept_alive_by_comments(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "COMMENT_SECONDS", 0.02)
    await play.store(node("a"))
    execution_id = await play.start()
    call = await play.stage.call("a")
    for path in (events_of(execution_id), "/v1/events"):
        async with watch(play.server, path) as stream:
            comments = 0
            while comments < 3:
                told = await stream.next()
                assert told is not None
                comments += told.comment is not None
    call.complete(1)


async def test_a_stream_does_not_rely_on_the_feed(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_SECONDS", 0.02)
    play.server.service.feed = MemoryFeed()  # nobody tells it anything
    await play.store(node("a"))
    execution_id = await play.start()
    async with watch(play.server, events_of(execution_id)) as stream:
        await stream.until("execution.started")
        (await play.stage.call("a")).complete(1)
        assert [one.type for one in await stream.rest()] == ["node.completed", "execution.completed"]


async def test_a_history_longer_than_a_page_is_told_whole(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PAGE_EVENTS", 5)
    await play.store(*(echo(f"n{number}") for number in range(17)), fails("bad"))
    execution_id = await play.start()
    async with watch(play.server, events_of(execution_id)) as stream:
        told = await stream.rest()
    await play.ended(execution_id)
    count = len((await play.get(f"{events_of(execution_id)}?limit=500")).json["items"])
    assert numbers(told) == list(range(1, count + 1))


async def test_a_client_that_leaves_leaves_nothing_behind(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    call = await play.stage.call("a")
    service = play.server.service
    async with watch(play.server, events_of(execution_id)) as stream, watch(play.server, "/v1/events"):
        await stream.event()
        await until(lambda: service.load.streams.in_use == 2 and service.feed.has_subscriber("any"))
    await until(lambda: service.load.streams.in_use == 0)
    assert not service.feed.has_subscriber(execution_id)
    await until(lambda: service.load.waiting.in_use == 0)
    call.complete(1)


async def test_streams_end_at_once_when_the_server_stops(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    call = await play.stage.call("a")
    async with (
        watch(play.server, events_of(execution_id)) as stream,
        watch(play.server, "/v1/events") as everything,
    ):
        await stream.until("execution.started")
        play.server.service.stopping.set()
        assert await stream.rest() == []
        await everything.rest()
    headers = {"Accept": "text/event-stream"}
    check_problem(await play.get(events_of(execution_id), headers=headers), 503, "unavailable")
    call.complete(1)


async def test_one_stream_too_many_is_refused(play: Play) -> None:
    play.server.service.load.streams.limit = 4
    async with watch(play.server, "/v1/events"):
        async with watch(play.server, "/v1/events"):
            answer = await play.get("/v1/events")
            check_problem(answer, 503, "overloaded")
            assert int(answer.headers["Retry-After"]) >= 1
        await until(lambda: play.server.service.load.streams.in_use == 1)
        async with watch(play.server, "/v1/events") as stream:
            assert stream.status == 200


async def test_the_streams_of_one_caller_leave_room_for_another(serve: Serve) -> None:
    greedy, other = "a-key-that-is-long-enough", "b-key-that-is-long-enough"
    async with AsyncExitStack() as opened, serve(api_keys=(greedy, other)) as server:
        server.service.load.streams.limit = server.service.load.waiting.limit = 20
        for _ in range(10):
            stream = await opened.enter_async_context(watch(server, "/v1/events", key=greedy))
            assert stream.status == 200
        refused = await server.get("/v1/events", headers={"Authorization": f"Bearer {greedy}"})
        check_problem(refused, 503, "overloaded")
        for _ in range(5):
            stream = await opened.enter_async_context(watch(server, "/v1/events", key=other))
            assert stream.status == 200
        families = text_string_to_metric_families(server.service.metrics.render().decode())
        refusals = {
            sample.labels["reason"]: sample.value
            for family in families
            if family.name == "weft_http_requests_refused"
            for sample in family.samples
        }
        assert sum(refusals.values()) == 1
        server.service.stopping.set()


async def test_asking_for_the_headers_alone_opens_no_stream(play: Play) -> None:
    answer = await play.call("HEAD", "/v1/events")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    await until(lambda: play.server.service.load.streams.in_use == 0)


# --- Slow readers.


class SlowReader:
    """A client that has asked for a stream and takes none of it until it is told to."""

    def __init__(self, play: Play, path: str) -> None:
        address = urlsplit(play.server.url)
        self._socket = socket.socket()
        # As little as possible waits on the way, so that the server notices soon.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        self._host, self._port = address.hostname, address.port
        self._request = (
            f"GET {path} HTTP/1.1\r\nHost: {address.netloc}\r\nAccept: text/event-stream\r\n"
            "Connection: close\r\n\r\n"
        )

    async def ask(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_connect(self._socket, (self._host, self._port))
        await loop.sock_sendall(self._socket, self._request.encode())

    async def read_all(self) -> str:
        """Take everything up to the end of the connection, without the frames of the transfer."""
        loop, parts = asyncio.get_running_loop(), []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while part := await loop.sock_recv(self._socket, 65536):
                parts.append(part)
        self._socket.close()
        _, _, body = b"".join(parts).partition(b"\r\n\r\n")
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            length = int(size, 16)
            whole += body[:length]
            body = body[length + 2 :]
        return whole.decode()


# Enough that it fits neither into the sockets' buffers nor into the server's.
MANY_EVENTS = 20_000


async def wide_execution(play: Play) -> str:
    await play.store(*(echo(f"n{number}") for number in range(MANY_EVENTS)))
    return await play.start()


def ids_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"^id: (\d+)$", text, re.MULTILINE)]


async def test_a_client_that_does_not_read_holds_up_nobody_and_loses_nothing(play: Play) -> None:
    execution_id = await wide_execution(play)
    reader = SlowReader(play, events_of(execution_id))
    await reader.ask()
    await until(lambda: play.server.service.load.streams.in_use == 1)
    # All of it is written while the client takes nothing.
    assert (await play.ended(execution_id))["state"] == "COMPLETED"
    assert play.server.service.load.streams.in_use == 1
    assert ids_in(await reader.read_all()) == list(range(1, MANY_EVENTS + 4))


async def test_a_client_that_never_reads_loses_its_place_and_finds_it_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SLOWEST_SECONDS", 0.2)
    execution_id = await wide_execution(play)
    reader = SlowReader(play, events_of(execution_id))
    await reader.ask()
    await until(lambda: play.server.service.load.streams.in_use == 1)
    await until(lambda: play.server.service.load.streams.in_use == 0)
    heard = ids_in(await reader.read_all())
    assert heard == list(range(1, len(heard) + 1))
    assert len(heard) < MANY_EVENTS
    monkeypatch.undo()
    async with watch(play.server, events_of(execution_id), last_event_id=str(heard[-1])) as stream:
        assert numbers(await stream.rest()) == list(range(len(heard) + 1, MANY_EVENTS + 4))


# --- Everything, live.


async def test_the_stream_of_everything_tells_of_all_executions_without_ids(play: Play) -> None:
    await play.store(node("a"))
    async with watch(play.server, "/v1/events") as stream:
        first, second = await play.start(), await play.start()
        for execution_id in (first, second):
            (await play.stage.call("a", execution_id)).complete(1)
        told: list[Told] = []
        while sum(one.type == "execution.completed" for one in told) < 2:
            told.append(await stream.event())
    for execution_id in (first, second):
        mine = [one for one in told if one.data["execution"] == execution_id]
        assert [one.type for one in mine if one.type not in LIVE] == [
            "execution.created",
            "execution.started",
            "node.completed",
            "execution.completed",
        ]
        assert [one.type for one in mine if one.type in LIVE] == ["node.queued", "node.started"]
    assert all(one.id is None for one in told)


async def test_what_was_before_is_not_in_the_stream_of_everything(play: Play) -> None:
    await play.store(echo("a"))
    await play.ended(await play.start())
    async with watch(play.server, "/v1/events") as stream:
        execution_id = await play.start()
        assert (await stream.event()).data["execution"] == execution_id


async def test_one_who_cannot_follow_everything_is_told_how_much_was_missed(play: Play) -> None:
    play.server.service.feed = play.server.engine.ports.feed = MemoryFeed(held_events=3)
    await play.store(*(echo(f"n{number}") for number in range(50)))
    async with watch(play.server, "/v1/events") as stream:
        await play.start()
        comments: list[str] = []
        told = await stream.next()
        while told is not None and told.type != "execution.completed":
            comments += [told.comment] if told.comment else []
            told = await stream.next()
    assert any(re.fullmatch(r"\d+ events were missed", comment) for comment in comments)


# --- The order of what is recorded and what is live.


def recorded(seq: int, node_id: str = "a", *, finished_at: int = 0) -> History:
    return History(
        seq=seq,
        at=finished_at + 5,
        type="node.completed",
        execution="x",
        generation=1,
        node=node_id,
        attempt=1,
        finished_at=finished_at,
    )


def live(node_id: str, *, at: int = 0) -> History:
    return History(seq=0, at=at, type="node.started", execution="x", generation=1, node=node_id, attempt=1)


def test_live_events_keep_their_place_among_the_recorded_ones() -> None:
    heard = [live("b"), recorded(3, "b"), live("c")]
    merged = streams.interleave(heard, [recorded(3, "b"), recorded(4, "c")], 2)
    assert merged == [live("b"), recorded(3, "b"), live("c"), recorded(4, "c")]


def test_a_live_event_of_an_attempt_whose_end_was_told_before_is_left_out() -> None:
    heard = [live("a"), live("b"), recorded(3, "a")]
    assert streams.interleave(heard, [], 3) == [live("b")]


def test_a_start_comes_behind_the_ends_that_made_room_for_it_though_they_were_recorded_later() -> None:
    """Or a worker of one slot would seem to run two at once: a result is recorded after the next start."""
    second = live("b", at=30)
    ends = [recorded(3, "a", finished_at=30), recorded(4, "b", finished_at=40)]
    assert streams.interleave([second, *ends], ends, 2) == [ends[0], second, ends[1]]
    assert streams.interleave([second], ends, 2) == [ends[0], second, ends[1]], "heard or not"


def test_a_start_comes_before_its_own_end_or_not_at_all() -> None:
    end = recorded(3, "a", finished_at=20)
    assert streams.interleave([live("a", at=20)], [end], 2) == [live("a", at=20), end]
    late = live("a", at=10)
    assert streams.interleave([live("b", at=20), late], [end], 2) == [end, live("b", at=20)]


def test_what_is_heard_out_of_order_is_told_in_order() -> None:
    found = [recorded(4), recorded(5), recorded(6)]
    assert streams.interleave([recorded(6), recorded(4)], found, 3) == found


async def test_no_more_nodes_seem_to_run_than_there_are_slots(serve: Serve, registry: Registry) -> None:
    registry.add(HANDLER)
    async with serve(data=None, worker_concurrency=8) as server:
        naps = [{"id": f"n{i}", "handler": "hold", "config": {"seconds": 0.03}} for i in range(200)]
        started = await server.post("/v1/executions", json={"definition": {"nodes": naps}})
        running: set[str] = set()
        most = 0
        async with watch(server, events_of(started.json["id"])) as stream:
            for told in await stream.rest():
                if told.type == "node.started":
                    running.add(told.data["node"])
                elif told.type == "node.completed":
                    running.discard(told.data["node"])
                most = max(most, len(running))
        assert 1 <= most <= 8


# --- Resuming.


async def follow(play: Play, execution_id: str, draw: random.Random) -> list[int]:
    """Hear an execution to its end, leaving and coming again at random; give the numbers that were heard."""
    heard: list[int] = []
    while True:
        last = str(heard[-1]) if heard else None
        async with watch(play.server, events_of(execution_id), last_event_id=last) as stream:
            if stream.status == 204:
                return heard
            assert stream.status == 200
            if await left(stream, heard, draw.randrange(1, 12)):
                continue
        # It ended by itself: there may be more only if it was opened again.


async def left(stream: Stream, heard: list[int], patience: int) -> bool:
    """Hear so many events and leave; False: it ended before."""
    for _ in range(patience):
        told = await stream.next()
        if told is None:
            return False
        if told.id is not None:
            heard.append(int(told.id))
            assert told.data["seq"] == heard[-1]
    return True


async def stir(play: Play, execution_id: str) -> None:
    """Write into an execution from outside for as long as it runs."""
    while True:
        for verb in ("pause", "resume"):
            if (await play.control(execution_id, verb)).status == 409:
                return


@pytest.mark.parametrize("seed", [1, 2])
async def test_clients_that_come_and_go_under_concurrent_writers_hear_everything_once(
    play: Play, seed: int
) -> None:
    draw = random.Random(seed)
    chains = [[f"c{chain}_{step}" for step in range(8)] for chain in range(6)]
    nodes: list[Any] = []
    for chain in chains:
        for before, after in zip(["", *chain], chain, strict=False):
            handler: dict[str, Any] = {"handler": "sleep", "config": {"seconds": 0.05}}
            nodes.append(node(after, *([before] if before else []), **handler))
    await play.store(*nodes)
    executions = [await play.start() for _ in range(5)]
    work: list[Awaitable[Any]] = [follow(play, one, random.Random(draw.random())) for one in executions * 2]
    async with asyncio.timeout(PATIENCE_SECONDS):
        *heard, _, _ = await asyncio.gather(*work, *(stir(play, one) for one in executions[:2]))
    for execution_id, numbers_heard in zip(executions * 2, heard, strict=True):
        row = await play.server.engine.ports.journal.execution(execution_id)
        assert row is not None
        assert row.seq > len(nodes)
        assert numbers_heard == list(range(1, row.seq + 1)), f"seed {seed}"


def test_many_streams_together_write_no_more_often_than_few() -> None:
    """F97: a thousand subscribers took all of the loop, each with twenty writes a second."""
    assert streams.pace_seconds(1) == streams.PACE_SECONDS
    for count in (100, 1_000, 2_000):
        assert count / streams.pace_seconds(count) <= 500
