"""Builds the output of a completed execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.core.decide import ExecutionValues
from weft.core.payload import decode, encode
from weft.core.rows import payload_in, refuse_reading, shown_error, size_of
from weft.core.state import NodeState
from weft.errors import PayloadError
from weft.expressions.scope import NodeValue, Scope

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan

# Outputs over a bound lie in the journal as blobs: how to read one.
LoadBlob = Callable[[str], bytes]
# How to read the input of an execution whose row came without it for its size.
LoadInput = Callable[[str], bytes]


def output_nodes(plan: Plan) -> frozenset[str]:
    """Name the nodes whose rows the execution's output is made from."""
    if plan.output is not None:
        return plan.output.nodes
    return frozenset(plan.output_ids)


def execution_output(
    plan: Plan,
    execution: ExecutionRow,
    row_of: Callable[[str], NodeRow],
    load_blob: LoadBlob,
    *,
    load_input: LoadInput,
    max_bytes: int,
) -> bytes:
    """Make the output of a completed execution; raises EvaluationError or PayloadError where it cannot be.

    What would be too large is refused by the sizes in the rows, before any output is loaded: the outputs of
    all nodes together may be larger than the memory.
    """
    if plan.output is not None:
        rows = {name: row_of(name) for name in plan.output.nodes}
        refuse_reading(rows.values(), max_bytes=max_bytes, payload_of=None)
        loaded = {row.blob: load_blob(row.blob) for row in rows.values() if row.blob is not None}
        refuse_reading(rows.values(), max_bytes=max_bytes, payload_of=lambda row: payload_in(row, loaded))
        nodes = {name: node_value(row, loaded.__getitem__) for name, row in rows.items()}
        scope = Scope(
            execution.input,
            ExecutionValues(execution),
            nodes,
            lambda payload: decode(payload or load_input(execution.id)),
        )
        filled = plan.output.fill(scope, max_bytes=max_bytes, undefined_is_null=True)
        return encode(filled.value, max_bytes=max_bytes)
    completed = [row for node_id in plan.output_ids if (row := row_of(node_id)).state is NodeState.COMPLETED]
    if plan.has_one_output_node:
        return output_of(completed[0], load_blob) if completed else b"null"
    # Of each node: its name in quotes, a colon, its output and a comma, or the brace behind the last.
    size = 1 + sum([len(row.node_id) + 4 + size_of(row) for row in completed])
    if size > max_bytes:
        raise PayloadError("too_large", f"{size:,} bytes of JSON; the limit is {max_bytes:,}")
    members = [f'"{row.node_id}":'.encode() + output_of(row, load_blob) for row in completed]
    return b"{" + b",".join(members) + b"}"


def output_of(row: NodeRow, load_blob: LoadBlob) -> bytes:
    """Return the accepted output of a completed node, byte for byte."""
    if row.blob is not None:
        return load_blob(row.blob)
    assert row.output is not None
    return row.output


def node_value(row: NodeRow, load_blob: LoadBlob) -> NodeValue:
    """Make of a settled row what an expression sees of it."""
    completed = row.state is NodeState.COMPLETED
    return NodeValue(
        state=str(row.state),
        output=decode(output_of(row, load_blob)) if completed else None,
        error=shown_error(row.error),
        reason=row.reason,
    )
