"""Fleets for tests: a Redis of its own for each, and a copy of one migrated database."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING

import pytest
from tests.celery.conftest import celery_fleets as celery_fleets
from tests.fleet.harness import RunningFleet
from tests.support.servers.redis import RedisServer

from weft.journal.postgres.schema import migrate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from contextlib import AbstractAsyncContextManager
    from typing import Protocol

    from tests.support.servers.postgres import PostgresServer

    class Fleets(Protocol):
        """Have a fleet without members yet; the settings are for all of them."""

        def __call__(self, **settings: str) -> AbstractAsyncContextManager[RunningFleet]: ...


_NUMBERS = count(1)


@pytest.fixture(scope="session")
def migrated(postgres_server: PostgresServer) -> Iterator[str]:
    """Name a database with the current schema, to be copied."""
    name = f"weft_migrated_{os.getpid()}"
    asyncio.run(migrate(postgres_server.create_database(name)))
    yield name
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def fleets(
    postgres_server: PostgresServer, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> Fleets:
    """Return a way to have fleets, each with a Redis and a database of its own."""

    @asynccontextmanager
    async def fleet(**settings: str) -> AsyncIterator[RunningFleet]:
        name = f"weft_fleet_{os.getpid()}_{next(_NUMBERS)}"
        database_url = postgres_server.create_database(name, template=migrated)
        folder = tmp_path_factory.mktemp("fleet")
        try:
            with RedisServer() as server:
                async with RunningFleet(server.url, database_url, folder, settings=settings) as running:
                    yield running
        finally:
            postgres_server.drop_database(name)

    return fleet
