"""Token buckets that a program hands to its executors, and may share between them."""

from __future__ import annotations

import asyncio
import threading
from math import inf
from weakref import WeakKeyDictionary

from weft.clock import RealClock
from weft.core.time import MICROSECONDS
from weft.limits.bucket import Bucket
from weft.limits.contract import Rate


class TokenBucketRateLimiter:
    """Lets ``rate_per_second`` attempts start a second on average, and at most ``burst`` at once.

    The bucket is the limiter's: it stays empty from one execution to the next. The wait queue beside it
    belongs to an engine, which releases its own nodes alone; where two engines saw the same token, the node
    of the second to spend it joins the wait queue again.
    """

    def __init__(self, rate_per_second: float = 10.0, burst: int = 1) -> None:
        if not 0 < rate_per_second < inf:
            raise ValueError(f"rate_per_second needs a number above 0, not {rate_per_second!r}")
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
            raise ValueError(f"burst needs a whole number from 1 up, not {burst!r}")
        self.rate_per_second = rate_per_second
        self.burst = burst
        self.bucket = Bucket(Rate(rate_per_second, burst))
        self._clock = RealClock()
        # A program may share a limiter between threads, each with a loop of its own.
        self._spending = threading.Lock()
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    async def acquire(self) -> None:
        """Return when a token is there, and take it: for calls that a program makes outside an executor.

        Those who wait on one loop get their tokens in the order in which they asked.
        """
        async with self._queues.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            while True:
                now = self._clock.now()
                with self._spending:
                    if self.bucket.tokens(now) > 0:
                        self.bucket.spend(now)
                        return
                await self._clock.sleep((self.bucket.next_token_at(now, taken=0) - now) / MICROSECONDS)

    def __repr__(self) -> str:
        return f"TokenBucketRateLimiter({self.rate_per_second:g}, burst={self.burst})"
