"""W1 to W4: the hop, the fan, the throughput, the slots."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from bench import graphs
from bench.figure import Figure, at_least, at_most, quantile
from bench.raw import commit_milliseconds, insert_rate
from bench.run import Run, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def w1() -> Iterator[Figure]:
    """A chain of 100 nodes: from a parent's end to its child's start, through a durable commit."""
    document = graphs.chain(100)
    for durable in (True, False):
        run(document, durable=durable)  # the first run pays for what is made once
        hops = [hop for _ in range(10) for hop in _hops(run(document, durable=durable))]
        on = "SQLite" if durable else "memory"
        target = at_most(0.27) if durable else None
        yield Figure(
            workload="W1", what=f"hop p50, {on}", value=quantile(hops, 0.5), unit="ms", target=target
        )
        yield Figure(workload="W1", what=f"hop p99, {on}", value=quantile(hops, 0.99), unit="ms")
    commits = commit_milliseconds(1000)
    yield Figure(workload="W1", what="one commit, SQLite alone, p50", value=quantile(commits, 0.5), unit="ms")
    yield Figure(
        workload="W1", what="one commit, SQLite alone, p99", value=quantile(commits, 0.99), unit="ms"
    )


def w2() -> Iterator[Figure]:
    """1 → 1000 → 1."""
    document = graphs.fan(1000)
    run(document)
    runs = [run(document) for _ in range(5)]
    what = "1 → 1000 → 1"
    seconds = median(one.seconds for one in runs)
    yield Figure(workload="W2", what=f"{what}, SQLite, start to end", value=seconds * 1000, unit="ms")
    yield from _beside_raw("W2", what, max(runs, key=_rate), targets=False)
    yield from _on_memory("W2", what, max((run(document, durable=False) for _ in range(3)), key=_rate))


def w3() -> Iterator[Figure]:
    """Many executions of a → b, c, d → e at once."""
    document = graphs.diamond()
    run(document, executions=100)
    for executions, times in ((500, 5), (5000, 2)):
        what = f"{executions:,} × a → b, c, d → e"
        best = max((run(document, executions=executions) for _ in range(times)), key=_rate)
        yield from _beside_raw("W3", what, best, targets=executions == 500)
        runs = (run(document, executions=executions, durable=False) for _ in range(times))
        yield from _on_memory("W3", what, max(runs, key=_rate))


def w4() -> Iterator[Figure]:
    """200 nodes that sleep for 10 ms, in ten slots: at best 0.2 s."""
    count, sleep_seconds, slots = 200, 0.01, 10
    document = graphs.sleepers(count, sleep_seconds)
    best = min(run(document, concurrency=slots).seconds for _ in range(3))
    ideal = count / slots * sleep_seconds
    yield Figure(
        workload="W4",
        what="200 × sleep 10 ms in 10 slots, SQLite",
        value=ideal / best,
        unit="of ideal",
        target=at_least(0.95),
    )


WORKLOADS: Mapping[str, Callable[[], Iterator[Figure]]] = {"W1": w1, "W2": w2, "W3": w3, "W4": w4}


def _rate(one: Run) -> float:
    return one.nodes_per_second


def _hops(one: Run) -> Iterator[float]:
    """Return the hops of a chain in milliseconds."""
    (rows,) = one.rows
    for parent, child in pairwise(rows[f"n{i}"] for i in range(len(rows))):
        assert parent.finished_at is not None
        assert child.started_at is not None
        yield (child.started_at - parent.finished_at) / 1000


def _beside_raw(workload: str, what: str, one: Run, *, targets: bool) -> Iterator[Figure]:
    # The same rows again, until there are enough of them to time.
    rows = [(f"{i}", row) for i, nodes in enumerate(one.rows) for row in nodes.values()]
    copies = -(-20_000 // len(rows))
    raw = insert_rate((f"{copy}/{i}", row) for copy in range(copies) for i, row in rows)
    rate = one.nodes_per_second
    yield Figure(
        workload=workload,
        what=f"{what}, SQLite",
        value=rate,
        unit="nodes/s",
        target=at_least(36_000) if targets else None,
    )
    yield Figure(
        workload=workload,
        what=f"{what}, SQLite, CPU a node",
        value=one.cpu_per_node * 1e6,
        unit="µs",
        target=at_most(26) if targets else None,
    )
    yield Figure(workload=workload, what="the same rows into SQLite alone", value=raw, unit="rows/s")
    yield Figure(
        workload=workload,
        what=f"{what}, of SQLite alone",
        value=rate / raw,
        unit="×",
        target=at_least(0.06) if targets else None,
    )


def _on_memory(workload: str, what: str, one: Run) -> Iterator[Figure]:
    yield Figure(workload=workload, what=f"{what}, memory", value=one.nodes_per_second, unit="nodes/s")
    yield Figure(
        workload=workload, what=f"{what}, memory, CPU a node", value=one.cpu_per_node * 1e6, unit="µs"
    )
