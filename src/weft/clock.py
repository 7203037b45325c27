"""The time. Nobody else asks the operating system for it."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from weft.core.time import MICROSECONDS

_OFFSET_NS = time.time_ns() - time.monotonic_ns()


class Clock(Protocol):
    def now(self) -> int:
        """Give microseconds since 1970; never smaller than before."""

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has passed."""


class RealClock:
    """Wall time as it was at the start, carried on by the monotonic clock.

    A step of the wall clock changes neither leases nor the order of times, and all clocks of a process
    agree.
    """

    def now(self) -> int:
        return (time.monotonic_ns() + _OFFSET_NS) // 1000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class VirtualClock:
    """Time that passes only when it is told to: by ``advance``, or by ``sleep`` itself."""

    def __init__(self, start: int = 1_700_000_000 * MICROSECONDS) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._now += round(seconds * MICROSECONDS)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
