"""The contract of every transport, as tests. An adapter's suite is a subclass with the fixture ``transport``.

What was taken and not acknowledged grows old by ``clock``; where a server keeps that time itself, the
adapter's suite gives the fixture ``grow_old`` too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from weft.clock import VirtualClock
from weft.core.task import PRIORITIES, Result, Task, Wake
from weft.transport.contract import Message, QueueStatus, TaskDelivery, Transport

GrowOld: TypeAlias = Callable[[float], Awaitable[None]]

# Long enough for any machine: a test that waits so long has failed.
_PATIENCE_SECONDS = 30.0


def a_task(number: int, **fields: Any) -> Task:
    given: dict[str, Any] = {
        "execution_id": "x1",
        "generation": 1,
        "node_id": f"n{number}",
        "attempt": 1,
        "digest": "d",
        "handler": "echo",
        "queue": "q",
        "priority": PRIORITIES["normal"],
        "config": b'{"text":"\xc3\xa9"}',
        "timeout_seconds": 300.0,
        "queued_at": 1_700_000_000_000_000 + number,
        "failures": 0,
        "losses": 0,
        "epoch": 1,
    }
    return Task(**{**given, **fields})


def a_result(number: int, **fields: Any) -> Result:
    given: dict[str, Any] = {
        "execution_id": "x1",
        "generation": 1,
        "node_id": f"n{number}",
        "attempt": 1,
        "digest": "d",
        "failures": 0,
        "losses": 0,
        "worker": "w",
        "queued_at": 1,
        "started_at": 2,
        "finished_at": 3,
        "output": b'{"text":"\xc3\xa9"}',
    }
    return Result(**{**given, **fields})


class TransportContract:
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    async def transport(self, clock: VirtualClock) -> Transport:
        raise NotImplementedError("an adapter's suite gives this fixture")

    @pytest.fixture
    def grow_old(self, clock: VirtualClock) -> GrowOld:
        async def pass_time(seconds: float) -> None:
            clock.advance(seconds)

        return pass_time

    # -- tasks -------------------------------------------------------------------------------------

    async def test_what_is_sent_is_delivered_as_it_was(self, transport: Transport) -> None:
        tasks = [a_task(0), a_task(1, resource_tag="api", cache_key="k", failures=2)]
        await transport.send(tasks)
        assert [one.task for one in await fetch(transport)] == tasks

    async def test_the_tasks_of_a_queue_keep_their_order(self, transport: Transport) -> None:
        await transport.send([a_task(number) for number in range(5)])
        assert numbers(await fetch(transport)) == [0, 1, 2, 3, 4]

    async def test_no_more_are_taken_than_were_asked_for(self, transport: Transport) -> None:
        await transport.send([a_task(number) for number in range(5)])
        assert numbers(await fetch(transport, limit=2)) == [0, 1]
        assert numbers(await fetch(transport, limit=2)) == [2, 3]
        assert numbers(await fetch(transport, limit=2)) == [4]
        assert numbers(await fetch(transport, limit=2)) == []

    async def test_only_the_wanted_queues_are_served(self, transport: Transport) -> None:
        await transport.send([a_task(0, queue="a"), a_task(1, queue="b"), a_task(2, queue="c")])
        assert sorted(numbers(await fetch(transport, queues=["a", "c"]))) == [0, 2]
        assert numbers(await fetch(transport, queues=["nobody"])) == []
        assert numbers(await fetch(transport)) == [1]

    async def test_a_task_whose_handler_one_lacks_waits_for_another_who_has_it(
        self, transport: Transport
    ) -> None:
        await transport.send([a_task(number, handler=("a", "b")[number % 2]) for number in range(4)])
        assert numbers(await fetch(transport, handlers=["b"])) == [1, 3]
        assert numbers(await fetch(transport, handlers=["b"])) == []
        (seen,) = await transport.queues()
        assert (seen.depth, seen.oldest_at) == (2, a_task(0).queued_at)
        # Sent again, as what waits long may be; and others come behind.
        await transport.send([a_task(0, handler="a"), a_task(4, handler="b"), a_task(5, handler="a")])
        taken = numbers(await fetch(transport, handlers=["a"]))
        assert sorted(set(taken)) == [0, 2, 5]
        assert taken.index(0) < taken.index(2) < taken.index(5)
        assert numbers(await fetch(transport)) == [4]

    async def test_a_task_that_one_consumer_has_no_other_gets(self, transport: Transport) -> None:
        await transport.send([a_task(number) for number in range(300)])
        got: dict[str, list[int]] = {"w1": [], "w2": [], "w3": []}
        while sum(map(len, got.values())) < 300:
            for name, taken in got.items():
                taken += numbers(await fetch(transport, name, limit=7))
        assert sorted(number for taken in got.values() for number in taken) == list(range(300))
        assert all(got.values())

    async def test_what_is_not_acknowledged_comes_again_to_another(
        self, transport: Transport, grow_old: GrowOld
    ) -> None:
        await transport.send([a_task(0), a_task(1)])
        first, _ = await fetch(transport, "dies")
        await transport.ack_tasks("dies", [first.id])
        await grow_old(30)
        _, claimed = await transport.claim("lives", idle_seconds=30, limit=10)
        assert numbers(claimed) == [1]
        await transport.ack_tasks("lives", [one.id for one in claimed])
        await grow_old(30)
        assert await transport.claim("lives", idle_seconds=30, limit=10) == ([], [])

    async def test_what_was_taken_lately_is_not_claimed(
        self, transport: Transport, grow_old: GrowOld
    ) -> None:
        await transport.send([a_task(0)])
        await fetch(transport, "slow")
        await grow_old(29)
        _, claimed = await transport.claim("other", idle_seconds=30, limit=10)
        assert numbers(claimed) == []
        await grow_old(1)
        _, claimed = await transport.claim("other", idle_seconds=30, limit=10)
        assert numbers(claimed) == [0]
        # A claim counts as a new delivery.
        _, again = await transport.claim("third", idle_seconds=30, limit=10)
        assert numbers(again) == []

    async def test_a_claim_takes_no_more_than_it_was_told_to(
        self, transport: Transport, grow_old: GrowOld
    ) -> None:
        await transport.send([a_task(number) for number in range(5)])
        await fetch(transport, "dies")
        await grow_old(30)
        seen = []
        for _ in range(3):
            _, claimed = await transport.claim("lives", idle_seconds=30, limit=2)
            seen.append(len(claimed))
        assert seen == [2, 2, 1]

    async def test_an_acknowledgement_again_is_harmless(self, transport: Transport) -> None:
        await transport.send([a_task(0), a_task(1)])
        first, second = await fetch(transport)
        for _ in range(2):
            await transport.ack_tasks("w", [first.id])
        (status,) = await transport.queues()
        assert status.in_flight == 1
        await transport.ack_tasks("w", [second.id])

    # -- priorities and fairness -----------------------------------------------------------------------

    async def test_a_higher_priority_goes_first(self, transport: Transport) -> None:
        words = ["low", "normal", "high", "low", "high"]
        await transport.send([a_task(n, priority=PRIORITIES[word]) for n, word in enumerate(words)])
        assert numbers(await fetch(transport)) == [2, 4, 1, 0, 3]

    async def test_no_priority_is_starved_by_those_above_it(self, transport: Transport) -> None:
        low, normal = PRIORITIES["low"], PRIORITIES["normal"]
        await transport.send([a_task(1000 + n, priority=low) for n in range(3)])
        await transport.send([a_task(2000 + n, priority=normal) for n in range(3)])
        got: list[int] = []
        for number in range(200):
            # There is always somebody more urgent.
            await transport.send([a_task(number, priority=PRIORITIES["high"])])
            await transport.send([a_task(3000 + number, priority=low)])
            got += numbers(await fetch(transport, limit=1))
        assert {1000, 1001, 1002, 2000, 2001, 2002} <= set(got)
        assert len([number for number in got if number < 1000]) > 100

    async def test_no_queue_is_starved_by_a_longer_one(self, transport: Transport) -> None:
        await transport.send([a_task(number, queue="long") for number in range(100)])
        await transport.send([a_task(1000 + number, queue="short") for number in range(3)])
        got: list[int] = []
        for _ in range(10):
            got += numbers(await fetch(transport, limit=1))
        assert {1000, 1001, 1002} <= set(got)

    async def test_a_batch_is_shared_between_the_queues_and_filled(self, transport: Transport) -> None:
        await transport.send([a_task(number, queue="long") for number in range(100)])
        await transport.send([a_task(1000, queue="short")])
        got = numbers(await fetch(transport, limit=10))
        assert len(got) == 10
        assert 1000 in got

    # -- waiting -------------------------------------------------------------------------------------

    async def test_a_waiting_worker_is_woken_by_a_task(self, transport: Transport) -> None:
        waiting = asyncio.create_task(fetch(transport, wait_seconds=_PATIENCE_SECONDS))
        await turns()
        assert not waiting.done()
        await transport.send([a_task(0)])
        assert numbers(await in_time(waiting)) == [0]

    async def test_a_task_of_another_queue_does_not_end_the_wait(self, transport: Transport) -> None:
        waiting = asyncio.create_task(fetch(transport, queues=["mine"], wait_seconds=_PATIENCE_SECONDS))
        await turns()
        await transport.send([a_task(0, queue="other")])
        await turns()
        assert not waiting.done()
        await transport.send([a_task(1, queue="mine")])
        assert numbers(await in_time(waiting)) == [1]

    async def test_one_task_wakes_any_number_and_one_gets_it(self, transport: Transport) -> None:
        waiting = [
            asyncio.create_task(fetch(transport, f"w{n}", wait_seconds=_PATIENCE_SECONDS)) for n in range(3)
        ]
        await turns()
        await transport.send([a_task(0)])
        done, still = await asyncio.wait(
            waiting, timeout=_PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        assert [numbers(task.result()) for task in done] == [[0]]
        await transport.send([a_task(1), a_task(2)])
        for task in still:
            task.cancel()
        await asyncio.gather(*still, return_exceptions=True)

    async def test_a_wait_ends_with_nothing_where_nothing_comes(self, transport: Transport) -> None:
        assert await fetch(transport, wait_seconds=0.01) == []
        assert list(await transport.read("o", limit=10, wait_seconds=0.01)) == []

    async def test_a_wait_that_is_given_up_loses_nothing(self, transport: Transport) -> None:
        waiting = asyncio.create_task(fetch(transport, wait_seconds=_PATIENCE_SECONDS))
        await turns()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await transport.send([a_task(0)])
        assert numbers(await fetch(transport, "another")) == [0]

    async def test_a_waiting_reader_is_woken_by_a_message(self, transport: Transport) -> None:
        waiting = asyncio.create_task(transport.read("o", limit=10, wait_seconds=_PATIENCE_SECONDS))
        await turns()
        assert not waiting.done()
        await transport.publish([a_result(0)])
        assert [one.message for one in await in_time(waiting)] == [a_result(0)]

    # -- the result stream -----------------------------------------------------------------------------

    async def test_results_and_wakes_come_as_they_were_and_in_order(self, transport: Transport) -> None:
        messages: list[Message] = [
            a_result(0),
            Wake("x1", 1, "d"),
            a_result(1, output=None, error={"code": "timeout", "message": "", "retryable": True}),
            a_result(2, output=None, blob="name", output_bytes=9),
        ]
        await transport.publish(messages)
        read = await transport.read("o", limit=10, wait_seconds=0)
        assert [one.message for one in read] == messages

    async def test_a_message_that_one_reader_has_no_other_gets(self, transport: Transport) -> None:
        await transport.publish([a_result(number) for number in range(5)])
        one = await transport.read("o1", limit=3, wait_seconds=0)
        two = await transport.read("o2", limit=3, wait_seconds=0)
        assert [m.message for m in (*one, *two)] == [a_result(number) for number in range(5)]
        assert list(await transport.read("o3", limit=3, wait_seconds=0)) == []

    async def test_a_message_that_was_not_acknowledged_comes_again(
        self, transport: Transport, grow_old: GrowOld
    ) -> None:
        await transport.publish([a_result(0), a_result(1)])
        first, _ = await transport.read("dies", limit=10, wait_seconds=0)
        await transport.ack("dies", [first.id])
        await grow_old(30)
        claimed, _ = await transport.claim("lives", idle_seconds=30, limit=10)
        assert [one.message for one in claimed] == [a_result(1)]
        await transport.ack("lives", [one.id for one in claimed])
        await grow_old(30)
        assert await transport.claim("lives", idle_seconds=30, limit=10) == ([], [])

    async def test_one_claim_finds_messages_and_tasks(self, transport: Transport, grow_old: GrowOld) -> None:
        await transport.publish([a_result(0)])
        await transport.send([a_task(1)])
        await transport.read("dies", limit=10, wait_seconds=0)
        await fetch(transport, "dies")
        await grow_old(30)
        messages, tasks = await transport.claim("lives", idle_seconds=30, limit=10)
        assert (len(messages), len(tasks)) == (1, 1)

    # -- looking in ----------------------------------------------------------------------------------

    async def test_the_depth_of_each_queue_is_shown(self, transport: Transport) -> None:
        await transport.send([a_task(number, queue="a") for number in range(3)])
        await transport.send([a_task(9, queue="b")])
        taken = await fetch(transport, queues=["a"], limit=1)
        oldest = a_task(1).queued_at
        assert list(await transport.queues()) == [
            QueueStatus("a", 2, 1, oldest),
            QueueStatus("b", 1, 0, a_task(9).queued_at),
        ]
        await transport.ack_tasks("w", [one.id for one in taken])
        await transport.ack_tasks("w", [one.id for one in await fetch(transport)])
        assert [(one.depth, one.in_flight, one.oldest_at) for one in await transport.queues()] == [
            (0, 0, None),
            (0, 0, None),
        ]


async def fetch(
    transport: Transport,
    consumer: str = "w",
    *,
    queues: list[str] | None = None,
    limit: int = 100,
    wait_seconds: float = 0.0,
    handlers: list[str] | None = None,
) -> list[TaskDelivery]:
    taken = await transport.fetch(
        consumer, queues=queues, limit=limit, wait_seconds=wait_seconds, handlers=handlers
    )
    return list(taken)


def numbers(deliveries: Any) -> list[int]:
    return [int(one.task.node_id[1:]) for one in deliveries]


async def turns() -> None:
    """Let everybody else go as far as they can without the world."""
    for _ in range(10):
        await asyncio.sleep(0)


async def in_time(waiting: asyncio.Task[Any]) -> Any:
    """Wait for it, but not for ever."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        return await waiting
