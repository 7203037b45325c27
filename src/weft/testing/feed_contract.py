"""The contract of every feed, as tests. An adapter's suite is a subclass with the fixture ``feed``.

The feed it makes holds ``HELD_EVENTS`` events for a subscriber.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from weft.core.rows import History
from weft.feed.contract import QUEUED, Feed

if TYPE_CHECKING:
    from weft.feed.contract import Subscription

# More than any feed takes to pass an event on; nothing waits for it unless it fails.
PATIENCE_SECONDS = 10.0


def event(seq: int, *, execution: str = "x1", type_: str = "node.completed") -> History:
    return History(seq=seq, at=seq, type=type_, execution=execution, generation=1)


async def heard(subscription: Subscription, count: int) -> list[History]:
    """Hear until so many events have come."""
    got: list[History] = []
    while len(got) < count:
        more = await subscription.receive(wait_seconds=PATIENCE_SECONDS)
        assert more, f"nothing came after {len(got)} of {count} events"
        got.extend(more)
    return got


class FeedContract:
    HELD_EVENTS = 8

    @pytest.fixture
    def feed(self) -> Feed:
        raise NotImplementedError("an adapter's suite gives this fixture")

    async def test_what_is_told_is_heard_in_order(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as subscription:
            feed.publish([event(1), event(2)], namespace="a")
            feed.publish([event(3)], namespace="a")
            assert [one.seq for one in await heard(subscription, 3)] == [1, 2, 3]

    async def test_an_event_comes_as_it_was_told(self, feed: Feed) -> None:
        told = History(
            seq=4,
            at=17,
            type="node.failed",
            execution="x1",
            generation=2,
            node="b",
            attempt=3,
            state="FAILED",
            error={"code": "timeout", "message": "too slow", "retryable": True},
            worker="w1",
            queued_at=1,
            started_at=2,
            finished_at=3,
        )
        async with feed.subscribe(execution_id="x1") as subscription:
            feed.publish([told], namespace="a")
            assert await heard(subscription, 1) == [told]

    async def test_one_execution_does_not_hear_of_another(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as subscription:
            feed.publish([event(1, execution="x2"), event(2, execution="x1")], namespace="a")
            assert [one.execution for one in await heard(subscription, 1)] == ["x1"]

    async def test_a_namespace_hears_all_its_executions_and_no_others(self, feed: Feed) -> None:
        async with feed.subscribe(namespace="a") as subscription:
            feed.publish([event(1, execution="x3")], namespace="b")
            feed.publish([event(1), event(1, execution="x2")], namespace="a")
            assert [one.execution for one in await heard(subscription, 2)] == ["x1", "x2"]

    async def test_all_who_listen_hear_it(self, feed: Feed) -> None:
        async with (
            feed.subscribe(execution_id="x1") as first,
            feed.subscribe(execution_id="x1") as second,
            feed.subscribe(namespace="a") as third,
        ):
            feed.publish([event(1)], namespace="a")
            for subscription in (first, second, third):
                assert [one.seq for one in await heard(subscription, 1)] == [1]

    async def test_who_names_types_hears_those_only(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1", types={"execution.failed"}) as subscription:
            feed.publish(
                [event(1), event(2, type_=QUEUED), event(3, type_="execution.failed")], namespace="a"
            )
            assert [one.seq for one in await heard(subscription, 1)] == [3]

    async def test_what_was_told_before_is_not_heard(self, feed: Feed) -> None:
        feed.publish([event(1)], namespace="a")
        async with feed.subscribe(execution_id="x1") as subscription:
            feed.publish([event(2)], namespace="a")
            assert [one.seq for one in await heard(subscription, 1)] == [2]

    async def test_waiting_ends_with_the_time_where_nothing_is_told(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as subscription:
            assert await subscription.receive(wait_seconds=0) == []
            assert await subscription.receive(wait_seconds=0.01) == []

    async def test_who_waits_is_woken_by_the_telling(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as subscription:
            waiting = asyncio.create_task(heard(subscription, 1))
            await asyncio.sleep(0)
            feed.publish([event(1)], namespace="a")
            assert [one.seq for one in await waiting] == [1]

    async def test_who_was_cancelled_while_waiting_may_hear_on(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as subscription:
            waiting = asyncio.create_task(heard(subscription, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            feed.publish([event(1)], namespace="a")
            assert [one.seq for one in await heard(subscription, 1)] == [1]

    async def test_a_slow_one_misses_the_oldest_and_is_told_how_many(self, feed: Feed) -> None:
        told = self.HELD_EVENTS + 3
        async with feed.subscribe(execution_id="x1") as subscription:
            feed.publish([event(seq) for seq in range(1, told + 1)], namespace="a")
            got = list(await subscription.receive(wait_seconds=PATIENCE_SECONDS))
            missed = subscription.missed
            while len(got) + missed < told:
                got += await subscription.receive(wait_seconds=PATIENCE_SECONDS)
                missed += subscription.missed
            assert [one.seq for one in got] == list(range(1 + missed, told + 1))
            assert missed == 3
            feed.publish([event(99)], namespace="a")
            assert [one.seq for one in await heard(subscription, 1)] == [99]
            assert subscription.missed == 0

    async def test_a_slow_one_costs_the_others_nothing(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1"), feed.subscribe(execution_id="x1") as quick:
            for seq in range(1, 5 * self.HELD_EVENTS):
                feed.publish([event(seq)], namespace="a")
                assert [one.seq for one in await heard(quick, 1)] == [seq]
            assert quick.missed == 0

    async def test_live_events_are_wanted_only_while_somebody_may_hear_them(self, feed: Feed) -> None:
        assert not feed.has_subscriber("x1")
        async with feed.subscribe(execution_id="x1"):
            assert feed.has_subscriber("x1")
        assert not feed.has_subscriber("x1")
        async with feed.subscribe(namespace="a"):
            assert feed.has_subscriber("x1")
        assert not feed.has_subscriber("x1")

    async def test_who_names_types_is_no_reason_for_live_events(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1", types={"execution.failed"}):
            assert not feed.has_subscriber("x1")

    async def test_a_feed_has_listeners_from_the_first_to_the_last(self, feed: Feed) -> None:
        listening = [feed.has_listeners]
        async with feed.subscribe(execution_id="x1", types={"execution.failed"}):
            listening.append(feed.has_listeners)
            async with feed.subscribe(namespace="a"):
                listening.append(feed.has_listeners)
            listening.append(feed.has_listeners)
        listening.append(feed.has_listeners)
        assert listening == [False, True, True, True, False]

    async def test_one_who_leaves_takes_nothing_from_those_who_stay(self, feed: Feed) -> None:
        async with feed.subscribe(execution_id="x1") as stays:
            async with feed.subscribe(execution_id="x1"):
                pass
            assert feed.has_subscriber("x1")
            feed.publish([event(1)], namespace="a")
            assert [one.seq for one in await heard(stays, 1)] == [1]
