"""The shapes on the wire, and how routes declare which of them they take and give.

Requests are checked against their models: strictly, and nothing beside the fields. Answers are not: their
models say in the OpenAPI document what routes answer, and the tests compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel, WithJsonSchema

from weft.api.problem import CODES, MEDIA_TYPE
from weft.definition.model import (
    ID_PATTERN,
    LANE_PATTERN,
    MAX_RETRIES,
    MAX_TIMEOUT_SECONDS,
    NAME_PATTERN,
    SECRET_PATTERN,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

Responses: TypeAlias = dict[int | str, dict[str, Any]]

_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"
_BATCH = "0198c5a2-7a44-7e01-8b6c-1f2e3d4c5b6a"
_AT = "2026-01-31T09:30:00.000000Z"
_LATER = "2026-01-31T09:30:01.250000Z"
_DIGEST = "3a7bd3e2360a3d29eea436fcfb7e44c735d117c42d1c1835420b6b9942dd4f1b"

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Limit = Annotated[int, Field(ge=1, le=500, description="how many items a page has at most")]
Cursor = Annotated[str | None, Field(description="`next_cursor` of the page before")]
# Of a search, which has no text or bounds unless they are given.
SearchText = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=200,
        description="text in the name of the workflow or in the value of a label, or what the id of the "
        "execution begins with; capitals and small letters of ASCII are the same",
    ),
]
Seconds = Annotated[float | None, Field(ge=0, le=1e9)]
ExecutionStateName = Literal["PENDING", "RUNNING", "PAUSED", "COMPLETED", "FAILED", "CANCELLED"]
NodeStateName = Literal[
    "PENDING", "QUEUED", "RUNNING", "WAITING", "COMPLETED", "FAILED", "SKIPPED", "CANCELLED"
]
PriorityName = Literal["low", "normal", "high"]
LetterStateName = Literal["open", "retried", "handled", "dropped"]


def _number_or_name(value: Any) -> Any:
    # Asked first, so that what is neither is one problem and not one for each.
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("must be a number or an alias")
    return value


VersionName = Annotated[
    int | str, BeforeValidator(_number_or_name), Field(description="a number or an alias")
]


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _example(value: Any) -> Any:
    """Show a model by an example, in the OpenAPI document."""
    return {"examples": [value]}


# A field that may be left out, whose type says the rest. (None is not one of its values.)
_MAY_BE_MISSING: Any = Field(default=None, json_schema_extra=_without_default)


class Request(BaseModel):
    """The body of a request, or its query parameters: known fields only."""

    model_config = ConfigDict(extra="forbid")


class Body(Request):
    """The body of a request: of the types that are named, and of no others."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PageQuery(Request):
    limit: Limit = 50
    cursor: Cursor = None


# --- Problems.


class Finding(BaseModel):
    """One thing wrong with a document, and where."""

    pointer: str = Field(
        description="a JSON pointer (RFC 6901) into the body, or `/name` of a query parameter"
    )
    message: str


class ProblemShape(BaseModel):
    """Every error (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    trace_id: str = Field(description="finds the line in the server's log")
    problems: list[Finding]


def _problem_example(code: str) -> dict[str, Any]:
    status, title = CODES[code]
    example: dict[str, Any] = {
        "type": f"/docs#problem-{code}",
        "title": title,
        "status": status,
        "code": code,
        "detail": _DETAILS[code],
        "instance": "/v1/executions/" + _ID,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "problems": _PROBLEMS.get(code, []),
    }
    if code in ("not_allowed", "mailbox_full", "group_busy"):
        example["state"] = "COMPLETED" if code == "not_allowed" else "RUNNING"
    return example


_DETAILS = {
    "bad_syntax": "line 3, column 7: Expecting ',' delimiter",
    "unauthenticated": "send a key of this server as Authorization: Bearer KEY",
    "forbidden": "without keys this server answers to localhost alone, not to 'example.org'",
    "not_found": f"there is no execution {_ID}",
    "method_not_allowed": "this path takes GET, HEAD, OPTIONS",
    "not_allowed": f"execution {_ID} is COMPLETED and cannot be cancelled",
    "mailbox_full": f"the mailbox of execution {_ID} is full: 1,000 signals that nobody waits for",
    "group_busy": "group 'acme' has 1 execution already, as many as it may have (on_conflict: reject)",
    "idempotency_conflict": "the idempotency key 'order-7' stands for another request",
    "too_large": "the body is longer than 33,554,432 bytes",
    "unsupported_media_type": "'text/plain' is not read here; accepted: application/json, application/yaml, "
    "text/yaml",
    "invalid_definition": "the definition has 1 problem: /nodes: the nodes form a cycle: a -> b -> a",
    "invalid_input": "the input has 1 problem: /order_id: 'seven' is not of type 'integer'",
    "invalid_request": "the request has 1 problem: /limit: must be less than or equal to 500",
    "rate_limited": "more than 60 requests in 60 s",
    "internal": "something went wrong inside; the log of the server has it under the trace_id",
    "overloaded": "1,000 requests are under way; try again",
    "unavailable": "the journal cannot be reached now; try again",
}
_PROBLEMS = {
    "invalid_definition": [{"pointer": "/nodes", "message": "the nodes form a cycle: a -> b -> a"}],
    "invalid_input": [{"pointer": "/order_id", "message": "'seven' is not of type 'integer'"}],
    "invalid_request": [{"pointer": "/limit", "message": "must be less than or equal to 500"}],
}
_HEADERS: Mapping[int, Mapping[str, Any]] = {
    401: {"WWW-Authenticate": {"schema": {"type": "string"}}},
    405: {"Allow": {"schema": {"type": "string"}}},
    429: {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
    503: {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
}


def problems(*statuses: int) -> Responses:
    """Declare which problems a route answers with, beside those that every route has."""
    return {status: _problem_answer(status) for status in statuses}


def _problem_answer(status: int) -> dict[str, Any]:
    codes = [code for code, (of_code, _) in CODES.items() if of_code == status]
    return {
        "description": " or ".join(f"`{code}`" for code in codes),
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "examples": {code: {"value": _problem_example(code)} for code in codes},
            }
        },
        **({"headers": _HEADERS[status]} if status in _HEADERS else {}),
    }


# --- How routes declare bodies.

# Models that the OpenAPI document refers to by name, beside those that FastAPI finds by itself.
NAMED: dict[str, type[BaseModel]] = {"Problem": ProblemShape}


def answers(
    status: int, model: type[BaseModel] | None = None, description: str = "", *, headers: Any = None
) -> Responses:
    """Declare an answer, with the example of its model."""
    declared: dict[str, Any] = {"description": description or (model.__doc__ if model else "") or "done"}
    if headers:
        declared["headers"] = headers
    if model is not None:
        NAMED[model.__name__] = model
        declared["content"] = {"application/json": _content(model)}
    return {status: declared}


_JSON_ALONE = ("application/json",)
_JSON_OR_YAML = (*_JSON_ALONE, "application/yaml", "text/yaml")


def takes(model: type[BaseModel], *, required: bool = True, only_json: bool = False) -> dict[str, Any]:
    """Declare the body that a route reads: give it as ``openapi_extra``."""
    NAMED[model.__name__] = model
    content = _content(model)
    return {
        "requestBody": {
            "required": required,
            "content": dict.fromkeys(_JSON_ALONE if only_json else _JSON_OR_YAML, content),
        }
    }


def _content(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}, "example": example_of(model)}


def example_of(model: type[BaseModel]) -> Any:
    """Return the example in a model's JSON Schema."""
    extra: Any = model.model_config.get("json_schema_extra")
    assert extra is not None, f"{model.__name__} has no example"
    return extra["examples"][0]


# --- Workflows.

_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN.pattern}$")]
_NodeId = Annotated[str, Field(pattern=f"^{ID_PATTERN.pattern}$")]
_Lane = Annotated[str, Field(pattern=f"^{LANE_PATTERN.pattern}$")]
_SecretName = Annotated[str, Field(pattern=f"^{SECRET_PATTERN.pattern}$")]
_Timeout = Annotated[float, Field(gt=0, le=MAX_TIMEOUT_SECONDS)]
_Retries = Annotated[int, Field(ge=0, le=MAX_RETRIES)]

_DEFINITION = {
    "name": "order-report",
    "nodes": [
        {"id": "order", "handler": "input"},
        {
            "id": "report",
            "handler": "echo",
            "dependencies": ["order"],
            "condition": "order.total > 0",
            "config": {"text": "Order {{ order.id }} comes to {{ order.total }}"},
        },
    ],
    "output": "{{ report.text }}",
}


class RetryPolicy(Request):
    """Whether another attempt follows, and the delay before it."""

    base_delay_seconds: float = 1
    multiplier: float = 2
    max_delay_seconds: float = 300
    jitter: float = 0.5
    when: str = _MAY_BE_MISSING


class Cache(Request):
    """The time for which an output may be used again for the same handler and resolved config."""

    ttl_seconds: Annotated[float, Field(gt=0)]


class NodeDefaults(Request):
    """Defaults for every node of the definition."""

    timeout_seconds: _Timeout = 300
    max_retries: _Retries = 3
    retry: RetryPolicy = _MAY_BE_MISSING
    queue: _Lane = _MAY_BE_MISSING
    resource_tag: _Lane = _MAY_BE_MISSING
    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"


class NodeDefinition(NodeDefaults):
    """One node of a workflow."""

    id: _NodeId
    handler: str
    config: Any = Field({}, description="any JSON; every string in it may hold templates")
    dependencies: list[_NodeId] = Field([], description="`depends_on` is another spelling")
    depends_on: list[_NodeId] = _MAY_BE_MISSING
    condition: str = _MAY_BE_MISSING
    trigger_rule: Literal[
        "none_failed_min_one_success", "none_failed", "all_success", "all_done", "one_success", "one_failed"
    ] = "none_failed_min_one_success"
    cache: Cache = _MAY_BE_MISSING
    secrets: list[_SecretName] = Field(
        [], max_length=100, description="names of secrets that its function may read: `context.secrets`"
    )


class Concurrency(Request):
    """The group of an execution, and how many of the group run at once."""

    group: str = Field(description="a template over `input`")
    limit: Annotated[int, Field(ge=1, le=100_000)] = 1
    on_conflict: Literal["queue", "reject", "cancel_running"] = "queue"


class NotifyTarget(Request):
    """A URL that is told of executions of the workflow."""

    url: Annotated[str, Field(max_length=2000)] = Field(description="`{{ secrets.NAME }}` may stand in it")
    on: list[Literal["failed", "completed", "dead_letter", "waiting"]] = Field(
        ["failed", "dead_letter"], min_length=1, max_length=4
    )


class AdHocDefinition(Request):
    """A workflow as it is written down, which may do without a name."""

    model_config = ConfigDict(json_schema_extra=_example(_DEFINITION))

    name: _Name = _MAY_BE_MISSING
    description: str = _MAY_BE_MISSING
    input_schema: dict[str, Any] | bool = Field(
        {}, description="JSON Schema 2020-12 of the execution's input"
    )
    failure_policy: Literal["fail_fast", "continue"] = "fail_fast"
    timeout_seconds: _Timeout = _MAY_BE_MISSING
    max_concurrency: Annotated[int, Field(ge=1)] = _MAY_BE_MISSING
    concurrency: Concurrency = _MAY_BE_MISSING
    notify: NotifyTarget | Annotated[list[NotifyTarget], Field(max_length=10)] = _MAY_BE_MISSING
    defaults: NodeDefaults = _MAY_BE_MISSING
    nodes: list[NodeDefinition] = Field(min_length=1)
    output: Any = Field(None, description="any JSON with templates", json_schema_extra=_without_default)


class Definition(AdHocDefinition):
    """A workflow as it is written down."""

    name: _Name


_VERSION = {"name": "order-report", "version": 3, "digest": _DIGEST, "created_at": _AT}
_WORKFLOW = {**_VERSION, "aliases": {"production": 2}}


class Stored(BaseModel):
    """Where a definition is stored."""

    model_config = ConfigDict(
        json_schema_extra=_example({"name": "order-report", "version": 3, "digest": _DIGEST})
    )

    name: str
    version: int
    digest: str


class Version(Stored):
    """One immutable revision of a workflow."""

    model_config = ConfigDict(json_schema_extra=_example(_VERSION))

    created_at: Time


class Workflow(Version):
    """A named workflow: one of its versions, and the names that versions were given."""

    model_config = ConfigDict(json_schema_extra=_example(_WORKFLOW))

    aliases: dict[str, int]


class WorkflowDetail(Workflow):
    """A named workflow with the definition of one of its versions."""

    model_config = ConfigDict(json_schema_extra=_example({**_WORKFLOW, "definition": _DEFINITION}))

    definition: dict[str, Any]


class Workflows(BaseModel):
    """Workflows, by name, each in its latest version."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_WORKFLOW], "next_cursor": None}))

    items: list[Workflow]
    next_cursor: str | None


class Versions(BaseModel):
    """The versions of a workflow, newest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_VERSION], "next_cursor": None}))

    items: list[Version]
    next_cursor: str | None


class Verdict(BaseModel):
    """The result of a check of a definition."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {"valid": True, "problems": [], "warnings": [], "layers": [["order"], ["report"]]}
        )
    )

    valid: bool
    problems: list[Finding]
    warnings: list[Finding]
    layers: list[list[str]] = Field(description="node ids by distance from the roots")


class NewAlias(Body):
    """Which version an alias is to mean."""

    model_config = ConfigDict(json_schema_extra=_example({"version": 2}))

    version: Annotated[int, Field(ge=1, lt=2**63)]


class Alias(BaseModel):
    """A name for one version of a workflow."""

    model_config = ConfigDict(
        json_schema_extra=_example({"name": "order-report", "alias": "production", "version": 2})
    )

    name: str
    alias: str
    version: int


_CHANGE = {
    "number": 7,
    "at": _AT,
    "action": "alias.set",
    "actor": "key-3f2a91c0",
    "workflow": "order-report",
    "version": 2,
    "alias": "production",
    "dead_letter": None,
    "trigger": None,
}


class Change(BaseModel):
    """One write that belongs to no execution: who did what to a workflow, an alias, a trigger or a letter."""

    model_config = ConfigDict(json_schema_extra=_example(_CHANGE))

    number: int
    at: Time
    action: Literal[
        "workflow.stored",
        "workflow.deleted",
        "alias.set",
        "alias.deleted",
        "dead_letter.dropped",
        "trigger.stored",
        "trigger.enabled",
        "trigger.disabled",
        "trigger.deleted",
    ]
    actor: str | None = Field(description="the name of the API key; `local` on a server without keys")
    workflow: str | None
    version: int | None
    alias: str | None
    dead_letter: str | None = Field(description="its id")
    trigger: str | None


class Changes(BaseModel):
    """Changes of workflows, aliases, triggers and dead letters, newest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_CHANGE], "next_cursor": None}))

    items: list[Change]
    next_cursor: str | None


# --- Executions.

Labels = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._/-]{0,62}$")],
        Annotated[str, Field(max_length=255)],
    ],
    Field(max_length=32, description="up to 32 `key: value` strings"),
]
_INPUT: Any = Field({}, description="an object; checked against `input_schema`")
_ERROR = {
    "code": "http_status",
    "message": "GET https://example.org/orders/7 answered 503",
    "retryable": True,
    "node": "fetch",
    "details": {"status": 503},
}
_COUNTS = {
    "PENDING": 0,
    "QUEUED": 0,
    "RUNNING": 0,
    "COMPLETED": 2,
    "FAILED": 0,
    "SKIPPED": 0,
    "CANCELLED": 0,
}
_SUMMARY = {
    "id": _ID,
    "workflow": "order-report",
    "version": 3,
    "digest": _DIGEST,
    "generation": 1,
    "state": "COMPLETED",
    "live": True,
    "error": None,
    "labels": {"team": "sales"},
    "priority": "normal",
    "batch": None,
    "trigger": None,
    "group": None,
    "parent": None,
    "forked_from": None,
    "trace_id": None,
    "created_at": _AT,
    "started_at": _AT,
    "finished_at": _LATER,
    "counts": _COUNTS,
}
_EXECUTION = {**_SUMMARY, "input": {"id": 7, "total": 20}, "output": "Order 7 comes to 20"}
_CHILD = {**_SUMMARY, "parent": {"execution": _ID, "node": "report", "index": None, "generation": 1}}
_NODE = {
    "id": "report",
    "handler": "echo",
    "state": "COMPLETED",
    "attempt": 1,
    "queued_at": _AT,
    "started_at": _AT,
    "finished_at": _LATER,
    "due_at": None,
    "worker": "worker",
    "progress": None,
    "reason": None,
    "cause": None,
    "cached": False,
    "reused": False,
    "children": None,
    "error": None,
    "output": {"text": "Order 7 comes to 20"},
    "output_bytes": 30,
}
_ATTEMPT = {
    "number": 1,
    "generation": 1,
    "worker": "worker",
    "queued_at": _AT,
    "started_at": _AT,
    "finished_at": _LATER,
    "outcome": "completed",
    "error": None,
}


class StartExecution(Body):
    """The input of a stored workflow, and how it is to run."""

    model_config = ConfigDict(
        json_schema_extra=_example({"input": {"id": 7, "total": 20}, "labels": {"team": "sales"}})
    )

    input: Any = _INPUT
    version: VersionName = "latest"
    labels: Labels = {}
    priority: PriorityName = "normal"


class SubmitExecution(Body):
    """A definition that is run without being stored by name."""

    model_config = ConfigDict(
        json_schema_extra=_example({"definition": _DEFINITION, "input": {"id": 7, "total": 20}})
    )

    definition: Any
    input: Any = _INPUT
    labels: Labels = {}
    priority: PriorityName = "normal"


_WAIT = {
    "execution": _ID,
    "workflow": "plan",
    "node": "approval",
    "signal": "approval",
    "prompt": "Apply 3 changes?",
    "schema": {"enum": ["approve", "reject"]},
    "since": _LATER,
    "expires_at": None,
}


class RetryExecution(Body):
    """Nodes to run again, beside all that did not complete."""

    model_config = ConfigDict(json_schema_extra=_example({"nodes": ["report"], "dry_run": True}))

    nodes: list[str] = []
    dry_run: bool = False


class AnswerWait(Body):
    """The value that a node waits for."""

    model_config = ConfigDict(json_schema_extra=_example({"value": "approve"}))

    value: Any = Field(description="any JSON that fits the schema of the wait")


class SignalAnswer(BaseModel):
    """The node that a signal answered."""

    model_config = ConfigDict(json_schema_extra=_example({"answered": "approval"}))

    answered: str | None = Field(description="the node that it answered; null: it is kept")


class Wait(BaseModel):
    """A node that waits for an answer."""

    model_config = ConfigDict(json_schema_extra=_example(_WAIT))

    execution: str
    workflow: str | None
    node: str
    signal: str
    prompt: str | None = Field(description="the question to the person who answers")
    schema_: Any = Field(alias="schema", description="the JSON Schema of the answer; null: any JSON")
    since: Time
    expires_at: Time | None


class Waits(BaseModel):
    """A page of nodes that wait for an answer."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_WAIT], "next_cursor": None}))

    items: list[Wait]
    next_cursor: str | None


class ForkExecution(Body):
    """Nodes that run again in the new execution, and values that differ in it."""

    model_config = ConfigDict(json_schema_extra=_example({"from": ["report"]}))

    from_: list[str] = Field(
        [], alias="from", description="these nodes and all behind them run; none: all run"
    )
    input: Any = Field(None, description="another input; missing: that of the execution")
    version: VersionName | None = None


class RetryPlan(BaseModel):
    """The effect that a retry would have."""

    model_config = ConfigDict(
        json_schema_extra=_example({"generation": 2, "run": ["report"], "reuse": ["order"]})
    )

    generation: int
    run: list[str]
    reuse: list[str]


class Error(BaseModel):
    """Why a node or an execution failed."""

    code: str
    message: str
    retryable: bool
    node: str = _MAY_BE_MISSING
    details: dict[str, Any]


class Parent(BaseModel):
    """The node that an execution is a child of, and the generation of its execution that the child is for."""

    execution: str
    node: str
    index: int | None = Field(description="which of the children of the node; null: the node has one")
    generation: int


class ExecutionSummary(BaseModel):
    """One run of one version, as lists show it."""

    model_config = ConfigDict(json_schema_extra=_example(_SUMMARY))

    id: str
    workflow: str | None
    version: int | None
    digest: str
    generation: int
    state: ExecutionStateName
    live: bool
    error: Error | None
    labels: dict[str, str]
    priority: PriorityName
    batch: str | None
    trigger: str | None = Field(description="the trigger that started it")
    group: str | None = Field(description="its group, of which only some executions run at once")
    parent: Parent | None = Field(description="the node that runs it; null: no node does")
    forked_from: str | None = Field(description="the execution that this one was forked from")
    trace_id: str | None = Field(
        description="finds its spans in a tracing system; null where neither server nor caller has a trace"
    )
    created_at: Time
    started_at: Time | None
    finished_at: Time | None
    counts: dict[NodeStateName, int]


class Execution(ExecutionSummary):
    """One run of one version, without its nodes."""

    model_config = ConfigDict(json_schema_extra=_example(_EXECUTION))

    input: Any
    output: Any


class Progress(BaseModel):
    """The progress that an attempt reported: ``done`` of ``total``, in a unit of its own."""

    done: int | float
    total: int | float | None
    message: str | None
    at: Time


class ChildCounts(BaseModel):
    """The number of children that a node has, by state."""

    counts: dict[ExecutionStateName, int]


class Node(BaseModel):
    """One node of an execution. With ``nodes=brief`` it has neither output nor error."""

    model_config = ConfigDict(json_schema_extra=_example(_NODE))

    id: str
    handler: str
    state: NodeStateName
    attempt: int
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    due_at: Time | None
    worker: str | None
    progress: Progress | None = Field(
        description="what a function said last with `context.progress`, of the attempt that is shown"
    )
    reason: str | None
    cause: str | None
    cached: bool
    reused: bool = Field(description="taken over from the execution that this one was forked from")
    children: ChildCounts | None = Field(description="of a node that runs a workflow")
    error: Error | None = _MAY_BE_MISSING
    output: Any = _MAY_BE_MISSING
    output_bytes: int | None


class ExecutionDetail(Execution):
    """One run of one version. With ``nodes=none`` it has no nodes."""

    model_config = ConfigDict(json_schema_extra=_example({**_EXECUTION, "nodes": [_NODE]}))

    nodes: list[Node] = _MAY_BE_MISSING


class RetryAnswer(RootModel[RetryPlan | Execution]):
    """The effect that a retry would have, or the execution that a retry with the same key has opened."""

    model_config = ConfigDict(
        json_schema_extra=_example({"generation": 2, "run": ["report"], "reuse": ["order"]})
    )


class Executions(BaseModel):
    """Executions, newest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_SUMMARY], "next_cursor": None}))

    items: list[ExecutionSummary]
    next_cursor: str | None


class Children(BaseModel):
    """Executions that a node runs, in the order of their items."""

    model_config = ConfigDict(
        json_schema_extra=_example({"items": [_CHILD], "next_cursor": None, "counts": {"COMPLETED": 1}})
    )

    items: list[ExecutionSummary]
    next_cursor: str | None
    counts: dict[ExecutionStateName, int] = Field(description="of all children of the node, by state")


class Nodes(BaseModel):
    """Nodes, in the order of the definition."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_NODE], "next_cursor": None}))

    items: list[Node]
    next_cursor: str | None


class Attempt(BaseModel):
    """One try of a node."""

    number: int
    generation: int
    worker: str | None
    queued_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    outcome: Literal["completed", "failed", "polled", "lost", "cancelled"] | None
    error: Error | None


class NodeDetail(Node):
    """One node, with all its attempts, its resolved config and its whole output."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {
                **_NODE,
                "config": {"text": "Order 7 comes to 20"},
                "generation": 1,
                "max_retries": 3,
                "attempts": [_ATTEMPT],
            }
        )
    )

    config: Any
    generation: int
    max_retries: int = Field(description="further attempts after failures, in each generation")
    attempts: list[Attempt]


class Reason(BaseModel):
    """One reason why a node does not run."""

    code: str
    message: str
    until: Time = _MAY_BE_MISSING
    nodes: list[str] = _MAY_BE_MISSING


class Explanation(BaseModel):
    """Why a node is not running."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {
                "state": "PENDING",
                "reasons": [
                    {"code": "waiting_for_parents", "message": "waits for order", "nodes": ["order"]}
                ],
            }
        )
    )

    state: NodeStateName
    reasons: list[Reason]


_EVENT = {
    "seq": 3,
    "at": _LATER,
    "type": "node.completed",
    "execution": _ID,
    "generation": 1,
    "node": "report",
    "attempt": 1,
    "state": "COMPLETED",
    "worker": "worker",
    "queued_at": _AT,
    "started_at": _AT,
    "finished_at": _LATER,
    "output_digest": _DIGEST,
}


class Event(BaseModel):
    """An event of an execution. Events without a number are sent live, and not recorded."""

    model_config = ConfigDict(json_schema_extra=_example(_EVENT))

    seq: int = _MAY_BE_MISSING
    at: Time
    type: str
    execution: str
    generation: int
    node: str = _MAY_BE_MISSING
    attempt: int = _MAY_BE_MISSING
    state: str = _MAY_BE_MISSING
    reason: str = _MAY_BE_MISSING
    cause: str = _MAY_BE_MISSING
    error: Error = _MAY_BE_MISSING
    worker: str = _MAY_BE_MISSING
    queued_at: Time = _MAY_BE_MISSING
    started_at: Time = _MAY_BE_MISSING
    finished_at: Time = _MAY_BE_MISSING
    due_at: Time = _MAY_BE_MISSING
    output_digest: str = _MAY_BE_MISSING
    signal: str = _MAY_BE_MISSING
    actor: str = _MAY_BE_MISSING
    progress: Progress = _MAY_BE_MISSING


class Events(BaseModel):
    """The history of an execution, in the order of commit."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_EVENT], "next_cursor": None}))

    items: list[Event]
    next_cursor: str | None


# --- Logs.

_LINE = {
    "seq": 2,
    "at": _LATER,
    "node": "report",
    "attempt": 1,
    "stream": "stdout",
    "level": None,
    "logger": None,
    "message": "3 orders read",
}


class Line(BaseModel):
    """A line that a node printed, or logged: then it has a level and the name of a logger."""

    model_config = ConfigDict(json_schema_extra=_example(_LINE))

    seq: int
    at: Time
    node: str
    attempt: int
    stream: Literal["stdout", "stderr", "log"]
    level: str | None
    logger: str | None
    message: str


class Logs(BaseModel):
    """Lines of an execution, oldest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_LINE], "next_cursor": None}))

    items: list[Line]
    next_cursor: str | None


# --- Batches.

_BATCH_EXAMPLE = {
    "id": _BATCH,
    "workflow": "order-report",
    "version": 3,
    "state": "COMPLETED",
    "total": 2,
    "counts": {"PENDING": 0, "RUNNING": 0, "PAUSED": 0, "COMPLETED": 2, "FAILED": 0, "CANCELLED": 0},
    "retried": 1,
    "created_at": _AT,
    "finished_at": _LATER,
}


class SubmitBatch(Body):
    """Many inputs for one version of a workflow."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {"workflow": "order-report", "inputs": [{"id": 7, "total": 20}, {"id": 8, "total": 5}]}
        )
    )

    workflow: str
    version: VersionName = "latest"
    inputs: list[Any] = Field(min_length=1)
    labels: Labels = {}
    priority: PriorityName = "normal"
    max_running: int | None = Field(
        None, ge=1, le=100_000, description="so many run at once; the others wait, `PENDING`, in their order"
    )


class Batch(BaseModel):
    """Many executions as one."""

    model_config = ConfigDict(json_schema_extra=_example(_BATCH_EXAMPLE))

    id: str
    workflow: str
    version: int
    state: Literal["RUNNING", "COMPLETED"]
    total: int
    counts: dict[ExecutionStateName, int]
    retried: int = Field(description="attempts of nodes that followed a first one")
    created_at: Time
    finished_at: Time | None


class Batches(BaseModel):
    """Batches, newest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_BATCH_EXAMPLE], "next_cursor": None}))

    items: list[Batch]
    next_cursor: str | None


class BatchResult(BaseModel):
    """The result of one input."""

    index: int
    execution: str
    state: ExecutionStateName
    output: Any
    error: Error | None


class BatchResults(BaseModel):
    """The results of the inputs, in their order."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {
                "items": [
                    {
                        "index": 0,
                        "execution": _ID,
                        "state": "COMPLETED",
                        "output": "Order 7 comes to 20",
                        "error": None,
                    }
                ],
                "next_cursor": None,
            }
        )
    )

    items: list[BatchResult]
    next_cursor: str | None


# --- Dead letters.

_LETTER = {
    "id": _ID,
    "execution": _ID,
    "workflow": "order-report",
    "node": "fetch",
    "generation": 1,
    "attempt": 4,
    "handler": "call_external_service",
    "queue": "call_external_service",
    "config": {"url": "https://example.org/orders/7"},
    "error": _ERROR,
    "attempts": [{**_ATTEMPT, "outcome": "failed", "error": _ERROR}],
    "state": "open",
    "created_at": _LATER,
}


class DeadLetter(BaseModel):
    """A node that failed for good."""

    model_config = ConfigDict(json_schema_extra=_example(_LETTER))

    id: str
    execution: str
    workflow: str | None
    node: str
    generation: int
    attempt: int
    handler: str
    queue: str
    config: Any
    error: Error
    attempts: Any
    state: LetterStateName
    created_at: Time


class DeadLetters(BaseModel):
    """Dead letters, newest first."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_LETTER], "next_cursor": None}))

    items: list[DeadLetter]
    next_cursor: str | None


_GROUP = {
    "workflow": "order-report",
    "node": "fetch",
    "code": "http_status",
    "count": 12,
    "executions": 12,
    "first_at": _AT,
    "last_at": _LATER,
    "sample": _LETTER,
}
_GROUPED = "of dead letters in one state; at most 10,000 are counted"


class LetterGroup(BaseModel):
    """Dead letters of one workflow, node and error code."""

    model_config = ConfigDict(json_schema_extra=_example(_GROUP))

    workflow: str | None
    node: str
    code: str | None
    count: int = Field(description=f"number {_GROUPED}")
    executions: int = Field(description="number of the executions that they are of")
    first_at: Time
    last_at: Time
    sample: DeadLetter = Field(description="the newest of them")


class LetterGroups(BaseModel):
    """Groups of dead letters, by workflow, node and code."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_GROUP], "next_cursor": None}))

    items: list[LetterGroup]
    next_cursor: str | None


class SelectLetters(Body):
    """The open dead letters to retry or to drop: those that meet all of these, or those of the ids."""

    model_config = ConfigDict(
        json_schema_extra=_example({"workflow": "order-report", "node": "fetch", "code": "http_status"})
    )

    workflow: str | None = Field(
        None, description="`null`: letters without a workflow", json_schema_extra=_without_default
    )
    node: str = _MAY_BE_MISSING
    code: str | None = Field(
        None, description="`null`: letters without a code", json_schema_extra=_without_default
    )
    ids: list[str] = Field([], max_length=200, description="of dead letters, in any state")
    cursor: str | None = Field(None, description="`next_cursor` of the answer before, to go on behind it")


class RefusedLetter(BaseModel):
    """A dead letter that stays as it is, and why."""

    id: str
    code: str
    message: str


class LettersDone(BaseModel):
    """The outcome of a call on many dead letters: it takes on 200 at most."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {
                "matched": 12,
                "done": 11,
                "refused": [
                    {
                        "id": _ID,
                        "code": "not_allowed",
                        "message": f"execution {_ID} is RUNNING and cannot be retried",
                    }
                ],
                "next_cursor": None,
            }
        )
    )

    matched: int = Field(description="how many this call took on")
    done: int
    refused: list[RefusedLetter] = Field(description="the first 20 of those that stay as they are")
    next_cursor: str | None = Field(description="the same call with this `cursor` takes on the next ones")


# --- The fleet, and its health.

_WORKER = {
    "id": _ID,
    "host": "machine",
    "pid": 4711,
    "version": "0.1.0",
    "state": "alive",
    "queues": ["echo", "python"],
    "handlers": ["echo", "python"],
    "concurrency": 64,
    "running": 3,
    "started_at": _AT,
    "heartbeat_age_seconds": 1.5,
}
_QUEUE = {"name": "echo", "depth": 12, "oldest_age_seconds": 0.4, "in_flight": 3, "workers": 1}


class Worker(BaseModel):
    """A process that runs tasks."""

    id: str
    host: str
    pid: int
    version: str
    state: Literal["alive", "draining", "lost"]
    queues: list[str] | None = Field(description="null: every queue")
    handlers: list[str]
    concurrency: int
    running: int
    started_at: Time
    heartbeat_age_seconds: float


class Workers(BaseModel):
    """The workers, by id."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_WORKER], "next_cursor": None}))

    items: list[Worker]
    next_cursor: str | None


class Queue(BaseModel):
    """A lane that tasks travel on."""

    name: str
    depth: int
    oldest_age_seconds: float | None
    in_flight: int
    workers: int


class Queues(BaseModel):
    """The queues, by name."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_QUEUE], "next_cursor": None}))

    items: list[Queue]
    next_cursor: str | None


class Check(BaseModel):
    ok: bool
    message: str


class Readiness(BaseModel):
    """Whether this server can do its work now, and if not, why."""

    model_config = ConfigDict(
        json_schema_extra=_example({"ready": True, "checks": {"journal": {"ok": True, "message": "ready"}}})
    )

    ready: bool
    checks: dict[str, Check]
