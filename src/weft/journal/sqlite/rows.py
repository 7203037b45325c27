"""Encodes the journal's rows for SQLite's statements, and decodes them.

A ``RowsStatement`` writes many rows in one step of SQLite, for which Python's global lock is released once.
``executemany`` releases it for every row, and while the event loop is busy each row then waits a whole switch
interval (5 ms) to get it back: 70 rows a second were measured, instead of 6,000.

Of what every node has, only exact types are bound. For a member of an enum, or a bool, the sqlite3 module
searches for an adapter, which adds about a microsecond to each value.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.rows import ExecutionRow, History
from weft.journal import rows
from weft.journal.children import CHILD
from weft.journal.notifications import NOTIFICATION
from weft.journal.rows import Values, decode_json, encode_json
from weft.journal.waits import SIGNAL, WAIT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping, Sequence

    from weft.core.rows import DeadLetter, NodeRow

# A row has at most 27 values, and SQLite takes 32,766 in one statement.
_MAX_ROWS = 256

_decode_events = msgspec.json.Decoder(list[History]).decode


class RowsStatement:
    """A statement that takes one or more rows of values, at the place of ``{rows}``."""

    def __init__(self, sql: str, *, row: str = "", width: int = 0, one: str | None = None) -> None:
        """``row``: the values of one row, a ``?`` for each that is bound; by default as many as ``width``.

        ``one``: a statement to the same effect for a single row, where SQLite takes less time for it.
        """
        row = f"({row or ','.join('?' * width)})"
        # One statement per power of two: any number of rows takes few steps, and all of them stay prepared.
        sizes = [1 << power for power in range(_MAX_ROWS.bit_length())]
        self._statements = [(size, sql.format(rows=",".join([row] * size))) for size in reversed(sizes)]
        self._one = one or sql.format(rows=row)

    def run(self, connection: sqlite3.Connection, rows: Sequence[Values]) -> None:
        if len(rows) == 1:
            connection.execute(self._one, rows[0])
            return
        start = 0
        for size, statement in self._statements:
            while len(rows) - start >= size:
                connection.execute(statement, list(chain.from_iterable(rows[start : start + size])))
                start += size


def _insert(
    table: str, columns: Collection[str], verb: str = "INSERT OR FAIL", fixed: Mapping[str, str] = {}
) -> RowsStatement:
    """``fixed``: other columns, with values that are the same for all rows."""
    # OR FAIL leaves the rows before a refused one in place: the caller rolls the transaction back. Without it
    # SQLite itself prepares to undo half a statement, and copies every page it touches.
    sql = f"{verb} INTO {table} ({', '.join((*columns, *fixed))}) VALUES {{rows}}"
    return RowsStatement(sql, row=",".join(("?",) * len(columns) + tuple(fixed.values())))


def _update_progress(columns: Collection[str]) -> RowsStatement:
    """Return a statement that sets these columns of rows of progress; its values begin with the execution."""
    many = ", ".join([f"{name} = new.column{place}" for place, name in enumerate(columns, 2)])
    one = ", ".join([f"{name} = ?{place}" for place, name in enumerate(columns, 2)])
    return RowsStatement(
        f"UPDATE OR FAIL progress SET {many}"  # noqa: S608
        " FROM (VALUES {rows}) AS new WHERE execution = new.column1",
        width=1 + len(columns),
        # UPDATE … FROM takes 11 us for a single row, and this takes 3.
        one=f"UPDATE OR FAIL progress SET {one} WHERE execution = ?1",  # noqa: S608
    )


_NODE = ("execution", *rows.PLAIN_NODE, *rows.FURTHER_NODE)
INSERT_EXECUTIONS = _insert("executions", ("number", *rows.EXECUTION))
INSERT_LABELS = RowsStatement("INSERT OR FAIL INTO labels VALUES {rows}", width=6)
# Of an execution that is new: its first generation and epoch, and nothing has settled but what a fork keeps.
INSERT_PROGRESS = RowsStatement(
    "INSERT OR FAIL INTO progress VALUES {rows}",
    row="?,?,?,?,?,1,1,?,0,?,0,?,NULL,?,NULL,?,?,NULL,NULL,0,0,?,0,?,NULL,?",
)
UPDATE_PROGRESS = _update_progress(rows.PROGRESS)
UPDATE_COUNTERS = _update_progress(rows.COUNTERS)
# Of a node that completed at its first attempt: fewer values to bind, and the other columns keep defaults.
INSERT_COMPLETED_NODES = _insert("nodes", ("execution", *rows.COMPLETED_NODE), fixed=rows.FIRST_COMPLETION)
INSERT_NODES = _insert("nodes", _NODE)
REPLACE_NODES = _insert("nodes", _NODE, "REPLACE")
INSERT_EVENTS = RowsStatement("INSERT OR FAIL INTO events VALUES {rows}", width=5)
INSERT_LETTERS = _insert("dead_letters", (*rows.LETTER, "code"))
INSERT_NOTIFICATIONS = _insert("notifications", NOTIFICATION)
# The same node may have failed in an earlier generation.
INSERT_FAILURES = _insert("failures", rows.FAILURE, "INSERT OR IGNORE")
REPLACE_WAITS = _insert("waits", WAIT, "REPLACE")
INSERT_SIGNALS = _insert("signals", SIGNAL)
INSERT_CHILDREN = _insert("children", CHILD)
REPLACE_CACHE = RowsStatement("REPLACE INTO cache VALUES {rows}", width=4)

# A larger output is read by itself: joined with others it would be in memory several times.
_JOINED_OUTPUT_BYTES = 4096
# An output is JSON text, so it is the same bytes again when it has been part of a longer one.
_JOINED_OUTPUT = f"CASE WHEN length(output) <= {_JOINED_OUTPUT_BYTES} THEN CAST(output AS TEXT) END"
_IS_LARGE = f"length(output) > {_JOINED_OUTPUT_BYTES}"
RESULT_COLUMNS = (
    rows.EXECUTION_COLUMNS.replace("executions.input", "NULL")
    .replace("progress.output", _JOINED_OUTPUT)
    .replace("progress.halt", "NULL")
    .replace("progress.waiting", "0")
    .replace("progress.mailbox", "0")
    .replace("progress.evicted", "0")
    .replace("progress.parent", "NULL")
) + f", batch_index, {_IS_LARGE}"
_OUTPUT = list(rows.PLAIN_NODE).index("output")
NODE_COLUMNS = rows.NODE_COLUMNS.replace("nodes.output,", f"{_JOINED_OUTPUT},") + f", {_IS_LARGE}"
# The same width, without outputs.
NODE_STATES = rows.NODE_COLUMNS.replace("nodes.output,", "NULL,") + ", 0"


def label_values(number: int, row: ExecutionRow) -> list[Values]:
    return [(row.namespace, key, value, row.created_at, row.id, number) for key, value in row.labels.items()]


def new_progress_values(number: int, row: ExecutionRow) -> Values:
    return (
        number,
        row.namespace,
        row.created_at,
        row.id,
        str(row.state),
        row.unsettled,
        row.skipped,
        row.seq,
        row.started_at,
        row.deadline_at,
        row.updated_at,
        row.lane,
        row.group_name,
        None if row.parent is None else write_json(row.parent),
    )


def event_values(number: int, event: History) -> Values:
    return number, event.seq, event.at, event.type, encode_json(event)


def letter_values(number: int, namespace: str, letter: DeadLetter) -> Values:
    values = rows.letter_values(number, namespace, letter, write_json(letter.error))
    return *values, letter.error.get("code")


def read_node(values: list[Any], output: bytes | None) -> NodeRow:
    """Read NODE_COLUMNS back; ``output`` is one that was read by itself."""
    values[_OUTPUT] = output if values[_OUTPUT] is None else values[_OUTPUT].encode()
    return rows.read_node(values)


def read_joined(joined: bytes | None) -> list[Any]:
    """Read values that SQLite has joined by commas, each a JSON text."""
    return [] if joined is None else decode_json(b"[" + joined + b"]")


def read_result(values: list[Any], output: bytes | None) -> ExecutionRow:
    """Read RESULT_COLUMNS back, but for the last two; ``output`` is one that was read by itself."""
    row = rows.read_execution(values)
    joined: Any = row.output
    row.output = output if joined is None else joined.encode()
    return row


def read_events(joined: bytes | None) -> list[History]:
    """Read the bodies of events, joined by commas."""
    return [] if joined is None else _decode_events(b"[" + joined + b"]")


def write_json(value: Any) -> str:
    return encode_json(value).decode()
