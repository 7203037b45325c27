"""The waits and mailboxes of both databases: their columns, and the queries that find them.

A row of ``waits`` is an index entry of a node that waits: by its due time, its signal or its event. The
node's own row is the truth, and one commit writes both. The index row of a wait that was answered, or whose
time has come, stays with ``settled_at`` until the store was told: the sweep tells it of the ends that a crash
has left there.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.core.event import WaitAnswered
from weft.core.ledger.waits import MAILBOX_PAGE
from weft.core.payload import canonical, decode
from weft.core.rows import Parked, PastEvent, Signal
from weft.journal.contract import DueWait, DueWaits, EndedWait, OpenWait
from weft.journal.queries import IS_ACTIVE
from weft.journal.rows import decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.core.ledger.changes import Changes
    from weft.core.rows import ExecutionRow, NodeRow, Wait
    from weft.journal.contract import WaitQuery
    from weft.journal.queries import Query
    from weft.journal.rows import Values
    from weft.triggers.cloudevent import InboundEvent

# The key first.
WAIT = {
    "execution": "bigint",
    "node_id": "text",
    "since": "bigint",
    "due_at": "bigint",
    "settled_at": "bigint",
    "generation": "integer",
    "attempt": "integer",
    "namespace": "text",
    "kind": "text",
    "name": "text",
    "match_keys": "text",
    "match_digest": "text",
}
SETTLED_WAIT = {"execution": "bigint", "node_id": "text", "settled_at": "bigint"}
WAIT_KEY = {"execution": "bigint", "node_id": "text"}
SIGNAL = {
    "execution": "bigint",
    "number": "integer",
    "name": "text",
    "output": "bytea",
    "blob": "text",
    "output_bytes": "bigint",
    "fits": "bytea",
}
SIGNAL_KEY = {"execution": "bigint", "number": "integer"}
# What ended a wait that began behind it: beside what the event did when it came, which is its answer.
LATE_ANSWER = {"event": "bigint", "execution_id": "text", "node_id": "text"}

# In the words of the partial index: a plan that is made before its values are known could not take the index.
IS_OPEN = "kind = 'signal' AND settled_at IS NULL"
# Written like the predicate of the partial index.
_WITH_DEADLINE = (
    f"progress INDEXED BY progress_evicted_deadline WHERE evicted AND deadline_at IS NOT NULL AND {IS_ACTIVE}"
)

# A wait that looks back looks at the newest events of its type, so many and so many bytes of them at most:
# they are decoded one by one, while the transaction keeps others waiting. Each may have a megabyte.
_MOST_PAST = 10_000
_MOST_PAST_BYTES = 4 * 1024 * 1024
_PAST_PAGE = 20
# No number is larger.
_LAST = 2**62

_decode_parked = msgspec.json.Decoder(Parked).decode


class WaitValues(NamedTuple):
    """The values that a transaction writes of waits and mailboxes."""

    started: list[Values]
    settled: list[Values]
    gone: list[Values]
    kept: list[Values]
    taken: list[Values]
    late: list[Values]


def match_index(match: bytes | None) -> tuple[str | None, str | None]:
    """Return what the pairs of a wait for an event are found by: their keys, and a digest of the pairs."""
    if match is None:
        return None, None
    keys = canonical(sorted(decode(match))).decode()
    return keys, hashlib.sha256(match).hexdigest()


def written_values(changes: Changes) -> WaitValues:
    """Return what a transaction writes of waits."""
    executions, ended = changes.executions, changes.waits_ended
    # One that began and ended in this transaction is written only if the store is still to be told of it.
    started = [
        _wait_values(changes, key, row, settled_at=changes.now if key in ended else None)
        for key, row in changes.waits_started.items()
        if ended.get(key) is not False
    ]
    numbers = {key: executions[key[0]].live.number for key in ended if key not in changes.waits_started}
    return WaitValues(
        started,
        [(number, key[1], changes.now) for key, number in numbers.items() if ended[key]],
        [(number, key[1]) for key, number in numbers.items() if not ended[key]],
        [
            (
                executions[one.execution_id].live.number,
                one.number,
                one.name,
                one.output,
                one.blob,
                one.output_bytes,
                encode_json(one.fits),
            )
            for one in changes.signals_kept
        ],
        [(executions[id_].live.number, number) for id_, number in changes.signals_taken],
        list(changes.events_taken),
    )


def _wait_values(changes: Changes, key: tuple[str, str], row: NodeRow, *, settled_at: int | None) -> Values:
    change = changes.executions[key[0]]
    assert row.parked is not None
    assert row.wait is not None
    return (
        change.live.number,
        row.node_id,
        row.started_at,
        row.parked.due_at,
        settled_at,
        row.generation,
        row.attempt,
        change.row.namespace,
        row.wait.kind.value,
        row.wait.name,
        *match_index(row.wait.match),
    )


# -- the engine --------------------------------------------------------------------------------------------


def due(now: int, limit: int) -> Query[DueWaits]:
    """Read the waits whose time has come."""
    found = yield (
        "SELECT executions.id, waits.generation, node_id, waits.attempt, digest"
        " FROM waits JOIN executions ON number = waits.execution"
        " WHERE due_at <= ? AND settled_at IS NULL ORDER BY due_at LIMIT ?",
        (now, limit),
    )
    late = yield (
        f"SELECT id, generation FROM {_WITH_DEADLINE} AND deadline_at <= ?"  # noqa: S608
        " ORDER BY deadline_at LIMIT ?",
        (now, limit),
    )
    ((next_wait, next_deadline),) = yield (
        "SELECT (SELECT min(due_at) FROM waits WHERE due_at > ? AND settled_at IS NULL),"  # noqa: S608
        f" (SELECT min(deadline_at) FROM {_WITH_DEADLINE} AND deadline_at > ?)",
        (now, now),
    )
    next_at = min((at for at in (next_wait, next_deadline) if at is not None), default=None)
    return DueWaits(
        [DueWait(*values) for values in found],
        None if next_at is None else (next_at - now) / 1_000_000,
        [(id_, generation) for id_, generation in late],
    )


def matching(event: InboundEvent) -> Query[list[WaitAnswered]]:
    """Find the waits that an event answers: of each execution the one that has waited longest.

    The waits of a type are asked for by the sets of keys that they match by, of which there are few.
    """
    data = event.body.get("data")
    data = data if isinstance(data, dict) else {}
    found: dict[str, tuple[int, str]] = {}
    keys = ""
    while True:
        ((keys,),) = yield (
            "SELECT min(match_keys) FROM waits WHERE namespace = ? AND name = ? AND match_keys > ?"
            " AND kind = 'event' AND settled_at IS NULL",
            (event.namespace, event.type, keys),
        )
        if keys is None:
            return [answer_of(event, id_, node_id) for id_, (_, node_id) in sorted(found.items())]
        pairs = {name: data[name] for name in decode(keys.encode()) if name in data}
        if canonical(sorted(pairs)).decode() != keys:
            continue
        rows = yield (
            "SELECT executions.id, node_id, since FROM waits JOIN executions ON number = waits.execution"
            " WHERE waits.namespace = ? AND waits.name = ? AND match_keys = ? AND match_digest = ?"
            " AND kind = 'event' AND settled_at IS NULL",
            (event.namespace, event.type, *match_index(canonical(pairs))),
        )
        for execution_id, node_id, since in rows:
            found[execution_id] = min(found.get(execution_id, (since, node_id)), (since, node_id))


def past_event(
    execution: ExecutionRow, wait: Wait, since: int, taken: Collection[int]
) -> Query[PastEvent | None]:
    """Find the first event since then that a wait matches, and that has ended no wait of the execution."""
    assert wait.match is not None
    pairs = decode(wait.match)
    found: PastEvent | None = None
    before, seen, size = _LAST, 0, 0
    while seen < _MOST_PAST and size < _MOST_PAST_BYTES:
        rows = yield (
            "SELECT number, source, received_at, body, answered FROM inbound_events"
            " WHERE namespace = ? AND type = ? AND number < ? AND NOT EXISTS (SELECT 1 FROM late_answers"
            " WHERE late_answers.event = inbound_events.number AND execution_id = ?)"
            " ORDER BY number DESC LIMIT ?",
            (execution.namespace, wait.name, before, execution.id, _PAST_PAGE),
        )
        for number, source, received_at, body, answered in rows:
            if received_at < since:
                return found
            data = decode_json(body).get("data")
            has_ended = number in taken or execution.id in [id_ for id_, _ in decode_json(answered)]
            if not has_ended and matches(pairs, data):
                found = PastEvent(number, source, received_at, encode_json(data))
        if len(rows) < _PAST_PAGE:
            return found
        before, seen = rows[-1][0], seen + len(rows)
        size += sum(len(body) for *_, body, _ in rows)
    return found


def matches(pairs: dict[str, Any], data: Any) -> bool:
    """True if the data of an event have all pairs of a wait."""
    if not isinstance(data, dict):
        return not pairs
    return all(key in data and canonical(data[key]) == canonical(value) for key, value in pairs.items())


def answer_of(event: InboundEvent, execution_id: str, node_id: str) -> WaitAnswered:
    """Return the answer of an event to the wait of a node."""
    return WaitAnswered(
        execution_id=execution_id,
        generation=0,
        node_id=node_id,
        output=event.output,
        blob=event.blob,
        output_bytes=event.output_bytes,
        event_type=event.type,
    )


def untold(settled_before: int, limit: int) -> Query[list[EndedWait]]:
    """Read the waits whose ends the store was not told of, oldest first."""
    found = yield (
        "SELECT executions.id, waits.generation, node_id"
        " FROM waits JOIN executions ON number = waits.execution"
        " WHERE settled_at <= ? ORDER BY settled_at LIMIT ?",
        (settled_before, limit),
    )
    return [EndedWait(*values) for values in found]


def forget(ended: Sequence[EndedWait]) -> Query[None]:
    """Drop waits that have ended: the store knows. One of another generation stays."""
    keys = {(one.execution_id, one.generation, one.node_id) for one in ended}
    found = yield (
        "SELECT waits.rowid, executions.id, waits.generation, node_id"
        " FROM waits JOIN executions ON number = waits.execution"
        " WHERE executions.id IN ? AND settled_at IS NOT NULL",
        (sorted({id_ for id_, _, _ in keys}),),
    )
    gone = [rowid for rowid, *key in found if tuple(key) in keys]
    if gone:
        yield "DELETE FROM waits WHERE rowid IN ? AND settled_at IS NOT NULL", (gone,)


def signals(execution_id: str, name: str, after: int) -> Query[list[Signal]]:
    """Read the next signals of a name in a mailbox, oldest first, without what they bring."""
    found = yield (
        "SELECT signals.number, blob, output_bytes, fits FROM signals"
        " JOIN executions ON executions.number = execution"
        " WHERE executions.id = ? AND name = ? AND signals.number > ? ORDER BY signals.number LIMIT ?",
        (execution_id, name, after, MAILBOX_PAGE),
    )
    return [
        Signal(
            execution_id=execution_id,
            number=number,
            name=name,
            output=None,
            blob=blob,
            output_bytes=size,
            fits=tuple(decode_json(fits)),
        )
        for number, blob, size, fits in found
    ]


def signal_output(execution_id: str, number: int) -> Query[bytes]:
    """Read what a signal in a mailbox brings."""
    ((output,),) = yield (
        "SELECT output FROM signals JOIN executions ON executions.number = execution"
        " WHERE executions.id = ? AND signals.number = ?",
        (execution_id, number),
    )
    found: bytes = output
    return found


# -- people --------------------------------------------------------------------------------------------------


def open_waits(
    query: WaitQuery, namespace: str, after: tuple[int, str, str] | None, limit: int
) -> Query[list[OpenWait]]:
    """List the nodes that wait for an answer, those that have waited longest first."""
    # The waits of one execution are found by its key, not in the index of all that are open.
    place = "waits" if query.execution_id is None else "executions"
    conditions: list[str] = [f"{place}.namespace = ?", IS_OPEN]
    values: list[object] = [namespace]
    for column, value in (
        ("workflow", query.workflow),
        ("executions.id", query.execution_id),
        ("waits.name", query.signal),
    ):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if after is not None:
        # The first of the two leads to the page in the index, which has no ids of executions.
        conditions += ["since >= ?", "(since, executions.id, waits.node_id) > (?, ?, ?)"]
        values += [after[0], *after]
    found = yield (
        "SELECT executions.id, workflow, digest, waits.node_id, waits.name, nodes.parked, since, due_at"  # noqa: S608
        " FROM waits JOIN executions ON executions.number = waits.execution"
        " JOIN nodes ON nodes.execution = waits.execution AND nodes.node_id = waits.node_id"
        f" WHERE {' AND '.join(conditions)} ORDER BY since, executions.id, waits.node_id LIMIT ?",
        (*values, limit),
    )
    return [_open_wait(values) for values in found if values[5] is not None]


def _open_wait(values: Sequence[object]) -> OpenWait:
    execution_id, workflow, digest, node_id, signal, parked, since, due_at = values
    wait = _decode_parked(parked).wait  # type: ignore[arg-type]
    return msgspec.convert(
        {
            "execution_id": execution_id,
            "workflow": workflow,
            "digest": digest,
            "node_id": node_id,
            "signal": signal,
            "prompt": None if wait is None else wait.prompt,
            "since": since,
            "expires_at": due_at,
        },
        OpenWait,
    )
