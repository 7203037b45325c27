"""What every program does alike: run W1 to W4 on its peer, and say what came out as lines of JSON.

A program brings a ``Peer``, which runs each workload to its end, and calls ``measure``. It decides neither
how often nor at what size: all are timed by the same code, from before the submit until everything has
ended. A workload is repeated until its budget is spent, at most a few times, and the best run counts. W3
grows until a run takes some seconds, so a slow peer runs fewer diamonds and no peer is measured on its
start.

Lines on standard output: ``{"versions": {…}}`` first, ``{"workload": "W1", …}`` for each workload, with
``cannot`` in place of figures where the peer has no words for it, ``{"note": "…"}`` for what should be
known beside them.

Only the standard library is imported here.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CHAIN = 100
FAN = 1000
SLEEPERS, SLEEP_SECONDS, SLOTS = 200, 0.01, 10
DIAMOND = 5
_FIRST_DIAMONDS, _MOST_DIAMONDS = 20, 2000
_TIMES = 3
_CHAINS = 5
_PAIR = struct.Struct("dd")
# The logs of what was started, by process.
_logs: dict[int, Path] = {}


class CannotExpressError(Exception):
    """The peer has no way to say this workload; the message says why."""


class Peer(Protocol):
    def chain(self, length: int) -> Sequence[tuple[float, float]]:
        """Run nodes one after the other; give the start and end of each, in seconds and in order."""

    def fan(self, width: int) -> None:
        """Run one node, ``width`` behind it, and one behind them all."""

    def diamonds(self, count: int) -> None:
        """Run so many a → b, c, d → e at once."""

    def sleepers(self, count: int, seconds: float, slots: int) -> None:
        """Run independent nodes that each take the same time, never more than ``slots`` at once."""


class Listener(Protocol):
    def say(self, **line: Any) -> None:
        """Pass one line on."""


class Reporter:
    """Writes lines to what was standard output, and keeps everybody else from it."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **line: Any) -> None:
        print(json.dumps(line), file=self._out, flush=True)


def measure(peer: Peer, reporter: Listener, *, versions: Mapping[str, str]) -> None:
    """Run the four workloads and report them."""
    budget = float(os.environ.get("PEER_BUDGET", "10"))
    reporter.say(versions=dict(versions))
    parts: Mapping[str, Callable[[Peer, float], dict[str, Any]]] = {
        "W1": _chain,
        "W2": _fan,
        "W3": _diamonds,
        "W4": _sleepers,
    }
    for workload, part in parts.items():
        try:
            reporter.say(workload=workload, **part(peer, budget))
        except CannotExpressError as reason:
            reporter.say(workload=workload, cannot=str(reason))


def _chain(peer: Peer, budget: float) -> dict[str, Any]:
    peer.chain(10)  # the first run pays for what is made once
    hops: list[float] = []
    whole: list[float] = []
    until = time.monotonic() + budget
    while len(whole) < _CHAINS and (not whole or time.monotonic() < until):
        begun = time.monotonic()
        times = peer.chain(CHAIN)
        whole.append(time.monotonic() - begun)
        assert len(times) == CHAIN, f"{len(times)} of {CHAIN} nodes ran"
        hops += [start - end for (_, end), (start, _) in pairwise(times)]
    return {
        "hop_ms": median(hops) * 1000,
        "hop_p99_ms": sorted(hops)[int(len(hops) * 0.99)] * 1000,
        "chain_ms": min(whole) * 1000,
        "nodes": CHAIN,
        "times": len(whole),
    }


def _fan(peer: Peer, budget: float) -> dict[str, Any]:
    probe = FAN // 20
    peer.fan(probe)
    per_node = _timed(lambda: peer.fan(probe)) / (probe + 2)
    width = FAN if per_node * FAN < 4 * budget else max(probe, int(3 * budget / per_node))
    seconds, times = _best(lambda: peer.fan(width), budget)
    return {"seconds": seconds, "nodes": width + 2, "times": times}


def _diamonds(peer: Peer, budget: float) -> dict[str, Any]:
    until = time.monotonic() + budget
    count = _FIRST_DIAMONDS
    peer.diamonds(count)
    runs: list[tuple[float, int]] = []
    while True:
        seconds = _timed(partial(peer.diamonds, count))
        runs.append((count * DIAMOND / seconds, count))
        if time.monotonic() + seconds > until or sum(size == count for _, size in runs) == _TIMES:
            break
        if seconds < budget / 5 and count < _MOST_DIAMONDS:
            count = min(_MOST_DIAMONDS, count * 4)
    rate, count = max(runs)
    return {"rate": rate, "nodes": count * DIAMOND, "times": len(runs)}


def _sleepers(peer: Peer, budget: float) -> dict[str, Any]:
    # Where starting the slots takes long, that is no part of the figure.
    peer.sleepers(SLOTS, SLEEP_SECONDS, SLOTS)
    seconds, times = _best(lambda: peer.sleepers(SLEEPERS, SLEEP_SECONDS, SLOTS), budget)
    ideal = SLEEPERS / SLOTS * SLEEP_SECONDS
    return {"seconds": seconds, "share": ideal / seconds, "nodes": SLEEPERS, "times": times}


def _best(run: Callable[[], None], budget: float) -> tuple[float, int]:
    until = time.monotonic() + budget
    runs: list[float] = []
    while len(runs) < _TIMES and (not runs or time.monotonic() < until):
        runs.append(_timed(run))
    return min(runs), len(runs)


def _timed(run: Callable[[], None]) -> float:
    begun = time.monotonic()
    run()
    return time.monotonic() - begun


# --- What some programs need.


class Stamps:
    """Starts and ends of nodes that may run in other processes: pairs in a file that each appends to.

    The clock is the machine's monotonic one, which all its processes share.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND)

    def add(self, start: float, end: float) -> None:
        os.write(self._file, _PAIR.pack(start, end))

    def take(self) -> list[tuple[float, float]]:
        """Return all pairs in the order of their starts, and forget them."""
        size = os.fstat(self._file).st_size
        pairs = list(_PAIR.iter_unpack(os.pread(self._file, size, 0)))
        os.ftruncate(self._file, 0)
        return sorted((start, end) for start, end in pairs)


def folder() -> Path:
    """Return the folder on the disk in which the peer may keep what it keeps."""
    return Path(os.environ["PEER_FOLDER"])


@contextmanager
def child(*command: str, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server of the peer's beside the program, and end it."""
    path = folder() / f"server-{len(_logs)}.log"
    with path.open("wb") as log:
        process = subprocess.Popen(
            command, env={**os.environ, **(environment or {})}, cwd=folder(), stdout=log, stderr=log
        )
    _logs[process.pid] = path
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], *, seconds: float = 90) -> None:
    """Return when a server answers; fail if it ends or takes too long."""
    until = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            sys.exit(f"a server of the peer has ended with {process.returncode}: {_last_words(process)}")
        if time.monotonic() > until:
            sys.exit(f"a server of the peer did not answer within {seconds:.0f} s: {_last_words(process)}")
        time.sleep(0.1)


def _last_words(process: subprocess.Popen[bytes]) -> str:
    lines = _logs[process.pid].read_text(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
