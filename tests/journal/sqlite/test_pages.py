"""Lists walk an index to their page: none looks at rows it does not show, sorts, or reads payloads."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.state import ExecutionState
from weft.journal.contract import ExecutionQuery, LetterQuery
from weft.journal.pages import execution_listings, letter_listing
from weft.journal.rows import LISTED_COLUMNS
from weft.journal.sqlite.queries import translated
from weft.journal.sqlite.schema import open_for_writing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from weft.journal.queries import Listing

ACTIVE = (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(open_for_writing(tmp_path / "weft.db")) as connection:
        yield connection


def steps(connection: sqlite3.Connection, listing: Listing) -> list[str]:
    """Return how SQLite goes about a statement, but for the joining of the page at its end."""
    sql, values = translated(listing)
    found = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    return [step for step in found if "subquery" not in step]


@pytest.mark.parametrize("before", [None, (5, "id")], ids=["first page", "next page"])
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "executions_newest (namespace=?"),
        ({"workflow": "w"}, "executions_workflow (namespace=? AND workflow=?"),
        ({"workflow": "w", "version": 1}, "executions_workflow (namespace=? AND workflow=?"),
        ({"states": ACTIVE}, "progress_state (state=? AND namespace=?"),
        ({"states": (ExecutionState.COMPLETED,)}, "progress_state (state=? AND namespace=?"),
        ({"workflow": "w", "states": (ExecutionState.FAILED,)}, "progress_state (state=? AND namespace=?"),
        (
            {"workflow": "w", "states": (ExecutionState.COMPLETED,)},
            "executions_workflow (namespace=? AND workflow=?",
        ),
        ({"batch": "b"}, "executions_batch_newest (batch=?"),
        ({"batch": "b", "states": ACTIVE, "workflow": "w"}, "executions_batch_newest (batch=?"),
        ({"labels": (("a", "1"), ("b", "2"))}, "PRIMARY KEY (namespace=? AND key=? AND value=?"),
    ],
    ids=str,
)
def test_a_list_of_executions_begins_at_its_page(
    connection: sqlite3.Connection, query: dict[str, Any], index: str, before: tuple[int, str] | None
) -> None:
    listings = execution_listings(ExecutionQuery(**query), "default", before, 50)
    assert len(listings) == (len(query["states"]) if index.startswith("progress_state") else 1)
    for listing in listings:
        first, *others = steps(connection, listing)
        assert index in first
        assert first.startswith("SEARCH")
        assert ("(created_at,id)<(?,?)" in first) == (before is not None)
        assert not [step for step in others if step.startswith(("SCAN", "USE TEMP"))]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({}, "dead_letters_newest (namespace=?"),
        ({"workflow": "w"}, "dead_letters_workflow (namespace=? AND workflow=?"),
        ({"state": "open"}, "dead_letters_state (state=? AND namespace=?"),
        ({"code": "timeout", "state": "open"}, "dead_letters_code (namespace=? AND code=?"),
    ],
    ids=str,
)
def test_a_list_of_dead_letters_begins_at_its_page(
    connection: sqlite3.Connection, query: dict[str, Any], index: str
) -> None:
    first, *others = steps(connection, letter_listing(LetterQuery(**query), "default", (5, "id"), 50))
    assert index in first
    assert "(created_at,id)<(?,?)" in first
    assert not [step for step in others if step.startswith(("SCAN", "USE TEMP"))]


def test_the_dead_letters_of_an_execution_are_found_by_it(connection: sqlite3.Connection) -> None:
    first, *_ = steps(connection, letter_listing(LetterQuery(execution_id="e"), "default", None, 50))
    assert "dead_letters_execution (execution=?)" in first


def test_payloads_stand_behind_all_that_lists_read(connection: sqlite3.Connection) -> None:
    """SQLite walks over every page of a payload to a column behind it."""
    for table, payload in (("executions", "input"), ("progress", "output")):
        found = connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
        names = [name for (name,) in found]
        behind = names[names.index(payload) + 1 :]
        assert not [name for name in behind if re.search(rf"\b{name}\b", LISTED_COLUMNS)]
