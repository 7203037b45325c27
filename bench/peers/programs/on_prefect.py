"""Prefect 3 with a server of its own on SQLite, its recommendation for a light deployment on one machine.

``prefect server start`` with its services, and flows that run in the program. A node is a task, an
execution a flow run. Results are persisted (``PREFECT_RESULTS_PERSIST_BY_DEFAULT``), which its page on
results asks for to benefit from retries and transactions: without it nothing of a task would outlive the
program. Every task has an argument of its own, or its default cache policy would take one task's result for
another's. W1 calls one task after the other; what runs side by side is submitted to its default task
runner, threads, of which W4 has ten (``max_workers``). W3 runs flows from eight threads at once: a
deployment would start a process for each. Analytics is off, the console shows warnings only; everything
else is the default, the log that goes to its server too.

FastAPI is held below 0.150: the server of Prefect 3.8 does not start with the newest one that its own
requirements allow.

What is on disk when a task is said to be done: a file with its result, written but not synced. The state of
the task run reaches the server as an event, some time later.
"""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.programs.contract import Reporter, child, folder, free_port, measure, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLOWS_AT_ONCE = 8


class OnPrefect:
    """Defined late: Prefect reads its settings where it is imported."""

    def __init__(self) -> None:
        from prefect import flow, task
        from prefect.task_runners import ThreadPoolTaskRunner

        times: list[tuple[float, float]] = []
        self._times = times
        self._runner: Any = ThreadPoolTaskRunner

        @task
        def link(number: int) -> int:
            start = time.monotonic()
            times.append((start, time.monotonic()))
            return number + 1

        @task
        def echo(number: int, place: int) -> int:
            return number

        @task
        def join(numbers: list[int]) -> int:
            return numbers[0]

        @task
        def sleep(seconds: float, place: int) -> None:
            time.sleep(seconds)

        @flow
        def run_chain(length: int) -> int:
            number = 1
            for _ in range(length):
                number = link(number)
            return number

        @flow
        def run_diamond(width: int) -> int:
            first = echo.submit(1, -1)
            middle = [echo.submit(first, place) for place in range(width)]
            return int(join.submit(middle).result())

        @flow
        def run_sleepers(count: int, seconds: float) -> None:
            for future in [sleep.submit(seconds, place) for place in range(count)]:
                future.result()

        self._chain, self._diamond, self._sleepers = run_chain, run_diamond, run_sleepers

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        self._times.clear()
        self._chain(length)
        return list(self._times)

    def fan(self, width: int) -> None:
        self._diamond(width)

    def diamonds(self, count: int) -> None:
        with ThreadPoolExecutor(_FLOWS_AT_ONCE) as threads:
            list(threads.map(self._diamond, [3] * count))

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        self._sleepers.with_options(task_runner=self._runner(max_workers=slots))(count, seconds)


def main() -> None:
    reporter = Reporter()
    port = free_port()
    os.environ |= {
        "PREFECT_HOME": str(folder() / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING",
    }
    prefect = str(Path(sys.executable).with_name("prefect"))
    with child(prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port)) as server:
        wait_until(lambda: _answers(port), server)
        names = ("prefect", "fastapi", "sqlalchemy")
        measure(OnPrefect(), reporter, versions={name: version(name) for name in names})


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


if __name__ == "__main__":
    main()
