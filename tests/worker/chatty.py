"""Functions that print and log, for child processes."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Any

log = logging.getLogger("shop.orders")


def prints(text: str = "hello") -> int:
    print(text)
    print("to stderr", file=sys.stderr)
    print("no end", end="")
    return 1


def logs(context: Any) -> None:
    log.info("order %d", 7)
    context.logger.warning("slow")
    log.debug("not at this level")
    try:
        raise KeyError("price")
    except KeyError:
        log.exception("cannot read")


def own_handler() -> None:
    """Log through a handler of its own: the record is one line all the same."""
    logger = logging.getLogger("own")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("once")
    finally:
        logger.removeHandler(handler)


def starts_program() -> None:
    print("before")
    subprocess.run(["sh", "-c", "echo out; echo err >&2"], check=True)
    os.write(1, b"raw\n")


def in_thread() -> None:
    thread = threading.Thread(target=print, args=("from a thread",))
    thread.start()
    thread.join()


def forks() -> int:
    pid = os.fork()
    if pid == 0:
        print("from the fork")
        os._exit(0)
    return os.waitpid(pid, 0)[1]


async def prints_apart(name: str, beside: str) -> None:
    """Print while another call of it runs in the same process."""
    for number in range(3):
        print(f"{name} {number}")
        await asyncio.sleep(0.01)

    async def part() -> None:
        print(f"{name} in a task")

    await asyncio.gather(part())


def floods(lines: int) -> str:
    for number in range(lines):
        print("flood", number)
    return "done"


def dies() -> None:
    print("last words")
    sys.stdout.flush()
    threading.Event().wait(0.3)
    os.abort()


def carriage() -> None:
    for part in range(5):
        print(f"\r{part * 25} %", end="")
    print()


def ticks(context: Any) -> int:
    """Print a line each 10 ms until it is stopped."""
    number = 0
    while not context.cancelled():
        number += 1
        print(f"tick {number} {time.time()}")
        time.sleep(0.01)
    return number


def noise(seconds: float) -> int:
    """Print without a pause, and give the number of lines."""
    ends_at = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends_at:
        print("noise", number)
        number += 1
    return number


def progresses(context: Any, steps: int = 3, message: str = "reading") -> int:
    for step in range(steps):
        context.progress(step + 1, steps, f"{message} {step + 1}")
    return steps


async def progresses_apart(context: Any, done: float) -> float:
    context.progress(done)
    await asyncio.sleep(0)
    return done


def climbs(context: Any) -> int:
    """Report progress every 10 ms until the function is stopped."""
    number = 0
    while not context.cancelled():
        number += 1
        context.progress(number, 1_000_000, "climbing")
        time.sleep(0.01)
    return number


def misreports(context: Any, done: Any, total: Any = None) -> None:
    context.progress(float(done) if done == "nan" else done, total)
