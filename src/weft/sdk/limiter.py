"""Token buckets that a program hands to its executors, and may share between them.

The bucket belongs to the limiter, so it stays empty from one execution to the next; the line beside it
belongs to an engine, which releases its own nodes alone. Where two engines saw the same token, the second
to spend it stands in line again.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.limits.contract import Released

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.clock import Clock
    from weft.limits.contract import Ticket


class TokenBucketRateLimiter:
    """Lets ``rate_per_second`` attempts start a second on average, and at most ``burst`` at once."""

    def __init__(self, rate_per_second: float, burst: int = 1) -> None:
        if not 0 < rate_per_second < inf:
            raise ValueError(f"rate_per_second needs a number above 0, not {rate_per_second!r}")
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
            raise ValueError(f"burst needs a whole number from 1 up, not {burst!r}")
        self.rate_per_second = rate_per_second
        self.burst = burst
        self._clock = RealClock()
        # GCRA: the whole state of a bucket is the moment at which it is full again.
        self._interval = MICROSECONDS / rate_per_second
        self._full_at = 0.0

    def __repr__(self) -> str:
        return f"TokenBucketRateLimiter({self.rate_per_second:g}, burst={self.burst})"

    def tokens(self) -> int:
        """Count the whole tokens that are there."""
        # A hair of tolerance, because the moment is a sum of fractions.
        return int(self.burst - self._missing() / self._interval + 1e-6)

    def wait_micros(self, *, taken: int) -> int:
        """Say how long it takes until one more token than ``taken`` is there."""
        return max(0, round(self._missing() - (self.burst - taken - 1) * self._interval))

    def spend(self) -> None:
        """Take a token, which must be there."""
        self._full_at = max(self._full_at, self._clock.now()) + self._interval

    def _missing(self) -> float:
        return max(0.0, self._full_at - self._clock.now())


class SharedLimits:
    """The rates of one engine, by the limiters it was given."""

    def __init__(self, limiters: Mapping[str, TokenBucketRateLimiter], *, clock: Clock) -> None:
        self._limiters = limiters
        self._clock = clock
        # Dicts as ordered sets: who stands in the line, and who was let go and has not started.
        self._lines: dict[str, dict[Ticket, None]] = {tag: {} for tag in limiters}
        self._released: dict[str, dict[Ticket, None]] = {tag: {} for tag in limiters}

    def limited(self, tag: str) -> bool:
        return tag in self._limiters

    async def join(self, tag: str, ticket: Ticket) -> None:
        if ticket not in self._released[tag]:
            self._lines[tag].setdefault(ticket)

    async def release(self) -> Released:
        tickets = []
        waits = []
        for tag, limiter in self._limiters.items():
            line, released = self._lines[tag], self._released[tag]
            room = limiter.tokens() - len(released)
            while line and room > 0:
                ticket = next(iter(line))
                del line[ticket]
                released[ticket] = None
                tickets.append((tag, ticket))
                room -= 1
            if line and len(released) < limiter.burst:
                waits.append(limiter.wait_micros(taken=len(released)))
        return Released(tickets, self._clock.now() + min(waits) if waits else None)

    async def spend(self, tag: str, ticket: Ticket) -> bool:
        limiter = self._limiters.get(tag)
        if limiter is None:
            return True
        self._released[tag].pop(ticket, None)
        if limiter.tokens() - len(self._released[tag]) < 1:
            return False
        self._lines[tag].pop(ticket, None)
        limiter.spend()
        return True

    async def leave(self, tag: str, ticket: Ticket) -> None:
        if tag in self._limiters:
            self._lines[tag].pop(ticket, None)
            self._released[tag].pop(ticket, None)

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        raise AssertionError("nobody calls an executor from outside")
