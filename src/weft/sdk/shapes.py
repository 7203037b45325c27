"""Answers of a server as typed values. Fields that this version does not know are ignored.

Times are ``datetime`` in UTC. Where the answer leaves a part out, the field is ``None``, or empty.
"""

from __future__ import annotations

from datetime import datetime  # noqa: TC003 - msgspec reads the annotations
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, SupportsIndex, TypeAlias, TypeVar, overload

import msgspec
from msgspec import Struct, field

from weft.core.state import TERMINAL, ExecutionState, NodeState
from weft.errors import (
    Failure,  # noqa: TC001 - the same
    Problem,  # noqa: TC001 - the same
)
from weft.sdk.ending import raise_unless_completed
from weft.sdk.public import public

T = TypeVar("T")


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return None if start is None or end is None else (end - start).total_seconds()


class Progress(Struct, frozen=True, kw_only=True):
    """The last ``context.progress`` of a function: ``done`` of ``total``, in a unit of its own."""

    done: int | float
    total: int | float | None = None
    message: str | None = None
    at: datetime | None = None


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
    progress: Progress | None = None
    reason: str | None = None
    cause: str | None = None
    cached: bool = False
    reused: bool = False
    error: Failure | None = None
    output: Any = None
    output_bytes: int | None = None

    @property
    def duration(self) -> float | None:
        """Seconds of the latest attempt; None where nothing ran."""
        return None if self.cached else _seconds(self.started_at, self.finished_at)


class NodeList(list[Node]):
    """The nodes of an execution in the order of the definition; ``nodes["fetch"]`` is the one of that id.

    Empty where the server answered without nodes.
    """

    @overload
    def __getitem__(self, key: SupportsIndex) -> Node: ...
    @overload
    def __getitem__(self, key: slice) -> list[Node]: ...
    @overload
    def __getitem__(self, key: str) -> Node: ...
    def __getitem__(self, key: SupportsIndex | slice | str) -> Node | list[Node]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for node in self:
            if node.id == key:
                return node
        if not self:
            raise KeyError(f"{key}: the server answered without nodes; fetch them with client.wait(id)")
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return any(node.id == key for node in self) if isinstance(key, str) else super().__contains__(key)

    def get(self, node_id: str) -> Node | None:
        return next((node for node in self if node.id == node_id), None)

    def keys(self) -> list[str]:
        return [node.id for node in self]

    def values(self) -> list[Node]:
        return list(self)

    def items(self) -> list[tuple[str, Node]]:
        return [(node.id, node) for node in self]


if TYPE_CHECKING:
    Nodes: TypeAlias = NodeList
else:
    Nodes = list[Node]  # what msgspec reads; ``Execution`` makes it a NodeList


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
    max_retries: int | None = None


class Parent(Struct, frozen=True, kw_only=True):
    """The node that an execution is a child of."""

    execution: str
    node: str
    index: int | None = None
    generation: int


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
    trigger: str | None = None
    group: str | None = None
    parent: Parent | None = None
    forked_from: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    counts: dict[NodeState, int] = {}
    nodes: Nodes = msgspec.field(default_factory=lambda: NodeList())

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "nodes", NodeList(self.nodes or ()))

    @property
    def duration(self) -> float | None:
        """Seconds from the start to the end of the latest generation; None before its end."""
        return _seconds(self.started_at, self.finished_at)

    @public
    def raise_for_state(self) -> Self:
        """Raise ExecutionFailed if the execution failed or was cancelled; return the execution otherwise."""
        raise_unless_completed(self, f"execution {self.id}", self.nodes)
        return self

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def node(self, node_id: str) -> Node:
        """Return the node of this id that came with this answer; raises KeyError if there is none."""
        return self.nodes[node_id]


class Event(Struct, frozen=True, kw_only=True):
    """One line of the history.

    ``node.queued``, ``node.started`` and ``node.progress`` are only told live, without a ``seq``.
    """

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
    signal: str | None = None
    actor: str | None = None
    progress: Progress | None = None


class Wait(Struct, frozen=True, kw_only=True):
    """A node that waits for an answer; ``schema`` is the JSON Schema that the answer must fit."""

    execution: str
    workflow: str | None
    node: str
    signal: str
    prompt: str | None = None
    schema: Any = None
    since: datetime
    expires_at: datetime | None = None


class SignalAnswer(Struct, frozen=True, kw_only=True):
    """The node that a signal answered; None: the execution keeps the signal for a node that will wait."""

    answered: str | None = None


class LoggedLine(Struct, frozen=True, kw_only=True):
    """A line that a node printed, or logged: then it has a level and the name of a logger."""

    seq: int
    at: datetime
    node: str
    attempt: int
    stream: Literal["stdout", "stderr", "log"]
    message: str
    level: str | None = None
    logger: str | None = None


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
    """The effect that a retry would have: the nodes it runs, and those whose outputs it keeps."""

    generation: int
    run: list[str]
    reuse: list[str]


class Deployed(Struct, frozen=True, kw_only=True):
    name: str
    version: int
    digest: str


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of a server's check of a definition, which is not stored."""

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
    """One change of a workflow, an alias or a dead letter, with its author; ``dead_letter`` is an id."""

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
    """The result of one input of a batch; ``index`` counts from 0 in the order of the inputs."""

    index: int
    execution: str
    state: ExecutionState
    output: Any = None
    error: Failure | None = None


class TriggerFailure(Struct, frozen=True, kw_only=True):
    """Why a trigger last started nothing."""

    at: datetime
    code: str
    message: str


class Trigger(Struct, frozen=True, kw_only=True):
    """A trigger. It has one of ``schedule``, ``event`` and ``webhook``."""

    name: str
    workflow: str
    version: int | str
    enabled: bool
    input: Any
    labels: dict[str, str]
    priority: str
    overlap: str
    schedule: dict[str, Any] | None = None
    event: dict[str, Any] | None = None
    webhook: dict[str, Any] | None = None
    created_at: datetime
    changed_at: datetime
    next_at: datetime | None
    skipped: int
    skipped_at: datetime | None
    error: TriggerFailure | None
    # Its next five due times, and its last ten executions, newest first; lists have neither.
    upcoming: list[datetime] = []
    executions: list[Execution] = []


class BackfillPlan(Struct, frozen=True, kw_only=True):
    """Due times that a backfill would start."""

    total: int
    due: list[datetime]


class EventEffect(Struct, frozen=True, kw_only=True):
    """The effects of an event: ids of executions, and nodes that waited for it."""

    started: list[str]
    answered: list[dict[str, str]]


class InboundEvent(Struct, frozen=True, kw_only=True):
    """An event that came, and what it did."""

    id: str
    source: str
    type: str
    received_at: datetime
    event: dict[str, Any]
    started: list[str]
    answered: list[dict[str, str]]


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


class LetterGroup(Struct, frozen=True, kw_only=True):
    """Dead letters of one workflow, node and error code; ``sample`` is the newest, at most 10,000 count."""

    workflow: str | None
    node: str
    code: str | None
    count: int
    executions: int
    first_at: datetime
    last_at: datetime
    sample: DeadLetter


class RefusedLetter(Struct, frozen=True, kw_only=True):
    """A dead letter that stays as it is, and why."""

    id: str
    code: str
    message: str


class LettersDone(Struct, frozen=True, kw_only=True):
    """The outcome of a call on many dead letters; ``refused`` lists 20 at most."""

    matched: int
    done: int
    refused: list[RefusedLetter]
    next_cursor: str | None = None


class Hour(Struct, frozen=True, kw_only=True):
    """Executions that began in an hour, and those that ended in it, by state."""

    from_: datetime = field(name="from")
    started: int
    completed: int = field(name="COMPLETED")
    failed: int = field(name="FAILED")
    cancelled: int = field(name="CANCELLED")


class WorkerTotals(Struct, frozen=True, kw_only=True):
    alive: int
    slots: int
    running: int


class QueueDepth(Struct, frozen=True, kw_only=True):
    name: str
    depth: int
    oldest_age_seconds: float | None = None


class DueTrigger(Struct, frozen=True, kw_only=True):
    """A trigger and its next due time."""

    trigger: str
    workflow: str
    at: datetime


class Overview(Struct, frozen=True, kw_only=True):
    """Everything at a glance; ``workers`` and ``queues`` are None while the store cannot be asked."""

    executions: dict[str, int]
    hours: list[Hour]
    failures: list[LetterGroup]
    dead_letters: int
    # Nodes that wait for an answer.
    waits: int = 0
    due_next: list[DueTrigger] = []
    workers: WorkerTotals | None = None
    queues: list[QueueDepth] | None = None


class RecentExecution(Struct, frozen=True, kw_only=True):
    id: str
    state: str
    started_at: datetime | None = None
    finished_at: datetime | None = None
    seconds: float | None = None


class Durations(Struct, frozen=True, kw_only=True):
    p50: float | None = None
    p95: float | None = None
    mean: float | None = None


class NodeFigures(Struct, frozen=True, kw_only=True):
    p50: float | None
    failures: int


class Statistics(Struct, frozen=True, kw_only=True):
    """Figures of the last executions of a workflow; ``nodes`` is None where there are too many to read."""

    recent: list[RecentExecution]
    seconds: Durations
    success_rate: float | None = None
    nodes: dict[str, NodeFigures] | None = None


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
