"""A store on a real Redis, and executions that walk through it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from weft.clock import VirtualClock
from weft.redis.connection import Redis
from weft.store.contract import StoreOptions
from weft.store.redis import RedisStore
from weft.testing.walk import Walk, workflow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from weft.core.payload import Json
    from weft.definition.plan import Plan


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    redis = Redis(redis_url)
    yield redis
    await redis.close()


@pytest.fixture
def walks() -> list[Walk]:
    """The walks of a test: the store asks their plans and journals."""
    return []


@pytest.fixture
def new_store(clock: VirtualClock, walks: list[Walk]) -> Callable[..., RedisStore]:
    """Make a store, as another process would have it."""
    ids = count(1)

    async def plan(digest: str) -> Plan | None:
        return next((walk.plan for walk in walks if walk.plan.digest == digest), None)

    def made(redis: Redis, **settings: Any) -> RedisStore:
        given: dict[str, Any] = {
            "now": clock.now,
            **{name: settings.pop(name) for name in ("now", "joint") if name in settings},
        }
        return RedisStore(
            redis,
            plans=plan,
            new_id=lambda: f"incarnation-{next(ids)}",
            options=StoreOptions(**settings),
            **given,
        )

    return made


@pytest.fixture
def store(redis: Redis, new_store: Callable[..., RedisStore]) -> RedisStore:
    return new_store(redis)


@pytest.fixture
def new_walk(store: RedisStore, clock: VirtualClock, walks: list[Walk]) -> Callable[..., Walk]:
    def made(*nodes: Json, **fields: Any) -> Walk:
        own: dict[str, Any] = {"store": store, "clock": clock}
        own |= {name: fields.pop(name) for name in ("store", "execution_id", "input") if name in fields}
        walks.append(Walk(workflow(*nodes, **fields), **own))
        return walks[-1]

    return made
