"""The reference for every other store.

Nothing here waits, so each method is atomic on the event loop.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.attempt import AttemptRef
from weft.core.decide import FreeNode
from weft.core.readiness import EARLY_RULES
from weft.core.rows import without_output
from weft.core.state import TERMINAL
from weft.core.time import micros
from weft.store.contract import (
    DEFAULT_STORE_OPTIONS,
    FIRST_INSTALL_SECONDS,
    PARKED_AGAIN_SECONDS,
    PARKED_LISTED_SECONDS,
    Answer,
    Applied,
    Due,
    Expired,
    Started,
)
from weft.store.memory.budget import ConfigMemory
from weft.store.memory.execution import (
    FREE,
    IN_FLIGHT,
    OPEN_STATES,
    ORPHANED,
    PARKED,
    QUEUED,
    RUNNING,
    THROTTLED,
    TIMER,
    WAITING,
    OpenExecution,
    OpenNode,
)
from weft.store.memory.inspect import in_flight, in_hand, inspected, rows_at_hand, running_attempts
from weft.store.memory.timers import Leases, Timers
from weft.store.memory.tombstones import Tombstones
from weft.store.memory.workers import WorkerList

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from weft.core.event import Running
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.core.snapshot import RowUpdate, Snapshot
    from weft.core.task import Result, Task, Wake
    from weft.definition.plan import Plan
    from weft.store.contract import ExecutionStatus, Lease, StartRequest, StoreOptions, WorkerStatus

# Beyond so many bytes of outputs, only small ones are held.
_MANY_OUTPUT_BYTES = 32 * 1024 * 1024
_FEW_OUTPUT_BYTES = 512
_FIRST_INSTALL = micros(FIRST_INSTALL_SECONDS)
_PARKED_AGAIN, _PARKED_LISTED = micros(PARKED_AGAIN_SECONDS), micros(PARKED_LISTED_SECONDS)
# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_YES, _REFUSED, _UNKNOWN = Answer.YES, Answer.REFUSED, Answer.UNKNOWN
_MERGED = Applied(_YES)


def _answer_to(generation: int, epoch: int, known: ExecutionRow) -> Answer:
    """Answer a caller of another generation or epoch: the store is ahead of the caller, or behind."""
    return _UNKNOWN if generation > known.generation or epoch > known.epoch else _REFUSED


class MemoryStore:
    def __init__(
        self,
        *,
        now: Callable[[], int],
        new_id: Callable[[], str],
        publish: Callable[[Sequence[Result]], None],
        send: Callable[[Sequence[Task]], None] | None = None,
        wake: Callable[[Sequence[Wake]], None] | None = None,
        options: StoreOptions = DEFAULT_STORE_OPTIONS,
    ) -> None:
        """``send`` is given where moving and sending are one step, ``wake`` where there are process bytes."""
        self._now = now
        self._new_id = new_id
        self._publish = publish
        self._send = send
        self._wake = wake
        self._options = options
        self._window = options.window
        self._lease = micros(options.lease_seconds)
        self._reported = micros(options.reported_seconds)
        self._orphaned = self._lease if options.orphaned_seconds is None else micros(options.orphaned_seconds)
        self._queued = None if options.queued_seconds is None else micros(options.queued_seconds)
        self._inline_input_bytes = options.inline_input_bytes
        self._inline_output_bytes = options.inline_output_bytes
        self.flush()

    def flush(self) -> None:
        """Lose everything, as a server that is restarted empty does."""
        self._incarnation_id: str | None = None
        self._executions: dict[str, OpenExecution] = {}
        self._closed = Tombstones()
        self._timers = Timers()
        self._leases = Leases(self._lease)
        self._config_memory = ConfigMemory(self._executions, self._options, self._wake)
        # Executions with free nodes, and since when the oldest of them waits
        self._with_free: dict[str, int] = {}
        # Unsettled nodes of all executions, by their rows.
        self._unsettled = 0
        self._output_bytes = 0
        self._workers = WorkerList()

    def begin_incarnation(self) -> None:
        """Lose everything because the database lost commits, while the workers of this process go on.

        An attempt that was handed out may still run: from now on it has a lease to be adopted by a heartbeat.
        """
        self._orphaned = self._lease
        self.flush()

    # -- install and close -------------------------------------------------------------------------

    async def check(self) -> None:
        """Memory is always there."""

    async def incarnation_id(self) -> str:
        if self._incarnation_id is None:
            self._incarnation_id = self._new_id()
        return self._incarnation_id

    async def install(
        self,
        snapshots: Sequence[Snapshot],
        *,
        incarnation_id: str,
        fresh: bool,
        ahead: Sequence[Task] = (),
    ) -> Sequence[Answer]:
        answers = [self._install(snapshot, incarnation_id, fresh) for snapshot in snapshots]
        installed = {
            snapshot.execution.id
            for snapshot, answer in zip(snapshots, answers, strict=True)
            if answer is Answer.YES
        }
        await self.queue([one for one in ahead if one.execution_id in installed])
        return answers

    def _install(self, snapshot: Snapshot, incarnation_id: str, fresh: bool) -> Answer:
        row = snapshot.execution
        if incarnation_id != self._incarnation_id:
            return Answer.REFUSED
        known = self._executions.get(row.id)
        epoch = known.row.epoch if known else self._closed.epoch(row.id)
        now = self._now()
        if row.epoch <= epoch or (row.epoch == 1 and now >= row.updated_at + _FIRST_INSTALL):
            return Answer.REFUSED
        self._drop(row.id)
        self._closed.pop(row.id, None)
        # An input that is too large is not held for as long as the execution goes on.
        held = row if len(row.input) <= self._inline_input_bytes else replace(row, input=b"")
        execution = self._executions[row.id] = OpenExecution(held, snapshot.plan, self._window)
        self._unsettled += row.unsettled
        self._set_deadline(execution)
        # All that is settled first, then what it frees: the result does not depend on the order of the rows.
        for node_row in snapshot.rows:
            if node_row.state is not None:
                self._settle(execution, node_row)
        for node_id in snapshot.plan.graph.roots:
            if node_id not in execution.outcomes:
                node = execution.nodes[node_id] = OpenNode()
                self._make_free(execution, node_id, node, now)
        for node_row in execution.outcomes.values():
            self._free_behind(execution, node_row, now)
        for node_row in snapshot.rows:
            if node_row.state is None:
                self._merge(execution, node_row, now)
        if not fresh:
            for node_id in list(execution.free):
                if snapshot.may_be_in_hand(node_id, execution.nodes[node_id].attempt):
                    self._orphan(execution, node_id, now)
        return Answer.YES

    def _orphan(self, execution: OpenExecution, node_id: str, now: int) -> None:
        node = execution.nodes[node_id]
        self._leave_free(execution, node_id)
        node.phase, node.lease_until = ORPHANED, now + self._orphaned
        execution.slots.add(node_id)
        self._leases[execution.row.id, node_id] = node

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        found = (self._executions.get(execution_id) for execution_id in execution_ids)
        return [None if execution is None else execution.row.epoch for execution in found]

    async def idle_since(self, since: int) -> Mapping[str, int]:
        return {
            name: execution.row.updated_at
            for name, execution in self._executions.items()
            if execution.row.updated_at <= since
        }

    async def close(
        self, execution_id: str, *, generation: int, epoch: int, plan: Plan | None = None
    ) -> Answer:
        return self._close(execution_id, generation, epoch)

    async def evictable(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        found = (self._executions.get(execution_id) for execution_id in execution_ids)
        return [
            execution.row.seq if execution is not None and execution.has_nothing_to_do() else None
            for execution in found
        ]

    async def evict(self, evicted: Sequence[ExecutionRow]) -> None:
        for row in evicted:
            # No generation of it has ended, so no call about one is answered as if it had.
            self._close(row.id, 0, row.epoch)

    def _close(self, execution_id: str, generation: int, epoch: int) -> Answer:
        known = self._executions.get(execution_id)
        if known is not None and known.row.epoch > epoch:
            return Answer.REFUSED
        self._closed.put(execution_id, generation, epoch, self._now())
        self._drop(execution_id)
        return Answer.YES

    def _drop(self, execution_id: str) -> None:
        execution = self._executions.pop(execution_id, None)
        if execution is None:
            return
        self._unsettled -= execution.row.unsettled
        self._output_bytes -= execution.output_bytes
        self._with_free.pop(execution_id, None)
        for node_id in execution.nodes:
            self._leases.pop((execution_id, node_id), None)
        if timers := len(execution.parked) + (execution.deadline_at is not None):
            self._timers.end(timers, is_open=self._executions)
        self._config_memory.drop(execution)

    # -- merging what the journal recorded ---------------------------------------------------------

    async def apply(self, row_updates: Sequence[RowUpdate], ahead: Sequence[Task] = ()) -> Sequence[Applied]:
        now = self._now()
        applied: list[Applied] = []
        # The free nodes of an execution once, with the last row update of this call that was merged.
        last: dict[str, int] = {}
        for row_update in row_updates:
            answer = self._apply(row_update, now)
            if answer is _YES:
                last[row_update.execution.id] = len(applied)
            applied.append(_MERGED if answer is _YES else Applied(answer))
        queued: dict[str, list[str]] = {}
        if ahead:
            for task, answer in zip(ahead, await self.queue(ahead), strict=True):
                if answer is _YES:
                    queued.setdefault(task.execution_id, []).append(task.node_id)
        for execution_id, index in last.items():
            execution = self._executions.get(execution_id)
            if execution is not None:
                applied[index] = Applied(_YES, self._free_nodes(execution), queued.get(execution_id, ()))
        return applied

    def _apply(self, row_update: RowUpdate, now: int) -> Answer:
        row = row_update.execution
        if row.state in TERMINAL:
            return self._close(row.id, row.generation, row.epoch)
        execution = self._executions.get(row.id)
        if execution is None:
            return self._missing(row.id, row.generation, row.epoch)
        known = execution.row
        if known.epoch != row.epoch or known.generation != row.generation:
            return _answer_to(row.generation, row.epoch, known)
        if row.seq >= known.seq:
            self._unsettled += row.unsettled - known.unsettled
            execution.row = row if len(row.input) <= self._inline_input_bytes else replace(row, input=b"")
            execution.is_open = row.state in OPEN_STATES
            if execution.refused and not execution.is_open:
                self._config_memory.wake_next()  # it was paused: those behind it need not wait for it
            if row.deadline_at is not None:
                self._set_deadline(execution)
        outcomes = execution.outcomes
        for node_row in row_update.rows:
            node_id = node_row.node_id
            if node_row.state is None:
                self._merge(execution, node_row, now)
            elif node_id not in outcomes:
                node = execution.nodes.pop(node_id, None)
                if node is not None and node.phase is not WAITING:
                    self._leave_phase(execution, node_id, node)
                self._settle(execution, node_row)
                self._free_behind(execution, node_row, now)
        return _YES

    def _settle(self, execution: OpenExecution, row: NodeRow) -> None:
        """Keep the row of a settled node, with a reference in place of a large output."""
        output = row.output
        if output is not None and self._inline_output_bytes is not None:
            is_much = self._output_bytes > _MANY_OUTPUT_BYTES
            size = len(output)
            if size > (_FEW_OUTPUT_BYTES if is_much else self._inline_output_bytes):
                row = without_output(execution.row.id, row)
            else:
                execution.output_bytes += size
                self._output_bytes += size
        execution.outcomes[row.node_id] = row

    def _set_deadline(self, execution: OpenExecution) -> None:
        row = execution.row
        if row.deadline_at is not None and row.deadline_at != execution.deadline_at:
            execution.deadline_at = row.deadline_at
            self._timers.add(row.deadline_at, row.id, "", row.generation, 0)

    def _merge(self, execution: OpenExecution, row: NodeRow, now: int) -> None:
        """Make an unsettled node what the journal's row says, if the row is news."""
        node_id = row.node_id
        if node_id in execution.outcomes:
            return
        node = execution.nodes.get(node_id)
        if node is None:
            node = execution.nodes[node_id] = self._new_waiting(execution, node_id)
        if row.attempt < node.attempt:
            return
        if row.parked is not None:
            self._park(execution, row, node, now)
            return
        if row.attempt == node.attempt:
            node.issued = max(node.issued, row.issued)
            return
        node.attempt, node.retry_at = row.attempt, row.retry_at
        node.failures, node.losses, node.issued = row.failures, row.losses, row.issued
        if node.phase is WAITING:
            return
        # Another attempt of a node that was ready before: it waits for its time, or is free again.
        self._leave_phase(execution, node_id, node)
        node.released = False
        node.nonce = node.queued_at = node.started_at = node.worker = None
        self._free_in_time(execution, node_id, node, now)

    def _park(self, execution: OpenExecution, row: NodeRow, node: OpenNode, now: int) -> None:
        """Park a node until the time of its row, or set its timer anew where it is parked.

        One that waits has no timer and no slot: the journal knows when its wait ends.
        """
        assert row.parked is not None
        node_id, due_at = row.node_id, row.parked.due_at
        is_parked = node.phase is PARKED and node.attempt == row.attempt
        if not is_parked:
            self._leave_phase(execution, node_id, node)
            node.phase, node.attempt, node.issued = PARKED, row.attempt, row.issued
            node.queued_at, node.started_at = row.queued_at, row.started_at
            node.awaited = node.nonce = node.worker = None
            node.due_at, node.released = due_at, False
        if row.parked.wait is not None:
            return
        assert due_at is not None
        if is_parked:
            due_at = max(due_at, now + _PARKED_AGAIN)
        else:
            execution.parked[node_id] = None
            execution.running += 1
            if execution.plan.definition.max_concurrency is None:
                execution.delayed += 1
            else:
                execution.slots.add(node_id)
        self._fire_parked(execution, node_id, node, due_at)

    def _fire_parked(self, execution: OpenExecution, node_id: str, node: OpenNode, at: int) -> None:
        """Set the timer of a parked node; the one that it had is passed over."""
        node.lease_until = at
        self._timers.add(at, execution.row.id, node_id, execution.row.generation, node.attempt)

    def _free_behind(self, execution: OpenExecution, row: NodeRow, now: int) -> None:
        """Let the dependents of a settled node wait for one parent less; free those that wait for none."""
        node_id, outcomes, nodes, plan = row.node_id, execution.outcomes, execution.nodes, execution.plan
        for dependent in plan.graph.dependents[node_id]:
            child = nodes.get(dependent)
            if child is None:
                if dependent in outcomes:
                    continue
                child = nodes[dependent] = self._new_waiting(execution, dependent)
            elif child.phase is not WAITING:
                continue
            if child.awaited is not None:
                child.awaited.discard(node_id)
                if child.awaited and EARLY_RULES.get(plan.nodes[dependent].trigger_rule) is not row.state:
                    continue
            self._make_free(execution, dependent, child, now)

    @staticmethod
    def _new_waiting(execution: OpenExecution, node_id: str) -> OpenNode:
        node = OpenNode()
        parents = execution.plan.graph.parents[node_id]
        if len(parents) > 1:  # a child with one parent needs no set
            node.awaited = {parent for parent in parents if parent not in execution.outcomes}
        return node

    def _make_free(self, execution: OpenExecution, node_id: str, node: OpenNode, now: int) -> None:
        wanted = execution.plan.visible_nodes[node_id]
        # What it sees is fixed now. Its parents are settled unless an early rule woke it; an ancestor that it
        # names may not be, because a skip can go past a node that still runs.
        if node.awaited or len(wanted) > len(execution.plan.graph.parents[node_id]):
            outcomes = execution.outcomes
            if not all(name in outcomes for name in wanted):
                node.seen = frozenset(name for name in wanted if name in outcomes)
        node.awaited = None
        if node.retry_at is None:
            self._set_free(execution, node_id, node, now)
        else:
            self._free_in_time(execution, node_id, node, now)

    def _free_in_time(self, execution: OpenExecution, node_id: str, node: OpenNode, now: int) -> None:
        """Set a ready node free, or a timer for it where it is to wait."""
        if node.retry_at is None or node.retry_at <= now:
            self._set_free(execution, node_id, node, now)
            return
        node.phase, node.due_at = TIMER, node.retry_at
        execution.delayed += 1
        self._timers.add(node.retry_at, execution.row.id, node_id, execution.row.generation, node.attempt)

    def _set_free(self, execution: OpenExecution, node_id: str, node: OpenNode, now: int) -> None:
        node.phase, node.due_at = FREE, None
        execution.free[node_id] = None
        self._with_free.setdefault(execution.row.id, now)

    def _leave_phase(self, execution: OpenExecution, node_id: str, node: OpenNode) -> None:
        if node.phase in IN_FLIGHT:
            execution.slots.discard(node_id)
            self._leases.pop((execution.row.id, node_id), None)
            if node.phase is RUNNING:
                execution.running -= 1
            if execution.held:
                self._config_memory.give_back(execution, node_id)
        elif node.phase is THROTTLED:
            self._leases.pop((execution.row.id, node_id), None)
            execution.delayed -= 1
        elif node.phase is TIMER:
            execution.delayed -= 1
        elif node.phase is PARKED and node_id in execution.parked:
            del execution.parked[node_id]
            execution.running -= 1
            if node_id in execution.slots:
                execution.slots.discard(node_id)
            else:
                execution.delayed -= 1
        elif node.phase is FREE:
            self._leave_free(execution, node_id)

    def _leave_free(self, execution: OpenExecution, node_id: str) -> None:
        del execution.free[node_id]
        if not execution.free:
            self._with_free.pop(execution.row.id, None)
        if node_id in execution.refused:
            self._config_memory.leave_queue(execution, node_id)

    # -- free nodes --------------------------------------------------------------------------------

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        return [
            Applied(self._missing(execution_id))
            if (execution := self._executions.get(execution_id)) is None
            else Applied(_YES, self._free_nodes(execution))
            for execution_id in execution_ids
        ]

    def _free_nodes(self, execution: OpenExecution) -> Sequence[FreeNode]:
        if not execution.free or not execution.is_open:
            return ()
        room = execution.window - len(execution.slots)
        if room <= 0:
            return ()
        names = self._config_memory.fitting(execution) if execution.refused else execution.free
        return [self._free_node(execution, node_id) for node_id in islice(names, room)]

    @staticmethod
    def _free_node(execution: OpenExecution, node_id: str) -> FreeNode:
        node, outcomes, plan = execution.nodes[node_id], execution.outcomes, execution.plan
        parents = plan.graph.parents[node_id]
        needs: Iterable[str] = plan.references[node_id]
        waiting = 0
        if node.seen is not None:
            seen = node.seen
            total = len(parents)
            parents = tuple(name for name in parents if name in seen)
            waiting = total - len(parents)
            needs = [name for name in needs if name in seen]
        return FreeNode(
            execution.row,
            plan,
            plan.nodes[node_id],
            tuple([outcomes[name] for name in parents]),
            {name: outcomes[name] for name in needs if name in outcomes} if needs else {},
            waiting,
            node.attempt,
            node.failures,
            node.losses,
            node.issued,
            node.released,
        )

    async def queue(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        answers = []
        moved = []
        for task in tasks:
            answer = self._queue(task)
            answers.append(answer)
            if answer is _YES:
                moved.append(task)
        if moved and self._send is not None:
            self._send(moved)
        return answers

    def _queue(self, task: Task) -> Answer:
        node_id = task.node_id
        # In line, as in `_start`: every node comes through both, and the call takes longer than the check.
        execution = self._executions.get(task.execution_id)
        if execution is None:
            return self._missing(task.execution_id, task.generation, task.epoch)
        row, node = execution.row, execution.nodes.get(node_id)
        if task.generation != row.generation or task.epoch != row.epoch:
            return _answer_to(task.generation, task.epoch, row)
        if node is None or node.attempt != task.attempt or node.phase is not FREE or not execution.is_open:
            return _REFUSED
        if len(execution.slots) >= execution.window:
            node.released = False
            return Answer.NO_SLOT
        weight = task.config_weight
        if weight and not self._config_memory.hold(execution, node_id, weight):
            node.released = False
            return Answer.NO_MEMORY
        self._leave_free(execution, node_id)
        node.phase, node.queued_at = QUEUED, task.queued_at
        execution.slots.add(node_id)
        if self._config_memory.waiting and len(execution.slots) == execution.window:
            self._config_memory.wake_next()  # those behind it need not wait for its slots
        if self._queued is not None:
            node.lease_until = self._now() + self._queued
            self._leases[task.execution_id, node_id] = node
        return _YES

    async def admit(self, attempt: AttemptRef, *, epoch: int, weight: int) -> Answer:
        node_id = attempt.node_id
        found = self._find(attempt.execution_id, attempt.generation, node_id, attempt.attempt, epoch)
        if not isinstance(found, tuple):
            return found
        execution, node = found
        if node.phase is not FREE or not execution.is_open:
            return _REFUSED
        if self._config_memory.admit(execution, node_id, weight):
            return _YES
        node.released = False
        return Answer.NO_MEMORY

    # -- wait queues of resource tags ---------------------------------------------------------------

    async def throttle(
        self, execution_id: str, *, generation: int, node_id: str, attempt: int, was_queued: bool = False
    ) -> Answer:
        found = self._find(execution_id, generation, node_id, attempt)
        if isinstance(found, Answer):
            return found
        execution, node = found
        if node.phase is not (QUEUED if was_queued else FREE) or (node.released and not was_queued):
            return Answer.REFUSED
        self._leave_phase(execution, node_id, node)
        now = self._now()
        node.phase, node.released, node.queued_at = THROTTLED, False, None
        # If the wait queue is lost, the node is free again after a long while, and joins it once more.
        node.lease_until = now + self._reported
        self._leases[execution_id, node_id] = node
        execution.delayed += 1
        return Answer.YES

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        found = self._find(execution_id, generation, node_id, attempt)
        if isinstance(found, Answer):
            return found
        execution, node = found
        if node.phase is QUEUED and node.released:  # released before, and still on its way
            return Answer.YES
        if node.phase not in (THROTTLED, FREE):
            return Answer.REFUSED
        node.released = True
        if node.phase is THROTTLED:
            self._leave_phase(execution, node_id, node)
            self._set_free(execution, node_id, node, self._now())
        return Answer.YES

    def _find(
        self, execution_id: str, generation: int, node_id: str, attempt: int, epoch: int | None = None
    ) -> tuple[OpenExecution, OpenNode] | Answer:
        """Find exactly this attempt, unsettled; else say if the store is ahead of the caller, or behind."""
        execution = self._executions.get(execution_id)
        if execution is None:
            return self._missing(execution_id, generation, epoch or 0)
        row = execution.row
        if generation != row.generation or (epoch is not None and epoch != row.epoch):
            return _answer_to(generation, row.epoch if epoch is None else epoch, row)
        node = execution.nodes.get(node_id)
        if node is None or node.attempt != attempt:
            return _REFUSED
        return execution, node

    def _missing(self, execution_id: str, generation: int = 0, epoch: int = 0) -> Answer:
        return self._closed.answer(execution_id, generation, epoch)

    # -- workers -----------------------------------------------------------------------------------

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        now = self._now()
        return [self._start(request, now) for request in requests]

    def _start(self, request: StartRequest, now: int) -> Started:
        execution = self._executions.get(request.execution_id)
        if execution is None:
            return Started(self._missing(request.execution_id, request.generation))
        row, node = execution.row, execution.nodes.get(request.node_id)
        if request.generation != row.generation:
            return Started(_answer_to(request.generation, row.epoch, row))
        if node is None or node.attempt != request.attempt:
            return Started(_REFUSED)
        if node.phase is RUNNING and node.nonce == request.nonce:  # the answer was lost, not the start
            return Started(_YES, node.started_at or now, node.queued_at or now)
        if node.phase is not QUEUED:
            return Started(_REFUSED)
        if not execution.is_open:
            self._leave_phase(execution, request.node_id, node)
            node.queued_at, node.released = None, False
            self._set_free(execution, request.node_id, node, now)
            return Started(_REFUSED)
        node.phase, node.started_at = RUNNING, now
        node.nonce, node.worker, node.lease_until = request.nonce, request.worker, now + self._lease
        execution.running += 1
        self._leases[request.execution_id, request.node_id] = node
        return Started(_YES, now, node.queued_at or now)

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Answer]:
        until = self._now() + self._lease
        return [self._renew(item, until) for item in leases]

    def _renew(self, item: Lease, until: int) -> Answer:
        found = self._find(item.execution_id, item.generation, item.node_id, item.attempt)
        if isinstance(found, Answer):
            return found
        execution, node = found
        if node.phase is ORPHANED:
            execution.running += 1
            node.phase, node.nonce, node.worker = RUNNING, item.nonce, item.worker
            node.queued_at, node.started_at = item.queued_at, item.started_at
        elif node.phase is not RUNNING or node.nonce != item.nonce:
            return Answer.REFUSED
        # A report that came before this heartbeat has made the lease longer.
        node.lease_until = max(node.lease_until, until)
        return Answer.YES

    async def report(self, results: Sequence[Result]) -> None:
        until = self._now() + self._reported
        for result in results:
            node = self._leases.get((result.execution_id, result.node_id))
            if node is not None and node.attempt == result.attempt:
                node.lease_until = max(node.lease_until, until)
        self._publish(results)

    async def end_leases(self, attempts: Sequence[tuple[str, str, int]]) -> None:
        """A lease lies beside its node here: only current attempts have one, and these keep it."""

    async def abandon(self, leases: Sequence[Lease]) -> None:
        now = self._now()
        for item in leases:
            found = self._find(item.execution_id, item.generation, item.node_id, item.attempt)
            if isinstance(found, Answer):
                continue
            _, node = found
            if node.phase is RUNNING and node.nonce == item.nonce:
                node.lease_until = now

    # -- time --------------------------------------------------------------------------------------

    async def due(self, *, idle_seconds: float) -> Due:
        now = self._now()
        idle = micros(idle_seconds)
        self._leases.note_sweep(now, idle)
        woken: dict[tuple[str, int], None] = {}
        deadlines: dict[tuple[str, int], None] = {}
        parked: list[AttemptRef] = []
        for at, execution_id, node_id, generation, attempt in self._timers.fired(now):
            execution = self._executions.get(execution_id)
            if execution is None or execution.row.generation != generation:
                continue
            if not node_id:
                # Only the row tells: the timer may be of a start that a database set back has lost.
                if (deadline_at := execution.row.deadline_at) is not None and deadline_at <= now:
                    deadlines[execution_id, generation] = None
                continue
            node = execution.nodes.get(node_id)
            if node is not None and node.attempt == attempt and node.phase is TIMER:
                self._leave_phase(execution, node_id, node)
                self._set_free(execution, node_id, node, now)
                woken[execution_id, generation] = None
            elif node is not None and node.phase is PARKED and node.lease_until == at:
                parked.append(AttemptRef(execution_id, generation, node_id, node.attempt))
                # Not taken out for good: if the commit that should follow is lost, it fires again.
                self._fire_parked(execution, node_id, node, now + _PARKED_LISTED)
        for execution_id, generation in deadlines:
            # Neither are these.
            self._timers.add(now + self._lease, execution_id, "", generation, 0)
        for execution_id, since in list(self._with_free.items()):
            if since <= now - idle:
                woken[execution_id, self._executions[execution_id].row.generation] = None
        expired = []
        for execution_id, node_id, node in self._leases.ended(now):
            if node.phase in (QUEUED, THROTTLED):
                # Its task is lost, or far behind: sent again, as the same attempt. Or its wait queue is lost.
                execution = self._executions[execution_id]
                self._leave_phase(execution, node_id, node)
                node.released, node.queued_at = False, None
                self._set_free(execution, node_id, node, now)
                woken[execution_id, execution.row.generation] = None
            else:
                expired.append(self._expired(execution_id, node_id, node))
        times = [at for at in (self._timers.next_at, self._leases.next_at) if at is not None]
        next_at = max(min(times), now) if times else None
        return Due(list(woken), expired, list(deadlines), next_at, parked)

    def _expired(self, execution_id: str, node_id: str, node: OpenNode) -> Expired:
        row = self._executions[execution_id].row
        return Expired(
            execution_id,
            row.generation,
            node_id,
            node.attempt,
            row.digest,
            node.failures,
            node.losses,
            node.issued,
            node.worker if node.phase is not ORPHANED else None,
            node.queued_at,
            node.started_at,
        )

    # -- the fleet ---------------------------------------------------------------------------------

    async def running_by_queue(self) -> Mapping[str, int]:
        running: dict[str, int] = {}
        # All that is in hand holds a lease, so this costs what is in flight, and nothing on the way there.
        for (execution_id, node_id), node in self._leases.items():
            if node.phase is RUNNING:
                queue = self._executions[execution_id].plan.nodes[node_id].queue
                running[queue] = running.get(queue, 0) + 1
        return running

    async def backlog(self) -> int:
        return self._unsettled

    async def announce_worker(self, worker: WorkerStatus) -> None:
        self._workers[worker.id] = replace(worker, heartbeat_at=self._now())

    async def remove_worker(self, worker_id: str) -> None:
        self._workers.pop(worker_id, None)

    async def workers(self) -> Sequence[WorkerStatus]:
        return self._workers.list_at(self._now(), self._lease)

    # -- looking in --------------------------------------------------------------------------------

    async def running(self, execution_id: str) -> dict[str, Running]:
        execution = self._executions.get(execution_id)
        return {} if execution is None else running_attempts(execution)

    def rows_at_hand(self, attempt: AttemptRef) -> RowUpdate | None:
        """Return the rows of an attempt's execution and of its node's parents, for the attempt's context.

        None: some of what they say is not here, for its size or because the execution has ended.
        """
        execution = self._executions.get(attempt.execution_id)
        return None if execution is None else rows_at_hand(execution, attempt)

    def in_hand(self, execution_id: str) -> tuple[list[str], int]:
        """Name the nodes that run now, and count all in flight: for a progress bar in this process."""
        execution = self._executions.get(execution_id)
        return ([], 0) if execution is None else in_hand(execution)

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        found = (self._executions.get(execution_id) for execution_id in execution_ids)
        return [None if execution is None else in_flight(execution) for execution in found]

    async def inspect(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> ExecutionStatus | None:
        execution = self._executions.get(execution_id)
        return None if execution is None else inspected(execution, self._config_memory, names)
