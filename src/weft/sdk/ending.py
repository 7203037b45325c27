"""Describes the end of an execution, in words and as an exception, in this process and on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from weft.core.state import TERMINAL, ExecutionState, NodeState
from weft.errors import ExecutionFailed, NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.errors import Failure

# Of the failures that are shown with their tracebacks.
_MAX_FAILURES = 10


class EndedNode(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> NodeState: ...
    @property
    def error(self) -> Failure | None: ...


class EndedExecution(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def state(self) -> ExecutionState: ...
    @property
    def error(self) -> Failure | None: ...


def failure_lines(execution: EndedExecution, nodes: Iterable[EndedNode]) -> list[str]:
    """Return a line for each failed node with its traceback, and the execution's own error."""
    lines: list[str] = []
    failed = [node for node in nodes if node.state is NodeState.FAILED]
    for node in failed[:_MAX_FAILURES]:
        why = "" if node.error is None else f": {node.error.code}: {node.error.message}"
        lines.append(f"  failed: {node.id}{why}")
        trace = "" if node.error is None else str(node.error.details.get("traceback", ""))
        lines += [f"    {line}" for line in trace.splitlines()]
    if len(failed) > _MAX_FAILURES:
        lines.append(f"  … and {len(failed) - _MAX_FAILURES:,} more failed")
    if execution.error is not None and (execution.error.code != "node_failed" or not failed):
        lines.append(f"  {execution.error.code}: {execution.error.message}")
    return lines


def raise_unless_completed(execution: EndedExecution, title: str, nodes: Iterable[EndedNode]) -> None:
    """Raise ExecutionFailed for an execution that failed or was cancelled."""
    state = execution.state
    if state is ExecutionState.COMPLETED:
        return
    if state not in TERMINAL:
        raise NotAllowedError(f"{title} is {state}; wait for its end first", state=state)
    message = "\n".join([f"{title} is {state}", *failure_lines(execution, nodes)])
    raise ExecutionFailed(message, execution=execution.id, state=state, error=execution.error)
