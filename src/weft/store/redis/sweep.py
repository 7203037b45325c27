"""Lists what is due from the sorted sets, and compares it with the hashes of the executions.

The sweep has two steps, because a script may only touch the keys that it is given, and the executions are
known only once the sets were read. Between the two everything may change, so the second step checks what the
first has read.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.attempt import AttemptRef
from weft.core.time import micros
from weft.errors import StoreError
from weft.redis.waiting import all_that_answer
from weft.store.contract import RENEWALS_PER_LEASE, Due, Expired
from weft.store.redis.layout import CONSTANTS, PoisonError, read_node, read_plan, script
from weft.store.redis.partitions import MOST_ITEMS, Partitions, ScriptCall, ScriptCalls, checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys

# What one look lists of each kind, and how often it goes on where that was not all.
_MOST_DUE = 1000
_MOST_LOOKS = 10
_TIMER, _LEASE, _FREE = (str(CONSTANTS[name]) for name in ("SEEN_TIMER", "SEEN_LEASE", "SEEN_FREE"))
_QUEUED = str(CONSTANTS["QUEUED"]).encode()
_SENTINEL = str(CONSTANTS["SENTINEL"]).encode()

_TIMED, _DUE = script("timed", "guard"), script("due", "guard", "execution")


class Sweep(Partitions):
    """The part of the store that follows the time."""

    # How long a queued task may be on its way; 0: for ever.
    _queued: int

    def __init__(self, redis: Redis, *, now: Callable[[], int] | None, lease_seconds: float) -> None:
        super().__init__(redis, now=now, lease_seconds=lease_seconds)
        # How many executions with free nodes to pass over in the next look, by partition.
        self._passed_over: dict[int, int] = {}
        # Partitions whose last look failed: Redis was away, silent, or refused to write.
        self._failed: set[int] = set()

    async def due(self, *, idle_seconds: float) -> Due:
        found = _Found()
        await all_that_answer(
            [self._swept(keys, micros(idle_seconds), found) for keys in self._redis.partitions]
        )
        next_at = min(found.next_at, default=None)
        return Due(list(found.woken), found.expired, list(found.deadlines), next_at, found.parked)

    async def _swept(self, keys: Keys, idle: int, found: _Found) -> None:
        """Collect what is due in one partition, and remember whether that failed."""
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
            timed = ScriptCall(keys)
            timed.streams[keys.swept] = 1
            timed.arguments += (idle, _MOST_DUE, passed_leases, passed_free, self._lease, longest_gap)
            await self._run(_TIMED, [timed])
            now, timers, leases, free, grace_until, *nexts = timed.reply
            if not (timers or leases or free):
                self._passed_over[partition] = 0
                found.look_again(now, grace_until, *nexts)
                return
            listed = len(found.expired)
            await self._look_at(keys, timers, leases, free, found)
            # Listed entries stay in their sets until their consequences are in the store.
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
        return [reply[1] if reply and reply[0] != _SENTINEL else b"" for reply in replies]

    async def _look_at(
        self,
        keys: Keys,
        timers: Sequence[bytes],
        leases: Sequence[bytes],
        free: Sequence[bytes],
        found: _Found,
    ) -> None:
        # By execution: what is looked at, the node's field, and the attempt of a lease.
        listed: dict[str, list[tuple[str, str, str]]] = {}
        for member in timers:
            field, _, execution_id = member.decode().partition(":")
            listed.setdefault(execution_id, []).append((_TIMER, field, ""))
        for member in leases:
            field, attempt, execution_id = member.decode().split(":", 2)
            listed.setdefault(execution_id, []).append((_LEASE, field, attempt))
        for member in free:
            listed.setdefault(member.decode(), []).append((_FREE, "", ""))
        entries = await self._entries(keys, leases) if self._queued else {}
        calls = ScriptCalls()
        for execution_id, seen in listed.items():
            for start in range(0, len(seen), MOST_ITEMS):
                part = seen[start : start + MOST_ITEMS]
                call = calls.room(keys, items=len(part))
                call.hashes.append(keys.execution(execution_id))
                call.arguments.append(len(part))
                for kind, field, attempt in part:
                    entry, lane = entries.get((execution_id, field), ("", ""))
                    number = 0
                    if entry:
                        number = call.streams.setdefault(keys.lane_of(lane), len(call.streams) + 1)
                    call.arguments += (kind, field, attempt, number, entry)
                    call.about.append((execution_id, field))
        await self._run(_DUE, calls, self._lease, self._queued)
        for call in calls:
            values = iter(call.reply)
            for execution_id, field in call.about:
                try:
                    found.take(execution_id, field[1:], values)
                except PoisonError:
                    await self._drop(keys, execution_id)
                self._remember(execution_id, keys.partition)

    async def _entries(self, keys: Keys, leases: Sequence[bytes]) -> dict[tuple[str, str], tuple[str, str]]:
        """Return the entry and lane of each queued task among the leases: a script is given its streams."""
        asked = []
        for member in leases:
            field, _, execution_id = member.decode().split(":", 2)
            asked.append((execution_id, field))
        commands = [("HGET", keys.execution(execution_id), field) for execution_id, field in asked]
        values = await self._redis.run(commands, partition=keys.partition) if commands else []
        entries = {}
        for item, value in zip(asked, values, strict=True):
            if isinstance(value, bytes) and value[:1] == _QUEUED:
                with suppress(PoisonError):  # the script drops it
                    if (entry := read_node(value).entry) is not None:
                        entries[item] = entry
        return entries


class _Found:
    """Everything that has become due, gathered from the partitions."""

    def __init__(self) -> None:
        self.woken: dict[tuple[str, int], None] = {}
        self.deadlines: dict[tuple[str, int], None] = {}
        self.expired: list[Expired] = []
        self.parked: list[AttemptRef] = []
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
        if kind == CONSTANTS["NOTHING"]:
            return
        generation = next(values)
        if kind == CONSTANTS["WOKEN"]:
            self.woken[execution_id, generation] = None
        elif kind == CONSTANTS["DEADLINE"]:
            self.deadlines[execution_id, generation] = None
        elif kind == CONSTANTS["PARKED_DUE"]:
            self.parked.append(AttemptRef(execution_id, generation, node_id, int(next(values))))
        else:
            plan, value = next(values), next(values)
            (_, digest), node = read_plan(plan), read_node(value)
            self.expired.append(
                Expired(
                    *(execution_id, generation, node_id, node.attempt, digest),
                    *(node.failures, node.losses, node.issued),
                    *(node.worker, node.queued_at, node.started_at),
                )
            )
