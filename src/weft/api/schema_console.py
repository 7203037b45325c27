"""The shapes of the answers that were made for the console: graphs, live states, sessions.

As in ``schema``: the OpenAPI document shows them, and tests compare what is sent with them.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from weft.api.schema import ExecutionStateName, LetterGroup, Time, example_of

_DIGEST = "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b"


def _example(value: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [value]}, populate_by_name=True)


class Topology(BaseModel):
    """The graph of a definition as columns; a node is named by its index in `nodes`."""

    model_config = _example(
        {
            "version": _DIGEST,
            "nodes": ["fetch", "report"],
            "handlers": ["call_external_service", "echo"],
            "handler": [0, 1],
            "from": [0],
            "to": [1],
        }
    )

    version: str = Field(description="the digest of the definition")
    nodes: list[str] = Field(description="the ids of the nodes, in the order of the definition")
    handlers: list[str] = Field(description="the names of the handlers, each once")
    handler: list[int] = Field(description="of each node: the index of its handler")
    from_: list[int] = Field(alias="from", description="of each dependency: the node that runs first")
    to: list[int] = Field(description="of each dependency: the node that runs after it")


class SignIn(BaseModel):
    """An API key, to sign in with."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"key": "kQ3xZ6vT1rNy8mHc4jBs0dLp7gWf2aEu"}]}
    )

    key: str = Field(min_length=1, max_length=1024, description="one of WEFT_API_KEYS")


class SessionState(BaseModel):
    """The caller, and whether a session says who that is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "keys": True,
                    "signed_in": True,
                    "csrf": "0bJ1hYk0S3m9nX2vQ5tW8zC4fR7uI6oPaLsDgEjKlMn",
                    "name": "key-3f9a1c20",
                }
            ]
        }
    )

    keys: bool = Field(description="whether the server has API keys; if not, nobody signs in")
    signed_in: bool = Field(description="whether the caller is known by the cookie of a session")
    csrf: str | None = Field(
        description="to be sent as `X-CSRF-Token` with every call that is not a `GET`, while signed in"
    )
    name: str | None = Field(description="what the history calls the caller; null: not known")


class SchemaVersions(BaseModel):
    """The last migration of the journal's database; null for a journal in memory."""

    have: str | None = Field(description="that the database has had")
    want: str | None = Field(description="that this release knows")


class SettingValue(BaseModel):
    """One setting, as plain text."""

    name: str
    value: str | None = Field(description="null: not set; `***`: set, and a secret")
    source: Literal["flag", "environment", "file", "default"]
    default: str
    doc: str


class Link(BaseModel):
    """A page of this server."""

    title: str
    url: str


class About(BaseModel):
    """The API process that answers. In a fleet, the settings of other processes may differ."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "version": "0.1.0",
                    "python": "3.12.4",
                    "started_at": "2026-01-05T10:30:00.000000Z",
                    "journal": "postgresql",
                    "store": "redis",
                    "transport": "redis",
                    "durability": "strict",
                    "schema": {"have": "0011_parked", "want": "0011_parked"},
                    "settings": [
                        {
                            "name": "WEFT_DATABASE_URL",
                            "value": "***",
                            "source": "environment",
                            "default": "a SQLite file in the data folder",
                            "doc": "postgresql://… for a fleet",
                        },
                        {
                            "name": "WEFT_WORKER_CONCURRENCY",
                            "value": "128",
                            "source": "flag",
                            "default": "64",
                            "doc": "tasks a worker has in hand at once",
                        },
                    ],
                    "links": [{"title": "Metrics", "url": "/metrics"}],
                }
            ]
        },
        populate_by_name=True,
    )

    version: str = Field(description="of weft")
    python: str
    started_at: Time
    journal: Literal["memory", "sqlite", "postgresql"]
    store: Literal["memory", "redis"]
    transport: Literal["in-process", "redis", "celery"]
    durability: Literal["strict", "relaxed"]
    schema_: SchemaVersions = Field(alias="schema")
    settings: list[SettingValue]
    links: list[Link]


# --- The overview, and the figures of a workflow.

_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"
_HOUR = {"from": "2026-01-31T09:00:00.000000Z", "started": 41, "COMPLETED": 38, "FAILED": 2, "CANCELLED": 0}
_COUNTS = {"PENDING": 0, "RUNNING": 1, "PAUSED": 0, "COMPLETED": 38, "FAILED": 2, "CANCELLED": 0}
_RECENT = {
    "id": _ID,
    "state": "COMPLETED",
    "started_at": "2026-01-31T09:30:00.000000Z",
    "finished_at": "2026-01-31T09:30:01.250000Z",
    "seconds": 1.25,
}


class Hour(BaseModel):
    """Executions of one hour: how many began in it, and how many ended in it in each state."""

    model_config = ConfigDict(populate_by_name=True)

    from_: Time = Field(alias="from")
    started: int = Field(description="submitted in this hour")
    COMPLETED: int
    FAILED: int
    CANCELLED: int


class WorkerTotals(BaseModel):
    """Living workers, the slots that they have, and the attempts in them."""

    alive: int
    slots: int
    running: int


class QueueDepth(BaseModel):
    """A queue, and what waits in it."""

    name: str
    depth: int
    oldest_age_seconds: float | None


class DueTrigger(BaseModel):
    """A trigger and its next due time."""

    trigger: str
    workflow: str
    at: Time


class Overview(BaseModel):
    """The state of everything at a glance. No figure of executions or letters counts above 100,000."""

    model_config = _example(
        {
            "executions": _COUNTS,
            "hours": [_HOUR],
            "failures": [example_of(LetterGroup)],
            "dead_letters": 12,
            "waits": 2,
            "due_next": [
                {"trigger": "nightly", "workflow": "order-report", "at": "2026-02-01T02:00:00.000000Z"}
            ],
            "workers": {"alive": 1, "slots": 64, "running": 3},
            "queues": [{"name": "echo", "depth": 12, "oldest_age_seconds": 0.4}],
        }
    )

    executions: dict[ExecutionStateName, int] = Field(
        description="under way now; in the last three states, those that ended within `hours`"
    )
    hours: list[Hour] = Field(description="the last 24 hours (UTC), the running one last")
    failures: list[LetterGroup] = Field(description="the 10 groups of open dead letters that grew last")
    dead_letters: int = Field(description="that are open")
    waits: int = Field(description="nodes that wait for an answer")
    due_next: list[DueTrigger] = Field(description="the 5 triggers that are due next")
    workers: WorkerTotals | None = Field(description="`null` while the store cannot be asked")
    queues: list[QueueDepth] | None = Field(description="`null` while the store cannot be asked")


class RecentExecution(BaseModel):
    """One of the last executions of a workflow."""

    id: str
    state: ExecutionStateName
    started_at: Time | None
    finished_at: Time | None
    seconds: float | None


class Durations(BaseModel):
    """Seconds that completed executions took; `null` where there is none."""

    p50: float | None
    p95: float | None
    mean: float | None


class NodeFigures(BaseModel):
    """One node in the last executions."""

    p50: float | None = Field(description="seconds that its completed attempts took, half of them at most")
    failures: int = Field(description="how often it failed for good")


class Statistics(BaseModel):
    """Figures of the last 50 executions of a workflow, or of one version."""

    model_config = _example(
        {
            "recent": [_RECENT],
            "seconds": {"p50": 1.25, "p95": 1.25, "mean": 1.25},
            "success_rate": 1.0,
            "nodes": {"report": {"p50": 0.8, "failures": 0}},
        }
    )

    recent: list[RecentExecution] = Field(description="newest first")
    seconds: Durations
    success_rate: float | None = Field(description="of those that completed or failed")
    nodes: dict[str, NodeFigures] | None = Field(
        description="of the newest executions with 20,000 nodes together; `null`: the newest has more"
    )
