"""Rows of the journal: an execution, a node, and one event of the history."""

from __future__ import annotations

import hashlib
from binascii import crc32
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.payload import MAX_VALUES, count_values
from weft.core.state import SETTLED, TERMINAL, ExecutionState, NodeState
from weft.definition.model import NotifyOn  # noqa: TC001 - msgspec reads the annotations
from weft.definition.waits import WaitKind  # noqa: TC001 - the same
from weft.errors import Failure, PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

# The outputs that one config, one condition or the output of an execution reads lie in memory together: at
# most so many times the size of the largest payload.
READABLE = 4


class Halt(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A time in which no attempt of an execution starts: it is paused, or its engine has stopped."""

    # The epoch of the store that was asked, and the number of the pause's event; 0: no pause, a stop.
    epoch: int
    paused_seq: int
    # All attempts that a worker had in hand, by node. None: the store was not asked yet.
    in_hand: dict[str, int] | None = None
    # The execution was paused with its parent, and is resumed with it.
    by_parent: bool = False


class Parent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The place of a child execution: the node of another execution that waits for it."""

    execution: str
    node: str
    # Which of the children of the node; None: the node has one.
    index: int | None
    # The attempt of the node that waits for the child.
    attempt: int
    # How many executions are above the child.
    depth: int
    # The generation of the parent that the child works for, and the deadline that the parent has in it: a
    # retry of the parent opens the child again.
    generation: int
    deadline_at: int | None = None


class Called(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The workflow that a node runs, resolved once, and its child: a retry of the execution runs the same."""

    digest: str
    # Of a stored definition.
    workflow: str | None
    version: int | None
    # Of the input: a retry with the same one goes on with the same child.
    input_digest: str
    # The attempt that created the child.
    attempt: int
    child: str


# A journal and a store hold no larger inputs in memory: an input is read when it is needed.
LARGE_INPUT_BYTES = 16 * 1024


# Begins the name of the lane of a group.
GROUP_LANE = "group/"


class ExecutionRow(msgspec.Struct, kw_only=True, gc=False):
    """One execution. Whoever changes anything of an execution holds this row."""

    id: str
    namespace: str
    workflow: str | None
    version: int | None
    digest: str
    state: ExecutionState
    generation: int
    # How often the hot state was built anew: the highest epoch wins.
    epoch: int
    # Its nodes in all, those not settled in this generation, and those of the settled that did not complete:
    # what finishing needs, and what people are shown, without a count over rows.
    total: int
    unsettled: int
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0
    # The number of the last event: 1, 2, 3 … without gaps, in the order of commit.
    seq: int
    input: bytes
    output: bytes | None = None
    error: dict[str, Any] | None = None
    labels: dict[str, str] = {}
    priority: str = "normal"
    batch: str | None = None
    partition: int = 0
    created_at: int
    started_at: int | None = None
    finished_at: int | None = None
    deadline_at: int | None = None
    updated_at: int = 0
    # Its nodes that wait for a time, an answer or an event, and the signals that nobody has waited for yet.
    waiting: int = 0
    mailbox: int = 0
    # True if it has left the hot state, because only waits are open in it: the end of one has it rebuilt.
    evicted: bool = False
    # What a rebuild may know of attempts that were never handed out; None: nothing.
    halt: Halt | None = None
    # The execution whose settled nodes this one began with.
    forked_from: str | None = None
    # The caller's place in a trace (``weft.tracing.context``), where the request that started it named one.
    traceparent: str | None = None
    # The trigger that started it, and the lane in which some executions follow one another: those of a
    # trigger, or of a batch that runs no more than some at once.
    trigger: str | None = None
    lane: str | None = None
    # Of the executions of its workflow that share it, only some run at once.
    group_name: str | None = None

    @property
    def group_lane(self) -> str | None:
        """Return the lane of its group: those who count in it, and those who wait for their turn."""
        return None if self.group_name is None else f"{GROUP_LANE}{self.workflow}/{self.group_name}"

    @property
    def lanes(self) -> tuple[str, ...]:
        """Return the lanes in which it counts."""
        return tuple(lane for lane in (self.lane, self.group_lane) if lane is not None)

    # Of a child: the node that waits for it.
    parent: Parent | None = None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def parent_id(self) -> str | None:
        """Return the id of its parent; None: it is no child."""
        return None if self.parent is None else self.parent.execution

    @property
    def has_succeeded(self) -> bool:
        """True if the execution has completed, and its output could be made."""
        return self.state is ExecutionState.COMPLETED and self.error is None

    @property
    def has_inherited_deadline(self) -> bool:
        """True if the deadline of a child is that of its parent, and not one of its own."""
        parent = self.parent
        return (
            parent is not None and parent.deadline_at is not None and self.deadline_at == parent.deadline_at
        )

    @property
    def completed(self) -> int:
        """Return the number of COMPLETED nodes."""
        return self.total - self.unsettled - self.failed - self.skipped - self.cancelled


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The place of an execution in the queue of a lane: it waits, PENDING, until fewer than ``slots`` run.

    ``cancels``: what is before it in a group is cancelled. ``group_lane``: when its turn has come, it goes on
    to the queue of its group; None: it starts.
    """

    execution_id: str
    namespace: str
    lane: str
    slots: int
    cancels: bool = False
    since: int = 0
    group_lane: str | None = None
    group_slots: int = 0


def partition_of(execution_id: str, partitions: int) -> int:
    """Draw the partition of a new execution. It is kept on its row: the number of partitions may change."""
    return crc32(execution_id.encode()) % partitions if partitions > 1 else 0


class Wait(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The signal or the event that a node waits for, or its time."""

    kind: WaitKind
    # The name of its signal, or the type of its event.
    name: str = ""
    # The question to the person who answers.
    prompt: str | None = None
    # The pairs that the data of its event must have, as canonical JSON.
    match: bytes | None = None


class Parked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of a parked node, which has started without a worker: it sleeps, or it waits."""

    # When it sleeps no longer, or the wait ends by itself; None: never.
    due_at: int | None
    # What it completes with, unless that is large: then the row names a blob. Of a wait: the value at its
    # expiry, as JSON; None: it fails then.
    output: bytes | None = None
    cache_key: str | None = None
    # Of a wait. Any other sleeps.
    wait: Wait | None = None


class Polled(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The looks of a polling node that have ended in this generation, and when the node became ready."""

    since: int
    looks: int


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One node. No row yet reads as ``NodeRow(node_id=…)``: attempt 1 issued, not settled."""

    node_id: str
    # The current attempt: issued with the submit, or by the commit that raised the number.
    attempt: int = 1
    # The last attempt that ended, and the last whose own result was recorded (a lost one has none).
    ended: int = 0
    answered: int = 0
    # None while it is not settled: QUEUED and RUNNING are the store's.
    state: NodeState | None = None
    generation: int = 1
    output: bytes | None = None
    blob: str | None = None
    output_bytes: int | None = None
    reason: str | None = None
    cause: str | None = None
    error: dict[str, Any] | None = None
    failures: int = 0
    losses: int = 0
    retry_at: int | None = None
    # An at_most_once attempt is marked here before its task exists.
    issued: int = 0
    cached: bool = False
    # A fork took the row over from the execution that it was made of.
    reused: bool = False
    worker: str | None = None
    queued_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    # The event that made the row what it is.
    seq: int = 0
    # Time of the commit that completed the node, where this row stands for the event too: the journal stores
    # no event row for it (see ``completion_event``). None: every event of the node has an event row.
    recorded_at: int | None = None
    # The current attempt is parked since ``started_at``.
    parked: Parked | None = None
    # Of a node that polls, once a look has ended without the end of the poll.
    polled: Polled | None = None
    # Of a node that calls a workflow, once it has: also while another generation has not called it yet.
    called: Called | None = None

    @property
    def is_settled(self) -> bool:
        return self.state in SETTLED

    @property
    def is_between_looks(self) -> bool:
        """True if the current attempt is the next look of a poll, and not a repeated one."""
        return self.state is None and self.polled is not None and self.failures == 0 and self.losses == 0

    @property
    def wait(self) -> Wait | None:
        """Return what the node waits for; None: it does not wait."""
        return None if self.parked is None else self.parked.wait

    @property
    def has_no_attempt(self) -> bool:
        """True if the node completed without an attempt: from the cache, or in the execution forked from."""
        return self.cached or self.reused


class NodeProgress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The progress of an attempt as its function reported it (``context.progress``)."""

    done: int | float
    total: int | float | None
    message: str | None
    at: int


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event of an execution's history, as it is stored and shown."""

    seq: int
    at: int
    type: str
    execution: str
    generation: int
    node: str | None = None
    attempt: int | None = None
    state: str | None = None
    reason: str | None = None
    cause: str | None = None
    error: dict[str, Any] | None = None
    worker: str | None = None
    queued_at: int | None = None
    started_at: int | None = None
    finished_at: int | None = None
    due_at: int | None = None
    output_digest: str | None = None
    actor: str | None = None
    # The name of a signal.
    signal: str | None = None
    # Of live events alone.
    progress: NodeProgress | None = None


def completion_event(execution_id: str, row: NodeRow, output_digest: str | None) -> History:
    """Return the ``node.completed`` event that a row with ``recorded_at`` stands for."""
    assert row.recorded_at is not None
    return History(
        seq=row.seq,
        at=row.recorded_at,
        type="node.completed",
        execution=execution_id,
        generation=row.generation,
        node=row.node_id,
        attempt=0 if row.has_no_attempt else row.attempt,
        state=NodeState.COMPLETED,
        worker=row.worker,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        output_digest=output_digest,
    )


def digest_of(output: bytes | None) -> str | None:
    """Return the digest that events carry of an output; None for an output that lies in a blob."""
    return None if output is None else hashlib.sha256(output).hexdigest()


def failure_of(error: dict[str, Any] | None) -> Failure | None:
    """Return an error as users of Python see it."""
    shown = shown_error(error)
    if shown is None:
        return None
    return Failure(**{name: shown[name] for name in Failure.__struct_fields__ if name in shown})


def shown_error(error: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an error as users see it: ``details`` is always an object.

    Added where an error is shown, not where it is made: errors of earlier releases are stored without it.
    """
    if error is None:
        return None
    details = error.get("details")
    if isinstance(details, dict):
        return error
    # A handler of a user may give details of any kind.
    return {**error, "details": {} if details is None else {"value": details}}


class Signal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A signal that came before anybody waited for it: it lies in the mailbox of its execution."""

    execution_id: str
    # That of its event in the history: the lowest is read first.
    number: int
    name: str
    # What a node that reads it completes with; of a large one, the name of a blob.
    output: bytes | None
    blob: str | None
    output_bytes: int
    # The wait nodes of its name whose schema it fits.
    fits: tuple[str, ...]


class PastEvent(msgspec.Struct, frozen=True, gc=False):
    """An inbound event that came before a node waited for it."""

    # In the order in which events came.
    number: int
    source: str
    received_at: int
    # Its data, as JSON.
    value: bytes


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A node that failed for good, one per node and generation."""

    id: str
    execution_id: str
    workflow: str | None
    node_id: str
    generation: int
    attempt: int
    handler: str
    queue: str
    error: dict[str, Any]
    state: str
    created_at: int


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of a notification, as they were in the commit that it tells of."""

    workflow: str | None
    version: int | None
    state: ExecutionState
    node: str | None = None
    code: str | None = None
    message: str | None = None
    # The dead letter that it is about.
    dead_letter: str | None = None
    # Of a wait: the signal that answers it, the question to the person who answers, and when it expires.
    signal: str | None = None
    prompt: str | None = None
    expires_at: int | None = None


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one URL: stored by the very commit that it tells of, and sent later.

    A crash between the two loses nothing, and there is none of what was never committed.
    """

    id: str
    execution_id: str
    namespace: str
    generation: int
    on: NotifyOn
    url: str
    told: Told
    created_at: int
    # When it may be sent next; while a process sends it, when its lease ends. None: it is not sent any more.
    due_at: int | None
    attempts: int = 0
    # pending, delivered or failed.
    state: str = "pending"
    ended_at: int | None = None
    # Why the last attempt did not deliver it.
    error: str | None = None


def refuse_reading(
    rows: Collection[NodeRow], *, max_bytes: int, payload_of: Callable[[NodeRow], bytes] | None
) -> None:
    """Raise PayloadError where expressions would read more than they may of these outputs at once."""
    if len(rows) <= READABLE:  # so few cannot be too large together
        return
    size = sum([size_of(row) for row in rows])
    if size > READABLE * max_bytes:
        raise PayloadError(
            "too_large",
            f"the outputs that it reads are {size:,} bytes together; the limit is {READABLE * max_bytes:,}, "
            f"{READABLE} times WEFT_MAX_PAYLOAD_BYTES",
        )

    # A value has two characters at least: nearly always there is nothing to count.
    if payload_of is None or size <= 2 * READABLE * MAX_VALUES:
        return
    completed = [row for row in rows if row.state is NodeState.COMPLETED]
    values = 0
    # First quickly, and then without the commas in strings.
    for most in (MAX_VALUES, 0):
        values = sum([count_values(payload_of(row), most=most) for row in completed])
        if values <= READABLE * MAX_VALUES:
            return
    raise PayloadError(
        "too_large",
        f"the outputs that it reads have {values:,} values together; the limit is {READABLE * MAX_VALUES:,}",
    )


def payload_in(row: NodeRow, blobs: Mapping[str, bytes]) -> bytes:
    """Return the output of a completed node; ``blobs``: those that lie apart from their rows."""
    payload = row.output if row.blob is None else blobs[row.blob]
    assert payload is not None
    return payload


def size_of(row: NodeRow) -> int:
    """Return the size of a node's output, wherever it lies."""
    if row.output is not None:
        return len(row.output)
    return row.output_bytes or 0


# Begins the name by which a row refers to its own output, where memory holds the row without it.
_OWN_OUTPUT = "row/"


def without_output(execution_id: str, row: NodeRow) -> NodeRow:
    """Return the row of a completed node with a reference in the place of its output, as to a blob.

    For memory alone: no journal stores such a row. A journal whose rows are held so resolves the reference.
    """
    assert row.output is not None
    reference = f"{_OWN_OUTPUT}{execution_id}/{row.node_id}"
    return replace(row, output=None, blob=reference, output_bytes=len(row.output))


def own_output(name: str) -> tuple[str, str] | None:
    """Return the execution and the node whose output a reference names; None: it is the name of a blob."""
    if not name.startswith(_OWN_OUTPUT):
        return None
    execution_id, _, node_id = name.removeprefix(_OWN_OUTPUT).rpartition("/")
    return execution_id, node_id
