"""How long to wait before the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weft.definition.model import RetryPolicy


def delay_seconds(
    policy: RetryPolicy, *, failures: int, draw: float, retry_after_seconds: float | None = None
) -> float:
    """Return the wait after the ``failures``-th failure of a generation; ``draw`` is from [0, 1).

    The jitter is added to the capped delay: under the cap, all that wait at it would come back together.
    """
    backoff = policy.base_delay_seconds
    if backoff > 0:
        try:
            backoff *= policy.multiplier ** (failures - 1)
        except OverflowError:
            backoff = policy.max_delay_seconds
    backoff = min(policy.max_delay_seconds, backoff) * (1 + draw * policy.jitter)
    return max(backoff, retry_after_seconds or 0.0)
