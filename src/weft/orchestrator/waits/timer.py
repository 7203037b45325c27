"""The time at which an orchestrator looks next for waits that are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import CallStarted, WaitStarted
from weft.core.ledger.changes import Verdict
from weft.core.time import micros

if TYPE_CHECKING:
    from weft.core.ledger.changes import RecordedEvent


class WaitTimer:
    """When this orchestrator looks for waits that are due, on its own clock."""

    def __init__(self) -> None:
        self.next_at: int | None = None
        self._asked_at: int | None = None

    def is_due(self, now: int, *, sweep_seconds: float) -> bool:
        if self._asked_at is None or now >= self._asked_at + micros(sweep_seconds):
            return True
        return self.next_at is not None and now >= self.next_at

    def asked(self, now: int, next_in_seconds: float | None) -> None:
        """Note when the journal was asked, and how long the next due time is off (None: there is none)."""
        self._asked_at = now
        self.next_at = None if next_in_seconds is None else now + micros(next_in_seconds)

    def learn(self, recorded_event: RecordedEvent, now: int) -> bool:
        """Note when a wait that was recorded just now is due; True if that is before the next look."""
        if (
            not isinstance(recorded_event.event, WaitStarted | CallStarted)
            or recorded_event.verdict is not Verdict.ACCEPTED
        ):
            return False
        (row,) = recorded_event.rows
        if row.parked is None or row.parked.due_at is None or row.started_at is None:
            return False
        # By the journal's clock it began now.
        due_at = now + max(0, row.parked.due_at - row.started_at)
        if self.next_at is not None and self.next_at <= due_at:
            return False
        self.next_at = due_at
        return True
