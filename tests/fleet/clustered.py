"""A fleet on a Redis Cluster, with its partitions spread over the servers."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import redis
from tests.fleet.harness import RunningFleet, left_in

from weft.core.rows import partition_of
from weft.redis.slots import slot_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.servers.postgres import PostgresServer
    from tests.support.servers.redis import RedisServer
    from tests.support.servers.redis_cluster import RedisCluster

PARTITIONS = 8

_NUMBERS = count(1)


class ClusterFleet(RunningFleet):
    def __init__(self, cluster: RedisCluster, database_url: str, folder: Path, **settings: str) -> None:
        partitions = {"WEFT_PARTITIONS": str(PARTITIONS)}
        super().__init__(cluster.url, database_url, folder, settings={**partitions, **settings})
        self.cluster = cluster

    def server_of(self, partition: int) -> RedisServer:
        return self.cluster.owner_of(slot_of(f"p{partition}"))

    def partitions_on(self, server: RedisServer) -> set[int]:
        return {number for number in range(PARTITIONS) if self.server_of(number) is server}

    def move(self, partition: int) -> None:
        """Move a partition to the next server."""
        owners = self.cluster.owners
        to = owners[(owners.index(self.server_of(partition)) + 1) % len(owners)]
        self.cluster.move(slot_of(f"p{partition}"), to=to)

    def left(self) -> dict[str, Any]:
        left: dict[str, Any] = {}
        for server in self.cluster.owners:
            with redis.Redis.from_url(server.url, socket_timeout=10) as client:
                left |= left_in(client)
        return left


def of_partitions(executions: list[str], partitions: set[int]) -> list[str]:
    """Return those of executions that lie in some partitions."""
    return [one for one in executions if partition_of(one, PARTITIONS) in partitions]


@asynccontextmanager
async def cluster_fleet(
    cluster: RedisCluster, postgres_server: PostgresServer, migrated: str, folder: Path, **settings: str
) -> AsyncIterator[ClusterFleet]:
    """Have a fleet without members yet, on a copy of a migrated database."""
    name = f"weft_cluster_{os.getpid()}_{next(_NUMBERS)}"
    database_url = postgres_server.create_database(name, template=migrated)
    try:
        async with ClusterFleet(cluster, database_url, folder, **settings) as running:
            yield running
    finally:
        postgres_server.drop_database(name)
