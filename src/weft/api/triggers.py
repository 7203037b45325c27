"""Triggers: store them, look at them, let them start something now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response
from msgspec.structs import replace

from weft.api import schema, trigger_shapes
from weft.api.admission import admitted
from weft.api.answer import answer, filled_page, no_content, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model, read_value
from weft.api.executions import SHOW, moved
from weft.api.idempotency import KEY_PARAMETER, once, read_key
from weft.api.problem import ProblemError, invalid_request
from weft.api.service import service_of
from weft.core.time import parse_rfc3339, rfc3339
from weft.definition.model import NAME_PATTERN
from weft.errors import InputError, NotFoundError, Problem, TriggerChangedError
from weft.handlers.contract import BadConfig
from weft.handlers.secrets import PREFIX, lookup
from weft.journal.contract import LATEST, ExecutionQuery, NewBatch
from weft.orchestrator.submit import find_source, limited, read_input, submit
from weft.orchestrator.triggers.backfill import due_in_span, make_backfill
from weft.orchestrator.triggers.fire import fire, make_firing
from weft.triggers.definition import compile_input, read_trigger
from weft.triggers.due import changed_row, upcoming_times
from weft.triggers.filling import Occasion
from weft.triggers.overlap import Step
from weft.views.summary import NOTHING_IN_FLIGHT, batch_fields, in_flight_of, summarise_all, summary
from weft.views.triggers import trigger_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.rows import ExecutionRow
    from weft.journal.contract import Claim
    from weft.triggers.model import Trigger, TriggerRow

router = APIRouter(tags=["triggers"])

# A trigger is written by hand.
_MAX_BYTES = 64 * 1024
_SHOWN_EXECUTIONS = 10
_SHOWN_DUE_TIMES = 5
# Of several callers that change one trigger at the same time one succeeds; the others try so often.
_TRIES = 20


class TriggersQuery(schema.PageQuery):
    workflow: str | None = None


@router.put(
    "/v1/triggers/{name}",
    operation_id="putTrigger",
    responses={
        **schema.answers(201, trigger_shapes.TriggerSummary, "stored"),
        **schema.answers(200, trigger_shapes.TriggerSummary, "changed; or it is as it was"),
        **schema.problems(400, 413, 415, 422),
    },
    openapi_extra=schema.takes(trigger_shapes.NewTrigger),
)
async def put_trigger(name: str, request: Request) -> Response:
    """Store a trigger, or change it. What is stored already stays as it is, and its due times with it."""
    service = service_of(request)
    document = await read_value(request, max_bytes=_MAX_BYTES)
    if not NAME_PATTERN.fullmatch(name):
        raise invalid_request([Problem("/name", f"{name[:200]!r} is no name of a trigger")])
    checked = await service.run_in_thread(read_trigger, document, name=name, bounds=service.ports.bounds)
    if isinstance(checked, list):
        raise invalid_request(checked)
    await _check(request, checked)
    for _ in range(_TRIES):
        stored = await _find(request, name)
        if stored is not None and stored.trigger == checked:
            return answer(trigger_fields(stored))
        row = await _put(request, stored, checked, action="trigger.stored")
        if row is not None:
            return answer(trigger_fields(row), status=201 if stored is None else 200)
    raise _busy(name)


async def _check(request: Request, trigger: Trigger) -> None:
    """Raise the problem of a trigger that names what is not there."""
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    problems = []
    try:
        source = await find_source(trigger.workflow, trigger.version, ports, namespace=namespace)
    except NotFoundError as missing:
        is_version = trigger.version != LATEST and await ports.catalog.workflow(
            trigger.workflow, namespace=namespace
        )
        problems.append(Problem("/version" if is_version else "/workflow", str(missing)))
    else:
        template = await service_of(request).run_in_thread(compile_input, trigger.input, ports.bounds)
        if not isinstance(template, list) and template.is_static:
            try:
                await read_input(
                    trigger.input,
                    source.plan,
                    ports.bounds,
                    run_in_thread=service_of(request).run_in_thread,
                )
            except InputError as error:
                problems += moved(error.problems, "/input")
    if trigger.webhook is not None and secret_of(trigger.webhook.secret) is None:
        variable = PREFIX + trigger.webhook.secret.upper()
        message = f"this server has no secret {trigger.webhook.secret!r}: set {variable} or {variable}_FILE"
        problems.append(Problem("/webhook/secret", message))
    if problems:
        raise invalid_request(problems)


def secret_of(name: str) -> str | None:
    """Return a secret of this server by its name; None: there is none, or an empty one."""
    try:
        return lookup(name) or None
    except BadConfig:
        return None


async def _put(
    request: Request, stored: TriggerRow | None, trigger: Trigger, *, action: str
) -> TriggerRow | None:
    """Store a trigger in the place of the one that was read; None: that is another one by now."""
    ports, caller = service_of(request).ports, caller_of(request)
    row = changed_row(stored, trigger, namespace=caller.namespace, now=ports.clock.now())
    seen = None if stored is None else stored.revision
    if not await ports.catalog.put_trigger(row, seen_revision=seen, action=action, actor=caller.actor):
        return None
    ports.trigger_changed()
    return row


def _busy(name: str) -> ProblemError:
    return ProblemError(
        503, "unavailable", f"trigger {name} is being changed by others", headers={"Retry-After": "1"}
    )


@router.get(
    "/v1/triggers",
    operation_id="listTriggers",
    responses={**schema.answers(200, trigger_shapes.Triggers), **schema.problems(422)},
)
async def list_triggers(request: Request, query: Annotated[TriggersQuery, Query()]) -> Response:
    """List the triggers by name."""
    catalog, namespace = service_of(request).ports.catalog, caller_of(request).namespace

    async def read(after: tuple[str, ...], limit: int) -> Sequence[TriggerRow]:
        (name,) = after or ("",)
        return await catalog.triggers(namespace=namespace, workflow=query.workflow, after=name, limit=limit)

    async def shown(row: TriggerRow) -> dict[str, Any]:
        return trigger_fields(row)

    cursor = cast("tuple[str, ...] | None", read_cursor(query.cursor, str))
    return await filled_page(
        read,
        shown,
        lambda row: (row.name,),
        turn=service_of(request).load.history_turn,
        after=cursor or (),
        limit=query.limit,
    )


@router.get(
    "/v1/triggers/{name}",
    operation_id="getTrigger",
    responses={**schema.answers(200, trigger_shapes.TriggerDetail), **schema.problems(404)},
)
async def get_trigger(name: str, request: Request) -> Response:
    """Show a trigger with its next due times, its last error and its last executions."""
    ports = service_of(request).ports
    row = await require_trigger(request, name)
    rows = await ports.catalog.executions(
        ExecutionQuery(trigger=name), namespace=row.namespace, limit=_SHOWN_EXECUTIONS
    )
    upcoming = await service_of(request).run_in_thread(upcoming_times, row, most=_SHOWN_DUE_TIMES)
    return answer(
        {
            **trigger_fields(row),
            "upcoming": [rfc3339(at) for at in upcoming],
            "executions": await summarise_all(rows, ports),
        }
    )


@router.delete(
    "/v1/triggers/{name}",
    operation_id="deleteTrigger",
    status_code=204,
    responses={**schema.answers(204, None, "it starts nothing any more"), **schema.problems(404)},
)
async def delete_trigger(name: str, request: Request) -> Response:
    """Delete a trigger. Executions that it has started go on, and those that wait for their turn start."""
    await require_trigger(request, name)
    caller = caller_of(request)
    catalog = service_of(request).ports.catalog
    if not await catalog.delete_trigger(name, namespace=caller.namespace, actor=caller.actor):
        raise _no_trigger(name)
    return no_content()


@router.post(
    "/v1/triggers/{name}/enable",
    operation_id="enableTrigger",
    responses={**schema.answers(200, trigger_shapes.TriggerSummary), **schema.problems(404)},
)
async def enable_trigger(name: str, request: Request) -> Response:
    """Let a trigger start executions from now on; due times from before are not caught up."""
    return await _set_enabled(request, name, enabled=True)


@router.post(
    "/v1/triggers/{name}/disable",
    operation_id="disableTrigger",
    responses={**schema.answers(200, trigger_shapes.TriggerSummary), **schema.problems(404)},
)
async def disable_trigger(name: str, request: Request) -> Response:
    """Let a trigger start nothing until it is enabled."""
    return await _set_enabled(request, name, enabled=False)


async def _set_enabled(request: Request, name: str, *, enabled: bool) -> Response:
    for _ in range(_TRIES):
        stored = await require_trigger(request, name)
        if stored.trigger.enabled is enabled:
            return answer(trigger_fields(stored))
        action = "trigger.enabled" if enabled else "trigger.disabled"
        row = await _put(request, stored, replace(stored.trigger, enabled=enabled), action=action)
        if row is not None:
            return answer(trigger_fields(row))
    raise _busy(name)


@router.post(
    "/v1/triggers/{name}/fire",
    operation_id="fireTrigger",
    status_code=202,
    responses={
        **schema.answers(202, schema.Execution, "started, or queued behind the one that runs"),
        **schema.answers(200, schema.Execution, "started before, by the same request with the same key"),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={
        **schema.takes(trigger_shapes.FireTrigger, required=False),
        "parameters": [KEY_PARAMETER],
    },
)
async def fire_trigger(name: str, request: Request) -> Response:
    """Let a trigger start an execution now, enabled or not; its due times stay as they are."""
    body = await read_model(request, trigger_shapes.FireTrigger, empty=True)
    service, caller = service_of(request), caller_of(request)
    ports = service.ports
    occasion = Occasion(due_at=ports.clock.now(), event=body.event, request=body.request)
    await require_trigger(request, name)
    new_id = ports.new_id()
    is_live = True

    async def start(claim: Claim | None) -> ExecutionRow:
        nonlocal is_live
        for _ in range(_TRIES):
            row = await require_trigger(request, name)
            firing = await make_firing(row, occasion, ports, actor=caller.actor)
            if firing is None:
                raise invalid_request([Problem("/event", "the condition of the trigger is not met by it")])
            if firing.submission is None:
                assert firing.error is not None
                raise ProblemError(422, "invalid_input", firing.error.message)
            submission = replace(firing.submission, id=new_id)
            try:
                async with admitted(service, len(submission.plan.nodes), caller=caller.name) as is_live:
                    done = await fire([replace(firing, submission=submission)], ports, claim=claim)
            except TriggerChangedError:
                continue
            (one,) = done.fired
            if one.step is Step.SKIP or one.execution is None:
                message = (
                    f"an execution of trigger {name} is not terminal, and its overlap lets no other start"
                )
                raise ProblemError(409, "not_allowed", message, state="RUNNING")
            return one.execution
        raise _busy(name)

    started = await once(read_key(request, body), f"execution/{new_id}", ports, start)
    if isinstance(started, str):
        return await _answer_known(request, started.removeprefix("execution/"))
    in_flight = NOTHING_IN_FLIGHT if is_live else None
    shown = summary(started, in_flight, trace_id=ports.trace_id(started), show=SHOW)
    return answer(shown, status=202, headers={"Location": f"/v1/executions/{started.id}"})


async def _answer_known(request: Request, execution_id: str) -> Response:
    row = await service_of(request).ports.catalog.execution(
        execution_id, namespace=caller_of(request).namespace
    )
    if row is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    ports = service_of(request).ports
    (in_flight,) = await in_flight_of([row.id], ports)
    shown = summary(row, in_flight, trace_id=ports.trace_id(row), show=SHOW)
    return answer(shown, headers={"Location": f"/v1/executions/{execution_id}"})


@router.post(
    "/v1/triggers/{name}/backfill",
    operation_id="backfillTrigger",
    status_code=202,
    responses={
        **schema.answers(202, schema.Batch, "accepted and stored"),
        **schema.answers(200, trigger_shapes.BackfillPlan, "what it would start (`dry_run`)"),
        **schema.problems(400, 404, 413, 415, 422),
    },
    openapi_extra=schema.takes(trigger_shapes.BackfillTrigger),
)
async def backfill_trigger(name: str, request: Request) -> Response:
    """Start a batch over the due times of a span, enabled or not; the trigger stays where it is."""
    body = await read_model(request, trigger_shapes.BackfillTrigger)
    service, caller = service_of(request), caller_of(request)
    ports = service.ports
    row = await require_trigger(request, name)
    start, end = _time("/from", body.from_), _time("/to", body.to)
    due = await service.run_in_thread(due_in_span, row, start=start, end=end, most=ports.bounds.max_batch)
    if body.dry_run:
        return answer({"total": len(due), "due": [rfc3339(at) for at in due]})
    if not due:
        raise invalid_request([Problem("/to", "the span has no due times")])
    source = await find_source(row.trigger.workflow, row.trigger.version, ports, namespace=row.namespace)
    batch_id = ports.new_id()
    new = await make_backfill(row, due, source, ports, batch_id=batch_id, actor=caller.actor)
    assert source.version is not None
    batch = NewBatch(
        id=batch_id, workflow=row.trigger.workflow, version=source.version, namespace=row.namespace
    )
    async with admitted(service, len(new) * len(source.plan.nodes), caller=caller.name):
        await submit(limited(new, batch_id, body.max_running), ports, batch=batch)
    stored = await ports.catalog.batch(batch_id, namespace=row.namespace)
    if stored is None:
        raise NotFoundError(f"there is no batch {batch_id}")
    return answer(batch_fields(stored), status=202, headers={"Location": f"/v1/batches/{batch_id}"})


def _time(place: str, text: str) -> int:
    try:
        return parse_rfc3339(text)
    except ValueError as error:
        raise invalid_request([Problem(place, str(error))]) from None


async def require_trigger(request: Request, name: str) -> TriggerRow:
    """Return a trigger of the caller, or raise NotFoundError."""
    row = await _find(request, name)
    if row is None:
        raise _no_trigger(name)
    return row


async def _find(request: Request, name: str) -> TriggerRow | None:
    # What cannot be a name is not asked for: it may hold what a database does not take.
    if not NAME_PATTERN.fullmatch(name):
        return None
    return await service_of(request).ports.catalog.trigger(name, namespace=caller_of(request).namespace)


def _no_trigger(name: str) -> NotFoundError:
    return NotFoundError(f"there is no trigger {name[:200]!r}")
