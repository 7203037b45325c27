"""The contract of an exporter of spans. Without an exporter, none of its methods is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from weft.core.ledger.changes import RecordedEvent
    from weft.core.rows import ExecutionRow
    from weft.core.task import Result, Task


# By their names in the semantic conventions, or ``weft.…`` where these have none.
Attributes: TypeAlias = Mapping[str, str | int | float | Sequence[str] | None]


class CallSpan(Protocol):
    """The span of one call to a service outside, which has begun."""

    @property
    def traceparent(self) -> str:
        """The header that carries it to the service."""

    def add(self, attributes: Attributes) -> None:
        """Add attributes; those that are None are left out."""

    def end(self, *, error: str | None = None) -> None:
        """End the span. ``error``: the kind of the error that the call failed with."""


class Tracing(Protocol):
    """Makes spans of what happens, and sends them away beside the loop. Nothing here waits, or raises."""

    def of_execution(self, execution: ExecutionRow) -> str:
        """Return the ``traceparent`` of an execution's span, for the tasks of its nodes."""

    def of_attempt(self, task: Task) -> str:
        """Return the ``traceparent`` of the span of a task's attempt, for what its handler calls."""

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Make a span of each execution that one of these events has ended."""

    def attempt_ended(self, task: Task, result: Result) -> None:
        """Make a span of an attempt that ran here."""

    def attempt_stopped(self, task: Task, *, worker: str, started_at: int, finished_at: int) -> None:
        """Make a span of an attempt that ran here until it was asked to stop: there is no result of it."""

    def begin_call(self, name: str, attributes: Attributes, *, traceparent: str | None) -> CallSpan:
        """Begin the span of a call that a handler makes; ``traceparent``: of its attempt's span."""

    async def close(self) -> None:
        """Send what is left, within a few seconds; nothing is exported after that."""
