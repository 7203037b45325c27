"""A snapshot of the journal as fields of a hash: what is settled, what waits, and what is ready.

Whether a ready node is free, in limbo or waits for its time is left to the script: it has the server's time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.core.row import NodeRow
from weft.store.redis_records import bits_of, pack_outcome, pack_waiting
from weft.store.redis_shape import WAKES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.core.snapshot import Snapshot
    from weft.store.redis_calls import Argument
    from weft.store.redis_shape import Shape


class Layout(msgspec.Struct):
    # Fields and their values.
    fields: list[tuple[str, bytes]]
    # Each ready node: field, attempt, not before, failures, losses, issued, whether it has a view.
    ready: list[tuple[str | int, ...]]
    settled: int = 0

    def parts(self, most: int, most_bytes: int) -> Iterator[list[Argument]]:
        """Cut what is to be written into parts of so many fields and nodes, and about so many bytes."""
        fields: list[Argument] = []
        size = 0
        for field, value in self.fields:
            if fields and (len(fields) >= 2 * most or size + len(value) > most_bytes):
                yield [len(fields) // 2, *fields, 0]
                fields, size = [], 0
            fields += [field, value]
            size += len(value)
        first = [one for node in self.ready[:most] for one in node]
        yield [len(fields) // 2, *fields, min(most, len(self.ready)), *first]
        for start in range(most, len(self.ready), most):
            part = self.ready[start : start + most]
            yield [0, len(part), *[one for node in part for one in node]]


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

    layout = Layout([], [], len(outcomes))
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
        layout.ready.append(
            (
                f".{name}",
                row.attempt,
                row.retry_at or 0,
                row.failures,
                row.losses,
                row.issued,
                int(view is not None),
            )
        )
    return layout


def _row_of(unsettled: dict[str, NodeRow], name: str) -> NodeRow:
    """Give a node's row as an install takes it: of a first attempt only the mark that it was issued."""
    row = unsettled.get(name)
    if row is None:
        return NodeRow(node_id=name)
    return row if row.attempt > 1 else NodeRow(node_id=name, issued=row.issued)
