"""Script calls about many executions: their keys and arguments, cut into bounded pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from weft.core.envelope import pack
from weft.store.redis.layout import (
    CONSTANTS,
    STATES,
    kept,
    node_field,
    pack_execution,
    pack_outcome,
    partition_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.snapshot import Settlement
    from weft.core.task import Task
    from weft.redis.keys import Keys
    from weft.store.redis.plan_arguments import PlanArguments

Argument: TypeAlias = "bytes | str | int"

# What one call is given at most: a script holds up everybody else.
MOST_ITEMS = 50
MOST_BYTES = 1024 * 1024
# Fields of one execution, so that one HMGET reads them.
MOST_FIELDS = 900
# Fields that one call reads in all, and tasks that it queues.
MOST_FIELDS_IN_ALL = 2000
MOST_TASKS = 100

_SETTLED, _LARGE, _CHILDREN, _UNSETTLED = (
    str(CONSTANTS[name]) for name in ("UNIT_SETTLED", "UNIT_LARGE", "UNIT_CHILDREN", "UNIT_UNSETTLED")
)


class Lanes:
    """The lanes that the tasks of one call go to, numbered from 1."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int], int] = {}

    def place(self, task: Task) -> int:
        return self._lanes.setdefault((task.queue, task.handler, task.priority), len(self._lanes) + 1)

    def keys(self, keys: Keys) -> list[str]:
        return [keys.lanes, *[keys.lane(*lane) for lane in self._lanes]]

    def arguments(self, queued: int, *, sent: bool) -> list[Argument]:
        """Return the lease of a queued task, whether tasks are sent, and the lanes."""
        return [queued, int(sent), len(self._lanes), *["|".join(map(str, lane)) for lane in self._lanes]]


class ScriptCall:
    """One call: the executions it is about, in the order of its arguments, and what its items stand for."""

    __slots__ = ("arguments", "execution_ids", "items", "lanes", "size")

    def __init__(self) -> None:
        self.execution_ids: list[str] = []
        self.arguments: list[Argument] = []
        # What the caller knows the items of the reply by.
        self.items: list[int] = []
        self.size = 0
        self.lanes = Lanes()

    def keys(self, keys: Keys, own: Iterable[str] = ()) -> list[str]:
        hashes = [keys.execution(execution_id) for execution_id in self.execution_ids]
        return [*partition_keys(keys), *own, *hashes]

    def all_arguments(self, now: int, own: Iterable[Argument] = ()) -> list[Argument]:
        return [now, len(self.execution_ids), *own, *self.arguments]


class Move:
    """One step of one node: its execution, generation (and epoch), and what the script is told of it."""

    __slots__ = ("arguments", "execution_id", "life", "size", "task", "wire")

    def __init__(
        self,
        execution_id: str,
        life: tuple[int, ...],
        *arguments: Argument,
        task: Task | None = None,
        wire: bytes = b"",
    ) -> None:
        self.execution_id = execution_id
        self.life = life
        self.arguments = arguments
        # A task that goes with it, or a result: a message of so many bytes.
        self.task = task
        self.wire = wire
        self.size = len(wire)


def move_calls(moves: Sequence[Move], indexes: Sequence[int]) -> Iterator[ScriptCall]:
    """Make the calls for some of the moves: those of one execution together, and no node twice."""
    start = size = 0
    nodes: set[tuple[str, Argument]] = set()
    for at, index in enumerate(indexes):
        move = moves[index]
        node = (move.execution_id, move.arguments[0])
        if at > start and (at - start >= MOST_ITEMS or size + move.size > MOST_BYTES or node in nodes):
            yield _move_call(moves, indexes[start:at])
            start, size = at, 0
            nodes.clear()
        nodes.add(node)
        size += move.size
    if start < len(indexes):
        yield _move_call(moves, indexes[start:])


def _move_call(moves: Sequence[Move], indexes: Sequence[int]) -> ScriptCall:
    call = ScriptCall()
    groups: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for index in indexes:
        move = moves[index]
        groups.setdefault((move.execution_id, move.life), []).append(index)
    arguments = call.arguments
    for (execution_id, life), own in groups.items():
        call.execution_ids.append(execution_id)
        call.items += own
        arguments += (execution_id, *life, len(own))
        for index in own:
            move = moves[index]
            arguments += move.arguments
            if move.task is not None:
                arguments += (call.lanes.place(move.task), move.wire)
    return call


class _Unit:
    """One row, or some of its dependents: the fields that are read, and what the script is told."""

    __slots__ = ("arguments", "fields", "size")

    def __init__(self, fields: int, arguments: tuple[Argument, ...], size: int) -> None:
        self.fields = fields
        self.arguments = arguments
        self.size = size


class _Item:
    """Settlements of one execution that are of the same generation and epoch, as one."""

    __slots__ = ("indexes", "plan", "row", "rows")

    def __init__(self, index: int, settlement: Settlement) -> None:
        self.indexes = [index]
        self.row = settlement.execution
        self.plan = settlement.plan
        self.rows: Sequence[NodeRow] = settlement.rows

    def takes(self, settlement: Settlement) -> bool:
        row, own = settlement.execution, self.row
        return (
            row.generation == own.generation
            and row.epoch == own.epoch
            and not row.is_terminal
            and not own.is_terminal
        )

    def add(self, index: int, settlement: Settlement) -> None:
        self.indexes.append(index)
        self.rows = [*self.rows, *settlement.rows]
        if settlement.execution.seq >= self.row.seq:
            self.row = settlement.execution


class ApplyCall(ScriptCall):
    """One call: rows of executions, each execution once."""

    __slots__ = ("fields", "gives", "merged", "tasks")

    def __init__(self) -> None:
        super().__init__()
        self.fields = self.tasks = 0
        # Of each execution: what is merged, whether free nodes are given, and the tasks that go behind.
        self.merged: list[_Item] = []
        self.gives: list[tuple[bool, Sequence[Task]]] = []

    def has_room_for(self, execution_id: str, fields: int, size: int, tasks: int) -> bool:
        if not self.execution_ids:
            return True
        return (
            len(self.execution_ids) < MOST_ITEMS
            and self.fields + fields <= MOST_FIELDS_IN_ALL
            and self.size + size <= MOST_BYTES
            and self.tasks + tasks <= MOST_TASKS
            and execution_id not in self.execution_ids
        )

    def add(
        self,
        item: _Item,
        packed: bytes,
        units: Sequence[_Unit],
        tasks: Sequence[Task],
        *,
        gives: bool,
        sent: bool,
    ) -> None:
        row = item.row
        self.execution_ids.append(row.id)
        self.merged.append(item)
        arguments = self.arguments
        own: list[Argument] = []
        queued: list[Task] = []
        # Where there is room; a task that is left out is in nobody's way: its node comes as free.
        for task in tasks:
            wire = pack(task) if sent else b""
            if len(queued) == MOST_TASKS or (queued and self.size + len(wire) > MOST_BYTES):
                break
            own += (node_field(task.node_id), task.attempt, self.lanes.place(task), wire)
            queued.append(task)
            self.size += len(wire)
        self.tasks += len(queued)
        self.gives.append((gives, queued))
        arguments += (row.id, row.generation, row.epoch, STATES[row.state], row.seq, row.deadline_at or 0)
        arguments += (row.unsettled, packed, int(gives), len(units), len(queued))
        for unit in units:
            arguments += unit.arguments
            self.fields += unit.fields
            self.size += unit.size
        arguments += own


def apply_calls(
    settlements: Sequence[tuple[int, Settlement]],
    arguments_of: Callable[[Plan], PlanArguments],
    *,
    ahead: Mapping[str, Sequence[tuple[Task, int]]],
    sent: bool,
) -> list[ApplyCall]:
    """Make the calls for numbered settlements: those of one execution in order, and together if they fit.

    ``ahead``: by execution, the tasks that go behind its rows, and the epoch of each; ``sent``: whether the
    store sends them.
    """
    by_execution: dict[str, list[_Item]] = {}
    for index, settlement in settlements:
        items = by_execution.setdefault(settlement.execution.id, [])
        if items and items[-1].takes(settlement):
            items[-1].add(index, settlement)
        else:
            items.append(_Item(index, settlement))
    calls = [ApplyCall()]
    for execution_id, items in by_execution.items():
        behind = ahead.get(execution_id, ())
        for item in items:
            row = item.row
            if row.is_terminal:
                # Of one that has ended there is nothing more to say than whose leases are over with it.
                over = [_Unit(1, (node_field(one.node_id),), 0) for one in item.rows[:MOST_TASKS]]
                _room_for(calls, row, over, 0).add(item, b"", over, (), gives=False, sent=sent)
                continue
            tasks = [
                task for task, epoch in behind if (task.generation, epoch) == (row.generation, row.epoch)
            ]
            if item is not items[-1]:
                tasks = []
            packed = pack_execution(row)
            pieces = _pieces(item.rows, arguments_of(item.plan))
            for piece in pieces:
                is_last = piece is pieces[-1]
                # With its last rows all of them are there: nothing of it follows.
                own = tasks if is_last else ()
                call = _room_for(calls, row, piece, len(own))
                call.add(item, packed, piece, own, gives=is_last, sent=sent)
                packed = b""
    return calls


def _room_for(calls: list[ApplyCall], row: ExecutionRow, units: Sequence[_Unit], tasks: int) -> ApplyCall:
    """Return the call that these go into: the last, or a new one."""
    fields, size = sum([unit.fields for unit in units]), sum([unit.size for unit in units])
    if not calls[-1].has_room_for(row.id, fields + tasks, size, tasks):
        calls.append(ApplyCall())
    return calls[-1]


def _pieces(rows: Sequence[NodeRow], arguments: PlanArguments) -> list[list[_Unit]]:
    """Cut rows into what one call takes: nearly always one piece, also where there are none."""
    pieces: list[list[_Unit]] = [[]]
    fields = size = 0
    for row in rows:
        for unit in _units(row, arguments):
            if pieces[-1] and (fields + unit.fields > MOST_FIELDS or size + unit.size > MOST_BYTES):
                pieces.append([])
                fields = size = 0
            pieces[-1].append(unit)
            fields += unit.fields
            size += unit.size
    return pieces


def _units(row: NodeRow, arguments: PlanArguments) -> list[_Unit]:
    field = node_field(row.node_id)
    if row.state is None:
        told = (_UNSETTLED, field, row.attempt, kept(row), row.issued, row.retry_at or 0)
        return [_Unit(1, told, 0)]
    first, *more = arguments.children(row.node_id, row.state)
    outcome, output = pack_outcome(row, keep_output=row.node_id in arguments.read_by_others)
    if output is None:
        units = [_Unit(1 + first.fields, (_SETTLED, field, outcome, *first.arguments), len(outcome))]
    else:
        size = len(outcome) + len(output)
        units = [_Unit(1 + first.fields, (_LARGE, field, outcome, output, *first.arguments), size)]
    units += [_Unit(1 + part.fields, (_CHILDREN, field, *part.arguments), 0) for part in more]
    return units
