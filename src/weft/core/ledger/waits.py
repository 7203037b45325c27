"""Applies the events of waits: one begins, its time comes, somebody answers, a signal comes in, a child ends.

The answer, the expiry and a cancel of one wait are judged one behind the other, because every transaction
that changes an execution holds its row: the first ends the wait, and the others find that the node waits no
more.

The commit by which a node begins to wait for a child execution creates the child, so there is no step between
the two that a crash could lose, and no child of a node that does not wait. The end of the child is a commit
of its own; the event that tells the parent of it is accepted once, because the node waits for it once.

A signal that no node waits for lies in the mailbox of its execution. The commit that begins a wait reads the
mailbox, so no signal is lost between a node that is about to wait and a signal that is about to come.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from weft.core.event import NodeFailed, SignalReceived, WaitAnswered
from weft.core.ledger.changes import Verdict
from weft.core.ledger.control import reopen
from weft.core.ledger.node_events import complete_parked, node_failed
from weft.core.ledger.settle import stop
from weft.core.payload import encode
from weft.core.rows import ExecutionRow, NodeRow, Parent, Parked, Signal, Wait, shown_error
from weft.core.state import ExecutionState, NodeState, Reason
from weft.core.time import micros, rfc3339
from weft.definition.waits import WaitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.core.event import CallStarted, ChildEnded, WaitDue, WaitStarted
    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import PastEvent

# An execution keeps so many signals that nobody waits for.
MAILBOX_SIGNALS = 1000
# So many are read in one step: a wait mostly takes the first one, and there may be a thousand waits.
MAILBOX_PAGE = 64
# The name of a caller, which no name of a key is longer than.
_MAX_NAME_BYTES = 4096
_NULL = b"null"


class Mailboxes(Protocol):
    """The signals and inbound events that a journal keeps, as the transaction at hand sees them."""

    def signals(self, execution_id: str, name: str, after: int) -> Sequence[Signal]:
        """Return the next signals of a name in a mailbox behind a number; their outputs may be left out.

        At most MAILBOX_PAGE, oldest first.
        """

    def output(self, execution_id: str, number: int) -> bytes:
        """Return the output of a signal that is not in a blob."""

    def past_event(
        self, execution: ExecutionRow, wait: Wait, since: int, taken: tuple[int, ...]
    ) -> PastEvent | None:
        """Return the first event since then that a wait matches, and that has ended no wait of the execution.

        ``taken``: those that end one in this very transaction.
        """


def wait_output(value: bytes, *, by: str | None, at: int, expired: bool = False) -> bytes:
    """Return the output of a wait node; ``value``: JSON, which it holds byte for byte."""
    name = _NULL if by is None else encode(by, max_bytes=_MAX_NAME_BYTES)
    flag = b"true" if expired else b"false"
    return b'{"value":%b,"by":%b,"at":"%b","expired":%b}' % (value, name, rfc3339(at).encode(), flag)


def wait_started(
    changes: Changes, event: WaitStarted, change: Change, row: NodeRow, mailboxes: Mailboxes
) -> NodeRow:
    """Begin a wait, and end it at once where the mailbox has an answer."""
    now = changes.now
    # By this clock, as the due time of a retry: the process that decided it may have another.
    due_at = event.due_at if event.seconds is None else now + micros(event.seconds)
    seq = changes.note(
        change.row,
        "node.waiting",
        node=row.node_id,
        attempt=row.attempt,
        state=NodeState.WAITING,
        queued_at=now,
        started_at=now,
        due_at=due_at,
    )
    waiting = replace(
        row,
        generation=change.row.generation,
        queued_at=now,
        started_at=now,
        seq=seq,
        parked=Parked(due_at, event.default, None, event.wait),
    )
    changes.put(change, row, waiting)
    if event.wait.kind is WaitKind.SIGNAL and change.row.mailbox:
        signal = _read_mailbox(changes, change, waiting, event.wait, mailboxes)
        if signal is not None:
            return _answered(changes, change, waiting, signal)
    if event.lookback_seconds > 0 and event.wait.kind is WaitKind.EVENT:
        taken = tuple([number for number, id_, _ in changes.events_taken if id_ == change.row.id])
        past = mailboxes.past_event(change.row, event.wait, now - micros(event.lookback_seconds), taken)
        if past is not None:
            changes.events_taken.append((past.number, change.row.id, row.node_id))
            output = wait_output(past.value, by=past.source, at=past.received_at)
            return complete_parked(changes, change, waiting, output=output, output_bytes=len(output))
    return waiting


def _read_mailbox(
    changes: Changes, change: Change, row: NodeRow, wait: Wait, mailboxes: Mailboxes
) -> Signal | None:
    """Take the first signal out of the mailbox that fits, and drop those before it that do not."""
    execution = change.row
    for signal in _take(changes, execution.id, wait.name, mailboxes):
        execution.mailbox -= 1
        if row.node_id in signal.fits:
            if signal.output is None and signal.blob is None:
                return replace(signal, output=mailboxes.output(execution.id, signal.number))
            return signal
        changes.note(execution, "signal.discarded", node=row.node_id, signal=wait.name)
    return None


def _take(changes: Changes, execution_id: str, name: str, mailboxes: Mailboxes) -> Iterator[Signal]:
    """Yield the signals of a name in a mailbox, oldest first; each is taken out."""
    key, page = (execution_id, name), MAILBOX_PAGE
    while page == MAILBOX_PAGE:
        found = mailboxes.signals(execution_id, name, changes.signals_read.get(key, 0))
        page = len(found)
        for signal in found:
            changes.signals_read[key] = signal.number
            changes.signals_taken.append((execution_id, signal.number))
            yield signal
    for signal in [one for one in changes.signals_kept if (one.execution_id, one.name) == key]:
        changes.signals_kept.remove(signal)
        yield signal


def wait_due(
    changes: Changes, event: WaitDue, change: Change, row: NodeRow, new_id: Callable[[], str]
) -> tuple[NodeRow, ...]:
    """End a wait whose time has come: by its time, by its default, or as a failure."""
    parked, wait = row.parked, row.wait
    assert parked is not None
    assert parked.due_at is not None
    assert wait is not None
    changes.untold.add((change.row.id, row.node_id))
    is_timer = wait.kind is WaitKind.TIMER
    if is_timer or parked.output is not None:
        value = _NULL if parked.output is None else parked.output
        output = wait_output(value, by=None, at=parked.due_at, expired=not is_timer)
        return (complete_parked(changes, change, row, output=output, output_bytes=len(output)),)
    if wait.kind is WaitKind.CHILD:
        code, message = "timeout", f"child {wait.name} has not ended until {rfc3339(parked.due_at)}"
    else:
        sought = f"signal {wait.name!r}" if wait.kind is WaitKind.SIGNAL else f"event {wait.name!r}"
        code = "expired"
        message = f"no {sought} came until {rfc3339(parked.due_at)}, and the wait has no default"
    failure = NodeFailed(
        execution_id=event.execution_id,
        generation=event.generation,
        node_id=event.node_id,
        attempt=event.attempt,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=changes.now,
        error={
            "code": code,
            "message": message,
            "retryable": False,
        },
        skips=event.skips,
        running=event.running,
    )
    return node_failed(changes, failure, change, row, new_id)


def answer(
    changes: Changes, event: WaitAnswered | SignalReceived, change: Change
) -> tuple[Verdict, tuple[NodeRow, ...]]:
    """Judge an answer or a signal, and end the wait that it is for; keep a signal that nobody waits for.

    Return with REFUSED the row of the wait whose schema a signal does not fit, if that is why.
    """
    execution = change.row
    if execution.is_terminal or event.generation not in (0, execution.generation):
        return Verdict.REFUSED, ()
    if isinstance(event, WaitAnswered):
        if event.node_id not in change.plan.nodes:
            return Verdict.UNKNOWN, ()
        row = change.row_of(event.node_id)
        if row.wait is None or not _is_awaited(row.wait, event):
            return Verdict.REFUSED, ()
        if event.event_type is not None:
            changes.untold.add((execution.id, row.node_id))
            return Verdict.ACCEPTED, (_answered(changes, change, row, event),)
        return Verdict.ACCEPTED, (_end(changes, event, change, row, row.wait.name),)
    waiting = _longest_waiting(change, event.name)
    if waiting is not None:
        if waiting.node_id not in event.fits:
            return Verdict.REFUSED, (waiting,)
        return Verdict.ACCEPTED, (_end(changes, event, change, waiting, event.name),)
    if execution.mailbox >= MAILBOX_SIGNALS:
        return Verdict.REFUSED, ()
    number = changes.note(execution, "signal.received", signal=event.name, actor=event.actor)
    execution.mailbox += 1
    changes.signals_kept.append(
        Signal(
            execution_id=execution.id,
            number=number,
            name=event.name,
            output=event.output,
            blob=event.blob,
            output_bytes=event.output_bytes,
            fits=event.fits,
        )
    )
    return Verdict.ACCEPTED, ()


def _is_awaited(wait: Wait, event: WaitAnswered) -> bool:
    """True if the wait is one that this answer may end: for an event of its type, or for a signal."""
    if event.event_type is None:
        return wait.kind is WaitKind.SIGNAL
    return wait.kind is WaitKind.EVENT and wait.name == event.event_type


def _longest_waiting(change: Change, name: str) -> NodeRow | None:
    """Return the row of the node that has waited longest for a signal, in the order of the definition."""
    rows = [change.row_of(node_id) for node_id in change.plan.waits_by_signal.get(name, ())]
    return min(
        (row for row in rows if row.wait is not None), key=lambda row: row.started_at or 0, default=None
    )


def _end(
    changes: Changes, event: WaitAnswered | SignalReceived, change: Change, row: NodeRow, signal: str
) -> NodeRow:
    """End a wait by an answer from outside; the caller that brought the answer tells the store."""
    changes.note(change.row, "signal.received", node=row.node_id, signal=signal, actor=event.actor)
    changes.untold.add((change.row.id, row.node_id))
    return _answered(changes, change, row, event)


def _answered(
    changes: Changes, change: Change, row: NodeRow, given: WaitAnswered | SignalReceived | Signal
) -> NodeRow:
    return complete_parked(
        changes, change, row, output=given.output, blob=given.blob, output_bytes=given.output_bytes
    )


# -- children ------------------------------------------------------------------------------------------


def child_id(parent_id: str, node_id: str, attempt: int, index: int | None = None) -> str:
    """Return the id of a child, the same for whoever creates it.

    It is a UUID of version 7, as all ids: the time is that of its parent's id, and the rest a hash, where
    other ids are random.
    """
    text = "\0".join((parent_id, node_id, str(attempt), "" if index is None else str(index)))
    drawn = int.from_bytes(hashlib.sha256(text.encode()).digest()[:10], "big")
    try:
        made_at = int(parent_id.replace("-", "")[:12], 16)
    except ValueError:
        made_at = 0
    drawn = drawn & ~(0xF << 76) & ~(0x3 << 62) | (0x7 << 76) | (0x2 << 62)
    digits = f"{made_at << 80 | drawn:032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def call_started(changes: Changes, event: CallStarted, change: Change, row: NodeRow) -> NodeRow:
    """Let a node wait for its child."""
    now = changes.now
    due_at = None if event.seconds is None else now + micros(event.seconds)
    seq = changes.note(
        change.row,
        "node.waiting",
        node=row.node_id,
        attempt=row.attempt,
        state=NodeState.WAITING,
        queued_at=now,
        started_at=now,
        due_at=due_at,
    )
    waiting = replace(
        row,
        generation=change.row.generation,
        queued_at=now,
        started_at=now,
        seq=seq,
        parked=Parked(due_at, None, None, Wait(WaitKind.CHILD, event.called.child)),
        called=event.called,
    )
    changes.put(change, row, waiting)
    return waiting


def new_child(event: CallStarted, parent: ExecutionRow) -> ExecutionRow:
    """Return the row of a child that is created for a node."""
    called, new = event.called, event.new
    return ExecutionRow(
        id=called.child,
        namespace=parent.namespace,
        workflow=called.workflow,
        version=called.version,
        digest=called.digest,
        state=ExecutionState.PENDING,
        generation=1,
        epoch=1,
        total=len(new.plan.nodes),
        unsettled=len(new.plan.nodes),
        seq=0,
        input=new.input,
        labels=parent.labels,
        priority=parent.priority,
        partition=new.partition,
        created_at=0,
        traceparent=parent.traceparent,
        parent=_link(event, parent),
    )


def take_over_child(changes: Changes, event: CallStarted, change: Change, child: Change) -> None:
    """Let the child of an earlier generation work for this one: it goes on where it failed or stopped."""
    if not child.row.is_terminal:
        # Whoever ended the parent has not come to the child yet.
        stop(changes, child, ExecutionState.CANCELLED, Reason.PARENT, None, None, {})
    child.row.parent = _link(event, change.row)
    if child.row.state is not ExecutionState.COMPLETED:
        reopen(changes, child)


def _link(event: CallStarted, parent: ExecutionRow) -> Parent:
    return Parent(
        execution=parent.id,
        node=event.node_id,
        index=None,
        attempt=event.attempt,
        depth=1 if parent.parent is None else parent.parent.depth + 1,
        generation=parent.generation,
        deadline_at=parent.deadline_at,
    )


def is_awaited(event: ChildEnded, execution: ExecutionRow, row: NodeRow, now: int) -> bool:
    """True if the node waits for this child, and its execution has any time left."""
    is_over = execution.deadline_at is not None and now >= execution.deadline_at
    return not is_over and row.wait is not None and row.wait == Wait(WaitKind.CHILD, event.child)


def child_ended(
    changes: Changes, event: ChildEnded, change: Change, row: NodeRow, new_id: Callable[[], str]
) -> tuple[NodeRow, ...]:
    """Settle a node by the end of its child. A failure leaves no dead letter: the child has its own."""
    changes.children_told[event.child] = change.row.id
    changes.untold.add((change.row.id, row.node_id))
    if event.error is None:
        done = complete_parked(
            changes, change, row, output=event.output, blob=event.blob, output_bytes=event.output_bytes
        )
        return (done,)
    failure = NodeFailed(
        execution_id=event.execution_id,
        generation=event.generation,
        node_id=event.node_id,
        attempt=event.attempt,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=changes.now,
        error=event.error,
        skips=event.skips,
        running=event.running,
    )
    return node_failed(changes, failure, change, row, new_id, has_letter=False)


def child_error(child: ExecutionRow) -> dict[str, Any]:
    """Return the error of a node whose child has ended, and not completed."""
    assert child.parent is not None
    error = shown_error(child.error) or {
        "code": "cancelled",
        "message": f"execution {child.id} was cancelled",
        "retryable": False,
        "details": {},
    }
    message = f"child {child.id} is {child.state}: {error.get('message', '')}"
    return {
        "code": "child_failed",
        "message": message,
        "retryable": False,
        "details": {
            "failed": 1,
            "first": {"index": child.parent.index, "execution": child.id, "error": error},
        },
    }
