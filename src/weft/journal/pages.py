"""Pages of executions and dead letters: which index walks to the newest that are asked for.

Every list is ordered by (created_at, id), and every index named here ends with these two: the walk begins
behind the last row that was shown and ends when the page is full. What a condition without an index of its
own leaves out is walked over. The index is named because SQLite, without statistics, takes the wrong one.
For PostgreSQL the conditions are written so that only that index has them in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState
from weft.journal import rows
from weft.journal.queries import Listing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import ExecutionQuery, LetterQuery
    from weft.journal.queries import Query

Before = tuple[int, str] | None

_BY_STATE = "progress INDEXED BY progress_state CROSS JOIN executions ON number = execution"
_BY_LABEL = (
    "labels CROSS JOIN executions ON number = labels.execution"
    " CROSS JOIN progress ON progress.execution = number"
)
_BY_INDEX = "executions INDEXED BY {} CROSS JOIN progress ON execution = number"
# A letter whose execution is being purged is seen no more.
_LETTERS_BY_INDEX = "dead_letters INDEXED BY {} CROSS JOIN executions ON number = execution"


class _Page:
    """A statement that is put together, with the values it binds."""

    def __init__(self, table: str, namespace: str, before: Before) -> None:
        """``table`` is walked: the order of its index is the order of the list."""
        self._table = table
        self._conditions = [f"{table}.namespace = ?"]
        self._values: list[Any] = [namespace]
        if before is not None:
            self.where(f"({table}.created_at, {table}.id) < (?, ?)", *before)

    def where(self, condition: str, *values: Any) -> None:
        self._conditions.append(condition)
        self._values += values

    def where_given(self, condition: str, value: Any) -> None:
        if value is not None:
            self.where(condition, value)

    def listing(self, columns: str, source: str, limit: int) -> Listing:
        order = f"{self._table}.created_at DESC, {self._table}.id DESC"
        behind = f"FROM {source} WHERE {' AND '.join(self._conditions)} ORDER BY {order} LIMIT ?"
        return Listing(columns, behind, (*self._values, limit))


def executions(
    query: ExecutionQuery, namespace: str, before: Before, limit: int
) -> Query[list[ExecutionRow]]:
    found: list[ExecutionRow] = []
    for listing in execution_listings(query, namespace, before, limit):
        found += [rows.read_execution(values) for values in (yield listing)]
    return sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)[:limit]


def execution_listings(query: ExecutionQuery, namespace: str, before: Before, limit: int) -> list[Listing]:
    """Return the statements whose rows, together, have the page in them: one, or one for each state."""
    table, source = _walked(query)
    if table == "progress":
        states: Sequence[tuple[ExecutionState, ...]] = [(state,) for state in dict.fromkeys(query.states)]
    else:
        states = [query.states]
    listings = []
    for any_of in states:
        page = _Page(table, namespace, before)
        if any_of:
            page.where(f"progress.state IN ({', '.join('?' * len(any_of))})", *map(str, any_of))
        page.where_given(f"{table}.created_at >= ?", query.created_after)
        page.where_given(f"{table}.created_at < ?", query.created_before)
        page.where_given("executions.batch = ?", query.batch)
        page.where_given("executions.workflow = ?", query.workflow)
        # Its column in PostgreSQL is narrower than what may be asked for.
        page.where_given("executions.version = CAST(? AS bigint)", query.version)
        for position, label in enumerate(query.labels):
            if table == "labels" and position == 0:
                page.where("labels.key = ? AND labels.value = ?", *label)
            else:
                page.where(
                    "EXISTS (SELECT 1 FROM labels AS other WHERE other.namespace = executions.namespace"
                    " AND other.key = ? AND other.value = ? AND other.created_at = executions.created_at"
                    " AND other.id = executions.id)",
                    *label,
                )
        listings.append(page.listing(rows.LISTED_COLUMNS, source, limit))
    return listings


def _walked(query: ExecutionQuery) -> tuple[str, str]:
    """Return the table to walk, and how: by the condition that likely leaves the fewest rows."""
    if query.batch is not None:
        return "executions", _BY_INDEX.format("executions_batch_newest")
    if query.labels:
        return "labels", _BY_LABEL
    # Most executions are completed: only of the other states can it be said that they are few.
    if query.states and (query.workflow is None or ExecutionState.COMPLETED not in query.states):
        return "progress", _BY_STATE
    if query.workflow is not None:
        return "executions", _BY_INDEX.format("executions_workflow")
    return "executions", _BY_INDEX.format("executions_newest")


def dead_letters(query: LetterQuery, namespace: str, before: Before, limit: int) -> Query[list[DeadLetter]]:
    found = yield letter_listing(query, namespace, before, limit)
    letters = [rows.read_letter(values) for values in found]
    return sorted(letters, key=lambda letter: (letter.created_at, letter.id), reverse=True)


def letter_listing(query: LetterQuery, namespace: str, before: Before, limit: int) -> Listing:
    page = _Page("dead_letters", namespace, before)
    # Of one execution there are few enough to be sorted.
    page.where_given(
        "dead_letters.execution = (SELECT number FROM executions WHERE id = ?)", query.execution_id
    )
    page.where_given("dead_letters.workflow = ?", query.workflow)
    page.where_given("dead_letters.state = ?", query.state)
    page.where_given("dead_letters.code = ?", query.code)
    conditions = {
        "dead_letters_execution": query.execution_id,
        "dead_letters_code": query.code,
        "dead_letters_workflow": query.workflow,
        "dead_letters_state": query.state,
    }
    index = next((name for name, value in conditions.items() if value is not None), "dead_letters_newest")
    return page.listing(rows.LETTER_COLUMNS, _LETTERS_BY_INDEX.format(index), limit)
