"""An execution as it changes: what a viewer draws is what is, whenever the viewer comes."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.api.live import Drawing, drawing
from tests.api.play import Play, check_problem
from tests.api.sse import watch
from tests.api.test_stream import SlowReader, until
from tests.walks.stage import LATER_SECONDS, PATIENCE_SECONDS, echo, fails, node

from weft.api import live_hub
from weft.api import stream as streams
from weft.errors import JournalError, StoreError
from weft.feed.memory import MemoryFeed
from weft.views.live_states import LiveStates

if TYPE_CHECKING:
    from tests.api.conftest import Serve

    from weft.core.rows import ExecutionRow


def live_of(execution_id: str) -> str:
    return f"/v1/executions/{execution_id}/live"


async def store_away(*_: Any, **__: Any) -> Any:
    raise StoreError("the store is away")


async def test_a_viewer_draws_an_execution_from_its_start_to_its_end(play: Play) -> None:
    await play.store(node("a"), node("b", "a"), node("c", "a"))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("RPP", "RUNNING")
        (await play.stage.call("a")).complete(1)
        await drawn.until("CRR")
        (await play.stage.call("c")).complete(1)
        await drawn.until("CRC")
        (await play.stage.call("b")).complete(1)
        await drawn.to_the_end()
    assert (drawn.letters, drawn.state) == ("CCC", "COMPLETED")
    assert drawn.frames[0] == "snapshot"
    assert drawn.frames[-2:] == ["changes", "end"]
    assert play.server.service.live == {}


async def test_a_viewer_who_comes_late_begins_where_the_others_are(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as first:
        await first.until("RP")
        (await play.stage.call("a")).complete(1)
        await first.until("CR")
        async with drawing(play.server, execution_id) as late:
            await late.next()
            assert (late.letters, late.frames) == ("CR", ["snapshot"])
            (await play.stage.call("b")).complete(1)
            await asyncio.gather(first.to_the_end(), late.to_the_end())
    assert first.letters == late.letters == "CC"


async def test_a_viewer_who_comes_again_has_missed_nothing(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    call = await play.stage.call("a")
    async with drawing(play.server, execution_id) as before:
        await before.until("RP")
    await until(lambda: not play.server.service.live)
    call.complete(1)
    await play.stage.call("b")
    async with drawing(play.server, execution_id) as after:
        await after.next()
        assert after.letters == "CR"


async def test_of_an_execution_that_has_ended_a_viewer_is_sent_a_snapshot_and_the_end(play: Play) -> None:
    await play.store(echo("a"), fails("b", "a"), echo("c", "b"))
    execution_id = await play.start()
    await play.ended(execution_id)
    async with drawing(play.server, execution_id) as drawn:
        await drawn.to_the_end()
    assert (drawn.letters, drawn.state, drawn.frames) == ("CFS", "FAILED", ["snapshot", "end"])


async def test_a_retry_is_drawn_from_its_scheduling_to_its_end(play: Play) -> None:
    await play.store(node("a", max_retries=1, retry={"base_delay_seconds": 0.3, "jitter": 0}))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        (await play.stage.call("a")).fail(ValueError("once"))
        await drawn.until("T")
        async with drawing(play.server, execution_id) as late:
            await late.until("T")
        await drawn.until("R")
        (await play.stage.call("a")).complete(1)
        await drawn.to_the_end()
    assert drawn.letters == "C"


async def test_a_scheduled_retry_is_known_from_the_rows_alone(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.server.service.feed = MemoryFeed()  # not the one that the engine tells
    monkeypatch.setattr(play.server.engine.ports.store, "in_flight", store_away)
    await play.store(node("a", max_retries=1, retry={"base_delay_seconds": LATER_SECONDS}), node("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).fail(ValueError("once"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await scheduled(play, execution_id):  # noqa: ASYNC110 - nothing tells it
            # Let the engine run: a journal in memory answers without waiting.
            await asyncio.sleep(0.01)
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("TP")


async def scheduled(play: Play, execution_id: str) -> bool:
    rows = await play.server.engine.ports.journal.nodes(execution_id)
    return any(row.retry_at is not None for row in rows.values())


async def test_the_next_generation_is_drawn_anew(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    async with drawing(play.server, execution_id) as first:
        await first.until("CR")
        (await play.stage.call("b")).fail()
        await first.to_the_end()
    assert (first.letters, first.state, first.generation) == ("CF", "FAILED", 1)
    await play.control(execution_id, "retry")
    async with drawing(play.server, execution_id) as second:
        await second.until("CR", "RUNNING")
        assert second.generation == 2
        (await play.stage.call("b")).complete(1)
        await second.to_the_end()
    assert second.letters == "CC"


async def test_a_fork_begins_with_what_it_keeps(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    (await play.stage.call("b")).complete(1)
    await play.ended(execution_id)
    forked = await play.post(f"/v1/executions/{execution_id}/fork", json={"from": ["b"]})
    async with drawing(play.server, forked.json["id"]) as drawn:
        await drawn.until("CR")
        (await play.stage.call("b")).complete(1)
        await drawn.to_the_end()
    assert drawn.letters == "CC"


@pytest.mark.parametrize(("verb", "letters"), [("cancel", "CXX"), ("pause", "CRP")])
async def test_what_is_done_to_an_execution_is_drawn(play: Play, verb: str, letters: str) -> None:
    await play.store(node("a"), node("b", "a"), node("c", "b"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("CRP")
        await play.control(execution_id, verb)
        await drawn.until(letters, {"cancel": "CANCELLED", "pause": "PAUSED"}[verb])


async def test_a_sleeping_node_is_running(play: Play) -> None:
    await play.store(node("a", handler="sleep", config={"seconds": 250}))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("R")


async def test_what_the_feed_has_missed_is_made_good_from_the_journal(play: Play) -> None:
    play.server.service.feed = play.server.engine.ports.feed = MemoryFeed(held_events=3)
    await play.store(*(echo(f"n{number}") for number in range(200)))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.to_the_end()
    assert (drawn.letters, drawn.state) == ("C" * 200, "COMPLETED")


async def test_what_the_feed_never_says_is_found_by_looking(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    play.server.service.feed = MemoryFeed()  # not the one that the engine tells
    monkeypatch.setattr(live_hub, "LOOK_SECONDS", 0.05)
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("RP")
        (await play.stage.call("a")).complete(1)
        await drawn.until("CR")
        (await play.stage.call("b")).complete(1)
        await drawn.to_the_end()
    assert drawn.letters == "CC"


async def test_while_the_store_is_away_the_states_of_the_journal_are_drawn(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    (await play.stage.call("a")).complete(1)
    await play.stage.call("b")
    monkeypatch.setattr(live_hub, "LOOK_SECONDS", 0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(play.server.engine.ports.store, "in_flight", store_away)
        async with drawing(play.server, execution_id) as drawn:
            await drawn.until("CP")
            assert not drawn.live
            patch.undo()
            await drawn.until("CR")
            assert drawn.live


async def test_a_journal_that_is_away_ends_no_stream_that_has_begun(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise JournalError("the journal is away")

    monkeypatch.setattr(live_hub, "LOOK_SECONDS", 0.05)
    await play.store(node("a"))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("R")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(play.server.engine.ports.catalog, "execution", away)
            (hub,) = play.server.service.live.values()
            looked = asyncio.Event()
            patch.setattr(hub, "_look", _after(hub._look, looked))
            await looked.wait()
        (await play.stage.call("a")).complete(1)
        await drawn.to_the_end()


def _after(look: Any, looked: asyncio.Event) -> Any:
    async def wrapped() -> None:
        try:
            await look()
        finally:
            looked.set()

    return wrapped


async def test_where_much_has_changed_a_snapshot_takes_the_place_of_changes(play: Play) -> None:
    await play.store(node("a"), *(node(f"b{number}", "a") for number in range(99)))
    execution_id = await play.start()
    call = await play.stage.call("a")
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("R" + "P" * 99)
        call.complete(1)
        before = len(drawn.frames)
        await drawn.next()
        assert drawn.frames[before:] == ["snapshot"]
        await play.control(execution_id, "cancel")
        await drawn.to_the_end()
    assert (drawn.letters, drawn.state) == ("C" + "X" * 99, "CANCELLED")
    assert drawn.frames[-3:] == ["snapshot", "changes", "end"]


async def test_no_more_than_ten_frames_a_second_are_made(play: Play) -> None:
    await play.store(*(node(f"n{number:02}") for number in range(40)))
    execution_id = await play.start()
    calls = await play.stage.calls_of([f"n{number:02}" for number in range(8)])
    async with drawing(play.server, execution_id) as drawn:
        await drawn.next()
        began = time.monotonic()
        done = 0
        while done < 40:
            for call in calls:
                call.complete(1)
            done += len(calls)
            calls = await play.stage.calls_of([f"n{number:02}" for number in range(done, min(40, done + 8))])
        await drawn.to_the_end()
        seconds = time.monotonic() - began
    frames = drawn.frames.count("changes") + drawn.frames.count("snapshot")
    assert frames <= 3 + seconds / live_hub.FRAME_SECONDS


async def test_a_hundred_viewers_share_one_hub_and_all_see_the_end(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(LiveStates):
        def __init__(self, plan: Any, row: ExecutionRow, *args: Any, **kwargs: Any) -> None:
            made.append(row.seq)
            super().__init__(plan, row, *args, **kwargs)

    monkeypatch.setattr(live_hub, "LiveStates", Counted)
    await play.store(*(node(f"n{number}") for number in range(8)))
    execution_id = await play.start()
    calls = await play.stage.calls_of([f"n{number}" for number in range(8)])
    async with AsyncExitStack() as stack:
        viewers: list[Drawing] = [
            await stack.enter_async_context(drawing(play.server, execution_id)) for _ in range(100)
        ]
        await asyncio.gather(*(viewer.until("R" * 8) for viewer in viewers))
        assert play.server.service.load.streams.in_use == 100
        assert [hub.viewers for hub in play.server.service.live.values()] == [100]
        for call in calls:
            call.complete(1)
        await asyncio.gather(*(viewer.to_the_end() for viewer in viewers))
    assert {viewer.letters for viewer in viewers} == {"C" * 8}
    assert len(made) == 1
    await until(lambda: play.server.service.load.streams.in_use == 0)
    assert not play.server.service.live


async def test_a_viewer_that_does_not_read_loses_its_place_and_holds_up_nobody(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SLOWEST_SECONDS", 0.2)
    # More than fits between the two.
    monkeypatch.setattr(live_hub, "PING", b": " + b"x" * 2**20 + b"\n\n")
    monkeypatch.setattr(live_hub, "PING_SECONDS", 0.01)
    await play.store(node("a"), *(echo(f"n{number}", "a") for number in range(100)))
    execution_id = await play.start()
    call = await play.stage.call("a")
    reader = SlowReader(play, live_of(execution_id))
    await reader.ask()
    await until(lambda: play.server.service.load.streams.in_use == 1)
    call.complete(1)
    assert (await play.ended(execution_id))["state"] == "COMPLETED"
    await until(lambda: play.server.service.load.streams.in_use == 0)
    assert not play.server.service.live
    assert (await reader.read_all()).startswith("event: snapshot")


async def test_a_viewer_that_is_far_behind_is_sent_a_snapshot_instead(play: Play) -> None:
    await play.store(node("a"), node("b", "a"))
    execution_id = await play.start()
    async with drawing(play.server, execution_id) as drawn:
        await drawn.until("RP")
        (hub,) = play.server.service.live.values()
        first = hub.number
        for _ in range(live_hub._HELD_FRAMES + 3):
            hub._publish(live_hub.PING)
        frames, last = await hub.frames_after(first)
        assert last == first + live_hub._HELD_FRAMES + 3
        assert frames.startswith(b"event: snapshot\n")
        assert re.search(rb'"dropped": ?23', frames)
        frames, _ = await hub.frames_after(last - 2)
        assert frames == live_hub.PING * 2


async def test_a_quiet_stream_says_that_it_is_there(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_hub, "PING_SECONDS", 0.05)
    await play.store(node("a"))
    execution_id = await play.start()
    await play.stage.call("a")
    async with watch(play.server, live_of(execution_id)) as stream:
        told = [await stream.next() for _ in range(4)]
    assert [one.comment for one in told if one is not None][-1] == "ping"


async def test_an_execution_that_is_not_there_cannot_be_watched(play: Play) -> None:
    check_problem(await play.get(live_of("none")), 404, "not_found")


async def test_viewers_take_the_slots_of_streams(serve: Serve) -> None:
    greedy, other = "a-key-that-is-long-enough", "b-key-that-is-long-enough"
    headers = {"Authorization": f"Bearer {greedy}"}
    async with serve(api_keys=(greedy, other)) as server:
        server.service.load.streams.limit = server.service.load.waiting.limit = 4
        nodes = [{"id": "a", "handler": "sleep", "config": {"seconds": 250}}]
        started = await server.post("/v1/executions", json={"definition": {"nodes": nodes}}, headers=headers)
        async with (
            drawing(server, started.json["id"], key=greedy),
            drawing(server, started.json["id"], key=greedy),
        ):
            check_problem(await server.get(live_of(started.json["id"]), headers=headers), 503, "overloaded")
            async with watch(server, live_of(started.json["id"]), key=other) as stream:
                assert stream.status in (200, 404)
            server.service.stopping.set()


async def test_a_server_that_stops_ends_its_viewers(play: Play) -> None:
    await play.store(node("a"))
    execution_id = await play.start()
    async with watch(play.server, live_of(execution_id)) as stream:
        await stream.event()
        play.server.service.stopping.set()
        assert "end" not in [told.type for told in await stream.rest()]
    assert not play.server.service.live
