"""A token bucket."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.limits.contract import Rate

_NANOSECONDS = 1_000_000_000
_PER_MICROSECOND = 1_000


class Bucket:
    """GCRA: the whole state of a token bucket is the time at which it would be full again.

    In whole nanoseconds, with the interval rounded up: a sum of fractions would drift, and a bucket that is
    asked at its own ``next_token_at`` would find the token a hair away.
    """

    __slots__ = ("_full_at", "_interval", "burst", "look_again")

    def __init__(self, rate: Rate) -> None:
        self.burst = rate.burst
        self._interval = math.ceil(_NANOSECONDS / rate.rate_per_second)
        self._full_at = 0
        # Where all tokens are promised, the next can be when one of those has started. That may happen in
        # another process and not be told: it is looked for so often, in microseconds.
        self.look_again = max(20_000, -(-self._interval // _PER_MICROSECOND))

    def tokens(self, now: int) -> int:
        """Count the whole tokens that are there."""
        missing = max(0, self._full_at - now * _PER_MICROSECOND)
        return self.burst + (-missing // self._interval)

    def next_token_at(self, now: int, *, taken: int) -> int:
        """Return when token ``taken`` + 1 is there; it may lie beyond the burst if all are spent in time."""
        full_at = max(self._full_at, now * _PER_MICROSECOND)
        at = full_at - (self.burst - taken - 1) * self._interval
        return max(now, -(-at // _PER_MICROSECOND))

    def spend(self, now: int) -> None:
        """Take a token, which must be there."""
        self._full_at = max(self._full_at, now * _PER_MICROSECOND) + self._interval
