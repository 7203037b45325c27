"""Script calls about many executions: their keys and arguments, cut into bounded pieces."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weft.core.task import Task
    from weft.redis.keys import Keys

Argument: TypeAlias = "bytes | str | int"

# The place of an execution, and a move's numbers: as doubles, so that none from a wire is too large.
_NUMBERS = {count: struct.Struct("<H" + "d" * count) for count in (2, 4)}

# What one call is given at most: a script holds up everybody else.
MOST_ITEMS = 50
MOST_BYTES = 1024 * 1024
# Fields of one execution, so that one HMGET reads them.
MOST_FIELDS = 900


class Move:
    """One step of one node: the execution, the node's field, and what the script is told besides."""

    __slots__ = ("execution_id", "field", "numbers", "size", "words")

    def __init__(
        self, execution_id: str, node_id: str, *words: bytes | str, numbers: Sequence[int], size: int = 0
    ) -> None:
        self.execution_id = execution_id
        self.field = f".{node_id}"
        self.numbers = numbers
        self.words = words
        self.size = size

    def arguments(self, place: int) -> tuple[bytes | str, ...]:
        """Give its arguments in a call in which its execution has this number."""
        return (_NUMBERS[len(self.numbers)].pack(place, *self.numbers), self.field, *self.words)


class Lanes:
    """The lanes that the tasks of one call go to, numbered from 1."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int], int] = {}

    def __len__(self) -> int:
        return len(self._lanes)

    def place(self, task: Task) -> int:
        return self._lanes.setdefault((task.queue, task.handler, task.priority), len(self._lanes) + 1)

    def keys(self, keys: Keys) -> list[str]:
        return [keys.lanes, *[keys.lane(*lane) for lane in self._lanes]]

    def arguments(self, queued: int, *, sent: bool) -> list[Argument]:
        """Say for how long a queued task is waited for, whether tasks are sent, and which lanes there are."""
        return [queued, int(sent), len(self._lanes), *["|".join(map(str, lane)) for lane in self._lanes]]


class Call:
    """The executions that one call is about, with the fields it reads of each, and its arguments."""

    __slots__ = ("_fields", "_places", "size")

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._fields: list[dict[str, None]] = []
        self.size = 0

    def place(self, execution_id: str, fields: Iterable[str] = ()) -> int:
        """Give an execution's number in this call, from 1, and have these of its fields read."""
        place = self._places.get(execution_id)
        if place is None:
            self._fields.append(dict.fromkeys(fields))
            place = self._places[execution_id] = len(self._fields)
        elif fields:
            self._fields[place - 1].update(dict.fromkeys(fields))
        return place

    def has_room(self, execution_id: str, fields: int) -> bool:
        place = self._places.get(execution_id)
        return place is None or len(self._fields[place - 1]) + fields <= MOST_FIELDS

    @property
    def execution_ids(self) -> list[str]:
        return list(self._places)

    def keys(self, keys: Keys, own: Iterable[str] = ()) -> list[str]:
        hashes = [keys.execution(execution_id) for execution_id in self._places]
        return [*partition_keys(keys), *own, *hashes]

    def arguments(self, now: int, keep_seconds: int) -> list[Argument]:
        """Give the arguments that every script begins with."""
        return [now, keep_seconds, len(self._fields), *self._places]

    def fields(self) -> list[Argument]:
        """Give what a script is told that reads fields of all executions at once: how many, and these."""
        made: list[Argument] = []
        for fields in self._fields:
            made.append(len(fields))
            made += fields
        return made


def partition_keys(keys: Keys) -> list[str]:
    """List the keys of a partition that every script of the store is given."""
    return [keys.token, keys.leases, keys.timers, keys.free, keys.active, keys.unsettled]


def in_parts(moves: Sequence[Move]) -> Iterator[Sequence[Move]]:
    """Cut moves into what one call may be given."""
    start = size = 0
    for index, move in enumerate(moves):
        if index > start and (index - start >= MOST_ITEMS or size + move.size > MOST_BYTES):
            yield moves[start:index]
            start, size = index, 0
        size += move.size
    if start < len(moves):
        yield moves[start:]
