"""The transports, held against their contract."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.clock import VirtualClock
from weft.testing.transport_contract import TransportContract, a_task, fetch, numbers
from weft.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    from weft.transport.contract import Transport


class TestInProcessTransport(TransportContract):
    @pytest.fixture
    async def transport(self, clock: VirtualClock) -> Transport:
        return InProcessTransport(now=clock.now)


SENT = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=60)
FETCHES = st.lists(st.tuples(st.sets(st.sampled_from("abc")), st.integers(1, 9)), max_size=30)


@settings(deadline=None)
@given(SENT, FETCHES)
async def test_everything_is_delivered_once_and_in_order_within_its_priority(
    sent: list[tuple[str, int]], fetches: list[tuple[set[str], int]]
) -> None:
    transport = InProcessTransport(now=VirtualClock().now)
    await transport.send(
        [a_task(number, queue=queue, priority=priority) for number, (queue, priority) in enumerate(sent)]
    )
    got: list[int] = []
    for queues, limit in fetches:
        there = sum(status.depth for status in await transport.queues() if status.name in queues)
        taken = await fetch(transport, queues=sorted(queues), limit=limit)
        assert len(taken) == min(limit, there)
        assert {one.task.queue for one in taken} <= queues
        got += numbers(taken)
    got += numbers(await fetch(transport))
    assert Counter(got) == Counter(range(len(sent)))
    for lane in set(sent):
        mine = [number for number in got if sent[number] == lane]
        assert mine == sorted(mine)


async def test_a_small_execution_does_not_wait_behind_a_wide_one() -> None:
    transport = InProcessTransport(now=VirtualClock().now)
    wide, small, other = (f"execution-{name}" for name in ("wide", "small", "other"))
    await transport.send([a_task(number, execution_id=wide) for number in range(500)])
    await transport.send([a_task(number, execution_id=small) for number in range(500, 502)])
    await transport.send([a_task(502, execution_id=other)])
    taken = await fetch(transport, limit=8)
    # In turn, and each execution's in the order in which they came.
    assert numbers(taken) == [0, 500, 502, 1, 501, 2, 3, 4]
    await transport.send([a_task(503, execution_id=small)])
    assert numbers(await fetch(transport, limit=2)) == [5, 503]


async def test_many_free_slots_take_a_few_tasks_of_an_execution_in_one_turn() -> None:
    transport = InProcessTransport(now=VirtualClock().now)
    for name, first in (("wide", 0), ("other", 100)):
        await transport.send([a_task(first + number, execution_id=name) for number in range(100)])
    await transport.send([a_task(200 + number, execution_id="small") for number in range(3)])
    taken = numbers(await fetch(transport, limit=32))
    # An eighth of the slots to a turn: the tasks of a small execution run together, behind two other turns.
    assert taken[:15] == [0, 1, 2, 3, 100, 101, 102, 103, 200, 201, 202, 4, 5, 6, 7]
    # One slot is one turn.
    assert [numbers(await fetch(transport, limit=1)) for _ in range(4)] == [[16], [113], [17], [114]]


async def test_tasks_that_were_set_aside_come_back_before_the_others() -> None:
    transport = InProcessTransport(now=VirtualClock().now)
    for number, name in enumerate("abab"):
        await transport.send([a_task(number, execution_id=name, handler="rare" if name == "a" else "echo")])
    # Nobody here has the handler of `a`: its tasks are set aside.
    assert numbers(await fetch(transport, handlers=["echo"], limit=4)) == [1, 3]
    await transport.send([a_task(4, execution_id="c")])
    assert numbers(await fetch(transport, handlers=["echo", "rare"], limit=4)) == [0, 4, 2]


async def test_dropped_tasks_are_not_delivered_and_later_ones_are() -> None:
    transport = InProcessTransport(now=lambda: 0)
    await transport.send([a_task(1), a_task(2, handler="unknown")])
    # The second is set aside, the third is in flight.
    await transport.fetch("w", queues=None, limit=1, wait_seconds=0, handlers={"other"})
    await transport.send([a_task(3)])
    await transport.fetch("w", queues=None, limit=1, wait_seconds=0)
    transport.drop_tasks()
    assert await transport.claim("v", idle_seconds=0, limit=9) == ([], [])
    assert list(await transport.queues()) == []
    await transport.send([a_task(4)])
    (delivery,) = await transport.fetch("w", queues=None, limit=9, wait_seconds=0)
    assert delivery.task == a_task(4)


async def test_each_wait_ends_at_its_own_time() -> None:
    transport = InProcessTransport(now=VirtualClock().now)
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    async def waited(seconds: float) -> float:
        assert not await transport.read("reader", limit=1, wait_seconds=seconds)
        return loop.time() - began_at

    async def woken() -> int:
        return len(await transport.fetch("worker", queues=None, limit=1, wait_seconds=60))

    # The longest first, so that the alarm is set anew; and one that is woken before its time.
    waits = [asyncio.create_task(waited(seconds)) for seconds in (0.09, 0.03, 0.06)]
    fetching = asyncio.create_task(woken())
    await asyncio.sleep(0.01)
    await transport.send([a_task(1)])
    assert await fetching == 1
    ended = await asyncio.gather(*waits)
    assert 0.02 < ended[1] < ended[2] < ended[0]
