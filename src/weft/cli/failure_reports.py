"""Prints what failed in an execution, for a developer at the terminal of ``weft dev``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.cli.printing import say, write_error
from weft.cli.table import elapsed_seconds
from weft.errors import WeftError
from weft.sdk.report import report

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.engine import Engine

# More reports at once are not readable: the others are told in a line.
_MAX_WAITING = 20


class FailureReports:
    """Executions that have failed, and are to be shown with their nodes, errors and tracebacks."""

    def __init__(self) -> None:
        self._failed: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING)

    def receive(self, recorded_events: Sequence[RecordedEvent]) -> None:
        """Take what the embedded engine has recorded."""
        for recorded_event in recorded_events:
            for event in recorded_event.events:
                if event.type == "execution.failed":
                    try:
                        self._failed.put_nowait(event.execution)
                    except asyncio.QueueFull:
                        _say_failed(event.execution)

    async def print_all(self, engine: Engine) -> None:
        """Print the report of each execution that fails from now on."""
        while True:
            execution_id = await self._failed.get()
            try:
                execution = await engine.describe(execution_id)
            except WeftError:  # it is purged, or the journal is away
                _say_failed(execution_id)
                continue
            begun = execution["started_at"] or execution["created_at"]
            text = report(
                execution,
                elapsed_seconds=elapsed_seconds(begun, execution["finished_at"] or begun),
                retry=f"weft retry {execution_id}",
            )
            write_error(f"{execution['workflow'] or 'an execution'}: {text}\n")


def _say_failed(execution_id: str) -> None:
    say(f"execution {execution_id} failed; see weft show {execution_id}")
