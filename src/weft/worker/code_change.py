"""The digest of the code that an attempt ran: kept with its error, and read when the next attempt starts.

Only an attempt that failed is followed by another one, and its error is stored anyway: so a digest of the
code costs no write, and outlives the process. An attempt that was lost with its process left none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.errors import JournalError
from weft.handlers.outcome import Failed

if TYPE_CHECKING:
    from weft.core.task import Task
    from weft.handlers.outcome import Outcome
    from weft.journal.contract import Journal

# Where the details of an error have the digest.
CODE_DIGEST = "code_digest"
# An attempt does not wait longer for a line in its log.
_READ_SECONDS = 2.0
_PAGE = 500


@dataclass(frozen=True, slots=True)
class AttemptCode:
    attempt: int
    digest: str


def with_code(outcome: Outcome, digest: str) -> Outcome:
    """Return an outcome; that of a failure with the digest of the code that failed."""
    if not digest or not isinstance(outcome, Failed):
        return outcome
    details = outcome.error.get("details")
    if details is not None and not isinstance(details, dict):
        return outcome
    error = {**outcome.error, "details": {**(details or {}), CODE_DIGEST: digest}}
    return Failed(error, outcome.retry_after_seconds)


async def last_code(task: Task, journal: Journal) -> AttemptCode | None:
    """Return the code of the last attempt that failed before this one; None where that cannot be told."""
    try:
        async with asyncio.timeout(_READ_SECONDS):
            row = (await journal.nodes(task.execution_id, names=[task.node_id])).get(task.node_id)
            if row is not None and row.error is not None:
                return _code_of(row.answered, row.error)
            # A retry of the execution has cleared the row; its history has the error.
            return await _from_history(task, journal)
    except (JournalError, TimeoutError):
        return None


async def _from_history(task: Task, journal: Journal) -> AttemptCode | None:
    found, after = None, 0
    while True:
        page = await journal.events(task.execution_id, after=after, limit=_PAGE, nodes=[task.node_id])
        for event in page:
            if event.error is not None and event.attempt is not None and event.attempt < task.attempt:
                found = _code_of(event.attempt, event.error) or found
        if len(page) < _PAGE:
            return found
        after = page[-1].seq


def _code_of(attempt: int, error: dict[str, Any]) -> AttemptCode | None:
    details = error.get("details")
    digest = details.get(CODE_DIGEST) if isinstance(details, dict) else None
    return AttemptCode(attempt, digest) if isinstance(digest, str) else None
