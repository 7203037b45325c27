"""Rows that a journal's only writer keeps in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.row import ExecutionRow, NodeRow

# They are mostly the very objects that the memory store holds too, so the bound is high: an execution that is
# let go for it has to be read again, whole, when it changes next.
MAX_ROWS = 1_000_000


class Held:
    """Rows of executions as the ledger wants them, and the numbers that the tables know them by."""

    def __init__(
        self,
        executions: Mapping[str, ExecutionRow],
        nodes: Mapping[str, Mapping[str, NodeRow]],
        numbers: Mapping[str, int],
    ) -> None:
        self.executions = executions
        self.nodes = nodes
        self.numbers = numbers


class ActiveRows(Held):
    """Every row of the executions that are not terminal and changed not too long ago."""

    executions: dict[str, ExecutionRow]  # in the order in which they were last changed
    nodes: dict[str, dict[str, NodeRow]]
    numbers: dict[str, int]

    def __init__(self, max_rows: int = MAX_ROWS) -> None:
        super().__init__({}, {}, {})
        self._max_rows = max_rows
        self._rows = 0

    def put(self, number: int, execution: ExecutionRow, nodes: dict[str, NodeRow]) -> None:
        """Take in an execution, with all the rows it has."""
        assert execution.id not in self.executions
        self.executions[execution.id] = execution
        self.nodes[execution.id] = nodes
        self.numbers[execution.id] = number
        self._rows += 1 + len(nodes)

    def update(self, execution: ExecutionRow, changed: Mapping[str, NodeRow]) -> None:
        """Bring an execution up to date that is held already."""
        del self.executions[execution.id]
        self.executions[execution.id] = execution
        nodes = self.nodes[execution.id]
        self._rows -= len(nodes)
        nodes.update(changed)
        self._rows += len(nodes)

    def drop(self, execution_id: str) -> None:
        """Let go of an execution, if it is held."""
        if self.executions.pop(execution_id, None) is not None:
            self._rows -= 1 + len(self.nodes.pop(execution_id))
            del self.numbers[execution_id]

    def shrink(self) -> None:
        """Let go of those that were not changed for longest, while there are more rows than the bound."""
        while self._rows > self._max_rows and len(self.executions) > 1:
            self.drop(next(iter(self.executions)))

    def clear(self) -> None:
        self.executions.clear()
        self.nodes.clear()
        self.numbers.clear()
        self._rows = 0
