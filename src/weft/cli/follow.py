"""Stay with one execution of the embedded engine to its end, showing it, and stopping it when asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from weft.cli.progress import SMALL, ProgressSnapshot, SettledNode
from weft.core.state import SETTLED, NodeState
from weft.errors import NotAllowedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.cli.notices import NodeNotices
    from weft.cli.progress import ProgressBar

LOOK_INTERVAL_SECONDS = 0.1


class EngineProgress(Protocol):
    """What a running engine can say of an execution at no cost."""

    @property
    def counts(self) -> Mapping[NodeState, int]: ...
    @property
    def running(self) -> Sequence[str]: ...
    @property
    def retried(self) -> int: ...
    @property
    def failures(self) -> Sequence[tuple[str, str]]:
        """The failures so far, the first ones first: (node, message)."""
        ...


class FollowedEngine(Protocol):
    """What is asked of the embedded engine."""

    async def wait(self, execution_id: str) -> object: ...
    async def describe(self, execution_id: str) -> dict[str, Any]: ...
    async def cancel(self, execution_id: str) -> object: ...
    def progress(self, execution_id: str) -> EngineProgress: ...


@dataclass(frozen=True, slots=True)
class Followed:
    """An execution that has ended."""

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
) -> Followed:
    """Return once the execution is terminal. ``parents`` (of each node) gives the order of what is shown.

    ``notices``: shown with each look; what comes later goes to stderr by itself.

    The first Ctrl-C (or SIGTERM) cancels the execution and waits for that; the second ends the process
    at once.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    look = _Look(engine, execution_id, total, parents, notices)
    stop = Stop(progress)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.request, number)
    ended = asyncio.ensure_future(engine.wait(execution_id))
    stopped = asyncio.ensure_future(stop.requested.wait())
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
                with suppress(NotAllowedError):  # it ended in the same moment
                    await engine.cancel(execution_id)
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
    return Followed(await engine.describe(execution_id), loop.time() - begun, stop.signal)


@dataclass(slots=True)
class Stop:
    """What Ctrl-C does."""

    progress: ProgressBar | None
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    signal: int | None = None

    def request(self, number: int) -> None:
        if self.signal is not None:
            if self.progress is not None:
                self.progress.close()  # or the terminal is left without its cursor
            # Not sys.exit: a handler that ignores its cancellation would hold up the interpreter.
            os._exit(128 + number)
        self.signal = number
        sys.stderr.write("weft: cancelling; press Ctrl-C again to stop at once\n")
        self.requested.set()


@dataclass(slots=True)
class _Look:
    """Makes the snapshots of one execution, and remembers what the last one told."""

    engine: FollowedEngine
    execution_id: str
    total: int
    parents: Mapping[str, Sequence[str]]
    notices: NodeNotices | None = None
    told: set[str] = field(default_factory=set)
    failures_told: int = 0

    async def at(self, elapsed_seconds: float) -> ProgressSnapshot:
        # Describing all nodes is exact, and for a few nodes it costs nothing.
        if self.total <= SMALL:
            snapshot = self._small(await self.engine.describe(self.execution_id), elapsed_seconds)
        else:
            snapshot = self._large(self.engine.progress(self.execution_id), elapsed_seconds)
        # Last: the lines of a node were handed over before its result was.
        return snapshot if self.notices is None else replace(snapshot, lines=self.notices.take())

    def _small(self, execution: Mapping[str, Any], elapsed_seconds: float) -> ProgressSnapshot:
        nodes = execution["nodes"]
        settled = self._in_order(
            [node for node in nodes if node["state"] in SETTLED and node["id"] not in self.told]
        )
        self.told.update(node["id"] for node in settled)
        return ProgressSnapshot(
            elapsed_seconds,
            {NodeState(state): count for state, count in execution["counts"].items()},
            running=[node["id"] for node in nodes if node["state"] == NodeState.RUNNING],
            settled=[_settled_node(node) for node in settled],
            retried=sum(max(node["attempt"] - 1, 0) for node in nodes),
        )

    def _in_order(self, settled: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return nodes as they finished, each behind the failure that stopped it.

        A node that never ran has no time: it stands behind its parents, and before what ran because of it.
        """
        left = {node["id"]: node for node in settled}
        ordered: list[Mapping[str, Any]] = []

        def add(node_id: str | None) -> None:
            node = left.pop(node_id, None) if node_id is not None else None
            if node is None:
                return
            add(node["cause"])
            for parent in self.parents.get(node["id"], ()):
                # A parent with a time may have finished later, where the rule did not wait for it.
                if parent in left and (node["finished_at"] is None or left[parent]["finished_at"] is None):
                    add(parent)
            ordered.append(node)

        for node in sorted(
            settled, key=lambda node: (node["finished_at"] is None, node["finished_at"] or "")
        ):
            add(node["id"])
        return ordered

    def _large(self, progress: EngineProgress, elapsed_seconds: float) -> ProgressSnapshot:
        failures = progress.failures[self.failures_told :]
        self.failures_told += len(failures)
        return ProgressSnapshot(
            elapsed_seconds,
            progress.counts,
            running=progress.running,
            settled=[SettledNode(node, NodeState.FAILED, message=message) for node, message in failures],
            retried=progress.retried,
        )


def _settled_node(node: Mapping[str, Any]) -> SettledNode:
    seconds = None
    if node["started_at"] and node["finished_at"]:
        seconds = _moment(node["finished_at"]).timestamp() - _moment(node["started_at"]).timestamp()
    error = node["error"]
    why = (
        f"{error['code']}: {error['message']}"
        if error
        else ", ".join(filter(None, (node["reason"], node["cause"])))
    )
    return SettledNode(node["id"], NodeState(node["state"]), seconds, why)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)
