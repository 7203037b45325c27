"""Reads from the events of the embedded engine what its nodes wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.core.event import WaitStarted
from weft.core.ledger.changes import Verdict
from weft.core.time import rfc3339
from weft.definition.waits import WaitKind
from weft.sdk.progress import moment_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.core.ledger.changes import RecordedEvent


@dataclass(frozen=True, slots=True)
class NodeWait:
    """A node that waits, until a time if there is one."""

    execution_id: str
    node_id: str
    prompt: str | None
    due_at: str | None
    is_for_answer: bool

    @property
    def text(self) -> str:
        """Return what the node waits for: ``approval for an answer: Apply it?``."""
        text = f"{self.node_id} for an answer" if self.is_for_answer else self.node_id
        if self.due_at is not None:
            text += f" until {moment_text(self.due_at)}"
        return f"{text}: {self.prompt}" if self.prompt else text


def begun_waits(recorded_event: RecordedEvent) -> Iterator[NodeWait]:
    """Yield the wait that an event has begun, unless it has ended in the same commit."""
    if not isinstance(recorded_event.event, WaitStarted) or recorded_event.verdict is not Verdict.ACCEPTED:
        return
    for row in recorded_event.rows:
        if row.wait is not None and row.parked is not None:
            yield NodeWait(
                recorded_event.event.execution_id,
                row.node_id,
                row.wait.prompt,
                None if row.parked.due_at is None else rfc3339(row.parked.due_at),
                row.wait.kind is WaitKind.SIGNAL,
            )
