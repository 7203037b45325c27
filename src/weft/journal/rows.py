"""The columns that the tables of both databases have, and the decoding of their rows.

A column is named like the field that it holds. The types are PostgreSQL's. JSON that people have a part in is
bytes in PostgreSQL and text in SQLite; both are read alike.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from weft.core.ledger.changes import is_first_completion
from weft.core.rows import (
    LARGE_INPUT_BYTES,
    Called,
    DeadLetter,
    ExecutionRow,
    Halt,
    NodeRow,
    Parent,
    Parked,
    Polled,
)
from weft.core.state import ExecutionState, NodeState
from weft.errors import UnstorableError
from weft.journal.search import failure_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weft.core.ledger.changes import Change
    from weft.core.rows import History

Values: TypeAlias = tuple[Any, ...]

encode_json = msgspec.json.Encoder().encode
decode_json = msgspec.json.Decoder().decode
_decode_halt = msgspec.json.Decoder(Halt).decode
_decode_parked = msgspec.json.Decoder(Parked).decode
_decode_polled = msgspec.json.Decoder(Polled).decode
_decode_parent = msgspec.json.Decoder(Parent).decode
_decode_called = msgspec.json.Decoder(Called).decode

_STATES = {str(state): state for state in ExecutionState}
_NODE_STATES: dict[str | None, NodeState | None] = {None: None, **{str(state): state for state in NodeState}}

# What never changes of an execution, and what a commit changes of it.
EXECUTION = {
    "id": "text",
    "namespace": "text",
    "workflow": "text",
    "version": "integer",
    "digest": "text",
    "priority": "text",
    "batch": "text",
    "partition": "integer",
    "total": "integer",
    "created_at": "bigint",
    "input": "bytea",
    "forked_from": "text",
    "traceparent": "text",
    "trigger": "text",
    "lane": "text",
    "parent_id": "text",
    "labels": "bytea",
    "batch_index": "integer",
}
PROGRESS = {
    "state": "text",
    "generation": "integer",
    "epoch": "integer",
    "unsettled": "integer",
    "failed": "integer",
    "skipped": "integer",
    "cancelled": "integer",
    "seq": "integer",
    "error": "bytea",
    "started_at": "bigint",
    "finished_at": "bigint",
    "deadline_at": "bigint",
    "updated_at": "bigint",
    "output": "bytea",
    "halt": "bytea",
    "waiting": "integer",
    "mailbox": "integer",
    "evicted": "boolean",
    # It never changes; beside its execution it would stand behind the input.
    "group_name": "text",
    "parent": "bytea",
}
# What events change of it within one state of one generation.
COUNTERS = {name: PROGRESS[name] for name in ("unsettled", "failed", "skipped", "seq", "updated_at")}
# What a completion at the first attempt gives a node: a statement that adds one knows the rest.
COMPLETED_NODE = {
    "node_id": "text",
    "output": "bytea",
    "output_bytes": "bigint",
    "worker": "text",
    "queued_at": "bigint",
    "started_at": "bigint",
    "finished_at": "bigint",
    "seq": "integer",
    "recorded_at": "bigint",
}
FIRST_COMPLETION = {"attempt": "1", "ended": "1", "answered": "1", "state": "'COMPLETED'", "generation": "1"}
# The columns that such a node has values in, and those that keep their defaults then.
PLAIN_NODE = {
    "node_id": "text",
    "attempt": "integer",
    "ended": "integer",
    "answered": "integer",
    "state": "text",
    "generation": "integer",
    "output": "bytea",
    "blob": "text",
    "output_bytes": "bigint",
    "worker": "text",
    "queued_at": "bigint",
    "started_at": "bigint",
    "finished_at": "bigint",
    "seq": "integer",
    "recorded_at": "bigint",
}
FURTHER_NODE = {
    "reason": "text",
    "cause": "text",
    "error": "bytea",
    "failures": "integer",
    "losses": "integer",
    "retry_at": "bigint",
    "issued": "integer",
    "cached": "boolean",
    "reused": "boolean",
    "parked": "bytea",
    "polled": "bytea",
    "called": "bytea",
}
LETTER = {
    "id": "text",
    "execution": "bigint",
    "namespace": "text",
    "workflow": "text",
    "node_id": "text",
    "generation": "integer",
    "attempt": "integer",
    "handler": "text",
    "queue": "text",
    "error": "bytea",
    "state": "text",
    "created_at": "bigint",
}
# What a search finds an execution by when something failed in it (``search.failure_terms``).
FAILURE = {
    "execution": "bigint",
    "namespace": "text",
    "field": "text",
    "value": "text",
    "created_at": "bigint",
    "id": "text",
}

_FACTS = tuple(name for name in EXECUTION if name != "batch_index")
# What never changes of an execution, its number first; and the two together.
FACTS = ", ".join(f"executions.{name}" for name in ("number", *_FACTS))
PROGRESS_COLUMNS = ", ".join(f"progress.{name}" for name in PROGRESS)
EXECUTION_COLUMNS = f"{FACTS}, {PROGRESS_COLUMNS}"
# The same width, without reading what may be large, nor what lies behind it.
LISTED_COLUMNS = (
    EXECUTION_COLUMNS.replace("executions.input", "NULL")
    .replace("progress.output", "NULL")
    .replace("progress.halt", "NULL")
    .replace(
        "progress.waiting",
        "(SELECT count(*) FROM waits WHERE waits.execution = number AND settled_at IS NULL)",
    )
    .replace("progress.mailbox", "0")
    # It lies behind the output; its depth and its deadline are left out.
    .replace(
        "progress.parent",
        "(SELECT '[\"' || executions.parent_id || '\",\"' || node_id || '\",'"
        " || coalesce(CAST(place AS text), 'null') || ',' || children.attempt || ',0,'"
        " || children.generation || ',null]' FROM children WHERE children.execution = executions.number)",
    )
    .replace("progress.evicted", "0")
    .replace(
        "progress.group_name",
        # From the index alone: few executions have a group, and the column stands behind the output.
        "(SELECT own.group_name FROM progress AS own INDEXED BY progress_group_of"
        " WHERE own.execution = number AND own.group_name IS NOT NULL)",
    )
)
# The same width, with an empty input in place of a large one. Neither database reads what it only measures.
LEAN_COLUMNS = EXECUTION_COLUMNS.replace(
    "executions.input",
    f"CASE WHEN length(executions.input) <= {LARGE_INPUT_BYTES} THEN executions.input"
    " ELSE substr(executions.input, 1, 0) END",
)
NODE_COLUMNS = ", ".join(f"nodes.{name}" for name in (*PLAIN_NODE, *FURTHER_NODE))
_LETTER = tuple(LETTER)[3:]
LETTER_COLUMNS = "dead_letters.id, executions.id, " + ", ".join(f"dead_letters.{name}" for name in _LETTER)


_facts_of = attrgetter(*list(EXECUTION)[:-2])
_progress_of = attrgetter(*PROGRESS)
_node_of = attrgetter(*PLAIN_NODE, *FURTHER_NODE)
_letter_of = attrgetter(*_LETTER)
_TEXTS = frozenset({"state", "reason"})
_PLACE = {name: place for place, name in enumerate((*PLAIN_NODE, *FURTHER_NODE), 1)}


class _Storing:
    """Raises UnstorableError for a value that cannot be stored: over 64 bits, half a surrogate pair."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, (OverflowError, TypeError, ValueError)):
            raise UnstorableError(f"nothing was written: a value cannot be stored: {error}") from error


STORING = _Storing()


def execution_values(row: ExecutionRow, index: int | None, labels: bytes | str) -> Values:
    """Return the values of EXECUTION; ``index``: its place in its batch."""
    return *_facts_of(row), labels, index


def progress_values(number: int, row: ExecutionRow, encode: Callable[[Any], bytes | str]) -> Values:
    """Return the values of PROGRESS, behind the execution's number."""
    state, *values = _progress_of(row)
    error, halt, parent = values[7], values[13], values[18]
    values[7] = None if error is None else encode(error)
    values[13] = None if halt is None else encode(halt)
    values[18] = None if parent is None else encode(parent)
    return number, state.value, *values


def completed_node_values(number: int, row: NodeRow) -> Values:
    """Return the values of COMPLETED_NODE, behind the execution's number."""
    return (
        number,
        row.node_id,
        row.output,
        row.output_bytes,
        row.worker,
        row.queued_at,
        row.started_at,
        row.finished_at,
        row.seq,
        row.recorded_at,
    )


def node_values(number: int, row: NodeRow, encode: Callable[[Any], bytes | str]) -> Values:
    """Return the values of PLAIN_NODE and FURTHER_NODE, behind the execution's number."""
    values = [number, *_node_of(row)]
    for name, write in (
        ("state", str),
        ("reason", str),
        ("error", encode),
        ("parked", encode),
        ("polled", encode),
        ("called", encode),
    ):
        place = _PLACE[name]
        if values[place] is not None:
            values[place] = write(values[place])
    return tuple(values)


class ExecutionChanges:
    """The values that a transaction writes of executions and their nodes, by how they are written."""

    def __init__(
        self, changed: Iterable[Change], encode: Callable[[Any], bytes | str], *, wide: int = 2**63
    ) -> None:
        """``encode`` writes JSON as the database holds it; ``wide``: more nodes than this are many.

        New executions are not in it: whoever adds them writes all that there is of them.
        """
        self.moved: list[Values] = []
        self.counted: list[Values] = []
        self.completed: list[Values] = []
        # The same, of executions with many nodes.
        self.completed_in_wide: list[Values] = []
        self.added: list[Values] = []
        self.overwritten: list[Values] = []
        for change in changed:
            number, row, before = change.live.number, change.row, change.live.row
            if change.is_new:
                pass
            elif (
                row.state is not before.state
                or row.generation != before.generation
                or row.epoch != before.epoch
                or row.halt != before.halt
                or row.waiting != before.waiting
                or row.mailbox != before.mailbox
                or row.parent != before.parent
            ):
                self.moved.append(progress_values(number, row, encode))
            elif row.seq != before.seq:
                # Within one state of one generation, events move the counters alone.
                self.counted.append((number, row.unsettled, row.failed, row.skipped, row.seq, row.updated_at))
            stored = change.live.rows
            completed = self.completed_in_wide if row.total > wide else self.completed
            for node_id, node in change.rows.items():
                if node_id in stored:
                    self.overwritten.append(node_values(number, node, encode))
                elif is_first_completion(node):
                    # What was read and is not there is simply added: most often a node that completed at
                    # its first attempt.
                    completed.append(completed_node_values(number, node))
                else:
                    self.added.append(node_values(number, node, encode))


def letter_values(number: int, namespace: str, letter: DeadLetter, error: bytes | str) -> Values:
    """Return the values of LETTER."""
    workflow, node_id, generation, attempt, handler, queue, _, *behind = _letter_of(letter)
    about = (workflow, node_id, generation, attempt, handler, queue)
    return letter.id, number, namespace, *about, error, *behind


def failure_values(change: Change, event: History) -> list[Values]:
    """Return the values of FAILURE that an event adds: none, unless it tells of a failure."""
    row = change.row
    return [
        (change.live.number, row.namespace, field, value, row.created_at, row.id)
        for field, value in failure_terms(event)
    ]


# Executions and nodes are read by the places of their columns, which takes half as long as by their names.


def read_facts(values: Any) -> ExecutionRow:
    """Read FACTS back; what a commit changes is left as it never is."""
    return ExecutionRow(
        id=values[1],
        namespace=values[2],
        workflow=values[3],
        version=values[4],
        digest=values[5],
        priority=values[6],
        batch=values[7],
        partition=values[8],
        total=values[9],
        created_at=values[10],
        input=values[11] or b"",
        forked_from=values[12],
        traceparent=values[13],
        trigger=values[14],
        lane=values[15],
        # 16: the id of its parent, which ``progress`` has with the rest.
        labels=decode_json(values[17]),
        state=ExecutionState.PENDING,
        generation=0,
        epoch=0,
        unsettled=0,
        seq=0,
    )


def read_progress(facts: ExecutionRow, values: Any, start: int) -> ExecutionRow:
    """Read PROGRESS_COLUMNS back, which begin at ``start``, onto what never changes."""
    error, halt, parent = values[start + 8], values[start + 14], values[start + 19]
    return replace(
        facts,
        state=_STATES[values[start]],
        generation=values[start + 1],
        epoch=values[start + 2],
        unsettled=values[start + 3],
        failed=values[start + 4],
        skipped=values[start + 5],
        cancelled=values[start + 6],
        seq=values[start + 7],
        error=None if error is None else decode_json(error),
        started_at=values[start + 9],
        finished_at=values[start + 10],
        deadline_at=values[start + 11],
        updated_at=values[start + 12],
        output=values[start + 13],
        halt=None if halt is None else _decode_halt(halt),
        waiting=values[start + 15],
        mailbox=values[start + 16],
        evicted=bool(values[start + 17]),
        group_name=values[start + 18],
        parent=None if parent is None else _decode_parent(parent),
    )


def read_execution(values: Any) -> ExecutionRow:
    """Read EXECUTION_COLUMNS or LISTED_COLUMNS back."""
    return read_progress(read_facts(values), values, 1 + len(_FACTS))


def read_node(values: Any) -> NodeRow:
    """Read NODE_COLUMNS back."""
    error, parked, polled, called = values[17], values[24], values[25], values[26]
    return NodeRow(
        node_id=values[0],
        attempt=values[1],
        ended=values[2],
        answered=values[3],
        state=_NODE_STATES[values[4]],
        generation=values[5],
        output=values[6],
        blob=values[7],
        output_bytes=values[8],
        worker=values[9],
        queued_at=values[10],
        started_at=values[11],
        finished_at=values[12],
        seq=values[13],
        recorded_at=values[14],
        reason=values[15],
        cause=values[16],
        error=None if error is None else decode_json(error),
        failures=values[18],
        losses=values[19],
        retry_at=values[20],
        issued=values[21],
        cached=bool(values[22]),
        reused=bool(values[23]),
        parked=None if parked is None else _decode_parked(parked),
        polled=None if polled is None else _decode_polled(polled),
        called=None if called is None else _decode_called(called),
    )


def read_letter(values: Any) -> DeadLetter:
    """Read LETTER_COLUMNS back."""
    fields = dict(zip(("id", "execution_id", *_LETTER), values, strict=True))
    fields["error"] = decode_json(fields["error"])
    return DeadLetter(**fields)
