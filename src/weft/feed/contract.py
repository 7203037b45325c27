"""Publishes events to subscribers as they happen: a hint, never the truth.

A subscriber may miss events: if it is slow or came late, it reads the history in the journal, which has every
recorded event with its number. So a stream that must lose nothing takes each event as a hint to read the
journal from the last number that it has seen. It passes on directly only the live events, which the journal
does not have (``node.queued``, ``node.started`` and ``node.progress``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from weft.core.rows import History
from weft.core.state import NodeState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from weft.core.rows import ExecutionRow, NodeProgress, NodeRow
    from weft.core.task import Task

# Events that are told and not recorded: their ``seq`` is 0.
QUEUED = "node.queued"
STARTED = "node.started"
PROGRESS = "node.progress"


def node_queued(task: Task) -> History:
    """Return the live event for a queued attempt: its task is on its way."""
    return History(
        seq=0,
        at=task.queued_at,
        type=QUEUED,
        execution=task.execution_id,
        generation=task.generation,
        node=task.node_id,
        attempt=task.attempt,
        state=NodeState.QUEUED,
        queued_at=task.queued_at,
    )


def node_started(task: Task, *, worker: str, at: int) -> History:
    """Return the live event for an attempt that a worker has started."""
    return History(
        seq=0,
        at=at,
        type=STARTED,
        execution=task.execution_id,
        generation=task.generation,
        node=task.node_id,
        attempt=task.attempt,
        state=NodeState.RUNNING,
        worker=worker,
        queued_at=task.queued_at,
        started_at=at,
    )


def node_progress(
    execution_id: str, *, generation: int, node_id: str, attempt: int, progress: NodeProgress
) -> History:
    """Return the live event for how far an attempt says it has come."""
    return History(
        seq=0,
        at=progress.at,
        type=PROGRESS,
        execution=execution_id,
        generation=generation,
        node=node_id,
        attempt=attempt,
        state=NodeState.RUNNING,
        progress=progress,
    )


def node_parked(execution: ExecutionRow, row: NodeRow) -> History:
    """Return the live event for an attempt that has started and that no worker runs."""
    assert row.started_at is not None
    return History(
        seq=0,
        at=row.started_at,
        type=STARTED,
        execution=execution.id,
        generation=row.generation,
        node=row.node_id,
        attempt=row.attempt,
        state=NodeState.RUNNING,
        queued_at=row.queued_at,
        started_at=row.started_at,
    )


class Subscription(Protocol):
    """A subscription to live events. It holds a bounded number of events; over that the oldest are missed."""

    async def __aenter__(self) -> Self:
        """Subscribe: an event that is published after this returns is received or counted as missed."""

    async def __aexit__(self, *_: object) -> None:
        """Unsubscribe."""

    async def receive(self, *, wait_seconds: float) -> Sequence[History]:
        """Return the events published since the last call, waiting a while for the first; may be empty."""

    @property
    def missed(self) -> int:
        """Return the number of events that did not fit between the last two calls of ``receive``."""


class Feed(Protocol):
    def publish(self, events: Sequence[History], *, namespace: str) -> None:
        """Publish events to the subscribers without waiting; may be called on every path."""

    @property
    def has_listeners(self) -> bool:
        """True if anybody listens for anything: if not, a batch need not be looked through.

        Adapters keep it as a plain attribute: every batch asks for it several times.
        """

    def has_subscriber(self, execution_id: str) -> bool:
        """True if this execution may have a subscriber: if not, live events need not be made."""

    def subscribe(
        self,
        *,
        namespace: str | None = None,
        execution_id: str | None = None,
        types: Collection[str] | None = None,
    ) -> Subscription:
        """Listen for one execution, or for all of a namespace: one of the two is given.

        ``types``: of these events only. Who names them is no reason to make live events.
        """
