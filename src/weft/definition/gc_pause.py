"""A pause of Python's garbage collector while one large structure is built."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def collector_paused() -> Iterator[None]:
    """Build without interruption: for a plan of 50,000 nodes the collector takes two thirds of the time.

    It looks again and again at objects that all stay, because it starts after a number of allocations,
    whatever they are. Reference counting goes on, so only cycles wait for the end. Nested and concurrent
    pauses are harmless: the one that stopped the collector starts it again, at worst a little early.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
