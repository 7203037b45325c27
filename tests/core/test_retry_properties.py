"""Bounds of the wait before the next attempt, for every policy that validation lets pass."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.core.judge import delay_seconds
from weft.definition.model import MAX_RETRIES, MAX_TIMEOUT_SECONDS, RetryPolicy

DELAYS = st.floats(0, MAX_TIMEOUT_SECONDS)
POLICIES = st.builds(
    RetryPolicy,
    base_delay_seconds=DELAYS,
    multiplier=st.floats(1, 1000),
    max_delay_seconds=DELAYS,
    jitter=st.floats(0, 1),
)
DRAWS = st.floats(0, 1, exclude_max=True)
FAILURES = st.integers(1, MAX_RETRIES)
FLOORS = st.none() | DELAYS


@given(POLICIES, FAILURES, DRAWS, FLOORS)
def test_it_lies_between_its_floor_and_its_cap(
    policy: RetryPolicy, failures: int, draw: float, floor: float | None
) -> None:
    wait = delay_seconds(policy, failures=failures, draw=draw, retry_after_seconds=floor)
    least = min(policy.base_delay_seconds, policy.max_delay_seconds)
    most = policy.max_delay_seconds * (1 + policy.jitter)
    assert max(least, floor or 0) <= wait <= max(most, floor or 0)


@given(POLICIES, FAILURES, DRAWS)
def test_it_never_shrinks_with_the_failures(policy: RetryPolicy, failures: int, draw: float) -> None:
    one = delay_seconds(policy, failures=failures, draw=draw)
    next_one = delay_seconds(policy, failures=failures + 1, draw=draw)
    assert one <= next_one


@given(POLICIES, FAILURES, DRAWS, DRAWS)
def test_it_follows_the_draw(policy: RetryPolicy, failures: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert delay_seconds(policy, failures=failures, draw=low) <= delay_seconds(
        policy, failures=failures, draw=high
    )
