"""Pages of executions and dead letters: which index walks to the newest that are asked for.

Every list is ordered by (created_at, id), and the index that is meant for it ends with these two: the walk
begins behind the last row that was shown and ends when the page is full. What a condition without an index of
its own leaves out is walked over. The conditions are written so that only that index has them in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.state import ExecutionState
from weft.journal import rows
from weft.journal.postgres_rows import label as stored_label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.row import DeadLetter, ExecutionRow
    from weft.journal.contract import ExecutionQuery, LetterQuery
    from weft.journal.postgres_connection import Connection

Before = tuple[int, str] | None

_PLAIN = "executions JOIN progress ON progress.execution = executions.number"
_BY_LABEL = "labels JOIN executions ON executions.number = labels.execution" + _PLAIN.removeprefix(
    "executions"
)


class _Page:
    """A statement that is put together, with the values it binds."""

    def __init__(self, table: str, namespace: str, before: Before) -> None:
        """``table`` is walked: the order of its index is the order of the list."""
        self._table = table
        self._conditions: list[str] = []
        self._values: list[Any] = []
        self.where(f"{table}.namespace = {{}}", namespace)
        if before is not None:
            self.where(f"({table}.created_at, {table}.id) < ({{}}::bigint, {{}}::text)", *before)

    def where(self, condition: str, *values: Any) -> None:
        first = len(self._values) + 1
        self._conditions.append(condition.format(*(f"${first + place}" for place in range(len(values)))))
        self._values += values

    def where_given(self, condition: str, value: Any) -> None:
        if value is not None:
            self.where(condition, value)

    def statement(self, columns: str, source: str, limit: int) -> tuple[str, list[Any]]:
        return (
            f"SELECT {columns} FROM {source} WHERE {' AND '.join(self._conditions)}"  # noqa: S608
            f" ORDER BY {self._table}.created_at DESC, {self._table}.id DESC LIMIT ${len(self._values) + 1}",
            [*self._values, limit],
        )


async def executions(
    connection: Connection, query: ExecutionQuery, namespace: str, before: Before, limit: int
) -> list[ExecutionRow]:
    found: list[ExecutionRow] = []
    for sql, values in execution_statements(query, namespace, before, limit):
        found += [rows.read_execution(listed) for listed in await connection.fetch(sql, *values)]
    return sorted(found, key=lambda row: (row.created_at, row.id), reverse=True)[:limit]


def execution_statements(
    query: ExecutionQuery, namespace: str, before: Before, limit: int
) -> list[tuple[str, list[Any]]]:
    """Give the statements whose rows, together, have the page in them: one, or one for each state."""
    table = _walked(query)
    if table == "progress":
        states: Sequence[tuple[ExecutionState, ...]] = [(state,) for state in dict.fromkeys(query.states)]
    else:
        states = [query.states]
    statements = []
    for any_of in states:
        page = _Page(table, namespace, before)
        if len(any_of) == 1:
            page.where("progress.state = {}", any_of[0].value)
        elif any_of:
            page.where("progress.state = ANY({}::text[])", [state.value for state in any_of])
        page.where_given(f"{table}.created_at >= {{}}", query.created_after)
        page.where_given(f"{table}.created_at < {{}}", query.created_before)
        page.where_given("executions.batch = {}", query.batch)
        page.where_given("executions.workflow = {}", query.workflow)
        page.where_given("executions.version = {}::bigint", query.version)
        for position, (key, value) in enumerate(query.labels):
            label = stored_label(key), stored_label(value)
            if table == "labels" and position == 0:
                page.where("labels.key = {} AND labels.value = {}", *label)
            else:
                page.where(
                    "EXISTS (SELECT 1 FROM labels AS other WHERE other.namespace = executions.namespace"
                    " AND other.key = {} AND other.value = {} AND other.created_at = executions.created_at"
                    " AND other.id = executions.id)",
                    *label,
                )
        statements.append(
            page.statement(rows.LISTED_COLUMNS, _BY_LABEL if table == "labels" else _PLAIN, limit)
        )
    return statements


def _walked(query: ExecutionQuery) -> str:
    """Choose by the condition that most likely leaves the fewest."""
    if query.batch is not None:
        return "executions"
    if query.labels:
        return "labels"
    # Most executions are completed: only of the other states can it be said that they are few.
    if query.states and (query.workflow is None or ExecutionState.COMPLETED not in query.states):
        return "progress"
    return "executions"


async def dead_letters(
    connection: Connection, query: LetterQuery, namespace: str, before: Before, limit: int
) -> list[DeadLetter]:
    sql, values = letter_statement(query, namespace, before, limit)
    return [rows.read_letter(each) for each in await connection.fetch(sql, *values)]


def letter_statement(query: LetterQuery, namespace: str, before: Before, limit: int) -> tuple[str, list[Any]]:
    page = _Page("dead_letters", namespace, before)
    # Of one execution there are few enough to be sorted.
    page.where_given(
        "dead_letters.execution = (SELECT number FROM executions WHERE id = {})", query.execution_id
    )
    page.where_given("dead_letters.workflow = {}", query.workflow)
    page.where_given("dead_letters.state = {}", query.state)
    page.where_given("dead_letters.code = {}", query.code)
    # A letter whose execution is being purged is seen no more.
    source = "dead_letters JOIN executions ON executions.number = dead_letters.execution"
    return page.statement(rows.LETTER_COLUMNS, source, limit)
