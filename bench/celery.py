"""A fleet on Celery beside one on streams, in the same run: what a broker and its workers cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench import graphs
from bench.figure import Figure, quantile
from bench.fleet import chain_hops, running
from bench.run import run_loop
from bench.server import run_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXECUTIONS = 300


def celery() -> Iterator[Figure]:
    """W1 and a small W3 by streams, by Celery on Redis, and by Celery on RabbitMQ."""
    document = graphs.diamond()
    rates: dict[str, float] = {}
    ways = {"streams": None, "Celery on Redis": "redis", "Celery on RabbitMQ": "rabbitmq"}
    for name, broker in ways.items():
        with running(broker=broker) as one:
            run_loop(run_batches(one.url, document, sizes=[20]))
            hops = run_loop(chain_hops(one.url))
            _, rates[name] = run_loop(run_batches(one.url, document, sizes=[_EXECUTIONS] * 2))
        yield Figure(workload="celery", what=f"W1 hop p50, {name}", value=quantile(hops, 0.5), unit="ms")
        yield Figure(workload="celery", what=f"W3, {name}", value=rates[name], unit="nodes/s")
        if broker is not None:
            ratio = rates[name] / rates["streams"]
            yield Figure(workload="celery", what=f"W3, {name}, of streams", value=ratio, unit="×")
