"""Celery 5 on Redis, for broker and results; its tasks are in ``celery_tasks.py``.

``acks_late``, so that a task survives the end of its worker. Two processes, one for each core, which is the
default here. Short tasks: the guide on optimizing wants a large prefetch for them (50 here), and a prefetch
of 1 where tasks have to be spread over slots, as in W4, which has a worker with ten processes. Results are
kept, because chords count on them. Everything else is the default, the JSON serializer too. Graphs are said
in its canvas: a chain, and a chord for what joins. Redis appends to its file every second, as it does for
weft.

What is on disk when a task is said to be done: nothing that is sure to be. Redis syncs once a second, and
nothing records that an execution exists other than the messages that carry its rest.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from celery import chain, group

from bench.peers.programs.celery_tasks import app, echo, join, link, sleep, stamps
from bench.peers.programs.contract import Reporter, child, measure, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

_WAIT_SECONDS = 120


class OnCelery:
    def __init__(self) -> None:
        self._worker = ExitStack()
        self._slots = 0

    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        self._serve(slots=2, prefetch=50)
        chain(link.s(1), *(link.s() for _ in range(length - 1)))().get(timeout=_WAIT_SECONDS)
        return stamps.take()

    def fan(self, width: int) -> None:
        self._serve(slots=2, prefetch=50)
        self._diamond(width)().get(timeout=_WAIT_SECONDS)

    def diamonds(self, count: int) -> None:
        self._serve(slots=2, prefetch=50)
        results = [self._diamond(3)() for _ in range(count)]
        for result in results:
            result.get(timeout=_WAIT_SECONDS)

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        self._serve(slots=slots, prefetch=1)
        group(sleep.s(seconds) for _ in range(count))().get(timeout=_WAIT_SECONDS)

    def _diamond(self, width: int) -> Any:
        return chain(echo.s(1), group(echo.s() for _ in range(width)), join.s())

    def _serve(self, *, slots: int, prefetch: int) -> None:
        """Have a worker with so many processes, in place of one with another number."""
        if self._slots == slots:
            return
        self.close()
        flags = ["-c", str(slots), "--prefetch-multiplier", str(prefetch), "-l", "WARNING"]
        celery = [sys.executable, "-m", "celery", "-A", "bench.peers.programs.celery_tasks"]
        environment = {"PYTHONPATH": os.environ["PEER_ROOT"]}
        worker = self._worker.enter_context(child(*celery, "worker", *flags, environment=environment))
        wait_until(lambda: bool(app.control.ping(timeout=0.5)), worker)
        self._slots = slots

    def close(self) -> None:
        self._worker.close()
        self._slots = 0


def main() -> None:
    reporter = Reporter()
    peer = OnCelery()
    try:
        measure(peer, reporter, versions={name: version(name) for name in ("celery", "kombu", "redis")})
    finally:
        peer.close()


if __name__ == "__main__":
    main()
