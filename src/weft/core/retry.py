"""How long to wait before the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.definition.model import RetryPolicy


# The code of an error that a service's status made: only a service's answer has a ``Retry-After``.
SERVICE_STATUS = "http_status"
# What a service may ask for at most, unless the settings or the node's policy say more (MAX_RETRY_AFTER).
DEFAULT_MAX_RETRY_AFTER_SECONDS = 3600.0


def allowed_retry_after(
    error: Mapping[str, Any], policy: RetryPolicy, asked: float | None, *, most_seconds: float
) -> float | None:
    """Return the wait that was asked for, cut to the ceiling where a service asked for it.

    A service outside could hold a node for a year. What a user's own function asks for by ``weft.RetryAfter``
    is the word of whoever wrote the workflow, and stays.
    """
    if asked is None or error.get("code") != SERVICE_STATUS:
        return asked
    return min(asked, max(most_seconds, policy.max_delay_seconds))


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
