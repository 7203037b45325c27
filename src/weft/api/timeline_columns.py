"""The shape of ``GET /v1/executions/{id}/timeline``, as the OpenAPI document shows it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.api.schema import ExecutionStateName, Time  # noqa: TC001 - fields of models

_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"
_AT = "2026-01-31T09:30:00.000000Z"
_EXAMPLE: dict[str, Any] = {
    "execution": _ID,
    "workflow": "order-report",
    "version": 3,
    "state": "RUNNING",
    "generation": 1,
    "created_at": _AT,
    "started_at": _AT,
    "finished_at": None,
    "now": "2026-01-31T09:30:02.000000Z",
    "attempts": {
        "node": [0, 1],
        "number": [1, 1],
        "generation": [1, 1],
        "queued": [0, 1250],
        "started": [2, 1253],
        "finished": [1250, None],
        "outcome": ["C", None],
        "worker": [0, 0],
    },
    "workers": ["worker-1"],
    "is_cut": False,
    "critical_path": [],
    "expected": {
        "finish_at": "2026-01-31T09:30:04.000000Z",
        "low_at": "2026-01-31T09:30:03.500000Z",
        "high_at": "2026-01-31T09:30:06.000000Z",
        "remaining_seconds": 2.0,
        "samples": 20,
        "deciding": ["report"],
    },
}
_MILLISECONDS = "in milliseconds from `started_at` on (`created_at` where it has not started)"


class AttemptColumns(BaseModel):
    """Attempts as columns: all have the same length. Times are in milliseconds from the start on."""

    node: list[int] = Field(description="the index of the node, as in the topology")
    number: list[int] = Field(description="of the attempt; 0: an output from the cache")
    generation: list[int]
    queued: list[int | None] = Field(description=f"{_MILLISECONDS}; of an earlier generation below 0")
    started: list[int | None]
    finished: list[int | None] = Field(description="null while it runs")
    outcome: list[Literal["C", "F", "L", "P", "X"] | None] = Field(
        description="C completed, F failed, L lost with its worker, P polled (the poll goes on), "
        "X cancelled; null while it is under way"
    )
    worker: list[int | None] = Field(description="the index of its worker in `workers`")


class PathNode(BaseModel):
    """A node that decided when the execution ended, with its last attempt."""

    node: str
    attempt: int
    queued_ms: int | None
    started_ms: int
    finished_ms: int
    waiting_ms: int = Field(
        description="between the end of the node before it and its own end, the time in which no attempt ran"
    )


class ExpectedEnd(BaseModel):
    """When a running execution is expected to end, by the median durations of earlier executions."""

    finish_at: Time
    low_at: Time = Field(description="with the lower quartiles")
    high_at: Time = Field(description="with the upper quartiles")
    remaining_seconds: float
    samples: int = Field(description="so many completed executions were read")
    deciding: list[str] = Field(
        description="the nodes that decide it, those that run now first; a hundred at most"
    )


class Timeline(BaseModel):
    """The attempts of an execution in time, and what decided its end or will decide it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    execution: str
    workflow: str | None
    version: int | None
    state: ExecutionStateName
    generation: int
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    now: Time = Field(description="when this was read, by the clock of the server")
    attempts: AttemptColumns
    workers: list[str]
    is_cut: bool = Field(description="whether there are more than the 100,000 attempts that are shown")
    critical_path: list[PathNode] = Field(
        description="of an execution that has ended: from the start, each the one whose end freed the next"
    )
    expected: ExpectedEnd | None = Field(
        description="null unless it runs and earlier executions of the workflow have completed"
    )
