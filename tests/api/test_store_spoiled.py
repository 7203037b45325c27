"""A fleet whose keys in Redis somebody deletes, or replaces by keys of other types, while it works."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import redis as redis_py
from tests.support.hold.handler import HANDLER

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.cli.doctor.finding import Health
from weft.cli.doctor.servers import examine_servers
from weft.core.state import ExecutionState
from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.journal.postgres.schema import migrate
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.support.servers.redis import RedisServer

    from weft.api.service import Service

    Open = Callable[..., AbstractAsyncContextManager["Client"]]

PATIENCE_SECONDS = 60.0
RESULTS = "weft:{p0}:results"
TASKS = "weft:{p0}:tasks:hold|hold|1"


@pytest.fixture
def keys(private_redis: RedisServer) -> redis_py.Redis:
    return redis_py.Redis.from_url(private_redis.url)


@pytest.fixture
def settings(private_redis: RedisServer, postgres_url: str) -> Settings:
    return Settings(
        redis_url=private_redis.url,
        database_url=postgres_url,
        orchestrator_sweep_interval_seconds=0.2,
        worker_heartbeat_interval_seconds=0.2,
        worker_heartbeat_timeout_seconds=3.0,
        reaper_idle_timeout_seconds=3.0,
        worker_grace_seconds=0,
        max_backlog=20,
    )


@pytest.fixture
def open_client(settings: Settings) -> Open:
    """Have an API, an orchestrator and a worker in this process, and a client of the API."""

    @asynccontextmanager
    async def opened(**given: Any) -> AsyncIterator[Client]:
        assert settings.database_url is not None
        await migrate(settings.database_url)
        bound = bind("127.0.0.1", 0)
        async with Fleet(replace(settings, **given), registry=Registry([HANDLER])) as fleet:
            await fleet.started()
            service = serve_engine(fleet, Registry([HANDLER]), is_shared=True)
            async with (
                listening(create_app(service), bound),
                aiohttp.ClientSession(url_of(bound)) as session,
            ):
                yield Client(session, service)

    return opened


def naps(count: int, seconds: float) -> dict[str, Any]:
    """A chain of naps: each is a task, and each leads to the next."""
    nodes: list[dict[str, Any]] = [
        {"id": f"n{number}", "handler": "hold", "config": {"seconds": seconds}} for number in range(count)
    ]
    for before, after in itertools.pairwise(nodes):
        after["dependencies"] = [before["id"]]
    return {"definition": {"nodes": nodes}}


async def until(is_true: Callable[[], Any]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_true():  # noqa: ASYNC110 - it is Redis that is looked at, and nobody tells
            await asyncio.sleep(0.02)


class Client:
    """A client of the API of a fleet."""

    def __init__(self, session: aiohttp.ClientSession, service: Service) -> None:
        self._session = session
        self._service = service

    async def submit(self, body: dict[str, Any]) -> tuple[int, Any]:
        async with self._session.post("/v1/executions", json=body) as response:
            return response.status, await response.json(content_type=None)

    async def start(self, count: int, body: dict[str, Any]) -> list[str]:
        answers = [await self.submit(body) for _ in range(count)]
        assert {status for status, _ in answers} == {202}, answers
        return [answer["id"] for _, answer in answers]

    async def readiness(self) -> tuple[int, str]:
        async with self._session.get("/readyz") as response:
            body = await response.json()
            return response.status, body["checks"]["store"]["message"]

    async def complete(self, ids: list[str]) -> None:
        """Return once executions are completed; fail where one ends otherwise."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            for name in ids:
                row = None
                while row is None or not row.is_terminal:
                    row = await self._service.ports.journal.execution(name)
                    await asyncio.sleep(0.02)
                assert row.state is ExecutionState.COMPLETED


async def test_one_bad_hash_stops_no_other_execution_and_its_own_goes_on(
    open_client: Open, keys: redis_py.Redis
) -> None:
    async with open_client() as client:
        ids = await client.start(6, naps(3, 0.3))
        keys.set(f"weft:{{p0}}:x:{ids[2]}", "garbage")
        await client.complete(ids)


async def test_submits_are_admitted_after_hashes_were_lost_and_rebuilt(
    open_client: Open, keys: redis_py.Redis
) -> None:
    async with open_client() as client:
        (lost,) = await client.start(1, naps(6, 600))
        key = f"weft:{{p0}}:x:{lost}"
        for _ in range(4):
            keys.delete(key)
            # Rebuilt by the sweep.
            await until(lambda: keys.exists(key))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.submit(naps(2, 0)))[0] != 202:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert int(keys.get("weft:{p0}:unsettled") or 0) <= 8


@pytest.mark.parametrize("stream", [TASKS, RESULTS])
async def test_a_deleted_stream_is_made_anew_and_what_was_in_it_is_done_again(
    open_client: Open, keys: redis_py.Redis, stream: str
) -> None:
    async with open_client(worker_concurrency=1) as client:
        # One nap runs, the others wait in the stream of tasks.
        ids = await client.start(4, naps(2, 0.5))
        await until(lambda: keys.xlen(TASKS) > 1)
        keys.delete(stream)
        await client.complete(ids)
        assert (await client.readiness())[0] == 200


@pytest.mark.parametrize("stream", [TASKS, RESULTS])
async def test_a_stream_that_was_replaced_is_named_and_all_goes_on_once_the_key_is_deleted(
    open_client: Open, keys: redis_py.Redis, settings: Settings, stream: str
) -> None:
    async with open_client() as client:
        ids = await client.start(4, naps(2, 0.5))
        await until(lambda: keys.exists(TASKS))
        keys.set(stream, "garbage")
        status, message = await client.readiness()
        assert status == 503
        assert f"the key {stream} in Redis is a string, and weft keeps a stream there" in message
        assert f"redis-cli DEL '{stream}'" in message
        findings = await asyncio.to_thread(examine_servers, settings)
        (found,) = [one for one in findings if one.health is Health.FAIL]
        assert stream in found.message
        assert found.advice is not None
        assert "DEL" in found.advice
        # A submit is accepted, as it is while Redis is away.
        ids += await client.start(1, naps(1, 0))
        keys.delete(stream)
        await client.complete(ids)
        assert (await client.readiness())[0] == 200
