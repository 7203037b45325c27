"""The queries of both databases about triggers, inbound events and lanes (``firing``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from weft.core.rows import GROUP_LANE
from weft.errors import StillRunningError, TriggerChangedError
from weft.journal.firing import LaneRelease, QueuePlace, StoredEvent, Waiting, next_turns
from weft.journal.queries import IS_ACTIVE, change
from weft.journal.rows import decode_json, encode_json
from weft.triggers.model import Overlap, Trigger, TriggerError, TriggerRow
from weft.triggers.overlap import Step, decide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.journal.firing import Firing
    from weft.journal.queries import CatalogWriter, Query
    from weft.triggers.cloudevent import InboundEvent

_COLUMNS = (
    "namespace, document, revision, created_at, changed_at, next_at, fire_at, skipped, skipped_at, error"
)
_SELECT = f"SELECT {_COLUMNS} FROM triggers WHERE"  # noqa: S608
_EVENT = (
    "SELECT number, namespace, id, source, type, received_at, body, started, answered"
    " FROM inbound_events WHERE"
)
_decode_trigger = msgspec.json.Decoder(Trigger).decode
_decode_error = msgspec.json.Decoder(TriggerError).decode
_WAITING = (
    "FROM queued_executions AS queued JOIN progress ON progress.execution = queued.execution"
    f" WHERE queued.namespace = ? AND queued.lane = ? AND progress.{IS_ACTIVE}"
)
# So many of a lane are looked at for one release.
_RELEASED_AT_ONCE = 100
# The rows of ``lane_locks``.
_LOCKS = 64
_MAY_START = frozenset({"PENDING"})
# No number is larger.
_LAST = 2**62


def _running(lane: str) -> str:
    """Return where the executions of a lane are that run.

    Those that wait for their turn get the name of their lane when it has come, so that counting what runs
    costs the same however many wait.
    """
    index, column = (
        ("progress_group", "group_lane") if lane.startswith(GROUP_LANE) else ("progress_lane", "lane_name")
    )
    return (
        f"FROM progress INDEXED BY {index}"
        f" WHERE progress.namespace = ? AND progress.{column} = ? AND progress.{IS_ACTIVE}"
    )


# -- triggers ----------------------------------------------------------------------------------------


def trigger(name: str, namespace: str) -> Query[TriggerRow | None]:
    found = yield f"{_SELECT} namespace = ? AND name = ?", (namespace, name)
    return _read(found[0]) if found else None


def triggers(namespace: str, workflow: str | None, after: str, limit: int) -> Query[list[TriggerRow]]:
    of_workflow, given = ("", ()) if workflow is None else (" AND workflow = ?", (workflow,))
    found = yield (
        f"{_SELECT} namespace = ? AND name > ?{of_workflow} ORDER BY name LIMIT ?",
        (namespace, after, *given, limit),
    )
    return [_read(values) for values in found]


def coming_triggers(namespace: str, limit: int) -> Query[list[TriggerRow]]:
    found = yield (
        f"{_SELECT} namespace = ? AND fire_at IS NOT NULL ORDER BY fire_at LIMIT ?",
        (namespace, limit),
    )
    return [_read(values) for values in found]


def due_triggers(now: int, limit: int) -> Query[list[TriggerRow]]:
    found = yield f"{_SELECT} fire_at <= ? ORDER BY fire_at LIMIT ?", (now, limit)
    return [_read(values) for values in found]


def next_fire_at() -> Query[int | None]:
    ((fire_at,),) = yield "SELECT min(fire_at) FROM triggers WHERE fire_at IS NOT NULL", ()
    found: int | None = fire_at
    return found


def event_triggers(event_type: str, namespace: str, after: str, limit: int) -> Query[list[TriggerRow]]:
    found = yield (
        f"{_SELECT} namespace = ? AND event_type = ? AND name > ? ORDER BY name LIMIT ?",
        (namespace, event_type, after, limit),
    )
    return [_read(values) for values in found]


def put_trigger(by: CatalogWriter, row: TriggerRow, seen_revision: int | None, action: str) -> Query[bool]:
    """Store a trigger in the place of the one that was seen; False where that is another one by now."""
    trigger = row.trigger
    values = (
        row.revision,
        trigger.workflow,
        # Of a disabled trigger: what does not listen is not found.
        trigger.event.type if trigger.event is not None and trigger.enabled else None,
        encode_json(trigger),
        row.created_at,
        row.changed_at,
        row.next_at,
        row.fire_at,
    )
    if seen_revision is None:
        changed = yield (
            "INSERT INTO triggers (revision, workflow, event_type, document, created_at, changed_at, next_at,"
            " fire_at, namespace, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*values, row.namespace, trigger.name),
        )
    else:
        changed = yield (
            "UPDATE triggers SET revision = ?, workflow = ?, event_type = ?, document = ?, created_at = ?,"
            " changed_at = ?, next_at = ?, fire_at = ?, error = NULL"
            " WHERE namespace = ? AND name = ? AND revision = ?",
            (*values, row.namespace, trigger.name, seen_revision),
        )
    if changed:
        yield change(by, action, workflow=trigger.workflow, trigger=trigger.name)
    return bool(changed)


def delete_trigger(by: CatalogWriter, name: str) -> Query[bool]:
    removed = yield "DELETE FROM triggers WHERE namespace = ? AND name = ?", (by.namespace, name)
    if removed:
        yield change(by, "trigger.deleted", trigger=name)
    return bool(removed)


def _read(values: Any) -> TriggerRow:
    namespace, document, revision, created_at, changed_at, next_at, fire_at, skipped, skipped_at, error = (
        values
    )
    return TriggerRow(
        namespace=namespace,
        trigger=_decode_trigger(document),
        revision=revision,
        created_at=created_at,
        changed_at=changed_at,
        next_at=next_at,
        fire_at=fire_at,
        skipped=skipped,
        skipped_at=skipped_at,
        error=None if error is None else _decode_error(error),
    )


# -- firing ------------------------------------------------------------------------------------------


def advance(firings: Sequence[Firing], now: int) -> Query[list[Step]]:
    """Lock the triggers, decide what becomes of each firing, and move the triggers on.

    Raises before anything is written where a trigger has changed, or where executions are to be cancelled.
    """
    if not firings:
        return []
    (namespace,) = {firing.namespace for firing in firings}
    found = yield (
        "SELECT name, revision, next_at FROM triggers WHERE namespace = ? AND name IN ? ORDER BY name"
        " FOR UPDATE",
        (namespace, [firing.trigger for firing in firings]),
    )
    stored = {name: (revision, next_at) for name, revision, next_at in found}
    steps = []
    for firing in firings:
        revision, next_at = stored.get(firing.trigger, (None, None))
        if revision != firing.revision or firing.due_at not in (None, next_at):
            raise TriggerChangedError(f"trigger {firing.trigger} has changed since its start was decided")
        steps.append((yield from _step(firing)))
    for firing, step in zip(firings, steps, strict=True):
        yield from _move(firing, step, now)
    return steps


def _step(firing: Firing) -> Query[Step]:
    if firing.submission is None:
        return Step.SKIP
    if firing.overlap is Overlap.ALLOW:
        return Step.START
    lane = (firing.namespace, firing.submission.lane)
    running_there = _running(firing.submission.lane or "")
    ((running,),) = yield f"SELECT count(*) {running_there}", lane
    ((queued,),) = yield f"SELECT count(*) {_WAITING}", lane
    step = decide(firing.overlap, running=running, queued=queued)
    if step is Step.CANCEL:
        found = [*(yield f"SELECT progress.id {running_there}", lane)]
        found += yield f"SELECT progress.id {_WAITING}", lane
        raise StillRunningError([id_ for (id_,) in found])
    return step


def _move(firing: Firing, step: Step, now: int) -> Query[None]:
    assignments: list[str] = []
    values: list[Any] = []
    if firing.due_at is not None:
        assignments += ["next_at = ?", "fire_at = ?"]
        values += [firing.next_at, firing.fire_at]
    if step is Step.SKIP and firing.submission is not None:
        assignments += ["skipped = skipped + 1", "skipped_at = ?"]
        values.append(now)
    if firing.error is not None:
        assignments.append("error = ?")
        values.append(encode_json(firing.error))
    if assignments:
        yield (
            f"UPDATE triggers SET {', '.join(assignments)} WHERE namespace = ? AND name = ?",  # noqa: S608
            (*values, firing.namespace, firing.trigger),
        )


# -- inbound events ----------------------------------------------------------------------------------


def stored_event(namespace: str, source: str, event_id: str) -> Query[StoredEvent | None]:
    found = yield f"{_EVENT} namespace = ? AND source = ? AND id = ?", (namespace, source, event_id)
    return _read_event(found[0]) if found else None


def put_event(event: InboundEvent, now: int) -> Query[bool]:
    """Keep an event; False where one of its source and id is kept already.

    It waits for a transaction that is about to keep the same event.
    """
    added = yield (
        "INSERT INTO inbound_events (namespace, source, id, type, received_at, body, started, answered)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (event.namespace, event.source, event.id, event.type, now, encode_json(event.body), b"[]", b"[]"),
    )
    return bool(added)


def note_effect(
    event: InboundEvent, started: Sequence[str], answered: Sequence[tuple[str, str]]
) -> Query[None]:
    """Note what an event has started and answered, in the transaction that keeps the event."""
    if started or answered:
        yield (
            "UPDATE inbound_events SET started = ?, answered = ?"
            " WHERE namespace = ? AND source = ? AND id = ?",
            (encode_json(started), encode_json(answered), event.namespace, event.source, event.id),
        )


def inbound_events(
    namespace: str, event_type: str | None, before: int | None, limit: int
) -> Query[list[StoredEvent]]:
    of_type, given = ("", ()) if event_type is None else (" AND type = ?", (event_type,))
    found = yield (
        f"{_EVENT} namespace = ?{of_type} AND number < ? ORDER BY number DESC LIMIT ?",
        (namespace, *given, _LAST if before is None else before, limit),
    )
    events = [_read_event(values) for values in found]
    late = yield (
        "SELECT event, execution_id, node_id FROM late_answers WHERE event IN ? ORDER BY execution_id",
        ([event.number for event in events],),
    )
    later: dict[int, list[tuple[str, str]]] = {}
    for number, execution_id, node_id in late:
        later.setdefault(number, []).append((execution_id, node_id))
    return [replace(event, answered_later=tuple(later.get(event.number, ()))) for event in events]


def purge_events(received_before: int, limit: int) -> Query[int]:
    found = yield (
        "SELECT number FROM inbound_events WHERE received_at < ? ORDER BY received_at LIMIT ?"
        " FOR UPDATE SKIP LOCKED",
        (received_before, limit),
    )
    numbers = [number for (number,) in found]
    if numbers:
        yield "DELETE FROM late_answers WHERE event IN ?", (numbers,)
        yield "DELETE FROM inbound_events WHERE number IN ?", (numbers,)
    return len(numbers)


def _read_event(values: Any) -> StoredEvent:
    number, namespace, id_, source, type_, received_at, body, started, answered = values
    return StoredEvent(
        number=number,
        namespace=namespace,
        id=id_,
        source=source,
        type=type_,
        received_at=received_at,
        body=bytes(body),
        started=tuple(decode_json(started)),
        answered=tuple((execution_id, node_id) for execution_id, node_id in decode_json(answered)),
    )


# -- lanes -------------------------------------------------------------------------------------------


def put_turns(values: Sequence[tuple[Any, ...]]) -> Query[None]:
    """Let executions wait for their turn: the values of ``firing.turn_values``."""
    in_lane: list[int] = []
    in_group: list[int] = []
    for one in values:
        yield (
            "INSERT INTO queued_executions"
            " (execution, namespace, lane, slots, cancels, since, group_lane, group_slots)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (execution) DO UPDATE SET lane = excluded.lane,"
            " slots = excluded.slots, cancels = excluded.cancels, since = excluded.since,"
            " group_lane = excluded.group_lane, group_slots = excluded.group_slots",
            one,
        )
        (in_group if one[2].startswith(GROUP_LANE) else in_lane).append(one[0])
    for column, numbers in (("lane_name", in_lane), ("group_lane", in_group)):
        if numbers:
            yield f"UPDATE progress SET {column} = NULL WHERE execution IN ?", (numbers,)  # noqa: S608


def is_queued(execution_id: str) -> Query[bool]:
    found = yield (
        "SELECT 1 FROM queued_executions JOIN executions ON number = execution WHERE id = ?",
        (execution_id,),
    )
    return bool(found)


def place_in_queue(execution_id: str) -> Query[QueuePlace | None]:
    found = yield (
        "SELECT queued.namespace, lane, slots, since, queued.execution FROM queued_executions AS queued"  # noqa: S608
        f" JOIN progress ON progress.execution = queued.execution WHERE id = ? AND {IS_ACTIVE}"
        " AND started_at IS NULL",
        (execution_id,),
    )
    if not found:
        return None
    namespace, lane, slots, *place = found[0]
    ((running,),) = yield f"SELECT count(*) {_running(lane)}", (namespace, lane)
    ((before,),) = yield (
        f"SELECT count(*) {_WAITING} AND (since, queued.execution) < (?, ?)",
        (namespace, lane, *place),
    )
    return QueuePlace(lane=lane, slots=slots, running=running, before=before)


def has_queued(namespace: str, lane: str) -> Query[bool]:
    found = yield (
        "SELECT 1 FROM queued_executions WHERE namespace = ? AND lane = ? LIMIT 1",
        (namespace, lane),
    )
    return bool(found)


def lock_lane(namespace: str, lane: str) -> Query[None]:
    """Wait until nobody else decides who runs in a lane, and keep others out until the commit.

    A lane has no row of its own: it shares one of a few with others.
    """
    bucket = crc32(f"{namespace}/{lane}".encode()) % _LOCKS
    yield "SELECT bucket FROM lane_locks WHERE bucket = ? FOR UPDATE", (bucket,)


def count_in_group(namespace: str, lane: str) -> Query[int]:
    """Count the executions of a group that are not terminal, in one statement: they move meanwhile."""
    ((count,),) = yield (
        f"SELECT (SELECT count(*) {_running(lane)}) + (SELECT count(*) {_WAITING})",
        (namespace, lane, namespace, lane),
    )
    found: int = count
    return found


def count_groups(lanes: Sequence[tuple[str, str]]) -> Query[list[int]]:
    """Lock groups in their order, and count the executions of each."""
    for namespace, lane in sorted(lanes, key=lambda one: crc32(f"{one[0]}/{one[1]}".encode()) % _LOCKS):
        yield from lock_lane(namespace, lane)
    counts = []
    for namespace, lane in lanes:
        counts.append((yield from count_in_group(namespace, lane)))
    return counts


def release_queued(namespace: str, lane: str) -> Query[LaneRelease]:
    """Take those out of the queue of a lane whose turn has come.

    The lane is locked first, and what runs is counted by the next statement: of two that release at the same
    time the second sees what the first has released as running.
    """
    yield from lock_lane(namespace, lane)
    takes_over = yield (
        f"SELECT since, queued.execution {_WAITING} AND cancels = 1 AND progress.state <> 'PAUSED'"
        " ORDER BY since DESC, queued.execution DESC LIMIT 1",
        (namespace, lane),
    )
    if takes_over and lane.startswith(GROUP_LANE):
        before = yield (
            f"SELECT progress.id {_WAITING} AND (since, queued.execution) < (?, ?) LIMIT ?",
            (namespace, lane, *takes_over[0], _RELEASED_AT_ONCE),
        )
        if before:
            return LaneRelease(doomed=tuple([id_ for (id_,) in before]))
    waiting = yield (
        "SELECT queued.execution, slots, cancels, queued.group_lane, id, state, started_at"
        " FROM queued_executions AS queued LEFT JOIN progress ON progress.execution = queued.execution"
        " WHERE queued.namespace = ? AND queued.lane = ?"
        " AND (progress.state IS NULL OR progress.state <> 'PAUSED' OR progress.started_at IS NOT NULL)"
        " ORDER BY since, queued.execution LIMIT ?",
        (namespace, lane, _RELEASED_AT_ONCE),
    )
    # Cancelled while they waited, and perhaps retried: then they have started.
    gone = [row for row in waiting if row[5] not in _MAY_START or row[6] is not None]
    yield from _take_out(lane, [row[0] for row in gone])
    found = yield (
        f"SELECT progress.id {_running(lane)} ORDER BY progress.execution",
        (namespace, lane),
    )
    in_group = lane.startswith(GROUP_LANE)
    left = {row[4]: row for row in waiting if row not in gone}
    queue = [Waiting(id_, row[1], bool(row[2]) and in_group, False) for id_, row in left.items()]
    next_ones, doomed = next_turns(queue, [id_ for (id_,) in found])
    going_on = [left[id_] for id_ in next_ones if left[id_][3] is not None]
    starting = [id_ for id_ in next_ones if left[id_][3] is None]
    yield from _take_out(lane, [left[id_][0] for id_ in starting])
    if going_on:
        numbers = [row[0] for row in going_on]
        yield (
            "UPDATE queued_executions SET lane = group_lane, slots = group_slots, group_lane = NULL"
            " WHERE execution IN ?",
            (numbers,),
        )
        yield "UPDATE progress SET lane_name = ? WHERE execution IN ?", (lane, numbers)
    lanes = dict.fromkeys(row[3] for row in going_on)
    return LaneRelease(tuple(starting), tuple(doomed), tuple(lanes))


def _take_out(lane: str, numbers: list[int]) -> Query[None]:
    if numbers:
        column = "group_lane" if lane.startswith(GROUP_LANE) else "lane_name"
        yield "DELETE FROM queued_executions WHERE execution IN ?", (numbers,)
        yield (
            f"UPDATE progress SET {column} = ? WHERE execution IN ? AND {IS_ACTIVE}",  # noqa: S608
            (lane, numbers),
        )


def stalled_lanes(limit: int, after: tuple[str, str]) -> Query[list[tuple[str, str]]]:
    """Find lanes with one that could run, or that takes the place of others."""
    in_lane, in_group = (
        _running(lane).replace("?", "outer_lane.namespace", 1).replace("?", "outer_lane.lane", 1)
        for lane in ("", GROUP_LANE)
    )
    is_group = f"outer_lane.lane LIKE '{GROUP_LANE}%'"
    found = yield (
        "SELECT outer_lane.namespace, outer_lane.lane FROM queued_executions AS outer_lane"  # noqa: S608
        " LEFT JOIN progress AS waiting ON waiting.execution = outer_lane.execution"
        " WHERE (waiting.state IS NULL OR waiting.state <> 'PAUSED')"
        " AND (outer_lane.namespace, outer_lane.lane) > (?, ?)"
        " GROUP BY outer_lane.namespace, outer_lane.lane"
        f" HAVING {is_group} AND max(cancels) = 1"
        f" OR max(slots) > CASE WHEN {is_group} THEN (SELECT count(*) {in_group})"
        f" ELSE (SELECT count(*) {in_lane}) END"
        " ORDER BY outer_lane.namespace, outer_lane.lane LIMIT ?",
        (*after, limit),
    )
    return [(namespace, lane) for namespace, lane in found]
