"""User code as it should not be written: what test_isolate runs in child processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import datetime
import itertools
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import weft.errors
from weft.handlers.registry import handler

if TYPE_CHECKING:
    from weft.handlers.contract import HandlerContext

_beacons: list[socket.socket] = []
_arrived = 0
_all_here: asyncio.Event | None = None


def tell(beacon: str, word: str) -> socket.socket:
    """Send a word to the test, over a connection that lasts as long as this process."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(beacon)
    connection.sendall(word.encode() + b"\n")
    _beacons.append(connection)
    return connection


# Well-behaved.


def add(a: Any, b: Any) -> Any:
    return a + b


def process_id() -> int:
    return os.getpid()


async def meet(count: int) -> int:
    """Return when ``count`` calls are in this process at once."""
    global _arrived, _all_here
    _all_here = _all_here or asyncio.Event()
    _arrived += 1
    if _arrived == count:
        _all_here.set()
    await _all_here.wait()
    return os.getpid()


async def secrets_of(count: int, context: HandlerContext) -> dict[str, Any]:
    """Return the secrets of this call, while others run in the same process."""
    await meet(count)
    return {"secrets": dict(context.secrets), "mine": os.environ.get("MINE")}


async def linger(beacon: str) -> NoReturn:
    tell(beacon, "lingering")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        tell(beacon, "stopped")
        raise
    raise AssertionError("unreachable")


def heed(beacon: str, context: HandlerContext) -> str:
    tell(beacon, "running")
    while not context.cancelled():
        time.sleep(0.001)
    return "late"


def beats(beacon: str, context: HandlerContext) -> None:
    tell(beacon, "running")
    while True:
        context.heartbeat()
        time.sleep(0.001)


def own_loop() -> int:
    async def answer() -> int:
        return 42

    return asyncio.run(answer())


def hidden_coroutine() -> Any:
    return asyncio.sleep(0, "awaited")


def show(context: HandlerContext) -> list[Any]:
    context.logger.info("shown")
    ahead = context.deadline - datetime.datetime.now(datetime.UTC)
    return [
        context.execution_id,
        context.node_id,
        context.generation,
        context.attempt,
        context.idempotency_key,
        context.cancelled(),
        datetime.timedelta(0) < ahead <= datetime.timedelta(seconds=30),
    ]


def shout(text: str) -> None:
    print(text)


def interrupt_self() -> str:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGTERM)
    return "alive"


def terminate_fork() -> int | None:
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join()
    return process.exitcode


@handler("greet", config_schema={"type": "object", "properties": {"name": {"type": "string"}}})
async def greet(config: Any, context: HandlerContext) -> str:
    return f"hello {config['name']}, attempt {context.attempt}"


# Lethal.


def die() -> NoReturn:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


def run_out_of_memory() -> None:
    os.kill(os.getpid(), signal.SIGKILL)  # what the kernel does then


async def die_among_others(is_lethal: bool) -> str:
    if is_lethal:
        os._exit(3)
    return "alive"


def swallow_everything(beacon: str) -> NoReturn:
    tell(beacon, "swallowing")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.001)


async def ignore_stop(beacon: str | None = None) -> str:
    if beacon is None:
        return "alive"
    tell(beacon, "ignoring")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


async def block_loop(beacon: str | None = None) -> str:
    if beacon is not None:
        tell(beacon, "blocking")
        time.sleep(600)  # noqa: ASYNC251 - the point
    return "alive"


def start_program(beacon: str) -> NoReturn:
    """Leave a program behind that holds the connection, and wait for ever."""
    connection = tell(beacon, "started")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], pass_fds=[connection.fileno()])
    while True:
        time.sleep(600)


def channel() -> socket.socket:
    """Open the socket between this process and its parent once more."""
    return socket.socket(fileno=os.dup(int(sys.argv[1])))


def babble() -> None:
    channel().sendall(b"\xff" * 64)


def hang_up() -> NoReturn:
    channel().shutdown(socket.SHUT_RDWR)
    while True:
        time.sleep(600)


# Return values (F57).


def returned(what: str) -> Any:
    circular: dict[str, Any] = {}
    circular["self"] = circular
    return {
        "bytes": b"x",
        "set": {1},
        "datetime": datetime.datetime.now(datetime.UTC),
        "nan": float("nan"),
        "infinity": {"a": [float("inf")]},
        "circular": circular,
        "generator": itertools.count(),
        "long integer": 10**5000,
        "integer keys": {1: 2},
        "surrogate": "\ud800",
        "object": object(),
        "class": int,
        "large": "x" * 2_000_000,
        "deep": _nested(200),
        "hostile": _Hostile(a=1),
    }[what]


def _nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


class _Hostile(dict[str, int]):
    def __iter__(self) -> Any:
        raise SystemExit("gone")

    def values(self) -> Any:
        raise SystemExit("gone")

    def items(self) -> Any:
        raise SystemExit("gone")


# Exceptions (F56).


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit("from __str__")


def raised(what: str) -> NoReturn:
    match what:
        case "SystemExit":
            sys.exit("bye")
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "GeneratorExit":
            raise GeneratorExit
        case "CancelledError":
            raise asyncio.CancelledError
        case "StopIteration":
            raise StopIteration("early")
        case "long":
            raise ValueError("x" * 10_000_000)
        case "surrogates":
            raise ValueError("\ud800 and \0")
        case "unprintable":
            raise UnprintableError
        case "exits":
            raise ExitingError
        case "recursion":
            raised(what)
        case "chain":
            error = ValueError("link 0")
            for number in range(1, 1000):
                link = ValueError(f"link {number}")
                link.__cause__ = error
                error = link
            raise error
        case "group":
            raise ExceptionGroup("several", [ValueError("a"), TypeError("b")])
        case "NonRetryable":
            raise weft.errors.NonRetryable("never again")
        case "RetryAfter":
            raise weft.errors.RetryAfter(7, "later")
        case _:
            raise AssertionError(what)


async def raised_in_coroutine(what: str) -> NoReturn:
    await asyncio.sleep(0)
    raised(what)


async def raised_in_task(what: str) -> None:
    async def inner() -> None:
        raised(what)

    await asyncio.create_task(inner())


def stops_at_breakpoint() -> int:
    number = 3
    breakpoint()
    return number
