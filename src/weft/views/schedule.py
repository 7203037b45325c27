"""When the nodes of a graph would end if nothing but their durations and slots held them up.

A greedy list schedule, first come first served: a slot never idles while a node is ready, and nodes that
become ready at the same moment start in the order of the definition. No overhead is counted.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

NONE = -1


class OpenGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a graph that is still to run; nodes are named by an index."""

    parents: Sequence[Sequence[int]]
    dependents: Sequence[Sequence[int]]
    # What has ended, and takes no time.
    settled: Collection[int] = frozenset()
    # What runs now.
    running: Collection[int] = frozenset()
    # What can start now, whatever its parents do.
    ready: Collection[int] = frozenset()
    # What may not start before a time.
    due: Mapping[int, int] = {}
    # What starts with the next of its parents that ends.
    early: Collection[int] = frozenset()
    # So many nodes run at once; None: any number.
    slots: int | None = None


class ListSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """Ends of nodes, in the unit of the durations and from now on."""

    end: int
    last: int
    # Of each node: its end, and the node whose end let it start (its last parent, or the one that had its
    # slot); NONE: it could start now, or does not run.
    ends: Sequence[int]
    freed_by: Sequence[int]

    def chain(self) -> list[int]:
        """Return the nodes that decide the end, the first of them first."""
        chain: list[int] = []
        index = self.last
        while index != NONE:
            chain.append(index)
            index = self.freed_by[index]
        return chain[::-1]


def list_schedule(graph: OpenGraph, durations: Sequence[int]) -> ListSchedule:
    """Schedule what is open; a duration is the time that a node still takes."""
    return _Scheduler(graph, durations).run()


class _Scheduler:
    def __init__(self, graph: OpenGraph, durations: Sequence[int]) -> None:
        count = len(graph.parents)
        self._graph = graph
        self._durations = durations
        self._ends = [0] * count
        self._freed_by = [NONE] * count
        self._awaited = [0] * count
        # (end, index) of what runs, and (due, index) of what may not start yet.
        self._running = [(durations[index], index) for index in graph.running]
        heapify(self._running)
        self._delayed: list[tuple[int, int]] = []
        self._ready: deque[int] = deque()
        self._ready_at = [0] * count
        for index in range(count):
            if index not in graph.settled and index not in graph.running:
                self._begin(index)

    def _begin(self, index: int) -> None:
        graph = self._graph
        awaited = 0
        if index not in graph.ready:
            awaited = sum([parent not in graph.settled for parent in graph.parents[index]])
        self._awaited[index] = min(awaited, 1) if index in graph.early else awaited
        if not awaited:
            self._free(index, 0)

    def _free(self, index: int, now: int) -> None:
        due = self._graph.due.get(index, 0)
        if due > now:
            heappush(self._delayed, (due, index))
        else:
            self._ready_at[index] = now
            self._ready.append(index)

    def run(self) -> ListSchedule:
        now, last = 0, NONE
        while True:
            self._start(now, last)
            times = [heap[0][0] for heap in (self._running, self._delayed) if heap]
            if not times:
                break
            now = min(times)
            ended = self._finish(now)
            last = ended[-1] if ended else last
            # What becomes ready at once starts in the order of the definition.
            freed = {index for one in ended for index in self._freed_behind(one)}
            while self._delayed and self._delayed[0][0] <= now:
                _, index = heappop(self._delayed)
                # Its time decided, and not its parent.
                self._freed_by[index] = NONE
                freed.add(index)
            for index in sorted(freed):
                self._free(index, now)
        return ListSchedule(end=now, last=last, ends=self._ends, freed_by=self._freed_by)

    def _start(self, now: int, last: int) -> None:
        slots = self._graph.slots
        while self._ready and (slots is None or len(self._running) < slots):
            index = self._ready.popleft()
            if self._ready_at[index] < now:
                # The node waited for a slot, and gets that of the node that has just ended.
                self._freed_by[index] = last
            heappush(self._running, (now + self._durations[index], index))

    def _finish(self, now: int) -> list[int]:
        ended = []
        while self._running and self._running[0][0] <= now:
            _, index = heappop(self._running)
            self._ends[index] = now
            ended.append(index)
        return ended

    def _freed_behind(self, index: int) -> list[int]:
        freed = []
        for behind in self._graph.dependents[index]:
            if self._awaited[behind] > 0:
                self._awaited[behind] -= 1
                if not self._awaited[behind]:
                    self._freed_by[behind] = index
                    freed.append(behind)
        return freed
