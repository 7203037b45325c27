"""A snapshot of the journal as fields of a hash: what is settled, what waits, and what is ready.

Whether a ready node is free, orphaned or waits for its time is left to the script: it has the server's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from weft.core.readiness import EARLY_RULES
from weft.core.rows import NodeRow
from weft.store.redis.calls import add_tasks, pieces_of, waiting_fields
from weft.store.redis.layout import (
    CONSTANTS,
    STATES,
    fixed_value,
    kept,
    node_field,
    output_field,
    pack_outcome,
    parked_rest,
    plan_value,
    row_value,
    view_field,
)
from weft.store.redis.partitions import MOST_BYTES, MOST_FIELDS, ScriptCall, ScriptCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weft.core.rows import ExecutionRow
    from weft.core.snapshot import Snapshot
    from weft.core.task import Task
    from weft.definition.plan import Plan
    from weft.redis.keys import Keys
    from weft.store.redis.calls import PlanArguments
    from weft.store.redis.partitions import Argument

_VIEWED, _IS_PARKED = str(CONSTANTS["VIEWED"]), str(CONSTANTS["IS_PARKED"])


class _Part(msgspec.Struct, frozen=True):
    """The part of an execution that one call writes: fields with their values, then ready nodes."""

    values: list[Argument]
    ready: list[str]
    size: int


class _Waiting(NamedTuple):
    """The unsettled nodes of a snapshot that something has happened to."""

    # In the order in which they become free: the roots, what is behind settled rows, then later attempts.
    ready: dict[str, None]
    waiting: dict[str, None]
    rows: dict[str, NodeRow]
    # By node that is behind a settled row: how many of its parents are not settled.
    left: dict[str, int]


def _sort_unsettled(snapshot: Snapshot, outcomes: Mapping[str, NodeRow]) -> _Waiting:
    """Sort out which unsettled nodes may run, and which wait for parents."""
    plan = snapshot.plan
    ready: dict[str, None] = {name: None for name in plan.graph.roots if name not in outcomes}
    waiting: dict[str, None] = {}
    left: dict[str, int] = {}
    for row in outcomes.values():
        for dependent in plan.graph.dependents[row.node_id]:
            if dependent in outcomes or dependent in ready:
                continue
            if dependent not in left:
                left[dependent] = sum([name not in outcomes for name in plan.graph.parents[dependent]])
            if left[dependent] and EARLY_RULES.get(plan.nodes[dependent].trigger_rule) is not row.state:
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
        if row.parked is not None:
            waiting.pop(name, None)
            ready[name] = None
        elif name not in ready:
            waiting[name] = None
        elif row.attempt > 1:
            del ready[name]
            ready[name] = None
    return _Waiting(ready, waiting, unsettled, left)


def lay_out(snapshot: Snapshot, arguments: PlanArguments) -> tuple[list[tuple[str, Argument]], list[str]]:
    """Lay out an execution as the journal has it: its fields, and its ready nodes.

    Only what something has happened to is written down.
    """
    parents = snapshot.plan.graph.parents
    outcomes = {row.node_id: row for row in snapshot.rows if row.state is not None}
    ready, waiting, unsettled, left = _sort_unsettled(snapshot, outcomes)

    def arrived(name: str) -> list[int]:
        return [at for at, parent in enumerate(parents[name]) if parent in outcomes]

    fields: list[tuple[str, Argument]] = []
    for name, row in outcomes.items():
        outcome, output = pack_outcome(row, keep_output=name in arguments.read_by_others)
        fields.append((node_field(name), outcome))
        if output is not None:
            fields.append((output_field(name), output))
    for name in waiting:
        row = _row_of(unsettled, name)
        number, pieces = waiting_fields(name, arrived(name), len(parents[name]))
        about = kept(row)
        is_plain = row.attempt == 1 and not about
        fields.append(
            (node_field(name), number if is_plain else f"{number} {row.attempt}:{about}:{row.retry_at or 0}")
        )
        fields += pieces
    nodes: list[str] = []
    for name in ready:
        flags = ""
        others = arguments.others(name)
        if left.get(name) or not all(other in outcomes for other in others):
            flags = _VIEWED
            bits = ",".join([str(piece) for piece in pieces_of(arrived(name), len(parents[name]))])
            seen = ",".join([node_field(other) for other in others if other in outcomes])
            fields.append((view_field(name), f"{bits};{seen}"))
        row = _row_of(unsettled, name)
        about = kept(row, flags=flags)
        if row.parked is not None:
            rest = parked_rest(row, snapshot.plan)
            nodes.append(f"{node_field(name)} {row.attempt} {about} 0 {_IS_PARKED} {rest}")
            continue
        in_hand = int(snapshot.may_be_in_hand(name, row.attempt))
        nodes.append(f"{node_field(name)} {row.attempt} {about} {row.retry_at or 0} {in_hand}")
    return fields, nodes


def _row_of(unsettled: dict[str, NodeRow], name: str) -> NodeRow:
    """Return a node's row as an install takes it: of a first attempt only that it was issued, or parked."""
    row = unsettled.get(name)
    if row is None:
        return NodeRow(node_id=name)
    return row if row.attempt > 1 or row.parked is not None else NodeRow(node_id=name, issued=row.issued)


def _parts(fields: Sequence[tuple[str, Argument]], ready: Sequence[str]) -> Iterator[_Part]:
    """Cut what is to be written into parts of so many fields and nodes, and about so many bytes."""
    most = MOST_FIELDS // 2
    values: list[Argument] = []
    size = 0
    for field, value in fields:
        length = len(value) if isinstance(value, bytes) else 8
        if values and (len(values) >= 2 * most or size + length > MOST_BYTES):
            yield _Part(values, [], size)
            values, size = [], 0
        values += (field, value)
        size += length
    yield _Part(values, list(ready[:most]), size)
    for start in range(most, len(ready), most):
        yield _Part([], list(ready[start : start + most]), 0)


def install_calls(
    snapshots: Sequence[Snapshot],
    keys_of: Callable[[ExecutionRow], Keys],
    arguments_of: Callable[[Plan], PlanArguments],
    *,
    ahead: Mapping[str, Sequence[tuple[Task, bytes]]],
    incarnation_ids: Sequence[str],
    inline_input_bytes: int,
) -> tuple[ScriptCalls, list[list[ScriptCall]]]:
    """Make the calls for snapshots: those that fit, together; and of each large one its calls, in order.

    ``ahead``: by execution, the tasks that are queued behind it; ``incarnation_ids``: of the partitions.
    An item of a reply is about the index of a snapshot.
    """
    calls = ScriptCalls()
    large: list[list[ScriptCall]] = []
    for index, snapshot in enumerate(snapshots):
        row, arguments = snapshot.execution, arguments_of(snapshot.plan)
        if snapshot.rows or row.halt is not None:
            laid_out, ready = lay_out(snapshot, arguments)
        else:
            # Before anything has happened, executions of a plan differ in their rows alone.
            if arguments.untouched is None:
                arguments.untouched = lay_out(snapshot, arguments)
            laid_out, ready = arguments.untouched
        fields = [
            *laid_out,
            (str(CONSTANTS["ROW"]), row_value(row)),
            (str(CONSTANTS["FIXED"]), fixed_value(row)),
            (str(CONSTANTS["PLAN"]), plan_value(arguments.window, row.digest)),
        ]
        # A row without its input has a large one.
        if 0 < len(row.input) <= inline_input_bytes:
            fields.append((str(CONSTANTS["INPUT"]), row.input))
        parts = list(_parts(fields, ready))
        keys = keys_of(row)
        key = keys.execution(row.id)
        if len(parts) > 1:
            own = [ScriptCall(keys) for _ in parts]
            large.append(own)
        else:
            own = [calls.room(keys, key, size=parts[0].size)]
        stamp = f"{row.generation}:{row.epoch}:{STATES[row.state]}"
        for call, part in zip(own, parts, strict=True):
            tasks = ahead.get(row.id, ()) if part is parts[-1] else ()
            counts = (row.unsettled, len(part.values) // 2, len(part.ready), len(tasks), arguments.window)
            if not call.arguments:
                call.arguments.append(
                    incarnation_ids[keys.partition] if keys.partition < len(incarnation_ids) else ""
                )
            call.hashes.append(key)
            call.about.append(index)
            call.arguments += (f"{stamp} {' '.join(map(str, counts))} {row.deadline_at or 0}", row.updated_at)
            call.arguments += part.values
            call.arguments += part.ready
            add_tasks(call, tasks)
    return calls, large
