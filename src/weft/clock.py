"""The time. Nobody else asks the operating system for it."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

import uuid_utils

from weft.core.time import MICROSECONDS

# A test may give a process a clock that is wrong by so many seconds.
_WRONG_NS = int(float(os.environ.get("WEFT_TEST_CLOCK_OFFSET", "0")) * 1e9)
_OFFSET_NS = time.time_ns() - time.monotonic_ns() + _WRONG_NS


def new_id() -> str:
    """Return a new id; ids sort by the time they were made."""
    return str(uuid_utils.uuid7())


class Clock(Protocol):
    def now(self) -> int:
        """Return microseconds since 1970; never smaller than before."""

    def monotonic(self) -> int:
        """Return microseconds of a clock that nothing corrects: only a difference of two means anything."""

    async def sleep(self, seconds: float) -> None:
        """Return when so much time has passed."""


class RealClock:
    """Wall time as it was at the start, carried on by the monotonic clock.

    A step of the wall clock changes neither leases nor the order of times, and all clocks of a process
    agree.
    """

    def now(self) -> int:
        return (time.monotonic_ns() + _OFFSET_NS) // 1000

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


# No two clocks move apart by more than this part of the time that passes.
_DRIFT = 1e-3


class ServerClock:
    """The time of a server that many share, carried on by this machine's monotonic clock.

    What a process's own clock says of the time of day is of no consequence to a fleet. Each answer of the
    server bounds the difference of the two clocks: the server's time was read between the question and its
    answer, so the middle of the two is wrong by half the round trip at most. The tightest bound counts, and
    loosens with the time that passes: an answer that came late does not replace one that came at once.
    """

    def __init__(self, machine: Clock | None = None) -> None:
        """``machine``: the clock of this machine, where a test has another than the real one."""
        self._machine = machine or RealClock()
        self._ahead = 0
        # By how much ``_ahead`` may be wrong, as of when; None: the server has not answered yet.
        self._error: float | None = None
        self._measured_at = 0
        self._latest = 0

    def now(self) -> int:
        self._latest = max(self._latest, self._machine.monotonic() + self._ahead)
        return self._latest

    def monotonic(self) -> int:
        return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)

    def follow(self, server_now: int, *, asked_at: int) -> None:
        """Learn from the time that the server answered to a question of ``asked_at``, by ``monotonic``."""
        answered_at = self._machine.monotonic()
        ahead = server_now - (asked_at + answered_at) // 2
        error = (answered_at - asked_at) / 2
        if self._error is None:
            # Until now the time was this machine's: it may be far behind what was given out.
            self._latest = 0
        else:
            known = self._error + (answered_at - self._measured_at) * _DRIFT
            # Two answers that contradict each other: the server's clock was set, or it is another server.
            if error > known and abs(ahead - self._ahead) <= error + known:
                return
        self._ahead, self._error, self._measured_at = ahead, error, answered_at


class VirtualClock:
    """Time that passes only when it is told to: by ``advance``, or by ``sleep`` itself."""

    def __init__(self, start: int = 1_700_000_000 * MICROSECONDS) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def monotonic(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        assert seconds >= 0, "time does not go back"
        self._now += round(seconds * MICROSECONDS)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)
