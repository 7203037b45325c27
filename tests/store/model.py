"""What a store on Redis should answer: a memory store for each partition, with incarnations of its own."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from weft.store.contract import Answer, Due, StoreOptions
from weft.store.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.core.event import Running
    from weft.core.rows import ExecutionRow
    from weft.core.snapshot import RowUpdate, Snapshot
    from weft.core.task import Result, Task
    from weft.definition.plan import Plan
    from weft.store.contract import Applied, ExecutionStatus, Lease, Started, StartRequest


class Partition(MemoryStore):
    """A memory store that can lose one execution or all, or be left with a half of one."""

    def __init__(self, *, peers: Sequence[Partition], **settings: Any) -> None:
        self._peers = peers
        super().__init__(**settings)

    def flush(self) -> None:
        super().flush()
        # The list of installed executions, each with the time of the change that it was installed with. Redis
        # keeps the list apart from the executions, so a name stays when its execution is lost alone.
        self._listed: dict[str, int] = {}
        # Executions of which an install was broken off, and its epoch: there for nobody, and in the way of
        # older ones.
        self._halves: dict[str, int] = {}

    def lose(self, execution_id: str) -> None:
        """Forget an execution and its tombstone, as a server does that drops a key."""
        self._drop(execution_id)
        self._closed.pop(execution_id, None)
        self._halves.pop(execution_id, None)

    def end_incarnation(self, *, keeps_list: bool = False) -> None:
        """Forget all executions, but not the sweeps: sweeps belong to no incarnation.

        ``keeps_list``: their names stay until another incarnation begins.
        """
        swept_at, grace_until = self._leases.swept_at, self._leases.grace_until
        listed = self._listed if keeps_list else {}
        self.flush()
        self._leases.swept_at, self._leases.grace_until = swept_at, grace_until
        self._listed = listed

    def begin_incarnation(self) -> None:
        """Forget the names that an earlier incarnation of the store has left."""
        if self._incarnation_id is None:
            self._listed.clear()

    async def incarnation_id(self) -> str:
        self.begin_incarnation()
        return await super().incarnation_id()

    async def idle_since(self, since: int) -> Mapping[str, int]:
        lost = {name: at for name, at in self._listed.items() if name not in self._executions and at <= since}
        return {**lost, **await super().idle_since(since)}

    def break_off(self, snapshot: Snapshot, incarnation_id: str) -> None:
        """Begin an install, and be interrupted."""
        row = snapshot.execution
        known = self._executions.get(row.id)
        epoch = (
            known.row.epoch
            if known
            else max(self._closed[row.id].epoch if row.id in self._closed else 0, self._halves.get(row.id, 0))
        )
        if incarnation_id != self._incarnation_id or row.epoch <= epoch:
            return
        self.lose(row.id)
        self._halves[row.id] = row.epoch

    def _install(self, snapshot: Snapshot, incarnation_id: str, fresh: bool) -> Answer:
        row = snapshot.execution
        if row.epoch <= self._halves.get(row.id, 0):
            return Answer.REFUSED
        answer = super()._install(snapshot, incarnation_id, fresh)
        if answer is Answer.YES:
            self._halves.pop(row.id, None)
            self._listed[row.id] = row.updated_at
        return answer

    def _close(self, execution_id: str, generation: int, epoch: int) -> Answer:
        if self._halves.get(execution_id, 0) > epoch:
            return Answer.REFUSED
        if execution_id not in self._executions and execution_id not in self._halves:
            # A tombstone is left in every partition, and where no incarnation has begun, one begins with it.
            for peer in self._peers:
                peer.begin_incarnation()
        self._halves.pop(execution_id, None)
        answer = super()._close(execution_id, generation, epoch)
        if answer is Answer.YES:
            self._listed.pop(execution_id, None)
        return answer


class Model:
    def __init__(self, partitions: int, *, now: Callable[[], int], **settings: Any) -> None:
        numbers = count(1)
        self.sent: list[Task] = []
        self.published: list[Result] = []
        self.partitions: list[Partition] = []
        self.partitions += [
            Partition(
                peers=self.partitions,
                now=now,
                new_id=lambda: f"incarnation-{next(numbers)}",
                publish=self.published.extend,
                send=self.sent.extend,
                options=StoreOptions(**settings),
            )
            for _ in range(partitions)
        ]
        self._where: dict[str, int] = {}

    def put(self, row: ExecutionRow) -> None:
        """Return the partition of an execution."""
        self._where[row.id] = row.partition

    def where(self, execution_id: str) -> int:
        return self._where.get(execution_id, 0)

    def of(self, execution_id: str) -> Partition:
        return self.partitions[self.where(execution_id)]

    async def _each(
        self, name: str, items: Sequence[Any], execution_id: Callable[[Any], str], *more: Any
    ) -> list[Any]:
        answers: list[Any] = [None] * len(items)
        for number, partition in enumerate(self.partitions):
            own = [index for index, item in enumerate(items) if self.where(execution_id(item)) == number]
            if own:
                given = await getattr(partition, name)([items[index] for index in own], *more)
                for index, answer in zip(own, given, strict=True):
                    answers[index] = answer
        return answers

    # -- the store ---------------------------------------------------------------------------------

    async def incarnation_id(self) -> str:
        return " ".join([await partition.incarnation_id() for partition in self.partitions])

    async def install(
        self, snapshot: Snapshot, *, incarnation_id: str, fresh: bool, ahead: Sequence[Task] = ()
    ) -> Answer:
        number = self.where(snapshot.execution.id)
        own = incarnation_id.split(" ")[number]
        (answer,) = await self.partitions[number].install(
            [snapshot], incarnation_id=own, fresh=fresh, ahead=ahead
        )
        return answer

    async def close(
        self, execution_id: str, *, generation: int, epoch: int, plan: Plan | None = None
    ) -> Answer:
        return await self.of(execution_id).close(execution_id, generation=generation, epoch=epoch, plan=plan)

    async def epochs(self, execution_ids: Sequence[str]) -> Sequence[int | None]:
        return await self._each("epochs", execution_ids, str)

    async def idle_since(self, since: int) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for partition in self.partitions:
            found |= await partition.idle_since(since)
        return found

    async def apply(self, row_updates: Sequence[RowUpdate], ahead: Sequence[Task] = ()) -> Sequence[Applied]:
        # A partition refuses tasks of what is elsewhere.
        return await self._each("apply", row_updates, lambda one: str(one.execution.id), ahead)

    async def free(self, execution_ids: Sequence[str]) -> Sequence[Applied]:
        return await self._each("free", execution_ids, str)

    async def queue(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        return await self._each("queue", tasks, lambda one: str(one.execution_id))

    async def throttle(
        self, execution_id: str, *, generation: int, node_id: str, attempt: int, was_queued: bool = False
    ) -> Answer:
        return await self.of(execution_id).throttle(
            execution_id,
            generation=generation,
            node_id=node_id,
            attempt=attempt,
            was_queued=was_queued,
        )

    async def release(self, execution_id: str, *, generation: int, node_id: str, attempt: int) -> Answer:
        return await self.of(execution_id).release(
            execution_id, generation=generation, node_id=node_id, attempt=attempt
        )

    async def start(self, requests: Sequence[StartRequest]) -> Sequence[Started]:
        return await self._each("start", requests, lambda one: str(one.execution_id))

    async def renew(self, leases: Sequence[Lease]) -> Sequence[Answer]:
        return await self._each("renew", leases, lambda one: str(one.execution_id))

    async def report(self, results: Sequence[Result]) -> None:
        for result in results:
            await self.of(result.execution_id).report([result])

    async def end_leases(self, attempts: Sequence[tuple[str, str, int]]) -> None:
        for attempt in attempts:
            await self.of(attempt[0]).end_leases([attempt])

    async def abandon(self, leases: Sequence[Lease]) -> None:
        for one in leases:
            await self.of(one.execution_id).abandon([one])

    async def due(self, *, idle_seconds: float) -> Due:
        found = [await partition.due(idle_seconds=idle_seconds) for partition in self.partitions]
        times = [due.next_at for due in found if due.next_at is not None]
        return Due(
            [one for due in found for one in due.woken],
            [one for due in found for one in due.expired],
            [one for due in found for one in due.deadlines],
            min(times, default=None),
            [one for due in found for one in due.parked],
        )

    async def running(self, execution_id: str) -> dict[str, Running]:
        return await self.of(execution_id).running(execution_id)

    async def inspect(
        self, execution_id: str, *, names: Collection[str] | None = None
    ) -> ExecutionStatus | None:
        return await self.of(execution_id).inspect(execution_id, names=names)

    async def in_flight(self, execution_ids: Sequence[str]) -> Sequence[tuple[int, int] | None]:
        return await self._each("in_flight", execution_ids, str)

    async def running_by_queue(self) -> Mapping[str, int]:
        running: dict[str, int] = {}
        for partition in self.partitions:
            for queue, number in (await partition.running_by_queue()).items():
                running[queue] = running.get(queue, 0) + number
        return running

    async def backlog(self) -> int:
        return sum([await partition.backlog() for partition in self.partitions])
