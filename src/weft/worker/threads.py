"""Threads for plain functions, which can be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Value = TypeVar("_Value")
_Inbox: TypeAlias = "SimpleQueue[Callable[[], None] | None]"


class DaemonThreads:
    """As many threads as there is work at once, kept for the next work.

    Not a ThreadPoolExecutor: there a stuck function holds one of a fixed number of places for ever, and
    the interpreter waits for it at its exit.
    """

    def __init__(self) -> None:
        self._idle: list[_Inbox] = []
        self._is_closed = False

    async def run(self, work: Callable[[], _Value]) -> _Value:
        """Run ``work``, which must not raise, in a thread. Cancelling this leaves the thread to itself."""
        return await self.start(work)

    def start(self, work: Callable[[], _Value]) -> asyncio.Future[_Value]:
        """Hand ``work`` to a thread, and give what will become of it."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Value] = loop.create_future()
        context = contextvars.copy_context()

        def run_and_tell() -> None:
            value = context.run(work)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, value)

        try:
            inbox = self._idle.pop()
        except IndexError:
            inbox = SimpleQueue()
            threading.Thread(target=partial(self._serve, inbox), name="weft-function", daemon=True).start()
        inbox.put(run_and_tell)
        return future

    def close(self) -> None:
        """Let idle threads end now, and busy ones when they are done."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().put(None)

    def _serve(self, inbox: _Inbox) -> None:
        while (work := inbox.get()) is not None:
            work()
            del work  # or an idle thread would keep the last value alive
            if self._is_closed:
                return
            self._idle.append(inbox)


def _settle(future: asyncio.Future[_Value], value: _Value) -> None:
    if not future.done():
        future.set_result(value)
