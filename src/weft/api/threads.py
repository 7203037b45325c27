"""Threads for large documents, shared between callers: in turn, and none has more than half of them."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

# Large documents that are read and checked at once. Python runs one of them at a time, and lets the event
# loop in between; several threads are there so that a slow document does not hold up the quick ones.
THREADS = 4

_P = ParamSpec("_P")
_T = TypeVar("_T")


class FairThreads:
    """A small pool of threads. What waits for one is a request, and those are bounded."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="weft-api")
        self._free = THREADS
        # By caller: how many threads it has, and the calls that wait for one, oldest first.
        self._running: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        # The callers that wait, the one whose turn is next first.
        self._turns: deque[str] = deque()

    async def run(self, caller: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function in a thread, when it is the caller's turn."""
        loop = asyncio.get_running_loop()
        if not self._has_room(caller):
            await self._wait(caller, loop)
        else:
            self._start(caller)
        try:
            # In the caller's context: what the function asks of others, it asks in the caller's name.
            called = self._pool.submit(copy_context().run, partial(function, *args, **kwargs))
        except BaseException:
            self._end(caller)
            raise
        # The thread is free when the function has ended, even if its caller has gone.
        called.add_done_callback(lambda _: _on_loop(loop, self._end, caller))
        return await asyncio.wrap_future(called)

    async def _wait(self, caller: str, loop: asyncio.AbstractEventLoop) -> None:
        turn: asyncio.Future[None] = loop.create_future()
        if caller not in self._waiting:
            self._waiting[caller] = deque()
            self._turns.append(caller)
        self._waiting[caller].append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came in the same moment
                self._end(caller)
            raise

    def _has_room(self, caller: str) -> bool:
        return self._free > 0 and self._running.get(caller, 0) < THREADS // 2

    def _start(self, caller: str) -> None:
        self._free -= 1
        self._running[caller] = self._running.get(caller, 0) + 1

    def _end(self, caller: str) -> None:
        self._free += 1
        left = self._running.pop(caller) - 1
        if left:
            self._running[caller] = left
        self._serve()

    def _serve(self) -> None:
        """Hand free threads to callers that wait: to the one that has fewest, in turn among such."""
        for caller in [name for name in self._turns if all(turn.done() for turn in self._waiting[name])]:
            self._forget(caller)  # all of them were cancelled
        while ready := [caller for caller in self._turns if self._has_room(caller)]:
            caller = min(ready, key=lambda name: self._running.get(name, 0))
            waiting = self._waiting[caller]
            while (turn := waiting.popleft()).done():
                pass
            self._start(caller)
            turn.set_result(None)
            self._turns.remove(caller)
            self._turns.append(caller)
            if all(turn.done() for turn in waiting):
                self._forget(caller)

    def _forget(self, caller: str) -> None:
        self._turns.remove(caller)
        del self._waiting[caller]


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[[str], None], caller: str) -> None:
    try:
        loop.call_soon_threadsafe(function, caller)
    except RuntimeError:
        # The loop was closed: nobody waits for a thread any more.
        return
