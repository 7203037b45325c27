"""Which nodes are known to be skipped behind a failure, so that the next failure does not walk them again.

Only a memory: without it a thousand failures over the same fifty thousand nodes would each walk them
all. What is forgotten is walked once more, and the fence drops what is settled already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import NodeFailed, NodeSkipped
from weft.core.ledger.changes import Verdict
from weft.lru import Lru

if TYPE_CHECKING:
    from collections.abc import Container

    from weft.core.ledger.changes import RecordedEvent

_MOST_EXECUTIONS = 256
_SKIPPING = (NodeFailed, NodeSkipped)


class Cascades:
    def __init__(self) -> None:
        self._skipped: Lru[tuple[str, int], set[str]] = Lru(_MOST_EXECUTIONS)

    def known(self, execution_id: str, generation: int) -> Container[str]:
        return self._skipped.get((execution_id, generation)) or ()

    def forget(self) -> None:
        """Drop everything: the database has lost commits."""
        self._skipped.clear()

    def learn(self, recorded_event: RecordedEvent) -> None:
        """Remember skips that are committed; forget an execution that is over."""
        event, execution = recorded_event.event, recorded_event.execution
        if not isinstance(event, _SKIPPING) or recorded_event.verdict is not Verdict.ACCEPTED:
            return
        assert execution is not None
        key = (event.execution_id, event.generation)
        if execution.is_terminal:
            self._skipped.drop(key)
        elif event.skips:
            skipped = self._skipped.get(key) or set()
            skipped.update(row.node_id for row in recorded_event.rows)
            self._skipped.put(key, skipped)
