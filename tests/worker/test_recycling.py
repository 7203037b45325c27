"""What a child process that holds on to too much says of itself."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack

from weft.worker.recycling import LOOK_EVERY_CALLS, MORE_FILES, MORE_THREADS, LeakDetector


def looks(held: LeakDetector) -> bool:
    """Make as many calls as lie between two looks."""
    return any(held.should_recycle() for _ in range(LOOK_EVERY_CALLS))


def test_calls_that_keep_nothing_wear_nothing_out() -> None:
    held = LeakDetector()
    assert not any(looks(held) for _ in range(5))


def test_files_that_stay_open_wear_it_out() -> None:
    held = LeakDetector()
    with ExitStack() as opened:
        for _ in range(MORE_FILES - 8):
            opened.enter_context(open("/dev/null"))
        assert not looks(held)
        for _ in range(16):
            opened.enter_context(open("/dev/null"))
        assert looks(held)
    assert not looks(held)


def test_threads_that_stay_wear_it_out() -> None:
    held = LeakDetector()
    ended = threading.Event()
    started = [threading.Thread(target=ended.wait) for _ in range(MORE_THREADS + 1)]
    for thread in started:
        thread.start()
    try:
        assert looks(held)
    finally:
        ended.set()
        for thread in started:
            thread.join()
    assert not looks(held)


def test_memory_counts_from_what_the_first_calls_have_loaded() -> None:
    # In a process of its own: of one that has run for long, the system takes pages back meanwhile.
    program = f"""
from weft.worker import recycling
recycling.MORE_BYTES = 16 * 2**20
held = recycling.LeakDetector()
looks = lambda: any(held.should_recycle() for _ in range({LOOK_EVERY_CALLS}))
model = bytearray(b"x" * (64 * 2**20))
assert not looks()
assert not looks()
leak = bytearray(b"x" * (32 * 2**20))
assert looks()
assert len(model) > len(leak)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
