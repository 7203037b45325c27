"""Token buckets that a program hands to its executors, and may share between them."""

from __future__ import annotations

from math import inf

from weft.limits.bucket import Bucket
from weft.limits.contract import Rate


class TokenBucketRateLimiter:
    """Lets ``rate_per_second`` attempts start a second on average, and at most ``burst`` at once.

    The bucket is the limiter's: it stays empty from one execution to the next. The line beside it belongs
    to an engine, which releases its own nodes alone; where two engines saw the same token, the second to
    spend it stands in line again.
    """

    def __init__(self, rate_per_second: float, burst: int = 1) -> None:
        if not 0 < rate_per_second < inf:
            raise ValueError(f"rate_per_second needs a number above 0, not {rate_per_second!r}")
        if isinstance(burst, bool) or not isinstance(burst, int) or burst < 1:
            raise ValueError(f"burst needs a whole number from 1 up, not {burst!r}")
        self.rate_per_second = rate_per_second
        self.burst = burst
        self.bucket = Bucket(Rate(rate_per_second, burst))

    def __repr__(self) -> str:
        return f"TokenBucketRateLimiter({self.rate_per_second:g}, burst={self.burst})"
