"""The wait before the next attempt."""

from __future__ import annotations

import pytest

from weft.core.judge import delay_seconds
from weft.definition.model import RetryPolicy

PLAIN = RetryPolicy(base_delay_seconds=1.0, multiplier=2.0, max_delay_seconds=300, jitter=0)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (100, 300)])
def test_the_wait_doubles_up_to_its_cap(failures: int, seconds: float) -> None:
    assert delay_seconds(PLAIN, failures=failures, draw=0.5) == seconds


@pytest.mark.parametrize(("draw", "seconds"), [(0, 300), (0.5, 375), (0.999, 449.85)])
def test_jitter_comes_on_top_of_the_cap(draw: float, seconds: float) -> None:
    policy = RetryPolicy(base_delay_seconds=1.0, multiplier=2.0, max_delay_seconds=300, jitter=0.5)
    assert delay_seconds(policy, failures=20, draw=draw) == pytest.approx(seconds)


def test_retry_after_is_a_floor_and_no_more() -> None:
    assert delay_seconds(PLAIN, failures=1, draw=0, retry_after_seconds=10) == 10
    assert delay_seconds(PLAIN, failures=6, draw=0, retry_after_seconds=10) == 32
    assert delay_seconds(PLAIN, failures=20, draw=0, retry_after_seconds=3600) == 3600


def test_a_power_too_large_for_a_number_is_the_cap() -> None:
    policy = RetryPolicy(base_delay_seconds=1.0, multiplier=1000.0, max_delay_seconds=300, jitter=0)
    assert delay_seconds(policy, failures=200, draw=0) == 300


def test_no_base_delay_is_no_delay_even_then() -> None:
    policy = RetryPolicy(base_delay_seconds=0.0, multiplier=1000.0, max_delay_seconds=300, jitter=1)
    assert delay_seconds(policy, failures=200, draw=0.9) == 0
