"""Fleets whose workers are Celery's."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.celery.harness import celery_fleet

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from typing import Protocol

    from tests.celery.harness import CeleryFleet
    from tests.support.servers.postgres import PostgresServer

    class CeleryFleets(Protocol):
        def __call__(self, broker: str) -> AbstractAsyncContextManager[CeleryFleet]: ...


@pytest.fixture(scope="session")
def celery_fleets(
    postgres_server: PostgresServer,
    migrated_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> CeleryFleets:
    """Return a way to have fleets on a broker of a kind: ``redis`` or ``rabbitmq``."""

    @asynccontextmanager
    async def fleet(broker: str) -> AsyncIterator[CeleryFleet]:
        url = None if broker == "redis" else request.getfixturevalue("rabbitmq_server").url
        folder = tmp_path_factory.mktemp("celery")
        async with celery_fleet(postgres_server, migrated_database, folder, broker_url=url) as running:
            yield running

    return fleet
