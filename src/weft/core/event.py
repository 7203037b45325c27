"""Events, in the past tense. Every change of an execution is an event, recorded under a fence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias

import msgspec

from weft.core.attempt import AttemptRef
from weft.core.readiness import Skip as Skip  # noqa: TC001 - msgspec reads the annotations
from weft.core.rows import Called, Wait  # noqa: TC001 - msgspec reads the annotations

if TYPE_CHECKING:
    from weft.core.attempt import EndedAttempt
    from weft.definition.plan import Plan


class Running(msgspec.Struct, frozen=True, gc=False):
    """An attempt in hand when its execution was stopped, as the store knew it."""

    attempt: int
    worker: str | None
    queued_at: int | None
    started_at: int | None


class _Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    execution_id: str
    generation: int


class _AttemptEvent(AttemptRef, frozen=True, kw_only=True, gc=False):
    """The end of an attempt, with its times."""

    worker: str | None = None
    queued_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None

    @classmethod
    def of(cls, attempt: EndedAttempt, **fields: Any) -> Self:
        """Return the event of an attempt that ended; ``fields``: what the event says besides."""
        return cls(
            execution_id=attempt.execution_id,
            generation=attempt.generation,
            node_id=attempt.node_id,
            attempt=attempt.attempt,
            worker=attempt.worker,
            queued_at=attempt.queued_at,
            started_at=attempt.started_at,
            finished_at=attempt.finished_at,
            **fields,
        )


class ExecutionStarted(_Event, frozen=True, kw_only=True, gc=False):
    """An orchestrator has taken the execution up."""


class NodeCompleted(_AttemptEvent, frozen=True, kw_only=True, gc=False):
    output: bytes | None
    blob: str | None = None
    output_bytes: int
    cache_key: str | None = None


class NodeCached(AttemptRef, frozen=True, kw_only=True, gc=False):
    """The cache had the output: no attempt was made."""

    output: bytes


class AttemptFailed(_AttemptEvent, frozen=True, kw_only=True, gc=False):
    """An attempt failed and another follows, not before the delay has passed, by the journal's own clock."""

    error: dict[str, Any]
    delay_seconds: float


class AttemptPolled(_AttemptEvent, frozen=True, kw_only=True, gc=False):
    """A look of a poll ended, and another follows after so many seconds, by the journal's own clock."""

    delay_seconds: float


class AttemptLost(_AttemptEvent, frozen=True, kw_only=True, gc=False):
    """An attempt ended without a result, and another follows. ``counted``: as a delivery lost."""

    counted: bool


class NodeFailed(_AttemptEvent, frozen=True, kw_only=True, gc=False):
    """A node failed for good. ``skips`` are the nodes behind it that can no longer run."""

    error: dict[str, Any]
    skips: tuple[Skip, ...] = ()
    running: dict[str, Running] = msgspec.field(default_factory=dict)
    lost: bool = False


class NodeSkipped(AttemptRef, frozen=True, kw_only=True, gc=False):
    reason: str
    cause: str | None
    skips: tuple[Skip, ...] = ()
    running: dict[str, Running] = msgspec.field(default_factory=dict)


class AttemptIssued(AttemptRef, frozen=True, kw_only=True, gc=False):
    """An ``at_most_once`` attempt is about to be handed out under this epoch of the store."""

    epoch: int


class AttemptParked(AttemptRef, frozen=True, kw_only=True, gc=False):
    """An attempt without a worker starts under this epoch of the store, by this very commit.

    It is due after so many seconds by the journal's own clock, and completes with ``output`` or ``blob``.
    """

    epoch: int
    seconds: float
    output: bytes | None
    blob: str | None = None
    output_bytes: int
    cache_key: str | None = None


class ParkedDue(AttemptRef, frozen=True, kw_only=True, gc=False):
    """The time of a parked attempt has come, by the clock of the store."""


class WaitStarted(AttemptRef, frozen=True, kw_only=True, gc=False):
    """A node waits, under this epoch of the store and by this very commit.

    It is due after so many seconds by the journal's own clock, or at a time of its own, or never.
    """

    epoch: int
    wait: Wait
    seconds: float | None = None
    due_at: int | None = None
    # The value at expiry, as JSON; None: the node fails then.
    default: bytes | None = None
    # An event that came so much earlier ends the wait at once.
    lookback_seconds: float = 0.0


class WaitDue(AttemptRef, frozen=True, kw_only=True, gc=False):
    """The time of a wait has come. ``skips`` and ``running`` as of a failure: it may be one."""

    skips: tuple[Skip, ...] = ()
    running: dict[str, Running] = msgspec.field(default_factory=dict)


class WaitAnswered(_Event, frozen=True, kw_only=True, gc=False):
    """Somebody answered the wait of a node, which completes with ``output`` or ``blob``.

    ``generation`` 0 means whichever is current. ``event_type``: an event that came in is the answer.
    """

    node_id: str
    output: bytes | None
    blob: str | None = None
    output_bytes: int
    actor: str | None = None
    event_type: str | None = None


class SignalReceived(_Event, frozen=True, kw_only=True, gc=False):
    """Somebody sent a signal to an execution; a node that waits for it completes with ``output`` or ``blob``.

    ``generation`` 0 means whichever is current.
    """

    name: str
    output: bytes | None
    blob: str | None = None
    output_bytes: int
    # The wait nodes of this name whose schema the value fits.
    fits: tuple[str, ...]
    actor: str | None = None


class NewChild(msgspec.Struct, frozen=True, gc=False):
    """A child execution that an event creates."""

    plan: Plan
    # The definition's document as JSON; b"": the journal has it as that of a version.
    document: bytes
    input: bytes
    partition: int
    # Whether the commit that creates the child also starts it: not where the store is away.
    starts: bool


class CallStarted(AttemptRef, frozen=True, kw_only=True, gc=False):
    """A node waits for a child, under this epoch of the store and by this very commit.

    The same commit creates the child. Where ``called`` names the child of an earlier generation, the commit
    opens that one again, unless it has completed.
    """

    epoch: int
    called: Called
    new: NewChild
    # Until then the child has to end; None: it has any time.
    seconds: float | None = None
    # Of the store, before the commit: the child is installed in no other. None: the store is away.
    incarnation_id: str | None = None


class ChildEnded(AttemptRef, frozen=True, kw_only=True, gc=False):
    """The child that a node waits for has ended: with ``output`` or ``blob``, or with ``error``."""

    child: str
    output: bytes | None = None
    blob: str | None = None
    output_bytes: int = 0
    # Why the node fails; None: the child has completed.
    error: dict[str, Any] | None = None
    # As of a failure.
    skips: tuple[Skip, ...] = ()
    running: dict[str, Running] = msgspec.field(default_factory=dict)


class DeadlinePassed(_Event, frozen=True, kw_only=True, gc=False):
    running: dict[str, Running] = {}


class CancelRequested(_Event, frozen=True, kw_only=True, gc=False):
    """``generation`` 0 means whichever is current: a person asked."""

    running: dict[str, Running] = {}
    actor: str | None = None
    # The parent of the execution has ended, or waits for it no more.
    by_parent: bool = False


class PauseRequested(_Event, frozen=True, kw_only=True, gc=False):
    actor: str | None = None
    by_parent: bool = False


class ResumeRequested(_Event, frozen=True, kw_only=True, gc=False):
    actor: str | None = None


class HaltObserved(_Event, frozen=True, kw_only=True, gc=False):
    """While no attempt could start, the store of this epoch was asked which ones are in somebody's hand.

    ``paused_seq``: the number of the pause's event; 0: the engine stops, and its worker has ended.
    """

    epoch: int
    paused_seq: int
    # The attempt by node.
    in_hand: dict[str, int]


class HotStateEvicted(_Event, frozen=True, kw_only=True, gc=False):
    """The store of this epoch had nothing to do for an execution but to wait: it leaves the hot state.

    ``seq``: the last event of the history that the store had merged.
    """

    epoch: int
    seq: int


class RetryRequested(_Event, frozen=True, kw_only=True, gc=False):
    """``nodes``: to run again besides those that did not complete, with everything behind them."""

    nodes: tuple[str, ...] = ()
    actor: str | None = None


class NotificationEnded(_Event, frozen=True, kw_only=True, gc=False):
    """A notification was delivered, or is not sent any more. ``generation``: the one that it tells of."""

    notification_id: str
    on: str
    attempts: int
    # Why it was not delivered; None: it was.
    error: str | None = None


Event: TypeAlias = (
    ExecutionStarted
    | NodeCompleted
    | NodeCached
    | AttemptFailed
    | AttemptPolled
    | AttemptLost
    | NodeFailed
    | NodeSkipped
    | AttemptIssued
    | AttemptParked
    | ParkedDue
    | WaitStarted
    | WaitDue
    | WaitAnswered
    | SignalReceived
    | CallStarted
    | ChildEnded
    | DeadlinePassed
    | CancelRequested
    | PauseRequested
    | ResumeRequested
    | HaltObserved
    | HotStateEvicted
    | RetryRequested
    | NotificationEnded
)
