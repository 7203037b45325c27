"""A trigger: the rule by which executions of a workflow start, and how far it has come."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

LATEST = "latest"
SCHEDULE, EVENT, WEBHOOK = "schedule", "event", "webhook"


class Overlap(StrEnum):
    """The rule for a start while an execution of the same trigger is not terminal."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_RUNNING = "cancel_running"


class CatchUp(StrEnum):
    """Which of the due times start that nobody was there for."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


class Scheme(StrEnum):
    """The proof of a webhook that it comes from whoever knows the secret."""

    TOKEN = "token"  # noqa: S105 - the name of a scheme
    GITHUB = "github"
    STRIPE = "stripe"


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """Starts at due times: by a cron expression in a time zone, or every so many seconds."""

    cron: str | None = None
    every_seconds: int | float | None = None
    timezone: str = "UTC"
    catch_up: CatchUp = CatchUp.LATEST
    jitter_seconds: int | float = 0


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Starts at inbound events of a type, if a condition holds."""

    type: str
    when: str | None = None


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Starts at signed requests; ``secret`` is the name of the secret that they are signed with."""

    secret: str
    scheme: Scheme = Scheme.TOKEN


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger as it was written down. Exactly one of the last three is there."""

    name: str
    workflow: str
    version: int | str = LATEST
    enabled: bool = True
    # Any JSON with templates.
    input: Any = {}
    labels: dict[str, str] = {}
    priority: Literal["low", "normal", "high"] = "normal"
    overlap: Overlap = Overlap.ALLOW
    schedule: Schedule | None = None
    event: EventFilter | None = None
    webhook: Webhook | None = None

    @property
    def kind(self) -> str:
        return SCHEDULE if self.schedule is not None else EVENT if self.event is not None else WEBHOOK


class TriggerError(msgspec.Struct, frozen=True):
    """Why a trigger last started nothing."""

    at: int
    code: str
    message: str


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger and how far it has come, as the journal keeps it. Times are microseconds since 1970."""

    namespace: str
    trigger: Trigger
    # Raised by every change of the trigger: a start that was decided on an older revision is refused.
    revision: int
    created_at: int
    # Of the last change: ``every_seconds`` counts from here.
    changed_at: int
    # The next due time, and when it fires: with its jitter. None: no schedule, or disabled.
    next_at: int | None = None
    fire_at: int | None = None
    # The starts that ``overlap`` left out, and when that last happened.
    skipped: int = 0
    skipped_at: int | None = None
    error: TriggerError | None = None

    @property
    def name(self) -> str:
        return self.trigger.name

    @property
    def lane(self) -> str:
        """The lane in which the executions that it starts follow one another."""
        return f"trigger/{self.trigger.name}"
