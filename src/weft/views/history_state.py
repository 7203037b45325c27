"""The state that a replayed history leads to, and the stored state to compare it with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.state import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from weft.core.rows import DeadLetter, ExecutionRow, History, NodeRow


class Violation(msgspec.Struct, frozen=True):
    """Something that cannot be. ``seq``: the event that shows it; None: what is stored does."""

    invariant: str
    node: str | None
    seq: int | None
    message: str

    def __str__(self) -> str:
        where = "stored" if self.seq is None else f"event {self.seq}"
        of = "" if self.node is None else f" {self.node}:"
        return f"{self.invariant} {where}:{of} {self.message}"


class Letter(msgspec.Struct):
    """A dead letter, as far as the history says what it must be."""

    attempt: int
    error: dict[str, Any] | None
    state: str = "open"


class StoredNode(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of one node. Unknown fields are left out, and not compared."""

    state: NodeState | None  # None: not settled
    # The latest attempt that ended; 0: none, or the cache answered.
    attempt: int | None = None
    # The attempt that is current, and the failures of this generation.
    current: int | None = None
    failures: int | None = None
    reason: str | None = None
    cause: str | None = None
    cached: bool = False
    error: dict[str, Any] | None = None
    worker: str | None = None
    queued_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    output_digest: str | None = None


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of an execution beside its history. None: not known, and not compared."""

    state: str
    generation: int
    created_at: int | None
    started_at: int | None
    finished_at: int | None
    error: dict[str, Any] | None
    counts: Mapping[str, int] | None
    # A node that is not listed has no row: nothing has happened to it.
    nodes: Mapping[str, StoredNode]
    # By node and generation.
    letters: Mapping[tuple[str, int], Letter] | None = None


def stored_rows(
    execution: ExecutionRow, rows: Mapping[str, NodeRow], letters: Sequence[DeadLetter] | None = None
) -> Stored:
    """Take what is stored from the journal's own rows."""
    return Stored(
        state=execution.state,
        generation=execution.generation,
        created_at=execution.created_at,
        started_at=execution.started_at,
        finished_at=execution.finished_at,
        error=execution.error,
        counts={
            NodeState.PENDING: execution.unsettled,
            NodeState.COMPLETED: execution.completed,
            NodeState.FAILED: execution.failed,
            NodeState.SKIPPED: execution.skipped,
            NodeState.CANCELLED: execution.cancelled,
        },
        nodes={node_id: _stored_row(row) for node_id, row in rows.items()},
        letters=None
        if letters is None
        else {
            (letter.node_id, letter.generation): Letter(letter.attempt, letter.error, letter.state)
            for letter in letters
        },
    )


def _stored_row(row: NodeRow) -> StoredNode:
    return StoredNode(
        state=row.state,
        attempt=0 if row.has_no_attempt else row.ended,
        current=row.attempt,
        failures=row.failures,
        reason=row.reason,
        cause=row.cause,
        cached=row.has_no_attempt and row.state is NodeState.COMPLETED,
        error=row.error,
        worker=row.worker,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        # A large output lies elsewhere, and its event has no digest.
        output_digest=None if row.output is None else hashlib.sha256(row.output).hexdigest(),
    )


class ReplayedNode:
    """One node, as its events have made it."""

    __slots__ = (
        "accepted",
        "at_most",
        "attempt",
        "cached",
        "cause",
        "digest",
        "due_at",
        "ended",
        "error",
        "failures",
        "finished_at",
        "is_touched",
        "lost_at",
        "queued_at",
        "ran_in",
        "reason",
        "started_at",
        "state",
        "waits_in",
        "worker",
    )

    def __init__(self) -> None:
        self.state: NodeState | None = None
        # The attempt that is current, and the last that ended. A retry gives the next number where the old
        # one may have been handed out, which no event tells: then the current one is one of several.
        self.attempt = 1
        self.at_most = 1
        self.ended = 0
        self.failures = 0
        # The generations in which a result was accepted, in which it was started last, and in which it began
        # to wait.
        self.accepted = 0
        self.ran_in = 0
        self.waits_in = 0
        # The event by which its last attempt was lost.
        self.lost_at = 0
        self.due_at: int | None = None
        self.reason: str | None = None
        self.cause: str | None = None
        self.cached = False
        self.error: dict[str, Any] | None = None
        self.worker: str | None = None
        self.queued_at: int | None = None
        self.started_at: int | None = None
        self.finished_at: int | None = None
        self.digest: str | None = None
        self.is_touched = False

    def reopened(self) -> ReplayedNode:
        """Return the node as it is when the next generation may run the node again."""
        node = ReplayedNode()
        node.ended, node.accepted, node.ran_in, node.is_touched = self.ended, self.accepted, self.ran_in, True
        node.attempt, node.at_most = max(self.attempt, self.ended + 1), self.at_most + 1
        return node

    def next_attempt(self, event: History) -> None:
        """Let another attempt follow the one that the event ends."""
        self.attempt = self.at_most = self.ended + 1
        self.due_at = None
        self.is_touched = True
        self.error = event.error or self.error
        self.worker = event.worker

    def wait(self, event: History) -> None:
        """Take the begin of a wait, which is the start of its attempt."""
        self.attempt = self.at_most = event.attempt or 0
        self.waits_in = event.generation
        self.is_touched = True

    def settle(self, event: History, state: NodeState) -> None:
        self.state = state
        self.is_touched = True
        self.reason, self.cause, self.error, self.worker = (
            event.reason,
            event.cause,
            event.error,
            event.worker,
        )
        self.queued_at, self.started_at, self.finished_at = (
            event.queued_at,
            event.started_at,
            event.finished_at,
        )

    def differences(self, stored: StoredNode) -> Iterator[tuple[str, object, object]]:
        """Yield each field whose stored value differs from the history: name, stored, replayed."""
        if stored.state is not self.state:
            yield "state", stored.state or "not settled", self.state or "not settled"
            return
        if stored.attempt is not None and stored.attempt != (0 if self.cached else self.ended):
            yield "attempt", stored.attempt, self.ended
        if stored.current is not None and not self.attempt <= stored.current <= self.at_most:
            yield "current attempt", stored.current, self.attempt
        if stored.failures is not None and stored.failures != self.failures:
            yield "number of failures", stored.failures, self.failures
        if self.state is None:
            return
        for name in (
            "reason",
            "cause",
            "cached",
            "error",
            "worker",
            "queued_at",
            "started_at",
            "finished_at",
        ):
            kept, told = getattr(stored, name), getattr(self, name)
            if kept != told:
                yield name, kept, told
        if None not in (stored.output_digest, self.digest) and stored.output_digest != self.digest:
            yield "output", stored.output_digest, self.digest
