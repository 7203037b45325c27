"""The children of executions in a journal in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.state import ExecutionState
from weft.core.time import micros
from weft.definition.waits import WaitKind
from weft.journal.contract import StrayChild, StrayReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weft.core.ledger.changes import Changes
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.journal.contract import ChildQuery


class MemoryChildren:
    """The part of a journal that is about children."""

    _now: Callable[[], int]
    _executions: dict[str, ExecutionRow]
    _nodes: dict[str, dict[str, NodeRow]]

    def __init__(self) -> None:
        # By parent, in the order in which they were created.
        self._children: dict[str, dict[str, None]] = {}
        # Children that have ended, and when; their parents were not told.
        self._untold_children: dict[str, int] = {}

    def _commit_children(self, changes: Changes) -> None:
        for execution_id, change in changes.executions.items():
            if change.is_new and change.row.parent is not None:
                self._children.setdefault(change.row.parent.execution, {})[execution_id] = None
        for execution_id, is_untold in changes.ended_children().items():
            if is_untold:
                self._untold_children[execution_id] = changes.now
            else:
                self._untold_children.pop(execution_id, None)

    def _with_children(self, execution_id: str) -> list[str]:
        """Return an execution and all below it, each behind its parent."""
        found = [execution_id]
        for each in found:
            found += self._children.get(each, ())
        return found

    def _forget_child(self, execution_id: str, parent: str) -> None:
        self._untold_children.pop(execution_id, None)
        children = self._children.get(parent, {})
        children.pop(execution_id, None)
        if not children:
            self._children.pop(parent, None)

    async def untold_children(self, *, older_than_seconds: float, limit: int) -> Sequence[ExecutionRow]:
        before = self._now() - micros(older_than_seconds)
        found = sorted((at, id_) for id_, at in self._untold_children.items() if at <= before)
        return [_listed(self._executions[id_]) for _, id_ in found[:limit]]

    async def forget_children(self, rows: Sequence[ExecutionRow]) -> None:
        for child in rows:
            row = self._executions.get(child.id)
            if row is not None and row.parent == child.parent and row.is_terminal:
                self._untold_children.pop(child.id, None)

    async def idle_children(self, execution_id: str, *, limit: int) -> Sequence[ExecutionRow]:
        idle = [row for row in self._open_children(execution_id) if not self._is_awaited(row)]
        return [_listed(row) for row in idle[:limit]]

    async def open_children(self, execution_id: str) -> Sequence[ExecutionRow]:
        return [_listed(row) for row in self._open_children(execution_id)]

    async def ended_children(
        self, execution_id: str, *, after: str = "", limit: int
    ) -> Sequence[ExecutionRow]:
        rows = [self._executions[id_] for id_ in sorted(self._children.get(execution_id, ())) if id_ > after]
        return [_listed(row) for row in rows if row.is_terminal][:limit]

    async def stray_children(self, *, limit: int) -> Sequence[StrayChild]:
        found = [
            StrayChild(_listed(row), reason)
            for parent in list(self._children)
            for row in self._open_children(parent)
            if (reason := self._stray_reason(row)) is not None
        ]
        return found[:limit]

    def _open_children(self, execution_id: str) -> Iterator[ExecutionRow]:
        rows = (self._executions[id_] for id_ in self._children.get(execution_id, ()))
        return (row for row in rows if not row.is_terminal)

    def _is_awaited(self, row: ExecutionRow) -> bool:
        link = row.parent
        assert link is not None
        node = self._nodes.get(link.execution, {}).get(link.node)
        wait = None if node is None else node.wait
        return (
            node is not None
            and wait is not None
            and wait.kind is WaitKind.CHILD
            and (node.generation, node.attempt) == (link.generation, link.attempt)
        )

    def _stray_reason(self, row: ExecutionRow) -> StrayReason | None:
        if not self._is_awaited(row):
            return StrayReason.IDLE
        assert row.parent is not None
        is_paused = row.state is ExecutionState.PAUSED
        is_parent_paused = self._executions[row.parent.execution].state is ExecutionState.PAUSED
        if is_parent_paused and not is_paused:
            return StrayReason.PARENT_PAUSED
        if is_paused and not is_parent_paused and row.halt is not None and row.halt.by_parent:
            return StrayReason.PARENT_RESUMED
        return None

    async def children(
        self, query: ChildQuery, *, after: int = -1, limit: int = 50
    ) -> Sequence[ExecutionRow]:
        rows = [
            row
            for row in self._current_children(query.execution_id)
            if row.parent is not None
            and row.parent.node == query.node_id
            and (not query.states or row.state in query.states)
            and _index(row) > after
        ]
        return [_listed(row) for row in sorted(rows, key=_index)[:limit]]

    async def child_counts(self, execution_id: str) -> Mapping[str, Mapping[ExecutionState, int]]:
        counts: dict[str, Counter[ExecutionState]] = {}
        for row in self._current_children(execution_id):
            assert row.parent is not None
            counts.setdefault(row.parent.node, Counter())[row.state] += 1
        return counts

    def _current_children(self, execution_id: str) -> list[ExecutionRow]:
        """Return the children of the last attempt of each node that has any."""
        rows = [self._executions[id_] for id_ in self._children.get(execution_id, ())]
        last: dict[str, int] = {}
        for row in rows:
            assert row.parent is not None
            last[row.parent.node] = max(row.parent.attempt, last.get(row.parent.node, 0))
        return [row for row in rows if row.parent is not None and last[row.parent.node] == row.parent.attempt]


def _index(row: ExecutionRow) -> int:
    assert row.parent is not None
    return row.parent.index or 0


def _listed(row: ExecutionRow) -> ExecutionRow:
    return replace(row, input=b"", output=None)
