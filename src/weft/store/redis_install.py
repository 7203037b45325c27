"""A snapshot of the journal as fields of a hash: what is settled, what waits, and what is ready.

Whether a ready node is free, in limbo or waits for its time is left to the script: it has the server's time.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from weft.core.row import NodeRow
from weft.store.redis_calls import MOST_BYTES, MOST_FIELDS, MOST_ITEMS, Call
from weft.store.redis_records import STATES, bits_of, pack_execution, pack_outcome, pack_waiting
from weft.store.redis_shape import WAKES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from weft.core.plan import Plan
    from weft.core.row import ExecutionRow
    from weft.core.snapshot import Snapshot
    from weft.store.redis_calls import Argument
    from weft.store.redis_shape import Shape


# What the script is told of an execution, and of a ready node: attempt, not before, failures, losses, issued,
# whether it has a view, whether somebody may have it in hand.
_HEAD, _READY = struct.Struct("<IdddcddddI"), struct.Struct("<dddddBB")


class Part(msgspec.Struct, frozen=True):
    """What one call writes of an execution: so many fields with their values, then ready nodes."""

    fields: int
    arguments: list[Argument]
    size: int


class Layout(msgspec.Struct):
    # Fields and their values.
    fields: list[tuple[str, bytes]]
    # Each ready node: its field, and its numbers as the script reads them.
    ready: list[tuple[str, bytes]]

    def parts(self, most: int, most_bytes: int) -> Iterator[Part]:
        """Cut what is to be written into parts of so many fields and nodes, and about so many bytes."""
        fields: list[Argument] = []
        size = 0
        for field, value in self.fields:
            if fields and (len(fields) >= 2 * most or size + len(value) > most_bytes):
                yield Part(len(fields) // 2, fields, size)
                fields, size = [], 0
            fields += [field, value]
            size += len(value)
        first = [one for node in self.ready[:most] for one in node]
        yield Part(len(fields) // 2, [*fields, *first], size)
        for start in range(most, len(self.ready), most):
            yield Part(0, [one for node in self.ready[start : start + most] for one in node], 0)


def lay_out(snapshot: Snapshot, shape: Shape) -> Layout:
    """Lay out an execution as the journal has it. Only what something has happened to is written down."""
    plan = snapshot.plan
    parents, dependents = plan.graph.parents, plan.graph.dependents
    outcomes = {row.node_id: row for row in snapshot.rows if row.state is not None}
    # In the order in which they become free: the roots, what is behind settled rows, then later attempts.
    ready: dict[str, None] = {name: None for name in plan.graph.roots if name not in outcomes}
    waiting: dict[str, None] = {}
    left: dict[str, int] = {}
    for row in outcomes.values():
        for dependent in dependents[row.node_id]:
            if dependent in outcomes or dependent in ready:
                continue
            if dependent not in left:
                left[dependent] = sum(name not in outcomes for name in parents[dependent])
            if left[dependent] and WAKES.get(plan.nodes[dependent].trigger_rule) is not row.state:
                waiting[dependent] = None
                continue
            waiting.pop(dependent, None)
            ready[dependent] = None
    unsettled: dict[str, NodeRow] = {}
    for row in snapshot.rows:
        name = row.node_id
        if row.state is not None or name in outcomes:
            continue
        unsettled[name] = row
        if name not in ready:
            waiting[name] = None
        elif row.attempt > 1:
            del ready[name]
            ready[name] = None

    layout = Layout([], [])
    for name, row in outcomes.items():
        outcome, output = pack_outcome(row, keep_output=name in shape.read_by_others)
        layout.fields.append((f".{name}", outcome))
        if output:
            layout.fields.append((f"o.{name}", output))
    for name in waiting:
        row = _row_of(unsettled, name)
        arrived = [at for at, parent in enumerate(parents[name]) if parent in outcomes]
        record = pack_waiting(
            attempt=row.attempt,
            not_before=row.retry_at or 0,
            failures=row.failures,
            losses=row.losses,
            issued=row.issued,
            arrived=len(arrived),
            bits=bits_of(arrived, len(parents[name])) if arrived else b"",
        )
        layout.fields.append((f".{name}", record))
    for name in ready:
        view = None
        others = shape.others(name)
        if left.get(name) or not all(other in outcomes for other in others):
            arrived = [at for at, parent in enumerate(parents[name]) if parent in outcomes]
            view = bits_of(arrived, len(parents[name]))
            view += ",".join([f".{other}" for other in others if other in outcomes]).encode()
            layout.fields.append((f"v.{name}", view))
        row = _row_of(unsettled, name)
        numbers = (row.attempt, row.retry_at or 0, row.failures, row.losses, row.issued)
        marks = (view is not None, snapshot.may_be_in_hand(name, row.attempt))
        layout.ready.append((f".{name}", _READY.pack(*numbers, *marks)))
    return layout


class InstallCall(Call):
    """One call: executions whole, or a part of one."""

    __slots__ = ("_bytes", "indexes", "told")

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0
        # The snapshot that each execution is of, and what the script is told of them.
        self.indexes: list[int] = []
        self.told: list[Argument] = []

    def has_room_for(self, execution_id: str, size: int) -> bool:
        if not self.indexes:
            return True
        return (
            len(self.indexes) < MOST_ITEMS
            and self._bytes + size <= MOST_BYTES
            and execution_id not in self._places
        )

    def add(self, index: int, row: ExecutionRow, part: Part, *, window: int) -> None:
        self.place(row.id)
        self.indexes.append(index)
        self._bytes += part.size
        head = _HEAD.pack(
            *(len(part.arguments), row.generation, row.epoch, row.seq, STATES[row.state], window),
            *(row.unsettled, row.deadline_at or 0, row.updated_at, part.fields),
        )
        self.told += (head, *part.arguments)


def install_calls(
    snapshots: Sequence[Snapshot], shape_of: Callable[[Plan], Shape], *, window: int, inline_input_bytes: int
) -> tuple[list[InstallCall], list[list[InstallCall]]]:
    """Make the calls for snapshots: those that fit, together; and of each large one its calls, in order."""
    calls: list[InstallCall] = []
    large: list[list[InstallCall]] = []
    for index, snapshot in enumerate(snapshots):
        row, limit = snapshot.execution, snapshot.plan.definition.max_concurrency
        layout = lay_out(snapshot, shape_of(snapshot.plan))
        layout.fields += [("x", pack_execution(row)), ("h", row.digest.encode())]
        if len(row.input) <= inline_input_bytes:
            layout.fields.append(("i", row.input))
        parts = list(layout.parts(MOST_FIELDS // 2, MOST_BYTES))
        if len(parts) > 1:
            own = [InstallCall() for _ in parts]
            large.append(own)
        else:
            if not calls or not calls[-1].has_room_for(row.id, parts[0].size):
                calls.append(InstallCall())
            own = [calls[-1]]
        room = window if limit is None else min(window, limit)
        for call, part in zip(own, parts, strict=True):
            call.add(index, row, part, window=room)
    return calls, large


def _row_of(unsettled: dict[str, NodeRow], name: str) -> NodeRow:
    """Give a node's row as an install takes it: of a first attempt only the mark that it was issued."""
    row = unsettled.get(name)
    if row is None:
        return NodeRow(node_id=name)
    return row if row.attempt > 1 else NodeRow(node_id=name, issued=row.issued)
