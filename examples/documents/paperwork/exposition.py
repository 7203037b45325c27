"""The measurements as Prometheus reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from paperwork.database import reading
from paperwork.metrics import ACCEPTED, REVIEW, STATUSES, SUCCESS, check_sla

if TYPE_CHECKING:
    from collections.abc import Iterator
    from sqlite3 import Connection

    from prometheus_client.metrics_core import Metric

SECONDS_BUCKETS = (0.5, 1, 2, 5, 10, 30, 60, 120, 300)
CONFIDENCE_BUCKETS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def as_text() -> bytes:
    """Return the metrics as Prometheus reads them."""
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
    # The states that say it worked, as one: dashboards that know only success and failure read this.
    counted[SUCCESS] = counted[ACCEPTED] + counted[REVIEW]
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
