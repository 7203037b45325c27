"""The time. Nobody else asks the operating system for it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

from weft.core.time import MICROSECONDS

# A test may give a process a clock that is wrong by so many seconds.
_WRONG_NS = int(float(os.environ.get("WEFT_TEST_CLOCK_OFFSET", "0")) * 1e9)
_OFFSET_NS = time.time_ns() - time.monotonic_ns() + _WRONG_NS


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


class ServerClock:
    """The time of a server that many share, carried on by this machine's monotonic clock.

    What a process's own clock says of the time of day is of no consequence to a fleet.
    """

    def __init__(self) -> None:
        self._real = RealClock()
        self._ahead = 0
        self._latest = 0

    def now(self) -> int:
        self._latest = max(self._latest, self._real.now() + self._ahead)
        return self._latest

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def begin(self) -> int:
        """Give this machine's own time, when the server is asked for its."""
        return self._real.now()

    def follow(self, server_now: int, *, asked_at: int) -> int:
        """Take over the time that the server gave; give by how much this machine was ahead of it.

        It is taken to be that of the middle of the call.
        """
        answered_at = self._real.now()
        self._ahead = server_now - (asked_at + answered_at) // 2
        return -self._ahead


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
