"""An experiment: to read a task is to start it, and its pending entry is its lease.

The store is not asked at a start. The hash of an execution keeps the id of each entry that it has queued, and
with this id cancel and pause delete the entries that nobody has read, in the step that closes or pauses the
execution. A worker renews only what is its own, and the sweep takes an expired entry away before it commits
the next attempt. Where the hash knows an entry, the simulation keeps who has read it in the hash: in Redis
that would be read from the pending entries, to the same effect.

Redis neither doubles nor loses an entry of a stream, and with a new incarnation the task streams are wiped;
so the faults of messages and the rollback do not strike tasks here. Nodes of a limited resource tag ask the
store at their start, as ever.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from tests.support.simulation import actors, world
from tests.support.simulation.faults import FaultyTransport, WatchedStore

from weft.store.contract import Answer, Lease, Started, StartRequest
from weft.store.memory.execution import QUEUED, RUNNING
from weft.transport.inprocess import InProcessTransport
from weft.worker.service import begin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.core.snapshot import RowUpdate, Snapshot
    from weft.core.task import Task
    from weft.ports import Ports
    from weft.store.contract import Due
    from weft.store.memory.execution import OpenExecution, OpenNode
    from weft.transport.contract import DeliveryId, TaskDelivery


class Wipes(IntEnum):
    """Which calls look through the streams for unread entries of their execution and delete them."""

    NOTHING = 0
    INSTALL = 1
    INSTALL_AND_CLOSE = 2


class ReadingTransport(FaultyTransport):
    def __init__(self, world: world.World) -> None:
        super().__init__(world)
        # Entries that were read, until their worker has taken them up.
        self.started: dict[DeliveryId, tuple[StartRequest, int]] = {}

    def put(self, tasks: Sequence[Task]) -> None:
        self._arrive_tasks(tasks)

    async def fetch(self, consumer: str, **options: Any) -> Sequence[TaskDelivery]:
        taken = await super().fetch(consumer, **options)
        for delivery in taken:
            if delivery.task.resource_tag is None:
                del self._tasks_pending.entries[delivery.id]
                self._start(delivery, consumer)
        return taken

    def _start(self, delivery: TaskDelivery, consumer: str) -> None:
        task = delivery.task
        request = StartRequest(
            task.execution_id, task.generation, task.node_id, task.attempt, str(delivery.id), consumer
        )
        self.started[delivery.id] = request, self._now()
        store = self._world.store
        assert isinstance(store, ReadingStore)
        store.was_read(task, request)
        self._world.invariants._started([request], [Started(Answer.YES)])

    def set_back(self, copy: InProcessTransport) -> None:
        super().set_back(InProcessTransport(now=self._now))
        self._messages, self._messages_pending = copy._messages, copy._messages_pending

    def delete(self, task: Task) -> None:
        """Delete an entry that nobody has read."""
        queue = self._by_name[task.queue]
        level = queue.levels[task.priority]
        tasks = level.by_execution[task.execution_id]
        tasks[:] = [other for other in tasks if other is not task]
        if not tasks:
            del level.by_execution[task.execution_id]
            (turn,) = [turn for turn in level.turns if turn[1] == task.execution_id]
            level.turns.remove(turn)
        queue.waiting -= 1
        if not queue.waiting:
            self._waiting.pop(task.queue, None)

    def wipe(self, execution_id: str) -> None:
        """Look through all streams, and delete the entries of an execution that nobody has read."""
        for queue in self._by_name.values():
            for level in queue.levels:
                for task in list(level.by_execution.get(execution_id, ())):
                    self.delete(task)


class ReadingStore(WatchedStore):
    wipes = Wipes.NOTHING

    def __init__(self, world: world.World, *, send: Any, **options: Any) -> None:
        super().__init__(world, send=self._send_and_keep, **options)

    def flush(self) -> None:
        super().flush()
        # The unread entries of each node, by execution: a part of the execution's hash.
        self._entries: dict[str, dict[str, Task]] = {}

    @property
    def _streams(self) -> ReadingTransport:
        transport = self._world.transport
        assert isinstance(transport, ReadingTransport)
        return transport

    def _send_and_keep(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            if task.resource_tag is None:
                self._entries.setdefault(task.execution_id, {})[task.node_id] = task
        self._streams.put(tasks)

    def was_read(self, task: Task, request: StartRequest) -> None:
        """Note who has an attempt in hand. An entry unknown to the hash is handed out all the same."""
        entries = self._entries.get(task.execution_id, {})
        if entries.get(task.node_id) is task:
            del entries[task.node_id]
            assert self._start(request, self._now()).answer is Answer.YES
        else:
            self._world.hits["read: an entry that the store does not know"] += 1

    def _leave_phase(self, execution: OpenExecution, node_id: str, node: OpenNode) -> None:
        entry = self._entries.get(execution.row.id, {}).pop(node_id, None)
        if entry is not None:
            self._streams.delete(entry)
        super()._leave_phase(execution, node_id, node)

    def _drop(self, execution_id: str) -> None:
        for entry in self._entries.pop(execution_id, {}).values():
            self._streams.delete(entry)
        super()._drop(execution_id)

    def forget(self, execution_id: str) -> None:
        self._entries.pop(execution_id, None)
        super().forget(execution_id)

    def _apply(self, row_update: RowUpdate, now: int) -> Answer:
        answer = super()._apply(row_update, now)
        execution = self._executions.get(row_update.execution.id)
        if execution is not None and not execution.is_open:
            for node_id in list(self._entries.get(execution.row.id, {})):
                node = execution.nodes[node_id]
                assert node.phase is QUEUED
                self._leave_phase(execution, node_id, node)
                node.queued_at, node.released = None, False
                self._set_free(execution, node_id, node, now)
        return answer

    def _install(self, snapshot: Snapshot, token: str, fresh: bool) -> Answer:
        answer = super()._install(snapshot, token, fresh)
        if answer is Answer.YES and self.wipes >= Wipes.INSTALL:
            self._streams.wipe(snapshot.execution.id)
        return answer

    def _close(self, execution_id: str, generation: int, epoch: int) -> Answer:
        answer = super()._close(execution_id, generation, epoch)
        if answer is Answer.YES and self.wipes >= Wipes.INSTALL_AND_CLOSE:
            self._streams.wipe(execution_id)
        return answer

    async def due(self, *, idle_seconds: float) -> Due:
        due = await super().due(idle_seconds=idle_seconds)
        for expired in due.expired:
            node = self._executions[expired.execution_id].nodes[expired.node_id]
            if node.phase is RUNNING:
                # Taken away from its worker before the loss is recorded: it is not renewed any more.
                node.nonce = None
        return due


async def begin_read(
    deliveries: Sequence[TaskDelivery], ports: Ports, *, worker: str
) -> list[tuple[Task, Lease, int]]:
    """Take up what was read: it is started."""
    started = ports.transport.started  # type: ignore[attr-defined]
    ours = await begin([one for one in deliveries if one.id not in started], ports, worker=worker)
    for delivery in deliveries:
        if delivery.id in started:
            request, at = started.pop(delivery.id)
            task = delivery.task
            held = Lease(
                task.execution_id,
                task.generation,
                task.node_id,
                task.attempt,
                request.nonce,
                worker,
                task.queued_at,
                at,
            )
            ours.append((task, held, at))
    return ours


@contextmanager
def reading_starts(wipes: Wipes = Wipes.NOTHING) -> Iterator[None]:
    """Let every simulated world work this way for a while."""
    with (
        patch.object(world, "FaultyTransport", ReadingTransport),
        patch.object(world, "WatchedStore", ReadingStore),
        patch.object(actors, "begin", begin_read),
        patch.object(ReadingStore, "wipes", wipes),
    ):
        yield
