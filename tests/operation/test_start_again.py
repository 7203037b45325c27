"""A fleet whose servers fail while it takes up its roles: it tries again, and has each loop once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import redis as redis_py
from tests.support.fault_proxy import FaultProxy

from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.orchestrator.service import COLLECTORS
from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers.redis import RedisServer

PATIENCE_SECONDS = 30.0


class Servers:
    """Redis and PostgreSQL behind proxies."""

    def __init__(self, redis: FaultProxy, postgres: FaultProxy, redis_url: str) -> None:
        self.redis = redis
        self.postgres = postgres
        self.client: Any = redis_py.Redis.from_url(redis_url)

    def fleet(self) -> Fleet:
        given = Settings(
            redis_url=self.redis.url,
            database_url=self.postgres.url,
            worker_grace_seconds=0,
            worker_heartbeat_interval_seconds=0.2,
        )
        return Fleet(given, registry=Registry(), roles={"orchestrator", "worker"})


@pytest.fixture
def servers(private_redis: RedisServer, journal_url: str) -> Iterator[Servers]:
    with ExitStack() as ends:
        redis = ends.enter_context(FaultProxy(private_redis.url))
        postgres = ends.enter_context(FaultProxy(journal_url))
        yield Servers(redis, postgres, private_redis.url)


def loops() -> Counter[str]:
    """Count the loops of orchestrators and workers that run here, and the threads of heartbeats."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    counted = Counter(name for name in names if name.startswith(("Orchestrator._", "Worker._")))
    counted["heartbeat"] = sum(thread.name == "weft-heart" for thread in threading.enumerate())
    return counted


def assert_each_is_there_once(found: Counter[str]) -> None:
    assert found.pop("Orchestrator._collecting") == COLLECTORS
    assert {"Orchestrator._sweeping", "Worker._fetching", "Worker._reporting", "heartbeat"} <= found.keys()
    assert set(found.values()) == {1}


async def until_waiting(fleet: Fleet, server: str) -> None:
    """Return once the fleet says that a server is in its way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while fleet.faults()[server] is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.01)


async def test_what_a_worker_is_described_in_cannot_be_written(servers: Servers) -> None:
    """The error is none of a server that is away: the start was repeated for it, and failed for ever."""
    async with servers.fleet() as fleet:
        # A fleet that was never open has not written this key.
        key = fleet.ports.store._redis.partitions[0].workers  # type: ignore[attr-defined]
        servers.client.set(key, "of another type")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await fleet.started()
        assert_each_is_there_once(loops())
        servers.client.delete(key)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await fleet.ports.store.workers():  # noqa: ASYNC110 - a heartbeat writes it
                await asyncio.sleep(0.05)
        assert fleet.faults() == dict.fromkeys(("journal", "store", "orchestrator", "worker"))
    assert not loops().total()


async def test_postgres_is_away_when_the_orchestrator_starts(servers: Servers) -> None:
    servers.redis.refuse()
    async with servers.fleet() as fleet:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while fleet.faults()["journal"] is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        servers.postgres.refuse()
        servers.postgres.reset()
        servers.redis.heal()
        await until_waiting(fleet, "journal")
        assert not loops().total()
        servers.postgres.heal()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await fleet.started()
        assert_each_is_there_once(loops())
    assert not loops().total()


async def test_a_fleet_that_is_stopped_while_it_opens_leaves_no_loop(servers: Servers) -> None:
    """Redis falls silent after the loops have started and before the worker is announced."""
    async with servers.fleet() as fleet:
        assert fleet.worker is not None
        announcing, announce = asyncio.Event(), fleet.worker.announce

        async def announced() -> None:
            announcing.set()
            servers.redis.blackhole()
            await announce()

        fleet.worker.announce = announced  # type: ignore[method-assign]
        async with asyncio.timeout(PATIENCE_SECONDS):
            await announcing.wait()
        assert not fleet._opened.is_set()
        servers.redis.heal()
        await fleet.drain()
        assert not loops().total()
