"""What is measured of the documents, and whether the service level is kept.

Nodes run in many short-lived processes, and a node may run twice. So a measurement is a row, one for each
execution and generation, and the counters are counted from the rows when somebody asks (``exposition.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from paperwork.database import reading, transaction
from paperwork.settings import settings

if TYPE_CHECKING:
    from weft.handlers.contract import HandlerContext

ACCEPTED, REVIEW, FAILED = STATUSES = ("accepted", "review", "failed")
# Not a status of a document: what metrics call all that did not fail.
SUCCESS = "success"


def record(
    document: str, status: str, started_at: str, confidence: float | None, context: HandlerContext
) -> dict[str, object]:
    """Note how one document went: once, however often the node runs."""
    now = datetime.now(UTC)
    seconds = max(0.0, (now - datetime.fromisoformat(started_at)).total_seconds())
    with transaction() as connection:
        connection.execute(
            "INSERT OR IGNORE INTO processed"
            " (execution, generation, document, status, seconds, confidence, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                context.execution_id,
                context.generation,
                document,
                status,
                seconds,
                confidence,
                now.isoformat(),
            ),
        )
    return {"status": status, "seconds": round(seconds, 3)}


# --- The service level.


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    documents: int
    # Within the time, of all; 1 where there was nothing to do.
    share: float
    seconds: float
    wanted_share: float

    @property
    def is_kept(self) -> bool:
        return self.share >= self.wanted_share


def check_sla(*, hours: float = 24.0) -> ServiceLevel:
    """Return which share of the last hours' documents was done within the time; a failed one was not."""
    wanted = settings()
    since = (datetime.now(UTC) - timedelta(hours=hours)).isoformat()
    with reading() as connection:
        documents, kept = connection.execute(
            "SELECT count(*), coalesce(sum(seconds <= ? AND status != ?), 0) FROM processed WHERE at >= ?",
            (wanted.sla_seconds, FAILED, since),
        ).fetchone()
    share = kept / documents if documents else 1.0
    return ServiceLevel(
        documents=documents, share=share, seconds=wanted.sla_seconds, wanted_share=wanted.sla_share
    )
