"""Virtual time and actors: a heap of (time, tie-break, actor), each run to its next step.

An actor with nothing to do does not poll: it waits for a topic, or until a time, whichever is first. Most
of what a fleet does in a minute is waiting, and none of it is interesting.
"""

from __future__ import annotations

import heapq
import itertools
from contextvars import Context
from typing import TYPE_CHECKING, Any

from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from random import Random


class Step:
    """Awaited by an actor where others may run, and where its process may die."""

    __slots__ = ("name", "seconds", "topic")

    def __init__(self, name: str, seconds: float = 0.0, topic: str | None = None) -> None:
        self.name = name
        self.seconds = seconds
        self.topic = topic

    def __await__(self) -> Generator[Step, None, None]:
        yield self


class Process:
    """One or more loops that share a memory, and that die and stand still together."""

    __slots__ = ("incarnation", "loops", "memory")

    def __init__(self) -> None:
        self.loops: list[Actor] = []
        # The incarnation of the journal that its connections lead to; None: it has none.
        self.incarnation: int | None = None
        # What the loops share, made by the first of them; a crash drops it.
        self.memory: Any = None

    def crash(self) -> None:
        self.memory = self.incarnation = None
        for loop in self.loops:
            loop.crash()


class Actor:
    """One loop of a process: its life is a coroutine, which a crash drops and a restart makes anew."""

    __slots__ = (
        "_context",
        "_coroutine",
        "_live",
        "clock",
        "kind",
        "lives",
        "name",
        "process",
        "topic",
        "turn",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        live: Callable[[Actor], Coroutine[Step, None, None]],
        clock: SimulatedClock,
        process: Process,
    ) -> None:
        self.name = name
        self.kind = kind
        self.clock = clock
        self.process = process
        process.loops.append(self)
        self.lives = 0
        # Which entry of the heap is its own: one that it no longer waits for is passed over.
        self.turn = 0
        # What it waits for beside its time.
        self.topic: str | None = None
        self._live = live
        self._coroutine: Coroutine[Step, None, None] | None = None
        # Context variables are those of a task, and an actor's loop is one.
        self._context = Context()

    def resume(self) -> Step | None:
        """Run to the next step; None: the life has ended."""
        step: Any = None
        if self._coroutine is None:
            self.lives += 1
            self._coroutine = self._live(self)
            self._context = Context()
        try:
            # A turn for others on an event loop (``asyncio.sleep(0)``) is no step: it yields nothing.
            while step is None:
                step = self._context.run(self._coroutine.send, None)
            found: Step = step
            return found
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
        # Who waits for a topic, in the order in which they came.
        self._waiting: dict[str, dict[Actor, None]] = {}

    @property
    def elapsed_seconds(self) -> float:
        return (self.now - self.start) / MICROSECONDS

    def schedule(self, actor: Actor, seconds: float, *, topic: str | None = None) -> None:
        """Let the actor go on after so long, or when the topic is told, if that is earlier."""
        if actor.topic is not None:
            self._waiting[actor.topic].pop(actor, None)
            actor.topic = None
        actor.turn = turn = next(self._counter)
        at = self.now + int(seconds * MICROSECONDS)
        heapq.heappush(self._heap, (at, self.rng.random(), turn, actor))
        if topic is not None:
            self._waiting.setdefault(topic, {})[actor] = None
            actor.topic = topic

    def tell(self, topic: str) -> None:
        """Wake all who wait for the topic: they go on in a moment."""
        waiting = self._waiting.get(topic)
        if waiting:
            actors = list(waiting)
            waiting.clear()
            for actor in actors:
                self.schedule(actor, self.rng.random() * 0.01)

    def run(
        self,
        after_step: Callable[[Actor, Step | None], tuple[float, str | None] | None],
        *,
        until_seconds: float,
        is_over: Callable[[], bool],
    ) -> None:
        """Run until then or until ``is_over``.

        ``after_step`` says when an actor goes on: after so long, or when a topic is told; None: never.
        """
        end = self.start + round(until_seconds * MICROSECONDS)
        heap, waiting = self._heap, self._waiting
        pop = heapq.heappop
        while heap and heap[0][0] <= end:
            at, _, turn, actor = pop(heap)
            if turn != actor.turn:
                continue  # it was woken before
            if actor.topic is not None:
                waiting[actor.topic].pop(actor, None)
                actor.topic = None
            self.now = at
            self.steps += 1
            if self.steps % 64 == 0 and is_over():
                return
            goes_on = after_step(actor, actor.resume())
            if goes_on is not None:
                self.schedule(actor, goes_on[0], topic=goes_on[1])


class SimulatedClock:
    """The clock of one actor: that of the simulation, and how far it is off. Sleeping is a step."""

    __slots__ = ("_scheduler", "offset")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # In microseconds.
        self.offset = 0

    def now(self) -> int:
        return self._scheduler.now + self.offset

    def monotonic(self) -> int:
        return self._scheduler.now

    async def sleep(self, seconds: float) -> None:
        await Step("sleep", seconds)
