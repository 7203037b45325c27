"""A fleet each of whose roles has a proxy of its own before Redis, which can be ended at any time."""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from tests.fleet.harness import RunningFleet
from tests.support.fault_proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fleet.harness import Member
    from tests.support.servers.postgres import PostgresServer
    from tests.support.servers.redis import RedisServer

ROLES = ("api", "orchestrator", "worker")

_NUMBERS = count(1)


class ProxiedFleet(RunningFleet):
    """The test itself reaches Redis directly; a member goes through the proxy of its role."""

    def __init__(self, server: RedisServer, database_url: str, folder: Path, **settings: str) -> None:
        super().__init__(server.url, database_url, folder, settings=settings)
        self.server = server
        self.proxies = {role: FaultProxy(server.url) for role in ROLES}

    async def __aenter__(self) -> Self:
        for proxy in self.proxies.values():
            self._ends.enter_context(proxy)
        return await super().__aenter__()

    async def launch(self, role: str, *flags: str, **options: Any) -> Member:
        return await super().launch(role, *flags, **{"redis_url": self.proxies[role].url, **options})

    @property
    def orchestrator(self) -> Member:
        (member,) = self.having("orchestrator")
        return member

    @property
    def worker(self) -> Member:
        (member,) = self.having("worker")
        return member

    def entries(self, stream: str) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Return what is in a stream."""
        return self.redis.xrange(stream)  # type: ignore[return-value]

    def lose_data(self) -> None:
        """Remove what Redis, which does not run now, has on its disk."""
        for entry in self.server.controlled.folder.iterdir():
            if entry.name.startswith(("appendonly", "dump")):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@asynccontextmanager
async def proxied_fleet(
    server: RedisServer, postgres_server: PostgresServer, migrated: str, folder: Path, **settings: str
) -> AsyncIterator[ProxiedFleet]:
    """Have a fleet without members yet, on a copy of a migrated database."""
    name = f"weft_proxied_{os.getpid()}_{next(_NUMBERS)}"
    database_url = postgres_server.create_database(name, template=migrated)
    try:
        async with ProxiedFleet(server, database_url, folder, **settings) as running:
            yield running
    finally:
        postgres_server.drop_database(name)
