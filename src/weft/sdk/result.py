"""The result of an execution that ran in this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from weft.core.output import output_of
from weft.core.payload import Json, decode
from weft.core.rows import NodeRow, failure_of
from weft.core.state import ExecutionState, NodeState
from weft.core.time import MICROSECONDS
from weft.sdk.ending import failure_lines, raise_unless_completed
from weft.sdk.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from weft.core.output import LoadBlob
    from weft.definition.plan import Plan
    from weft.errors import Failure
    from weft.ports import Ports


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeResult:
    """The result of one node."""

    id: str
    state: NodeState
    # None also where it did not complete.
    output: Json
    error: Failure | None
    # Why it was settled without a result of its own: skipped, or cancelled.
    reason: str | None
    # The node that failed, where it was skipped or cancelled because of one.
    cause: str | None
    # The number of the latest attempt; 0 where none was made.
    attempt: int
    # Seconds of the latest attempt; None where nothing ran.
    duration: float | None
    # The output is one of an earlier execution.
    cached: bool
    # Of the latest attempt.
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of an execution. ``output`` is None unless it completed, ``error`` unless it failed."""

    id: str
    # The name of the workflow.
    workflow: str | None
    state: ExecutionState
    output: Json
    error: Failure | None
    # Seconds from its start to its end.
    duration: float
    started_at: datetime | None
    finished_at: datetime | None
    nodes: Mapping[str, NodeResult] = field(repr=False)
    _plan: Plan = field(repr=False)

    @public
    def raise_for_state(self) -> Self:
        """Raise ExecutionFailed if the execution failed or was cancelled; return the result otherwise."""
        raise_unless_completed(self, f"execution {self.id}", self.nodes.values())
        return self

    def __str__(self) -> str:
        """Return how the execution ended; where nodes failed, each with its error and traceback."""
        title = self.workflow or "execution"
        lines = [f"{title}: {self.state} in {self.duration:.3g} s"]
        return "\n".join(lines + failure_lines(self, self.nodes.values()))

    def _repr_svg_(self) -> str | None:
        from weft.sdk.picture import draw_plan

        return draw_plan(self._plan, {node_id: node.state for node_id, node in self.nodes.items()})

    def _repr_html_(self) -> str:
        from weft.sdk.picture import as_html

        title = self.workflow or "execution"
        why = f"\n{self.error.code}: {self.error.message}" if self.error else ""
        return as_html(f"{title}: {self.state} in {self.duration:.3g} s{why}", self._repr_svg_())


async def read_result(execution_id: str, plan: Plan, ports: Ports) -> ExecutionResult:
    """Read a terminal execution from the journal, with every output whole."""
    execution = await ports.journal.execution(execution_id)
    assert execution is not None
    rows = await ports.journal.nodes(execution_id)
    blobs = await ports.journal.blobs([row.blob for row in rows.values() if row.blob is not None])
    return ExecutionResult(
        id=execution_id,
        workflow=execution.workflow or plan.definition.name,
        state=execution.state,
        output=None if execution.output is None else decode(execution.output),
        error=failure_of(execution.error),
        duration=_seconds(execution.started_at or execution.finished_at, execution.finished_at) or 0.0,
        started_at=_moment(execution.started_at),
        finished_at=_moment(execution.finished_at),
        nodes={
            node_id: _node_result(rows.get(node_id) or NodeRow(node_id=node_id), blobs.__getitem__)
            for node_id in plan.graph.ids
        },
        _plan=plan,
    )


def _node_result(row: NodeRow, load_blob: LoadBlob) -> NodeResult:
    return NodeResult(
        id=row.node_id,
        cached=row.cached,
        started_at=_moment(row.started_at),
        finished_at=_moment(row.finished_at),
        state=row.state or NodeState.PENDING,
        output=decode(output_of(row, load_blob)) if row.state is NodeState.COMPLETED else None,
        error=failure_of(row.error),
        reason=row.reason,
        cause=row.cause,
        attempt=row.ended,
        duration=None if row.has_no_attempt else _seconds(row.started_at, row.finished_at),
    )


def _moment(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / MICROSECONDS, UTC)


def _seconds(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else (end - start) / MICROSECONDS
