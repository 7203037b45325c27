"""Stations of a simulation of queues: machines, processes, disks and streams on a time of their own.

What happens is written as a walk: a generator that yields one step after the other and goes on when the step
is over. A step is a function that is told whom to resume. Nothing here draws at random: a run is the same
every time, as far as its walks are.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Sequence
from itertools import count
from math import inf
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")

Resume: TypeAlias = Callable[[Any], None]
Step: TypeAlias = Callable[[Resume], None]
Walk: TypeAlias = Generator[Step, Any, T]


class Time:
    """Seconds since the beginning, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._number = count()
        self._due: list[tuple[float, int, Resume, Any]] = []

    def after(self, seconds: float, resume: Resume, value: Any = None) -> None:
        heapq.heappush(self._due, (self.now + seconds, next(self._number), resume, value))

    def start(self, walk: Walk[None]) -> None:
        def resume(value: Any) -> None:
            try:
                step = walk.send(value)
            except StopIteration:
                return
            step(resume)

        self.after(0.0, resume)

    def pause(self, seconds: float) -> Step:
        return lambda resume: self.after(seconds, resume)

    def together(self, walks: Sequence[Walk[None]]) -> Step:
        """Walk them all at once; it is over when all are."""

        def step(resume: Resume) -> None:
            left = len(walks)

            def counted(walk: Walk[None]) -> Walk[None]:
                nonlocal left
                yield from walk
                left -= 1
                if left == 0:
                    self.after(0.0, resume)

            for walk in walks:
                self.start(counted(walk))

        return step

    def run(self, until: float = inf) -> None:
        """Let everything happen up to a time, or to the end."""
        while self._due and self._due[0][0] <= until:
            self.now, _, resume, value = heapq.heappop(self._due)
            resume(value)
        if until < inf:
            self.now = until


class Machine:
    """Cores that are shared fairly: each of ``n`` that want to run has the speed ``min(1, cores / n)``.

    All have the same speed, so what is left of each is told by one clock that runs at it.
    """

    def __init__(self, time: Time, cores: float = inf) -> None:
        self._time = time
        self._cores = cores
        self._clock = 0.0
        self._looked_at = 0.0
        self._number = count()
        self._running: list[tuple[float, int, Resume]] = []
        self._plan = 0
        # Seconds of cores that were used.
        self.used = 0.0

    def run(self, seconds: float, resume: Resume) -> None:
        if self._cores == inf:  # nobody is in anybody's way
            self.used += seconds
            self._time.after(seconds, resume)
            return
        self._look()
        heapq.heappush(self._running, (self._clock + seconds, next(self._number), resume))
        self._wake_at_the_next_end()

    def _speed(self) -> float:
        return min(1.0, self._cores / len(self._running))

    def _look(self) -> None:
        passed = self._time.now - self._looked_at
        self._looked_at = self._time.now
        if self._running:
            self._clock += passed * self._speed()
            self.used += passed * self._speed() * len(self._running)

    def _wake_at_the_next_end(self) -> None:
        self._plan += 1
        if self._running:
            left = max(0.0, self._running[0][0] - self._clock)
            self._time.after(left / self._speed(), self._end, self._plan)

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return  # somebody has come since
        self._look()
        end, _, resume = heapq.heappop(self._running)
        self._clock = end
        self._wake_at_the_next_end()
        resume(None)


class Process:
    """Does one thing at a time, in the order in which it is asked, on a machine that it may have to share."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._waiting: deque[tuple[float, Resume]] = deque()
        self._is_running = False
        # Seconds of its work that were begun.
        self.used = 0.0

    def work(self, seconds: float) -> Step:
        def step(resume: Resume) -> None:
            self._waiting.append((seconds, resume))
            if not self._is_running:
                self._next()

        return step

    def _next(self) -> None:
        self._is_running = bool(self._waiting)
        if not self._is_running:
            return
        seconds, resume = self._waiting.popleft()
        self.used += seconds

        def ended(_: None) -> None:
            self._next()
            resume(None)

        self._machine.run(seconds, ended)


class Disk:
    """Syncs for all who wait: those who come while a sync is under way share the next one."""

    def __init__(self, time: Time, seconds: float) -> None:
        self._time = time
        self._seconds = seconds
        self._waiting: list[Resume] = []
        self._is_syncing = False
        self.syncs = 0

    def sync(self) -> Step:
        def step(resume: Resume) -> None:
            self._waiting.append(resume)
            if not self._is_syncing:
                self._begin()

        return step

    def _begin(self) -> None:
        sharing, self._waiting = self._waiting, []
        self._is_syncing = True
        self.syncs += 1

        def ended(_: None) -> None:
            self._is_syncing = False
            if self._waiting:
                self._begin()
            for resume in sharing:
                resume(None)

        self._time.after(self._seconds, ended)


class Streams(Generic[T]):
    """A stream for each partition. Who finds nothing waits for all of them at once."""

    def __init__(self, time: Time, partitions: int = 1) -> None:
        self._time = time
        self._entries: list[deque[T]] = [deque() for _ in range(partitions)]
        self._waiting: deque[tuple[int, Resume]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._entries))

    def put(self, partition: int, entries: Sequence[T]) -> None:
        own = self._entries[partition]
        own.extend(entries)
        while own and self._waiting:
            limit, resume = self._waiting.popleft()
            self._time.after(0.0, resume, (partition, self.take(partition, limit)))

    def take(self, partition: int, limit: int) -> list[T]:
        """Return what is there, at most so many."""
        own = self._entries[partition]
        return [own.popleft() for _ in range(min(limit, len(own)))]

    def wait(self, limit: int) -> Step:
        """Wait until one partition has something; resumed with its number and at most so many entries."""

        def step(resume: Resume) -> None:
            for partition, own in enumerate(self._entries):
                if own:
                    self._time.after(0.0, resume, (partition, self.take(partition, limit)))
                    return
            self._waiting.append((limit, resume))

        return step
