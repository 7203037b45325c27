"""Applies the events of waits: a wait begins, its time comes, somebody answers, a signal comes in.

The answer, the expiry and a cancel of one wait are judged one behind the other, because every transaction
that changes an execution holds its row: the first ends the wait, and the others find that the node waits no
more.

A signal that no node waits for lies in the mailbox of its execution. The commit that begins a wait reads the
mailbox, so no signal is lost between a node that is about to wait and a signal that is about to come.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from weft.core.event import NodeFailed, SignalReceived, WaitAnswered
from weft.core.ledger.changes import Verdict
from weft.core.ledger.node_events import complete_parked, node_failed
from weft.core.payload import encode
from weft.core.rows import NodeRow, Parked, Signal
from weft.core.state import NodeState
from weft.core.time import micros, rfc3339
from weft.definition.waits import WaitKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.core.event import WaitDue, WaitStarted
    from weft.core.ledger.changes import Change, Changes
    from weft.core.rows import ExecutionRow, PastEvent, Wait

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
    sought = f"signal {wait.name!r}" if wait.kind is WaitKind.SIGNAL else f"event {wait.name!r}"
    failure = NodeFailed(
        execution_id=event.execution_id,
        generation=event.generation,
        node_id=event.node_id,
        attempt=event.attempt,
        queued_at=row.queued_at,
        started_at=row.started_at,
        finished_at=changes.now,
        error={
            "code": "expired",
            "message": f"no {sought} came until {rfc3339(parked.due_at)}, and the wait has no default",
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
