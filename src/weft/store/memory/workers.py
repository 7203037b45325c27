"""The workers that announce themselves to the memory store, and which of them were lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.time import micros
from weft.store.contract import WorkerState, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

# A lost worker is shown for so long: long enough to be noticed, not to pile up with every restart.
_KEEP_LOST = micros(3600)


class WorkerList(dict[str, WorkerStatus]):
    """By worker id, as each announced itself last."""

    def list_at(self, now: int, lease: int) -> Sequence[WorkerStatus]:
        """List the workers by id, those silent for longer than a lease as lost; forget the long lost."""
        seen = []
        # A copy: a heartbeat may come from its thread meanwhile.
        for worker_id, worker in sorted(self.copy().items()):
            silence = now - worker.heartbeat_at
            if silence <= lease:
                seen.append(worker)
            elif silence <= lease + _KEEP_LOST:
                seen.append(replace(worker, state=WorkerState.LOST))
            else:
                self.pop(worker_id, None)
        return seen
