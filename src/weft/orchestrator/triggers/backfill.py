"""A batch over the due times of a span: what a schedule would have started, had it been there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.payload import MAX_DOCUMENT_VALUES, count_values, encode
from weft.core.time import parse_rfc3339
from weft.errors import EvaluationError, InputError, PayloadError, Problem, RequestError
from weft.expressions.budget import Allowance, LongEvaluationError
from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions, make_submission, read_inputs
from weft.triggers.due import due_between
from weft.triggers.filling import Occasion, fill_input, scope_of

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.journal.contract import Submission
    from weft.ports import Ports
    from weft.triggers.model import TriggerRow

# That is some seconds of CPU: what one evaluation may take, ten times.
_MOST_STEPS = 10_000_000
# The calendar of Python ends soon behind, and so does the arithmetic with time zones.
_FIRST_AT, _LAST_AT = 0, parse_rfc3339("3000-01-01T00:00:00Z")


def due_in_span(row: TriggerRow, *, start: int, end: int, most: int) -> list[int]:
    """Return the due times of a span; raises RequestError where the trigger has none, or too many."""
    schedule = row.trigger.schedule
    if schedule is None:
        raise RequestError([Problem("", f"trigger {row.name} has no schedule: it has no due times")])
    for place, at in (("/from", start), ("/to", end)):
        if not _FIRST_AT <= at <= _LAST_AT:
            raise RequestError([Problem(place, "must be a time from 1970 to 2999")])
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
    """Fill in an input for each due time; together they are no larger than those of a batch by hand."""
    bounds, trigger = ports.bounds, row.trigger
    most = left = bounds.max_body_bytes
    values_left = MAX_DOCUMENT_VALUES
    steps = Allowance(_MOST_STEPS)
    values = []
    try:
        for at in due:
            scope = scope_of(trigger, Occasion(due_at=at), steps)
            value = fill_input(trigger, scope, bounds)
            payload = encode(value, max_bytes=bounds.max_payload_bytes, max_depth=bounds.max_depth)
            left -= len(payload)
            values_left -= count_values(payload, most=MAX_DOCUMENT_VALUES)
            if left < 0 or values_left < 0:
                message = (
                    f"the inputs are larger than {most:,} bytes (WEFT_MAX_BODY_BYTES), or have more than "
                    f"{MAX_DOCUMENT_VALUES:,} values, together; use a shorter span"
                )
                raise RequestError([Problem("/to", message)])
            values.append(value)
    except LongEvaluationError:
        message = f"the inputs take more than {_MOST_STEPS:,} steps together; use a shorter span"
        raise RequestError([Problem("/to", message)]) from None
    except (EvaluationError, PayloadError) as error:
        raise RequestError([Problem("", f"the input of the trigger: {error}")]) from None
    return values
