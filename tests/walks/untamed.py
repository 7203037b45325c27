"""Functions that die, block and do not listen: what test_isolation runs in child processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import Any, NoReturn

from weft.errors import NonRetryable


def add(a: int, b: int) -> int:
    return a + b


def die() -> NoReturn:
    os._exit(3)


def die_at_first(context: Any) -> int:
    """Die with the first attempt, and give the number of the second."""
    if context.attempt == 1:
        os._exit(3)
    return int(context.attempt)


def die_in_every_other(context: Any) -> int:
    """Die with every odd attempt, and fail in the even ones."""
    if context.attempt % 2:
        os._exit(3)
    raise RuntimeError(f"attempt {context.attempt}")


async def meet(folder: str, count: int, lethal: bool, context: Any) -> str:
    """Wait until so many calls are under way; then one takes its process down, and the others wait."""
    place = Path(folder)
    (place / context.node_id).touch()
    while len(os.listdir(place)) < count:  # noqa: ASYNC110 - the others may be in another process
        await asyncio.sleep(0.001)
    if lethal:
        os._exit(3)
    if count and context.attempt == 1:
        await asyncio.Event().wait()
    return str(context.node_id)


async def block(mark: str) -> NoReturn:
    """Hold up the loop of the process, as no coroutine should."""
    Path(mark).touch()  # noqa: ASYNC240 - so is this
    while True:
        time.sleep(600)  # noqa: ASYNC251 - the point


def swallow(mark: str) -> NoReturn:
    """Write down the process, and ignore everything."""
    Path(mark).write_text(str(os.getpid()))
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.001)


def fail(how: str) -> Any:
    match how:
        case "for good":
            raise NonRetryable("never again")
        case "with an error":
            raise LookupError("not there")
        case "by what it returns":
            return object()
        case _:
            raise AssertionError(how)


def keep(token: str, file: str) -> str:
    """Keep what it was given where the test can see it, and give it back."""
    Path(file).write_text(token)
    return f"used {token}"
