"""What must hold, looked at after every effect (the numbers are those of docs/simulation.md)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from weft.core.event import AttemptFailed, AttemptLost, NodeCompleted, NodeFailed
from weft.core.ledger import Verdict
from weft.core.payload import decode
from weft.core.readiness import READY, readiness
from weft.core.state import TERMINAL, NodeState
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from weft.core.ledger import Standing
    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.task import Task
    from weft.journal.memory import MemoryJournal
    from weft.store.contract import Started, StartRequest


class Violation(AssertionError):  # noqa: N818 - it is what it is called
    """An invariant does not hold."""


class Invariants:
    """Watches the journal and the starts of one run."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        # (execution, node, attempt) → how often it was started
        self.starts: Counter[tuple[str, str, int]] = Counter()
        # (execution, node, attempt) → what the handler gave
        self.tokens: dict[tuple[str, str, int], str] = {}
        # (execution, node, generation) → the settled row
        self._settled: dict[tuple[str, str, int], NodeRow] = {}
        self._seq: dict[str, int] = {}
        self._accepted: set[tuple[str, str, int]] = set()
        self._at_most_once: Counter[tuple[str, str, int]] = Counter()
        # execution → generation whose cancel was answered
        self._cancelled: dict[str, int] = {}
        self.verdicts: Counter[str] = Counter()
        # (execution, node) → the attempt that is current in the journal
        self._current: dict[tuple[str, str], int] = {}

    # -- starts ------------------------------------------------------------------------------------

    def started(self, requests: Sequence[StartRequest], answers: Sequence[Started]) -> None:
        for request, answer in zip(requests, answers, strict=True):
            if answer.answer is Answer.YES:
                self._start(request)

    def _start(self, request: StartRequest) -> None:
        key = (request.execution_id, request.node_id, request.attempt)
        self.starts[key] += 1
        if self.starts[key] > 1:
            raise Violation(f"I5 attempt {request.attempt} of {request.node_id} was started twice")
        execution = self._execution(request.execution_id)
        plan = self._plan(execution)
        if self._cancelled.get(execution.id) == request.generation:
            raise Violation(f"I9 {request.node_id} was started after the cancel was answered")
        node = plan.nodes[request.node_id]
        if node.delivery == "at_most_once":
            once = (execution.id, node.id, request.generation)
            self._at_most_once[once] += 1
            if self._at_most_once[once] > 1:
                raise Violation(f"an at_most_once node was started twice: {node.id}")
        if execution.generation != request.generation:
            return  # a start that slipped in beside a commit: its result is refused
        rows = self._rows(execution.id)
        parents = [
            rows[name] for name in plan.graph.parents[node.id] if name in rows and rows[name].is_settled
        ]
        waiting = len(plan.graph.parents[node.id]) - len(parents)
        if execution.state not in TERMINAL:
            ready = readiness(node.id, node.trigger_rule, parents, waiting=waiting)
            if ready is not READY:
                raise Violation(f"I2 {node.id} was started, but in the journal its rule says {ready}")

    def took(self, task: Task) -> None:
        """Check what a handler is given: the accepted outputs of the parents, all of them, none else."""
        execution = self._execution(task.execution_id)
        if execution.generation != task.generation:
            return
        rows = self._rows(task.execution_id)
        for name, given in decode(task.config)["parents"].items():
            row = rows.get(name)
            accepted = decode(row.output) if row and row.state is NodeState.COMPLETED and row.output else None
            early = self._plan(execution).has_early_rules and given is None
            if given != accepted and not early:
                raise Violation(f"I7 {task.node_id} was given {given!r} of {name}, accepted is {accepted!r}")

    # -- the journal -------------------------------------------------------------------------------

    def recorded(self, standings: Sequence[Standing]) -> None:
        for standing in standings:
            self.verdicts[standing.verdict] += 1
            event = standing.event
            if standing.verdict is not Verdict.ACCEPTED:
                continue
            if isinstance(event, NodeCompleted | AttemptFailed | AttemptLost | NodeFailed):
                current = self._current.get((event.execution_id, event.node_id), 1)
                if event.attempt != current:
                    raise Violation(
                        f"I4 attempt {event.attempt} of {event.node_id} counted while {current} was current"
                    )
            if isinstance(event, NodeCompleted):
                self._accept(event)
            for row in standing.rows:
                self._current[event.execution_id, row.node_id] = row.attempt
        for execution_id in {s.execution.id for s in standings if s.execution is not None}:
            self.check(execution_id)

    def _accept(self, event: NodeCompleted) -> None:
        key = (event.execution_id, event.node_id, event.generation)
        if key in self._accepted:
            raise Violation(f"I3 two results of {event.node_id} were accepted in one generation")
        self._accepted.add(key)
        token = self.tokens.get((event.execution_id, event.node_id, event.attempt))
        if event.output is None or decode(event.output) != token:
            raise Violation(
                f"I4 {event.node_id} was accepted with {event.output!r}, its handler gave {token!r}"
            )

    def check(self, execution_id: str) -> None:
        """Check what is stored of one execution against itself and against what was stored before."""
        execution = self._execution(execution_id)
        plan = self._plan(execution)
        rows = self._rows(execution_id)
        settled = 0
        for node_id, row in rows.items():
            self._current[execution_id, node_id] = row.attempt
            if row.state is None:
                continue
            settled += 1
            key = (execution_id, node_id, execution.generation)
            before = self._settled.setdefault(key, row)
            if before.state is not row.state or before.output != row.output:
                raise Violation(f"I6 {node_id} was {before.state} and became {row.state}")
            if row.state is NodeState.SKIPPED and row.cause is not None and row.cause not in plan.nodes:
                raise Violation(f"I16 {node_id} names a cause that is no node: {row.cause}")
        if execution.unsettled != len(plan.nodes) - settled:
            raise Violation(
                f"I11 {execution.unsettled} unsettled on the row, {len(plan.nodes) - settled} by count"
            )
        if (execution.state in TERMINAL) != (execution.unsettled == 0):
            raise Violation(f"I17 {execution.state} with {execution.unsettled} unsettled nodes")
        counted = Counter(row.state for row in rows.values())
        if (execution.failed, execution.skipped, execution.cancelled, execution.completed) != (
            counted[NodeState.FAILED],
            counted[NodeState.SKIPPED],
            counted[NodeState.CANCELLED],
            counted[NodeState.COMPLETED],
        ):
            raise Violation("I17 the numbers of settled nodes on the row are wrong")
        events = self._journal._events[execution_id]
        for event in events[self._seq.get(execution_id, 0) :]:
            expected = self._seq.get(execution_id, 0) + 1
            if event.seq != expected:
                raise Violation(f"I18 event {event.seq} follows {expected - 1}")
            self._seq[execution_id] = event.seq
            if event.started_at is not None and not (
                (event.queued_at or 0)
                <= event.started_at
                <= (event.finished_at or event.started_at)
                <= event.at
            ):
                raise Violation(f"I20 times out of order in {event}")

    def cancel_answered(self, execution: ExecutionRow) -> None:
        self._cancelled[execution.id] = execution.generation

    # -- at the end --------------------------------------------------------------------------------

    def ended(self, *, is_calm: bool, may_burn: bool) -> None:
        """Check the whole run. ``may_burn``: the store was lost, which may cost each ready node a number."""
        for execution in self._journal._executions.values():
            self.check(execution.id)
            if execution.state not in TERMINAL:
                unsettled = {node: self._rows(execution.id).get(node) for node in self._plan(execution).nodes}
                left = [node for node, row in unsettled.items() if row is None or row.state is None]
                raise Violation(
                    f"I8 {execution.id} is {execution.state} for ever; unsettled: {', '.join(left)}"
                )
            if not may_burn and execution.generation == 1:
                self._check_waste(execution)
            if is_calm:
                for node_id, row in self._rows(execution.id).items():
                    if row.losses or row.attempt > 1 + row.failures:
                        raise Violation(f"I13 needless attempt: {node_id} has attempt {row.attempt}")

    def let_go(self, in_store: Container[str]) -> None:
        """Check that the store has let go of what is terminal, at the latest by the sweep."""
        for execution in self._journal._executions.values():
            if execution.state in TERMINAL and execution.id in in_store:
                raise Violation(f"I23 {execution.id} is {execution.state} and still open in the store")

    def _check_waste(self, execution: ExecutionRow) -> None:
        for node_id, row in self._rows(execution.id).items():
            for attempt in range(1, row.attempt):
                if not self.starts[execution.id, node_id, attempt]:
                    raise Violation(f"I15 attempt {attempt} of {node_id} was used up without a start")

    # -- reading -----------------------------------------------------------------------------------

    def _execution(self, execution_id: str) -> ExecutionRow:
        return self._journal._executions[execution_id]

    def _rows(self, execution_id: str) -> dict[str, NodeRow]:
        return self._journal._nodes.get(execution_id, {})

    def _plan(self, execution: ExecutionRow) -> Plan:
        return self._journal._plans[execution.digest]


def effect(invariants: Invariants, step: str, args: tuple[Any, ...], result: Any) -> None:
    """Look at the effect of one step."""
    match step:
        case "store.start":
            invariants.started(args[0], result)
        case "journal.record":
            invariants.recorded(result)
