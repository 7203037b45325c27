"""The streams of a partition: results, and lanes of tasks (one for a queue, a handler and a priority).

Beside a lane there may be a crowded one, which has the tasks of executions that have many in flight already.
A worker takes the same share of both, so a small execution never stands behind a wide one: of each other
execution at most ``CROWD`` tasks (see the store's layout) are before its own.

``Served`` knows which lane's turn it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.task import PRIORITIES
from weft.redis.keys import CROWDED

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping, Sequence

    from weft.core.task import Task
    from weft.redis.keys import Keys

WORKERS = "workers"
ORCHESTRATORS = "orchestrators"
# Of so many tasks taken from a queue, one is that which has waited longest: nothing is starved.
OLDEST_EVERY = 8

_LEVELS = frozenset(PRIORITIES.values())


@dataclass(frozen=True, slots=True)
class Source:
    """A stream of one partition, and the group that reads it."""

    partition: int
    stream: str
    group: str = ORCHESTRATORS


@dataclass(frozen=True, slots=True)
class Lane(Source):
    """The stream of one queue's tasks for one handler, of one priority."""

    group: str = WORKERS
    queue: str = ""
    handler: str = ""
    priority: int = 0
    is_crowded: bool = False


def lane(keys: Keys, queue: str, handler: str, priority: int, *, is_crowded: bool = False) -> Lane:
    stream = keys.lane(queue, handler, priority, is_crowded=is_crowded)
    return Lane(keys.partition, stream, WORKERS, queue, handler, priority, is_crowded)


def member(task: Task) -> str:
    """Name a task's lane in the set of all lanes."""
    return f"{task.queue}|{task.handler}|{task.priority}"


def read_lanes(keys: Keys, members: Iterable[bytes]) -> list[Lane]:
    """Read the set of lanes; members that weft has not written are passed over."""
    lanes = []
    for one in members:
        name = one.decode(errors="replace")
        parts = name.removesuffix(CROWDED).split("|")
        if len(parts) == 3 and parts[2].isdecimal() and int(parts[2]) in _LEVELS:
            lanes.append(lane(keys, parts[0], parts[1], int(parts[2]), is_crowded=name.endswith(CROWDED)))
    return lanes


class Served:
    """Which lanes one consumer is served from, in which order."""

    def __init__(self, queues: Collection[str] | None, handlers: Container[str] | None) -> None:
        self.queues = queues
        self.handlers = handlers
        # When the set of lanes was last read.
        self.read_at = 0.0
        # Whether its lanes were empty when it last took something.
        self.is_drained = False
        self._known: dict[Lane, None] = {}
        # By partition: how many lanes the set had when it was read, and how many it has had since.
        self._read: dict[int, int] = {}
        self._noted: dict[int, int] = {}
        # Queues in the order in which they are served next, and how many were taken from each.
        self._taken: dict[str, int] = {}
        self._lanes: dict[int, dict[str, list[Lane]]] = {}
        # By partition: its lanes by the names of their streams, to wait on; empty until they are made.
        self.waits: dict[int, dict[bytes, Lane]] = {}

    def expect(self, partitions: Iterable[Keys]) -> None:
        """Know the lanes that its handlers' tasks take by default, before the first task is there.

        Then that task need not wait until the set of lanes is read again.
        """
        handlers: object = self.handlers
        if isinstance(handlers, Iterable):
            names = [name for name in handlers if self.queues is None or name in self.queues]
            self.add(lane(keys, name, name, PRIORITIES["normal"]) for keys in partitions for name in names)

    def learn(self, keys: Keys, members: Sequence[bytes]) -> bool:
        """Keep a partition's set of lanes; True if some are new."""
        self._read[keys.partition] = self._noted[keys.partition] = len(members)
        return self.add(read_lanes(keys, members))

    def note(self, partition: int, lane_count: int) -> None:
        """Keep the number of lanes in a partition's set, which only grows."""
        self._noted[partition] = lane_count

    @property
    def may_have_more(self) -> bool:
        """True if there may be lanes that were not read: some partition's set has another size."""
        return self._noted != self._read

    def add(self, lanes: Iterable[Lane]) -> bool:
        """Add lanes; True if this worker serves one of the new ones."""
        self.waits = {}
        fresh = [one for one in lanes if one not in self._known and self._may_serve(one)]
        self._known.update(dict.fromkeys(fresh))
        for one in fresh:
            self._taken.setdefault(one.queue, 0)
            self._lanes.setdefault(one.partition, {}).setdefault(one.queue, []).append(one)
            self._lanes[one.partition][one.queue].sort(key=lambda known: (-known.priority, known.is_crowded))
        return bool(fresh)

    def drop(self, lane: Lane) -> None:
        """Leave out a lane that cannot be read, until the set of lanes is read again."""
        self.waits = {}
        self._lanes[lane.partition][lane.queue].remove(lane)
        del self._known[lane]

    @property
    def partitions(self) -> Sequence[int]:
        return [number for number, queues in self._lanes.items() if any(queues.values())]

    def lanes(self, partition: int) -> list[Lane]:
        """Return the lanes of a partition: queue by queue as they are served next, high priorities first."""
        queues = self._lanes.get(partition, {})
        return [one for name in self._taken for one in queues.get(name, ())]

    def make_waits(self) -> Mapping[int, Mapping[bytes, Lane]]:
        self.waits = {
            number: {one.stream.encode(): one for one in self.lanes(number)} for number in self.partitions
        }
        return self.waits

    def turns(self, lanes: Iterable[Lane]) -> list[int]:
        """Return for each queue, in one list: tasks taken, number of lanes, and the lanes' priorities."""
        queues: dict[str, list[int]] = {}
        for one in lanes:
            queues.setdefault(one.queue, []).append(one.priority)
        said: list[int] = []
        for name, priorities in queues.items():
            said += (self._taken[name], len(priorities), *priorities)
        return said

    def count(self, taken: Mapping[str, int]) -> None:
        """Count the tasks taken from each queue, so that the other queues come first the next time."""
        if taken:
            self.waits = {}
        for queue, number in taken.items():
            self._taken[queue] = (self._taken.pop(queue) + number) % OLDEST_EVERY

    def _may_serve(self, one: Lane) -> bool:
        return (self.queues is None or one.queue in self.queues) and (
            self.handlers is None or one.handler in self.handlers
        )
