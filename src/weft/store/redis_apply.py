"""Rows to be merged as calls of a script, each bounded in items, fields and bytes."""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING

from weft.core.envelope import pack
from weft.store.redis_calls import MOST_BYTES, MOST_FIELDS, MOST_ITEMS, Argument, Call, Lanes
from weft.store.redis_records import STATES, pack_execution, pack_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.snapshot import Settlement
    from weft.core.task import Task
    from weft.redis.keys import Keys
    from weft.store.redis_shape import Shape

# An item, one of its units, and an unsettled row, as ``apply.lua`` reads them.
_APPLY = struct.Struct("<IHdddBcdddH")
_UNIT, _ROW = struct.Struct("<cH"), struct.Struct("<ddddd")
# A task that goes behind the items: as doubles, so that no number from a wire is too large.
_TASK = struct.Struct("<Hdddd")
# Fields that one call reads in all, and tasks that it queues.
_MOST_FIELDS_IN_ALL = 2000
_MOST_TASKS = 2 * MOST_ITEMS


class _Unit:
    """One row, or some of its dependents: the fields that are read, and what the script is told."""

    __slots__ = ("arguments", "fields", "size")

    def __init__(self, fields: tuple[str, ...], arguments: list[Argument], size: int) -> None:
        self.fields = fields
        self.arguments = arguments
        self.size = size


class ApplyCall(Call):
    """One call: its items, each a settlement or a part of one."""

    __slots__ = ("_items", "_tasks", "_wanted", "bytes", "indexes", "lanes", "of_execution")

    def __init__(self) -> None:
        super().__init__()
        # Execution, what makes the first argument, and the others.
        self._items: list[tuple[str, Callable[[bool], bytes], list[Argument]]] = []
        self._wanted: set[str] = set()
        self._tasks: list[Argument] = []
        self.lanes = Lanes()
        self.bytes = 0
        # The settlement that each item is of, and those of each execution.
        self.indexes: list[int] = []
        self.of_execution: dict[str, list[int]] = {}

    def add(
        self,
        index: int,
        execution_id: str,
        header: Callable[[int, int, bool], bytes],
        words: Sequence[Argument],
        units: Sequence[_Unit],
    ) -> None:
        """Add an item; ``header`` packs its numbers: length, place, whether free nodes are wanted."""
        place = self.place(execution_id, units[0].fields if units else ())
        arguments: list[Argument] = [*words]
        for unit in units:
            if unit is not units[0]:
                self.place(execution_id, unit.fields)
            arguments += unit.arguments
            self.bytes += unit.size
            self.size += len(unit.fields)
        self._items.append((execution_id, partial(header, len(arguments), place), arguments))
        self.indexes.append(index)
        self.of_execution.setdefault(execution_id, []).append(index)

    def give_free(self, execution_id: str) -> None:
        """Have the free nodes of an execution given by this call."""
        self._wanted.add(execution_id)

    def queue(self, task: Task, epoch: int, *, sent: bool) -> None:
        """Have a task queued behind the items, where there is room: it is in nobody's way elsewhere."""
        wire = pack(task) if sent else b""
        if len(self._tasks) >= 3 * _MOST_TASKS or self.bytes + len(wire) > MOST_BYTES:
            return
        field = f".{task.node_id}"
        place = self.place(task.execution_id, (field,))
        numbers = (task.generation, task.attempt, epoch, self.lanes.place(task))
        self._tasks += (_TASK.pack(place, *numbers), field, wire)
        self.bytes += len(wire)

    def has_room_for(self, execution_id: str, fields: int, size: int, tasks: int) -> bool:
        if not self.indexes:
            return True
        return (
            len(self.indexes) < MOST_ITEMS
            and len(self._tasks) // 3 + tasks <= _MOST_TASKS
            and self.size + fields <= _MOST_FIELDS_IN_ALL
            and self.bytes + size <= MOST_BYTES
            and self.has_room(execution_id, fields)
        )

    def all_keys(self, keys: Keys) -> list[str]:
        return self.keys(keys, self.lanes.keys(keys) if self._tasks else ())

    def all_arguments(
        self,
        now: int,
        keep_seconds: int,
        *,
        marks: tuple[int, ...] = (),
        queued: int = 0,
        sent: bool = False,
    ) -> list[Argument]:
        made = [*self.arguments(now, keep_seconds), *marks, *self.fields(), len(self._items)]
        for execution_id, header, arguments in self._items:
            made.append(header(execution_id in self._wanted))
            made += arguments
        if self._tasks:
            made += self.lanes.arguments(queued, sent=sent)
            made += self._tasks
        return made


def apply_calls(
    settlements: Sequence[tuple[int, Settlement]],
    shape_of: Callable[[Plan], Shape],
    *,
    ahead: Mapping[str, Sequence[tuple[Task, int]]],
    sent: bool,
) -> list[ApplyCall]:
    """Make the calls for numbered settlements: those of one execution in order, and together if they fit.

    ``ahead``: by execution, the tasks that go behind its rows, and the epoch of each; ``sent``: whether the
    store sends them.
    """
    by_execution: dict[str, list[tuple[int, Settlement]]] = {}
    for index, settlement in settlements:
        by_execution.setdefault(settlement.execution.id, []).append((index, settlement))
    calls = [ApplyCall()]
    for execution_id, own in by_execution.items():
        tasks = ahead.get(execution_id, ())
        for index, settlement in own:
            row = settlement.execution
            # Of one that has ended there is nothing more to say.
            packed = b"" if row.is_terminal else pack_execution(row)
            rows = () if row.is_terminal else settlement.rows
            for units in _pieces(rows, shape_of(settlement.plan)):
                header = partial(_apply_header, row, len(units))
                call = _room_for(calls, execution_id, units, len(tasks))
                call.add(index, execution_id, header, [packed], units)
                packed = b""
        # Its last call has them all: nothing of it follows.
        for task, epoch in tasks:
            calls[-1].queue(task, epoch, sent=sent)
        calls[-1].give_free(execution_id)
    return calls


def _apply_header(row: ExecutionRow, units: int, length: int, place: int, wanted: bool) -> bytes:
    return _APPLY.pack(
        *(length, place, row.generation, row.epoch, row.seq, wanted, STATES[row.state], row.unsettled),
        *(row.deadline_at or 0, row.updated_at, units),
    )


def _room_for(calls: list[ApplyCall], execution_id: str, units: Sequence[_Unit], tasks: int) -> ApplyCall:
    """Give the call that these go into: the last, or a new one."""
    fields, size = sum([len(unit.fields) for unit in units]), sum([unit.size for unit in units])
    if not calls[-1].has_room_for(execution_id, fields, size, tasks):
        calls.append(ApplyCall())
    return calls[-1]


def _pieces(rows: Sequence[NodeRow], shape: Shape) -> Iterator[list[_Unit]]:
    """Cut rows into what one call takes: nearly always one piece, also where there are none."""
    piece: list[_Unit] = []
    fields = size = 0
    for row in rows:
        for unit in _units(row, shape):
            if piece and (fields + len(unit.fields) > MOST_FIELDS or size + unit.size > MOST_BYTES):
                yield piece
                piece, fields, size = [], 0, 0
            piece.append(unit)
            fields += len(unit.fields)
            size += unit.size
    yield piece


def _units(row: NodeRow, shape: Shape) -> Iterator[_Unit]:
    field = f".{row.node_id}"
    if row.state is None:
        numbers = _ROW.pack(row.attempt, row.retry_at or 0, row.failures, row.losses, row.issued)
        yield _Unit((field,), [_UNIT.pack(b"u", 0), field, numbers], 0)
        return
    first, *more = shape.children(row.node_id, row.state)
    outcome, output = pack_outcome(row, keep_output=row.node_id in shape.read_by_others)
    arguments: list[Argument] = [_UNIT.pack(b"s", first.count), field, outcome, output, *first.arguments]
    yield _Unit((field, *first.fields), arguments, len(outcome) + len(output))
    for children in more:
        yield _Unit(
            (field, *children.fields), [_UNIT.pack(b"c", children.count), field, *children.arguments], 0
        )
