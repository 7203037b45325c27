"""The arguments of ``apply``: rows of the journal, tasks to queue, executions to list or to let go.

The scripts do not know the plan. So a call carries, with each settled row, the bit of this parent and the
full set of bits of each dependent. For the few dependents that are no plain children it also carries whether
this state triggers their rule, which piece of their bits the parent is in, and which further nodes they name.
``PlanArguments`` makes that text once for each node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from weft.core.readiness import EARLY_RULES
from weft.definition.model import SLEEP
from weft.envelope import pack
from weft.redis.keys import CROWDED
from weft.store.redis.layout import (
    CONSTANTS,
    PIECE_BITS,
    STATES,
    kept,
    node_field,
    pack_outcome,
    parked_rest,
    piece_field,
    row_value,
)
from weft.store.redis.partitions import MOST_BYTES, MOST_FIELDS, MOST_TASKS, ScriptCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.core.snapshot import RowUpdate
    from weft.core.state import NodeState
    from weft.core.task import Task
    from weft.definition.plan import Plan
    from weft.redis.keys import Keys
    from weft.store.redis.partitions import Argument, ScriptCall

# A script is told of so many dependents at once.
MOST_CHILDREN = 250

_UNSETTLED, _PARKED, _WITH_OUTPUT, _OPEN, _TERMINAL, _NODE = (
    str(CONSTANTS[name])
    for name in ("UNIT_UNSETTLED", "UNIT_PARKED", "WITH_OUTPUT", "OPEN", "TERMINAL", "NODE")
)
_GIVES_NOTHING, _GIVES_FREE, _GIVES_ALL = (
    str(CONSTANTS[name]) for name in ("GIVES_NOTHING", "GIVES_FREE", "GIVES_ALL")
)
# One step of one node: its execution, its generation, its field; and what else the script is told of it.
Move: TypeAlias = "tuple[str, int, str, str] | tuple[str, int, str, str, str]"
_NO_CHILDREN: Sequence[tuple[int, str]] = ((0, ""),)


class PlanArguments:
    def __init__(self, plan: Plan, window: int) -> None:
        self.plan = plan
        # How many tasks of an execution may be in flight.
        self.window = min(window, plan.definition.max_concurrency or window)
        self._children: dict[tuple[str, NodeState | None], Sequence[tuple[int, str]]] = {}
        self._positions: dict[str, dict[str, int]] = {}
        # The fields and the ready nodes of an execution that nothing has happened to; None: not needed yet.
        self.untouched: tuple[list[tuple[str, Argument]], list[str]] | None = None
        # Nodes that may have a timer for days.
        self.sleeps = [name for name, node in plan.nodes.items() if node.handler == SLEEP]
        # The nodes whose output a dependent reads.
        self.read_by_others = frozenset().union(*set(plan.references.values()))

    def others(self, node_id: str) -> Sequence[str]:
        """Return the nodes that one sees besides its parents."""
        return sorted(set(self.plan.visible_nodes[node_id]).difference(self.plan.graph.parents[node_id]))

    def children(self, node_id: str, state: NodeState) -> Sequence[tuple[int, str]]:
        """Describe the dependents of a node that settles in a state: how many, and what is said of them.

        There is at least one, perhaps an empty, part.
        """
        dependents = self.plan.graph.dependents.get(node_id)
        if not dependents:
            return _NO_CHILDREN
        # Two states make a difference, to early rules.
        key = (node_id, state if self.plan.has_early_rules else None)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = self._described(node_id, state, dependents)
        return found

    def _described(
        self, node_id: str, state: NodeState, dependents: Sequence[str]
    ) -> Sequence[tuple[int, str]]:
        plan = self.plan
        parts: list[tuple[int, str]] = []
        for start in range(0, len(dependents), MOST_CHILDREN):
            told = ""
            some = dependents[start : start + MOST_CHILDREN]
            for dependent in some:
                parents = plan.graph.parents[dependent]
                total, position = len(parents), 0
                if total > 1:
                    if dependent not in self._positions:
                        self._positions[dependent] = {name: at for at, name in enumerate(parents)}
                    position = self._positions[dependent][node_id]
                others = () if plan.visible_nodes[dependent] is parents else self.others(dependent)
                is_early = EARLY_RULES.get(plan.nodes[dependent].trigger_rule) is state
                piece, place = divmod(position, PIECE_BITS)
                full = (1 << min(PIECE_BITS, total - piece * PIECE_BITS)) - 1
                more = ""
                if is_early or others or total > PIECE_BITS:
                    pieces = f"{piece};{piece_count(total)}" if total > PIECE_BITS else ";"
                    more = f"{int(is_early)};{pieces};{','.join(map(node_field, others))}"
                told += f"{_NODE}{dependent} {1 << place} {full} {more}/"
            parts.append((len(some), told))
        return parts


def piece_count(total: int) -> int:
    """Return in how many pieces the bits of so many parents lie."""
    return -(-total // PIECE_BITS)


def pieces_of(positions: Iterable[int], total: int) -> list[int]:
    """Return the bits of the parents at these positions, piece by piece."""
    pieces = [0] * piece_count(total)
    for position in positions:
        piece, place = divmod(position, PIECE_BITS)
        pieces[piece] |= 1 << place
    return pieces


def is_set(pieces: Sequence[int], position: int) -> bool:
    piece, place = divmod(position, PIECE_BITS)
    return pieces[piece] >> place & 1 == 1


def waiting_fields(node_id: str, positions: Sequence[int], total: int) -> tuple[int, list[tuple[str, int]]]:
    """Return the number of a waiting node's field, and further fields where its bits take several pieces."""
    pieces = pieces_of(positions, total)
    if len(pieces) <= 1:
        return (pieces[0] if pieces else 0), []
    complete = sum(
        [bits == (1 << min(PIECE_BITS, total - at * PIECE_BITS)) - 1 for at, bits in enumerate(pieces)]
    )
    return complete, [(piece_field(at, node_id), bits) for at, bits in enumerate(pieces) if bits]


class Merge:
    """Row updates of one execution that are of the same generation and epoch, as one."""

    __slots__ = ("indexes", "plan", "row", "rows", "tasks")

    def __init__(self, index: int, row_update: RowUpdate) -> None:
        self.indexes = [index]
        self.row = row_update.execution
        self.plan = row_update.plan
        self.rows: Sequence[NodeRow] = row_update.rows
        # The tasks that go behind the rows.
        self.tasks: list[Task] = []

    def takes(self, row: ExecutionRow) -> bool:
        own = self.row
        is_same = row.generation == own.generation and row.epoch == own.epoch
        return is_same and not row.is_terminal and not own.is_terminal

    def add(self, index: int, row_update: RowUpdate) -> None:
        self.indexes.append(index)
        self.rows = [*self.rows, *row_update.rows]
        if row_update.execution.seq >= self.row.seq:
            self.row = row_update.execution


def apply_calls(
    row_updates: Sequence[RowUpdate],
    ahead: Sequence[Task],
    keys_of: Callable[[ExecutionRow], Keys],
    arguments_of: Callable[[Plan], PlanArguments],
    *,
    sent: bool,
) -> ScriptCalls:
    """Make the calls for row updates: those of one execution in order, and together if they fit.

    ``ahead``: tasks that go behind the rows of their executions; ``sent``: whether the
    store sends them. An item of a reply is about a merge, and the tasks that went with it.
    """
    merges: list[Merge] = []
    latest: dict[str, Merge] = {}
    for index, row_update in enumerate(row_updates):
        row = row_update.execution
        before = latest.get(row.id)
        if before is not None and before.takes(row):
            before.add(index, row_update)
        else:
            latest[row.id] = merge = Merge(index, row_update)
            merges.append(merge)
    for task in ahead:
        if task.execution_id in latest:
            merge = latest[task.execution_id]
            if task.generation == merge.row.generation and task.epoch == merge.row.epoch:
                merge.tasks.append(task)
    calls = ScriptCalls()
    for merge in merges:
        row, keys = merge.row, keys_of(merge.row)
        stamp = f"{row.generation}:{row.epoch}:{STATES[row.state]}"
        if row.is_terminal:
            add_end(
                calls, keys, Header(row.id, stamp), (merge, ()), merge.rows, arguments_of(merge.plan).sleeps
            )
            continue
        arguments = arguments_of(merge.plan)
        packed, pieces = row_value(row), _pieces(merge.rows, arguments)
        for piece in pieces:
            # With its last rows all of them are there: nothing of it follows.
            is_last = piece is pieces[-1]
            tasks = pack_tasks(merge.tasks, sent=sent) if is_last and merge.tasks else ()
            gives = _GIVES_FREE if is_last else _GIVES_NOTHING
            header = Header(row.id, stamp, packed, arguments.window, gives)
            add_execution(calls, keys, header, (merge, tasks), piece, tasks)
            packed = b""
    return calls


def pack_tasks(tasks: Sequence[Task], *, sent: bool) -> list[tuple[Task, bytes]]:
    """Pack tasks, as many as one call takes.

    One that is left out behind rows is in nobody's way: its node comes as free.
    """
    given: list[tuple[Task, bytes]] = []
    size = 0
    for task in tasks[:MOST_TASKS]:
        wire = pack(task) if sent else b""
        size += len(wire)
        if given and size > MOST_BYTES:
            break
        given.append((task, wire))
    return given


class Header(NamedTuple):
    """The head of an execution in a call, before its rows and tasks."""

    execution_id: str
    # Its generation, epoch and state.
    stamp: str
    row: bytes = b""
    # 0: as it was installed.
    window: int = 0
    gives: str = _GIVES_NOTHING


def add_execution(
    calls: ScriptCalls,
    keys: Keys,
    header: Header,
    about: object,
    units: tuple[int, int, int, Sequence[Argument]] = (0, 0, 0, ()),
    tasks: Sequence[tuple[Task, bytes]] = (),
) -> None:
    """Add an execution to the calls; ``about``: what the caller knows the reply by."""
    count, fields, size, told = units
    for _, wire in tasks:
        size += len(wire)
    key = keys.executions + header.execution_id
    call = calls.room(keys, key, size=size, fields=fields + len(tasks), tasks=len(tasks))
    call.hashes.append(key)
    call.about.append(about)
    call.arguments += (f"{header.stamp} {count} {len(tasks)} {header.window} {header.gives}", header.row)
    call.arguments += told
    add_tasks(call, tasks)


def add_end(
    calls: ScriptCalls,
    keys: Keys,
    header: Header,
    about: object,
    rows: Sequence[NodeRow],
    sleeps: Sequence[str],
) -> None:
    """Add an execution that has ended: all there is to say is whose leases and timers are over with it.

    A lease that is left runs out soon. A timer that is left may stay for a week.
    """
    # Ended attempts first: an attempt that has not ended mostly has no lease.
    own = sorted(rows, key=lambda one: one.ended != one.attempt)[:MOST_FIELDS]
    units: list[Argument] = [f"{_NODE}{one.node_id}:{one.attempt}:" for one in own]
    units += [f"{_NODE}{node_id}:" for node_id in sleeps]
    for start in range(0, len(units) or 1, MOST_FIELDS):
        part = units[start : start + MOST_FIELDS]
        add_execution(calls, keys, header, about, (len(part), len(part), 0, part))


def add_tasks(call: ScriptCall, tasks: Sequence[tuple[Task, bytes]]) -> None:
    for task, wire in tasks:
        stream = f"{call.keys.tasks}{task.queue}|{task.handler}|{task.priority}"
        lane = call.streams.get(stream)
        if lane is None:
            lane = call.streams[stream] = len(call.streams) + 1
            # The script chooses between the two: it knows how many tasks the execution has in flight.
            call.streams[stream + CROWDED] = lane + 1
        call.arguments += (f"{lane} {task.attempt} {_NODE}{task.node_id}", wire)


def free_calls(execution_ids: Sequence[str], keys_of: Callable[[str], Keys]) -> ScriptCalls:
    """Make the calls that list the free nodes of executions, with their rows, plans and inputs."""
    calls = ScriptCalls()
    for execution_id in execution_ids:
        keys = keys_of(execution_id)
        add_execution(calls, keys, Header(execution_id, f"::{_OPEN}", gives=_GIVES_ALL), execution_id)
    return calls


def ended(execution_id: str, generation: int, epoch: int) -> Header:
    """Name an execution that has ended."""
    return Header(execution_id, f"{generation}:{epoch}:{_TERMINAL}")


def close_calls(header: Header, sleeps: Sequence[str], keys: Keys) -> ScriptCalls:
    """Make the calls that let an execution go; the reply to the first of them counts."""
    calls = ScriptCalls()
    add_end(calls, keys, header, None, (), sleeps)
    return calls


def evict_calls(evicted: Sequence[ExecutionRow], keys_of: Callable[[ExecutionRow], Keys]) -> ScriptCalls:
    """Make the calls that let go of executions of which no generation has ended."""
    calls = ScriptCalls()
    for row in evicted:
        add_end(calls, keys_of(row), ended(row.id, 0, row.epoch), None, (), ())
    return calls


def queue_calls(
    tasks: Sequence[Task], indexes: Iterable[int], keys_of: Callable[[str], Keys], *, sent: bool
) -> ScriptCalls:
    """Make the calls that queue some of the tasks; ``sent``: whether they are sent.

    An item of a reply is about the indexes of tasks.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for index in indexes:
        task = tasks[index]
        groups.setdefault((task.execution_id, f"{task.generation}:{task.epoch}:{_OPEN}"), []).append(index)
    calls = ScriptCalls()
    for (execution_id, stamp), own in groups.items():
        keys = keys_of(execution_id)
        while own:
            given = pack_tasks([tasks[index] for index in own], sent=sent)
            add_execution(calls, keys, Header(execution_id, stamp), own[: len(given)], tasks=given)
            own = own[len(given) :]
    return calls


def move_calls(moves: Sequence[Move], chosen: Iterable[int], keys_of: Callable[[str], Keys]) -> ScriptCalls:
    """Make the calls for some of the moves: those of one execution together, and no node twice in a call.

    An item of a reply is about the index of a move.
    """
    calls = ScriptCalls()
    groups: dict[tuple[ScriptCall, str, int], list[int]] = {}
    for index in chosen:
        execution_id, generation, field, *_ = moves[index]
        keys = keys_of(execution_id)
        key = keys.executions + execution_id
        groups.setdefault((calls.room(keys, key + field), key, generation), []).append(index)
    for (call, key, generation), own in groups.items():
        call.hashes.append(key)
        call.about += own
        call.arguments += (generation, len(own))
        for index in own:
            call.arguments += moves[index][2:]
    return calls


def _pieces(
    rows: Sequence[NodeRow], arguments: PlanArguments
) -> list[tuple[int, int, int, Sequence[Argument]]]:
    """Cut rows into what one call takes of an execution: nearly always one piece, also where there are none.

    Of each piece: its units (a row, or some of its dependents), the fields that are read for them, their
    bytes, and their arguments.
    """
    pieces: list[tuple[int, int, int, Sequence[Argument]]] = []
    told: list[Argument] = []
    count = fields = size = 0
    for row in rows:
        for own, length, unit in _units(row, arguments):
            if count and (fields + own > MOST_FIELDS or size + length > MOST_BYTES):
                pieces.append((count, fields, size, told))
                told = []
                count = fields = size = 0
            told += unit
            count += 1
            fields += own
            size += length
    pieces.append((count, fields, size, told))
    return pieces


def _units(row: NodeRow, arguments: PlanArguments) -> list[tuple[int, int, tuple[Argument, ...]]]:
    """Return the units of a row: of each the fields that are read for it, its bytes, its arguments."""
    field = _NODE + row.node_id
    if row.state is None:
        if row.parked is not None:
            about = f"{row.attempt}:{kept(row)}:{parked_rest(row, arguments.plan)}"
            return [(1, 0, (field, _PARKED, about))]
        about = f"{row.attempt}:{kept(row)}:{row.issued}:{row.retry_at or 0}"
        return [(1, 0, (field, _UNSETTLED, about))]
    outcome, output = pack_outcome(row, keep_output=row.node_id in arguments.read_by_others)
    units: list[tuple[int, int, tuple[Argument, ...]]] = []
    for count, text in arguments.children(row.node_id, row.state):
        if units:
            units.append((1 + count, 0, (field, b"", text)))
        elif output is None:
            units.append((1 + count, len(outcome), (field, outcome, text)))
        else:
            told = (field, outcome, _WITH_OUTPUT + text, output)
            units.append((1 + count, len(outcome) + len(output), told))
    return units
