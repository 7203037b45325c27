"""The contract of every limiter, as tests. An adapter's suite is a subclass with the fixture ``new_limits``.

It makes an empty limiter of some rates, with releases of ``RELEASE_SECONDS`` and the time of ``clock``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

import pytest

from weft.clock import VirtualClock
from weft.core.attempt import AttemptRef
from weft.core.time import MICROSECONDS, micros
from weft.limits.contract import Limits, Rate

NewLimits: TypeAlias = Callable[[Mapping[str, Rate]], Awaitable[Limits]]


def ticket(number: int) -> AttemptRef:
    return AttemptRef("x1", 1, f"n{number}", 1)


class LimitsContract:
    RELEASE_SECONDS = 100.0

    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def new_limits(self, clock: VirtualClock) -> NewLimits:
        raise NotImplementedError("an adapter's suite gives this fixture")

    # -- resource tags -----------------------------------------------------------------------------

    async def test_a_tag_without_a_rate_is_not_limited(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1)})
        assert limits.limited("api")
        assert not limits.limited("other")
        for number in range(100):
            assert await limits.spend("other", ticket(number))
        await limits.leave("other", ticket(0))

    async def test_a_full_bucket_lets_its_burst_go_and_no_more(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1, burst=3)})
        await join_queue(limits, "api", 5)
        assert await released(limits) == [0, 1, 2]
        assert await released(limits) == []

    async def test_the_first_in_the_queue_goes_first(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1, burst=2)})
        for number in (7, 3, 5):
            await limits.join("api", ticket(number))
        assert await released(limits) == [7, 3]

    async def test_joining_twice_is_standing_once(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1, burst=5)})
        await join_queue(limits, "api", 2)
        await join_queue(limits, "api", 2)
        assert await released(limits) == [0, 1]
        # Let go and not started: there is nothing to wait for.
        await join_queue(limits, "api", 2)
        assert await released(limits) == []

    async def test_each_waiting_ticket_is_told_when_its_token_is_there(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(2, burst=2)})
        await join_queue(limits, "api", 5)
        now = clock.now()
        seconds = [(at - now) / MICROSECONDS for at in (await limits.due("api")).values()]
        assert seconds == [0.0, 0.0, 0.5, 1.0, 1.5]
        for number in await released(limits):
            assert await limits.spend("api", ticket(number))
        due = await limits.due("api")
        assert [(number, (due[ticket(number)] - now) / MICROSECONDS) for number in (2, 3, 4)] == [
            (2, 0.5),
            (3, 1.0),
            (4, 1.5),
        ]
        assert due.keys() == {ticket(2), ticket(3), ticket(4)}
        clock.advance(0.5)
        assert await released(limits) == [2], "what was said comes true"
        assert await limits.due("other") == {}

    async def test_a_token_is_spent_by_the_start_and_not_by_the_release(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(1)})
        await join_queue(limits, "api", 2)
        assert await released(limits) == [0]
        # The worker is busy for a minute; no more than one token is there all that time.
        clock.advance(60)
        assert await released(limits) == []
        assert await limits.spend("api", ticket(0))
        assert await released(limits) == []
        clock.advance(1)
        assert await released(limits) == [1]

    async def test_what_was_let_go_never_exceeds_the_tokens(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(2, burst=3)})
        await join_queue(limits, "api", 9)
        waiting = await released(limits)
        for step in range(20):
            clock.advance(0.3)
            if waiting and step % 2:
                assert await limits.spend("api", ticket(waiting.pop(0)))
            waiting += await released(limits)
            assert len(waiting) <= 3
        # Each of them finds its token.
        for number in waiting:
            assert await limits.spend("api", ticket(number))

    async def test_a_start_out_of_turn_takes_no_token_that_another_was_let_go_for(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(1, burst=2)})
        await join_queue(limits, "api", 1)
        assert await released(limits) == [0]
        assert await limits.spend("api", ticket(8))
        assert not await limits.spend("api", ticket(9))
        assert await limits.spend("api", ticket(0))

    async def test_who_finds_no_token_can_stand_in_line_again(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(1)})
        assert await limits.spend("api", ticket(0))
        assert not await limits.spend("api", ticket(1))
        await limits.join("api", ticket(1))
        clock.advance(1)
        assert await released(limits) == [1]
        assert await limits.spend("api", ticket(1))

    async def test_a_release_that_is_given_up_goes_to_the_next(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1)})
        await join_queue(limits, "api", 3)
        assert await released(limits) == [0]
        await limits.leave("api", ticket(1))
        await limits.leave("api", ticket(0))
        assert await released(limits) == [2]

    async def test_the_next_token_is_there_when_it_is_said_to_be(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(3)})
        await join_queue(limits, "api", 7)
        for number in range(6):
            assert await released(limits) == [number]
            assert await limits.spend("api", ticket(number))
            next_at = (await limits.release()).next_at
            assert next_at is not None
            clock.advance((next_at - 1 - clock.now()) / MICROSECONDS)
            assert await released(limits) == []
            clock.advance(1 / MICROSECONDS)
        assert await released(limits) == [6]

    async def test_where_nobody_waits_there_is_no_next_time(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"api": Rate(1, burst=2)})
        assert (await limits.release()).next_at is None
        await join_queue(limits, "api", 2)
        for number in await released(limits):
            assert await limits.spend("api", ticket(number))
        assert (await limits.release()).next_at is None

    async def test_where_every_token_is_reserved_the_next_look_is_an_interval_later(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(1.5)})
        await limits.join("api", ticket(1))
        await limits.join("api", ticket(2))
        # Rounded up: a microsecond earlier there is no token.
        assert (await limits.release()).next_at == clock.now() + 666_667

    async def test_a_release_that_led_to_no_start_is_made_again_before_the_queue(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(1)})
        await join_queue(limits, "api", 2)
        assert await released(limits) == [0]
        assert (await limits.release()).next_at == clock.now() + MICROSECONDS
        clock.advance(self.RELEASE_SECONDS - 1)
        assert await released(limits) == []
        clock.advance(1)
        assert await released(limits) == [0]
        assert await limits.spend("api", ticket(0))
        clock.advance(1)
        assert await released(limits) == [1]

    async def test_a_rate_below_one_a_second(self, new_limits: NewLimits, clock: VirtualClock) -> None:
        limits = await new_limits({"api": Rate(0.1)})
        await join_queue(limits, "api", 2)
        assert await released(limits) == [0]
        assert await limits.spend("api", ticket(0))
        assert (await limits.release()).next_at == clock.now() + micros(10)
        clock.advance(10)
        assert await released(limits) == [1]

    async def test_an_idle_bucket_fills_up_to_its_burst(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({"api": Rate(10, burst=2)})
        for _ in range(3):
            assert await limits.spend("api", ticket(0))
            assert await limits.spend("api", ticket(1))
            assert not await limits.spend("api", ticket(2))
            clock.advance(3600)

    async def test_tags_do_not_touch_each_other(self, new_limits: NewLimits) -> None:
        limits = await new_limits({"one": Rate(1), "two": Rate(1)})
        assert await limits.spend("one", ticket(0))
        await limits.join("one", ticket(1))
        await limits.join("two", ticket(1))
        assert [tag for tag, _ in (await limits.release()).tickets] == ["two"]

    @pytest.mark.parametrize(
        "rate", [Rate(0.3), Rate(7, burst=3), Rate(333, burst=1), Rate(2999.7, burst=10)]
    )
    async def test_over_any_window_there_are_no_more_starts_than_rate_and_burst_allow(
        self, new_limits: NewLimits, clock: VirtualClock, rate: Rate
    ) -> None:
        limits = await new_limits({"api": rate})
        starts: list[int] = []
        # Two impatient callers: one asks again and again, the other whenever a token is due.
        for step in range(600):
            while await limits.spend("api", ticket(0)):
                starts.append(clock.now())
            await limits.join("api", ticket(step + 1))
            found = await limits.release()
            for tag, given in found.tickets:
                assert await limits.spend(tag, given)
                starts.append(clock.now())
            clock.advance((0.37 if step % 10 else 2.0) / rate.rate_per_second)
        at_most_as_often(starts, rate)
        # Nor are there much fewer: nobody who waits is forgotten.
        assert len(starts) >= 0.6 * rate.rate_per_second * (clock.now() - starts[0]) / MICROSECONDS

    # -- sliding windows -----------------------------------------------------------------------------

    async def test_a_window_allows_its_limit_and_says_how_long_to_wait(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({})
        for _ in range(3):
            assert await limits.hit("k", limit=3, window_seconds=10) == 0.0
            clock.advance(1)
        assert await limits.hit("k", limit=3, window_seconds=10) == 7.0
        clock.advance(6.999999)
        assert await limits.hit("k", limit=3, window_seconds=10) == pytest.approx(0.000001)
        clock.advance(0.000001)
        assert await limits.hit("k", limit=3, window_seconds=10) == 0.0

    async def test_a_refused_call_does_not_count(self, new_limits: NewLimits, clock: VirtualClock) -> None:
        limits = await new_limits({})
        assert await limits.hit("k", limit=1, window_seconds=10) == 0.0
        for _ in range(5):
            assert await limits.hit("k", limit=1, window_seconds=10) == 10.0
        clock.advance(10)
        assert await limits.hit("k", limit=1, window_seconds=10) == 0.0

    async def test_a_window_slides_and_does_not_begin_anew(
        self, new_limits: NewLimits, clock: VirtualClock
    ) -> None:
        limits = await new_limits({})
        allowed: list[int] = []
        for _ in range(200):
            if await limits.hit("k", limit=5, window_seconds=10) == 0.0:
                allowed.append(clock.now())
            clock.advance(0.7)
        for index in range(len(allowed) - 5):
            assert allowed[index + 5] - allowed[index] >= micros(10)

    async def test_keys_do_not_touch_each_other(self, new_limits: NewLimits) -> None:
        limits = await new_limits({})
        assert await limits.hit("one", limit=1, window_seconds=10) == 0.0
        assert await limits.hit("two", limit=1, window_seconds=10) == 0.0
        assert await limits.hit("one", limit=1, window_seconds=10) > 0


async def join_queue(limits: Limits, tag: str, count: int) -> None:
    for number in range(count):
        await limits.join(tag, ticket(number))


async def released(limits: Limits) -> list[int]:
    """Release, and give the numbers of those that were let go."""
    return [int(given.node_id[1:]) for _, given in (await limits.release()).tickets]


def at_most_as_often(starts: list[int], rate: Rate) -> None:
    """Check every window from one start to another: at most rate · t + burst starts in it."""
    for first in range(len(starts)):
        for last in range(first, min(len(starts), first + 200)):
            seconds = (starts[last] - starts[first]) / MICROSECONDS
            assert last - first + 1 <= rate.rate_per_second * seconds + rate.burst + 1e-6
