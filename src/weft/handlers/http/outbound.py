"""A worker's client for services outside: its sessions, the guard, and the operator's settings."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from weft.handlers.http.address import Guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import ClientSession

    from weft.clock import Clock
    from weft.handlers.http.session import Lookup
    from weft.settings import Settings


_P = ParamSpec("_P")
_T = TypeVar("_T")


class Outbound:
    """One per worker. Nothing is opened before the first call, nor aiohttp loaded, unless ``preload`` asks.

    There are two sessions, because a connection must not be shared between them: one for what workflows
    name, which the guard watches, and one for what the operator named, which may be on the inside.
    ``lookup`` gives the addresses of a name in place of the system. ``keep_alive``: whether a connection
    stays open for the next call.
    """

    def __init__(
        self, settings: Settings, clock: Clock, *, lookup: Lookup | None = None, keep_alive: bool = True
    ) -> None:
        """Raises SettingsError where HTTP_ALLOW cannot be read."""
        self.settings = settings
        self.clock = clock
        self.guard = Guard(settings.http_allow)
        self._lookup = lookup
        self._keep_alive = keep_alive
        self._guarded: ClientSession | None = None
        self._trusted: ClientSession | None = None
        self._thread: ThreadPoolExecutor | None = None

    @staticmethod
    def preload() -> None:
        """Load what calls need, in a thread: on the loop it would hold up everybody for half a second."""
        # No daemon: a process that ended in the middle of it would crash, with extensions half loaded.
        Thread(target=import_module, args=("weft.handlers.http.exchange",), name="weft-preload").start()

    def guarded(self) -> ClientSession:
        if self._guarded is None:
            self._guarded = self._open(self.guard)
        return self._guarded

    def trusted(self) -> ClientSession:
        if self._trusted is None:
            self._trusted = self._open(None)
        return self._trusted

    async def off_loop(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call what takes long with a large response in a thread: one for the worker, a call at a time.

        Several threads would take Python's lock from each other, and the loop would wait for all of them.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="weft-responses")
        call = partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None
        for session in (self._guarded, self._trusted):
            if session is not None:
                await session.close()
        self._guarded = self._trusted = None

    def _open(self, guard: Guard | None) -> ClientSession:
        from weft.handlers.http.session import open_session

        return open_session(
            guard=guard,
            limit=self.settings.worker_concurrency,
            lookup=self._lookup,
            keep_alive=self._keep_alive,
        )
