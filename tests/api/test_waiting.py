"""Waiting for an end: never too long, and cheap for many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.walks.stage import PATIENCE_SECONDS, Stage, fails, node, workflow

from weft.api import waiting
from weft.api.service import Service, serve_engine
from weft.api.waiting import unless, wait_for_end
from weft.errors import NotFoundError
from weft.feed.memory import MemoryFeed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# Nothing here takes so long: what waits for it is stopped.
LONG = 3600.0


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "data")


@pytest.fixture
async def service(stage: Stage) -> AsyncIterator[Service]:
    async with stage.open() as engine:
        yield serve_engine(engine, stage.registry)


async def test_what_has_ended_is_not_waited_for(stage: Stage, service: Service) -> None:
    execution_id = await stage.submit(workflow(fails("a")))
    await stage.ended(execution_id)
    assert await wait_for_end(service, execution_id, 0)


@pytest.mark.parametrize("way", ["complete", "fail", "cancel"])
async def test_every_end_is_an_end(stage: Stage, service: Service, way: str) -> None:
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    waits = asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS))
    await asyncio.sleep(0)
    if way == "cancel":
        await stage.engine.cancel(execution_id)
    elif way == "fail":
        call.fail()
    else:
        call.complete(1)
    assert await waits


async def test_the_time_limit_holds(stage: Stage, service: Service) -> None:
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    assert not await wait_for_end(service, execution_id, 0)
    assert not await wait_for_end(service, execution_id, 0.01)
    call.complete(1)


async def test_an_execution_that_is_not_there_cannot_be_waited_for(service: Service) -> None:
    with pytest.raises(NotFoundError):
        await wait_for_end(service, "none", 1)


async def test_an_end_between_looking_and_listening_is_not_missed(stage: Stage, service: Service) -> None:
    # Many starts of a wait around the moment of the end: whatever comes first, none of them waits for long.
    for _ in range(10):
        execution_id = await stage.submit(workflow(node("a")))
        call = await stage.call("a", execution_id)
        waits = []
        for turn in range(40):
            if turn == 5:
                call.complete(1)
            waits.append(asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS)))
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE_SECONDS / 2):
            assert all(await asyncio.gather(*waits))


async def test_an_end_that_the_feed_does_not_tell_is_found_all_the_same(
    stage: Stage, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)
    service.feed = MemoryFeed()  # nobody tells it anything
    execution_id = await stage.submit(workflow(node("a")))
    waits = asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS))
    (await stage.call("a")).complete(1)
    assert await waits


async def test_waiting_ends_when_the_server_stops(stage: Stage, service: Service) -> None:
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    waits = asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS))
    await asyncio.sleep(0)
    service.stopping.set()
    assert not await waits
    # What comes later does not wait at all, and still says what is so.
    assert not await wait_for_end(service, execution_id, PATIENCE_SECONDS)
    call.complete(1)


async def test_those_who_wait_cost_the_nodes_nothing(stage: Stage, service: Service) -> None:
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    waits = [asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS)) for _ in range(2000)]
    await asyncio.sleep(0)
    assert not service.feed.has_subscriber(execution_id)
    call.complete(1)
    assert all(await asyncio.gather(*waits))


async def test_one_who_gives_up_leaves_nothing_behind(stage: Stage, service: Service) -> None:
    feed = MemoryFeed()
    service.feed = feed
    execution_id = await stage.submit(workflow(node("a")))
    call = await stage.call("a")
    waits = asyncio.create_task(wait_for_end(service, execution_id, PATIENCE_SECONDS))
    while not feed._of_execution:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert not feed._of_execution
    call.complete(1)


async def test_what_is_done_unless_something_else_happens_is_stopped_by_it() -> None:
    stopped = asyncio.Event()

    async def for_ever() -> int:
        try:
            await asyncio.sleep(LONG)
        finally:
            stopped.set()
        return 1

    assert await unless(for_ever(), asyncio.sleep(0)) is None
    assert stopped.is_set()


async def test_what_ends_by_itself_gives_what_it_gave_or_raised() -> None:
    async def gives() -> int:
        return 7

    async def raises() -> int:
        raise ValueError("no")

    assert await unless(gives(), asyncio.sleep(LONG)) == 7
    with pytest.raises(ValueError, match="no"):
        await unless(raises(), asyncio.sleep(LONG))
