"""An event loop in a thread of its own, for synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

# A signal that comes just before a wait does not end it, so no wait is long.
_LONGEST_DEAF_SECONDS = 0.2


class BackgroundLoop:
    """Runs coroutines for any thread, one loop for all. It starts with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the background loop and return its result; an interrupt (Ctrl-C) cancels it."""
        if threading.current_thread() is self._thread:
            main.close()
            raise RuntimeError("a blocking call on the loop that would have to carry it out")
        future = asyncio.run_coroutine_threadsafe(main, self._running_loop())
        try:
            while not future.done():
                wait((future,), timeout=_LONGEST_DEAF_SECONDS)
        except BaseException:
            future.cancel()
            raise
        return future.result()

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """End the thread, after one last coroutine; where there is none, nothing is to be done.

        A later ``run`` starts another one.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or not thread.is_alive():
            return
        loop.call_soon_threadsafe(_run_and_stop, loop, last)
        # The thread that collects garbage may be this very one.
        if threading.current_thread() is not thread:
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            # A process that was forked off has the object and not the thread.
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="weft-client", daemon=True
                )
                self._thread.start()
            return self._loop


def _run_and_stop(loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop.create_task(last()).add_done_callback(lambda _: loop.stop())


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
