"""The lines that nodes printed and logged, kept in chunks.

A worker writes the lines of an attempt about twice a second, each time as one row: a chunk. A row for each
line would cost as much as the result of a node. Lines are numbered (``seq``) over the whole execution in the
order of the commits, so a reader that asks for what is behind a number misses none. Numbers may have gaps:
the first of a chunk is kept for a notice about older lines, and lines that are gone leave theirs unused.

What functions say of their progress is written in the same transactions, into one row for each node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.rows import NodeProgress
from weft.journal.contract import LogLine, StoredChunk

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.journal.contract import LogChunk, ReportedProgress
    from weft.journal.queries import Query

# Rows in one statement: few texts, so that every one of them stays prepared.
_ROWS = (64, 8, 1)


def encode_lines(lines: Sequence[LogLine]) -> bytes:
    return _ENCODER.encode(lines)


def decode_lines(body: bytes) -> list[LogLine]:
    return _DECODER.decode(body)


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(list[LogLine])
_PROGRESS_DECODER = msgspec.json.Decoder(NodeProgress)


def append(chunks: Sequence[LogChunk], progress: Sequence[ReportedProgress]) -> Query[None]:
    """Store chunks and progress, in one transaction. Those of an execution that is gone are left out.

    The row of an execution in ``log_heads`` is locked until the commit: whoever has a higher number has
    committed later, and no reader passes a chunk that is still to come.
    """
    ids = sorted({chunk.execution_id for chunk in chunks} | {one.execution_id for one in progress})
    numbers = dict((yield "SELECT id, number FROM executions WHERE id IN ?", (ids,)))
    kept = [chunk for chunk in chunks if chunk.execution_id in numbers]
    needed: dict[int, int] = {}
    for chunk in kept:
        number = numbers[chunk.execution_id]
        needed[number] = needed.get(number, 0) + 1 + len(chunk.lines)
    # In one order, or two workers could wait for each other.
    for part in _parts(sorted(needed.items())):
        yield (
            f"INSERT INTO log_heads (execution, last_seq) VALUES {_places(part)}"  # noqa: S608
            " ON CONFLICT (execution) DO UPDATE SET last_seq = log_heads.last_seq + excluded.last_seq",
            tuple(value for row in part for value in row),
        )
    heads = dict((yield "SELECT execution, last_seq FROM log_heads WHERE execution IN ?", (sorted(needed),)))
    next_seq = {number: heads[number] - needed[number] + 1 for number in needed}
    rows = []
    for chunk in kept:
        number = numbers[chunk.execution_id]
        first = next_seq[number]
        next_seq[number] = first + 1 + len(chunk.lines)
        last = next_seq[number] - 1
        body = encode_lines(chunk.lines)
        rows.append(
            (number, first, last, chunk.node_id, chunk.attempt, chunk.number, chunk.lines_before, body)
        )
    for part in _parts(rows):
        yield (
            "INSERT INTO log_chunks"  # noqa: S608
            " (execution, first_seq, last_seq, node_id, attempt, number, lines_before, body)"
            f" VALUES {_places(part)} ON CONFLICT DO NOTHING",
            tuple(value for row in part for value in row),
        )
    for chunk in kept:
        if chunk.keep_from > 1:
            yield (
                "DELETE FROM log_chunks WHERE execution = ? AND node_id = ? AND attempt = ? AND number < ?",
                (numbers[chunk.execution_id], chunk.node_id, chunk.attempt, chunk.keep_from),
            )
    told = [
        (numbers[one.execution_id], one.node_id, one.attempt, _ENCODER.encode(one.progress))
        for one in progress
        if one.execution_id in numbers
    ]
    # In one order, as above.
    for part in _parts(sorted(told)):
        yield (
            f"INSERT INTO node_progress (execution, node_id, attempt, body) VALUES {_places(part)}"  # noqa: S608
            " ON CONFLICT (execution, node_id) DO UPDATE SET attempt = excluded.attempt, body = excluded.body"
            " WHERE excluded.attempt >= node_progress.attempt",
            tuple(value for row in part for value in row),
        )


def read_progress(execution_id: str, names: list[str] | None) -> Query[dict[str, tuple[int, NodeProgress]]]:
    """Read what nodes last said of their progress, all or those named."""
    condition, values = ("", ()) if names is None else (" AND node_id IN ?", (names,))
    found = yield (
        "SELECT node_id, attempt, body FROM node_progress"  # noqa: S608
        f" WHERE execution = (SELECT number FROM executions WHERE id = ?){condition}",
        (execution_id, *values),
    )
    return {node_id: (attempt, _PROGRESS_DECODER.decode(body)) for node_id, attempt, body in found}


def read(
    execution_id: str, after: int, limit: int, node_id: str | None, attempt: int | None
) -> Query[list[StoredChunk]]:
    """Read chunks that end behind ``after``, in the order of their numbers."""
    condition, values = "", [execution_id, after]
    if node_id is not None:
        condition += " AND node_id = ?"
        values.append(node_id)
    if attempt is not None:
        condition += " AND attempt = ?"
        values.append(attempt)
    found = yield (
        "SELECT node_id, attempt, first_seq, body, lines_before, NOT EXISTS ("  # noqa: S608
        "SELECT 1 FROM log_chunks AS older WHERE older.execution = log_chunks.execution"
        " AND older.node_id = log_chunks.node_id AND older.attempt = log_chunks.attempt"
        " AND older.number < log_chunks.number)"
        " FROM log_chunks WHERE execution = (SELECT number FROM executions WHERE id = ?)"
        f" AND last_seq > ?{condition} ORDER BY last_seq LIMIT ?",
        (*values, limit),
    )
    return [
        StoredChunk(
            node_id=node,
            attempt=number,
            first_seq=first_seq,
            lines_gone=before if is_oldest else 0,
            lines=decode_lines(body),
        )
        for node, number, first_seq, body, before, is_oldest in found
    ]


def _parts(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Split rows into parts whose sizes are few."""
    start = 0
    for size in _ROWS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def _places(rows: Sequence[Sequence[Any]]) -> str:
    return ", ".join([f"({', '.join('?' * len(rows[0]))})"] * len(rows))
