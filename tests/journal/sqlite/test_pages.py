"""Lists walk an index to their page: none looks at rows it does not show, sorts, or reads payloads."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from weft.core.state import ExecutionState
from weft.journal.contract import ExecutionQuery, LetterQuery, WaitQuery
from weft.journal.letter_groups import _group, letter_groups
from weft.journal.pages import Named, PageOf, _named, execution_walks, letter_walk
from weft.journal.queries import Listing
from weft.journal.rows import LETTER_COLUMNS, LISTED_COLUMNS
from weft.journal.sqlite.queries import translated
from weft.journal.sqlite.schema import open_for_writing
from weft.journal.waits import open_waits

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

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
        ({"error": "timeout"}, "failures_newest (namespace=? AND field=? AND value=?"),
        (
            {"node": "n", "error": "timeout", "worker": "w"},
            "failures_newest (namespace=? AND field=? AND value=?",
        ),
        ({"worker": "w", "labels": (("a", "1"),)}, "failures_newest (namespace=? AND field=? AND value=?"),
        ({"text": "blue"}, "executions_newest (namespace=?"),
        ({"min_microseconds": 1, "workflow": "w"}, "executions_workflow (namespace=? AND workflow=?"),
    ],
    ids=str,
)
def test_a_list_of_executions_begins_at_its_page(
    connection: sqlite3.Connection, query: dict[str, Any], index: str, before: tuple[int, str] | None
) -> None:
    listings = execution_listings(ExecutionQuery(**query), before)
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
        ({"node": "n", "code": "timeout"}, "dead_letters_node (namespace=? AND node_id=?"),
        (
            {"workflow": "w", "node": "n", "code": "timeout", "state": "open"},
            "dead_letters_groups (namespace=? AND state=? AND <expr>=?",
        ),
        ({"state": "open", "text": "blue"}, "dead_letters_state (state=? AND namespace=?"),
    ],
    ids=str,
)
def test_a_list_of_dead_letters_begins_at_its_page(
    connection: sqlite3.Connection, query: dict[str, Any], index: str
) -> None:
    first, *others = steps(connection, letter_listing(LetterQuery(**query), (5, "id")))
    assert index in first
    assert "(created_at,id)<(?,?)" in first
    assert not [step for step in others if step.startswith(("SCAN", "USE TEMP"))]


def test_the_dead_letters_of_an_execution_are_found_by_it(connection: sqlite3.Connection) -> None:
    first, *_ = steps(connection, letter_listing(LetterQuery(execution_id="e"), None))
    assert "dead_letters_execution (execution=?)" in first


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ({"text": "blue"}, "executions_newest"),
        ({"text": "blue", "workflow": "w"}, "executions_workflow"),
        ({"text": "blue", "states": ACTIVE}, "progress_state"),
        ({"text": "blue", "labels": (("a", "1"),)}, "PRIMARY KEY (namespace=? AND key=? AND value=?"),
        ({"max_microseconds": 1, "error": "timeout"}, "failures_newest"),
    ],
    ids=str,
)
def test_the_bound_of_a_search_is_read_from_the_index_alone(
    connection: sqlite3.Connection, query: dict[str, Any], index: str
) -> None:
    for listing in bounds(ExecutionQuery(**query)):
        (step,) = steps(connection, listing)
        assert step.startswith("SEARCH")
        assert index in step
        assert "COVERING INDEX" in step or "PRIMARY KEY" in step


def test_the_beginning_of_an_id_is_found_by_its_index(connection: sqlite3.Connection) -> None:
    (listing,) = execution_listings(ExecutionQuery(), None, [(1, "e1"), (2, "e2")])
    assert "sqlite_autoindex_executions_1 (id=?" in steps(connection, listing)[0]
    named = next(_named("0198c5a2", "default"))
    assert isinstance(named, Listing)
    (step,) = steps(connection, named)
    assert "sqlite_autoindex_executions_1 (id>? AND id<?)" in step


def test_groups_of_dead_letters_are_read_by_seeks(connection: sqlite3.Connection) -> None:
    for query in (letter_groups("default", "open", "w", None, 5), _group("default", "open", "w n timeout")):
        sql, values = translated(next(query))
        found = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
        assert "dead_letters_groups (namespace=? AND state=? AND <expr>" in found[0]
        assert not [step for step in found if step.startswith(("SCAN dead", "USE TEMP"))]


@pytest.mark.parametrize("after", [None, (5, "id", "node")], ids=["first page", "next page"])
@pytest.mark.parametrize("query", [WaitQuery(), WaitQuery(workflow="w"), WaitQuery(signal="s")], ids=str)
def test_a_list_of_questions_begins_at_its_page(
    connection: sqlite3.Connection, query: WaitQuery, after: tuple[int, str, str] | None
) -> None:
    sql, values = translated(next(open_waits(query, "default", after, 50)))
    first, *others = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert first == f"SEARCH waits USING INDEX waits_open (namespace=?{' AND since>?' if after else ''})"
    # What waits since the same microsecond is sorted by execution.
    assert not [step for step in others if step.startswith("SCAN") or step.endswith("FOR ORDER BY")]


def test_the_questions_of_an_execution_are_found_by_it(connection: sqlite3.Connection) -> None:
    sql, values = translated(next(open_waits(WaitQuery(execution_id="e"), "default", None, 50)))
    found = [step for *_, step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert found[0].startswith("SEARCH executions USING INDEX sqlite_autoindex_executions_1 (id=?)")
    assert found[1] == "SEARCH waits USING INDEX sqlite_autoindex_waits_1 (execution=?)"


def test_payloads_stand_behind_all_that_lists_read(connection: sqlite3.Connection) -> None:
    """SQLite walks over every page of a payload to a column behind it."""
    for table, payload in (("executions", "input"), ("progress", "output")):
        found = connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
        names = [name for (name,) in found]
        behind = names[names.index(payload) + 1 :]
        # What stands in a query of its own is read from an index alone.
        listed = re.sub(r"\(SELECT[^()]*(\([^()]*\)[^()]*)?\)", "", LISTED_COLUMNS)
        assert not [name for name in behind if re.search(rf"\b{name}\b", listed)]
    plan = connection.execute(
        f"EXPLAIN QUERY PLAN SELECT {LISTED_COLUMNS} FROM executions JOIN progress ON execution = number"
    ).fetchall()
    assert any("own USING COVERING INDEX progress_group_of" in row[-1] for row in plan)
