"""Checks whether a Redis server can hold hot state, and reads its figures, by INFO and TIME alone.

CONFIG would say the same, but many hosted servers forbid it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from weft.core.time import MICROSECONDS
from weft.errors import SettingsError
from weft.redis.connection import ReplyError, read_info

if TYPE_CHECKING:
    from weft.redis.connection import Redis
    from weft.redis.keys import Keys

# XAUTOCLAIM came with it.
OLDEST_VERSION = (6, 2)
SAFE_POLICY = "noeviction"


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it describes itself."""

    # Of Redis; a Valkey says which Redis it is like.
    version: str
    policy: str
    appendonly: bool
    # Its own clock, in microseconds.
    now: int

    @property
    def is_too_old(self) -> bool:
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2]) < OLDEST_VERSION


async def inspect_server(redis: Redis, *, partition: int = 0) -> ServerStatus:
    """Ask the server that has a partition; raises StoreError where it cannot be reached."""
    server = read_info(await redis.call("INFO", "server", partition=partition))
    memory = read_info(await redis.call("INFO", "memory", partition=partition))
    persistence = read_info(await redis.call("INFO", "persistence", partition=partition))
    seconds, microseconds = await redis.call("TIME", partition=partition)
    return ServerStatus(
        version=server.get("redis_version", "0"),
        policy=memory.get("maxmemory_policy", SAFE_POLICY),
        appendonly=persistence.get("aof_enabled") == "1",
        now=int(seconds) * MICROSECONDS + int(microseconds),
    )


class WrongKey(msgspec.Struct, frozen=True):
    """A key of weft that holds another type than weft keeps there: somebody else has written it."""

    name: str
    expected: str
    found: str

    @property
    def fault(self) -> str:
        return f"the key {self.name} in Redis is a {self.found}, and weft keeps a {self.expected} there"

    @property
    def advice(self) -> str:
        return f"delete the key (redis-cli DEL '{self.name}'), and weft makes it anew"

    @property
    def message(self) -> str:
        return f"{self.fault}; {self.advice}"


async def wrong_keys(redis: Redis, keys: Keys) -> list[WrongKey]:
    """Return the keys of a partition that hold another type than weft keeps there."""
    expected = {
        **dict.fromkeys((keys.server, keys.incarnation_id, keys.swept, keys.unsettled), "string"),
        **dict.fromkeys((keys.leases, keys.timers, keys.free, keys.active, keys.beats), "zset"),
        **dict.fromkeys((keys.results, keys.quarantine), "stream"),
        keys.workers: "hash",
        keys.lanes: "set",
    }
    partition = keys.partition
    (members,) = await redis.run([("SMEMBERS", keys.lanes)], partition=partition)
    if not isinstance(members, ReplyError):
        expected |= {keys.lane_of(member.decode(errors="replace")): "stream" for member in members}
    types = await redis.run([("TYPE", name) for name in expected], partition=partition)
    return [
        WrongKey(name, kind, found.decode())
        for (name, kind), found in zip(expected.items(), types, strict=True)
        if found.decode() not in (kind, "none")
    ]


async def check_server(redis: Redis) -> None:
    """Raise SettingsError where a server would lose keys by itself, or is too old; StoreError: none answers.

    A server that evicts takes whole streams away, and whoever waits for them waits for a rebuild.
    """
    for keys in redis.partitions:
        status = await inspect_server(redis, partition=keys.partition)
        if status.is_too_old:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise SettingsError(f"WEFT_REDIS_URL: it is Redis {status.version}; weft needs {oldest} or newer")
        if status.policy != SAFE_POLICY:
            raise SettingsError(
                f"WEFT_REDIS_URL: this Redis evicts keys when its memory is full (maxmemory-policy is "
                f"{status.policy}), and work would vanish with them; set it right with "
                f"CONFIG SET maxmemory-policy {SAFE_POLICY}, and in its configuration"
            )
