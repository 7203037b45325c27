"""Time that takes none: an event loop that jumps to its next timer when nothing else is left to do.

Coroutines cannot tell: ``asyncio.sleep``, timeouts and ``loop.time()`` all go by the loop. What is not on
the loop can, so while anything outside works (a thread, an open socket) time passes as it does there, and
while the loop itself works it stands still. What a test sees of time is then a matter of its timers alone,
and comes out the same every time.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.worker.threads import DaemonThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

_Value = TypeVar("_Value")
_Arguments = TypeVarTuple("_Arguments")

# A plain function that ends within this time is as good as instant: nothing else happens meanwhile.
_QUICK_SECONDS = 0.05
# Of a microsecond: less than a timer can mean, more than a sum of seconds can be wrong by.
_ROUNDING = 1e-3


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        # Whole microseconds, as those of the engine's clock: sums of them are exact.
        self.micros = 0
        self._outside = 0
        self._passing = _PassingSelector(self)
        super().__init__(self._passing)
        self._own_files = len(self._passing.get_map())
        # The loop takes timers as due that are no further away than its clock can tell.
        self._clock_resolution = 1 / MICROSECONDS

    def time(self) -> float:
        return self.micros / MICROSECONDS

    @contextmanager
    def real_time(self) -> Iterator[None]:
        """Let time pass as it does outside, as long as this lasts: somebody works there."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def may_jump(self) -> bool:
        return not self._outside and len(self._passing.get_map()) == self._own_files

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[_Arguments]], _Value],
        *args: *_Arguments,
    ) -> asyncio.Future[_Value]:
        future = super().run_in_executor(executor, func, *args)
        self._outside += 1
        future.add_done_callback(self._came_back)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        with self.real_time():
            await super().shutdown_default_executor(*args)

    def _came_back(self, _: asyncio.Future[Any]) -> None:
        self._outside -= 1


class _PassingSelector(selectors.DefaultSelector):
    """Where the loop waits, and so the only place where time passes."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._clock = RealClock()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if timeout is not None and self._loop.may_jump():
            self._loop.micros += _micros(timeout)
            return ready
        began = self._clock.now()
        ready = super().select(timeout)
        passed = self._clock.now() - began
        self._loop.micros += passed if ready or timeout is None else max(passed, _micros(timeout))
        return ready


def _micros(seconds: float) -> int:
    return max(math.ceil(seconds * MICROSECONDS - _ROUNDING), 1)


class LoopClock:
    """The time of a virtual loop, which begins with the real one."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._start = RealClock().now() - loop.micros

    def now(self) -> int:
        return self._start + self._loop.micros

    def monotonic(self) -> int:
        return self._loop.micros

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class OrderlyThreads(DaemonThreads):
    """Threads for plain functions on a virtual loop.

    The loop waits a moment for each: two quick functions then never race, and end in the order in which
    they were called. Those that take longer run beside each other, in real time.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    async def run(self, work: Callable[[], _Value]) -> _Value:
        values: list[_Value] = []
        ended = threading.Event()

        def work_and_tell() -> None:
            values.append(work())
            ended.set()

        future = self.start(work_and_tell)
        if not ended.wait(_QUICK_SECONDS):
            self._loop.micros += _micros(_QUICK_SECONDS)
            with self._loop.real_time():
                await future
        return values[0]
