"""How the journal's rows lie in PostgreSQL: their columns, and the way there and back.

A statement takes any number of rows. JSON that people have a part in is stored as the bytes of its text: a
text column takes no U+0000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace

from weft.core.row import DeadLetter, ExecutionRow, Halt, History, NodeRow, completion_event
from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

Values: TypeAlias = tuple[Any, ...]

# The database's clock, in microseconds. In a statement behind the lock it is the time of the commit's turn.
CLOCK = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_halt = msgspec.json.Decoder(Halt).decode
_pack = msgspec.msgpack.Encoder().encode

_STATES = {str(state): state for state in ExecutionState}
_NODE_STATES: dict[str | None, NodeState | None] = {None: None, **{str(state): state for state in NodeState}}


# Text of one column travels joined by these. The second stands for a missing one.
_SEPARATOR, _MISSING = "\x1f", "\x1e"


class Columns:
    """Columns of a table, with their types, in the order in which values are given.

    Rows travel as a few parameters for each column: numbers as the literal of an array, text joined by a
    separator, bytes one behind the other with the places where each begins. The driver's own arrays took ten
    times as long: it looks at every value whether it is an array again.
    """

    def __init__(self, **types: str) -> None:
        self.names = tuple(types)
        self.types = tuple(types.values())
        # How many parameters they are.
        self.width = sum(3 if type_ == "bytea" else 1 for type_ in self.types)

    @property
    def listed(self) -> str:
        return ", ".join(self.names)

    def unnested(self, first: int, alias: str = "new") -> str:
        """Write the rows as a table of their own; ``first`` is the number of the first parameter."""
        arrays, names, columns = [], [], []
        for name, type_ in zip(self.names, self.types, strict=True):
            if type_ == "bytea":
                arrays += [f"${first + 1}::text::integer[]", f"${first + 2}::text::integer[]"]
                names += [f"{name}_from", f"{name}_size"]
                columns.append(f"substring(${first}::bytea FROM {name}_from FOR {name}_size) AS {name}")
                first += 3
                continue
            if type_ == "text":
                arrays.append(f"(string_to_array(${first}::text, '{_SEPARATOR}', '{_MISSING}'))[2:]")
            else:
                arrays.append(f"${first}::text::{type_}[]")
            names.append(name)
            columns.append(name)
            first += 1
        unnested = f"unnest({', '.join(arrays)}) AS u ({', '.join(names)})"
        return f"(SELECT {', '.join(columns)} FROM {unnested}) AS {alias}"  # noqa: S608

    def set(self, skipped: int, alias: str = "new") -> str:
        """Write the assignments of an update, but for the first columns, which are the key."""
        return ", ".join(f"{name} = {alias}.{name}" for name in self.names[skipped:])

    def parameters(self, rows: Sequence[Values]) -> list[Any]:
        """Give the parameters for rows, of which there is at least one."""
        parameters: list[Any] = []
        for type_, column in zip(self.types, zip(*rows, strict=True), strict=True):
            if type_ == "bytea":
                parameters += _joined(column)
            elif type_ == "text":
                parameters.append(_texts(column))
            else:
                # As _numbers does, in line: most columns are numbers, and the call costs more than the rest.
                parameters.append("{" + repr([*column])[1:-1].replace("None", "NULL") + "}")
        return parameters


def _numbers(column: Sequence[int | None]) -> str:
    # What Python writes of a list is what PostgreSQL reads of an array.
    return f"{{{repr([*column])[1:-1].replace('None', 'NULL')}}}"


def _texts(column: Sequence[str | None]) -> str:
    # Behind a separator of its own, one empty text is told from no text at all.
    if None in column:
        column = [_MISSING if text is None else text for text in column]
    joined = _SEPARATOR + _SEPARATOR.join(column)  # type: ignore[arg-type]
    if joined.count(_SEPARATOR) != len(column):
        raise ValueError("a name with a control character")
    return joined


def _joined(column: Sequence[bytes | None]) -> tuple[bytes, str, str]:
    sizes = [None if value is None else len(value) for value in column]
    places, at = [], 1
    for size in sizes:
        places.append(at)
        at += size or 0
    return b"".join([value for value in column if value]), _numbers(places), _numbers(sizes)


EXECUTION = Columns(
    id="text",
    namespace="text",
    workflow="text",
    version="integer",
    digest="text",
    labels="bytea",
    priority="text",
    batch="text",
    batch_index="integer",
    partition="integer",
    total="integer",
    created_at="bigint",
    input="bytea",
)
LABEL = Columns(id="text", namespace="text", key="bytea", value="bytea", created_at="bigint")
COUNTERS = Columns(
    execution="bigint",
    unsettled="integer",
    failed="integer",
    skipped="integer",
    seq="integer",
    updated_at="bigint",
)
PROGRESS = Columns(
    execution="bigint",
    state="text",
    generation="integer",
    epoch="integer",
    unsettled="integer",
    failed="integer",
    skipped="integer",
    cancelled="integer",
    seq="integer",
    error="bytea",
    started_at="bigint",
    finished_at="bigint",
    deadline_at="bigint",
    updated_at="bigint",
    output="bytea",
    halt="bytea",
)
# A node that completed at its first attempt: the statement knows the rest.
COMPLETED_NODE = Columns(
    execution="bigint",
    node_id="text",
    output="bytea",
    worker="text",
    queued_at="bigint",
    started_at="bigint",
    finished_at="bigint",
    seq="integer",
    recorded_at="bigint",
)
# In an execution with more nodes than this, a row that stands for an event also has the page of its seq, for
# an index: over all rows, the index would cost every completion 1.2 µs and 17 bytes. In a smaller execution
# the history is found by reading all rows.
PAGE_EVENTS = 128
NODE = Columns(
    execution="bigint",
    node_id="text",
    attempt="integer",
    ended="integer",
    answered="integer",
    state="text",
    generation="integer",
    output="bytea",
    blob="text",
    output_bytes="bigint",
    worker="text",
    queued_at="bigint",
    started_at="bigint",
    finished_at="bigint",
    seq="integer",
    recorded_at="bigint",
    page="integer",
    reason="text",
    cause="text",
    error="bytea",
    failures="integer",
    losses="integer",
    retry_at="bigint",
    issued="integer",
    cached="boolean",
)
# What says whether an execution has changed: every commit about it raises one of the two.
VERSION = Columns(execution="bigint", seq="integer", epoch="integer")
WANTED = Columns(execution="bigint", node_id="text", at_most="integer")
# A new execution, and the body of its first event.
# A new execution with the part of its progress that differs between executions, and its first events.
NEW_EXECUTION = Columns(
    **dict(zip(EXECUTION.names, EXECUTION.types, strict=True)),
    state="text",
    seq="integer",
    started_at="bigint",
    deadline_at="bigint",
    created_body="bytea",
    started_body="bytea",
)
EVENT = Columns(execution="bigint", seq="integer", node_id="text", body="bytea")
LETTER = Columns(
    id="text",
    execution="bigint",
    execution_id="text",
    namespace="text",
    workflow="text",
    node_id="text",
    generation="integer",
    attempt="integer",
    handler="text",
    queue="text",
    error="bytea",
    code="text",
    state="text",
    created_at="bigint",
)
CACHE = Columns(key="text", output="bytea", blob="text", good_until="bigint")

# What never changes of an execution, its number first.
FACTS = "executions.number, " + ", ".join(
    f"executions.{name}" for name in EXECUTION.names if name != "batch_index"
)
# The same width without what may be large.
LISTED_FACTS = FACTS.replace("executions.input", "''::bytea")
_FACTS_WIDTH = len(EXECUTION.names)
# What a commit changes of it.
PROGRESS_COLUMNS = ", ".join(f"progress.{name}" for name in PROGRESS.names[1:])
PROGRESS_WIDTH = len(PROGRESS.names) - 1
LISTED_PROGRESS = PROGRESS_COLUMNS.replace("progress.output", "NULL::bytea")
NODE_COLUMNS = ", ".join(f"nodes.{name}" for name in NODE.names[1:] if name != "page")
NODE_STATES = NODE_COLUMNS.replace("nodes.output,", "NULL::bytea,")
LETTER_COLUMNS = ", ".join(
    f"dead_letters.{name}" for name in LETTER.names if name not in ("execution", "namespace", "code")
)


def execution_values(row: ExecutionRow, index: int | None) -> Values:
    """``index``: its place in its batch."""
    return (
        row.id,
        row.namespace,
        row.workflow,
        row.version,
        row.digest,
        _encode(row.labels),
        row.priority,
        row.batch,
        index,
        row.partition,
        row.total,
        row.created_at,
        row.input,
    )


def label_values(row: ExecutionRow) -> list[Values]:
    return [
        (row.id, row.namespace, label(key), label(value), row.created_at) for key, value in row.labels.items()
    ]


def label(text: str) -> bytes:
    return text.encode()


def counter_values(number: int, row: ExecutionRow) -> Values:
    return number, row.unsettled, row.failed, row.skipped, row.seq, row.updated_at


def progress_values(number: int, row: ExecutionRow) -> Values:
    return (
        number,
        row.state.value,
        row.generation,
        row.epoch,
        row.unsettled,
        row.failed,
        row.skipped,
        row.cancelled,
        row.seq,
        None if row.error is None else _encode(row.error),
        row.started_at,
        row.finished_at,
        row.deadline_at,
        row.updated_at,
        row.output,
        None if row.halt is None else _encode(row.halt),
    )


def is_first_completion(row: NodeRow) -> bool:
    """True if the row says no more than that the first attempt of the execution's node completed."""
    return (
        row.attempt == row.answered == row.generation == 1
        and row.recorded_at is not None
        # Not in a blob, and its attempt was issued by no commit.
        and row.output is not None
        and not row.issued
    )


def completed_node_values(number: int, row: NodeRow) -> Values:
    return (
        number,
        row.node_id,
        row.output,
        row.worker,
        row.queued_at,
        row.started_at,
        row.finished_at,
        row.seq,
        row.recorded_at,
    )


def node_values(number: int, row: NodeRow, *, is_wide: bool) -> Values:
    """Return the values of a row; ``is_wide``: its execution has more nodes than a page has events."""
    return (
        number,
        row.node_id,
        row.attempt,
        row.ended,
        row.answered,
        None if row.state is None else row.state.value,
        row.generation,
        row.output,
        row.blob,
        row.output_bytes,
        _text(row.worker),
        row.queued_at,
        row.started_at,
        row.finished_at,
        row.seq,
        row.recorded_at,
        row.seq // PAGE_EVENTS if is_wide and row.recorded_at is not None else None,
        None if row.reason is None else str(row.reason),
        row.cause,
        None if row.error is None else _encode(row.error),
        row.failures,
        row.losses,
        row.retry_at,
        row.issued,
        row.cached,
    )


class _EventBody(msgspec.Struct, array_like=True, gc=False):
    """What an event says beside its columns, as an array: a third of the object as JSON."""

    at: int
    type: str
    generation: int
    attempt: int | None
    state: str | None
    worker: str | None
    queued_at: int | None
    started_at: int | None
    finished_at: int | None
    output_digest: bytes | None
    reason: str | None
    cause: str | None
    # As JSON: it may have numbers of any size.
    error: bytes | None
    due_at: int | None
    actor: str | None


_read_body = msgspec.msgpack.Decoder(_EventBody).decode


def event_values(number: int, event: History) -> Values:
    digest, error = event.output_digest, event.error
    body = _EventBody(
        at=event.at,
        type=event.type,
        generation=event.generation,
        attempt=event.attempt,
        state=event.state,
        worker=event.worker,
        queued_at=event.queued_at,
        started_at=event.started_at,
        finished_at=event.finished_at,
        output_digest=None if digest is None else bytes.fromhex(digest),
        reason=event.reason,
        cause=event.cause,
        error=None if error is None else _encode(error),
        due_at=event.due_at,
        actor=event.actor,
    )
    return number, event.seq, event.node, _pack(body)


def letter_values(number: int, namespace: str, letter: DeadLetter) -> Values:
    code = letter.error.get("code")
    return (
        letter.id,
        number,
        letter.execution_id,
        namespace,
        letter.workflow,
        letter.node_id,
        letter.generation,
        letter.attempt,
        letter.handler,
        letter.queue,
        _encode(letter.error),
        _text(code) if isinstance(code, str) else None,
        letter.state,
        letter.created_at,
    )


def _text(text: str | None) -> str | None:
    """Leave out what no text column takes. The names of workers come from outside."""
    if text is None or text.isprintable():
        return text
    return "".join(letter for letter in text if letter >= " ")


def read_facts(values: Any) -> ExecutionRow:
    """Read FACTS back; what a commit changes is left as it never is."""
    return ExecutionRow(
        id=values[1],
        namespace=values[2],
        workflow=values[3],
        version=values[4],
        digest=values[5],
        labels=_decode(values[6]),
        priority=values[7],
        batch=values[8],
        partition=values[9],
        total=values[10],
        created_at=values[11],
        input=values[12],
        state=ExecutionState.PENDING,
        generation=0,
        epoch=0,
        unsettled=0,
        seq=0,
    )


def read_progress(facts: ExecutionRow, values: Any, start: int) -> ExecutionRow:
    """Read PROGRESS_COLUMNS back, which begin at ``start``, onto what never changes."""
    error, halt = values[start + 8], values[start + 14]
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
        error=None if error is None else _decode(error),
        started_at=values[start + 9],
        finished_at=values[start + 10],
        deadline_at=values[start + 11],
        updated_at=values[start + 12],
        output=values[start + 13],
        halt=None if halt is None else _decode_halt(halt),
    )


def read_execution(values: Any) -> ExecutionRow:
    """Read FACTS and PROGRESS_COLUMNS back."""
    return read_progress(read_facts(values), values, _FACTS_WIDTH)


def read_node(values: Any) -> NodeRow:
    """Read NODE_COLUMNS back."""
    error = values[17]
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
        error=None if error is None else _decode(error),
        failures=values[18],
        losses=values[19],
        retry_at=values[20],
        issued=values[21],
        cached=values[22],
    )


# An event row, and a row of a node that stands for an event: selected with the same width.
EVENT_COLUMNS = "recorded_events.seq, recorded_events.node_id, recorded_events.body" + ", NULL" * 9
COMPLETION_COLUMNS = (
    "nodes.seq, nodes.node_id, NULL, nodes.generation, nodes.attempt, nodes.cached, nodes.worker,"
    " nodes.queued_at, nodes.started_at, nodes.finished_at, nodes.recorded_at, sha256(nodes.output)"
)


def read_event(execution_id: str, values: Any) -> History:
    """Read EVENT_COLUMNS or COMPLETION_COLUMNS back."""
    seq, node_id, body = values[:3]
    if body is None:
        return _completion(execution_id, values)
    said = _read_body(body)
    digest, error = said.output_digest, said.error
    return History(
        seq=seq,
        at=said.at,
        type=said.type,
        execution=execution_id,
        generation=said.generation,
        node=node_id,
        attempt=said.attempt,
        state=said.state,
        worker=said.worker,
        queued_at=said.queued_at,
        started_at=said.started_at,
        finished_at=said.finished_at,
        output_digest=None if digest is None else digest.hex(),
        reason=said.reason,
        cause=said.cause,
        error=None if error is None else _decode(error),
        due_at=said.due_at,
        actor=said.actor,
    )


def _completion(execution_id: str, values: Any) -> History:
    digest = values[11]
    row = NodeRow(
        seq=values[0],
        node_id=values[1],
        generation=values[3],
        attempt=values[4],
        cached=values[5],
        worker=values[6],
        queued_at=values[7],
        started_at=values[8],
        finished_at=values[9],
        recorded_at=values[10],
    )
    return completion_event(execution_id, row, None if digest is None else digest.hex())


def read_letter(values: Any) -> DeadLetter:
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
