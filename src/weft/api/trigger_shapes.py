"""The shapes of triggers and inbound events on the wire, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from weft.api.schema import Body, ExecutionSummary, Labels, PriorityName, VersionName

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
OverlapName = Literal["allow", "skip", "queue", "cancel_running"]
CatchUpName = Literal["none", "latest", "all"]
SchemeName = Literal["token", "github", "stripe"]
_ID = "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d"
_AT = "2026-01-31T09:30:00.000000Z"
_NEXT = "2026-02-01T02:00:00.000000Z"
_WRITTEN: dict[str, Any] = {
    "workflow": "order-report",
    "input": {"day": "{{ trigger.due_at }}"},
    "overlap": "skip",
    "schedule": {"cron": "0 3 * * *", "timezone": "Europe/Berlin"},
}
_SHOWN: dict[str, Any] = {
    "name": "nightly",
    "workflow": "order-report",
    "version": "latest",
    "enabled": True,
    "input": {"day": "{{ trigger.due_at }}"},
    "labels": {},
    "priority": "normal",
    "overlap": "skip",
    "schedule": {
        "cron": "0 3 * * *",
        "timezone": "Europe/Berlin",
        "catch_up": "latest",
        "jitter_seconds": 0,
    },
    "created_at": _AT,
    "changed_at": _AT,
    "next_at": _NEXT,
    "skipped": 0,
    "skipped_at": None,
    "error": None,
}
_EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "type": "order.paid",
    "source": "/shop",
    "id": "order-7-paid",
    "data": {"order": 7, "total": 20},
}
_STORED_EVENT = {
    "id": "order-7-paid",
    "source": "/shop",
    "type": "order.paid",
    "received_at": _AT,
    "event": _EVENT,
    "started": [_ID],
}


def _example(value: Any) -> Any:
    return {"examples": [value]}


class ScheduleShape(Body):
    """Due times: one of `cron` and `every_seconds`."""

    cron: str | None = Field(None, description="five fields, or six that begin with the seconds")
    every_seconds: float | None = Field(None, ge=1)
    timezone: str = Field("UTC", description="an IANA name, of `cron`")
    catch_up: CatchUpName = Field("latest", description="which due times start that an outage has left")
    jitter_seconds: float = Field(0, ge=0, le=86_400)


class EventFilterShape(Body):
    """Inbound events of a type, if a condition holds."""

    type: str
    when: str | None = None


class WebhookShape(Body):
    """Signed requests; `secret` is the name of the secret WEFT_SECRET_NAME."""

    secret: str
    scheme: SchemeName = "token"


class NewTrigger(Body):
    """A trigger: exactly one of `schedule`, `event` and `webhook`."""

    model_config = ConfigDict(json_schema_extra=_example(_WRITTEN))

    name: str | None = Field(None, description="that of the path")
    workflow: str
    version: VersionName = "latest"
    enabled: bool = True
    input: Any = Field({}, description="any JSON with templates, of an object")
    labels: Labels = Field({})
    priority: PriorityName = "normal"
    overlap: OverlapName = "allow"
    schedule: ScheduleShape | None = None
    event: EventFilterShape | None = None
    webhook: WebhookShape | None = None


class TriggerFailure(BaseModel):
    """Why a trigger last started nothing."""

    at: Time
    code: str
    message: str


class TriggerSummary(BaseModel):
    """A trigger, as lists show it. It has one of `schedule`, `event` and `webhook`."""

    model_config = ConfigDict(json_schema_extra=_example(_SHOWN))

    name: str
    workflow: str
    version: int | str
    enabled: bool
    input: Any
    labels: dict[str, str]
    priority: PriorityName
    overlap: OverlapName
    schedule: dict[str, Any] | None = None
    event: dict[str, Any] | None = None
    webhook: dict[str, Any] | None = None
    created_at: Time
    changed_at: Time = Field(description="of the last change; `every_seconds` counts from here")
    next_at: Time | None = Field(description="the next due time")
    skipped: int = Field(description="starts that `overlap` left out")
    skipped_at: Time | None
    error: TriggerFailure | None


class TriggerDetail(TriggerSummary):
    """A trigger with its next due times and its last executions."""

    model_config = ConfigDict(json_schema_extra=_example({**_SHOWN, "upcoming": [_NEXT], "executions": []}))

    upcoming: list[Time] = Field(description="its next five due times, the first of them `next_at`")
    executions: list[ExecutionSummary] = Field(description="the last ten, newest first")


class Triggers(BaseModel):
    """Triggers, by name."""

    model_config = ConfigDict(json_schema_extra=_example({"items": [_SHOWN], "next_cursor": None}))

    items: list[TriggerSummary]
    next_cursor: str | None


class FireTrigger(Body):
    """Values that the templates see beside `trigger`: the event, or the request, that did not come."""

    model_config = ConfigDict(json_schema_extra=_example({"event": _EVENT}))

    event: dict[str, Any] | None = None
    request: dict[str, Any] | None = None


class BackfillTrigger(Body):
    """A span of due times."""

    model_config = ConfigDict(
        json_schema_extra=_example(
            {"from": "2026-01-01T00:00:00Z", "to": "2026-02-01T00:00:00Z", "max_running": 2}
        )
    )

    from_: str = Field(alias="from", description="due times at or after this (RFC 3339)")
    to: str = Field(description="and before this")
    max_running: int | None = Field(None, ge=1, le=100_000, description="so many run at once")
    dry_run: bool = False


class BackfillPlan(BaseModel):
    """Due times that a backfill would start."""

    model_config = ConfigDict(json_schema_extra=_example({"total": 1, "due": [_AT]}))

    total: int
    due: list[Time]


class CloudEvent(Body):
    """An event in the JSON format of CloudEvents 1.0; more attributes may follow."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_example(_EVENT))

    specversion: Literal["1.0"] = "1.0"
    type: str
    source: str
    id: str
    data: Any = None


class AnsweredWait(BaseModel):
    """A node that waited for the event."""

    execution: str
    node: str


class EventEffect(BaseModel):
    """The effects of an event."""

    model_config = ConfigDict(json_schema_extra=_example({"started": [_ID], "answered": []}))

    started: list[str] = Field(description="ids of executions")
    answered: list[AnsweredWait]


class InboundEventShape(BaseModel):
    """An inbound event, and what it did."""

    model_config = ConfigDict(json_schema_extra=_example({**_STORED_EVENT, "answered": []}))

    id: str
    source: str
    type: str
    received_at: Time
    event: dict[str, Any]
    started: list[str]
    answered: list[AnsweredWait]


class InboundEvents(BaseModel):
    """Inbound events, newest first."""

    model_config = ConfigDict(
        json_schema_extra=_example({"items": [{**_STORED_EVENT, "answered": []}], "next_cursor": None})
    )

    items: list[InboundEventShape]
    next_cursor: str | None
