"""Detects leaks in a child process (open files, threads, memory), so that the pool can replace the process.

Users' code leaks now and then. A process that is replaced before it has run out of a resource costs no
attempt. So a child measures itself from time to time, and reports when it holds much more than at its start.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass

# A look takes some ten microseconds; nothing leaks so much in so few calls that it could not wait.
LOOK_EVERY_CALLS = 100
# Far below the 1,024 files that a process may have open where nobody says otherwise.
MORE_FILES = 256
MORE_THREADS = 64
MORE_BYTES = 256 * 2**20

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class _Resources:
    files: int
    threads: int
    memory_bytes: int


class LeakDetector:
    """Compares the files, threads and memory of this process with those it had after loading its modules."""

    def __init__(self) -> None:
        self._calls = 0
        self._first = _look()
        # What the first calls load on demand, a model or a table, belongs to the work and not to a leak.
        self._settled_bytes: int | None = None

    def should_recycle(self) -> bool:
        """Count a call; True if this process should run no more of them."""
        self._calls += 1
        if self._calls % LOOK_EVERY_CALLS:
            return False
        now = _look()
        if self._settled_bytes is None:
            self._settled_bytes = now.memory_bytes
        return (
            now.files > self._first.files + MORE_FILES
            or now.threads > self._first.threads + MORE_THREADS
            or now.memory_bytes > self._settled_bytes + MORE_BYTES
        )


def _look() -> _Resources:
    try:
        files = len(os.listdir("/proc/self/fd"))
        with open("/proc/self/statm", "rb") as statm:
            memory_bytes = int(statm.read().split()[1]) * _PAGE_BYTES
    except OSError:  # only Linux tells
        files = memory_bytes = 0
    return _Resources(files, threading.active_count(), memory_bytes)
