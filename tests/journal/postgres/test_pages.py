"""Lists walk an index to their page: none looks at rows it does not show, or sorts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.core.state import ExecutionState
from weft.journal.contract import ExecutionQuery, LetterQuery
from weft.journal.pages import execution_listings, letter_listing
from weft.journal.postgres.connection import connect
from weft.journal.postgres.queries import translated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.journal.queries import Listing

ACTIVE = (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED)


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
        SELECT id, number, id, namespace, workflow, 'n', 1, 1, 'echo', 'default', '{}', 'code' || number % 10,
            (ARRAY['open', 'handled', 'retried', 'dropped'])[1 + number % 4],
            created_at FROM executions;
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
    ],
    ids=str,
)
async def test_a_list_of_executions_begins_at_its_page(
    connection: Any, query: dict[str, Any], index: str, before: tuple[int, str] | None
) -> None:
    for listing in execution_listings(ExecutionQuery(**query), "default", before, 50):
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
    ],
    ids=str,
)
async def test_a_list_of_dead_letters_begins_at_its_page(
    connection: Any, query: dict[str, Any], index: str
) -> None:
    plan = await steps(connection, letter_listing(LetterQuery(**query), "default", (5, "id"), 50))
    assert any(f"Index Scan Backward using {index}" in step for step in plan), plan
    assert not [step for step in plan if "Sort" in step or "Seq Scan" in step], plan


async def test_the_dead_letters_of_an_execution_are_found_by_it(connection: Any) -> None:
    plan = await steps(connection, letter_listing(LetterQuery(execution_id="e1"), "default", None, 50))
    assert any("using dead_letters_execution" in step for step in plan), plan
