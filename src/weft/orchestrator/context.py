"""The context of every step of an orchestrator: the ports, and the caches that the steps share."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.core.event import ChildEnded, NodeFailed, NodeSkipped, WaitDue
from weft.core.ledger.changes import Verdict
from weft.core.payload import decode, weight_of
from weft.core.rows import shown_error
from weft.core.state import NodeState
from weft.errors import JournalError
from weft.expressions.budget import Allowance
from weft.expressions.scope import NodeValue
from weft.lru import Lru
from weft.orchestrator.fair_queue import FairQueue
from weft.orchestrator.waits.timer import WaitTimer

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import NodeRow
    from weft.journal.contract import Journal
    from weft.orchestrator.notifications.deliver import Notifier
    from weft.ports import Ports
    from weft.transport.contract import MessageDelivery

# Steps that the expressions of a batch take on the loop, some 10 ms; what needs more is decided in a thread.
STEPS_ON_LOOP = 50_000
# What reads more is evaluated in a thread: a million small values take a second of a busy machine.
DECIDED_ON_LOOP_BYTES = 512 * 1024
_WORTH_REMEMBERING = 4096
# What decoded payloads may weigh together; and the large inputs that are kept as they are, and the blobs.
_MOST_BYTES = 32 * 1024 * 1024
_MOST_INPUT_BYTES = 32 * 1024 * 1024
_NO_BLOBS: Mapping[str, bytes] = {}
# By a name of this module: Python 3.11 takes ten times as long to find a member by its enum.
_COMPLETED = NodeState.COMPLETED

# The incarnation of the database that the current step, or a call of the API, began on; None: outside of one.
# Where the database loses commits, the hot state is dropped and rebuilt (``weft.incarnation``), and what was
# decided on the lost commits must not be recorded: a step writes to the incarnation that it began on, or not
# at all.
_step: ContextVar[str | None] = ContextVar("incarnation", default=None)

_MOST_EXECUTIONS = 256
_SKIPPING = (NodeFailed, NodeSkipped, WaitDue, ChildEnded)


class Payloads:
    """Payloads decoded at most once, as far as that is worth remembering.

    A large output may be named by ten thousand children; decoding it for each would take longer than all
    their work. Small payloads are decoded again: that is cheaper than remembering them.
    """

    def __init__(self) -> None:
        # Large nodes are decided in threads.
        self._lock = threading.Lock()
        # By identity: the payload is kept too, so that its id is not given to another.
        self._decoded: Lru[int, tuple[bytes, Any]] = Lru(_MOST_BYTES, lambda entry: weight_of(entry[0]))
        # By execution: inputs that the store does not hold for their size.
        self._inputs: Lru[str, bytes] = Lru(_MOST_INPUT_BYTES, len)
        # The blobs that were fetched last: the next batches often need the same.
        self._blobs: Lru[str, bytes] = Lru(_MOST_INPUT_BYTES, len)
        # What expressions may take on the loop; each batch sets the steps anew.
        self.allowance = Allowance(STEPS_ON_LOOP)

    def decode(self, payload: bytes) -> Any:
        if len(payload) < _WORTH_REMEMBERING:
            return decode(payload)
        with self._lock:
            hit = self._decoded.get(id(payload))
        if hit is not None:
            return hit[1]
        value = decode(payload)
        with self._lock:
            self._decoded.put(id(payload), (payload, value))
        return value

    def value_of(self, row: NodeRow, blobs: Mapping[str, bytes] = _NO_BLOBS) -> NodeValue:
        """Return what an expression sees of a settled row; ``blobs``: those fetched for its batch."""
        output = None
        if row.state is _COMPLETED:
            # In line, as ``payload_in``: nearly all payloads are small, and every hop reads some.
            payload = row.output if row.blob is None else blobs[row.blob]
            assert payload is not None
            output = decode(payload) if len(payload) < _WORTH_REMEMBERING else self.decode(payload)
        error = None if row.error is None else shown_error(row.error)
        return NodeValue(str(row.state), output, error, row.reason)

    async def input_of(self, execution_id: str, journal: Journal) -> bytes:
        """Return the input of an execution, which does not change; raises JournalError where it is gone."""
        payload = self._inputs.get(execution_id)
        if payload is None:
            row = await journal.execution(execution_id)
            if row is None:
                raise JournalError(f"execution {execution_id} is gone since its nodes were ready")
            payload = row.input
            self._inputs.put(execution_id, payload)
        return payload

    async def fetch(self, names: Collection[str], journal: Journal) -> Mapping[str, bytes]:
        """Return the blobs that a batch needs. They belong to the batch: collectors fetch side by side.

        Raises JournalError where a blob is gone: the batch is kept, and decided anew on what the journal has.
        """
        if not names:
            return _NO_BLOBS
        blobs = {name: payload for name in names if (payload := self._blobs.get(name)) is not None}
        missing = [name for name in sorted(names) if name not in blobs]
        found = await journal.blobs(missing) if missing else _NO_BLOBS
        for name in missing:
            if name not in found:
                raise JournalError(
                    "the journal has lost commits since these nodes were ready: a blob is gone"
                )
            self._blobs.put(name, found[name])
        # A mapping of the batch's own: it keeps all its blobs while the cache drops some.
        return {**blobs, **found}


class Cascades:
    """Nodes that are known to be skipped behind a failure, so that the next failure does not walk them again.

    Without this memory a thousand failures over the same fifty thousand nodes would each walk them all. What
    is forgotten is walked once more, and the fence drops what is settled already.
    """

    def __init__(self) -> None:
        self._skipped: Lru[tuple[str, int], set[str]] = Lru(_MOST_EXECUTIONS)

    def known(self, execution_id: str, generation: int) -> Container[str]:
        return self._skipped.get((execution_id, generation)) or ()

    def forget(self) -> None:
        """Drop everything: the database has lost commits."""
        self._skipped.clear()

    def learn(self, recorded_event: RecordedEvent) -> None:
        """Remember skips that are committed; forget an execution that is over."""
        event, execution = recorded_event.event, recorded_event.execution
        if not isinstance(event, _SKIPPING) or recorded_event.verdict is not Verdict.ACCEPTED:
            return
        assert execution is not None
        key = (event.execution_id, event.generation)
        if execution.is_terminal:
            self._skipped.drop(key)
        elif event.skips:
            skipped = self._skipped.get(key) or set()
            skipped.update(row.node_id for row in recorded_event.rows)
            self._skipped.put(key, skipped)


@dataclass(frozen=True, slots=True)
class Context:
    ports: Ports
    # By which the transport knows what this orchestrator has read.
    name: str
    payloads: Payloads = field(default_factory=Payloads)
    cascades: Cascades = field(default_factory=Cascades)
    wait_timer: WaitTimer = field(default_factory=WaitTimer)
    # Messages that were read and not taken up yet, and the turn to read more.
    fair_queue: FairQueue = field(default_factory=FairQueue)
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    # Sends notifications; None: another process does, or there are none.
    notifier: Notifier | None = None
    # Batches that were read while the journal was away.
    unfinished: list[Sequence[MessageDelivery]] = field(default_factory=list)


def begin_step(ports: Ports) -> None:
    """Note that what follows in this task belongs to the incarnation of now."""
    if ports.incarnation is not None:
        _step.set(ports.incarnation())


def check_step(ports: Ports) -> None:
    """Raise JournalError if the database lost commits since the step began."""
    if ports.incarnation is None:
        return
    begun_on = _step.get()
    if begun_on is not None and begun_on != ports.incarnation():
        raise JournalError("the database has lost commits since this was decided; it is decided anew")
