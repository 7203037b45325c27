"""What is measured of the documents, for Prometheus, and whether the service level is kept.

Nodes run in many short-lived processes, and a node may run twice. So a measurement is a row, one for each
execution and generation, and the counters are counted from the rows when somebody asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from paperwork.database import reading, transaction
from paperwork.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from sqlite3 import Connection

    from prometheus_client.metrics_core import Metric

    from weft.handlers.contract import HandlerContext

ACCEPTED, REVIEW, FAILED = STATUSES = ("accepted", "review", "failed")

SECONDS_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300)
CONFIDENCE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


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


# --- For Prometheus.


def exposition() -> bytes:
    """Give the metrics as Prometheus reads them."""
    registry = CollectorRegistry()
    registry.register(_Collector())
    return generate_latest(registry)


class _Collector:
    def collect(self) -> Iterator[Metric]:
        with reading() as connection:
            yield _processed(connection)
            yield _histogram(
                connection,
                "processing_duration_seconds",
                "from the reading of a document to its result",
                "seconds",
                SECONDS_BUCKETS,
            )
            yield _histogram(
                connection,
                "extraction_confidence",
                "how sure the least sure field of a document is",
                "confidence",
                CONFIDENCE_BUCKETS,
            )
        level = check_sla()
        kept = GaugeMetricFamily("documents_sla_kept", "1 where the service level is kept")
        kept.add_metric([], float(level.is_kept))
        yield kept


def _processed(connection: Connection) -> Metric:
    counted = dict.fromkeys(STATUSES, 0)
    counted |= dict(connection.execute("SELECT status, count(*) FROM processed GROUP BY status").fetchall())
    family = CounterMetricFamily(
        "documents_processed_total", "documents that were processed", labels=["status"]
    )
    for status, number in counted.items():
        family.add_metric([status], number)
    return family


def _histogram(
    connection: Connection, name: str, text: str, column: str, bounds: tuple[float, ...]
) -> Metric:
    sums = ", ".join(f"sum({column} <= {bound})" for bound in bounds)
    *below, number, total = connection.execute(
        f"SELECT {sums}, count({column}), sum({column}) FROM processed"  # noqa: S608 - names of our own
    ).fetchone()
    buckets = [(f"{float(bound)}", float(count or 0)) for bound, count in zip(bounds, below, strict=True)]
    family = HistogramMetricFamily(name, text)
    family.add_metric([], [*buckets, ("+Inf", float(number))], total or 0.0)
    return family


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
    """Say which share of the last hours' documents was done within the time; a failed one was not."""
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
