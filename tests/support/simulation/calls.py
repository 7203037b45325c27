"""What must hold of nodes that call workflows: a second account of children, kept from the events alone."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.support.simulation.violation import Violation

from weft.core.event import CallStarted, ChildEnded
from weft.core.state import ExecutionState, NodeState
from weft.core.time import micros

if TYPE_CHECKING:
    from tests.support.simulation.world import World

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow, History


# Without faults the children of what has ended are cancelled within so long.
_LATEST = micros(0.5)


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that has begun and not ended."""

    generation: int
    attempt: int
    child: str
    due_at: int | None


@dataclass(slots=True)
class Calls:
    """The calls of one run, as the accepted events tell them."""

    world: World
    # By execution and node.
    open: dict[tuple[str, str], _Open] = field(default_factory=dict)
    # (execution, node, generation) → what ended its call
    ends: dict[tuple[str, str, int], str] = field(default_factory=dict)
    # Child → the execution and the node that it was created for, once.
    created: dict[str, tuple[str, str]] = field(default_factory=dict)
    # Child → since when nobody waits for it.
    left_at: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Calls:
        kept = copy(self)
        kept.open, kept.ends, kept.created = dict(self.open), dict(self.ends), dict(self.created)
        kept.left_at = dict(self.left_at)
        return kept

    # -- events that were accepted -----------------------------------------------------------------

    def begun(self, recorded_event: RecordedEvent) -> None:
        event, (child,) = recorded_event.event, recorded_event.children
        assert isinstance(event, CallStarted)
        assert child.execution is not None
        parent, row = recorded_event.execution, child.execution
        assert parent is not None
        key = (event.execution_id, event.node_id)
        if key in self.open:
            raise Violation(f"I35 the call of {event.node_id} began twice")
        if self.created.setdefault(row.id, key) != key:
            raise Violation(f"I35 {row.id} is the child of {self.created[row.id]} and of {key}")
        stored = self.world.journal._executions.get(row.id)
        if stored is None:
            raise Violation(f"I35 {event.node_id} waits for {row.id}, which is not in the journal")
        link = stored.parent
        if link is None or (link.execution, link.node, link.generation, link.attempt) != (
            *key,
            event.generation,
            event.attempt,
        ):
            raise Violation(f"I35 {row.id} works for {link}, and is waited for by {event.node_id}")
        is_new = stored.generation == 1 and stored.created_at == self.world.scheduler.now
        self.world.hits["call: created a child" if is_new else "call: took a child over"] += 1
        if stored.is_terminal and stored.state is not ExecutionState.COMPLETED:
            raise Violation(f"I35 {event.node_id} waits for {row.id}, which is {stored.state}")
        now = self.world.scheduler.now
        due_at = None if event.seconds is None else now + micros(event.seconds)
        self.open[key] = _Open(event.generation, event.attempt, row.id, due_at)
        self.left_at.pop(row.id, None)

    def ended(self, recorded_event: RecordedEvent) -> str | None:
        """Check that a node ended as its child; return the node if it has an output."""
        event, row = recorded_event.event, recorded_event.rows[0]
        assert isinstance(event, ChildEnded)
        key = (event.execution_id, event.node_id)
        call = self.open.pop(key, None)
        if call is None or (call.child, call.generation, call.attempt) != (
            event.child,
            event.generation,
            event.attempt,
        ):
            raise Violation(f"I35 {event.node_id} ended with {event.child}, and waited for {call}")
        self._note_end((*key, event.generation), "ended")
        child = self.world.journal._executions[event.child]
        if not child.is_terminal:
            raise Violation(f"I35 {event.node_id} ended with {child.id}, which is {child.state}")
        has_output = child.state is ExecutionState.COMPLETED and child.error is None
        if has_output is not (row.state is NodeState.COMPLETED):
            raise Violation(f"I35 {event.node_id} is {row.state}, its child is {child.state}")
        self.world.hits[f"call: its child is {child.state}"] += 1
        if not has_output:
            return None
        output = row.output if row.blob is None else self.world.journal._blobs[row.blob]
        if output != child.output:
            raise Violation(f"I35 {event.node_id} has {output!r}, its child has {child.output!r}")
        return row.node_id

    def came_due(self, recorded_event: RecordedEvent) -> None:
        row, execution = recorded_event.rows[0], recorded_event.execution
        assert execution is not None
        call = self.open.pop((execution.id, row.node_id), None)
        if call is None or call.due_at is None or self.world.scheduler.now < call.due_at:
            raise Violation(f"I35 the call of {row.node_id} timed out, and was {call}")
        self.world.hits["call: timed out"] += 1
        self.left_at[call.child] = self.world.scheduler.now
        self._note_end((execution.id, row.node_id, execution.generation), "timed out")

    def cancelled(self, event: History) -> None:
        assert event.node is not None
        call = self.open.pop((event.execution, event.node), None)
        if call is not None:
            self.world.hits["call: cancelled"] += 1
            self.left_at[call.child] = self.world.scheduler.now
            self._note_end((event.execution, event.node, event.generation), "cancelled")

    def check_failed(self, event: History) -> None:
        assert event.node is not None
        if self.ends.get((event.execution, event.node, event.generation)) not in ("ended", "timed out"):
            raise Violation(f"I35 {event.node} failed as {event.error}, and its call has not ended")

    def check_start(self, execution: ExecutionRow, node_id: str) -> None:
        """Check that nothing starts for a parent that has ended: without faults its children end at once."""
        since = self.left_at.get(execution.id)
        if since is None or not self.world.profile.is_calm:
            return
        if self.world.scheduler.now - since > _LATEST:
            raise Violation(f"I36 {node_id} of {execution.id} was started, and nobody waits for that")

    # -- what is always so -------------------------------------------------------------------------

    def check(self, execution_id: str) -> None:
        """Hold the account of one execution against what the journal has of it."""
        rows = self.world.journal._nodes.get(execution_id, {})
        plan = self.world.journal._plans[self.world.journal._executions[execution_id].digest]
        waiting = {node_id for node_id in plan.calls if node_id in rows and rows[node_id].wait is not None}
        mine = {node_id for id_, node_id in self.open if id_ == execution_id}
        if waiting != mine:
            raise Violation(f"I35 by their rows wait {waiting} for children, by the events {mine}")

    def ended_run(self) -> None:
        """Check that every child was called, and that none works for nobody."""
        for row in self.world.journal._executions.values():
            if row.parent is None:
                continue
            if self.created.get(row.id) != (row.parent.execution, row.parent.node):
                raise Violation(f"I35 nobody has called {row.id}")
            if not self.world.is_safety and not row.is_terminal:
                raise Violation(f"I35 {row.id} is {row.state} for ever, and a child of {row.parent}")

    def below(self, execution: ExecutionRow) -> list[ExecutionRow]:
        """Return the children of an execution, and theirs."""
        found = [execution]
        for each in found:
            children = self.world.journal._children.get(each.id, ())
            found += [self.world.journal._executions[id_] for id_ in children]
        return found[1:]

    def _note_end(self, key: tuple[str, str, int], cause: str) -> None:
        if key in self.ends:
            raise Violation(f"I35 the call of {key[1]} has {self.ends[key]}, and then {cause}")
        self.ends[key] = cause
