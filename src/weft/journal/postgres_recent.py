"""Executions as this process recorded them last, so that their next events need not be read for.

Other processes write too: what is kept here is what *was* in the journal. Nothing is decided by it unless
the statement that writes the decision finds the execution's ``seq`` and ``epoch`` unchanged under its lock.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow

MAX_BYTES = 64 * 1024 * 1024
# Of more nodes than this the rows are read as they are needed: of a wide execution that is a small part.
_MAX_NODES = 1_000
# The objects that hold an execution, and a row, beside their payloads.
_BASE_BYTES, _ROW_BYTES = 1_000, 500


class Seen(msgspec.Struct, eq=False):
    """An execution with all rows of its nodes; a node without a row has none in the journal either."""

    number: int
    execution: ExecutionRow
    nodes: dict[str, NodeRow]
    size: int = _BASE_BYTES


def may_be_kept(plan: Plan) -> bool:
    """Say whether executions of a plan are few rows, and change with every commit what is compared."""
    # To issue an attempt changes a node's row alone.
    return len(plan.nodes) <= _MAX_NODES and not plan.has_at_most_once


class Recent:
    """Executions by their ids, those recorded last, up to a number of bytes in all."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def get(self, execution_id: str) -> Seen | None:
        seen = self._seen.get(execution_id)
        if seen is not None:
            self._seen.move_to_end(execution_id)
        return seen

    def put(self, number: int, execution: ExecutionRow, rows: Mapping[str, NodeRow]) -> Seen:
        """Keep an execution with these rows, beside those of it that are kept."""
        seen = self._seen.get(execution.id)
        if seen is None:
            seen = self._seen[execution.id] = Seen(number, execution, {})
            seen.size += len(execution.input)
            self._bytes += seen.size
        seen.execution = execution
        for node_id, row in rows.items():
            if node_id not in seen.nodes:
                size = _ROW_BYTES + len(row.output or b"")
                seen.size += size
                self._bytes += size
            seen.nodes[node_id] = row
        while self._bytes > self._max_bytes and len(self._seen) > 1:
            self.drop(next(iter(self._seen)))
        return seen

    def drop(self, execution_id: str) -> None:
        """Let go of an execution, if it is kept."""
        dropped = self._seen.pop(execution_id, None)
        if dropped is not None:
            self._bytes -= dropped.size
