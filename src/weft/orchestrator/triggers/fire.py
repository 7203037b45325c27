"""The start of an execution by a trigger: input and version resolved, one commit with the trigger's progress.

Whatever starts a trigger goes through here: a due time, an event, a webhook, a person. What is decided on a
trigger is refused by the commit where the trigger has changed since, so nothing here locks anything.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from weft.errors import (
    EvaluationError,
    InputError,
    NotAllowedError,
    NotFoundError,
    PayloadError,
    StillRunningError,
    StoreError,
)
from weft.expressions.budget import Allowance, LongEvaluationError
from weft.journal.contract import Firing, rejecting_group
from weft.orchestrator.context import STEPS_ON_LOOP
from weft.orchestrator.control import cancel
from weft.orchestrator.submit import (
    ResolvedDefinition,
    SubmitOptions,
    find_source,
    make_submission,
    prepare,
    read_input,
    take_up,
)
from weft.orchestrator.triggers.lanes import release_groups, release_lane
from weft.triggers.filling import Occasion, compiles_quickly, fill_input, is_met, scope_of
from weft.triggers.model import TriggerError
from weft.triggers.overlap import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json
    from weft.journal.contract import Claim, FireAnswer, Submission
    from weft.ports import Ports
    from weft.triggers.cloudevent import InboundEvent
    from weft.triggers.model import TriggerRow

log = logging.getLogger("weft.orchestrator")

# Other starts may bring new executions that are to be cancelled: so often a start comes again.
_CANCELS = 100
_MAX_MESSAGE = 1_000


class LargeInputError(Exception):
    """An input is larger than its caller makes beside others."""


class Progress(NamedTuple):
    """The progress of a schedule with a start: the due time that it showed, and what it shows behind."""

    due_at: int
    next_at: int | None
    fire_at: int | None


def actor_of(row: TriggerRow) -> str:
    """Return the name by which the history calls a trigger that starts or cancels an execution."""
    return f"trigger/{row.name}"


async def make_firing(
    row: TriggerRow,
    occasion: Occasion,
    ports: Ports,
    *,
    progress: Progress | None = None,
    actor: str | None = None,
    small_bytes: int | None = None,
) -> Firing | None:
    """Return the start of a trigger, or the error that is to be kept; None: its condition is not met.

    ``small_bytes``: raise LargeInputError where the input is larger, or cannot be made.
    """
    submission, error = None, None
    try:
        value = await _input(row, occasion, ports, small_bytes)
        if value is None:
            return None
        submission = await _submission(row, value[0], ports, actor=actor or actor_of(row))
    except NotFoundError as missing:
        error = ("not_found", str(missing))
    except EvaluationError as failure:
        if small_bytes is not None:
            raise LargeInputError from None
        error = ("template_error", str(failure))
    except InputError as unfit:
        error = ("invalid_input", "; ".join(str(problem) for problem in unfit.problems[:5]))
    except PayloadError as refusal:
        error = ("invalid_input", str(refusal))
    if error is not None:
        fields = {"trigger": row.name, "code": error[0], "error": error[1]}
        log.warning("trigger.failed", extra=fields)
    return Firing(
        namespace=row.namespace,
        trigger=row.name,
        revision=row.revision,
        overlap=row.trigger.overlap,
        due_at=None if progress is None else progress.due_at,
        next_at=None if progress is None else progress.next_at,
        fire_at=None if progress is None else progress.fire_at,
        submission=submission,
        error=None if error is None else TriggerError(ports.clock.now(), error[0], error[1][:_MAX_MESSAGE]),
    )


async def _input(
    row: TriggerRow, occasion: Occasion, ports: Ports, max_bytes: int | None
) -> tuple[Json] | None:
    """Return the input for an occasion; None where the condition is not met."""
    trigger = row.trigger

    def evaluate(allowance: Allowance | None) -> tuple[Json] | None:
        scope = scope_of(trigger, occasion, allowance)
        # What is written by hand, or for a start by hand, has no event: then there is no condition to meet.
        if occasion.event is not None and not is_met(trigger, scope):
            return None
        return (fill_input(trigger, scope, ports.bounds, max_bytes=max_bytes),)

    if compiles_quickly(trigger):
        with suppress(LongEvaluationError):
            return evaluate(Allowance(STEPS_ON_LOOP))
    return await asyncio.to_thread(evaluate, None)


async def _submission(row: TriggerRow, value: Json, ports: Ports, *, actor: str) -> Submission:
    trigger = row.trigger
    source = await find_source(trigger.workflow, trigger.version, ports, namespace=row.namespace)
    return await submission_of(row, source, value, ports, actor=actor)


async def submission_of(
    row: TriggerRow, source: ResolvedDefinition, value: Json, ports: Ports, *, actor: str
) -> Submission:
    """Return the submission of an execution that a trigger starts with this input; raises InputError."""
    options = SubmitOptions(
        namespace=row.namespace, labels=row.trigger.labels, priority=row.trigger.priority, actor=actor
    )
    payload = await read_input(value, source.plan, ports.bounds, run_in_thread=asyncio.to_thread)
    new = make_submission(ports.new_id(), source, payload, options)
    return replace(new, trigger=row.name, lane=row.lane)


async def fire(
    firings: Sequence[Firing],
    ports: Ports,
    *,
    event: InboundEvent | None = None,
    claim: Claim | None = None,
) -> FireAnswer:
    """Commit starts of triggers, and take up the executions that were started.

    Raises TriggerChangedError where they are to be decided anew, and ClaimedError.
    """
    firings, incarnation_id = await _prepared(firings, ports)
    for _ in range(_CANCELS):
        try:
            answer = await ports.journal.fire(firings, event=event, claim=claim)
            break
        except StillRunningError as error:
            await _cancel(error.executions, firings, ports)
        except NotAllowedError as refusal:
            # Somebody who starts a trigger by hand is told; a due time and an event go on without it.
            if event is None and all(firing.due_at is None for firing in firings):
                raise
            firings = [_without_start(firing, refusal, ports) for firing in firings]
    else:
        raise NotAllowedError("other starts of the trigger are always quicker", state="RUNNING")
    submissions = {one.submission.id: one.submission for one in firings if one.submission is not None}
    rows = [one.execution for one in answer.fired if one.execution is not None]
    await take_up(rows, [submissions[row.id] for row in rows], incarnation_id, ports)
    for firing, one in zip(firings, answer.fired, strict=False):
        if one.step is Step.QUEUE and one.execution is not None and one.execution.lane is not None:
            # The one that ran may have ended beside this commit, and found nothing in the queue.
            await release_lane(one.execution.lane, ports, namespace=firing.namespace)
    await release_groups([row for row in rows if row.group_name is not None], ports)
    return answer


def _without_start(firing: Firing, refusal: NotAllowedError, ports: Ports) -> Firing:
    """Return a firing that starts nothing where the group of its execution takes no more."""
    if firing.submission is None or rejecting_group(firing.submission) is None:
        return firing
    error = TriggerError(ports.clock.now(), refusal.code, str(refusal)[:_MAX_MESSAGE])
    return replace(firing, submission=None, error=error)


async def _prepared(firings: Sequence[Firing], ports: Ports) -> tuple[Sequence[Firing], str | None]:
    starting = [firing for firing in firings if firing.submission is not None]
    new = [firing.submission for firing in starting if firing.submission is not None]
    if not new:
        return firings, None
    submissions, incarnation_id = await prepare(new, ports)
    by_trigger = {firing.trigger: one for firing, one in zip(starting, submissions, strict=True)}
    return [replace(firing, submission=by_trigger.get(firing.trigger)) for firing in firings], incarnation_id


async def _cancel(execution_ids: Sequence[str], firings: Sequence[Firing], ports: Ports) -> None:
    """Cancel the executions that a start takes the place of; what has ended meanwhile stays as it is."""
    actor = f"trigger/{firings[0].trigger}"
    for execution_id in execution_ids:
        # Where the store is away, the cancel is recorded: it will be told.
        with suppress(NotAllowedError, NotFoundError, StoreError):
            await cancel(execution_id, ports, actor=actor)
