"""A process without a free file."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# New files that this process may open before it has none left: fewer than anything needs.
_SPARE = 16


@contextmanager
def no_free_file() -> Iterator[None]:
    """Let this process have no free file in the block."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + _SPARE, before[1]))
    opened = []
    try:
        while True:
            try:
                opened.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for number in opened:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
