"""Ports that may fail: each call is a step before and a step after, and some calls go wrong.

A crash at the step before means that nothing happened; at the step after, that it happened and nobody
was told. That is all that a process can tell of a call to another one.
"""

from __future__ import annotations

import heapq
import inspect
import itertools
from typing import TYPE_CHECKING, Any

from tests.support.simulation.scheduler import Step

from weft.core.time import micros
from weft.errors import JournalError, OutcomeUnknownError, StoreError
from weft.store.contract import Answer, Due
from weft.store.memory import MemoryStore
from weft.store.memory.execution import ORPHANED, QUEUED, THROTTLED
from weft.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tests.support.simulation.scheduler import Actor
    from tests.support.simulation.world import World

    from weft.core.attempt import AttemptRef
    from weft.core.snapshot import Snapshot
    from weft.core.task import Result, Task
    from weft.store.contract import Lease
    from weft.transport.contract import Message

# How much more often the favourite call of a seed fails.
_FAVOURITE = 10
_COMMITS = frozenset({"submit", "record", "rebuild", "release_queued", "fire"})
# Every sweep asks for them. Where no node waits that is no step, so that old seeds stay the runs they were.
_OF_WAITS = frozenset({"due_waits"})

# An answer that is so long on its way that much may change meanwhile.
_SLOW = {"store.evictable": 0.8}


class PortError(Exception):
    """The store, the transport or the limits did not answer."""


class AwayError(PortError, StoreError):
    """The same for an API process, as the real ports say it: a submit goes on without the store."""


class Faulty:
    """One actor's view of a port."""

    def __init__(self, world: World, actor: Actor, target: Any, name: str) -> None:
        self._world = world
        self._actor = actor
        self._target = target
        self._name = name

    def __getattr__(self, method: str) -> Any:
        inner = getattr(self._target, method)
        if not inspect.iscoroutinefunction(inner):
            return inner
        if method in _OF_WAITS and not (self._world.profile.waits or self._world.profile.calls):
            return inner
        # Kept: from now on the attribute is found without asking here.
        call = self.__dict__[method] = (
            self._journal(method) if self._name == "journal" else self._other(method)
        )
        return call

    def _journal(self, method: str) -> Any:
        world, actor, target = self._world, self._actor, self._target
        process = actor.process
        step, commits = f"journal.{method}", method in _COMMITS
        before, after = Step(f"{step}:before"), Step(f"{step}:after")

        async def call(*args: Any, **kwargs: Any) -> Any:
            await before
            if world.journal_is_down():
                world.hits["journal away"] += 1
                raise JournalError("the journal is away")
            if process.incarnation != world.incarnation:
                world.connect(process)
                if commits:
                    world.hits[f"commit of another incarnation {step}"] += 1
                    raise JournalError("nothing was written: the journal has lost commits")
            draw = world.draw_fault() if commits else 1.0
            if draw < world.amounts["commit_fails"]:
                world.fault(f"commit failed {step}")
                raise JournalError("the commit failed")
            is_unknown = draw < world.amounts["commit_fails"] + world.amounts["commit_unknown"]
            result = await getattr(target, method)(*args, **kwargs)
            world.watch(actor, step, args, kwargs, result)
            if is_unknown:
                world.fault(f"commit unknown {step}")
                raise OutcomeUnknownError("the answer was lost")
            await after
            return result

        return call

    def _other(self, method: str) -> Any:
        world, actor, target = self._world, self._actor, self._target
        step = f"{self._name}.{method}"
        before, after = Step(f"{step}:before"), Step(f"{step}:after", _SLOW.get(step, 0.0))
        chance = world.amounts["port_error"] * (_FAVOURITE if step == world.favourite_error else 1)
        error = AwayError if actor.kind == "api" else PortError

        async def call(*args: Any, **kwargs: Any) -> Any:
            await before
            draw = world.draw_fault() if chance else 1.0
            if draw < chance / 2:
                world.fault(f"error before {step}")
                raise error(f"{step} did not happen")
            result = await getattr(target, method)(*args, **kwargs)
            world.watch(actor, step, args, kwargs, result)
            if draw < chance:
                world.fault(f"error after {step}")
                raise error(f"the answer of {step} was lost")
            await after
            return result

        return call


class FaultyTransport(InProcessTransport):
    """Streams that double, lose, delay and reorder messages, and that can be emptied or set back."""

    def __init__(self, world: World) -> None:
        super().__init__(now=lambda: world.scheduler.now)
        self._world = world
        self._order = itertools.count()
        # On their way: (arrives at, order, whether it is a task, what)
        self.late: list[tuple[int, int, bool, Any]] = []

    def has_tasks(self, queues: Collection[str] | None) -> bool:
        return bool(self._waiting) if queues is None else any(name in queues for name in self._waiting)

    @property
    def has_messages(self) -> bool:
        return bool(self._messages)

    @property
    def is_quiet(self) -> bool:
        """True if nothing is on its way, and nothing is taken and not acknowledged."""
        return not (
            self._waiting
            or self._messages
            or self.late
            or self._tasks_pending.entries
            or self._messages_pending.entries
        )

    def put(self, tasks: Sequence[Task]) -> None:
        arrived = self._carried(tasks, is_task=True)
        if arrived:
            self._arrive_tasks(arrived)

    def append(self, messages: Sequence[Message]) -> None:
        arrived = self._carried(messages, is_task=False)
        if arrived:
            self._arrive_messages(arrived)

    def _arrive_tasks(self, tasks: Sequence[Task]) -> None:
        super().put(tasks)
        self._world.scheduler.tell("tasks")

    def _arrive_messages(self, messages: Sequence[Message]) -> None:
        super().append(messages)
        self._world.scheduler.tell("messages")

    def _carried(self, items: Sequence[Any], *, is_task: bool) -> list[Any]:
        """Return what arrives now of what is sent."""
        world = self._world
        if not world.mangles or not world.faults_on():
            return list(items)
        amounts, rng = world.amounts, world.rng
        arrived = []
        for item in items:
            if rng.random() < amounts["dropped"]:
                world.fault("message dropped")
                continue
            for copy in range(2 if rng.random() < amounts["doubled"] else 1):
                if copy:
                    world.fault("message doubled")
                if rng.random() < amounts["delayed"]:
                    world.fault("message delayed")
                    self._delay(item, 1 + 11 * rng.random(), is_task=is_task)
                elif rng.random() < amounts["reordered"]:
                    world.hits["message reordered"] += 1
                    self._delay(item, 0.3 * rng.random(), is_task=is_task)
                else:
                    arrived.append(item)
        return arrived

    def _delay(self, item: Any, seconds: float, *, is_task: bool) -> None:
        at = self._world.scheduler.now + micros(seconds)
        heapq.heappush(self.late, (at, next(self._order), is_task, item))
        self._world.scheduler.tell("network")

    def deliver(self) -> float:
        """Let what is due arrive; give the seconds until more is."""
        now = self._world.scheduler.now
        while self.late and self.late[0][0] <= now:
            _, _, is_task, item = heapq.heappop(self.late)
            if is_task:
                self._arrive_tasks([item])
            else:
                self._arrive_messages([item])
        return (self.late[0][0] - now) / 1e6 if self.late else 1e6

    def wipe_tasks(self) -> None:
        """Lose all tasks, as with another incarnation of the journal; results stay."""
        empty = InProcessTransport(now=self._now)
        self._by_name, self._waiting, self._tasks_pending = (
            empty._by_name,
            empty._waiting,
            empty._tasks_pending,
        )
        self.late = [entry for entry in self.late if not entry[2]]
        heapq.heapify(self.late)

    def flush(self) -> None:
        ids = self._ids
        self.__init__(self._world)  # type: ignore[misc]
        self._ids = ids

    def copy(self) -> InProcessTransport:
        """Take a copy of what lies in the streams now."""
        copy = InProcessTransport(now=self._now)
        for queue in self._by_name.values():
            for level in queue.levels:
                copy.put([task for _, name in level.turns for task in level.by_execution[name]])
        copy.append(list(self._messages))
        copy._tasks_pending.entries = dict(self._tasks_pending.entries)
        copy._messages_pending.entries = dict(self._messages_pending.entries)
        return copy

    def set_back(self, copy: InProcessTransport) -> None:
        """Be again what was copied; what came since is lost, what was acknowledged since is there again."""
        self._by_name, self._waiting, self._messages = copy._by_name, copy._waiting, copy._messages
        self._tasks_pending, self._messages_pending = copy._tasks_pending, copy._messages_pending
        for topic in ("tasks", "messages"):
            self._world.scheduler.tell(topic)


class WatchedStore(MemoryStore):
    """A store whose sweeps see only what the profile's nets let them see, and which counts rare paths."""

    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(**options)
        self._world = world

    def forget(self, execution_id: str) -> None:
        """Lose the state of one execution, as by its TTL, a deletion, or garbage in its hash."""
        self._drop(execution_id)

    async def due(self, *, idle_seconds: float) -> Due:
        hits, nets = self._world.hits, self._world.profile.nets
        now = self._now()
        for node in self._leases.values():
            if node.lease_until <= now and node.phase in (QUEUED, THROTTLED):
                hits[f"sweep: {node.phase} again"] += 1
        for since in self._with_free.values():
            if "free" in nets and since <= now - micros(idle_seconds):
                hits["sweep: free nodes nobody dispatched"] += 1
        due = await super().due(idle_seconds=idle_seconds if "free" in nets else 1e6)
        if due.deadlines:
            hits["sweep: deadline"] += 1
        if "lease" not in nets:
            return Due(due.woken, (), due.deadlines, due.next_at, due.parked)
        for expired in due.expired:
            node = self._executions[expired.execution_id].nodes[expired.node_id]
            hits[f"sweep: lease of a {node.phase} node ran out"] += 1
        return due

    async def queue(self, tasks: Sequence[Task]) -> Sequence[Answer]:
        answers = await super().queue(tasks)
        if self._world.profile.small_memory:
            self._world.invariants.memory(self)
            self._world.hits["queue: no memory"] += list(answers).count(Answer.NO_MEMORY)
        return answers

    async def admit(self, attempt: AttemptRef, *, epoch: int, weight: int) -> Answer:
        answer = await super().admit(attempt, epoch=epoch, weight=weight)
        self._world.hits["admit: no memory"] += answer is Answer.NO_MEMORY
        return answer

    async def install(
        self,
        snapshots: Sequence[Snapshot],
        *,
        incarnation_id: str,
        fresh: bool,
        ahead: Sequence[Task] = (),
    ) -> Sequence[Answer]:
        is_life = incarnation_id == self._incarnation_id
        answers = await super().install(snapshots, incarnation_id=incarnation_id, fresh=fresh, ahead=ahead)
        hits = self._world.hits
        for answer in answers:
            if answer is Answer.YES:
                hits["install: fresh" if fresh else "install: rebuilt"] += 1
            else:
                hits[
                    "install: refused by the epoch" if is_life else "install: refused by the incarnation"
                ] += 1
        return answers

    def _renew(self, item: Lease, until: int) -> Answer:
        execution = self._executions.get(item.execution_id)
        node = None if execution is None else execution.nodes.get(item.node_id)
        was_orphaned = node is not None and node.phase is ORPHANED
        answer = super()._renew(item, until)
        if was_orphaned and answer is Answer.YES:
            self._world.hits["orphaned: adopted by a heartbeat"] += 1
        return answer

    async def report(self, results: Sequence[Result]) -> None:
        for result in results:
            execution = self._executions.get(result.execution_id)
            node = None if execution is None else execution.nodes.get(result.node_id)
            if node is not None and node.phase is ORPHANED and node.attempt == result.attempt:
                self._world.hits["orphaned: adopted by a report"] += 1
        await super().report(results)
