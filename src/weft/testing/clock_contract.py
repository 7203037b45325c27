"""The contract of every clock, as tests. An adapter's suite is a subclass with the fixture ``clock``."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from weft.clock import Clock

# 2020-01-01 and 2100-01-01: a time in seconds or nanoseconds would be far outside.
_EARLIEST = 1_577_836_800 * MICROSECONDS
_LATEST = 4_102_444_800 * MICROSECONDS


class ClockContract:
    @pytest.fixture
    def clock(self) -> Clock:
        raise NotImplementedError("an adapter's suite gives this fixture")

    def test_the_time_is_in_whole_microseconds_since_1970(self, clock: Clock) -> None:
        now = clock.now()
        assert isinstance(now, int)
        assert _EARLIEST < now < _LATEST

    def test_time_never_goes_back(self, clock: Clock) -> None:
        times = [clock.now() for _ in range(10_000)]
        assert all(one <= next_one for one, next_one in pairwise(times))

    async def test_after_a_sleep_so_much_time_has_passed(self, clock: Clock) -> None:
        before = clock.now()
        await clock.sleep(0.001)
        assert clock.now() - before >= 1000

    async def test_no_sleep_is_allowed(self, clock: Clock) -> None:
        before = clock.now()
        await clock.sleep(0)
        assert clock.now() >= before
