"""A server whose nodes do what a test says, and short words for what tests of the API do often."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.walks.stage import PATIENCE_SECONDS, QUICK, Stage, workflow

from weft.core.state import ExecutionState, NodeState

if TYPE_CHECKING:
    from tests.api.conftest import Answer, Server

    from weft.core.payload import Json

EXECUTION = {
    *("id", "workflow", "version", "digest", "generation", "state", "live", "input", "output", "error"),
    *(
        "labels",
        "priority",
        "batch",
        "trigger",
        "group",
        "parent",
        "forked_from",
        "trace_id",
        "created_at",
        "started_at",
        "finished_at",
        "counts",
    ),
}
LISTED = EXECUTION - {"input", "output"}
NODE = {
    *("id", "handler", "state", "attempt", "queued_at", "started_at", "finished_at", "due_at", "worker"),
    *("progress", "reason", "cause", "cached", "reused", "children", "error"),
    *("output", "output_bytes"),
}

__all__ = [
    "EXECUTION",
    "LISTED",
    "NODE",
    "QUICK",
    "Play",
    "check_problem",
    "execution_counts",
    "node_counts",
]


class Play:
    """One server, and the stage that its held nodes wait on."""

    def __init__(self, server: Server, stage: Stage) -> None:
        self.server = server
        self.stage = stage
        self.call, self.get, self.post = server.call, server.get, server.post

    async def store(self, *nodes: Json, name: str = "flow", **fields: Json) -> dict[str, Any]:
        """Store a workflow of these nodes; give what the server said of it."""
        answer = await self.post("/v1/workflows", json=workflow(*nodes, **{"name": name, **fields}))
        assert answer.status in (200, 201), answer.json
        return dict(answer.json)

    async def start(self, name: str = "flow", **body: Json) -> str:
        """Start an execution of a stored workflow; give its id."""
        answer = await self.post(f"/v1/workflows/{name}/executions", json=body)
        assert answer.status == 202, answer.json
        return str(answer.json["id"])

    async def show(self, execution_id: str, query: str = "") -> dict[str, Any]:
        answer = await self.get(f"/v1/executions/{execution_id}{query}")
        assert answer.status == 200, answer.json
        return dict(answer.json)

    async def ended(self, execution_id: str) -> dict[str, Any]:
        """Wait for the end of an execution, and show it."""
        shown = await self.show(execution_id, f"?wait={PATIENCE_SECONDS}")
        assert shown["state"] in ("COMPLETED", "FAILED", "CANCELLED")
        return shown

    async def until(self, execution_id: str, state: str) -> None:
        """Return once an execution is in a state that no answer waits for."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await self.show(execution_id, "?nodes=none"))["state"] != state:
                pass

    async def control(self, execution_id: str, verb: str, **kwargs: Any) -> Answer:
        return await self.post(f"/v1/executions/{execution_id}/{verb}", **kwargs)


def node_counts(**counts: int) -> dict[str, int]:
    """Write the counts of an execution: those given, and zero of every other state."""
    return {**{state.value: 0 for state in NodeState}, **counts}


def execution_counts(**counts: int) -> dict[str, int]:
    """Write the counts of a batch: those given, and zero of every other state."""
    return {**{state.value: 0 for state in ExecutionState}, **counts}


def check_problem(answer: Answer, status: int, code: str, *pointers: str) -> None:
    """Check that an answer is this problem, with problems at these pointers if any are given."""
    assert (answer.status, answer.json["status"], answer.json["code"]) == (status, status, code), answer.json
    assert answer.headers["Content-Type"] == "application/problem+json"
    if pointers:
        assert [problem["pointer"] for problem in answer.json["problems"]] == list(pointers)
