"""How the journal's rows lie in SQLite: the statements, and the way there and back.

A ``RowsStatement`` writes many rows in one step of SQLite, for which Python's global lock is released once.
``executemany`` releases it for every row, and while the event loop is busy each row then waits a whole switch
interval (5 ms) to get it back: 70 rows a second were measured, instead of 6,000.

Only exact types are bound. For a member of an enum, or a bool, the sqlite3 module searches for an adapter,
which adds about a microsecond to each value.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from weft.core.row import DeadLetter, ExecutionRow, Halt, History, NodeRow
from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

Values: TypeAlias = tuple[Any, ...]

# A row has at most 24 values, and SQLite takes 32,766 in one statement.
_MAX_ROWS = 256

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_halt = msgspec.json.Decoder(Halt).decode
_decode_events = msgspec.json.Decoder(list[History]).decode


class RowsStatement:
    """A statement that takes one or more rows of values, at the place of ``{rows}``."""

    def __init__(self, sql: str, *, width: int) -> None:
        row = f"({','.join('?' * width)})"
        # One statement per power of two: any number of rows takes few steps, and all of them stay prepared.
        sizes = [1 << power for power in range(_MAX_ROWS.bit_length())]
        self._statements = [(size, sql.format(rows=",".join([row] * size))) for size in reversed(sizes)]

    def run(self, connection: sqlite3.Connection, rows: Sequence[Values]) -> None:
        start = 0
        for size, statement in self._statements:
            while len(rows) - start >= size:
                connection.execute(statement, list(chain.from_iterable(rows[start : start + size])))
                start += size


# OR FAIL leaves the rows before a refused one in place: whoever runs these rolls back what failed. Without it
# SQLite itself prepares to undo half a statement, and copies every page it touches.
INSERT_EXECUTIONS = RowsStatement("INSERT OR FAIL INTO executions VALUES {rows}", width=14)
INSERT_LABELS = RowsStatement("INSERT OR FAIL INTO labels VALUES {rows}", width=6)
INSERT_PROGRESS = RowsStatement("INSERT OR FAIL INTO progress VALUES {rows}", width=19)
UPDATE_PROGRESS = RowsStatement(
    "UPDATE OR FAIL progress SET state = new.column2, generation = new.column3, epoch = new.column4,"
    " unsettled = new.column5, failed = new.column6, skipped = new.column7, cancelled = new.column8,"
    " seq = new.column9, error = new.column10, started_at = new.column11, finished_at = new.column12,"
    " deadline_at = new.column13, updated_at = new.column14, output = new.column15,"
    " halt = new.column16 FROM (VALUES {rows}) AS new WHERE execution = new.column1",
    width=16,
)
UPDATE_COUNTERS = RowsStatement(
    "UPDATE OR FAIL progress SET unsettled = new.column2, failed = new.column3, skipped = new.column4,"
    " seq = new.column5, updated_at = new.column6"
    " FROM (VALUES {rows}) AS new WHERE execution = new.column1",
    width=6,
)
INSERT_PLAIN_NODES = RowsStatement(
    "INSERT OR FAIL INTO nodes (execution, node_id, attempt, ended, answered, state, generation, output,"
    " blob, output_bytes, worker, queued_at, started_at, finished_at, seq, recorded_at) VALUES {rows}",
    width=16,
)
INSERT_NODES = RowsStatement("INSERT OR FAIL INTO nodes VALUES {rows}", width=24)
REPLACE_NODES = RowsStatement("REPLACE INTO nodes VALUES {rows}", width=24)
INSERT_EVENTS = RowsStatement("INSERT OR FAIL INTO events VALUES {rows}", width=5)
INSERT_LETTERS = RowsStatement("INSERT OR FAIL INTO dead_letters VALUES {rows}", width=13)
REPLACE_CACHE = RowsStatement("REPLACE INTO cache VALUES {rows}", width=4)

_EXECUTION_COLUMNS = (
    "number, executions.id, executions.namespace, workflow, version, digest, {input}, labels, priority,"
    " batch, partition, executions.created_at, state, generation, epoch, total, unsettled, failed, skipped,"
    " cancelled, seq, {output}, error, started_at, finished_at, deadline_at, updated_at,"
    " {halt}"
)
EXECUTION_COLUMNS = _EXECUTION_COLUMNS.format(input="input", output="output", halt="halt")
# The same width, without reading what may be large.
LISTED_COLUMNS = _EXECUTION_COLUMNS.format(input="NULL", output="NULL", halt="NULL")
# A larger output is read by itself: joined with others it would be in memory several times.
_JOINED_OUTPUT_BYTES = 4096
# An output is JSON text, so it is the same bytes again when it has been part of a longer one.
_JOINED_OUTPUT = f"CASE WHEN length(output) <= {_JOINED_OUTPUT_BYTES} THEN CAST(output AS TEXT) END"
_IS_LARGE = f"length(output) > {_JOINED_OUTPUT_BYTES}"
RESULT_COLUMNS = (
    _EXECUTION_COLUMNS.format(input="NULL", output=_JOINED_OUTPUT, halt="NULL")
    + f", batch_index, {_IS_LARGE}"
)
NODE_COLUMNS = (
    f"node_id, attempt, ended, answered, state, generation, {_JOINED_OUTPUT}, blob, output_bytes, worker,"
    " queued_at, started_at, finished_at, seq, reason, cause, error, failures, losses, retry_at, issued,"
    f" cached, recorded_at, {_IS_LARGE}"
)
LETTER_COLUMNS = (
    "dead_letters.id, executions.id, dead_letters.workflow, node_id, generation, attempt, handler, queue,"
    " error, state, dead_letters.created_at"
)

_NODE_STATES: dict[str | None, NodeState | None] = {None: None, **{str(state): state for state in NodeState}}


def execution_values(number: int, row: ExecutionRow, index: int | None) -> Values:
    """``index``: its place in its batch."""
    return (
        number,
        row.id,
        row.namespace,
        row.workflow,
        row.version,
        row.digest,
        write_json(row.labels),
        row.priority,
        row.batch,
        index,
        row.partition,
        row.total,
        row.created_at,
        row.input,
    )


def label_values(number: int, row: ExecutionRow) -> list[Values]:
    return [(row.namespace, key, value, row.created_at, row.id, number) for key, value in row.labels.items()]


def new_progress_values(number: int, row: ExecutionRow) -> Values:
    return number, row.namespace, row.created_at, row.id, *progress_values(number, row)[1:]


def progress_values(number: int, row: ExecutionRow) -> Values:
    return (
        number,
        str(row.state),
        row.generation,
        row.epoch,
        row.unsettled,
        row.failed,
        row.skipped,
        row.cancelled,
        row.seq,
        None if row.error is None else write_json(row.error),
        row.started_at,
        row.finished_at,
        row.deadline_at,
        row.updated_at,
        row.output,
        None if row.halt is None else write_json(row.halt),
    )


def counter_values(number: int, row: ExecutionRow) -> Values:
    return number, row.unsettled, row.failed, row.skipped, row.seq, row.updated_at


def is_plain(row: NodeRow) -> bool:
    """Say whether it completed at its first attempt: then eight columns keep their defaults."""
    return row.state is NodeState.COMPLETED and not (
        row.failures
        or row.losses
        or row.issued
        or row.cached
        or row.error
        or row.retry_at is not None
        or row.reason is not None
        or row.cause is not None
    )


def plain_node_values(number: int, row: NodeRow) -> Values:
    return (
        number,
        row.node_id,
        row.attempt,
        row.ended,
        row.answered,
        "COMPLETED",
        row.generation,
        row.output,
        row.blob,
        row.output_bytes,
        row.worker,
        row.queued_at,
        row.started_at,
        row.finished_at,
        row.seq,
        row.recorded_at,
    )


def node_values(number: int, row: NodeRow) -> Values:
    return (
        number,
        row.node_id,
        row.attempt,
        row.ended,
        row.answered,
        None if row.state is None else str(row.state),
        row.generation,
        row.output,
        row.blob,
        row.output_bytes,
        row.worker,
        row.queued_at,
        row.started_at,
        row.finished_at,
        row.seq,
        _plain(row.reason),
        row.cause,
        None if row.error is None else write_json(row.error),
        row.failures,
        row.losses,
        row.retry_at,
        row.issued,
        int(row.cached),
        row.recorded_at,
    )


def event_values(number: int, event: History) -> Values:
    return number, event.seq, event.at, event.type, _encode(event)


def letter_values(number: int, namespace: str, letter: DeadLetter) -> Values:
    return (
        letter.id,
        number,
        namespace,
        letter.workflow,
        letter.node_id,
        letter.generation,
        letter.attempt,
        letter.handler,
        letter.queue,
        write_json(letter.error),
        letter.state,
        letter.created_at,
        letter.error.get("code"),
    )


def read_execution(values: Values) -> ExecutionRow:
    """Read EXECUTION_COLUMNS back, or the columns of lists, but for the number in front."""
    return ExecutionRow(
        id=values[1],
        namespace=values[2],
        workflow=values[3],
        version=values[4],
        digest=values[5],
        input=values[6],
        labels=_decode(values[7]),
        priority=values[8],
        batch=values[9],
        partition=values[10],
        created_at=values[11],
        state=ExecutionState(values[12]),
        generation=values[13],
        epoch=values[14],
        total=values[15],
        unsettled=values[16],
        failed=values[17],
        skipped=values[18],
        cancelled=values[19],
        seq=values[20],
        output=values[21],
        error=None if values[22] is None else _decode(values[22]),
        started_at=values[23],
        finished_at=values[24],
        deadline_at=values[25],
        updated_at=values[26],
        halt=None if values[27] is None else _decode_halt(values[27]),
    )


def read_node(values: list[Any], output: bytes | None) -> NodeRow:
    """Read NODE_COLUMNS back; ``output`` is one that was read by itself."""
    if values[6] is not None:
        output = values[6].encode()
    return NodeRow(
        node_id=values[0],
        attempt=values[1],
        ended=values[2],
        answered=values[3],
        state=_NODE_STATES[values[4]],
        generation=values[5],
        output=output,
        blob=values[7],
        output_bytes=values[8],
        worker=values[9],
        queued_at=values[10],
        started_at=values[11],
        finished_at=values[12],
        seq=values[13],
        reason=values[14],
        cause=values[15],
        error=None if values[16] is None else _decode(values[16]),
        failures=values[17],
        losses=values[18],
        retry_at=values[19],
        issued=values[20],
        cached=bool(values[21]),
        recorded_at=values[22],
    )


def read_joined(joined: bytes | None) -> list[Any]:
    """Read values that SQLite has joined by commas, each a JSON text."""
    return [] if joined is None else _decode(b"[" + joined + b"]")


def read_listed(values: list[Any]) -> ExecutionRow:
    """Read LISTED_COLUMNS back."""
    values[6] = b""
    return read_execution(tuple(values))


def read_result(values: list[Any], output: bytes | None) -> ExecutionRow:
    """Read RESULT_COLUMNS back, but for the last two; ``output`` is one that was read by itself."""
    values[21] = output if values[21] is None else values[21].encode()
    return read_listed(values)


def read_events(joined: bytes | None) -> list[History]:
    """Read the bodies of events, joined by commas."""
    return [] if joined is None else _decode_events(b"[" + joined + b"]")


def read_letter(values: Values | list[Any]) -> DeadLetter:
    """Read LETTER_COLUMNS back."""
    return DeadLetter(
        id=values[0],
        execution_id=values[1],
        workflow=values[2],
        node_id=values[3],
        generation=values[4],
        attempt=values[5],
        handler=values[6],
        queue=values[7],
        error=_decode(values[8]),
        state=values[9],
        created_at=values[10],
    )


def write_json(value: Any) -> str:
    return _encode(value).decode()


def _plain(text: str | None) -> str | None:
    return None if text is None else str(text)
