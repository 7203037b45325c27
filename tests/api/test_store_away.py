"""The API of a fleet while Redis is away: what it knew counts, and nothing is refused or let in for that."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from tests.api.test_auth import KEYS, call

from weft.api.app import create_app
from weft.api.server import bind, listening, url_of
from weft.api.service import serve_engine
from weft.errors import StoreError
from weft.fleet import Fleet
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.registry import Registry
from weft.journal.postgres.schema import migrate
from weft.settings import RateLimit, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from tests.support.servers.redis import RedisServer

    from weft.api.service import Service

    Open = Callable[..., AbstractAsyncContextManager[Service]]


@pytest.fixture
def open_service(private_redis: RedisServer, postgres_url: str) -> Open:
    """Have the API of a fleet whose worker has a handler that the API does not have."""

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[Service]:
        await migrate(postgres_url)
        registry = Registry()

        async def mine(config: Any, context: Any) -> None: ...

        registry.add(Handler("mine", HandlerKind.USER, mine))
        given = Settings(
            redis_url=private_redis.url, database_url=postgres_url, worker_grace_seconds=0, **settings
        )
        async with Fleet(given, registry=registry) as fleet:
            await fleet.started()
            yield serve_engine(fleet, Registry(), is_shared=True)

    return opened


def naps(count: int) -> dict[str, Any]:
    return {
        "definition": {
            "nodes": [{"id": f"n{n}", "handler": "sleep", "config": {"seconds": 60}} for n in range(count)]
        }
    }


async def post(service: Service, path: str, body: Any) -> tuple[int, Any]:
    bound = bind("127.0.0.1", 0)
    url = url_of(bound)
    async with (
        listening(create_app(service), bound),
        aiohttp.ClientSession(url) as session,
        session.post(path, json=body) as response,
    ):
        return response.status, await response.json(content_type=None)


async def test_each_process_counts_requests_for_itself(
    open_service: Open, private_redis: RedisServer
) -> None:
    async with open_service(api_rate_limit=RateLimit(3, 3600.0), api_keys=KEYS) as service:
        app = create_app(service)
        assert [(await call(app))[0] for _ in range(4)] == [200, 200, 200, 429]
        private_redis.stop()
        assert [(await call(app))[0] for _ in range(4)] == [200, 200, 200, 429]
        private_redis.start()


async def test_the_backlog_goes_on_from_what_was_known(
    open_service: Open, private_redis: RedisServer
) -> None:
    async with open_service(max_backlog=5) as service:
        assert (await post(service, "/v1/executions", naps(3)))[0] == 202
        assert await service.ports.store.backlog() == 3
        private_redis.stop()
        with pytest.raises(StoreError):
            await service.ports.store.backlog()
        status, problem = await post(service, "/v1/executions", naps(3))
        assert (status, problem["code"]) == (503, "overloaded")
        status, accepted = await post(service, "/v1/executions", naps(2))
        assert (status, accepted["live"]) == (202, False)
        assert (await post(service, "/v1/executions", naps(1)))[0] == 503
        private_redis.start()


async def test_handlers_that_workers_had_announced_are_known_still(
    open_service: Open, private_redis: RedisServer
) -> None:
    definition = {"name": "flow", "nodes": [{"id": "a", "handler": "mine"}]}
    async with open_service() as service:
        assert (await post(service, "/v1/workflows/validate", definition))[1]["valid"] is True
        private_redis.stop()
        assert (await post(service, "/v1/workflows/validate", definition))[1]["valid"] is True
        # One that has not heard of them goes by its own.
        service.announced = frozenset()
        _, answer = await post(service, "/v1/workflows/validate", definition)
        assert answer["valid"] is False
        assert "'mine'" in answer["problems"][0]["message"]
        private_redis.start()


async def test_all_who_wait_together_ask_the_journal_a_bounded_number_of_times(open_service: Open) -> None:
    async with open_service() as service:
        assert service.look_seconds(15.0) == 1.0
        service.load.waiting.in_use = 1000
        assert service.look_seconds(15.0) == 5.0
        service.load.waiting.in_use = 10_000
        assert service.look_seconds(15.0) == 15.0
        service.is_shared = False
        assert service.look_seconds(15.0) == 15.0
