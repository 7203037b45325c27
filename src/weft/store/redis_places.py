"""Where executions lie: each in one partition, which is not always the one that its id draws.

The partition is kept on the execution's row, so that the number of partitions may change. Whoever has the id
alone asks where it is drawn; what is not there is sought in the others, once, and remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from weft.core.partition import partition_of
from weft.store.redis_records import META, read_meta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.row import ExecutionRow
    from weft.redis.connection import Redis, Reply
    from weft.redis.keys import Keys
    from weft.store.redis_records import Meta

_MOST_REMEMBERED = 100_000


class Places:
    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        # Executions that are not where their id draws them.
        self._elsewhere: OrderedDict[str, int] = OrderedDict()

    def of_row(self, row: ExecutionRow) -> int:
        partitions = len(self._redis.partitions)
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
        """Look for executions in all partitions; give those that are elsewhere, and remember where.

        Of one that is closed there may be several marks, and the latest counts.
        """
        if len(self._redis.partitions) == 1 or not execution_ids:
            return []
        names = list(dict.fromkeys(execution_ids))
        best: dict[str, tuple[bool, int, int]] = {}
        for keys in self._redis.partitions:
            word, *metas = await self._read(keys, names)
            for name, packed in zip(names, metas, strict=True):
                meta = None if packed is None else read_meta(packed)
                if meta is not None and meta.token == word:
                    found = (meta.is_live, meta.epoch, keys.partition)
                    best[name] = max(best.get(name, found), found)
        moved = [name for name, (_, _, partition) in best.items() if partition != self.where(name)]
        for name in moved:
            self.remember(name, best[name][2])
        return moved

    async def metas(self, execution_ids: Sequence[str]) -> list[Meta | None]:
        """Read the numbers of executions; None for one that is not there."""
        found: dict[str, Meta | None] = {}
        await self._read_all(list(dict.fromkeys(execution_ids)), found)
        if len(self._redis.partitions) > 1:
            lost = [name for name, meta in found.items() if meta is None]
            await self._read_all(await self.seek(lost), found)
        return [found[execution_id] for execution_id in execution_ids]

    async def _read_all(self, execution_ids: Sequence[str], found: dict[str, Meta | None]) -> None:
        for partition, names in self.grouped(execution_ids).items():
            await self.read_metas(self._redis.partitions[partition], names, found)

    async def read_metas(
        self, keys: Keys, execution_ids: Sequence[str], found: dict[str, Meta | None]
    ) -> None:
        """Read the numbers of executions of one partition; None for one that is not there."""
        word, *metas = await self._read(keys, execution_ids)
        for name, packed in zip(execution_ids, metas, strict=True):
            found[name] = read_meta(packed) if packed is not None and is_of(packed, word) else None

    async def _read(self, keys: Keys, execution_ids: Sequence[str]) -> list[bytes | None]:
        """Read the word for this life of a partition, and what the hashes of executions begin with."""
        commands: list[tuple[Any, ...]] = [("GET", keys.token)]
        commands += [("HGET", keys.execution(name), "!") for name in execution_ids]
        word, *metas = await self._redis.run(commands, partition=keys.partition)
        # Of garbage, or of a key that is no hash, there is nothing to read: the next move drops it.
        return [*checked([word]), *[None if is_garbage(packed) else packed for packed in metas]]

    async def find_out(self, execution_ids: Sequence[str]) -> None:
        """Find out where executions are, if there is more than one place."""
        if len(self._redis.partitions) > 1:
            await self.metas(execution_ids)


def checked(replies: list[Reply]) -> list[Reply]:
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def is_garbage(packed: Reply) -> bool:
    """True if the numbers of an execution cannot be read."""
    return isinstance(packed, Exception) or (packed is not None and len(packed) < META.size)


def is_of(packed: bytes | None, word: bytes | None) -> bool:
    """Say whether an execution is there, and was installed in this life of the store."""
    if packed is None or word is None or is_garbage(packed):
        return False
    meta = read_meta(packed)
    return meta.is_live and meta.token == word
