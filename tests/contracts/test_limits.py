"""The limiters, held against their contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.clock import VirtualClock
from weft.core.time import MICROSECONDS
from weft.limits.contract import Rate
from weft.limits.memory import MemoryLimits
from weft.testing.limits_contract import LimitsContract, NewLimits, at_most_as_often, ticket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.limits.contract import Limits


class TestMemoryLimits(LimitsContract):
    @pytest.fixture
    def new_limits(self, clock: VirtualClock) -> NewLimits:
        async def made(rates: Mapping[str, Rate]) -> Limits:
            return MemoryLimits(rates, now=clock.now, release_seconds=self.RELEASE_SECONDS)

        return made

    async def test_ten_thousand_idle_keys_are_forgotten_and_a_busy_one_is_not(
        self, clock: VirtualClock
    ) -> None:
        limits = MemoryLimits({}, now=clock.now)
        assert await limits.hit("busy", limit=1, window_seconds=3600) == 0.0
        for number in range(9_999):
            await limits.hit(f"k{number}", limit=1, window_seconds=1)
        clock.advance(1)
        await limits.hit("one more", limit=1, window_seconds=1)
        assert len(limits._windows) == 2
        assert await limits.hit("busy", limit=1, window_seconds=3600) == 3599.0


# What callers do: wait, or try to start without waiting, join the wait queue, let go, start, give up.
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "jump", "join", "release", "start", "give up"]),
        st.integers(0, 4),
        st.floats(0, 3),
    ),
    max_size=120,
)
RATES = st.builds(Rate, st.floats(0.01, 5000), st.integers(1, 6))


@settings(max_examples=200, deadline=None)
@given(RATES, STEPS)
async def test_whatever_callers_do_a_rate_is_never_exceeded_and_no_release_is_in_vain(
    rate: Rate, steps: list[tuple[str, int, float]]
) -> None:
    clock = VirtualClock()
    limits = MemoryLimits({"api": rate}, now=clock.now, release_seconds=1e6)
    starts: list[int] = []
    let_go: set[int] = set()
    for step, number, intervals in steps:
        match step:
            case "wait":
                clock.advance(intervals / rate.rate_per_second)
            case "jump" if number not in let_go:
                if await limits.spend("api", ticket(number)):
                    starts.append(clock.now())
            case "join":
                await limits.join("api", ticket(number))
            case "release":
                let_go |= {int(one.node_id[1:]) for _, one in (await limits.release()).tickets}
                assert len(let_go) <= rate.burst
            case "start" if number in let_go:
                assert await limits.spend("api", ticket(number))
                starts.append(clock.now())
                let_go.remove(number)
            case "give up":
                await limits.leave("api", ticket(number))
                let_go.discard(number)
            case _:
                pass
    at_most_as_often(starts, rate)


@settings(max_examples=100, deadline=None)
@given(st.floats(0.01, 100_000), st.integers(1, 50))
async def test_a_queue_moves_at_its_rate(rate_per_second: float, count: int) -> None:
    clock = VirtualClock()
    limits = MemoryLimits({"api": Rate(rate_per_second)}, now=clock.now)
    for number in range(count):
        await limits.join("api", ticket(number))
    start = clock.now()
    for number in range(count):
        found = await limits.release()
        if not found.tickets:
            assert found.next_at is not None
            clock.advance((found.next_at - clock.now()) / MICROSECONDS)
            found = await limits.release()
        assert [one for _, one in found.tickets] == [ticket(number)]
        assert await limits.spend("api", ticket(number))
    # A microsecond is as near as a clock can say it.
    expected = (count - 1) / rate_per_second * MICROSECONDS
    assert expected <= clock.now() - start + 1
    assert clock.now() - start <= expected + count
