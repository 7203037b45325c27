"""The notifications of both databases: their columns, who may send which, and how they are shown.

The commit of what they tell of adds them (``core.ledger.settle.notify``). ``due_at`` is a lease as well:
whoever takes a notification puts it off to the end of the lease. A process that dies with it in hand loses
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.rows import Notification, Told
from weft.definition.model import NotifyOn
from weft.journal.rows import encode_json

if TYPE_CHECKING:
    from weft.core.event import NotificationEnded
    from weft.core.ledger.changes import Changes
    from weft.journal.queries import Query
    from weft.journal.rows import Values

_decode_told = msgspec.json.Decoder(Told).decode
# The values of a new one; the other columns keep their defaults.
NOTIFICATION = {
    "id": "text",
    "execution": "bigint",
    "namespace": "text",
    "generation": "integer",
    "reason": "text",
    "url": "text",
    "told": "bytea",
    "created_at": "bigint",
    "due_at": "bigint",
}
# Of one that ended, its key first.
ENDED = {"id": "text", "execution": "bigint", "state": "text", "ended_at": "bigint", "error": "bytea"}
# A message for people, with what a server said in it: no more of it than a line.
_MAX_ERROR_CHARACTERS = 500

_SHOWN = ", ".join(
    f"notifications.{name}"
    for name in (
        "id",
        "namespace",
        "generation",
        "reason",
        "url",
        "told",
        "created_at",
        "due_at",
        "attempts",
        "state",
        "ended_at",
        "error",
    )
)


def new_values(changes: Changes) -> list[Values]:
    """Return the values of NOTIFICATION that a transaction adds."""
    return [
        (
            one.id,
            changes.executions[one.execution_id].live.number,
            one.namespace,
            one.generation,
            one.on.value,
            one.url,
            encode_json(one.told),
            one.created_at,
            one.due_at,
        )
        for one in changes.notifications
    ]


def ended_values(changes: Changes) -> list[Values]:
    """Return the values of ENDED that a transaction changes: one row for each that ended."""
    ended = {event.notification_id: event for event in changes.notification_ends}
    return [
        (
            event.notification_id,
            changes.executions[event.execution_id].live.number,
            state_of(event),
            changes.now,
            None if event.error is None else shortened(event.error).encode(),
        )
        for event in ended.values()
    ]


def state_of(event: NotificationEnded) -> str:
    """Return the state in which a notification ended."""
    return "delivered" if event.error is None else "failed"


def shortened(error: str) -> str:
    """Return why an attempt failed, as one line of bounded length."""
    line = "".join(letter if letter.isprintable() else " " for letter in error)
    return line[:_MAX_ERROR_CHARACTERS]


def next_due() -> Query[int | None]:
    """Return when the next notification is to be sent; None: there is none."""
    ((due_at,),) = yield "SELECT min(due_at) FROM notifications WHERE due_at IS NOT NULL", ()
    found: int | None = due_at
    return found


def claim(now: int, until: int, limit: int) -> Query[list[Notification]]:
    """Take some notifications that are due until a time; each of them is an attempt."""
    found = yield (
        f"SELECT executions.id, {_SHOWN} FROM notifications JOIN executions ON number = execution"  # noqa: S608
        " WHERE notifications.due_at <= ? ORDER BY notifications.due_at LIMIT ?"
        " FOR UPDATE OF notifications SKIP LOCKED",
        (now, limit),
    )
    taken = [_read(values) for values in found]
    if taken:
        yield (
            "UPDATE notifications SET due_at = ?, attempts = attempts + 1 WHERE id IN ?",
            (until, [one.id for one in taken]),
        )
    return taken


def put_off(notification_id: str, attempts: int, due_at: int, error: str) -> Query[None]:
    """Set when a notification is sent again, unless another process has taken it since."""
    yield (
        "UPDATE notifications SET due_at = ?, error = ? WHERE id = ? AND attempts = ? AND state = 'pending'",
        (due_at, shortened(error).encode(), notification_id, attempts),
    )


def of_execution(execution_id: str) -> Query[list[Notification]]:
    """Read the notifications of an execution, oldest first."""
    found = yield (
        f"SELECT executions.id, {_SHOWN} FROM notifications JOIN executions ON number = execution"  # noqa: S608
        " WHERE executions.id = ? ORDER BY notifications.created_at, notifications.id",
        (execution_id,),
    )
    return [_read(values) for values in found]


def _read(values: Any) -> Notification:
    id_, namespace, generation, on, url, told, created_at, due_at, attempts, state, ended_at, error = values[
        1:
    ]
    return Notification(
        id=id_,
        execution_id=values[0],
        namespace=namespace,
        generation=generation,
        on=NotifyOn(on),
        url=url,
        told=_decode_told(told),
        created_at=created_at,
        due_at=due_at,
        attempts=attempts,
        state=state,
        ended_at=ended_at,
        error=None if error is None else error.decode(),
    )
