"""Functions as users write them on a bad day; ``weft up`` runs them in its child processes."""

from __future__ import annotations

import threading
import time
from typing import Any

_kept: list[Any] = []


def oversleep(seconds: float) -> str:
    """Come back after the time is over, as if nothing were."""
    time.sleep(seconds)
    return "late"


def leak(number: int) -> int:
    """Keep a file, a thread and 100 kB with every call."""
    _kept.append(open("/dev/null"))  # noqa: SIM115 - the point
    _kept.append(bytearray(b"x" * 100_000))
    thread = threading.Thread(target=threading.Event().wait, daemon=True)
    thread.start()
    return number


def large(megabytes: int) -> str:
    return "x" * (megabytes * 2**20)
