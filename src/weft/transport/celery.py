"""Tasks by a Celery broker, results by the stream of the store: one Celery task for each attempt.

A broker knows nothing of executions, so the store moves a node first and the task is sent behind it. The
sweep sends a task that was lost again, as the same attempt; the start of a task that comes twice is refused.
So a broker may lose, double and delay as it likes.

Kombu blocks, so one thread speaks with the broker. A broker that is away holds up no caller: unsent tasks
wait in this process until the broker is back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from amqp.exceptions import AMQPError
from celery import Celery
from kombu import Exchange, Queue
from kombu.exceptions import KombuError
from redis.exceptions import RedisError

from weft.core.task import PRIORITIES
from weft.envelope import pack_json
from weft.errors import StoreError
from weft.transport.contract import QueueStatus, TaskDelivery
from weft.transport.redis.streams import RedisStreams

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from celery.app.amqp import Producer

    from weft.core.task import Task
    from weft.redis.connection import Redis
    from weft.transport.contract import DeliveryId

log = logging.getLogger("weft.transport")

# The name of the Celery task that runs an attempt.
RUN = "weft.run"
_PREFIX = "weft."

# A sender waits so long for the broker, then goes on; beyond so many unsent tasks, until they are sent.
_PATIENCE_SECONDS = 1.0
_MOST_UNSENT = 10_000
# So many are published before others have a turn at the thread.
_AT_ONCE = 256
# While a broker is away it is tried this often; who leaves waits so long for what is still unsent.
_RETRY_SECONDS = 0.5
_LEAVE_SECONDS = 5.0
# A broker that does not answer for so long is taken to be away.
_ANSWER_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
# The shortest that the room between two limits may be.
_ROOM_SECONDS = 1.0

_ERRORS = (KombuError, AMQPError, RedisError, OSError)
# What Redis calls a priority: there the lowest number goes first.
_REDIS_PRIORITIES = {0: 6, 1: 3, 2: 0}

T = TypeVar("T")


def celery_queue(name: str) -> Queue:
    """Return the broker's queue for a queue of nodes; all its declarations must have the same options."""
    return broker_queue(_PREFIX + name)


def broker_queue(name: str) -> Queue:
    return Queue(name, Exchange(""), routing_key=name, max_priority=max(PRIORITIES.values()))


def own_queue(name: str) -> str | None:
    """Name the queue of nodes that a queue of the broker is for; None: it is not one of weft's."""
    return name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else None


def limits(timeout_seconds: float, grace_seconds: float) -> tuple[float, float]:
    """Return Celery's soft and hard time limit for an attempt.

    They are the net under the worker's own: it asks a handler to stop after the timeout and kills it after
    the grace time, and what that takes besides has as much time again.
    """
    room = max(grace_seconds, _ROOM_SECONDS)
    return timeout_seconds + 2 * room, timeout_seconds + 3 * room


class CeleryTransport(RedisStreams):
    """``broker_url``: None where nothing is sent, as in the worker of a Celery app."""

    joint = False

    def __init__(self, redis: Redis, *, broker_url: str | None, grace_seconds: float) -> None:
        super().__init__(redis)
        self._broker = _Broker(broker_url, grace_seconds)
        # One thread: a connection of kombu is for one thread alone.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="weft-celery-broker")
        self._unsent: deque[tuple[list[Task], asyncio.Future[None]]] = deque()
        self._sending: asyncio.Task[None] | None = None

    # -- tasks -------------------------------------------------------------------------------------

    async def send(self, tasks: Sequence[Task]) -> None:
        if not tasks:
            return
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsent.append((list(tasks), sent))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        waiting = sum(len(some) for some, _ in self._unsent)
        await asyncio.wait((sent,), timeout=None if waiting > _MOST_UNSENT else _PATIENCE_SECONDS)

    async def fetch(
        self,
        consumer: str,
        *,
        queues: Collection[str] | None,
        limit: int,
        wait_seconds: float,
        handlers: Container[str] | None = None,
    ) -> Sequence[TaskDelivery]:
        # Celery takes them from the broker, and hands them to its worker by another way.
        await asyncio.sleep(wait_seconds)
        return []

    async def ack_tasks(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
        # Celery acknowledges its own, which have no name here. The others were left on streams, when the
        # fleet did not use Celery yet, and have been sent anew.
        await super().ack_tasks(consumer, [identity for identity in ids if isinstance(identity, tuple)])

    async def queues(self) -> Sequence[QueueStatus]:
        lanes = [lane for keys in self._redis.partitions for lane in await self._lanes(keys.partition)]
        names = sorted({lane.queue for lane in lanes})
        depths = await self._ask(lambda: self._broker.depths(names))
        return [QueueStatus(name, depth, 0, None) for name, depth in zip(names, depths, strict=True)]

    # -- the broker --------------------------------------------------------------------------------

    async def check(self) -> None:
        """Raise StoreError where the broker cannot be reached."""
        await self._ask(self._broker.check)

    async def close(self) -> None:
        """Send what is unsent, if that can be done soon, and let go of the broker."""
        if self._sending is not None and not self._sending.done():
            await asyncio.wait((self._sending,), timeout=_LEAVE_SECONDS)
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        self._thread.submit(self._broker.close)
        self._thread.shutdown(wait=False)

    async def _send_all(self) -> None:
        told = ""
        while self._unsent:
            tasks, sent = self._unsent[0]
            try:
                await self._ask(lambda some=tasks[:_AT_ONCE]: self._broker.publish(some))  # type: ignore[misc]
            except StoreError as error:
                # Some may have arrived: they come twice then, and are refused the second time.
                if told != str(error):
                    log.warning("broker.unavailable", extra={"error": str(error)})
                told = str(error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            del tasks[:_AT_ONCE]
            if not tasks:
                self._unsent.popleft()
                if not sent.done():
                    sent.set_result(None)

    async def _ask(self, question: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, question)
        except _ERRORS as error:
            # Not its message: that may hold the address, and with it a password.
            raise StoreError(f"the broker cannot be reached: {type(error).__name__}") from error


class _Broker:
    """The connection with the broker. Everything here blocks, and belongs to one thread."""

    def __init__(self, url: str | None, grace_seconds: float) -> None:
        self._url = url
        self._grace_seconds = grace_seconds
        self._app: Celery | None = None
        self._producer: Producer | None = None
        self._queues: dict[str, Queue] = {}

    def publish(self, tasks: Sequence[Task]) -> None:
        """Return when the broker has all of them."""
        with self._connected() as producer:
            is_redis = producer.connection.transport.driver_type == "redis"
            with producer.batch():
                for task in tasks:
                    self._publish(task, producer, is_redis=is_redis)
            if not is_redis:
                # AMQP answers no message. What is asked behind them is answered when they have come.
                self._queue(tasks[-1].queue)(producer.channel).queue_declare(passive=True)

    def _publish(self, task: Task, producer: Producer, *, is_redis: bool) -> None:
        assert self._app is not None
        soft_seconds, hard_seconds = limits(task.timeout_seconds, self._grace_seconds)
        self._app.send_task(
            RUN,
            args=(pack_json(task),),
            # Not what is in it: this is shown to anybody who watches Celery.
            argsrepr=f"({task.execution_id}, {task.node_id}, attempt {task.attempt})",
            task_id=f"{task.execution_id}:{task.node_id}:{task.attempt}",
            queue=self._queue(task.queue),
            priority=_REDIS_PRIORITIES[task.priority] if is_redis else task.priority,
            soft_time_limit=soft_seconds,
            time_limit=hard_seconds,
            producer=producer,
            retry=False,
            add_to_parent=False,
        )

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = celery_queue(name)
        return self._queues[name]

    def depths(self, names: Sequence[str]) -> list[int]:
        with self._connected() as producer:
            return [self._depth(producer.connection, name) for name in names]

    def _depth(self, connection: Any, name: str) -> int:
        # A question about a queue that is not there ends its channel.
        with connection.channel() as channel:
            try:
                return int(self._queue(name)(channel).queue_declare(passive=True).message_count)
            except connection.channel_errors:
                return 0

    def check(self) -> None:
        with self._connected() as producer:
            producer.connection.ensure_connection(max_retries=1, timeout=_CONNECT_SECONDS)

    def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(Exception):
                producer.connection.release()

    def _connected(self) -> _Using:
        if self._producer is None:
            self._producer = self._connect()
        return _Using(self, self._producer)

    def _connect(self) -> Producer:
        if self._url is None:
            raise OSError("WEFT_CELERY_BROKER_URL is not set")
        if self._app is None:
            self._app = Celery("weft-sender", broker=self._url, set_as_current=False)
            self._app.conf.update(
                task_serializer="json",
                broker_connection_timeout=_CONNECT_SECONDS,
                broker_transport_options=_patience(self._url),
            )
        connection = self._app.connection_for_write()
        connection.ensure_connection(max_retries=1, timeout=_CONNECT_SECONDS)
        return self._app.amqp.Producer(connection, auto_declare=False)


class _Using:
    """A connection in use: after an error it is not used again."""

    def __init__(self, broker: _Broker, producer: Producer) -> None:
        self._broker = broker
        self._producer = producer

    def __enter__(self) -> Producer:
        return self._producer

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._broker.close()


def _patience(url: str) -> dict[str, float]:
    """Return the timeout options after which a silent broker is taken to be away."""
    if url.startswith(("redis", "sentinel")):
        return {"socket_timeout": _ANSWER_SECONDS, "socket_connect_timeout": _CONNECT_SECONDS}
    return {"read_timeout": _ANSWER_SECONDS, "write_timeout": _ANSWER_SECONDS}
