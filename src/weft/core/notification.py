"""What is told to a URL outside when an execution ends or a node becomes a dead letter.

A notification is stored by the very commit that it tells of, with its body, and sent later: a crash between
the two loses nothing, and a notification of what was never committed does not exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from weft.core.time import rfc3339
from weft.definition.model import NotifyOn

if TYPE_CHECKING:
    from weft.core.rows import DeadLetter, ExecutionRow

NotificationState: TypeAlias = Literal["pending", "delivered", "failed"]

# Slack shows about so much of a message, and whoever wants all of an error reads the execution.
_MAX_TEXT_CHARACTERS = 1_000
_MAX_MESSAGE_CHARACTERS = 4_000
# Slack reads these three as markup: mentions and links begin with the second.
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_TYPES = {
    NotifyOn.COMPLETED: "execution.completed",
    NotifyOn.FAILED: "execution.failed",
    NotifyOn.DEAD_LETTER: "dead_letter.created",
}
_encode = msgspec.json.Encoder().encode


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one URL. Its id and its body are the same in every attempt to deliver it."""

    id: str
    execution_id: str
    namespace: str
    generation: int
    on: NotifyOn
    url: str
    body: bytes
    created_at: int
    # When it may be sent next; while somebody sends it, when their lease ends. None: it is not sent any more.
    due_at: int | None
    attempts: int = 0
    state: NotificationState = "pending"
    ended_at: int | None = None
    # Why the last attempt did not deliver it.
    error: str | None = None


def make_body(
    notification_id: str, on: NotifyOn, execution: ExecutionRow, letter: DeadLetter | None, *, at: int
) -> bytes:
    """Return the JSON that is sent: ``text`` for people, which Slack shows as it is, and the facts beside it.

    ``letter``: the dead letter that a notification of one tells of.
    """
    error = execution.error if letter is None else letter.error
    body: dict[str, Any] = {
        "text": _text(on, execution, letter),
        "id": notification_id,
        "type": _TYPES[on],
        "timestamp": rfc3339(at),
        "execution": {
            "id": execution.id,
            "namespace": execution.namespace,
            "workflow": execution.workflow,
            "version": execution.version,
            "generation": execution.generation,
            "state": execution.state,
        },
        "node": (error or {}).get("node") if letter is None else letter.node_id,
        "error": _shown_error(error),
    }
    if letter is not None:
        body["dead_letter"] = {"id": letter.id, "attempt": letter.attempt, "handler": letter.handler}
    return _encode(body)


def _text(on: NotifyOn, execution: ExecutionRow, letter: DeadLetter | None) -> str:
    name = f"Execution {execution.id}"
    if execution.workflow is not None:
        name = f"{name} of workflow {execution.workflow}"
    if letter is not None:
        told = f"{name} has a dead letter: node {letter.node_id} failed: {_message(letter.error)}"
    elif on is NotifyOn.FAILED:
        told = f"{name} failed: {_message(execution.error)}"
    else:
        told = f"{name} completed"
    return _cut(told, _MAX_TEXT_CHARACTERS).translate(_ESCAPED)


def _message(error: dict[str, Any] | None) -> str:
    return str((error or {}).get("message", ""))


def _shown_error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {"code": error.get("code"), "message": _cut(_message(error), _MAX_MESSAGE_CHARACTERS)}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
