"""What nodes print: how many lines a second are kept, and what a flood of them does to others.

Each of the nodes runs in a child process of its own and prints a little less than an attempt may
(``MAX_LINES_PER_SECOND``), so a line that is missing in the end was lost by the worker or the journal. A
flood prints without a pause: there lines are dropped in the child processes, and every node still completes
in its first attempt, while small executions beside it go on.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import fleet, server
from bench.figure import Figure, at_least, at_most, quantile
from weft import Client
from weft.worker.capture import MAX_LINES_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 5.0
_FLOODING = 10
# Of what an attempt may print a second.
_SHARE = 0.95
_SETTINGS = {
    "IMPORTS": "bench.logs",
    "PYTHON_ALLOW": "bench.logs:*",
    "WORKER_PROCESSES": "16",
    # Nothing goes for its size: every line is counted in the end.
    "MAX_LOG_BYTES": str(16 * 1024 * 1024),
}


def speaks(lines_per_second: float, seconds: float) -> int:
    """Print a line at a time at an even pace; return how many."""
    begun = time.monotonic()
    lines = 0
    while (passed := time.monotonic() - begun) < seconds:
        while lines < passed * lines_per_second:
            print(f"order {lines} of the day was read, checked and written")
            lines += 1
        time.sleep(0.005)
    return lines


def floods(seconds: float) -> int:
    """Print without a pause; return how many lines."""
    ends_at = time.monotonic() + seconds
    lines = 0
    while time.monotonic() < ends_at:
        print(f"order {lines} of the day was read, checked and written")
        lines += 1
    return lines


def logs() -> Iterator[Figure]:
    """Lines that are kept, and a flood, on the embedded engine and on a fleet."""
    with _importable():
        with server.running(**_SETTINGS) as running, Client(running.url) as client:
            yield _kept(client, "embedded", nodes=11, target=20_000)
            yield from _flood(client, "embedded")
        with fleet.running(**_SETTINGS) as spread, Client(spread.url) as client:
            yield _kept(client, "fleet", nodes=6, target=10_000)
            yield from _flood(client, "fleet")


@contextmanager
def _importable() -> Iterator[None]:
    """Let servers import this module, whichever folder they run in."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _node(number: int, function: str, **args: float) -> dict[str, Any]:
    config = {"function": f"bench.logs:{function}", "args": args}
    return {"id": f"n{number}", "handler": "python", "config": config, "max_retries": 0}


def _kept(client: Client, where: str, *, nodes: int, target: float) -> Figure:
    """Count the lines in the journal behind an execution whose nodes print as much as they may."""
    # Once before, so that every child process is there.
    _run(client, [_node(number, "speaks", lines_per_second=10, seconds=1) for number in range(nodes)])
    pace = MAX_LINES_PER_SECOND * _SHARE
    spoke = [_node(number, "speaks", lines_per_second=pace, seconds=_SECONDS) for number in range(nodes)]
    execution = _run(client, spoke)
    printed = sum(execution.output.values())
    lines = sum(line.stream == "stdout" for line in client.logs(execution.id))
    assert lines == printed, f"{printed - lines:,} of {printed:,} lines were lost"
    starts = [node.started_at for node in execution.nodes if node.started_at is not None]
    ends = [node.finished_at for node in execution.nodes if node.finished_at is not None]
    seconds = (max(ends) - min(starts)).total_seconds()
    what = f"{where}: kept, {nodes} nodes"
    return Figure(workload="logs", what=what, value=lines / seconds, unit="lines/s", target=at_least(target))


def _flood(client: Client, where: str) -> Iterator[Figure]:
    """Print without a pause from ten nodes, and run small executions beside them."""
    alone = _bystanders(client, threading.Event(), at_least_some=20)
    stop = threading.Event()
    took: list[float] = []
    beside = threading.Thread(target=lambda: took.extend(_bystanders(client, stop)))
    beside.start()
    execution = _run(client, [_node(number, "floods", seconds=_SECONDS) for number in range(_FLOODING)])
    stop.set()
    beside.join()
    assert all(node.attempt == 1 for node in execution.nodes), "a node that prints was lost"
    printed = sum(execution.output.values()) / _SECONDS
    what = f"{where}: printed by ten nodes, none of them lost"
    yield Figure(workload="logs", what=what, value=printed, unit="lines/s", target=at_least(100_000))
    for name, seconds, target in (("alone", alone, None), ("beside them", took, at_most(1000))):
        what = f"{where}: a small execution {name}, p95"
        value = quantile(seconds, 0.95) * 1000
        yield Figure(workload="logs", what=what, value=value, unit="ms", target=target)


def _bystanders(client: Client, stop: threading.Event, *, at_least_some: int = 1) -> list[float]:
    """Run small executions one after the other, and give how long each took."""
    took: list[float] = []
    while len(took) < at_least_some or not (stop.is_set() or at_least_some > 1):
        begun = time.monotonic()
        _run(client, [{"id": "a", "handler": "echo"}, {"id": "b", "handler": "echo", "dependencies": ["a"]}])
        took.append(time.monotonic() - begun)
        time.sleep(0.05)
    return took


def _run(client: Client, nodes: list[dict[str, Any]]) -> Any:
    execution = client.wait(client.start_definition({"nodes": nodes}, wait_seconds=60).id)
    return execution.raise_for_state()
