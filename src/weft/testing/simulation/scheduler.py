"""Virtual time and actors: a heap of (time, tie-break, actor), each run to its next step."""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from random import Random


class Step:
    """Awaited by an actor where others may run, and where its process may die."""

    __slots__ = ("name", "seconds")

    def __init__(self, name: str, seconds: float = 0.0) -> None:
        self.name = name
        self.seconds = seconds

    def __await__(self) -> Generator[Step, None, None]:
        yield self


class Actor:
    """One process: its life is a coroutine, which a crash drops and a restart makes anew."""

    def __init__(self, name: str, kind: str, live: Callable[[Actor], Coroutine[Step, None, None]]) -> None:
        self.name = name
        self.kind = kind
        self.lives = 0
        self._live = live
        self._coroutine: Coroutine[Step, None, None] | None = None

    def resume(self) -> Step | None:
        """Run to the next step; None: the life has ended."""
        if self._coroutine is None:
            self.lives += 1
            self._coroutine = self._live(self)
        try:
            return self._coroutine.send(None)
        except StopIteration:
            self._coroutine = None
            return None

    def crash(self) -> None:
        if self._coroutine is not None:
            self._coroutine.close()
            self._coroutine = None


class Scheduler:
    """Runs actors in the order of their times; ties are broken by the seed."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 1_000_000_000 * MICROSECONDS
        self.start = self.now
        self.steps = 0
        self._counter = itertools.count()
        self._heap: list[tuple[int, float, int, Actor]] = []

    @property
    def elapsed_seconds(self) -> float:
        return (self.now - self.start) / MICROSECONDS

    def schedule(self, actor: Actor, seconds: float) -> None:
        at = self.now + round(seconds * MICROSECONDS)
        heapq.heappush(self._heap, (at, self.rng.random(), next(self._counter), actor))

    def run(
        self,
        after_step: Callable[[Actor, Step | None], float | None],
        *,
        until_seconds: float,
        is_over: Callable[[], bool],
    ) -> None:
        """Run until then or until ``is_over``; ``after_step`` says when an actor goes on (None: never)."""
        end = self.start + round(until_seconds * MICROSECONDS)
        while self._heap and self._heap[0][0] <= end:
            at, _, _, actor = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            self.steps += 1
            if self.steps % 256 == 0 and is_over():
                return
            delay = after_step(actor, actor.resume())
            if delay is not None:
                self.schedule(actor, delay)


class SimulatedClock:
    """The clock of the simulation; sleeping is a step like any other."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> int:
        return self._scheduler.now

    async def sleep(self, seconds: float) -> None:
        await Step("sleep", seconds)
