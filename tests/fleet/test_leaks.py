"""Secrets in a fleet: what functions see of them, and what is in PostgreSQL, Redis, answers and logs."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from tests.telling import ALLOW, KEPT, STAYS, check_absent, check_surroundings, function

from weft.masking import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.celery.conftest import CeleryFleets
    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import Member, RunningFleet

# Its own key is for a client of the API; these tests call without one.
SETTINGS = {name: value for name, value in {**KEPT, **STAYS, **ALLOW}.items() if name != "WEFT_API_KEYS"}


async def dump_database(url: str) -> bytes:
    """Return all values of all tables: bytes as they are, the others as text."""
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
        rows = [row for (table,) in tables for row in await connection.fetch(f"SELECT * FROM {table}")]
    finally:
        await connection.close()
    assert len(rows) > 10
    values = [value for row in rows for value in row.values()]
    return b"\n".join([value if isinstance(value, bytes) else str(value).encode() for value in values])


def dump_redis(fleet: RunningFleet) -> bytes:
    """Return all keys and values, once as they are and once as DUMP gives them."""
    found: list[Any] = []
    reads: dict[Any, Callable[[bytes], Any]] = {
        b"string": fleet.redis.get,
        b"hash": fleet.redis.hgetall,
        b"list": lambda key: fleet.redis.lrange(key, 0, -1),
        b"set": fleet.redis.smembers,
        b"zset": lambda key: fleet.redis.zrange(key, 0, -1),
        b"stream": fleet.redis.xrange,
    }
    for key in fleet.redis.scan_iter(count=1000):
        found += [key, repr(reads[fleet.redis.type(key)](key)).encode(), fleet.redis.dump(key) or b""]
    assert found
    return b"\n".join(found)


async def leak_everywhere(fleet: RunningFleet) -> list[Any]:
    """Let a secret be returned and raised; give all that the API says of it."""
    told: list[Any] = []
    states = []
    for how in ("return", "raise"):
        nodes = [function("leak", how=how, secrets=["TOKEN"])]
        execution_id = await fleet.api.start({"nodes": nodes})
        shown = await fleet.api.terminal(execution_id)
        states.append(shown["state"])
        told += [shown, await fleet.api.history(execution_id)]
        told.append(await fleet.api.get(f"/v1/executions/{execution_id}/nodes/a"))
        kept = await fleet.api.get(f"/v1/executions/{execution_id}/logs?limit=500")
        assert kept["items"]
        told.append(kept)
    told.append(await fleet.api.get("/v1/dead-letters"))
    assert states == ["COMPLETED", "FAILED"], told
    assert HIDDEN in str(told)
    return told


def lines(member: Member) -> str:
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in member.log)


async def test_secrets_of_a_fleet(fleets: Fleets) -> None:
    """F90, F91: a worker's functions see their own alone, and no store, answer or line has any form of it."""
    async with fleets(**SETTINGS) as fleet:
        await fleet.start()
        nodes = [function("surroundings", "granted", secrets=["TOKEN"]), function("surroundings", "bare")]
        shown = await fleet.api.terminal(await fleet.api.start({"nodes": nodes}))
        assert shown["state"] == "COMPLETED", shown
        kept = {name: value for name, value in KEPT.items() if name in SETTINGS} | {
            "WEFT_REDIS_URL": fleet.redis_url,
            "WEFT_DATABASE_URL": fleet.database_url,
        }
        check_surroundings(shown["output"]["granted"], kept=kept, secrets=["TOKEN"])
        check_surroundings(shown["output"]["bare"], kept=kept, secrets=[])
        told = await leak_everywhere(fleet)
        redis = dump_redis(fleet)
        for member in fleet.members:
            assert await member.stop() == 0
        database = await dump_database(fleet.database_url)
        for data in (redis, database):
            check_absent(data)
        for text in (json.dumps(told, ensure_ascii=False), *map(lines, fleet.members)):
            check_absent(text)
        (worker,) = [member for member in fleet.members if member.role == "worker"]
        assert worker.events("function.printed")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
async def test_secrets_of_a_celery_worker(celery_fleets: CeleryFleets, pool: str) -> None:
    """Its functions run in processes of weft: the same filter, and the same mask."""
    async with celery_fleets("redis") as fleet:
        await asyncio.gather(fleet.start(workers=0), fleet.work(pool=pool, concurrency=1, **SETTINGS))
        nodes = [function("surroundings", secrets=["TOKEN"])]
        shown = await fleet.api.terminal(await fleet.api.start({"nodes": nodes}))
        assert shown["state"] == "COMPLETED", shown
        kept = {name: value for name, value in KEPT.items() if name in SETTINGS} | {
            "WEFT_REDIS_URL": fleet.redis_url,
            "WEFT_DATABASE_URL": fleet.database_url,
            "WEFT_CELERY_BROKER_URL": fleet.broker_url,
        }
        check_surroundings(shown["output"]["a"], kept=kept, secrets=["TOKEN"])
        told = await leak_everywhere(fleet)
        (worker,) = fleet.celery
        await worker.stop()
        redis = dump_redis(fleet)
        database = await dump_database(fleet.database_url)
        for data in (redis, database):
            check_absent(data)
        for text in (json.dumps(told, ensure_ascii=False), lines(worker)):
            check_absent(text)
        assert "in two *** writes" in lines(worker)
