"""Executions as this process recorded them last, so that their next events need not be read for.

Other processes write too: what is kept here is what *was* in the journal. Nothing is decided by it unless
the statement that writes the decision finds the execution's ``seq`` and ``epoch`` unchanged under its lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.core.lru import Lru

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow

MAX_BYTES = 64 * 1024 * 1024
MAX_FACTS_BYTES = 16 * 1024 * 1024
# Of more nodes than this the rows are read as they are needed: of a wide execution that is a small part.
_MAX_NODES = 1_000
# The objects that hold an execution, and a row, beside their payloads.
_BASE_BYTES, _ROW_BYTES = 1_000, 500


class Seen(msgspec.Struct, eq=False):
    """An execution with all rows of its nodes; a node without a row has none in the journal either."""

    number: int
    execution: ExecutionRow
    nodes: dict[str, NodeRow]
    size: int = 0

    def add(self, execution: ExecutionRow, rows: Mapping[str, NodeRow]) -> None:
        """Take the execution's row as it is now, and these rows of its nodes beside those that are kept."""
        self.size = self.size or _BASE_BYTES + len(execution.input)
        self.execution = execution
        for node_id, row in rows.items():
            if node_id not in self.nodes:
                self.size += _ROW_BYTES + len(row.output or b"")
            self.nodes[node_id] = row


def may_be_kept(plan: Plan) -> bool:
    """Say whether executions of a plan are few rows, and change with every commit what is compared."""
    # To issue an attempt changes a node's row alone.
    return len(plan.nodes) <= _MAX_NODES and not plan.has_at_most_once


def recent_executions(max_bytes: int = MAX_BYTES) -> Lru[str, Seen]:
    """Return a memory of the executions recorded last, by their ids."""
    return Lru(max_bytes, lambda seen: seen.size)


# An execution's number and row. Of the row only what never changes means anything: other processes write too.
Facts: TypeAlias = "Lru[str, tuple[int, ExecutionRow]]"


def known_executions(max_bytes: int = MAX_FACTS_BYTES) -> Facts:
    """Return a memory of what never changes of the executions used last, by their ids."""
    return Lru(max_bytes, lambda facts: _BASE_BYTES + len(facts[1].input))
