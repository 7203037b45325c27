"""The memory budget of large configs while their nodes are in flight: of an execution, and of the process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.task import Wake
from weft.store.contract import MemoryWait
from weft.store.memory.execution import FREE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weft.store.contract import StoreOptions
    from weft.store.memory.execution import OpenExecution, OpenNode

# Beside nodes that wait for memory, so many whose configs are not known yet are listed at once.
_MOST_UNKNOWN = 16


class ConfigMemory:
    """Counts what large configs in flight hold, and wakes the executions that wait for room in turn."""

    def __init__(
        self,
        executions: Mapping[str, OpenExecution],
        options: StoreOptions,
        wake: Callable[[Sequence[Wake]], None] | None,
    ) -> None:
        self._executions = executions
        self._execution_bytes = options.execution_bytes
        self._process_bytes = options.process_bytes
        self._wake = wake
        self.held_bytes = 0
        # Executions with a node that waits for room, the one first that has waited longest.
        self.waiting: dict[str, None] = {}

    def drop(self, execution: OpenExecution) -> None:
        """Return all that an execution holds that is no longer in the store."""
        execution_id = execution.row.id
        if execution.held_bytes or execution_id in self.waiting:
            self.held_bytes -= execution.held_bytes
            self.waiting.pop(execution_id, None)
            self.wake_next()

    def leave_queue(self, execution: OpenExecution, node_id: str) -> None:
        """Take a node that is no longer free out of those that wait for room."""
        del execution.refused[node_id]
        if not execution.refused:
            self.waiting.pop(execution.row.id, None)
        # The node may join the wait queue of its tag, and not start: then the next node has its turn.
        self.wake_next()

    def admit(self, execution: OpenExecution, node_id: str, weight: int) -> bool:
        """True if there is room for a large config; otherwise its node waits for it from now on."""
        if self._has_room(execution, weight):
            return True
        execution.refused[node_id] = weight
        self.waiting.setdefault(execution.row.id)
        return False

    def hold(self, execution: OpenExecution, node_id: str, weight: int) -> bool:
        """Take room for a large config that is about to be in flight; False: there is none, and it waits."""
        if not self.admit(execution, node_id, weight):
            return False
        execution.held[node_id] = weight
        execution.held_bytes += weight
        self.held_bytes += weight
        return True

    def give_back(self, execution: OpenExecution, node_id: str) -> None:
        """Return what a node has held that is not in flight any more, and wake those that waited for it."""
        weight = execution.held.pop(node_id, 0)
        execution.held_bytes -= weight
        self.held_bytes -= weight
        if weight and self.waiting:
            self.wake_next()

    def fitting(self, execution: OpenExecution) -> Iterator[str]:
        """Iterate over the free nodes, without those whose configs are known to find no room now."""
        listed = 0
        # Configs that nobody has filled in yet may be as large as the ones that find no room.
        unknown = _MOST_UNKNOWN
        for name in execution.free:
            weight = execution.refused.get(name, 0)
            if not weight:
                unknown -= 1
                if unknown >= 0:
                    yield name
            elif self._has_room(execution, weight, beside=listed):
                listed += weight
                yield name

    def _has_room(self, execution: OpenExecution, weight: int, *, beside: int = 0) -> bool:
        """True if a config of this weight may be in flight now, beside what is and ``beside``."""
        if not self._has_own_room(execution, weight, beside=beside):
            return False
        limit, held = self._process_bytes, self.held_bytes + beside
        if limit is None:
            return True
        return (not held or held + weight <= limit) and not self._is_behind(execution)

    def _has_own_room(self, execution: OpenExecution, weight: int, *, beside: int = 0) -> bool:
        # What is larger than the limit has room where it is alone.
        held = execution.held_bytes + beside
        return not held or held + weight <= self._execution_bytes

    def _is_behind(self, execution: OpenExecution) -> bool:
        """True if another execution has waited longer for memory and could go on if it had it."""
        for execution_id in self.waiting:
            if execution_id == execution.row.id:
                return False
            if self._wanted(self._executions[execution_id]):
                return True
        return False

    def _wanted(self, execution: OpenExecution) -> int:
        """Return the least that a waiting execution needs to go on; 0: it lacks more than memory."""
        if not execution.is_open or len(execution.slots) >= execution.window or not execution.refused:
            return 0
        least = min(execution.refused.values())
        return least if self._has_own_room(execution, least) else 0

    def wake_next(self) -> None:
        """Wake the executions that have waited longest, as many as there is room for now."""
        if self._process_bytes is None or self._wake is None:
            return
        held = self.held_bytes
        wakes = []
        for execution_id in self.waiting:
            execution = self._executions[execution_id]
            wanted = self._wanted(execution)
            if not wanted:
                continue
            if held and held + wanted > self._process_bytes:
                break
            held += wanted
            wakes.append(Wake(execution_id, execution.row.generation, execution.row.digest))
        if wakes:
            self._wake(wakes)

    def wait_of(self, execution: OpenExecution, node_id: str, node: OpenNode) -> MemoryWait | None:
        """Return what keeps a free node waiting for memory; None: nothing does."""
        if node.phase is not FREE or not execution.refused:
            return None
        # One that is not filled in yet waits with those that were: it may be as large.
        needed = execution.refused.get(node_id, 0)
        weight = needed or min(execution.refused.values())
        if self._has_room(execution, weight):
            return None
        if self._process_bytes is None or not self._has_own_room(execution, weight):
            return MemoryWait(needed, execution.held_bytes, self._execution_bytes, False)
        return MemoryWait(needed, self.held_bytes, self._process_bytes, True)
