"""Reads executions, workers and numbers for people who look on. No decision depends on these reads."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.event import Running
from weft.core.time import MICROSECONDS, micros
from weft.store.contract import ExecutionStatus, NodeStatus, WorkerState, WorkerStatus
from weft.store.redis.calls import is_set, piece_count
from weft.store.redis.layout import (
    CONSTANTS,
    PoisonError,
    is_outcome,
    node_field,
    piece_field,
    read_counts,
    read_node,
    read_plan,
    read_progress,
    read_seq,
    script,
)
from weft.store.redis.partitions import MOST_FIELDS, Partitions, checked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from weft.definition.plan import Plan
    from weft.redis.keys import Keys
    from weft.store.redis.layout import Fence, LiveNode

# A lost worker is shown for so long: long enough to be noticed, not to pile up with every restart.
_KEEP_LOST = micros(3600)
_MOST_FORGOTTEN = 500
_MOST_LISTED = 10_000
_MOST_READ = 500

_ROW, _PLAN, _COUNTS, _FREE_LIST, _HALTED = (
    str(CONSTANTS[name]) for name in ("ROW", "PLAN", "COUNTS", "FREE_LIST", "HALTED")
)
_RUNNING = str(CONSTANTS["RUNNING"]).encode()
_SENTINEL = str(CONSTANTS["SENTINEL"])
_ANNOUNCE, _WORKERS, _RECOUNT = script("announce"), script("workers"), script("recount")

_pack_worker = msgspec.msgpack.Encoder().encode
_read_worker = msgspec.msgpack.Decoder(WorkerStatus).decode


class Inspector(Partitions):
    """The part of the store that shows what is there."""

    _plans: Callable[[str], Awaitable[Plan | None]]
    _keep_seconds: int

    # -- executions --------------------------------------------------------------------------------

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        found = await self._find(execution_ids)
        return [None if values is None else values[0].epoch for values in found]

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        counted: list[tuple[int, int] | None] = []
        for values in await self._find(execution_ids, _COUNTS):
            if values is None:
                counted.append(None)
                continue
            try:
                in_flight, in_hand, delayed = read_counts(values[1])
            except PoisonError:  # the next move drops it
                counted.append(None)
                continue
            counted.append((in_flight - in_hand + delayed, in_hand))
        return counted

    async def evictable(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        numbers: list[int | None] = []
        for values in await self._find(execution_ids, _COUNTS, _FREE_LIST, _ROW):
            number = None
            if values is not None:
                _, counts, free_list, row = values
                with suppress(PoisonError):  # the next move drops it
                    if free_list is None and not any(read_counts(counts)):
                        number = read_seq(row)
            numbers.append(number)
        return numbers

    async def idle_since(self, since: int) -> Mapping[str, int]:
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
        scores.pop(_SENTINEL, None)
        names = list(scores)
        unsettled = 0
        for first in range(0, len(names), _MOST_LISTED):
            part = names[first : first + _MOST_LISTED]
            renewed: list[tuple[Any, ...]] = []
            for name, (fence, row) in zip(
                part, await self._read(keys, [(name, [_ROW]) for name in part]), strict=True
            ):
                changed_at = int(scores[name])
                if fence is not None and fence.is_live and row is not None:
                    try:
                        own, changed_at = read_progress(row)
                    except PoisonError:
                        await self._drop(keys, name)
                    else:
                        unsettled += own
                        # An apply does not write to the sorted set: it would cost as much as the rest of it.
                        # So the set has the time of the install, or of when the hash was kept for longer.
                        if changed_at > scores[name] + self._keep_seconds * MICROSECONDS / 4:
                            renewed.append(("ZADD", keys.active, "XX", changed_at, name))
                            renewed.append(("EXPIRE", keys.execution(name), self._keep_seconds))
                if changed_at <= since:
                    found[name] = changed_at
            if renewed:
                checked(await self._redis.run(renewed, partition=keys.partition))
        if unsettled != int(counted or 0):
            # Only if nothing has changed since the count began: else the next sweep counts again.
            await self._redis.script(
                _RECOUNT, [keys.unsettled], [counted or "", unsettled], partition=keys.partition
            )

    async def inspect(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> ExecutionStatus | None:
        found = await self._nodes(execution_id, names)
        if found is None:
            return None
        fence, plan, window, in_flight, nodes = found
        shown = {name: _status(plan, name, node, bits) for name, (node, bits) in nodes.items()}
        return ExecutionStatus(fence.state == _HALTED, shown, in_flight, window)

    async def running(self, execution_id: str) -> dict[str, Running]:
        found = await self._nodes(execution_id, None)
        nodes = {} if found is None else found[4]
        return {
            name: Running(node.attempt, node.worker, node.queued_at, node.started_at)
            for name, (node, _) in nodes.items()
            if node.phase == "running"
        }

    async def _nodes(
        self, execution_id: str, names: Collection[str] | None
    ) -> tuple[Fence, Plan, int, int, dict[str, tuple[LiveNode, Sequence[int]]]] | None:
        """Read unsettled nodes of an execution: all, or those named; None where it is not there.

        Return its fence, plan, window and number of nodes in flight, too; and with each node the bits of its
        parents that have settled, piece by piece.
        """
        (values,) = await self._find([execution_id], _PLAN, _COUNTS)
        if values is None:
            return None
        keys = self._keys_of(execution_id)
        try:
            window, digest = read_plan(values[1])
            in_flight, _, _ = read_counts(values[2])
            plan = await self._plans(digest)
            if plan is None:
                return None
            # By node: its field, and where its bits take several pieces a field for each.
            wanted: dict[str, list[str]] = {}
            for name in plan.graph.ids if names is None else names:
                if name in plan.nodes:
                    pieces = piece_count(len(plan.graph.parents[name]))
                    wide = [piece_field(piece, name) for piece in range(pieces if pieces > 1 else 0)]
                    wanted[name] = [node_field(name), *wide]
            fields = [field for own in wanted.values() for field in own]
            found = await self._values(keys, execution_id, values[0], fields)
            nodes: dict[str, tuple[LiveNode, Sequence[int]]] = {}
            for name, (field, *wide) in wanted.items():
                value = found[field]
                if value is not None and not is_outcome(value):
                    node = read_node(value)
                    nodes[name] = node, [_count(found[piece]) for piece in wide] or [node.number]
        except PoisonError:
            await self._drop(keys, execution_id)
            return None
        except LookupError:
            return None
        return values[0], plan, window, in_flight, nodes

    async def _values(
        self, keys: Keys, execution_id: str, fence: Fence, fields: Sequence[str]
    ) -> dict[str, bytes | None]:
        """Read fields of an execution; raises LookupError where it has another epoch by now."""
        values: dict[str, bytes | None] = {}
        for start in range(0, len(fields), MOST_FIELDS):
            part = fields[start : start + MOST_FIELDS]
            ((again, *some),) = await self._read(keys, [(execution_id, part)])
            if again is None or not again.is_same_epoch(fence):
                raise LookupError(execution_id)
            values.update(zip(part, some, strict=True))
        return values

    # -- the fleet ---------------------------------------------------------------------------------

    async def running_by_queue(self) -> Mapping[str, int]:
        running: dict[str, int] = {}
        for keys in self._redis.partitions:
            leased: dict[str, set[str]] = {}
            start = 0
            listed = _MOST_LISTED
            # All that is in hand holds a lease; a node may have some left of earlier attempts, too.
            while listed == _MOST_LISTED:
                members = await self._redis.call(
                    "ZRANGE", keys.leases, start, start + _MOST_LISTED - 1, partition=keys.partition
                )
                listed = len(members)
                start += listed
                for member in members:
                    field, colon, lease = member.decode().partition(":")
                    if colon:
                        execution_id = lease.partition(":")[2]
                        leased.setdefault(execution_id, set()).add(field)
            await self._count_running(keys, {name: list(fields) for name, fields in leased.items()}, running)
        return running

    async def _count_running(
        self, keys: Keys, leased: Mapping[str, Sequence[str]], running: dict[str, int]
    ) -> None:
        wanted = [
            (execution_id, [_PLAN, *fields[start : start + MOST_FIELDS]])
            for execution_id, fields in leased.items()
            for start in range(0, len(fields), MOST_FIELDS)
        ]
        for start in range(0, len(wanted), _MOST_READ):
            part = wanted[start : start + _MOST_READ]
            read = await self._read(keys, part)
            for (_, fields), (fence, about, *values) in zip(part, read, strict=True):
                if fence is None or not fence.is_live:
                    continue
                with suppress(PoisonError):  # the next move drops it
                    plan = await self._plans(read_plan(about)[1])
                    for field, value in zip(fields[1:], values, strict=True):
                        node = None if plan is None else plan.nodes.get(field[1:])
                        if node is not None and value is not None and value[:1] == _RUNNING:
                            running[node.queue] = running.get(node.queue, 0) + 1

    async def backlog(self) -> int:
        total = 0
        for keys in self._redis.partitions:
            commands = [("GET", keys.unsettled), ("ZCARD", keys.active)]
            unsettled, active = checked(await self._redis.run(commands, partition=keys.partition))
            # The sorted set has a sentinel besides. Without an execution nothing is left, whatever was lost.
            if unsettled is not None and active > 1:
                total += max(0, int(unsettled))
        return total

    async def announce_worker(self, worker: WorkerStatus) -> None:
        keys = self._redis.partitions[0]
        await self._redis.script(
            _ANNOUNCE, [keys.workers, keys.beats], [self._now(), worker.id, _pack_worker(worker)]
        )

    async def remove_worker(self, worker_id: str) -> None:
        keys = self._redis.partitions[0]
        checked(await self._redis.run([("HDEL", keys.workers, worker_id), ("ZREM", keys.beats, worker_id)]))

    async def workers(self) -> Sequence[WorkerStatus]:
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


def _count(value: bytes | None) -> int:
    if value is None:
        return 0
    if not value.isdigit():
        raise PoisonError("a number of an execution is unreadable")
    return int(value)


def _status(plan: Plan, name: str, node: LiveNode, pieces: Sequence[int]) -> NodeStatus:
    awaited: tuple[str, ...] = ()
    if node.phase == "waiting":
        parents = plan.graph.parents[name]
        awaited = tuple([parent for at, parent in enumerate(parents) if not is_set(pieces, at)])
    return NodeStatus(
        *(node.phase, node.attempt, awaited, node.due_at, node.queued_at, node.started_at, node.worker),
        plan.nodes[name].resource_tag,
    )
