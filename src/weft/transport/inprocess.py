"""Queues in this process's memory, with the delivery and acknowledgement of a real one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from weft.core.task import PRIORITIES, Task
from weft.core.time import micros
from weft.transport.contract import Message, MessageDelivery, QueueSight, TaskDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

# Of so many tasks taken from a queue, one is that which has waited longest: nothing is starved.
_OLDEST_EVERY = 8

Item = TypeVar("Item", TaskDelivery, MessageDelivery)


class _Pending(Generic[Item]):
    """What was delivered and is not acknowledged: id → (consumer, since, delivery)."""

    def __init__(self) -> None:
        self.entries: dict[int | str, tuple[str, int, Item]] = {}

    def claim(self, consumer: str, *, older_than: int, now: int, limit: int) -> list[Item]:
        stale = [
            (identity, item) for identity, (_, since, item) in self.entries.items() if since <= older_than
        ][:limit]
        for identity, item in stale:
            self.entries[identity] = (consumer, now, item)
        return [item for _, item in stale]


class _Lane:
    """One queue: for each priority, its tasks with the order in which they came."""

    def __init__(self) -> None:
        self.levels: tuple[deque[tuple[int, Task]], ...] = tuple(deque() for _ in PRIORITIES)
        self.came = 0
        self.taken = 0

    def __len__(self) -> int:
        return sum(len(level) for level in self.levels)

    def put(self, task: Task) -> None:
        self.came += 1
        self.levels[task.priority].append((self.came, task))

    def take(self) -> Task:
        self.taken += 1
        waiting = [level for level in self.levels if level]
        if self.taken % _OLDEST_EVERY == 0:
            level = min(waiting, key=lambda level: level[0][0])
        else:
            level = waiting[-1]
        return level.popleft()[1]

    def oldest_at(self) -> int | None:
        return min((level[0][1].queued_at for level in self.levels if level), default=None)


class InProcessTransport:
    joint = True

    def __init__(self, *, now: Callable[[], int]) -> None:
        self._now = now
        self._ids = 0
        self._lanes: dict[str, _Lane] = {}
        # Queues with something in them, in the order in which they are served next.
        self._waiting: dict[str, None] = {}
        self._messages: deque[Message] = deque()
        self._tasks_pending: _Pending[TaskDelivery] = _Pending()
        self._messages_pending: _Pending[MessageDelivery] = _Pending()
        self._sleepers: dict[str, set[asyncio.Future[bool]]] = {"tasks": set(), "messages": set()}

    # -- tasks -------------------------------------------------------------------------------------

    def put(self, tasks: Sequence[Task]) -> None:
        """Put tasks on their queues at once: the store calls this in the step that moves them."""
        for task in tasks:
            lane = self._lanes.get(task.queue)
            if lane is None:
                lane = self._lanes[task.queue] = _Lane()
            lane.put(task)
            self._waiting[task.queue] = None
        self._wake("tasks")

    async def send(self, tasks: Sequence[Task]) -> None:
        self.put(tasks)

    async def fetch(
        self, consumer: str, *, queues: Collection[str] | None, limit: int, wait_seconds: float
    ) -> Sequence[TaskDelivery]:
        taken = self._take(consumer, queues, limit)
        if not taken and wait_seconds > 0:
            until = asyncio.get_running_loop().time() + wait_seconds
            # Another may be quicker, or the task be of a queue that is not wanted here: then it waits on.
            while not taken and await self._woken("tasks", until):
                taken = self._take(consumer, queues, limit)
        return taken

    def _take(self, consumer: str, queues: Collection[str] | None, limit: int) -> list[TaskDelivery]:
        now = self._now()
        taken: list[TaskDelivery] = []
        names = [name for name in self._waiting if queues is None or name in queues]
        while names and len(taken) < limit:
            share = max(1, (limit - len(taken)) // len(names))
            for name in names[: limit - len(taken)]:
                lane = self._lanes[name]
                for _ in range(min(share, len(lane), limit - len(taken))):
                    self._ids += 1
                    delivery = TaskDelivery(self._ids, lane.take())
                    self._tasks_pending.entries[delivery.id] = (consumer, now, delivery)
                    taken.append(delivery)
                # Served: the others come first the next time.
                del self._waiting[name]
                if len(lane):
                    self._waiting[name] = None
            names = [name for name in names if name in self._waiting]
        return taken

    async def ack_tasks(self, consumer: str, ids: Sequence[int | str]) -> None:
        for identity in ids:
            self._tasks_pending.entries.pop(identity, None)

    # -- results -----------------------------------------------------------------------------------

    def append(self, messages: Sequence[Message]) -> None:
        """Append to the result stream at once: the store calls this in the step that ends a lease."""
        self._messages.extend(messages)
        self._wake("messages")

    async def publish(self, messages: Sequence[Message]) -> None:
        self.append(messages)

    async def read(self, consumer: str, *, limit: int, wait_seconds: float) -> Sequence[MessageDelivery]:
        if not self._messages and wait_seconds > 0:
            until = asyncio.get_running_loop().time() + wait_seconds
            while not self._messages and await self._woken("messages", until):
                pass
        now = self._now()
        messages, entries = self._messages, self._messages_pending.entries
        read = []
        for _ in range(min(limit, len(messages))):
            self._ids += 1
            delivery = MessageDelivery(self._ids, messages.popleft())
            entries[delivery.id] = (consumer, now, delivery)
            read.append(delivery)
        return read

    async def ack(self, consumer: str, ids: Sequence[int | str]) -> None:
        entries = self._messages_pending.entries
        for identity in ids:
            entries.pop(identity, None)

    async def claim(
        self, consumer: str, *, idle_seconds: float, limit: int
    ) -> tuple[Sequence[MessageDelivery], Sequence[TaskDelivery]]:
        now = self._now()
        older_than = now - micros(idle_seconds)
        return (
            self._messages_pending.claim(consumer, older_than=older_than, now=now, limit=limit),
            self._tasks_pending.claim(consumer, older_than=older_than, now=now, limit=limit),
        )

    async def queues(self) -> Sequence[QueueSight]:
        in_flight: dict[str, int] = {}
        for _, _, delivery in self._tasks_pending.entries.values():
            in_flight[delivery.task.queue] = in_flight.get(delivery.task.queue, 0) + 1
        return [
            QueueSight(
                name,
                len(lane),
                in_flight.get(name, 0),
                lane.oldest_at(),
            )
            for name, lane in sorted(self._lanes.items())
        ]

    # -- waiting -----------------------------------------------------------------------------------

    def _wake(self, kind: str) -> None:
        sleepers = self._sleepers[kind]
        while sleepers:
            sleeper = sleepers.pop()
            if not sleeper.done():
                sleeper.set_result(True)

    async def _woken(self, kind: str, until: float) -> bool:
        """Wait for something to come; False: the time is over, and nothing came."""
        loop = asyncio.get_running_loop()
        sleeper: asyncio.Future[bool] = loop.create_future()
        self._sleepers[kind].add(sleeper)
        alarm = loop.call_at(until, lambda: None if sleeper.done() else sleeper.set_result(False))
        try:
            return await sleeper
        finally:
            alarm.cancel()
            self._sleepers[kind].discard(sleeper)
