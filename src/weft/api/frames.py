"""The shapes of the frames of ``GET /v1/executions/{id}/live``, as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.api.schema import ExecutionStateName, NodeStateName, Time  # noqa: TC001 - fields of models

# A letter for each state of a node, and T for a node that is QUEUED with a retry scheduled.
StateLetter = Literal["P", "Q", "R", "C", "F", "S", "X", "T"]

_COMMON: dict[str, Any] = {
    "counts": {
        "PENDING": 1,
        "QUEUED": 0,
        "RUNNING": 1,
        "COMPLETED": 1,
        "FAILED": 0,
        "SKIPPED": 0,
        "CANCELLED": 0,
    },
    "state": "RUNNING",
    "seq": 7,
    "at": "2026-01-31T09:30:00.000000Z",
    "live": True,
}
SNAPSHOT_EXAMPLE = {"generation": 1, "states": "CRP", **_COMMON}
CHANGES_EXAMPLE = {"changes": [[1, "R"]], **_COMMON}


class LiveFrame(BaseModel):
    """The facts in every frame of the live view of an execution."""

    counts: dict[NodeStateName, int]
    state: ExecutionStateName
    seq: int = Field(description="every event up to this number is in what was sent")
    at: Time
    live: bool = Field(
        description="false: the store cannot be asked now, and the states of unsettled nodes may be old"
    )


class LiveSnapshot(LiveFrame):
    """The state of every node: the first frame of a connection, and whenever changes would be longer."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"generation": 1, "states": "CRP", **_COMMON}]})

    generation: int
    states: str = Field(
        description="a letter for each node, in the order of the topology: P PENDING, Q QUEUED, R RUNNING, "
        "C COMPLETED, F FAILED, S SKIPPED, X CANCELLED, T a retry is scheduled (QUEUED)",
        pattern="^[PQRCFSXT]+$",
    )
    dropped: int | None = Field(
        default=None, description="so many frames were not sent to this client, which reads too slowly"
    )


class LiveChanges(LiveFrame):
    """The nodes whose letter has changed since the frame before."""

    model_config = ConfigDict(json_schema_extra={"examples": [CHANGES_EXAMPLE]})

    changes: list[tuple[Annotated[int, Field(ge=0)], StateLetter]]
