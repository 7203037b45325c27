"""Follows one execution of the embedded engine to its end, shows its progress, and cancels it when asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from weft.core.state import NodeState
from weft.errors import NotAllowedError
from weft.sdk.look import LOOK_INTERVAL_SECONDS, ExecutionLook, WatchedEngine

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.notices import NodeNotices
    from weft.sdk.progress import ProgressBar


class FollowedEngine(WatchedEngine, Protocol):
    """The part of the embedded engine that a follower calls."""

    async def wait(self, execution_id: str) -> object: ...
    async def cancel(self, execution_id: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """An execution that has ended, or that waits on in its data folder."""

    execution: dict[str, Any]
    elapsed_seconds: float
    signal: int | None  # the one that stopped it


async def follow(
    engine: FollowedEngine,
    execution_id: str,
    *,
    total: int,
    progress: ProgressBar | None,
    parents: Mapping[str, Sequence[str]] = MappingProxyType({}),
    notices: NodeNotices | None = None,
    keeps: bool = False,
) -> Followed:
    """Return once the execution is terminal. ``parents`` (of each node) gives the order of what is shown.

    ``notices``: shown with each look; what comes later goes to stderr by itself.

    The first Ctrl-C (or SIGTERM) cancels the execution and waits for that; the second ends the process
    at once. ``keeps``: the execution is on disk, and one that only waits is left as it is.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    look = ExecutionLook(engine, execution_id, total, parents, notices)
    request = CancelRequest(progress)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, request.on_signal, number)
    ended = asyncio.ensure_future(engine.wait(execution_id))
    stopped = asyncio.ensure_future(request.requested.wait())
    try:
        waiting = {ended, stopped}
        while not ended.done():
            if progress is not None:
                progress.show(await look.at(loop.time() - begun))
            await asyncio.wait(
                waiting,
                timeout=None if progress is None else LOOK_INTERVAL_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if stopped in waiting and stopped.done():
                waiting.discard(stopped)
                if keeps and await _only_waits(engine, execution_id):
                    break
                with suppress(NotAllowedError):  # it ended in the same moment
                    await engine.cancel(execution_id)
        if ended.done():
            await ended
        if progress is not None:
            progress.show(await look.at(loop.time() - begun))
    finally:
        ended.cancel()
        stopped.cancel()
        if progress is not None:
            progress.close()
        if notices is not None:
            notices.stop_waiting()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return Followed(await engine.describe(execution_id), loop.time() - begun, request.signal)


async def _only_waits(engine: FollowedEngine, execution_id: str) -> bool:
    """Return True if nodes wait and none is under way."""
    counts = (await engine.describe(execution_id))["counts"]
    return bool(counts[NodeState.WAITING]) and not (counts[NodeState.RUNNING] or counts[NodeState.QUEUED])


@dataclass(slots=True)
class CancelRequest:
    """Handles Ctrl-C: the first cancels, the second ends the process."""

    progress: ProgressBar | None
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None

    def on_signal(self, number: int) -> None:
        if self.signal is not None:
            if self.progress is not None:
                self.progress.close()  # or the terminal is left without its cursor
            # Not sys.exit: a handler that ignores its cancellation would hold up the interpreter.
            os._exit(128 + number)
        self.signal = number
        sys.stderr.write("weft: cancelling; press Ctrl-C again to stop at once\n")
        self.requested.set()
