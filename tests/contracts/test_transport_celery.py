"""The transport by a Celery broker, held against its contract on both brokers.

Its tasks are taken by Celery's workers, which have no ``fetch``. Here they are taken from the broker as a
worker's consumer does: without acknowledgement, and given back when the one who took them is gone. What a
broker does otherwise than a stream is said in place of the test that it is another for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from kombu import Connection
from tests.celery.harness import empty
from tests.contracts.test_transport_redis import RedisTransportContract

from weft.core.task import PRIORITIES
from weft.envelope import pack_json, unpack_json
from weft.testing.transport_contract import GrowOld, a_result, a_task, fetch, numbers
from weft.transport.celery import CeleryTransport, celery_queue, limits
from weft.transport.contract import DeliveryId, QueueStatus, TaskDelivery, Transport
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Container, Sequence

    from tests.support.servers.rabbitmq import RabbitServer
    from tests.support.servers.redis import RedisServer

    from weft.redis.connection import Redis

# The queues of the contract's tests.
QUEUES = ("a", "b", "c", "q", "long", "short", "mine", "other", "nobody")
GRACE_SECONDS = 10.0


class TakingTransport(CeleryTransport):
    """Takes tasks from the broker, each consumer by a connection of its own."""

    def __init__(self, redis: Redis, broker_url: str) -> None:
        super().__init__(redis, broker_url=broker_url, grace_seconds=GRACE_SECONDS)
        self._url = broker_url
        self._connections: dict[str, Connection] = {}
        self._messages: dict[DeliveryId, Any] = {}

    async def fetch(
        self,
        consumer: str,
        *,
        queues: Collection[str] | None,
        limit: int,
        wait_seconds: float,
        handlers: Container[str] | None = None,
    ) -> Sequence[TaskDelivery]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_seconds
        while True:
            taken = self._take_from_broker(consumer, list(queues or QUEUES), limit, handlers)
            if taken or loop.time() >= until:
                return taken
            await asyncio.sleep(0.005)

    def _take_from_broker(
        self, consumer: str, queues: list[str], limit: int, handlers: Container[str] | None
    ) -> list[TaskDelivery]:
        channel = self._connection(consumer).default_channel
        taken: list[TaskDelivery] = []
        unwanted = []
        for name in queues:
            queue = celery_queue(name)(channel)
            queue.declare()
            while len(taken) < limit and (message := queue.get()) is not None:
                (text,), _, _ = message.payload
                task = unpack_json(text)
                if handlers is not None and task.handler not in handlers:
                    unwanted.append(message)
                    continue
                identity = len(self._messages)
                self._messages[identity] = message
                taken.append(TaskDelivery(identity, task))
        # As a worker does that was given what it cannot run.
        for message in reversed(unwanted):
            message.requeue()
        return taken

    async def ack_tasks(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        for identity in ids:
            message = self._messages[identity]
            if not message.acknowledged:
                message.ack()

    async def die(self, consumer: str) -> None:
        """Let a consumer be gone, as one that was killed is."""
        self._connections.pop(consumer).release()

    async def close(self) -> None:
        for consumer in list(self._connections):
            await self.die(consumer)
        await super().close()

    def _connection(self, consumer: str) -> Connection:
        if consumer not in self._connections:
            self._connections[consumer] = Connection(self._url)
        return self._connections[consumer]


async def depth_of(queue: str, transport: Transport) -> int:
    (depth,) = [status.depth for status in await transport.queues() if status.name == queue]
    return depth


def consumed(broker_url: str, queues: Sequence[str], count: int) -> list[int]:
    """Return what a worker with one process is given: its next message when it has acknowledged the last."""
    got: list[int] = []

    def take(body: Any, message: Any) -> None:
        got.append(int(unpack_json(body[0][0]).node_id[1:]))
        message.ack()

    with Connection(broker_url) as connection, connection.channel() as channel:
        consumer = connection.Consumer(
            [celery_queue(name) for name in queues], channel=channel, callbacks=[take]
        )
        consumer.qos(prefetch_count=1, apply_global=True)
        with consumer:
            while len(got) < count:
                connection.drain_events(timeout=10)
    return got


class CeleryTransportContract(RedisTransportContract):
    @pytest.fixture
    def broker_url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    async def transport(self, redis: Redis, broker_url: str) -> AsyncIterator[Transport]:
        empty(broker_url, *(celery_queue(name).name for name in QUEUES))
        # The store does this in the step that moves a node.
        for name in QUEUES:
            await redis.call("SADD", redis.partitions[0].lanes, f"{name}|echo|1")
        transport = TakingTransport(redis, broker_url)
        yield transport
        await transport.close()

    # -- what a broker does otherwise ------------------------------------------------------------------

    async def test_what_is_not_acknowledged_comes_again_to_another(  # type: ignore[override]
        self, transport: TakingTransport, grow_old: GrowOld
    ) -> None:
        """The broker gives it to another when the one who has it is gone; nobody has to claim it."""
        await transport.send([a_task(0), a_task(1)])
        first, _ = await fetch(transport, "dies", queues=["q"])
        await transport.ack_tasks("dies", [first.id])
        await transport.die("dies")
        assert numbers(await fetch(transport, "lives", queues=["q"], wait_seconds=5)) == [1]
        assert await transport.claim("lives", idle_seconds=0, limit=10) == ([], [])

    async def test_what_was_taken_lately_is_not_claimed(  # type: ignore[override]
        self, transport: TakingTransport, grow_old: GrowOld
    ) -> None:
        """Nor is what was taken long ago: that a worker is slow is for the lease to judge."""
        await transport.send([a_task(0)])
        await fetch(transport, "slow", queues=["q"])
        assert numbers(await fetch(transport, "other", queues=["q"])) == []
        assert await transport.claim("other", idle_seconds=0, limit=10) == ([], [])

    async def test_a_claim_takes_no_more_than_it_was_told_to(
        self, transport: Transport, grow_old: GrowOld
    ) -> None:
        """Of results, that is."""
        await transport.publish([a_result(number) for number in range(5)])
        await transport.read("dies", limit=10, wait_seconds=0)
        await grow_old(30)
        taken = [len((await transport.claim("lives", idle_seconds=30, limit=2))[0]) for _ in range(3)]
        assert taken == [2, 2, 1]

    async def test_one_claim_finds_messages_and_tasks(  # type: ignore[override]
        self, transport: Transport, grow_old: GrowOld, redis: Redis
    ) -> None:
        """Tasks among them that were on streams before the fleet used Celery: they are sent anew."""
        streams = RedisStreams(redis)
        await streams.send([a_task(1)])
        await streams.fetch("dies", queues=["q"], limit=1, wait_seconds=0)
        await transport.publish([a_result(0)])
        await transport.read("dies", limit=10, wait_seconds=0)
        await grow_old(30)
        messages, tasks = await transport.claim("lives", idle_seconds=30, limit=10)
        assert (len(messages), numbers(tasks)) == (1, [1])
        await CeleryTransport.ack_tasks(transport, "lives", [one.id for one in tasks])  # type: ignore[arg-type]
        await grow_old(30)
        assert (await transport.claim("lives", idle_seconds=30, limit=10))[1] == []

    async def test_an_acknowledgement_again_is_harmless(  # type: ignore[override]
        self, transport: TakingTransport
    ) -> None:
        await transport.send([a_task(0), a_task(1)])
        first, _ = await fetch(transport, queues=["q"])
        for _ in range(2):
            await transport.ack_tasks("w", [first.id])
        # A broker does not say how many are in hand; of what was acknowledged it gives back nothing.
        await transport.die("w")
        assert numbers(await fetch(transport, "x", queues=["q"], wait_seconds=5)) == [1]
        assert await depth_of("q", transport) == 0
        # The transport itself has none to acknowledge: Celery does.
        await CeleryTransport.ack_tasks(transport, "w", [0])

    async def test_a_task_whose_handler_one_lacks_waits_for_another_who_has_it(
        self, transport: Transport
    ) -> None:
        """It goes back to the queue, and to the place that it had. Since when it waits, nobody knows."""
        await transport.send([a_task(number, handler=("a", "b")[number % 2]) for number in range(4)])
        assert numbers(await fetch(transport, queues=["q"], handlers=["b"])) == [1, 3]
        assert numbers(await fetch(transport, queues=["q"], handlers=["b"])) == []
        assert await depth_of("q", transport) == 2
        # Sent again, as what waits long may be; and others come behind.
        await transport.send([a_task(0, handler="a"), a_task(4, handler="b"), a_task(5, handler="a")])
        assert numbers(await fetch(transport, queues=["q"], handlers=["a"])) == [0, 2, 0, 5]
        assert numbers(await fetch(transport, queues=["q"])) == [4]

    async def test_no_priority_is_starved_by_those_above_it(self, transport: Transport) -> None:
        """This is not promised here: a broker gives what is more urgent, as long as there is any."""
        await transport.send([a_task(0, priority=PRIORITIES["low"])])
        await transport.send([a_task(1, priority=PRIORITIES["high"])])
        assert numbers(await fetch(transport, queues=["q"], limit=1)) == [1]
        assert numbers(await fetch(transport, queues=["q"], limit=1)) == [0]

    async def test_no_queue_is_starved_by_a_longer_one(  # type: ignore[override]
        self, transport: Transport, broker_url: str
    ) -> None:
        """In what order a worker is given its queues is the broker's to say: by turns, or by lot."""
        await transport.send([a_task(number, queue="long") for number in range(100)])
        await transport.send([a_task(1000 + number, queue="short") for number in range(3)])
        got = await asyncio.to_thread(consumed, broker_url, ["long", "short"], 60)
        assert {1000, 1001, 1002} <= set(got)

    async def test_a_batch_is_shared_between_the_queues_and_filled(self, transport: Transport) -> None:
        """Nobody takes a batch from a broker. More than is published at once arrives whole and in order."""
        await transport.send([a_task(number, queue="long") for number in range(300)])
        assert numbers(await fetch(transport, queues=["short", "long"], limit=300)) == list(range(300))

    async def test_the_depth_of_each_queue_is_shown(self, transport: Transport) -> None:
        """A broker says how many wait. Since when, and how many are in hand, it does not say."""
        await transport.send([a_task(number, queue="a") for number in range(3)])
        await transport.send([a_task(9, queue="b")])
        taken = await fetch(transport, queues=["a"], limit=1)
        shown = {status.name: status for status in await transport.queues()}
        assert shown.keys() == set(QUEUES)
        assert (shown["a"], shown["b"]) == (QueueStatus("a", 2, 0, None), QueueStatus("b", 1, 0, None))
        assert shown["nobody"] == QueueStatus("nobody", 0, 0, None)
        await transport.ack_tasks("w", [one.id for one in taken])
        await transport.ack_tasks("w", [one.id for one in await fetch(transport)])
        assert {status.depth for status in await transport.queues()} == {0}

    # -- what Celery is told ---------------------------------------------------------------------------

    async def test_a_message_is_json_with_limits_and_tells_nobody_what_is_in_it(
        self, transport: TakingTransport
    ) -> None:
        task = a_task(0, timeout_seconds=7.0, config=b'{"text":"private"}')
        await transport.send([task])
        (taken,) = await fetch(transport, queues=["q"])
        message = transport._messages[taken.id]
        assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
        assert message.payload[0] == [pack_json(task)]
        soft, hard = limits(7.0, GRACE_SECONDS)
        assert 7.0 + GRACE_SECONDS < soft < hard
        assert message.headers["timelimit"] == [hard, soft]
        assert (message.headers["task"], message.headers["id"]) == ("weft.run", "x1:n0:1")
        assert (message.headers["retries"], message.headers["eta"]) == (0, None)
        assert "private" not in str(message.headers)


class TestCeleryOnRedis(CeleryTransportContract):
    @pytest.fixture
    def broker_url(self, redis_url: str, redis_server: RedisServer) -> str:
        # Another database of the same server.
        server, _, database = redis_url.rpartition("/")
        url = f"{server}/{8 + int(database)}"
        redis_server.execute("FLUSHDB", url=url)
        return url


class TestCeleryOnRabbit(CeleryTransportContract):
    @pytest.fixture
    def broker_url(self, rabbitmq_server: RabbitServer) -> str:
        return rabbitmq_server.url
