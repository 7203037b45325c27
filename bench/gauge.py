"""What a fleet holds at a moment: on Redis, in PostgreSQL, and in its processes.

It asks on connections of its own, which it keeps and leaves out of the count.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import asyncpg
from redis.asyncio import Redis

from bench.server import children, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.fleet import RunningFleet

# What is left of an execution that has ended: a tombstone, for a while.
TOMBSTONE = re.compile(rb"weft:\{p\d+\}:x:.*")
_PAGE = 5_000

_TABLES = """
    SELECT relname, pg_total_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'weft'::regnamespace
"""
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'weft' AND pid <> pg_backend_pid()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was held at a time, in seconds since the first."""

    at: float
    redis_bytes: int
    keys: int
    redis_connections: int
    # By their keys.
    lengths: Mapping[str, int]
    pending: Mapping[str, int]
    # By their tables; rows only where they were counted.
    table_bytes: Mapping[str, int]
    rows: Mapping[str, int]
    postgres_connections: int
    # By the roles of the processes.
    memory: Mapping[str, int]
    # Of keys that are no tombstones; only where they were counted.
    other_keys: int = 0

    @property
    def entries(self) -> int:
        return sum(self.lengths.values())

    @property
    def all_pending(self) -> int:
        return sum(self.pending.values())

    @property
    def all_rows(self) -> int:
        return sum(self.rows.values())

    @property
    def database_bytes(self) -> int:
        return sum(self.table_bytes.values())


@dataclass(slots=True)
class Gauge:
    fleet: RunningFleet
    redis: Redis = field(init=False)
    postgres: Any = field(init=False)
    begun: float = field(default_factory=time.perf_counter)

    async def __aenter__(self) -> Self:
        self.redis = Redis.from_url(self.fleet.redis.url, single_connection_client=True)
        self.postgres = await asyncpg.connect(self.fleet.postgres.url_of("weft"))
        await self.redis.ping()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.redis.aclose()
        await self.postgres.close()

    async def look(self, *, whole: bool) -> Sample:
        """``whole``: with what is counted one by one, the rows and the keys; where nobody waits for it."""
        memory = await self.redis.info("memory")
        clients = await self.redis.info("clients")
        lengths, pending = await self._streams()
        tables = dict(await self.postgres.fetch(_TABLES))
        rows = {name: await self._rows(name) for name in tables} if whole else {}
        return Sample(
            at=time.perf_counter() - self.begun,
            redis_bytes=memory["used_memory"],
            keys=await self.redis.dbsize(),
            redis_connections=clients["connected_clients"] - 1,
            lengths=lengths,
            pending=pending,
            table_bytes=tables,
            rows=rows,
            postgres_connections=await self.postgres.fetchval(_CONNECTIONS),
            memory={
                role: sum(map(resident_bytes, (process.pid, *children(process.pid))))
                for role, process in self.fleet.roles.items()
            },
            other_keys=await self._other_keys() if whole else 0,
        )

    async def _streams(self) -> tuple[dict[str, int], dict[str, int]]:
        lengths: dict[str, int] = {}
        pending: dict[str, int] = {}
        # The lanes are written down: all keys would be too many to be gone through beside the work.
        lanes: set[Any] = await self.redis.smembers("weft:{p0}:lanes")
        for name in ("results", *(f"tasks:{lane.decode()}" for lane in sorted(lanes))):
            key = f"weft:{{p0}}:{name}"
            lengths[name] = await self.redis.xlen(key)
            groups = await self.redis.xinfo_groups(key) if await self.redis.exists(key) else []
            pending[name] = sum(group["pending"] for group in groups)
        return lengths, pending

    async def _rows(self, table: str) -> int:
        return int(await self.postgres.fetchval(f'SELECT count(*) FROM weft."{table}"'))

    async def _other_keys(self) -> int:
        return len([key async for key in self.redis.scan_iter(count=_PAGE) if not TOMBSTONE.fullmatch(key)])
