"""Where executions lie, and how scripts are called about them.

Each execution lies in one partition, which is not always the one that its id draws: the partition is kept on
the execution's row, so that the number of partitions may change. A caller that has the id alone asks the
partition that the id draws. An execution that is not there is searched for in the other partitions once, and
its partition is remembered.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.core.rows import partition_of
from weft.core.time import micros
from weft.errors import StoreKeyError
from weft.redis.connection import ReplyError
from weft.redis.health import wrong_keys
from weft.store.redis.layout import CONSTANTS, PoisonError, read_fence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.core.rows import ExecutionRow
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys
    from weft.redis.script import Script
    from weft.store.redis.layout import Fence

Argument: TypeAlias = "bytes | str | int"

# What one call is given at most: a script holds up everybody else.
MOST_ITEMS = 50
MOST_BYTES = 1024 * 1024
# Fields of one execution, so that one HMGET reads them.
MOST_FIELDS = 900
# Fields that one call reads in all, and tasks that it queues.
MOST_FIELDS_IN_ALL = 2000
MOST_TASKS = 100

_MOST_REMEMBERED = 100_000
_FENCE = str(CONSTANTS["FENCE"])


class ScriptCall:
    """One call of a script in one partition, and its reply."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        # The hashes of the executions that it is about, in the order of its arguments.
        self.hashes: list[str] = []
        self.arguments: list[Argument] = []
        # Streams that the script writes to or reads, numbered from 1.
        self.streams: dict[str, int] = {}
        # What the caller knows the items of the reply by.
        self.about: list[Any] = []
        self.reply: Reply = None
        # What may be in a call once, and is in this one.
        self.once: set[str] = set()
        self.items = self.size = self.fields = self.tasks = 0


class ScriptCalls(list[ScriptCall]):
    """Calls of one script: the last of each partition takes more until it is full."""

    def room(
        self, keys: Keys, once: str = "", *, size: int = 0, fields: int = 0, tasks: int = 0, items: int = 1
    ) -> ScriptCall:
        """Return the call that takes more about a partition; ``once``: what a call may have only once."""
        for call in reversed(self):
            if call.keys is keys:
                break
        else:
            call = ScriptCall(keys)
            self.append(call)
        if call.items and (
            call.items + items > MOST_ITEMS
            or call.size + size > MOST_BYTES
            or call.fields + fields > MOST_FIELDS_IN_ALL
            or call.tasks + tasks > MOST_TASKS
            or once in call.once
        ):
            call = ScriptCall(keys)
            self.append(call)
        if once:
            call.once.add(once)
        call.items += items
        call.size += size
        call.fields += fields
        call.tasks += tasks
        return call


class Partitions:
    """The part of the store that knows where executions lie, and runs scripts there."""

    def __init__(self, redis: Redis, *, now: Callable[[], int] | None, lease_seconds: float) -> None:
        self._redis = redis
        # 0: the server's own time.
        self._now: Callable[[], int] = now or int
        self._lease = micros(lease_seconds)
        # Executions that are not where their id draws them. No Lru: the heartbeat thread reads it, too.
        self._elsewhere: OrderedDict[str, int] = OrderedDict()

    async def _run(self, script: Script, calls: Sequence[ScriptCall], *told: Argument) -> None:
        """Run a script, the calls of one partition in one go; ``told``: what every call is told first.

        Raises StoreKeyError where a key that all calls of a partition share is the reason of a refusal.
        """
        by_partition: dict[Keys, list[ScriptCall]] = {}
        for call in calls:
            by_partition.setdefault(call.keys, []).append(call)
        if len(by_partition) != 1:
            await asyncio.gather(*[self._run(script, own, *told) for own in by_partition.values()])
            return
        keys, now = calls[0].keys, self._now()
        commands: list[tuple[Script, Sequence[str], Sequence[Argument]]] = []
        for call in calls:
            names = [*keys.shared, *call.streams, *call.hashes]
            commands.append((script, names, [now, len(call.hashes), *told, *call.arguments]))
        try:
            replies = await self._redis.scripts(commands, partition=keys.partition)
        except ReplyError as error:
            if wrong := await wrong_keys(self._redis, keys):
                raise StoreKeyError(wrong[0].message) from error
            raise
        for call, reply in zip(calls, replies, strict=True):
            call.reply = reply

    # -- where executions lie ------------------------------------------------------------------------

    def _keys_of_row(self, row: ExecutionRow) -> Keys:
        partitions = self._redis.partitions
        if len(partitions) == 1:
            return partitions[0]
        partition = (
            row.partition if row.partition < len(partitions) else partition_of(row.id, len(partitions))
        )
        self._remember(row.id, partition)
        return partitions[partition]

    def _keys_of(self, execution_id: str) -> Keys:
        partitions = self._redis.partitions
        if len(partitions) == 1:
            return partitions[0]
        found = self._elsewhere.get(execution_id)
        return partitions[partition_of(execution_id, len(partitions)) if found is None else found]

    def _remember(self, execution_id: str, partition: int) -> None:
        partitions = len(self._redis.partitions)
        if partitions == 1 or partition == partition_of(execution_id, partitions):
            self._elsewhere.pop(execution_id, None)
            return
        self._elsewhere[execution_id] = partition
        if len(self._elsewhere) > _MOST_REMEMBERED:
            self._elsewhere.popitem(last=False)

    async def _seek(self, execution_ids: Sequence[str]) -> list[str]:
        """Search all partitions for executions; return those that are elsewhere, and remember where.

        Of one that is closed there may be several tombstones, and the latest counts.
        """
        if len(self._redis.partitions) == 1 or not execution_ids:
            return []
        names = list(dict.fromkeys(execution_ids))
        best: dict[str, tuple[bool, int, int]] = {}
        for keys in self._redis.partitions:
            for name, (fence,) in zip(
                names, await self._read(keys, [(name, ()) for name in names]), strict=True
            ):
                if fence is not None:
                    found = (fence.is_live, fence.epoch, keys.partition)
                    best[name] = max(best.get(name, found), found)
        moved = [
            name for name, (_, _, partition) in best.items() if partition != self._keys_of(name).partition
        ]
        for name in moved:
            self._remember(name, best[name][2])
        return moved

    # -- reading them --------------------------------------------------------------------------------

    async def _find(self, execution_ids: Sequence[str], *fields: str) -> list[list[Any] | None]:
        """Read the fence and these fields of executions, wherever they are; None for one that is away."""
        found: dict[str, list[Any] | None] = {}
        names = list(dict.fromkeys(execution_ids))
        while names:
            by_partition: dict[Keys, list[str]] = {}
            for name in names:
                by_partition.setdefault(self._keys_of(name), []).append(name)
            for keys, own in by_partition.items():
                read = await self._read(keys, [(name, fields) for name in own])
                for name, (fence, *values) in zip(own, read, strict=True):
                    found[name] = [fence, *values] if fence is not None and fence.is_live else None
            names = await self._seek([name for name in names if found[name] is None])
        return [found[execution_id] for execution_id in execution_ids]

    async def _read(self, keys: Keys, wanted: Sequence[tuple[str, Sequence[str]]]) -> list[list[Any]]:
        """Read the fence and some fields of each execution of one partition.

        The fence is None where there is none of this incarnation of the store. What is no hash of weft is
        dropped.
        """
        commands: list[tuple[Any, ...]] = [("GET", keys.incarnation_id)]
        commands += [("HMGET", keys.execution(name), _FENCE, *fields) for name, fields in wanted]
        incarnation_id, *replies = await self._redis.run(commands, partition=keys.partition)
        checked([incarnation_id])
        read: list[list[Any]] = []
        for (name, fields), reply in zip(wanted, replies, strict=True):
            fence: Fence | None = None
            if isinstance(reply, ReplyError) and str(reply).startswith("WRONGTYPE"):
                await self._drop(keys, name)
                read.append([None] * (1 + len(fields)))
                continue
            (values,) = checked([reply])
            if values[0] is not None:
                try:
                    fence = read_fence(values[0])
                except PoisonError:
                    await self._drop(keys, name)
            is_ours = fence is not None and fence.incarnation_id == incarnation_id
            read.append([fence if is_ours else None, *values[1:]])
        return read

    async def _drop(self, keys: Keys, execution_id: str) -> None:
        """Drop an execution whose hash is unreadable: without it the execution is unknown, and built anew."""
        await self._redis.call("UNLINK", keys.execution(execution_id), partition=keys.partition)


def checked(replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies
