"""An execution as it changes, drawn by a process that has no share in the work: Redis and PostgreSQL."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.api.conftest import Server
from tests.api.live import drawing
from tests.walks.stage import PATIENCE_SECONDS, Stage, node, workflow

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.fleet import Fleet
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.registry import Registry
from weft.journal.postgres.schema import migrate
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.support.servers.redis import RedisServer

    Open = Callable[[], AbstractAsyncContextManager[Server]]


@pytest.fixture
def stage() -> Stage:
    return Stage(None)


@pytest.fixture
def open_fleet(private_redis: RedisServer, postgres_url: str, stage: Stage) -> Open:
    """Have an API in one member of a fleet, and the orchestrator and the worker in another."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Server]:
        await migrate(postgres_url)
        settings = Settings(
            redis_url=private_redis.url,
            database_url=postgres_url,
            worker_grace_seconds=0,
            worker_heartbeat_interval_seconds=0.2,
            orchestrator_sweep_interval_seconds=0.5,
        )
        # On the worker's loop: a user's function would run in a child process.
        registry = Registry([Handler("held", HandlerKind.NATIVE, stage._held)])
        bound = bind("127.0.0.1", 0)
        url = url_of(bound)
        async with (
            Fleet(settings, registry=registry) as working,
            Fleet(settings, registry=registry, roles=()) as shown,
        ):
            await working.started()
            await shown.started()
            service = serve_engine(shown, registry, is_shared=True)
            async with listening(create_app(service), bound), aiohttp.ClientSession() as session:
                yield Server(url, session, shown, service)  # type: ignore[arg-type]
                service.stopping.set()

    return opened


async def start(server: Server, *nodes: Any) -> str:
    answer = await server.post("/v1/executions", json={"definition": workflow(*nodes)})
    assert answer.status == 202, answer.json
    return str(answer.json["id"])


async def test_viewers_draw_what_other_processes_do(open_fleet: Open, stage: Stage) -> None:
    async with open_fleet() as server, AsyncExitStack() as stack:
        execution_id = await start(server, node("a"), node("b", "a"), node("c", "a"))
        call = await stage.call("a")
        viewers = [await stack.enter_async_context(drawing(server, execution_id)) for _ in range(10)]
        for viewer in viewers:
            await viewer.until("RPP")
        call.complete(1)
        for viewer in viewers:
            await viewer.until("CRR")
        async with drawing(server, execution_id) as late:
            await late.next()
            assert late.letters == "CRR"
        for call in await stage.calls_of(["b", "c"]):
            call.complete(1)
        for viewer in viewers:
            await viewer.to_the_end()
            assert (viewer.letters, viewer.state) == ("CCC", "COMPLETED")


async def test_a_retry_and_its_delay_are_drawn(open_fleet: Open, stage: Stage) -> None:
    async with open_fleet() as server:
        delay = {"base_delay_seconds": 0.5, "jitter": 0}
        execution_id = await start(server, node("a", max_retries=1, retry=delay))
        call = await stage.call("a")
        async with drawing(server, execution_id) as drawn:
            await drawn.until("R")
            call.fail(ValueError("once"))
            await drawn.until("T")
            await drawn.until("R")
            (await stage.call("a")).complete(1)
            await drawn.to_the_end()


async def test_after_a_flush_of_redis_the_drawing_is_what_is(
    open_fleet: Open, stage: Stage, private_redis: RedisServer
) -> None:
    async with open_fleet() as server:
        execution_id = await start(server, node("a"), node("b", "a"), node("c", "b"))
        (await stage.call("a")).complete(1)
        call = await stage.call("b")
        async with drawing(server, execution_id) as drawn:
            await drawn.until("CRP")
            private_redis.execute("FLUSHALL")
            call.complete(1)
            (await stage.call("c")).complete(1)
            await drawn.to_the_end()
            assert (drawn.letters, drawn.state) == ("CCC", "COMPLETED")


async def test_while_redis_is_away_it_is_said_and_the_journal_is_shown(
    open_fleet: Open, stage: Stage, private_redis: RedisServer
) -> None:
    async with open_fleet() as server:
        execution_id = await start(server, node("a"), node("b", "a"))
        (await stage.call("a")).complete(1)
        call = await stage.call("b")
        async with drawing(server, execution_id) as drawn:
            await drawn.until("CR")
            private_redis.stop()
            async with asyncio.timeout(PATIENCE_SECONDS):
                while drawn.live:
                    assert await drawn.next()
            assert drawn.letters == "CR"
            async with drawing(server, execution_id) as late:
                await late.next()
                assert (late.letters[0], late.live) == ("C", False)
            private_redis.start()
            call.complete(1)
            await drawn.to_the_end()
            assert drawn.letters == "CC"


async def test_a_hub_that_has_no_viewer_any_more_listens_no_longer(open_fleet: Open, stage: Stage) -> None:
    async with open_fleet() as server:
        execution_id = await start(server, node("a"))
        call = await stage.call("a")
        async with drawing(server, execution_id) as drawn:
            await drawn.until("R")
            assert list(server.service.live) == [execution_id]
            call.complete(1)
            await drawn.to_the_end()
        assert server.service.live == {}


async def test_the_timeline_has_what_runs_in_other_processes(open_fleet: Open, stage: Stage) -> None:
    async with open_fleet() as server:
        nodes = [node("a", max_retries=1), node("b", "a")]
        stored = await server.post("/v1/workflows", json=workflow(*nodes))
        assert stored.status == 201, stored.json
        ids = []
        for _ in range(2):
            started = await server.post("/v1/workflows/walk/executions", json={})
            ids.append(started.json["id"])
            (await stage.call("a")).fail(ValueError("once"))
            (await stage.call("a")).complete(1)
            if len(ids) == 1:
                (await stage.call("b")).complete(1)
                assert (await server.get(f"/v1/executions/{ids[0]}?wait=20")).json["state"] == "COMPLETED"
        await stage.call("b")
        first, second = [(await server.get(f"/v1/executions/{one}/timeline")).json for one in ids]
        columns = first["attempts"]
        bars = sorted(zip(columns["node"], columns["number"], columns["outcome"], strict=True))
        assert bars == [(0, 1, "F"), (0, 2, "C"), (1, 1, "C")]
        assert [step["node"] for step in first["critical_path"]] == ["a", "b"]
        columns = second["attempts"]
        place = columns["node"].index(1)
        assert columns["started"][place] is not None
        assert (columns["outcome"][place], columns["finished"][place]) == (None, None)
        assert second["workers"][columns["worker"][place]]
        assert (second["expected"]["samples"], second["expected"]["deciding"]) == (1, ["b"])
