"""The memory of a tree of processes, looked at once a second while they work."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.server import children, resident_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

_PERIOD_SECONDS = 1.0


class PeakMemory:
    """The largest sum seen, of some processes and all below them.

    A page that several processes share counts once, in parts (``Pss``): they are forked from each other, or
    share buffers, and would otherwise be counted as often as there are processes.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self.bytes = 0
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_SECONDS):
            self.bytes = max(self.bytes, sum(map(_bytes, _tree(self._pids))))


def _tree(pids: Sequence[int]) -> list[int]:
    found: list[int] = []
    left = list(pids)
    while left:
        pid = left.pop()
        if pid not in found:
            found.append(pid)
            try:
                left += children(pid)
            except OSError:
                continue  # it has ended
    return found


def _bytes(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
        return resident_bytes(pid)
    except OSError:
        return 0
