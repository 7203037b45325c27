"""Triggers and inbound events as they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.time import rfc3339
from weft.views.summary import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.journal.contract import StoredEvent
    from weft.triggers.model import Schedule, TriggerRow


def trigger_fields(row: TriggerRow) -> dict[str, Any]:
    """Show a trigger without its executions."""
    trigger, error = row.trigger, row.error
    shown: dict[str, Any] = {
        "name": trigger.name,
        "workflow": trigger.workflow,
        "version": trigger.version,
        "enabled": trigger.enabled,
        "input": trigger.input,
        "labels": trigger.labels,
        "priority": trigger.priority,
        "overlap": trigger.overlap,
    }
    if trigger.schedule is not None:
        shown["schedule"] = _schedule(trigger.schedule)
    if trigger.event is not None:
        shown["event"] = {"type": trigger.event.type, "when": trigger.event.when}
    if trigger.webhook is not None:
        shown["webhook"] = {"secret": trigger.webhook.secret, "scheme": trigger.webhook.scheme}
    return shown | {
        "created_at": time_of(row.created_at),
        "changed_at": time_of(row.changed_at),
        "next_at": time_of(row.next_at),
        "skipped": row.skipped,
        "skipped_at": time_of(row.skipped_at),
        "error": None
        if error is None
        else {"at": rfc3339(error.at), "code": error.code, "message": error.message},
    }


def _schedule(schedule: Schedule) -> dict[str, Any]:
    if schedule.cron is None:
        due: dict[str, Any] = {"every_seconds": schedule.every_seconds}
    else:
        due = {"cron": schedule.cron, "timezone": schedule.timezone}
    return due | {"catch_up": schedule.catch_up, "jitter_seconds": schedule.jitter_seconds}


def answered_fields(answered: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Show the nodes that an event answered."""
    return [{"execution": execution_id, "node": node_id} for execution_id, node_id in answered]


def effect_fields(event: StoredEvent) -> dict[str, Any]:
    """Show what an event did."""
    return {"started": list(event.started), "answered": answered_fields(event.answered)}


def event_fields(event: StoredEvent) -> dict[str, Any]:
    """Show an event with what it did."""
    return {
        "id": event.id,
        "source": event.source,
        "type": event.type,
        "received_at": rfc3339(event.received_at),
        "event": msgspec.Raw(event.body),
        "started": list(event.started),
        "answered": answered_fields((*event.answered, *event.answered_later)),
    }
