"""Queues in this process's memory, with the delivery and acknowledgement of a real one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from weft.core.task import PRIORITIES, Task
from weft.core.time import micros
from weft.transport.contract import Message, MessageDelivery, QueueStatus, TaskDelivery

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Sequence

    from weft.transport.contract import DeliveryId

# Of so many turns of a queue, one goes to the oldest task: no priority is starved.
_OLDEST_EVERY = 8
# A turn of an execution is at most this part of a fetch: the results of nodes that run together are recorded
# in one commit. A fetch for a single slot is one task a turn.
_FEWEST_TURNS = 8

Item = TypeVar("Item", TaskDelivery, MessageDelivery)


class _Pending(Generic[Item]):
    """Deliveries that are not acknowledged: id → (consumer, since, delivery)."""

    def __init__(self) -> None:
        self.entries: dict[DeliveryId, tuple[str, int, Item]] = {}

    def claim(self, consumer: str, *, older_than: int, now: int, limit: int) -> list[Item]:
        stale = [
            (identity, item) for identity, (_, since, item) in self.entries.items() if since <= older_than
        ][:limit]
        for identity, item in stale:
            self.entries[identity] = (consumer, now, item)
        return [item for _, item in stale]


class _PriorityLevel:
    """The tasks of one priority: executions in turn, and of each execution the task that came first.

    So a small execution does not wait behind the hundreds of tasks that a wide one may have here.
    """

    __slots__ = ("by_execution", "turns")

    def __init__(self) -> None:
        # Lists: an execution has no more tasks here than its window, and most have one.
        self.by_execution: dict[str, list[Task]] = {}
        # The executions that have tasks here, the one whose turn is next first, each with a number: what
        # comes later, in whatever priority, has a higher one.
        self.turns: deque[tuple[int, str]] = deque()

    def put_back(self, task: Task) -> None:
        """Put a task before all others, and its execution if it has no other task here."""
        tasks = self.by_execution.get(task.execution_id)
        if tasks is None:
            self.by_execution[task.execution_id] = [task]
            self.turns.appendleft((0, task.execution_id))
        else:
            tasks.insert(0, task)

    def take(self, limit: int, number: int) -> list[Task]:
        """Take the tasks of the execution whose turn is next, at most so many; the rest has a later turn."""
        _, execution_id = self.turns.popleft()
        tasks = self.by_execution[execution_id]
        if len(tasks) <= limit:
            del self.by_execution[execution_id]
            return tasks
        self.turns.append((number, execution_id))
        taken = tasks[:limit]
        del tasks[:limit]
        return taken

    def oldest_at(self) -> int | None:
        return min((tasks[0].queued_at for tasks in self.by_execution.values()), default=None)


class _TaskQueue:
    """One queue: its tasks by priority."""

    def __init__(self) -> None:
        self.levels: tuple[_PriorityLevel, ...] = tuple(_PriorityLevel() for _ in PRIORITIES)
        # By handler: tasks that nobody who has asked so far can run. One that is sent again stands once.
        self.aside: dict[str, dict[tuple[str, int, str, int], Task]] = {}
        # How many tasks have come and wait, and how many turns were taken.
        self.came = self.waiting = self.taken = 0

    @property
    def depth(self) -> int:
        return self.waiting + sum(map(len, self.aside.values()))

    def put(self, task: Task) -> None:
        self.came += 1
        self.waiting += 1
        level = self.levels[task.priority]
        tasks = level.by_execution.get(task.execution_id)
        if tasks is None:
            level.by_execution[task.execution_id] = [task]
            level.turns.append((self.came, task.execution_id))
        else:
            tasks.append(task)

    def take(self, limit: int, handlers: Container[str] | None, *, together: int) -> list[Task]:
        """Take up to so many tasks of these handlers in their turn; what is of no such handler is set aside.

        ``together``: of one execution, so many at a time.
        """
        low, normal, high = self.levels
        tasks: list[Task] = []
        # The handlers that were asked about.
        served: set[str] = set()
        while self.waiting and len(tasks) < limit:
            self.taken += 1
            if self.taken % _OLDEST_EVERY == 0:
                # Of the turns that are next in each priority the oldest: every priority comes to its turn.
                level = min([each for each in self.levels if each.turns], key=lambda each: each.turns[0])
            else:
                level = high if high.turns else normal if normal.turns else low
            turn = level.take(min(together, limit - len(tasks)), self.came)
            self.waiting -= len(turn)
            for task in turn:
                if task.handler in served:
                    tasks.append(task)
                elif handlers is None or task.handler in handlers:
                    served.add(task.handler)
                    tasks.append(task)
                else:
                    key = (task.execution_id, task.generation, task.node_id, task.attempt)
                    self.aside.setdefault(task.handler, {}).setdefault(key, task)
        return tasks

    def bring_back(self, handlers: Container[str] | None) -> None:
        """Requeue, at the head and in their order, the tasks of these handlers that were set aside."""
        served = [name for name in self.aside if handlers is None or name in handlers]
        back = [task for name in served for task in self.aside.pop(name).values()]
        back.sort(key=lambda task: task.queued_at)
        for task in reversed(back):
            # Whatever was set aside came before all that is there.
            self.levels[task.priority].put_back(task)
            self.waiting += 1

    def oldest_at(self) -> int | None:
        waiting = [oldest_at for level in self.levels if (oldest_at := level.oldest_at()) is not None]
        aside = [task.queued_at for tasks in self.aside.values() for task in tasks.values()]
        return min((*waiting, *aside), default=None)


class InProcessTransport:
    joint = True

    def __init__(self, *, now: Callable[[], int]) -> None:
        self._now = now
        self._ids = 0
        self._by_name: dict[str, _TaskQueue] = {}
        # Queues with something in them, in the order in which they are served next.
        self._waiting: dict[str, None] = {}
        # Queues in which something was set aside.
        self._aside: set[str] = set()
        self._messages: deque[Message] = deque()
        self._tasks_pending: _Pending[TaskDelivery] = _Pending()
        self._messages_pending: _Pending[MessageDelivery] = _Pending()
        # In the order in which they lay down: a run of a test is the same every time.
        # Each with the time at which it gets up by itself, by the loop's clock.
        self._sleepers: dict[str, dict[asyncio.Future[bool], float]] = {"tasks": {}, "messages": {}}
        self._alarm: asyncio.TimerHandle | None = None

    # -- tasks -------------------------------------------------------------------------------------

    def put(self, tasks: Sequence[Task]) -> None:
        """Append tasks to their queues at once: the store calls this in the step that moves them."""
        for task in tasks:
            queue = self._by_name.get(task.queue)
            if queue is None:
                queue = self._by_name[task.queue] = _TaskQueue()
            queue.put(task)
            self._waiting[task.queue] = None
        self._wake("tasks")

    def drop_tasks(self) -> None:
        """Drop every task that waits: it may rest on results that the database has lost."""
        self._by_name.clear()
        self._waiting.clear()
        self._aside.clear()
        self._tasks_pending.entries.clear()

    async def send(self, tasks: Sequence[Task]) -> None:
        self.put(tasks)

    async def fetch(
        self,
        consumer: str,
        *,
        queues: Collection[str] | None,
        limit: int,
        wait_seconds: float,
        handlers: Container[str] | None = None,
    ) -> Sequence[TaskDelivery]:
        taken = []
        if self._waiting or self._aside:
            taken = self._take(consumer, queues, limit, handlers)
        if not taken and wait_seconds > 0:
            until = asyncio.get_running_loop().time() + wait_seconds
            # Another may be quicker, or the task be of a queue that is not wanted here: then it waits on.
            while not taken and await self._woken("tasks", until):
                taken = self._take(consumer, queues, limit, handlers)
        return taken

    def _take(
        self, consumer: str, queues: Collection[str] | None, limit: int, handlers: Container[str] | None
    ) -> list[TaskDelivery]:
        taken: list[TaskDelivery] = []
        if self._aside:
            self._bring_back(handlers)
        if not self._waiting:
            return taken
        now = self._now()
        together = max(1, limit // _FEWEST_TURNS)
        names = list(self._waiting) if queues is None else [name for name in self._waiting if name in queues]
        while names and len(taken) < limit:
            share = max(1, (limit - len(taken)) // len(names))
            for name in names[: limit - len(taken)]:
                queue = self._by_name[name]
                for task in queue.take(min(share, limit - len(taken)), handlers, together=together):
                    self._ids += 1
                    delivery = TaskDelivery(self._ids, task)
                    self._tasks_pending.entries[delivery.id] = (consumer, now, delivery)
                    taken.append(delivery)
                # Served: the others come first the next time.
                del self._waiting[name]
                if queue.waiting:
                    self._waiting[name] = None
                if queue.aside:
                    self._aside.add(name)
            names = [name for name in names if name in self._waiting]
        return taken

    def _bring_back(self, handlers: Container[str] | None) -> None:
        for name in list(self._aside):
            queue = self._by_name[name]
            queue.bring_back(handlers)
            if not queue.aside:
                self._aside.remove(name)
            if queue.waiting:
                self._waiting[name] = None

    async def ack_tasks(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
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

    async def ack(self, consumer: str, ids: Sequence[DeliveryId]) -> None:
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

    async def unacknowledged(self, consumer: str, *, limit: int) -> Sequence[MessageDelivery]:
        entries = self._messages_pending.entries.values()
        return [delivery for owner, _, delivery in entries if owner == consumer][:limit]

    async def leave(self, consumer: str) -> None:
        entries = self._tasks_pending.entries
        left = [identity for identity, (owner, _, _) in entries.items() if owner == consumer]
        self.put([entries.pop(identity)[2].task for identity in left])

    async def queues(self) -> Sequence[QueueStatus]:
        in_flight: dict[str, int] = {}
        for _, _, delivery in self._tasks_pending.entries.values():
            in_flight[delivery.task.queue] = in_flight.get(delivery.task.queue, 0) + 1
        return [
            QueueStatus(
                name,
                queue.depth,
                in_flight.get(name, 0),
                queue.oldest_at(),
            )
            for name, queue in sorted(self._by_name.items())
        ]

    # -- waiting -----------------------------------------------------------------------------------

    def _wake(self, kind: str) -> None:
        sleepers, self._sleepers[kind] = self._sleepers[kind], {}
        for sleeper in sleepers:
            if not sleeper.done():
                sleeper.set_result(True)

    async def _woken(self, kind: str, until: float) -> bool:
        """Wait for something to come; False: the time is over, and nothing came."""
        sleeper: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._sleepers[kind][sleeper] = until
        if self._alarm is None or until < self._alarm.when():
            self._set_alarm(until)
        try:
            return await sleeper
        finally:
            self._sleepers[kind].pop(sleeper, None)

    def _set_alarm(self, until: float) -> None:
        """Set the one alarm of all sleepers. It stays set when they are woken before, as nearly all are.

        A timer for each of them was set and cancelled twice a hop, and took longer than the hop through here.
        """
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_at(until, self._ring, until)

    def _ring(self, rung_at: float) -> None:
        self._alarm = None
        asleep = [entry for sleepers in self._sleepers.values() for entry in sleepers.items()]
        for sleeper, until in asleep:
            if until <= rung_at and not sleeper.done():
                sleeper.set_result(False)
        if later := [until for _, until in asleep if until > rung_at]:
            self._set_alarm(min(later))
