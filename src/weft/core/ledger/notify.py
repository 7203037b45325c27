"""Adds the notifications that somebody asked for to the commit that they tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import NodeFailed
from weft.core.notification import Notification, make_body
from weft.core.state import ExecutionState
from weft.definition.model import NotifyOn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.core.event import Event
    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import DeadLetter
    from weft.definition.model import NotifyTarget

_ENDS = {ExecutionState.COMPLETED: NotifyOn.COMPLETED, ExecutionState.FAILED: NotifyOn.FAILED}


def notify(
    changes: Changes,
    event: Event,
    change: Change,
    targets: Sequence[NotifyTarget],
    new_id: Callable[[], str],
) -> None:
    """Add what an accepted event gives to tell: to the targets of the operator, and to those of the workflow.

    A URL that both name is told once.
    """
    execution = change.row
    told: set[tuple[str, NotifyOn]] = set()
    for target in (*targets, *change.plan.definition.notify):
        for on, letter in _reasons(changes, event, change, target):
            if (target.url, on) in told:
                continue
            told.add((target.url, on))
            id_ = new_id()
            changes.notifications.append(
                Notification(
                    id=id_,
                    execution_id=execution.id,
                    namespace=execution.namespace,
                    generation=execution.generation,
                    on=on,
                    url=target.url,
                    body=make_body(id_, on, execution, letter, at=changes.now),
                    created_at=changes.now,
                    due_at=changes.now,
                )
            )


def _reasons(
    changes: Changes, event: Event, change: Change, target: NotifyTarget
) -> Iterator[tuple[NotifyOn, DeadLetter | None]]:
    """Return what a target is told of an event, each with the dead letter that it is about."""
    end = _ENDS.get(change.row.state)
    if end in target.on:
        yield end, None
    # The first dead letter of a generation: ten thousand nodes that fail alike are one message. And a failure
    # that ends the execution is told as that alone.
    is_first = isinstance(event, NodeFailed) and change.row.failed == 1
    is_told = end is NotifyOn.FAILED and end in target.on
    if is_first and not is_told and NotifyOn.DEAD_LETTER in target.on:
        own = (letter for letter in reversed(changes.letters) if letter.execution_id == change.row.id)
        yield NotifyOn.DEAD_LETTER, next(own)
