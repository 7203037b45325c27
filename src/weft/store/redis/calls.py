"""Script calls about many executions: their keys and arguments, cut into bounded pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from weft.core.envelope import pack, pack_all
from weft.store.redis.layout import (
    CONSTANTS,
    STATES,
    kept,
    lease_member,
    node_field,
    pack_outcome,
    partition_keys,
    row_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow, NodeRow
    from weft.core.snapshot import Settlement
    from weft.core.task import Result, Task
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

_UNSETTLED, _WITH_OUTPUT, _OPEN = (str(CONSTANTS[name]) for name in ("UNIT_UNSETTLED", "WITH_OUTPUT", "OPEN"))
_GIVES_NOTHING, _GIVES_FREE, _GIVES_ALL = (
    str(CONSTANTS[name]) for name in ("GIVES_NOTHING", "GIVES_FREE", "GIVES_ALL")
)


class Lanes:
    """The lanes that the tasks of one call go to, numbered from 1."""

    __slots__ = ("_lanes",)

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str, int], int] = {}

    def about(self, task: Task) -> str:
        """Return what a script is told of a task besides its message."""
        place = self._lanes.setdefault((task.queue, task.handler, task.priority), len(self._lanes) + 1)
        return f"{place} {task.attempt} {node_field(task.node_id)}"

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

    def add_tasks(self, tasks: Sequence[tuple[Task, bytes]]) -> None:
        for task, wire in tasks:
            self.arguments += (self.lanes.about(task), wire)
            self.size += len(wire)


# One step of one node: its execution, its generation, its field; and what else the script is told of it.
Move: TypeAlias = "tuple[str, int, str, str] | tuple[str, int, str, str, str]"


def move_calls(moves: Sequence[Move], indexes: Sequence[int]) -> list[ScriptCall]:
    """Make the calls for some of the moves: those of one execution together, and no node twice."""
    calls: list[ScriptCall] = []
    groups: dict[tuple[str, int], list[int]] = {}
    nodes: set[tuple[str, str]] = set()
    for index in indexes:
        move = moves[index]
        node = move[0], move[2]
        if len(nodes) == MOST_ITEMS or node in nodes:
            calls.append(_move_call(moves, groups))
            groups.clear()
            nodes.clear()
        nodes.add(node)
        groups.setdefault(move[:2], []).append(index)
    if nodes:
        calls.append(_move_call(moves, groups))
    return calls


def _move_call(moves: Sequence[Move], groups: Mapping[tuple[str, int], list[int]]) -> ScriptCall:
    call = ScriptCall()
    arguments = call.arguments
    for (execution_id, generation), own in groups.items():
        call.execution_ids.append(execution_id)
        call.items += own
        arguments += (generation, len(own))
        for index in own:
            arguments += moves[index][2:]
    return call


def report_arguments(results: Sequence[Result]) -> list[list[Argument]]:
    """Return the arguments of each call that reports results: the results as one message, their leases."""
    calls: list[list[Argument]] = []
    wires: list[bytes] = []
    leases: list[Argument] = []
    size = 0
    for result in results:
        wire = pack(result)
        size += len(wire)
        if wires and (len(wires) == MOST_ITEMS or size > MOST_BYTES):
            calls.append([pack_all(wires), *leases])
            wires, leases, size = [], [], len(wire)
        wires.append(wire)
        leases.append(lease_member(result.execution_id, result.node_id, result.attempt))
    return [*calls, [pack_all(wires), *leases]]


class _Unit:
    """One row, or some of its dependents: the fields that are read, and what the script is told."""

    __slots__ = ("arguments", "fields", "size")

    def __init__(self, fields: int, arguments: tuple[Argument, ...], size: int) -> None:
        self.fields = fields
        self.arguments = arguments
        self.size = size


class Merge:
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
    """One call of ``apply``: each execution once, with rows, with tasks, or with neither."""

    __slots__ = ("fields", "merged", "tasks")

    def __init__(self) -> None:
        super().__init__()
        self.fields = self.tasks = 0
        # Of each execution: what is merged, if anything, and the tasks that go behind.
        self.merged: list[tuple[Merge | None, Sequence[tuple[Task, bytes]]]] = []

    def has_room_for(self, execution_id: str, fields: int, size: int, tasks: int) -> bool:
        return not self.execution_ids or (
            len(self.execution_ids) < MOST_ITEMS
            and self.fields + fields <= MOST_FIELDS_IN_ALL
            and self.size + size <= MOST_BYTES
            and self.tasks + tasks <= MOST_TASKS
            and execution_id not in self.execution_ids
        )

    def add(
        self,
        execution_id: str,
        life: str,
        *,
        row: bytes = b"",
        units: Sequence[_Unit] = (),
        tasks: Sequence[tuple[Task, bytes]] = (),
        window: int = 0,
        gives: str = _GIVES_NOTHING,
    ) -> None:
        """Add an execution; ``life``: its generation, epoch and state; ``window`` 0: as it was installed."""
        self.execution_ids.append(execution_id)
        self.arguments += (f"{life} {len(units)} {len(tasks)} {window} {gives}", row)
        for unit in units:
            self.arguments += unit.arguments
            self.fields += unit.fields
            self.size += unit.size
        self.tasks += len(tasks)
        self.add_tasks(tasks)


def free_calls(execution_ids: Sequence[str]) -> list[ApplyCall]:
    """Make the calls that list the free nodes of executions, with their rows, plans and inputs."""
    calls = []
    for start in range(0, len(execution_ids), MOST_ITEMS):
        calls.append(ApplyCall())
        for execution_id in execution_ids[start : start + MOST_ITEMS]:
            calls[-1].add(execution_id, f"::{_OPEN}", gives=_GIVES_ALL)
    return calls


def close_call(execution_id: str, generation: int, epoch: int) -> ApplyCall:
    """Make the call that lets an execution go."""
    call = ApplyCall()
    call.add(execution_id, f"{generation}:{epoch}:{CONSTANTS['TERMINAL']}")
    return call


def queue_calls(tasks: Sequence[tuple[Task, int]], indexes: Sequence[int], *, sent: bool) -> list[ApplyCall]:
    """Make the calls that queue some of the tasks, each with its epoch; ``sent``: whether they are sent."""
    calls: list[ApplyCall] = []
    groups: dict[tuple[str, int, int], list[int]] = {}
    wires: dict[int, bytes] = {}
    count = size = 0

    def close() -> None:
        calls.append(ApplyCall())
        for (execution_id, generation, epoch), own in groups.items():
            calls[-1].items += own
            given = [(tasks[index][0], wires[index]) for index in own]
            calls[-1].add(execution_id, f"{generation}:{epoch}:{_OPEN}", tasks=given)
            calls[-1].merged.append((None, given))
        groups.clear()

    for index in indexes:
        task, epoch = tasks[index]
        wires[index] = wire = pack(task) if sent else b""
        if count == MOST_ITEMS or (count and size + len(wire) > MOST_BYTES):
            close()
            count = size = 0
        groups.setdefault((task.execution_id, task.generation, epoch), []).append(index)
        count += 1
        size += len(wire)
    close()
    return calls


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
    by_execution: dict[str, list[Merge]] = {}
    for index, settlement in settlements:
        merges = by_execution.setdefault(settlement.execution.id, [])
        if merges and merges[-1].takes(settlement):
            merges[-1].add(index, settlement)
        else:
            merges.append(Merge(index, settlement))
    calls = [ApplyCall()]
    for execution_id, merges in by_execution.items():
        for merge in merges:
            row = merge.row
            life = f"{row.generation}:{row.epoch}:{STATES[row.state]}"
            if row.is_terminal:
                # Of one that has ended there is nothing more to say than whose leases are over with it.
                # Those that ended first: an attempt that has not ended mostly has no lease.
                own = sorted(merge.rows, key=lambda one: one.ended != one.attempt)[:MOST_FIELDS]
                over = [_Unit(1, (f"{node_field(one.node_id)}:{one.attempt}:",), 0) for one in own]
                call = _room_for(calls, row, over, 0)
                call.add(execution_id, life, units=over)
                call.merged.append((merge, ()))
                continue
            behind = ahead.get(execution_id, ()) if merge is merges[-1] else ()
            tasks = [
                task for task, epoch in behind if (task.generation, epoch) == (row.generation, row.epoch)
            ]
            packed, arguments = row_value(row), arguments_of(merge.plan)
            pieces = _pieces(merge.rows, arguments)
            for piece in pieces:
                is_last = piece is pieces[-1]
                # With its last rows all of them are there: nothing of it follows.
                call = _room_for(calls, row, piece, len(tasks) if is_last else 0)
                given = _wires(tasks if is_last else (), call.size, sent=sent)
                call.add(
                    *(execution_id, life),
                    row=packed,
                    units=piece,
                    tasks=given,
                    window=arguments.window,
                    gives=_GIVES_FREE if is_last else _GIVES_NOTHING,
                )
                call.merged.append((merge, given))
                packed = b""
    return calls


def _wires(tasks: Sequence[Task], size: int, *, sent: bool) -> list[tuple[Task, bytes]]:
    """Pack tasks as far as there is room; one that is left out is in nobody's way: its node comes as free."""
    given: list[tuple[Task, bytes]] = []
    for task in tasks[:MOST_TASKS]:
        wire = pack(task) if sent else b""
        size += len(wire)
        if given and size > MOST_BYTES:
            break
        given.append((task, wire))
    return given


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
        about = f"{row.attempt}:{kept(row)}:{row.issued}:{row.retry_at or 0}"
        return [_Unit(1, (field, _UNSETTLED, about), 0)]
    first, *more = arguments.children(row.node_id, row.state)
    outcome, output = pack_outcome(row, keep_output=row.node_id in arguments.read_by_others)
    if output is None:
        units = [_Unit(1 + first.count, (field, outcome, first.text), len(outcome))]
    else:
        told = (field, outcome, _WITH_OUTPUT + first.text, output)
        units = [_Unit(1 + first.count, told, len(outcome) + len(output))]
    units += [_Unit(1 + part.count, (field, b"", part.text), 0) for part in more]
    return units
