"""Tombstones of closed executions, which keep an older generation or epoch from being installed again."""

from __future__ import annotations

from typing import NamedTuple

from weft.core.time import micros
from weft.store.contract import Answer

_MOST = 100_000
_KEPT_FOR = micros(900)


class Tombstone(NamedTuple):
    generation: int
    epoch: int
    at: int


_NONE = Tombstone(0, 0, 0)


class Tombstones(dict[str, Tombstone]):
    """By execution id, the oldest first. Bounded: an installer that is later than this is not alive."""

    def epoch(self, execution_id: str) -> int:
        return self.get(execution_id, _NONE).epoch

    def put(self, execution_id: str, generation: int, epoch: int, now: int) -> None:
        old = self.pop(execution_id, _NONE)
        self[execution_id] = Tombstone(max(old.generation, generation), max(old.epoch, epoch), now)
        oldest = next(iter(self))
        if len(self) > _MOST or self[oldest].at < now - _KEPT_FOR:
            del self[oldest]

    def answer(self, execution_id: str, generation: int, epoch: int) -> Answer:
        """Answer for an execution that is not there: it was closed, unless the caller knows a later epoch."""
        tombstone = self.get(execution_id)
        if tombstone is None or generation > tombstone.generation or epoch > tombstone.epoch:
            return Answer.UNKNOWN
        return Answer.REFUSED
