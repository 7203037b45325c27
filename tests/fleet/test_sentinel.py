"""A fleet on a Redis that Sentinels watch: its master dies under load, and the replica takes over."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import redis
from tests.fleet.harness import RunningFleet, left_in
from tests.operation.calling import calling, layered
from tests.support.servers.redis_sentinels import RedisSentinels

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.servers.postgres import PostgresServer

GRAPH = layered(4, 4)
EXECUTIONS = 12
# Each call takes so long: when the master dies, a part of them is under way.
CALL_SECONDS = 0.05


class SentinelFleet(RunningFleet):
    def __init__(self, sentinels: RedisSentinels, database_url: str, folder: Path) -> None:
        settings = {"WEFT_REDIS_URL": sentinels.url, "WEFT_WORKER_HEARTBEAT_TIMEOUT": "5"}
        super().__init__(sentinels.master.url, database_url, folder, settings=settings)
        self.sentinels = sentinels

    def left(self) -> dict[str, Any]:
        with redis.Redis.from_url(self.sentinels.master.url, socket_timeout=10) as client:
            return left_in(client)


async def submit(fleet: RunningFleet) -> list[str]:
    definition = {"nodes": calling(GRAPH, fleet.service.url)}
    return list(await asyncio.gather(*(fleet.api.start(definition) for _ in range(EXECUTIONS))))


async def test_executions_go_on_where_the_replica_has_taken_over(
    postgres_server: PostgresServer, migrated: str, tmp_path: Path
) -> None:
    name = f"weft_sentinel_{os.getpid()}"
    database_url = postgres_server.create_database(name, template=migrated)
    try:
        with RedisSentinels() as sentinels:
            first, replica = sentinels.servers
            async with SentinelFleet(sentinels, database_url, tmp_path) as fleet:
                await fleet.start("--concurrency", "32", orchestrators=2, workers=2)
                fleet.service.delay_seconds = CALL_SECONDS
                executions = await submit(fleet)
                await fleet.service.came(2 * EXECUTIONS)
                await asyncio.to_thread(first.kill)
                # Accepted while there is no master, and started by the next one.
                executions += await submit(fleet)
                fleet.service.delay_seconds = 0
                shown = await fleet.check(*executions, graph=GRAPH, faults=1)
                assert {execution["state"] for execution in shown} == {"COMPLETED"}
                assert sentinels.master is replica
                wiped = [
                    line for one in fleet.members for line in one.log if line.get("event") == "store.wiped"
                ]
                assert wiped
                # What comes back is a replica, and changes nothing.
                await asyncio.to_thread(first.start)
                await fleet.check(*await submit(fleet), graph=GRAPH)
    finally:
        postgres_server.drop_database(name)
