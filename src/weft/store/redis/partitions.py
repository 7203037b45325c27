"""Where executions lie: each in one partition, which is not always the one that its id draws.

The partition is kept on the execution's row, so that the number of partitions may change. Whoever has the id
alone asks where it is drawn; what is not there is sought in the others, once, and remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from weft.core.partition import partition_of
from weft.errors import StoreKeyError
from weft.redis.connection import ReplyError
from weft.redis.health import wrong_keys
from weft.store.redis.layout import CONSTANTS, PoisonError, read_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.row import ExecutionRow
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys
    from weft.redis.script import Script
    from weft.store.redis.layout import Mark

_MOST_REMEMBERED = 100_000
_MARK = str(CONSTANTS["MARK"])


class PartitionLocator:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        # Executions that are not where their id draws them.
        self._elsewhere: OrderedDict[str, int] = OrderedDict()

    def of_row(self, row: ExecutionRow) -> int:
        partitions = len(self._redis.partitions)
        if partitions == 1:
            return 0
        partition = row.partition if row.partition < partitions else partition_of(row.id, partitions)
        self.remember(row.id, partition)
        return partition

    def where(self, execution_id: str) -> int:
        partitions = len(self._redis.partitions)
        if partitions == 1:
            return 0
        found = self._elsewhere.get(execution_id)
        return partition_of(execution_id, partitions) if found is None else found

    def remember(self, execution_id: str, partition: int) -> None:
        partitions = len(self._redis.partitions)
        if partitions == 1:
            return
        if partition == partition_of(execution_id, partitions):
            self._elsewhere.pop(execution_id, None)
            return
        self._elsewhere[execution_id] = partition
        if len(self._elsewhere) > _MOST_REMEMBERED:
            self._elsewhere.popitem(last=False)

    def grouped(self, execution_ids: Sequence[str]) -> dict[int, list[str]]:
        grouped: dict[int, list[str]] = {}
        for execution_id in execution_ids:
            grouped.setdefault(self.where(execution_id), []).append(execution_id)
        return grouped

    async def seek(self, execution_ids: Sequence[str]) -> list[str]:
        """Look for executions in all partitions; return those that are elsewhere, and remember where.

        Of one that is closed there may be several marks, and the latest counts.
        """
        if len(self._redis.partitions) == 1 or not execution_ids:
            return []
        names = list(dict.fromkeys(execution_ids))
        best: dict[str, tuple[bool, int, int]] = {}
        for keys in self._redis.partitions:
            for name, (mark,) in zip(names, await self.read(keys, names), strict=True):
                if mark is not None:
                    found = (mark.is_live, mark.epoch, keys.partition)
                    best[name] = max(best.get(name, found), found)
        moved = [name for name, (_, _, partition) in best.items() if partition != self.where(name)]
        for name in moved:
            self.remember(name, best[name][2])
        return moved

    async def find(self, execution_ids: Sequence[str], *fields: str) -> list[list[Any] | None]:
        """Read the mark and these fields of executions, wherever they are; None for one that is not there."""
        found: dict[str, list[Any] | None] = {}
        await self._read_all(list(dict.fromkeys(execution_ids)), fields, found)
        if len(self._redis.partitions) > 1:
            lost = [name for name, values in found.items() if values is None]
            await self._read_all(await self.seek(lost), fields, found)
        return [found[execution_id] for execution_id in execution_ids]

    async def _read_all(
        self, execution_ids: Sequence[str], fields: Sequence[str], found: dict[str, list[Any] | None]
    ) -> None:
        for partition, names in self.grouped(execution_ids).items():
            keys = self._redis.partitions[partition]
            for name, values in zip(names, await self.read(keys, names, *fields), strict=True):
                mark = values[0]
                found[name] = values if mark is not None and mark.is_live else None

    async def read(self, keys: Keys, execution_ids: Sequence[str], *fields: str) -> list[list[Any]]:
        """Read the mark and these fields of executions of one partition."""
        return await self.read_each(keys, [(name, fields) for name in execution_ids])

    async def read_each(self, keys: Keys, wanted: Sequence[tuple[str, Sequence[str]]]) -> list[list[Any]]:
        """Read the mark and some fields of each execution of one partition.

        The mark is None where there is none of this incarnation of the store. What is no hash of weft is
        dropped.
        """
        commands: list[tuple[Any, ...]] = [("GET", keys.token)]
        commands += [("HMGET", keys.execution(name), _MARK, *fields) for name, fields in wanted]
        token, *replies = await self._redis.run(commands, partition=keys.partition)
        checked([token])
        read: list[list[Any]] = []
        for (name, fields), reply in zip(wanted, replies, strict=True):
            mark: Mark | None = None
            if is_wrong_type(reply):
                await self.drop(keys, name)
                read.append([None] * (1 + len(fields)))
                continue
            (values,) = checked([reply])
            if values[0] is not None:
                try:
                    mark = read_mark(values[0])
                except PoisonError:
                    await self.drop(keys, name)
            is_ours = mark is not None and mark.token == token
            read.append([mark if is_ours else None, *values[1:]])
        return read

    async def drop(self, keys: Keys, execution_id: str) -> None:
        """Drop an execution whose hash is unreadable: without it the execution is unknown, and built anew."""
        await self._redis.call("UNLINK", keys.execution(execution_id), partition=keys.partition)


async def run_scripts(
    redis: Redis, keys: Keys, calls: Sequence[tuple[Script, Sequence[str], Sequence[bytes | str | int]]]
) -> list[Reply]:
    """Run scripts of one partition; raises StoreKeyError where a key that all of them share is the reason."""
    try:
        return await redis.scripts(calls, partition=keys.partition)
    except ReplyError as error:
        if wrong := await wrong_keys(redis, keys):
            raise StoreKeyError(wrong[0].message) from error
        raise


def checked(replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def is_wrong_type(reply: Reply) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("WRONGTYPE")
