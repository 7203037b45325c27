"""The states of an execution's nodes for a drawing: a letter for each node, in the order of the definition.

``LiveStates`` begins with the journal's rows and follows the events of the feed. The feed is a hint: events
may be missing, come twice, or come out of order. So a recorded event changes a node only if its number is
higher than that of the last one, and a live event only if it is of a later moment of the node's life: attempt
by attempt, queued before started before ended. Which recorded events are missing is known by their numbers.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from weft.core.state import TERMINAL, ExecutionState, NodeState
from weft.feed.contract import PROGRESS, QUEUED, STARTED
from weft.views.describe import PHASE_STATES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.definition.plan import Plan
    from weft.store.contract import NodeStatus

# QUEUED with another attempt to come at a due time ahead.
RETRY_SCHEDULED = ord("T")
LETTERS: Mapping[NodeState, int] = {
    NodeState.PENDING: ord("P"),
    NodeState.QUEUED: ord("Q"),
    NodeState.RUNNING: ord("R"),
    NodeState.WAITING: ord("W"),
    NodeState.COMPLETED: ord("C"),
    NodeState.FAILED: ord("F"),
    NodeState.SKIPPED: ord("S"),
    NodeState.CANCELLED: ord("X"),
}
_PENDING, _QUEUED, _RUNNING = (
    LETTERS[state] for state in (NodeState.PENDING, NodeState.QUEUED, NodeState.RUNNING)
)
_SETTLED_BY = {
    "node.completed": LETTERS[NodeState.COMPLETED],
    "node.failed": LETTERS[NodeState.FAILED],
    "node.skipped": LETTERS[NodeState.SKIPPED],
    "node.cancelled": LETTERS[NodeState.CANCELLED],
}
# Moments of a node's life: the attempt times four, and one of these.
_IS_QUEUED, _IS_RUNNING, _HAS_ENDED = 1, 2, 3
# Behind every moment of a generation.
_SETTLED = 2**62


class LiveStates:
    """The letters of one generation of an execution; not for use after ``is_outdated``."""

    def __init__(self, plan: Plan, execution: ExecutionRow, rows: Mapping[str, NodeRow], *, now: int) -> None:
        """``rows``: of the execution's generation, and read after its row."""
        self.ids = plan.graph.ids
        self._index = {node_id: index for index, node_id in enumerate(self.ids)}
        self._dependents = plan.graph.dependents
        self._waits = plan.waits
        self.generation = execution.generation
        self.state = execution.state
        # All events up to this number have been applied.
        self.seq = execution.seq
        self._beyond: set[int] = set()
        self._state_seq = execution.seq
        self.is_outdated = False
        # Whether a letter comes from the store or the feed: what the store loses is not shown any more.
        self.has_phases = False
        self.letters = bytearray([_PENDING]) * len(self.ids)
        # Of each node: the number of the last event that changed it, and the last moment of its life.
        self._seqs = array("q", bytes(8 * len(self.ids)))
        self._moments = array("q", bytes(8 * len(self.ids)))
        # Scheduled retries and looks, the next first: (due time, index), and of each node its due time.
        self._timers: list[tuple[int, int]] = []
        self._due_at: dict[int, int] = {}
        # Nodes whose next attempt is another look of their poll: until then they wait.
        self._between_looks: set[int] = set()
        # Nodes that may have left PENDING: roots, those behind a settled node, and those of an open attempt.
        self._frontier = {self._index[node_id] for node_id in plan.graph.roots}
        self._changed: set[int] = set()
        self._touched: set[int] = set()
        for row in rows.values():
            self._begin(row, now)
        self._changed.clear()

    def _begin(self, row: NodeRow, now: int) -> None:
        index = self._index.get(row.node_id)
        if index is None:
            return
        self._seqs[index] = row.seq
        if row.state is not None:
            self._settle(index, LETTERS[row.state])
            return
        self._frontier.add(index)
        self._moments[index] = 4 * row.ended + _HAS_ENDED
        if row.is_between_looks:
            self._between_looks.add(index)
        if row.parked is not None:
            self._moments[index] = 4 * row.attempt + _IS_RUNNING
            self._set(index, _RUNNING if row.wait is None else LETTERS[NodeState.WAITING])
        elif row.attempt > 1 and row.retry_at is not None and row.retry_at > now:
            self._schedule(index, row.retry_at)

    # -- what the feed and the journal say ---------------------------------------------------------

    def apply(self, event: History, *, now: int) -> None:
        """Bring the letters up to date with an event, whatever the order in which events come."""
        if event.generation > self.generation:
            self.is_outdated = True
            return
        if event.seq:
            self._count(event.seq)
        if event.node is None:
            if event.seq > self._state_seq and event.state is not None:
                self._state_seq = event.seq
                self.state = ExecutionState(event.state)
            return
        index = self._index.get(event.node)
        if index is None or event.generation != self.generation:
            return
        if event.seq:
            self._apply_recorded(index, event, now)
        else:
            self._apply_live(index, event)

    def _count(self, seq: int) -> None:
        if seq > self.seq + 1:
            self._beyond.add(seq)
        elif seq == self.seq + 1:
            self.seq = seq
            while self.seq + 1 in self._beyond:
                self.seq += 1
                self._beyond.remove(self.seq)

    def _apply_recorded(self, index: int, event: History, now: int) -> None:
        if event.seq <= self._seqs[index]:
            return
        settled = _SETTLED_BY.get(event.type)
        if settled is not None:
            self._seqs[index] = event.seq
            self._settle(index, settled)
        elif event.type == "node.waiting":
            self._seqs[index] = event.seq
            self._frontier.add(index)
            self._moments[index] = 4 * (event.attempt or 0) + _IS_RUNNING
            self.has_phases = True
            self._set(index, LETTERS[NodeState.WAITING])
        elif event.type in ("node.retrying", "node.lost", "node.polled"):
            self._seqs[index] = event.seq
            self._frontier.add(index)
            moment = 4 * (event.attempt or 0) + _HAS_ENDED
            if moment <= self._moments[index]:
                return  # a later attempt is under way
            self._moments[index] = moment
            self.has_phases = True
            if event.type == "node.polled":
                self._between_looks.add(index)
            else:
                self._between_looks.discard(index)
            if event.due_at is not None and event.due_at > now:
                self._schedule(index, event.due_at)
            else:
                self._set(index, _QUEUED)

    def _apply_live(self, index: int, event: History) -> None:
        if event.type == QUEUED:
            letter, moment = _QUEUED, _IS_QUEUED
        elif event.type in (STARTED, PROGRESS):
            letter, moment = _RUNNING, _IS_RUNNING
        else:
            return
        moment += 4 * (event.attempt or 0)
        if moment > self._moments[index]:
            self._moments[index] = moment
            self._frontier.add(index)
            self.has_phases = True
            self._set(index, letter)

    def _settle(self, index: int, letter: int) -> None:
        self._moments[index] = _SETTLED
        self._frontier.discard(index)
        for dependent in self._dependents[self.ids[index]]:
            behind = self._index[dependent]
            if self._moments[behind] != _SETTLED:
                self._frontier.add(behind)
        self._set(index, letter)

    def _schedule(self, index: int, due_at: int) -> None:
        if self._due_at.get(index) != due_at:
            self._due_at[index] = due_at
            heappush(self._timers, (due_at, index))
        self._set(index, self._scheduled(index))

    def _scheduled(self, index: int) -> int:
        """Return the letter of a node whose next attempt is due at a time ahead."""
        return LETTERS[NodeState.WAITING] if index in self._between_looks else RETRY_SCHEDULED

    def _set(self, index: int, letter: int) -> None:
        self._touched.add(index)
        if self.letters[index] != letter:
            self.letters[index] = letter
            self._changed.add(index)

    def fire_due(self, now: int) -> None:
        """Show a scheduled retry or look as queued once its time has come."""
        while self._timers and self._timers[0][0] <= now:
            due_at, index = heappop(self._timers)
            if self._due_at.get(index) == due_at:
                del self._due_at[index]
                if self.letters[index] == self._scheduled(index):
                    self._set(index, _QUEUED)

    # -- what the store says -----------------------------------------------------------------------

    def begin_look(self) -> list[str]:
        """Return the nodes that the store may have in a phase; what changes from now on is newer."""
        self._touched.clear()
        return [self.ids[index] for index in sorted(self._frontier)]

    def set_phases(self, statuses: Mapping[str, NodeStatus], *, now: int) -> None:
        """Take over where the store has these nodes, unless they have changed since ``begin_look``.

        A node that the store does not list keeps its letter: most likely it has settled, and the event that
        says so is on its way.
        """
        for name, status in statuses.items():
            index = self._index.get(name)
            if index is None or index in self._touched or self._moments[index] == _SETTLED:
                continue
            state = PHASE_STATES.get(status.phase, NodeState.PENDING)
            if status.phase == "parked" and name in self._waits:
                state = NodeState.WAITING
            if state is NodeState.PENDING:
                self._set_aside(index)
                continue
            self.has_phases = True
            moment = _IS_QUEUED if state is NodeState.QUEUED else _IS_RUNNING
            if status.phase != "timer":
                self._moments[index] = 4 * status.attempt + moment
                self._set(index, LETTERS[state])
            elif status.attempt > 1 and status.due_at is not None and status.due_at > now:
                self._schedule(index, status.due_at)
            else:
                self._set(index, _QUEUED)

    def _set_aside(self, index: int) -> None:
        """Show a node as waiting; if the same attempt of it is queued again, that is news."""
        attempt, moment = divmod(self._moments[index], 4)
        if moment < _HAS_ENDED:
            self._moments[index] = 4 * attempt
        self._set(index, _PENDING)

    # -- what is shown -----------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if the execution has ended and every event up to its end has been applied."""
        return self.state in TERMINAL and self.seq >= self._state_seq

    @property
    def misses_the_end(self) -> bool:
        """True if the execution has ended, and events up to its end have not been heard."""
        return self.state in TERMINAL and self.seq < self._state_seq

    def counts(self) -> dict[str, int]:
        """Count the nodes by state."""
        counts = {state.value: self.letters.count(letter) for state, letter in LETTERS.items()}
        counts[NodeState.QUEUED.value] += self.letters.count(RETRY_SCHEDULED)
        return counts

    def in_flight(self) -> tuple[int, int]:
        """Count the nodes that are queued, and those that are running."""
        queued = self.letters.count(_QUEUED) + self.letters.count(RETRY_SCHEDULED)
        return queued, self.letters.count(_RUNNING)

    @property
    def next_due(self) -> int | None:
        """Return when the next scheduled retry or look is due."""
        return self._timers[0][0] if self._timers else None

    def take_changed(self) -> Collection[int]:
        """Return the nodes whose letters have changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def shown(self) -> dict[str, Any]:
        """Return what every frame says beside the letters."""
        return {"counts": self.counts(), "state": self.state.value, "seq": self.seq}
