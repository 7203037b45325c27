"""The clocks, held against their contract."""

from __future__ import annotations

import asyncio
import time

import pytest

from weft.clock import RealClock, VirtualClock
from weft.core.time import MICROSECONDS
from weft.testing.clock_contract import ClockContract


class TestRealClock(ClockContract):
    @pytest.fixture
    def clock(self) -> RealClock:
        return RealClock()

    def test_a_step_of_the_wall_clock_is_not_followed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = RealClock()
        before = clock.now()
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        assert clock.now() >= before

    def test_it_is_the_wall_clock_of_when_the_process_began(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = RealClock().now()
        assert abs(before - time.time_ns() // 1_000) < 60 * MICROSECONDS
        monkeypatch.setattr(time, "time_ns", lambda: 2_000_000_000 * 1_000_000_000)
        assert RealClock().now() - before < 60 * MICROSECONDS


class TestVirtualClock(ClockContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    def test_time_stands_still_until_it_is_told_to_pass(self) -> None:
        clock = VirtualClock(start=7)
        assert clock.now() == clock.now() == 7
        clock.advance(1.5)
        assert clock.now() == 7 + 1_500_000

    def test_it_cannot_be_set_back(self) -> None:
        with pytest.raises(AssertionError):
            VirtualClock().advance(-1)

    async def test_a_sleep_takes_no_time_of_ours_and_lets_others_run(self) -> None:
        clock = VirtualClock()
        before = clock.now()
        ran = []

        async def other() -> None:
            ran.append(clock.now() - before)

        task = asyncio.create_task(other())
        await clock.sleep(3600)
        assert ran == [3600 * MICROSECONDS]
        await task
