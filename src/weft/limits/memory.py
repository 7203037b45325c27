"""Rates in this process's memory: GCRA buckets with their lines, sliding windows."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS, micros
from weft.limits.contract import Released, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.limits.contract import Rate

_NANOSECONDS = 1_000_000_000
_PER_MICROSECOND = 1_000
_MANY_KEYS = 10_000


class _Bucket:
    """GCRA: the whole state of a token bucket is the time at which it would be full again.

    In whole nanoseconds, with the interval rounded up: a sum of fractions would drift, and a bucket that is
    asked at its own ``next_token_at`` would find the token a hair away.
    """

    __slots__ = ("burst", "full_at", "interval", "line", "released")

    def __init__(self, rate: Rate) -> None:
        self.interval = math.ceil(_NANOSECONDS / rate.rate_per_second)
        self.burst = rate.burst
        self.full_at = 0
        # A dict as an ordered set: who stands in the line.
        self.line: dict[Ticket, None] = {}
        # Who was let go and has not started, and until when that is believed.
        self.released: dict[Ticket, int] = {}

    def tokens(self, now: int) -> int:
        """Count the whole tokens that are there."""
        missing = max(0, self.full_at - now * _PER_MICROSECOND)
        return self.burst + (-missing // self.interval)

    def next_token_at(self, now: int, *, taken: int) -> int:
        """Say when one more token than ``taken`` is there."""
        at = self.full_at - (self.burst - taken - 1) * self.interval
        return max(now, -(-at // _PER_MICROSECOND))

    def take_back(self, now: int) -> None:
        """Put those at the head of the line again whose release came to nothing: somebody died with it."""
        late = [ticket for ticket, until in self.released.items() if until <= now]
        for ticket in late:
            del self.released[ticket]
        if late:
            self.line = {**dict.fromkeys(late), **self.line}

    def spend(self, now: int) -> None:
        self.full_at = max(self.full_at, now * _PER_MICROSECOND) + self.interval


class _Window:
    """The calls counted against one key."""

    __slots__ = ("hits", "length")

    def __init__(self) -> None:
        self.hits: deque[int] = deque()
        self.length = 0

    def forget(self, now: int) -> None:
        while self.hits and self.hits[0] <= now - self.length:
            self.hits.popleft()


class MemoryLimits:
    def __init__(
        self, rates: Mapping[str, Rate], *, now: Callable[[], int], release_seconds: float = 15.0
    ) -> None:
        """``release_seconds``: how long a released node may take to start before it is released again."""
        self._now = now
        self._release = micros(release_seconds)
        self._buckets = {tag: _Bucket(rate) for tag, rate in rates.items()}
        self._windows: dict[str, _Window] = {}
        self._look_for_idle_at = _MANY_KEYS

    def limited(self, tag: str) -> bool:
        return tag in self._buckets

    async def join(self, tag: str, ticket: Ticket) -> None:
        bucket = self._buckets[tag]
        if ticket not in bucket.released:
            bucket.line.setdefault(ticket)

    async def release(self) -> Released:
        now = self._now()
        tickets = []
        next_at: int | None = None
        for tag, bucket in self._buckets.items():
            bucket.take_back(now)
            room = bucket.tokens(now) - len(bucket.released)
            while bucket.line and room > 0:
                ticket = next(iter(bucket.line))
                del bucket.line[ticket]
                bucket.released[ticket] = now + self._release
                tickets.append((tag, ticket))
                room -= 1
            times = list(bucket.released.values())
            if bucket.line and len(bucket.released) < bucket.burst:
                times.append(bucket.next_token_at(now, taken=len(bucket.released)))
            next_at = min(times if next_at is None else [*times, next_at], default=None)
        return Released(tickets, next_at)

    async def spend(self, tag: str, ticket: Ticket) -> bool:
        bucket = self._buckets.get(tag)
        if bucket is None:
            return True
        now = self._now()
        bucket.released.pop(ticket, None)
        if bucket.tokens(now) - len(bucket.released) < 1:
            return False
        bucket.line.pop(ticket, None)
        bucket.spend(now)
        return True

    async def leave(self, tag: str, ticket: Ticket) -> None:
        bucket = self._buckets.get(tag)
        if bucket is not None:
            bucket.line.pop(ticket, None)
            bucket.released.pop(ticket, None)

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        now = self._now()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        window.length = micros(window_seconds)
        window.forget(now)
        if len(window.hits) >= limit:
            return (window.hits[0] + window.length - now) / MICROSECONDS
        window.hits.append(now)
        if len(self._windows) > self._look_for_idle_at:
            self._forget_idle(now)
        return 0.0

    def _forget_idle(self, now: int) -> None:
        for window in self._windows.values():
            window.forget(now)
        self._windows = {key: window for key, window in self._windows.items() if window.hits}
        # Twice as many before the next look: a look costs all of them.
        self._look_for_idle_at = max(_MANY_KEYS, 2 * len(self._windows))
