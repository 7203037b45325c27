"""What a server answers, as typed values. Fields that this version does not know are ignored.

Times are ``datetime`` in UTC. Where the answer leaves a part out, such as the nodes of an execution in a
list, the field is ``None``.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from weft.core.rows import Failure  # noqa: TC001 - the same
from weft.core.state import TERMINAL, ExecutionState, NodeState
from weft.errors import Problem  # noqa: TC001 - the same

T = TypeVar("T")


class Node(Struct, frozen=True, kw_only=True):
    id: str
    handler: str
    state: NodeState
    attempt: int
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    due_at: datetime | None = None
    worker: str | None = None
    reason: str | None = None
    cause: str | None = None
    cached: bool = False
    reused: bool = False
    error: Failure | None = None
    output: Any = None
    output_bytes: int | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    number: int
    generation: int
    outcome: Literal["completed", "failed", "lost", "cancelled"]
    worker: str | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: Failure | None = None


class NodeDetail(Node, frozen=True, kw_only=True):
    """One node with all its attempts, its resolved config and its whole output."""

    generation: int
    attempts: list[Attempt]
    config: Any = None


class Execution(Struct, frozen=True, kw_only=True):
    id: str
    workflow: str | None
    version: int | None
    digest: str
    generation: int
    state: ExecutionState
    live: bool = True
    input: Any = None
    output: Any = None
    error: Failure | None = None
    labels: dict[str, str] = {}
    priority: str = "normal"
    batch: str | None = None
    forked_from: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    counts: dict[NodeState, int] = {}
    nodes: list[Node] | None = None

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def node(self, node_id: str) -> Node:
        """Return the node of this id that came with this answer; raises KeyError if there is none."""
        for node in self.nodes or ():
            if node.id == node_id:
                return node
        raise KeyError(node_id)


class Event(Struct, frozen=True, kw_only=True):
    """One line of the history. ``node.queued`` and ``node.started`` are only told live, without a ``seq``."""

    type: str
    execution: str
    seq: int | None = None
    at: datetime | None = None
    generation: int | None = None
    node: str | None = None
    attempt: int | None = None
    state: str | None = None
    reason: str | None = None
    cause: str | None = None
    error: Failure | None = None
    worker: str | None = None
    queued_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    due_at: datetime | None = None
    output_digest: str | None = None
    actor: str | None = None


class Reason(Struct, frozen=True, kw_only=True):
    code: str
    message: str
    until: datetime | None = None
    nodes: list[str] | None = None


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a node is not running; a settled one has no reasons."""

    state: NodeState
    reasons: list[Reason]


class RetryPlan(Struct, frozen=True, kw_only=True):
    """What a retry would do: the nodes it runs, and those whose outputs it keeps."""

    generation: int
    run: list[str]
    reuse: list[str]


class Deployed(Struct, frozen=True, kw_only=True):
    name: str
    version: int
    digest: str


class Verdict(Struct, frozen=True, kw_only=True):
    """What a server says of a definition without storing it."""

    valid: bool
    problems: list[Problem]
    warnings: list[Problem]
    layers: list[list[str]]


class WorkflowVersion(Struct, frozen=True, kw_only=True):
    """One version of a workflow. ``definition`` is there where one version was asked for."""

    name: str
    version: int
    digest: str | None = None
    created_at: datetime | None = None
    aliases: dict[str, int] | None = None
    definition: Any = None


class Change(Struct, frozen=True, kw_only=True):
    """Who did what to a workflow, an alias or a dead letter; ``dead_letter`` is its id."""

    number: int
    at: datetime
    action: str
    actor: str | None = None
    workflow: str | None = None
    version: int | None = None
    alias: str | None = None
    dead_letter: str | None = None


class Batch(Struct, frozen=True, kw_only=True):
    id: str
    workflow: str
    version: int
    state: Literal["RUNNING", "COMPLETED"]
    total: int
    counts: dict[ExecutionState, int]
    retried: int = 0
    created_at: datetime
    finished_at: datetime | None = None


class BatchResult(Struct, frozen=True, kw_only=True):
    """What became of one input of a batch; ``index`` counts from 0 in the order of the inputs."""

    index: int
    execution: str
    state: ExecutionState
    output: Any = None
    error: Failure | None = None


class DeadLetter(Struct, frozen=True, kw_only=True):
    id: str
    execution: str
    workflow: str | None
    node: str
    generation: int
    attempt: int
    handler: str
    queue: str
    state: Literal["open", "retried", "handled", "dropped"]
    created_at: datetime
    error: Failure | None = None
    config: Any = None
    attempts: list[Attempt] | None = None


class Worker(Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    version: str
    state: Literal["alive", "draining", "lost"]
    queues: list[str]
    handlers: list[str]
    concurrency: int
    running: int
    started_at: datetime | None = None
    heartbeat_age_seconds: float | None = None


class Queue(Struct, frozen=True, kw_only=True):
    name: str
    depth: int
    in_flight: int
    oldest_age_seconds: float | None = None
    workers: int | None = None


class Check(Struct, frozen=True, kw_only=True):
    ok: bool
    message: str | None = None


class Readiness(Struct, frozen=True, kw_only=True):
    ready: bool
    checks: dict[str, Check] = {}


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list, and where the next page begins; ``None`` at the end."""

    items: list[T]
    next_cursor: str | None = None
