"""The children of executions in both databases: their columns, and the queries that find them.

A row of ``children`` is an index entry of an execution that another one has called, written by the commits
that create it, end it and open it again. The rows of the two executions are the truth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.core.state import ExecutionState
from weft.journal import rows
from weft.journal.contract import StrayChild, StrayReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import ExecutionRow
    from weft.journal.contract import ChildQuery
    from weft.journal.queries import Query
    from weft.journal.rows import Values

# The key first.
CHILD = {
    "execution": "bigint",
    "changed_at": "bigint",
    "generation": "integer",
    "attempt": "integer",
    "phase": "text",
    "parent": "bigint",
    "place": "integer",
    "node_id": "text",
}
MOVED_CHILD = {name: CHILD[name] for name in ("execution", "changed_at", "generation", "attempt", "phase")}
# A child by its id, with the number of its parent.
TOLD_CHILD = {"execution": "bigint", "child": "text"}

_FROM = (
    " FROM children JOIN executions ON number = children.execution"
    " JOIN progress ON progress.execution = number"
)
_CHILDREN = f"SELECT {rows.LISTED_COLUMNS}{_FROM}"
_OF = "children.parent = (SELECT number FROM executions WHERE id = ?)"
_IS_AWAITED = (
    "EXISTS (SELECT 1 FROM waits WHERE waits.execution = children.parent AND waits.node_id = children.node_id"
    " AND waits.generation = children.generation AND waits.attempt = children.attempt"
    " AND settled_at IS NULL)"
)
_IS_CURRENT = (
    "attempt = (SELECT max(attempt) FROM children AS other WHERE other.parent = children.parent"
    " AND other.node_id = children.node_id)"
)
# ``Halt.by_parent`` is the last of its array.
_PAUSED_BY_PARENT = "progress.state = 'PAUSED' AND label_text(progress.halt) LIKE '%true]'"


_WHY = f", CASE WHEN NOT {_IS_AWAITED} THEN 0 WHEN above.state = 'PAUSED' THEN 1 ELSE 2 END"
_REASONS = (StrayReason.IDLE, StrayReason.PARENT_PAUSED, StrayReason.PARENT_RESUMED)


class ChildValues(NamedTuple):
    """The values that a transaction writes of children that were there before."""

    moved: list[Values]
    told: list[Values]


def written_values(changes: Changes) -> ChildValues:
    """Return what a transaction writes of children that were there before."""
    moved, told = [], []
    for id_, is_untold in changes.ended_children().items():
        change = changes.executions.get(id_)
        if change is None:
            told.append((changes.executions[changes.children_told[id_]].live.number, id_))
            continue
        phase = "ended" if is_untold else "told"
        moved.append(_moved(changes, change, phase if change.row.is_terminal else "open"))
    return ChildValues(moved, told)


def _moved(changes: Changes, change: Change, phase: str) -> Values:
    link = change.row.parent
    assert link is not None
    return change.live.number, changes.now, link.generation, link.attempt, phase


def new_values(changes: Changes, new: Sequence[Change]) -> list[Values]:
    """Return the values of children that a transaction creates; they have their numbers."""
    return [
        (
            *_moved(changes, change, "open"),
            changes.executions[link.execution].live.number,
            link.index,
            link.node,
        )
        for change in new
        if (link := change.row.parent) is not None
    ]


# -- the engine ----------------------------------------------------------------------------------------


def untold(ended_before: int, limit: int) -> Query[list[ExecutionRow]]:
    """Read children that have ended, and whose parents were not told of it, oldest first."""
    found = yield (
        f"{_CHILDREN} WHERE phase = 'ended' AND changed_at <= ? ORDER BY changed_at LIMIT ?",
        (ended_before, limit),
    )
    return [rows.read_execution(values) for values in found]


def forget(children: Sequence[ExecutionRow]) -> Query[None]:
    """Note that parents know of the ends of children, or wait for them no more."""
    for row in children:
        assert row.parent is not None
        yield (
            "UPDATE children SET phase = 'told' WHERE phase = 'ended' AND generation = ?"
            " AND execution = (SELECT number FROM executions WHERE id = ?)",
            (row.parent.generation, row.id),
        )


def idle(execution_id: str, limit: int) -> Query[list[ExecutionRow]]:
    """Read the children of an execution that have not ended, and that it does not wait for."""
    found = yield (
        f"{_CHILDREN} WHERE {_OF} AND phase = 'open' AND NOT {_IS_AWAITED} LIMIT ?",
        (execution_id, limit),
    )
    return [rows.read_execution(values) for values in found]


def still_open(execution_id: str) -> Query[list[ExecutionRow]]:
    """Read the children of an execution that have not ended."""
    found = yield f"{_CHILDREN} WHERE {_OF} AND phase = 'open'", (execution_id,)
    return [rows.read_execution(values) for values in found]


def ended(execution_id: str, after: str, limit: int) -> Query[list[ExecutionRow]]:
    """Read the children of an execution that have ended, in the order of their ids."""
    found = yield (
        f"{_CHILDREN} WHERE {_OF} AND phase <> 'open' AND executions.id > ? ORDER BY executions.id LIMIT ?",
        (execution_id, after, limit),
    )
    return [rows.read_execution(values) for values in found]


def stray(limit: int) -> Query[list[StrayChild]]:
    """Read the children that are not as their parents are."""
    found = yield (
        f"SELECT {rows.LISTED_COLUMNS}{_WHY}{_FROM}"
        " LEFT JOIN progress AS above ON above.execution = children.parent"
        f" WHERE phase = 'open' AND (NOT {_IS_AWAITED}"
        " OR (above.state = 'PAUSED' AND progress.state <> 'PAUSED')"
        f" OR (above.state <> 'PAUSED' AND {_PAUSED_BY_PARENT})) LIMIT ?",
        (limit,),
    )
    return [StrayChild(rows.read_execution(values), _REASONS[values[-1]]) for values in found]


# -- people --------------------------------------------------------------------------------------------


def listed(query: ChildQuery, after: int, limit: int) -> Query[list[ExecutionRow]]:
    """List the children of a node, in the order of their items."""
    conditions, values = f"{_OF} AND node_id = ? AND coalesce(place, 0) > ? AND {_IS_CURRENT}", []
    if query.states:
        conditions += f" AND progress.state IN ({', '.join('?' * len(query.states))})"
        values = [str(state) for state in query.states]
    found = yield (
        f"{_CHILDREN} WHERE {conditions} ORDER BY place LIMIT ?",
        (query.execution_id, query.node_id, after, *values, limit),
    )
    return [rows.read_execution(values) for values in found]


def counts(execution_id: str) -> Query[dict[str, dict[ExecutionState, int]]]:
    """Count the children of the nodes of an execution by their states."""
    found = yield (
        "SELECT node_id, state, count(*) FROM children"  # noqa: S608
        f" JOIN progress ON progress.execution = children.execution WHERE {_OF} AND {_IS_CURRENT}"
        " GROUP BY node_id, state",
        (execution_id,),
    )
    counted: dict[str, dict[ExecutionState, int]] = {}
    for node_id, state, number in found:
        counted.setdefault(node_id, {})[ExecutionState(state)] = number
    return counted
