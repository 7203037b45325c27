"""Times that the sweep of the memory store looks at: timers, and the ends of leases."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from weft.store.contract import RENEWALS_PER_LEASE
from weft.store.memory.execution import OpenNode

if TYPE_CHECKING:
    from collections.abc import Container, Iterator


class Timer(NamedTuple):
    """When an execution (without ``node_id``) has its deadline, or an attempt of a node is due."""

    at: int
    execution_id: str
    node_id: str
    generation: int
    attempt: int


class Timers:
    """A heap of timers. The sweep passes over what no longer fits."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        # At most so many are of executions that have ended.
        self._over = 0

    def add(self, at: int, execution_id: str, node_id: str, generation: int, attempt: int) -> None:
        heapq.heappush(self._heap, Timer(at, execution_id, node_id, generation, attempt))

    def end(self, count: int, *, is_open: Container[str]) -> None:
        """Note that so many timers are of an execution that has ended, and take such ones out."""
        self._over += count
        # Not each time: so a timer costs the same however many there are, and at most half are left over.
        if self._over > len(self._heap) // 2:
            self._heap = [timer for timer in self._heap if timer.execution_id in is_open]
            heapq.heapify(self._heap)
            self._over = 0

    def fired(self, now: int) -> Iterator[Timer]:
        """Take out the timers whose time has come, the earliest first."""
        while self._heap and self._heap[0].at <= now:
            yield heapq.heappop(self._heap)

    @property
    def next_at(self) -> int | None:
        return self._heap[0].at if self._heap else None


class Leases(dict[tuple[str, str], OpenNode]):
    """By execution id and node id: the nodes that hold a lease or wait to be started."""

    def __init__(self, lease: int) -> None:
        super().__init__()
        self._lease = lease
        # The time of the last sweep (None: there was none), and the time before which no lease expires.
        self.swept_at: int | None = None
        self.grace_until = 0

    def note_sweep(self, now: int, idle: int) -> None:
        """Begin the grace of a lease if the last sweep is longer ago than ``due`` allows."""
        gap = 0 if self.swept_at is None else now - self.swept_at
        if gap > self._lease // RENEWALS_PER_LEASE + idle:
            self.grace_until = now + self._lease
        self.swept_at = now

    def ended(self, now: int) -> list[tuple[str, str, OpenNode]]:
        """List the nodes whose lease has ended, unless the grace goes on."""
        if now < self.grace_until:
            return []
        return [(*key, node) for key, node in self.items() if node.lease_until <= now]

    @property
    def next_at(self) -> int | None:
        """Return the earliest time at which a lease may end."""
        ends = [max(node.lease_until, self.grace_until) for node in self.values()]
        return min(ends) if ends else None
