"""What time has brought about: listed by the sorted sets, and then looked at with the executions at hand.

Two steps, because a script may only touch the keys it is given, and which executions these are is not known
before the sets were read. Between the two everything may change: so the second believes only what it sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.time import micros
from weft.errors import StoreError
from weft.redis.script import load_script
from weft.redis.waiting import all_that_answer
from weft.store.contract import RENEWALS_PER_LEASE, Due, Expired
from weft.store.redis_calls import MOST_ITEMS, Argument, Call, partition_keys
from weft.store.redis_places import Places, checked
from weft.store.redis_poison import contained
from weft.store.redis_records import read_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys

# What one look lists of each kind, and how often it goes on where that was not all.
_MOST_DUE = 1000
_MOST_LOOKS = 10

_TIMED, _DUE = load_script("weft.store", "timed"), load_script("weft.store", "due", after=("state",))


class DueLooks:
    def __init__(
        self,
        redis: Redis,
        places: Places,
        *,
        now: Callable[[], int],
        lease: int,
        queued: int,
        keep_seconds: int,
    ) -> None:
        self._redis = redis
        self._places = places
        self._now = now
        self._lease = lease
        self._queued = queued
        self._ttl = keep_seconds
        # How many executions with free nodes to pass over in the next look, by partition.
        self._passed_over: dict[int, int] = {}
        # Partitions whose last look failed: Redis was away, silent, or refused to write.
        self._failed: set[int] = set()

    async def look(self, *, idle_seconds: float) -> Due:
        found = _Found()
        await all_that_answer(
            [self._swept(keys, micros(idle_seconds), found) for keys in self._redis.partitions]
        )
        next_at = min(found.next_at, default=None)
        return Due(list(found.woken), found.expired, list(found.deadlines), next_at)

    async def _swept(self, keys: Keys, idle: int, found: _Found) -> None:
        """Look at one partition, and remember whether that failed."""
        try:
            await self._due(keys, idle, found)
        except StoreError:
            self._failed.add(keys.partition)
            raise
        self._failed.discard(keys.partition)

    async def _due(self, keys: Keys, idle: int, found: _Found) -> None:
        partition = keys.partition
        # A third of a lease is how long workers may be refused without a loss: they renew it three times. The
        # pause between two sweeps counts as refusal only if this process saw one.
        longest_gap = self._lease // RENEWALS_PER_LEASE + (0 if partition in self._failed else idle)
        passed_leases, passed_free = 0, self._passed_over.get(partition, 0)
        for look in range(_MOST_LOOKS):
            now, timers, leases, free, grace_until, *nexts = await self._redis.script(
                _TIMED,
                [*partition_keys(keys), keys.swept],
                [self._now(), idle, _MOST_DUE, passed_leases, passed_free, self._lease, longest_gap],
                partition=partition,
            )
            if not (timers or leases or free):
                self._passed_over[partition] = 0
                found.look_again(now, grace_until, *nexts)
                return
            listed = len(found.expired)
            await self._look_at_due(keys, timers, leases, free, found)
            # Those that were listed stay where they are, until what follows from them is in the store.
            passed_leases += len(found.expired) - listed
            passed_free = passed_free + len(free) if len(free) == _MOST_DUE else 0
            self._passed_over[partition] = passed_free
            if look + 1 < _MOST_LOOKS and max(len(timers), len(leases), len(free)) < _MOST_DUE:
                found.look_again(now, grace_until, *await self._nexts(keys))
                return
        # There is more than one look should take: the next is due at once.
        found.next_at.append(now)

    async def _nexts(self, keys: Keys) -> list[bytes]:
        """Return the times of the next lease and of the next timer; empty: there is none."""
        commands = [("ZRANGE", key, 0, 0, "WITHSCORES") for key in (keys.leases, keys.timers)]
        replies = checked(await self._redis.run(commands, partition=keys.partition))
        return [reply[1] if reply and reply[0] != b"!" else b"" for reply in replies]

    async def _look_at_due(
        self,
        keys: Keys,
        timers: Sequence[bytes],
        leases: Sequence[bytes],
        free: Sequence[bytes],
        found: _Found,
    ) -> None:
        items: list[tuple[str, str, str]] = []
        for kind, members in (("timer", timers), ("lease", leases)):
            for member in members:
                field, _, execution_id = member.decode().partition(":")
                items.append((kind, execution_id, field))
        items += [("free", execution_id.decode(), "") for execution_id in free]

        async def run(items: Sequence[tuple[str, str, str]]) -> None:
            seen = await self._look_at(keys, items)
            found.woken |= seen.woken
            found.deadlines |= seen.deadlines
            found.expired += seen.expired

        await contained(self._redis, keys, items, lambda item: item[1], run)

    async def _look_at(self, keys: Keys, items: Sequence[tuple[str, str, str]]) -> _Found:
        found = _Found()
        entries = await self._entries(keys, items) if self._queued else {}
        calls, asked = [], []
        now = self._now()
        for start in range(0, len(items), MOST_ITEMS):
            part = items[start : start + MOST_ITEMS]
            call = Call()
            arguments: list[Argument] = [len(part)]
            streams: dict[str, int] = {}
            for kind, execution_id, field in part:
                fields = (field, "h") if kind == "lease" else (field,) if field else ()
                arguments += [kind, call.place(execution_id, fields), field]
                entry, lane = entries.get((execution_id, field), ("", ""))
                arguments += [streams.setdefault(keys.lane_of(lane), len(streams) + 1) if entry else 0, entry]
            told: list[Argument] = [self._lease, self._queued, *call.fields(), *arguments]
            calls.append((_DUE, call.keys(keys, streams), [*call.arguments(now, self._ttl), *told]))
            asked.append(part)
        replies = await self._redis.scripts(calls, partition=keys.partition)
        for part, reply in zip(asked, replies, strict=True):
            values = iter(reply)
            for _, execution_id, field in part:
                found.take(execution_id, field[1:], values)
                if len(self._redis.partitions) > 1:
                    self._places.remember(execution_id, keys.partition)
        return found

    async def _entries(
        self, keys: Keys, items: Sequence[tuple[str, str, str]]
    ) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the entry and lane of each queued task among the leases: a script is given its streams."""
        asked = [(execution_id, field) for kind, execution_id, field in items if kind == "lease"]
        if not asked:
            return {}
        commands = [("HGET", keys.execution(execution_id), field) for execution_id, field in asked]
        records = checked(await self._redis.run(commands, partition=keys.partition))
        return {
            item: entry
            for item, packed in zip(asked, records, strict=True)
            if packed is not None and packed[:1] == b"q" and (entry := read_record(packed).entry) is not None
        }


class _Found:
    """What time has brought about, gathered from the partitions."""

    def __init__(self) -> None:
        self.woken: dict[tuple[str, int], None] = {}
        self.deadlines: dict[tuple[str, int], None] = {}
        self.expired: list[Expired] = []
        self.next_at: list[int] = []

    def look_again(self, now: int, grace_until: int, lease: bytes, timer: bytes) -> None:
        """Note when a partition is to be looked at again; before ``grace_until`` no lease expires."""
        times = [int(float(timer))] if timer else []
        if lease:
            times.append(max(int(float(lease)), grace_until))
        if times:
            self.next_at.append(max(min(times), now))

    def take(self, execution_id: str, node_id: str, values: Iterator[Reply]) -> None:
        """Take what a script said of one timer, lease or execution."""
        kind = next(values)
        if kind == b"nothing":
            return
        generation = next(values)
        if kind == b"woken":
            self.woken[execution_id, generation] = None
        elif kind == b"deadline":
            self.deadlines[execution_id, generation] = None
        else:
            digest, record = next(values).decode(), read_record(next(values))
            self.expired.append(
                Expired(
                    *(execution_id, generation, digest, node_id),
                    *(record.attempt, record.failures, record.losses, record.issued),
                    *(record.worker, record.queued_at, record.started_at),
                )
            )
