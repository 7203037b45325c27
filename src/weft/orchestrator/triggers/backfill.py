"""A batch over the due times of a span: what a schedule would have started, had it been there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.errors import EvaluationError, InputError, Problem, RequestError
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, read_inputs
from weft.triggers.due import due_between
from weft.triggers.filling import Occasion, fill_input, scope_of

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.journal.contract import Submission
    from weft.ports import Ports
    from weft.triggers.model import TriggerRow


def due_in_span(row: TriggerRow, *, start: int, end: int, most: int) -> list[int]:
    """Return the due times of a span; raises RequestError where the trigger has none, or too many."""
    schedule = row.trigger.schedule
    if schedule is None:
        raise RequestError([Problem("", f"trigger {row.name} has no schedule: it has no due times")])
    if end <= start:
        raise RequestError([Problem("/to", "must be later than from")])
    found = due_between(schedule, anchor=row.changed_at, start=start, end=end, most=most + 1)
    if len(found) > most:
        message = f"the span has more than {most:,} due times, the limit of a batch (WEFT_MAX_BATCH)"
        raise RequestError([Problem("/to", message)])
    return found


async def make_backfill(
    row: TriggerRow,
    due: list[int],
    source: ResolvedDefinition,
    ports: Ports,
    *,
    batch_id: str,
    actor: str,
) -> list[Submission]:
    """Make a submission for each due time: all, or InputError or RequestError."""
    values = await asyncio.to_thread(_inputs, row, due, ports)
    try:
        payloads = await read_inputs(values, source.plan, ports.bounds)
    except InputError as error:
        raise RequestError([Problem("", f"the input at {problem}") for problem in error.problems]) from None
    options = SubmitOptions(
        namespace=row.namespace, labels=row.trigger.labels, priority=row.trigger.priority, actor=actor
    )
    return [
        replace(make_submission(ports.new_id(), source, payload, options, batch=batch_id), trigger=row.name)
        for payload in payloads
    ]


def _inputs(row: TriggerRow, due: list[int], ports: Ports) -> list[Json]:
    try:
        return [
            fill_input(row.trigger, scope_of(row.trigger, Occasion(due_at=at)), ports.bounds) for at in due
        ]
    except EvaluationError as error:
        raise RequestError([Problem("", f"the input of the trigger: {error}")]) from None
