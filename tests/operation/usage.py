"""What a process uses of its machine, as Linux tells it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(_numbers(Path(f"/proc/{pid}/status"))["VmRSS"]) * 1024


def peak_memory(pid: int) -> int:
    """Return the most resident memory that a process ever had."""
    return int(_numbers(Path(f"/proc/{pid}/status"))["VmHWM"]) * 1024


def threads(pid: int) -> int:
    return int(_numbers(Path(f"/proc/{pid}/status"))["Threads"])


def descriptors(pid: int) -> int:
    """Return how many files, sockets and pipes a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def children(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started and that still run."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may have ended since the folder was read.
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(int(child) for child in (task / "children").read_text().split())
    return found


def written_bytes(pid: int) -> int:
    return int(_numbers(Path(f"/proc/{pid}/io"))["write_bytes"])


def cpu_seconds(pid: int) -> float:
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / _TICKS_PER_SECOND


def _numbers(file: Path) -> Mapping[str, str]:
    lines = (line.split() for line in file.read_text().splitlines())
    return {words[0].rstrip(":"): words[1] for words in lines if len(words) > 1}
