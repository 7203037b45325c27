"""The clocks, held against their contract."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from weft.clock import RealClock, ServerClock, VirtualClock
from weft.core.time import MICROSECONDS
from weft.testing.clock_contract import ClockContract

if TYPE_CHECKING:
    from collections.abc import Callable


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


SERVER_NOW = 1_800_000_000 * MICROSECONDS


class TestServerClock(ClockContract):
    """Half a second: how long a late answer took. The machine and the server are days apart."""

    @pytest.fixture
    def machine(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def server(self, machine: VirtualClock) -> Callable[[], int]:
        """The time of the server, which passes with that of the machine."""
        ahead = SERVER_NOW - machine.now()
        return lambda: machine.now() + ahead

    @pytest.fixture
    def clock(self, machine: VirtualClock) -> ServerClock:
        return ServerClock(machine)

    @staticmethod
    def ask(
        clock: ServerClock, machine: VirtualClock, server: Callable[[], int], there: float, back: float
    ) -> None:
        """Ask the server for its time: so many seconds there, and so many back."""
        asked_at = clock.monotonic()
        machine.advance(there)
        said = server()
        machine.advance(back)
        clock.follow(said, asked_at=asked_at)

    def test_the_first_answer_counts_whatever_the_machine_said_before(
        self, clock: ServerClock, machine: VirtualClock
    ) -> None:
        before = clock.now()
        clock.follow(before - 3600 * MICROSECONDS, asked_at=clock.monotonic())
        assert clock.now() == before - 3600 * MICROSECONDS
        machine.advance(1)
        assert clock.now() == before - 3599 * MICROSECONDS

    @pytest.mark.parametrize(("there", "back"), [(0.5, 0.0), (0.0, 0.5)])
    def test_a_late_answer_does_not_replace_one_that_came_at_once(
        self, clock: ServerClock, machine: VirtualClock, server: Callable[[], int], there: float, back: float
    ) -> None:
        self.ask(clock, machine, server, there, back)
        assert abs(clock.now() - server()) == 0.25 * MICROSECONDS
        self.ask(clock, machine, server, 0.001, 0.001)
        machine.advance(1)
        assert clock.now() == server()
        self.ask(clock, machine, server, there, back)
        assert clock.now() == server()

    def test_the_time_of_another_server_is_taken_over(
        self, clock: ServerClock, machine: VirtualClock, server: Callable[[], int]
    ) -> None:
        self.ask(clock, machine, server, 0.001, 0.001)
        self.ask(clock, machine, lambda: server() + 60 * MICROSECONDS, 0.25, 0.25)
        assert clock.now() == server() + 60 * MICROSECONDS

    def test_a_measure_grows_old(
        self, clock: ServerClock, machine: VirtualClock, server: Callable[[], int]
    ) -> None:
        self.ask(clock, machine, server, 0.001, 0.001)
        machine.advance(60)
        # Two crystals: within a minute the server has lost ten milliseconds.
        self.ask(clock, machine, lambda: server() + 10_000, 0.02, 0.02)
        assert clock.now() == server() + 10_000


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
