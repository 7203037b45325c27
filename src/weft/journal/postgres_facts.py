"""What never changes of executions, kept for those that were in hand not long ago.

What changes is kept only to be compared with what is there (``Recent``): other processes write too.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.core.row import ExecutionRow

MAX_BYTES = 16 * 1024 * 1024
# Of one execution, beside its input: the objects that hold it.
_BASE_BYTES = 1_000


class Facts:
    """Executions' numbers and rows by their ids, those used last, up to a number of bytes in all.

    Of a row only what never changes means anything.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._known: OrderedDict[str, tuple[int, ExecutionRow]] = OrderedDict()

    def get(self, execution_id: str) -> tuple[int, ExecutionRow] | None:
        known = self._known.get(execution_id)
        if known is not None:
            self._known.move_to_end(execution_id)
        return known

    def put(self, number: int, execution: ExecutionRow) -> None:
        self.drop(execution.id)
        self._known[execution.id] = number, execution
        self._bytes += _BASE_BYTES + len(execution.input)
        while self._bytes > self._max_bytes and len(self._known) > 1:
            self.drop(next(iter(self._known)))

    def clear(self) -> None:
        """Let go of all executions: the database has lost commits, and may give their numbers again."""
        self._known.clear()
        self._bytes = 0

    def drop(self, execution_id: str) -> None:
        """Let go of an execution, if it is kept."""
        dropped = self._known.pop(execution_id, None)
        if dropped is not None:
            self._bytes -= _BASE_BYTES + len(dropped[1].input)
