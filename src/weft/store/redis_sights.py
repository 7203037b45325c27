"""What those who look on from outside are shown: executions, workers, numbers. Nothing is decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.event import Running
from weft.core.time import micros
from weft.redis.script import load_script
from weft.store.contract import NodeSight, Sight, WorkerSight, WorkerState
from weft.store.redis_calls import MOST_FIELDS, MOST_ITEMS, Call
from weft.store.redis_places import Places, checked, is_of
from weft.store.redis_poison import contained
from weft.store.redis_records import PHASES, is_set, read_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.redis.connection import Redis
    from weft.redis.keys import Keys
    from weft.store.redis_records import Meta

# A lost worker is shown for so long: long enough to be noticed, not to pile up with every restart.
_KEEP_LOST = micros(3600)
_MOST_FORGOTTEN = 500
_MOST_LISTED = 10_000

_ANNOUNCE, _WORKERS = load_script("weft.store", "announce"), load_script("weft.store", "workers")
_LOOK = load_script("weft.store", "look", after=("state",))
_RUNNING = load_script("weft.store", "running", after=("state",))
_RECOUNT = load_script("weft.store", "recount")

_pack_worker = msgspec.msgpack.Encoder().encode
_read_worker = msgspec.msgpack.Decoder(WorkerSight).decode


class Sights:
    def __init__(
        self,
        redis: Redis,
        places: Places,
        *,
        plans: Callable[[str], Awaitable[Plan | None]],
        now: Callable[[], int],
        lease: int,
        keep_seconds: int,
    ) -> None:
        self._redis = redis
        self._places = places
        self._plans = plans
        self._now = now
        self._lease = lease
        self._ttl = keep_seconds

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        return [None if meta is None else meta.epoch for meta in await self._places.metas(execution_ids)]

    async def unchanged(self, since: int) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for keys in self._redis.partitions:
            await self._go_through(keys, since, found)
        return found

    async def _go_through(self, keys: Keys, since: int, found: dict[str, int]) -> None:
        """Find the executions of a partition that did not change since, and count its unsettled nodes anew.

        An execution whose hash is lost alone did not change either; its nodes are in the number of unsettled
        nodes still, and would be in it twice once it is rebuilt.
        """
        counted = await self._redis.call("GET", keys.unsettled, partition=keys.partition)
        scores: dict[str, float] = {}
        listed = page = 2 * _MOST_LISTED
        start = 0
        while listed == page:
            flat = await self._redis.call(
                *("ZRANGE", keys.active, start, start + _MOST_LISTED - 1, "WITHSCORES"),
                partition=keys.partition,
            )
            scores |= {name.decode(): float(at) for name, at in zip(flat[::2], flat[1::2], strict=True)}
            listed = len(flat)
            start += _MOST_LISTED
        # The mark of this life of the store.
        scores.pop("!", None)
        names = list(scores)
        unsettled = 0
        for first in range(0, len(names), _MOST_LISTED):
            metas: dict[str, Meta | None] = {}
            await self._places.read_metas(keys, names[first : first + _MOST_LISTED], metas)
            for name, meta in metas.items():
                unsettled += 0 if meta is None else meta.unsettled
                # An apply does not write to the sorted set: it would cost as much as the rest of it.
                changed_at = int(scores[name]) if meta is None else meta.updated_at
                if changed_at <= since:
                    found[name] = changed_at
        if unsettled != int(counted or 0):
            # Only if nothing has changed since the count began: else the next sweep counts again.
            await self._redis.script(
                _RECOUNT, [keys.unsettled], [counted or "", unsettled], partition=keys.partition
            )

    async def running_by_queue(self) -> Mapping[str, int]:
        running: dict[str, int] = {}
        for keys in self._redis.partitions:
            held: dict[str, list[str]] = {}
            start = 0
            listed = _MOST_LISTED
            # All that is in hand holds a lease.
            while listed == _MOST_LISTED:
                members = await self._redis.call(
                    "ZRANGE", keys.leases, start, start + _MOST_LISTED - 1, partition=keys.partition
                )
                listed = len(members)
                start += listed
                for member in members:
                    field, mark, execution_id = member.decode().partition(":")
                    if mark:
                        held.setdefault(execution_id, []).append(field)
            await self._count_running(keys, held, running)
        return running

    async def _count_running(
        self, keys: Keys, held: Mapping[str, Sequence[str]], running: dict[str, int]
    ) -> None:
        names = [
            (execution_id, fields[start : start + MOST_FIELDS])
            for execution_id, fields in held.items()
            for start in range(0, len(fields), MOST_FIELDS)
        ]
        for start in range(0, len(names), MOST_ITEMS * 10):
            part = names[start : start + MOST_ITEMS * 10]
            commands: list[tuple[Any, ...]] = [("GET", keys.token)]
            commands += [("HMGET", keys.execution(name), "!", "h", *fields) for name, fields in part]
            word, *replies = await self._redis.run(commands, partition=keys.partition)
            checked([word])
            for (_, fields), reply in zip(part, replies, strict=True):
                if isinstance(reply, Exception) or not is_of(reply[0], word):
                    continue
                _, digest, *records = reply
                plan = None if digest is None else await self._plans(digest.decode(errors="replace"))
                for field, record in zip(fields, records, strict=True):
                    node = None if plan is None else plan.nodes.get(field[1:])
                    if node is not None and record is not None and record[:1] in (b"r", b"p"):
                        queue = node.queue
                        running[queue] = running.get(queue, 0) + 1

    async def backlog(self) -> int:
        total = 0
        for keys in self._redis.partitions:
            commands = [("GET", keys.unsettled), ("ZCARD", keys.active)]
            unsettled, active = checked(await self._redis.run(commands, partition=keys.partition))
            # The sorted set holds a mark besides. Without an execution nothing is left, whatever was lost.
            if unsettled is not None and active > 1:
                total += max(0, int(unsettled))
        return total

    async def announce_worker(self, worker: WorkerSight) -> None:
        keys = self._redis.partitions[0]
        await self._redis.script(
            _ANNOUNCE, [keys.workers, keys.beats], [self._now(), worker.id, _pack_worker(worker)]
        )

    async def remove_worker(self, worker_id: str) -> None:
        keys = self._redis.partitions[0]
        checked(await self._redis.run([("HDEL", keys.workers, worker_id), ("ZREM", keys.beats, worker_id)]))

    async def workers(self) -> Sequence[WorkerSight]:
        keys = self._redis.partitions[0]
        now, beats, described = await self._redis.script(
            _WORKERS, [keys.workers, keys.beats], [self._now(), self._lease + _KEEP_LOST, _MOST_FORGOTTEN]
        )
        heard = dict(zip(beats[::2], beats[1::2], strict=True))
        seen = []
        for worker_id, packed in sorted(zip(described[::2], described[1::2], strict=True)):
            if worker_id not in heard:
                continue
            at = int(float(heard[worker_id]))
            worker = replace(_read_worker(packed), heartbeat_at=at)
            seen.append(worker if now - at <= self._lease else replace(worker, state=WorkerState.LOST))
        return seen

    async def running(self, execution_id: str) -> dict[str, Running]:
        await self._places.find_out([execution_id])
        keys = self._redis.partitions[self._places.where(execution_id)]
        found: dict[str, Running] = {}

        async def run(_: Sequence[str]) -> None:
            found.update(await self._running(execution_id, keys))

        await contained(self._redis, keys, [execution_id], str, run)
        return found

    async def _running(self, execution_id: str, keys: Keys) -> dict[str, Running]:
        call = Call()
        call.place(execution_id)
        values = iter(
            await self._redis.script(
                _RUNNING,
                call.keys(keys),
                call.arguments(self._now(), self._ttl),
                partition=keys.partition,
            )
        )
        running = {}
        for field in values:
            one = read_record(next(values))
            running[field[1:].decode()] = Running(one.attempt, one.worker, one.queued_at, one.started_at)
        return running

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        return [
            None if meta is None else (meta.places - meta.running + meta.delayed, meta.running)
            for meta in await self._places.metas(execution_ids)
        ]

    async def look(self, execution_id: str, *, names: Collection[str] | None = None) -> Sight | None:
        (meta,) = await self._places.metas([execution_id])
        if meta is None:
            return None
        keys = self._redis.partitions[self._places.where(execution_id)]
        found: list[Sight | None] = []

        async def run(_: Sequence[str]) -> None:
            found.append(await self._look(execution_id, names, keys))

        await contained(self._redis, keys, [execution_id], str, run)
        return found[-1]

    async def _look(self, execution_id: str, names: Collection[str] | None, keys: Keys) -> Sight | None:
        digest = await self._redis.call("HGET", keys.execution(execution_id), "h", partition=keys.partition)
        plan = None if digest is None else await self._plans(digest.decode(errors="replace"))
        if plan is None:
            return None
        wanted = [name for name in (plan.graph.ids if names is None else names) if name in plan.nodes]
        parts = [wanted[start : start + MOST_FIELDS] for start in range(0, len(wanted), MOST_FIELDS)] or [[]]
        calls = []
        for part in parts:
            call = Call()
            call.place(execution_id, [f".{name}" for name in part])
            calls.append((_LOOK, call.keys(keys), [*call.arguments(self._now(), self._ttl), *call.fields()]))
        replies = await self._redis.scripts(calls, partition=keys.partition)
        nodes: dict[str, NodeSight] = {}
        for part, reply in zip(parts, replies, strict=True):
            if not reply or reply[3] != digest:
                return None
            state, taken, places, _, *records = reply
            for name, packed in zip(dict.fromkeys(part), records, strict=True):
                if packed is not None and packed != b"S":
                    nodes[name] = _sight(plan, name, packed)
        return Sight(state == b"p", nodes, taken, places)


def _sight(plan: Plan, name: str, packed: bytes) -> NodeSight:
    record = read_record(packed)
    phase = PHASES[record.phase]
    awaited: tuple[str, ...] = ()
    if phase == "waiting":
        parents = plan.graph.parents[name]
        awaited = tuple([parent for at, parent in enumerate(parents) if not is_set(record.bits, at)])
    return NodeSight(
        phase,
        record.attempt,
        awaited,
        record.due_at,
        record.queued_at,
        record.started_at,
        record.worker,
        plan.nodes[name].resource_tag,
    )
