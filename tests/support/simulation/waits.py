"""What must hold of nodes that wait: a second account of waits and mailboxes, kept from the events alone."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.simulation.pace import SWEEP_SECONDS
from tests.support.simulation.violation import Violation

from weft.core.event import SignalReceived, WaitAnswered, WaitStarted
from weft.core.payload import decode
from weft.core.state import NodeState
from weft.core.time import micros, rfc3339
from weft.definition.waits import WaitKind

if TYPE_CHECKING:
    from tests.support.simulation.world import World

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import History, NodeRow
    from weft.journal.firing import FireAnswer
    from weft.triggers.cloudevent import InboundEvent

# A calm sweep ends a wait so long after its time at the latest: one that a peer recorded is found by the look
# after the next.
_LATEST = micros(2 * SWEEP_SECONDS + 1)


@dataclass(frozen=True, slots=True)
class _Open:
    """A wait that has begun and not ended."""

    attempt: int
    since: int
    due_at: int | None
    kind: WaitKind
    name: str
    default: bytes | None
    match: bytes | None


@dataclass(frozen=True, slots=True)
class _Came:
    """An inbound event that the journal has."""

    id: str
    type: str
    at: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A signal in a mailbox."""

    name: str
    output: bytes
    fits: tuple[str, ...]


@dataclass(slots=True)
class Waits:
    """The waits and mailboxes of one run, as the accepted events tell them."""

    world: World
    # By execution and node.
    open: dict[tuple[str, str], _Open] = field(default_factory=dict)
    # By execution, in the order in which they came.
    mailboxes: dict[str, list[_Kept]] = field(default_factory=dict)
    # Inbound events in the order of their commits, and those that ended a wait of an execution.
    came: list[_Came] = field(default_factory=list)
    taken: set[tuple[str, str]] = field(default_factory=set)
    # (execution, node, generation) → what ended its wait
    ends: dict[tuple[str, str, int], str] = field(default_factory=dict)
    # What was answered or signalled and counted, and the times it was tried; more than once only with a key.
    given: set[int | str] = field(default_factory=set)
    said: set[int | str] = field(default_factory=set)

    def copy(self) -> Waits:
        kept = copy(self)
        kept.open, kept.ends, kept.given = dict(self.open), dict(self.ends), set(self.given)
        kept.mailboxes = {id_: list(signals) for id_, signals in self.mailboxes.items()}
        return kept

    # -- calls -------------------------------------------------------------------------------------

    def tried(self, value: int | str, *, is_again: bool) -> None:
        if value in self.said and not is_again:
            raise AssertionError(f"the simulation says {value} twice")
        self.said.add(value)

    def check_counted(self, value: int | str) -> None:
        """Check that a call that was answered has counted."""
        if value not in self.given:
            raise Violation(f"I28 the call with {value} was answered, and the journal does not have it")

    # -- events that were accepted -----------------------------------------------------------------

    def begun(self, recorded_event: RecordedEvent) -> str | None:
        """Note the begin of a wait; return its node if a signal of the mailbox has ended it."""
        event, (row,) = recorded_event.event, recorded_event.rows
        assert isinstance(event, WaitStarted)
        key = (event.execution_id, event.node_id)
        if key in self.open:
            raise Violation(f"I28 the wait of {event.node_id} began twice")
        now = self.world.scheduler.now
        due_at = event.due_at if event.seconds is None else now + micros(event.seconds)
        wait = _Open(
            event.attempt, now, due_at, event.wait.kind, event.wait.name, event.default, event.wait.match
        )
        self.open[key] = wait
        if event.wait.kind is WaitKind.SIGNAL:
            box = self.mailboxes.get(event.execution_id, [])
            for signal in [signal for signal in box if signal.name == event.wait.name]:
                box.remove(signal)
                if event.node_id in signal.fits:
                    self._end(recorded_event, row, "answered from the mailbox", signal.output)
                    return row.node_id
        past = self._past(event.execution_id, wait, now - micros(event.lookback_seconds))
        if event.lookback_seconds and past is not None:
            if row.state is not NodeState.COMPLETED or self._output(row)["value"] != past.data:
                raise Violation(f"I33 {row.node_id} looked back at {past}, and its row is {row}")
            self.taken.add((event.execution_id, past.id))
            self._end(recorded_event, row, "answered by an earlier event", None)
            return row.node_id
        if row.state is not None:
            raise Violation(f"I28 {row.node_id} began to wait, and is {row.state} at once")
        if row.parked is None or (row.started_at, row.parked.due_at) != (now, due_at):
            raise Violation(f"I29 {row.node_id} waits since {now} until {due_at}, its row says {row}")
        return None

    def came_due(self, recorded_event: RecordedEvent) -> str | None:
        """Check that a wait ended at its time; return its node if it has an output."""
        row = recorded_event.rows[0]
        assert recorded_event.execution is not None
        wait = self._open(recorded_event.execution.id, row.node_id)
        now = self.world.scheduler.now
        if wait.due_at is None or now < wait.due_at:
            raise Violation(f"I29 {row.node_id} ended at {now}, and was due at {wait.due_at}")
        if self.world.profile.is_calm and now - max(wait.due_at, wait.since) > _LATEST:
            raise Violation(f"I29 {row.node_id} was due at {wait.due_at}, and ended at {now}")
        if wait.kind is WaitKind.TIMER or wait.default is not None:
            is_timer = wait.kind is WaitKind.TIMER
            told = {
                "value": None if wait.default is None else decode(wait.default),
                "by": None,
                "at": rfc3339(wait.due_at),
                "expired": not is_timer,
            }
            cause = "its time has come" if is_timer else "expired with a default"
            self._end(recorded_event, row, cause, None)
            if self._output(row) != told:
                raise Violation(f"I28 {row.node_id} ended with {self._output(row)}, not with {told}")
            return row.node_id
        if row.state is not NodeState.FAILED:
            raise Violation(f"I28 {row.node_id} expired without a default, and is {row.state}")
        self._end(recorded_event, row, "expired", None)
        return None

    def event_came(self, event: InboundEvent | None, answer: FireAnswer) -> None:
        """Check that a new event ends of each execution that it matches the wait that began first."""
        if event is None or answer.known is not None:
            return
        came = _Came(event.id, event.type, self.world.scheduler.now, event.body["data"])
        self.came.append(came)
        first: dict[str, tuple[int, str]] = {}
        for (execution_id, node_id), wait in self.open.items():
            if _matches(wait, came):
                since = (wait.since, node_id)
                first[execution_id] = min(first.get(execution_id, since), since)
        wanted = {(id_, node_id) for id_, (_, node_id) in first.items()}
        found = {
            (one.execution.id, one.rows[0].node_id) for one in answer.answered if one.execution is not None
        }
        if wanted != found:
            raise Violation(f"I33 event {event.id} ended {found}, and matches {wanted}")

    def _past(self, execution_id: str, wait: _Open, since: int) -> _Came | None:
        """Return the first event from then on that a wait matches and that ended no wait of its execution."""
        fitting = (
            came
            for came in self.came
            if came.at >= since and _matches(wait, came) and (execution_id, came.id) not in self.taken
        )
        return next(fitting, None)

    def answered(self, recorded_event: RecordedEvent) -> str | None:
        """Check that an answer or a signal ended the right wait; return its node, or None: it is kept."""
        event = recorded_event.event
        assert isinstance(event, WaitAnswered | SignalReceived)
        if isinstance(event, WaitAnswered) and event.event_type is not None:
            return self._answered_by_event(recorded_event)
        output = event.output if event.blob is None else self.world.journal._blobs[event.blob]
        assert output is not None
        value = decode(output)["value"]
        if value in self.given:
            raise Violation(f"I28 {value} counted twice")
        self.given.add(value)
        if isinstance(event, WaitAnswered):
            (row,) = recorded_event.rows
            self._end(recorded_event, row, "answered", output)
            return row.node_id
        longest = self._longest_waiting(event)
        if not recorded_event.rows:
            if longest is not None:
                raise Violation(f"I28 a signal {event.name} was kept, and {longest} waits for it")
            self.world.hits["signal: kept"] += 1
            box = self.mailboxes.setdefault(event.execution_id, [])
            box.append(_Kept(event.name, output, event.fits))
            return None
        (row,) = recorded_event.rows
        if row.node_id != longest:
            raise Violation(f"I28 a signal answered {row.node_id}, and {longest} has waited longest")
        self._end(recorded_event, row, "answered by a signal", output)
        return row.node_id

    def _answered_by_event(self, recorded_event: RecordedEvent) -> str:
        """Check that an event ended an open wait of its type; it is the one that came last."""
        (row,) = recorded_event.rows
        assert recorded_event.execution is not None
        came = self.came[-1]
        if not _matches(self._open(recorded_event.execution.id, row.node_id), came):
            raise Violation(f"I33 {row.node_id} was ended by {came}, which it does not match")
        once = (recorded_event.execution.id, came.id)
        if once in self.taken:
            raise Violation(f"I33 {came.id} ended two waits of {once[0]}")
        self.taken.add(once)
        self._end(recorded_event, row, "answered by an event", None)
        if self._output(row)["value"] != came.data:
            raise Violation(f"I33 {row.node_id} was ended by {came}, and completed with {self._output(row)}")
        return row.node_id

    def cancelled(self, event: History) -> None:
        """Note that a wait ended with its execution, if it had begun."""
        assert event.node is not None
        if self.open.pop((event.execution, event.node), None) is not None:
            self.world.hits["wait: cancelled"] += 1
            self._note_end((event.execution, event.node, event.generation), "cancelled")

    # -- what is always so -------------------------------------------------------------------------

    def check(self, execution_id: str) -> None:
        """Hold the account of one execution against what the journal has of it."""
        journal = self.world.journal
        rows = journal._nodes.get(execution_id, {})
        waiting = {
            node_id
            for node_id, row in rows.items()
            if row.wait is not None and row.wait.kind is not WaitKind.CHILD
        }
        mine = {node_id for id_, node_id in self.open if id_ == execution_id}
        indexed = {
            node_id
            for (id_, node_id), wait in journal._waits.items()
            if id_ == execution_id
            and wait.settled_at is None
            and wait.row.wait is not None
            and wait.row.wait.kind is not WaitKind.CHILD
        }
        if not waiting == mine == indexed:
            raise Violation(f"I28 by their rows wait {waiting}, by the index {indexed}, by the events {mine}")
        box = self.mailboxes.get(execution_id, [])
        stored = [self._bytes(one) for one in journal._mailboxes.get(execution_id, {}).values()]
        row = journal._executions[execution_id]
        calls = sum(id_ == execution_id for id_, _ in self.world.invariants.calls.open)
        if (
            [signal.output for signal in box] != stored
            or row.mailbox != len(box)
            or row.waiting != len(mine) + calls
        ):
            raise Violation(f"I28 the mailbox of {execution_id} has {stored}, and {box} were kept")
        for node_id in mine:
            wait = self.open[execution_id, node_id]
            if any(signal.name == wait.name and node_id in signal.fits for signal in box):
                raise Violation(f"I28 {node_id} waits for {wait.name}, and one is in the mailbox")

    def check_expired(self, event: History) -> None:
        assert event.node is not None
        if self.ends.get((event.execution, event.node, event.generation)) != "expired":
            raise Violation(f"I15 {event.node} failed as expired, and did not expire")

    # -- within ------------------------------------------------------------------------------------

    def _open(self, execution_id: str, node_id: str) -> _Open:
        wait = self.open.get((execution_id, node_id))
        if wait is None:
            raise Violation(f"I28 the wait of {node_id} ended, and was not open")
        return wait

    def _end(self, recorded_event: RecordedEvent, row: NodeRow, cause: str, output: bytes | None) -> None:
        assert recorded_event.execution is not None
        execution = recorded_event.execution
        wait = self._open(execution.id, row.node_id)
        del self.open[execution.id, row.node_id]
        self.world.hits[f"wait: {cause}"] += 1
        self._note_end((execution.id, row.node_id, execution.generation), cause)
        if row.attempt != wait.attempt:
            raise Violation(f"I28 attempt {wait.attempt} of {row.node_id} waited, and {row.attempt} ended")
        if output is not None:
            self._check_fits(execution.digest, row.node_id, decode(output)["value"])
        if output is not None and (row.state is not NodeState.COMPLETED or self._bytes(row) != output):
            raise Violation(f"I28 {row.node_id} was answered with {output!r}, and its row is {row}")

    def _check_fits(self, digest: str, node_id: str, value: int | str) -> None:
        schema = self.world.journal._plans[digest].waits[node_id].schema
        if schema is not None and not isinstance(value, int):
            raise Violation(f"I28 {node_id} was answered with {value!r}, which its schema does not allow")

    def _note_end(self, key: tuple[str, str, int], cause: str) -> None:
        if key in self.ends:
            raise Violation(f"I28 the wait of {key[1]} was {self.ends[key]}, and then {cause}")
        self.ends[key] = cause

    def _longest_waiting(self, event: SignalReceived) -> str | None:
        plan = self.world.journal._plans[self.world.journal._executions[event.execution_id].digest]
        waiting = [
            (self.open[event.execution_id, node_id].since, number, node_id)
            for number, node_id in enumerate(plan.graph.ids)
            if (event.execution_id, node_id) in self.open
            and self.open[event.execution_id, node_id].kind is WaitKind.SIGNAL
            and self.open[event.execution_id, node_id].name == event.name
        ]
        return min(waiting)[2] if waiting else None

    def _bytes(self, holder: Any) -> bytes | None:
        found: bytes | None = holder.output if holder.blob is None else self.world.journal._blobs[holder.blob]
        return found

    def _output(self, row: NodeRow) -> Any:
        output = self._bytes(row)
        return None if output is None else decode(output)


def _matches(wait: _Open, came: _Came) -> bool:
    """True if the data of an event have all pairs of a wait for events of its type."""
    if wait.kind is not WaitKind.EVENT or wait.name != came.type or wait.match is None:
        return False
    return all(came.data.get(name) == value for name, value in decode(wait.match).items())
