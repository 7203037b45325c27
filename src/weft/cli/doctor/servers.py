"""Checks of ``weft doctor`` beyond this machine: Redis, PostgreSQL, and workers for every queue."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.cli.doctor.finding import START_A_WORKER, Finding, Health
from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.errors import JournalError, StoreError, WeftError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

    from weft.settings import Settings

_OLDEST_POSTGRES = 14
_OPEN_SECONDS = 10.0
# Leases and timers go by the servers' clocks, so a difference does no harm to them; people who read times do
# not know that.
_SKEW_SECONDS = 1.0


def examine_servers(settings: Settings) -> list[Finding]:
    """Ask the servers that the settings name."""
    return asyncio.run(_examine(settings))


async def _examine(settings: Settings) -> list[Finding]:
    skews: dict[str, float] = {}
    findings: list[Finding] = []
    if settings.database_url is not None:
        findings += await _postgres(settings.database_url, skews)
    if settings.redis_url is not None:
        findings += await _redis(settings.redis_url, settings, skews)
    findings += _clocks(skews)
    if settings.transport == "celery" and settings.celery_broker_url is not None:
        findings += await _broker(settings)
    is_fleet = settings.redis_url is not None and settings.database_url is not None
    if is_fleet and all(one.health is not Health.FAIL for one in findings):
        findings += await _workers(settings)
    return findings


async def _postgres(url: str, skews: dict[str, float]) -> list[Finding]:
    from weft.journal.postgres.connection import connected
    from weft.journal.postgres.schema import missing

    try:
        async with connected(url) as connection:
            number = int(await connection.fetchval("SHOW server_version_num"))
            version = str(await connection.fetchval("SHOW server_version"))
            skews["PostgreSQL"] = await _skew(lambda: _postgres_now(connection))
            behind = await missing(connection)
    except JournalError as error:
        return [Finding("postgres", Health.FAIL, str(error), "start it, or correct WEFT_DATABASE_URL")]
    found = [Finding("postgres", Health.OK, f"PostgreSQL {version} answers")]
    if number < _OLDEST_POSTGRES * 10_000:
        advice = f"use PostgreSQL {_OLDEST_POSTGRES} or newer"
        found = [Finding("postgres", Health.FAIL, f"PostgreSQL {version} is too old", advice)]
    if behind:
        message = f"the schema of the database lacks {', '.join(behind)}"
        found.append(Finding("schema", Health.FAIL, message, "run `weft migrate`"))
    else:
        found.append(Finding("schema", Health.OK, "the schema of the database is up to date"))
    return found


async def _postgres_now(connection: Any) -> int:
    return int(await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"))


async def _redis(url: str, settings: Settings, skews: dict[str, float]) -> list[Finding]:
    from weft.redis.connection import Redis
    from weft.redis.health import OLDEST_VERSION, SAFE_POLICY, inspect_server, wrong_keys

    redis = Redis(url, partitions=settings.partitions)
    try:
        status = await inspect_server(redis)

        async def now() -> int:
            return (await inspect_server(redis)).now

        skews["Redis"] = await _skew(now)
        wrong = [one for keys in redis.partitions for one in await wrong_keys(redis, keys)]
    except StoreError as error:
        return [Finding("redis", Health.FAIL, str(error), "start it, or correct WEFT_REDIS_URL")]
    finally:
        await redis.close()
    found = [Finding("redis", Health.OK, f"Redis {status.version} answers")]
    if status.is_too_old:
        advice = f"use Redis {'.'.join(map(str, OLDEST_VERSION))} or newer, or Valkey"
        found = [Finding("redis", Health.FAIL, f"Redis {status.version} is too old", advice)]
    if status.policy != SAFE_POLICY:
        message = f"it evicts keys when its memory is full: maxmemory-policy is {status.policy}"
        advice = f"CONFIG SET maxmemory-policy {SAFE_POLICY}, and the same in its configuration"
        found.append(Finding("redis", Health.FAIL, message, advice))
    found += [Finding("redis", Health.FAIL, one.fault, one.advice) for one in wrong]
    if not status.appendonly:
        message = "it keeps nothing on disk (appendonly is off): a restart loses what was on its way"
        advice = "set appendonly yes; without it all of that is made again from PostgreSQL, and runs again"
        found.append(Finding("redis", Health.WARN, message, advice))
    return found


async def _broker(settings: Settings) -> list[Finding]:
    from weft.redis.connection import Redis
    from weft.transport.celery import CeleryTransport

    assert settings.redis_url is not None
    redis = Redis(settings.redis_url, partitions=settings.partitions)
    transport = CeleryTransport(redis, broker_url=settings.celery_broker_url, grace_seconds=0)
    try:
        await transport.check()
    except StoreError as error:
        return [Finding("broker", Health.FAIL, str(error), "start it, or correct WEFT_CELERY_BROKER_URL")]
    finally:
        await transport.close()
        await redis.close()
    return [Finding("broker", Health.OK, "the broker of Celery answers")]


async def _skew(ask: Callable[[], Awaitable[int]]) -> float:
    """Return the seconds that a server's clock is ahead of this machine's, to within the round trip."""
    clock = RealClock()
    before = clock.now()
    there = await ask()
    after = clock.now()
    # Whatever may be the way of the answer is no difference.
    if there < before:
        return (there - before) / MICROSECONDS
    return max(0, there - after) / MICROSECONDS


def _clocks(skews: dict[str, float]) -> Iterator[Finding]:
    far = {name: seconds for name, seconds in skews.items() if abs(seconds) > _SKEW_SECONDS}
    if len(skews) > 1 and abs(skews["Redis"] - skews["PostgreSQL"]) > _SKEW_SECONDS:
        apart = abs(skews["Redis"] - skews["PostgreSQL"])
        message = f"the clocks of Redis and PostgreSQL are {apart:.1f} s apart"
        yield Finding("clock", Health.WARN, message, "let all machines follow the same time (NTP)")
    for name, seconds in far.items():
        direction = "ahead of" if seconds > 0 else "behind"
        message = f"the clock of {name} is {abs(seconds):.1f} s {direction} this machine's"
        yield Finding("clock", Health.WARN, message, "let all machines follow the same time (NTP)")
    if skews and not far:
        names = " and ".join(sorted(skews))
        yield Finding("clock", Health.OK, f"{names} and this machine agree on the time")


async def _workers(settings: Settings) -> list[Finding]:
    """Return the findings on workers: a warning for each queue whose tasks no worker serves."""
    from weft.fleet import Fleet
    from weft.handlers.registry import default_registry
    from weft.store.contract import WorkerState
    from weft.views.describe import serves

    try:
        async with Fleet(settings, registry=default_registry(), roles={"api"}) as fleet:
            async with asyncio.timeout(_OPEN_SECONDS):
                await fleet.started()
            queues = await fleet.ports.transport.queues()
            workers = await fleet.ports.store.workers()
    except (WeftError, TimeoutError) as error:
        message = f"the queues cannot be looked at: {error or 'no answer in time'}"
        return [Finding("workers", Health.FAIL, message, "look again; the log of the servers may say more")]
    start = (
        "celery -A weft.celery worker -Q weft." if settings.transport == "celery" else "weft worker --queues "
    )
    found = [
        Finding(
            "workers",
            Health.WARN,
            f"{queue.depth} tasks wait in the queue {queue.name!r}, and no worker serves it",
            f"start one: {start}{queue.name}",
        )
        for queue in queues
        if queue.depth and not any(serves(worker, queue.name) for worker in workers)
    ]
    alive = sum(worker.state is WorkerState.ALIVE for worker in workers)
    if not alive and not found:
        return [
            Finding("workers", Health.WARN, "no living worker; nothing waits for one yet", START_A_WORKER)
        ]
    return found or [Finding("workers", Health.OK, f"{alive} alive; no queue with work is without one")]
