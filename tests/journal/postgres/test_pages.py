"""Lists walk an index to their page: none looks at rows it does not show, or sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.core.state import ExecutionState
from weft.journal.contract import ExecutionQuery, LetterQuery
from weft.journal.letter_groups import _group, letter_groups
from weft.journal.pages import Named, PageOf, _named, execution_walks, letter_walk
from weft.journal.postgres.connection import connect
from weft.journal.postgres.queries import translated
from weft.journal.queries import Listing
from weft.journal.rows import LETTER_COLUMNS, LISTED_COLUMNS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


ACTIVE = (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED)


def execution_listings(
    query: ExecutionQuery, before: tuple[int, str] | None, named: Named = ()
) -> list[Listing]:
    walks = execution_walks(query, PageOf("default", before, 50), 7, named=named)
    return [walk.listing(LISTED_COLUMNS, 50) for walk in walks]


def bounds(query: ExecutionQuery) -> list[Listing]:
    return [walk.bound() for walk in execution_walks(query, PageOf("default", (5, "id"), 50))]


def letter_listing(query: LetterQuery, before: tuple[int, str] | None) -> Listing:
    return letter_walk(query, PageOf("default", before, 50)).listing(LETTER_COLUMNS, 50)


@pytest.fixture
async def connection(journal_url: str) -> AsyncIterator[Any]:
    connection = await connect(journal_url)
    # As many rows as make a difference, most of them completed.
    await connection.execute(
        """
        INSERT INTO executions (id, namespace, workflow, version, digest, labels, priority, partition, total,
            created_at, input, batch, batch_index)
        SELECT 'e' || n, 'default', 'w' || n % 20, 1, 'd', '{}', 'normal', 0, 1, n, '{}',
            'b' || n % 50, n
        FROM generate_series(1, 5000) AS n;
        INSERT INTO progress (execution, created_at, updated_at, generation, epoch, unsettled, failed,
            skipped, cancelled, seq, state, namespace, id)
        SELECT number, created_at, 1, 1, 1, 0, 0, 0, 0, 1,
            (ARRAY['PENDING', 'RUNNING', 'PAUSED', 'FAILED', 'CANCELLED', 'COMPLETED'])
                [least(6, 1 + number % 40)], 'default', id FROM executions;
        INSERT INTO labels SELECT namespace, 'a', (number % 20)::text::bytea, created_at, id, number
        FROM executions;
        INSERT INTO dead_letters
        SELECT id, number, id, namespace, workflow, 'n' || number % 30, 1, 1, 'echo', 'default', '{}',
            'code' || number % 10,
            (ARRAY['open', 'handled', 'retried', 'dropped'])[1 + number % 4],
            created_at FROM executions;
        INSERT INTO failures (execution, namespace, field, value, created_at, id)
        SELECT number, namespace, 'node', 'n' || number % 30, created_at, id FROM executions;
        INSERT INTO failures (execution, namespace, field, value, created_at, id)
        SELECT number, namespace, 'error', 'timeout', created_at, id FROM executions WHERE number % 3 = 0;
        ANALYZE;
        """
    )
    yield connection
    await connection.close()


async def steps(connection: Any, listing: Listing) -> list[str]:
    """Return how PostgreSQL goes about a statement, whatever the values are: it is planned once."""
    sql, values = translated(listing)
    await connection.execute(f"PREPARE page AS {sql}")
    given = ", ".join(_literal(value) for value in values)
    plan = await connection.fetch(f"EXPLAIN EXECUTE page ({given})")
    await connection.execute("DEALLOCATE page")
    return [step for (step,) in plan]


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"'{{{','.join(value)}}}'"
    return (
        str(value) if isinstance(value, int) else f"'{value.decode() if isinstance(value, bytes) else value}'"
    )


@pytest.mark.parametrize("before", [None, (5, "id")], ids=["first page", "next page"])
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "executions_newest"),
        ({"workflow": "w1"}, "executions_workflow"),
        ({"workflow": "w1", "version": 1}, "executions_workflow"),
        ({"states": ACTIVE}, "progress_state"),
        ({"states": (ExecutionState.COMPLETED,)}, "progress_state"),
        ({"workflow": "w1", "states": (ExecutionState.FAILED,)}, "progress_state"),
        ({"workflow": "w1", "states": (ExecutionState.COMPLETED,)}, "executions_workflow"),
        ({"batch": "b1"}, "executions_batch_newest"),
        ({"batch": "b1", "states": ACTIVE, "workflow": "w1"}, "executions_"),
        ({"labels": (("a", "1"),)}, "labels_pkey"),
        ({"labels": (("a", "1"), ("b", "2"))}, ""),
        ({"error": "timeout"}, "failures_pkey"),
        ({"node": "n1", "workflow": "w1"}, "failures_pkey"),
        ({"node": "n1", "error": "timeout", "worker": "w"}, "failures_pkey"),
        ({"text": "blue"}, "executions_newest"),
        ({"text": "blue", "workflow": "w1"}, "executions_workflow"),
        ({"min_microseconds": 1, "states": ACTIVE}, "progress_state"),
    ],
    ids=str,
)
async def test_a_list_of_executions_begins_at_its_page(
    connection: Any, query: dict[str, Any], index: str, before: tuple[int, str] | None
) -> None:
    for listing in execution_listings(ExecutionQuery(**query), before):
        plan = await steps(connection, listing)
        assert any(f"Index Scan Backward using {index}" in step for step in plan), plan
        assert not [step for step in plan if "Sort" in step or "Seq Scan" in step], plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "dead_letters_newest"),
        ({"workflow": "w1"}, "dead_letters_workflow"),
        ({"state": "open"}, "dead_letters_"),
        ({"code": "code1"}, "dead_letters_code"),
        ({"node": "n1"}, "dead_letters_node"),
        ({"workflow": "w1", "node": "n1", "code": "code1", "state": "open"}, "dead_letters_groups"),
        ({"state": "open", "text": "blue"}, "dead_letters_"),
    ],
    ids=str,
)
async def test_a_list_of_dead_letters_begins_at_its_page(
    connection: Any, query: dict[str, Any], index: str
) -> None:
    plan = await steps(connection, letter_listing(LetterQuery(**query), (5, "id")))
    assert any(f"Index Scan Backward using {index}" in step for step in plan), plan
    assert not [step for step in plan if "Sort" in step or "Seq Scan" in step], plan


async def test_the_dead_letters_of_an_execution_are_found_by_it(connection: Any) -> None:
    plan = await steps(connection, letter_listing(LetterQuery(execution_id="e1"), None))
    assert any("using dead_letters_execution" in step for step in plan), plan


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({"text": "blue"}, "executions_newest"),
        ({"text": "blue", "workflow": "w1"}, "executions_workflow"),
        ({"text": "blue", "states": ACTIVE}, "progress_state"),
        ({"text": "blue", "labels": (("a", "1"),)}, "labels_pkey"),
        ({"max_microseconds": 1, "error": "timeout"}, "failures_pkey"),
    ],
    ids=str,
)
async def test_the_bound_of_a_search_is_read_from_the_index(
    connection: Any, query: dict[str, Any], index: str
) -> None:
    for listing in bounds(ExecutionQuery(**query)):
        plan = await steps(connection, listing)
        assert any(f"Scan Backward using {index}" in step for step in plan), plan
        assert not [step for step in plan if "Sort" in step or "Seq Scan" in step or "Join" in step], plan


async def test_the_beginning_of_an_id_is_found_by_its_index(connection: Any) -> None:
    listing = next(_named("e499", "default"))
    assert isinstance(listing, Listing)
    plan = await steps(connection, listing)
    assert any("executions_id_key" in step for step in plan), plan
    (listing,) = execution_listings(ExecutionQuery(), None, [(1, "e1"), (2, "e2")])
    plan = await steps(connection, listing)
    assert any("Index Cond" in step and ("id = ANY" in step or "created_at >=" in step) for step in plan), (
        plan
    )
    assert not [step for step in plan if "Seq Scan" in step], plan


async def test_groups_of_dead_letters_are_read_by_seeks(connection: Any) -> None:
    for query in (letter_groups("default", "open", "w1", None, 5), _group("default", "open", "w1 n1 code1")):
        statement = next(query)
        assert not isinstance(statement, Listing)
        sql, values = statement
        plan = await steps(connection, Listing(sql.removeprefix("SELECT "), "", values))
        assert any("using dead_letters_groups" in step for step in plan), plan
        assert not [step for step in plan if "Sort" in step or "Seq Scan on dead_letters" in step], plan
