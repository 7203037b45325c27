"""An engine that does what its script says, for tests of what the command line does with one."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from weft.core.state import ExecutionState, NodeState


def node(name: str, state: str = "PENDING", **fields: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        (
            "queued_at",
            "started_at",
            "finished_at",
            "due_at",
            "worker",
            "reason",
            "cause",
            "error",
            "output",
            "progress",
        )
    )
    attempt = 0 if state in ("PENDING", "SKIPPED", "CANCELLED") else 1
    return {
        "id": name,
        "handler": "echo",
        "state": state,
        "attempt": attempt,
        "cached": False,
        **empty,
        **fields,
    }


def execution(state: str, *nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    counts = {s.value: sum(n["state"] == s for n in nodes) for s in NodeState}
    return {
        "id": "x",
        "state": state,
        "error": None,
        "output": None,
        "counts": counts,
        "nodes": list(nodes),
        **fields,
    }


@dataclass(slots=True)
class ScriptedProgress:
    counts: dict[NodeState, int]
    running: list[str]
    retried: int
    failures: list[tuple[str, str]]


@dataclass(slots=True)
class ScriptedEngine:
    """Each look at the execution shows the next of ``looks``; with the last it has ended."""

    looks: list[dict[str, Any]]
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: int = 0

    async def wait(self, execution_id: str) -> None:
        await self.ended.wait()

    async def describe(self, execution_id: str) -> dict[str, Any]:
        return self._next()

    def progress(self, execution_id: str) -> ScriptedProgress:
        shown = self._next()
        return ScriptedProgress(
            counts={NodeState(state): count for state, count in shown["counts"].items()},
            running=[n["id"] for n in shown["nodes"] if n["state"] == NodeState.RUNNING],
            retried=sum(max(n["attempt"] - 1, 0) for n in shown["nodes"]),
            failures=[(n["id"], n["error"]["message"]) for n in shown["nodes"] if n["error"]],
        )

    async def cancel(self, execution_id: str) -> None:
        self.cancelled += 1
        shown = self.looks[0]
        nodes = [
            n if n["state"] == NodeState.COMPLETED else {**n, "state": "CANCELLED", "reason": "cancelled"}
            for n in shown["nodes"]
        ]
        self.looks = [execution(ExecutionState.CANCELLED.value, *nodes)]
        self.ended.set()

    def _next(self) -> dict[str, Any]:
        if len(self.looks) > 1:
            return self.looks.pop(0)
        if self.looks[0]["state"] not in ("PENDING", "RUNNING"):
            self.ended.set()
        return self.looks[0]
