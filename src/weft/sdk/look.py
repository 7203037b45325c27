"""Looks at an execution of the embedded engine, for a progress bar."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from weft.core.state import SETTLED, NodeState
from weft.sdk.progress import SMALL, ProgressSnapshot, SettledNode, progress_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.sdk.progress import NodeLine

LOOK_INTERVAL_SECONDS = 0.1


class EngineProgress(Protocol):
    """The progress of an execution that a running engine can read at no cost."""

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


class WatchedEngine(Protocol):
    """The part of the embedded engine that a look reads."""

    async def describe(self, execution_id: str) -> dict[str, Any]: ...
    def progress(self, execution_id: str) -> EngineProgress: ...


class PendingLines(Protocol):
    """Lines to show above the bar."""

    def take(self) -> Sequence[NodeLine]: ...


@dataclass(slots=True)
class ExecutionLook:
    """Makes the snapshots of one execution, and remembers what the last one told."""

    engine: WatchedEngine
    execution_id: str
    total: int
    parents: Mapping[str, Sequence[str]]
    notices: PendingLines | None = None
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
            told={
                node["id"]: progress_text(node["progress"])
                for node in nodes
                if node["state"] == NodeState.RUNNING and node["progress"] is not None
            },
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
