"""Encodes the journal's rows as columns of PostgreSQL, and decodes them.

A statement takes any number of rows. JSON that people have a part in is stored as the bytes of its text: a
text column takes no U+0000.
"""

from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.rows import History, NodeRow, completion_event
from weft.journal import children, notifications, rows, waits
from weft.journal.rows import Values, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.ledger.changes import Change
    from weft.core.rows import DeadLetter, ExecutionRow

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode

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
        """Return the parameters for rows, of which there is at least one."""
        parameters: list[Any] = []
        for type_, column in zip(self.types, zip(*rows, strict=True), strict=True):
            if type_ == "text":
                parameters.append(_texts(column))
                continue
            numbers = [column]
            if type_ == "bytea":
                joined, *numbers = _joined(column)
                parameters.append(joined)
            for each in numbers:
                # What Python writes of a list is what PostgreSQL reads of an array. Most columns are numbers:
                # a comprehension would cost more than the rest.
                parameters.append("{" + repr([*each])[1:-1].replace("None", "NULL") + "}")  # noqa: PERF401
        return parameters


def _texts(column: Sequence[str | None]) -> str:
    # Behind a separator of its own, one empty text is told from no text at all.
    if None in column:
        column = [_MISSING if text is None else text for text in column]
    joined = _SEPARATOR + _SEPARATOR.join(column)  # type: ignore[arg-type]
    if joined.count(_SEPARATOR) != len(column):
        raise ValueError("a name with a control character")
    return joined


def _joined(column: Sequence[bytes | None]) -> tuple[Any, ...]:
    """Return all bytes one behind the other, where each begins, and its size."""
    places: list[int] = []
    sizes: list[int | None] = []
    at = 1
    for value in column:
        places.append(at)
        sizes.append(None if value is None else len(value))
        at += len(value or b"")
    return b"".join(filter(None, column)), places, sizes


EXECUTION = Columns(**rows.EXECUTION)
LABEL = Columns(id="text", namespace="text", key="bytea", value="bytea", created_at="bigint")
COUNTERS = Columns(execution="bigint", **rows.COUNTERS)
PROGRESS = Columns(execution="bigint", **rows.PROGRESS)
# In an execution with more nodes than this, a row that stands for an event also has the page of its seq, for
# an index: over all rows, the index would cost every completion 1.2 µs and 17 bytes. In a smaller execution
# the history is found by reading all rows.
PAGE_EVENTS = 128
COMPLETED_NODE = Columns(execution="bigint", **rows.COMPLETED_NODE)
NODE = Columns(execution="bigint", **rows.PLAIN_NODE, **rows.FURTHER_NODE)
_WORKER = NODE.names.index("worker")
# What says whether an execution has changed: every commit about it raises one of the two.
VERSION = Columns(execution="bigint", seq="integer", epoch="integer")
WANTED = Columns(execution="bigint", node_id="text")
# A new execution with the part of its progress that differs between executions, and its first events.
NEW_EXECUTION = Columns(
    **rows.EXECUTION,
    state="text",
    seq="integer",
    started_at="bigint",
    deadline_at="bigint",
    parent="bytea",
    created_body="bytea",
    started_body="bytea",
    group_name="text",
)
EVENT = Columns(execution="bigint", seq="integer", node_id="text", body="bytea")
LETTER = Columns(**rows.LETTER, execution_id="text", code="text")
FAILURE = Columns(**rows.FAILURE)
NOTIFICATION = Columns(**notifications.NOTIFICATION)
ENDED_NOTIFICATION = Columns(**notifications.ENDED)
WAIT = Columns(**waits.WAIT)
SETTLED_WAIT = Columns(**waits.SETTLED_WAIT)
WAIT_KEY = Columns(**waits.WAIT_KEY)
SIGNAL = Columns(**waits.SIGNAL)
SIGNAL_KEY = Columns(**waits.SIGNAL_KEY)
LATE_ANSWER = Columns(**waits.LATE_ANSWER)
CHILD = Columns(**children.CHILD)
MOVED_CHILD = Columns(**children.MOVED_CHILD)
TOLD_CHILD = Columns(**children.TOLD_CHILD)
CACHE = Columns(key="text", output="bytea", blob="text", good_until="bigint")

NODE_STATES = rows.NODE_COLUMNS.replace("nodes.output,", "NULL::bytea,")


def label_values(row: ExecutionRow) -> list[Values]:
    return [
        (row.id, row.namespace, label(key), label(value), row.created_at) for key, value in row.labels.items()
    ]


def label(text: str) -> bytes:
    return text.encode()


stands_for_event = itemgetter(NODE.names.index("recorded_at"))


def storable(node: Values) -> Values:
    """Return the values of NODE with a worker's name that can be stored: it comes from outside."""
    return (*node[:_WORKER], _text(node[_WORKER]), *node[_WORKER + 1 :])


# What an event says beside its columns, as an array: a third of the object as JSON.
_BODY = (
    "at",
    "type",
    "generation",
    "attempt",
    "state",
    "worker",
    "queued_at",
    "started_at",
    "finished_at",
    "output_digest",
    "reason",
    "cause",
    "error",
    "due_at",
    "actor",
)
_body_of = attrgetter(*_BODY)
_DIGEST, _ERROR = _BODY.index("output_digest"), _BODY.index("error")


def event_values(number: int, event: History) -> Values:
    body = list(_body_of(event))
    if event.output_digest is not None:
        body[_DIGEST] = bytes.fromhex(event.output_digest)
    if event.error is not None:
        # As JSON: it may have numbers of any size.
        body[_ERROR] = encode_json(event.error)
    if event.signal is not None:
        # Few events have one, and a longer array costs all of them.
        body.append(event.signal)
    return number, event.seq, event.node, _pack(body)


def letter_values(number: int, namespace: str, letter: DeadLetter) -> Values:
    code = letter.error.get("code")
    stored_code = _text(code) if isinstance(code, str) else None
    values = rows.letter_values(number, namespace, letter, encode_json(letter.error))
    return *values, letter.execution_id, stored_code


def failure_values(change: Change, event: History) -> list[Values]:
    """Return the values of FAILURE that an event adds: none, unless it tells of a failure."""
    return [
        (number, namespace, field, _text(value), created_at, id_)
        for number, namespace, field, value, created_at, id_ in rows.failure_values(change, event)
    ]


def _text(text: str | None) -> str | None:
    """Return the text without the characters that no text column takes."""
    if text is None or text.isprintable():
        return text
    return "".join(letter for letter in text if letter >= " ")


# An event row, and a row of a node that stands for an event: selected with the same width.
EVENT_COLUMNS = "recorded_events.seq, recorded_events.node_id, recorded_events.body" + ", NULL" * 9
COMPLETION_COLUMNS = (
    "nodes.seq, nodes.node_id, NULL, nodes.generation, nodes.attempt, nodes.cached OR nodes.reused,"
    " nodes.worker, nodes.queued_at, nodes.started_at, nodes.finished_at, nodes.recorded_at,"
    " sha256(nodes.output)"
)


def read_event(execution_id: str, values: Any) -> History:
    """Read EVENT_COLUMNS or COMPLETION_COLUMNS back."""
    seq, node_id, body = values[:3]
    if body is None:
        return _completion(execution_id, values)
    fields = dict(zip((*_BODY, "signal"), _unpack(body), strict=False))
    digest, error = fields["output_digest"], fields["error"]
    fields["output_digest"] = None if digest is None else digest.hex()
    fields["error"] = None if error is None else decode_json(error)
    return History(seq=seq, execution=execution_id, node=node_id, **fields)


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
