"""Receives events and webhooks from outside: one commit stores an event and everything that it starts."""

from __future__ import annotations

import base64
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response

from weft.api import schema, trigger_shapes
from weft.api.admission import admitted
from weft.api.answer import answer, filled_page, read_cursor
from weft.api.auth import caller_of, is_signed_by, unauthenticated
from weft.api.body import Media, parse, read_bytes, read_value
from weft.api.problem import ProblemError, invalid_request
from weft.api.service import service_of
from weft.api.triggers import secret_of
from weft.core.time import MICROSECONDS
from weft.definition.document import read_json
from weft.definition.model import NAME_PATTERN
from weft.errors import DocumentError, NotFoundError
from weft.journal.contract import DEFAULT_NAMESPACE
from weft.journal.firing import answered_waits
from weft.orchestrator.triggers.events import fire_webhook, receive
from weft.triggers.cloudevent import read_event
from weft.triggers.signature import HIDDEN_HEADERS, is_signed, may_be_signed
from weft.views.triggers import answered_fields, effect_fields, event_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.api.service import Service
    from weft.journal.contract import FireAnswer, StoredEvent
    from weft.triggers.model import TriggerRow

router = APIRouter(tags=["triggers"])

_MEDIA = Media({"application/json": read_json, "application/cloudevents+json": read_json})
# What comes from outside is kept, and shown in lists.
_MAX_EVENT_BYTES = 1024 * 1024
# Of several callers that change one trigger at the same time one succeeds; the others try so often.
_TRIES = 20
_AT_ONCE_BYTES = 64 * 1024


class InboundQuery(schema.PageQuery):
    type: str | None = None


@router.post(
    "/v1/events",
    operation_id="postEvent",
    status_code=202,
    responses={
        **schema.answers(202, trigger_shapes.EventEffect, "kept, with all that it did"),
        **schema.answers(200, trigger_shapes.EventEffect, "it came before: what it did then"),
        **schema.problems(400, 413, 415, 422),
    },
    openapi_extra=schema.takes(trigger_shapes.CloudEvent, only_json=True),
)
async def post_event(request: Request) -> Response:
    """Take in an event in the JSON format of CloudEvents 1.0. Its `source` and `id` name it."""
    service, caller = service_of(request), caller_of(request)
    value = await read_value(request, media=_MEDIA, max_bytes=_MAX_EVENT_BYTES)
    event = read_event(value, namespace=caller.namespace)
    if isinstance(event, list):
        raise invalid_request(event)
    # Asked first: what came before is not to be decided again.
    known = await service.ports.journal.stored_event(event.source, event.id, namespace=event.namespace)
    if known is None:
        done = await receive(event, service.ports, admit=partial(admitted, service, caller=caller.name))
        known = done.known
        if known is None:
            return answer(_effect(done), status=202)
    return answer(effect_fields(known))


def _effect(done: FireAnswer) -> dict[str, Any]:
    return {
        "started": [one.execution.id for one in done.fired if one.execution is not None],
        "answered": answered_fields(answered_waits(done.answered)),
    }


@router.get(
    "/v1/events/inbound",
    operation_id="listInboundEvents",
    responses={**schema.answers(200, trigger_shapes.InboundEvents), **schema.problems(422)},
)
async def list_inbound(request: Request, query: Annotated[InboundQuery, Query()]) -> Response:
    """List the events that came, newest first, each with what it did."""
    catalog, namespace = service_of(request).ports.catalog, caller_of(request).namespace

    async def read(before: tuple[int, ...], limit: int) -> Sequence[StoredEvent]:
        (number,) = before or (None,)
        return await catalog.inbound_events(
            namespace=namespace, event_type=query.type, before=number, limit=limit
        )

    async def shown(event: StoredEvent) -> dict[str, Any]:
        return event_fields(event)

    cursor = cast("tuple[int, ...] | None", read_cursor(query.cursor, int))
    return await filled_page(
        read,
        shown,
        lambda event: (event.number,),
        turn=service_of(request).load.history_turn,
        after=cursor or (),
        limit=query.limit,
    )


@router.post(
    "/v1/hooks/{name}",
    operation_id="callHook",
    status_code=202,
    responses={
        **schema.answers(202, trigger_shapes.EventEffect, "what the call started is stored"),
        **schema.problems(401, 404, 413),
    },
)
@is_signed_by
async def call_hook(name: str, request: Request) -> Response:
    """Start the trigger of a webhook. The body may be anything; its signature stands for a key."""
    service = service_of(request)
    row = await _hook(service, name)
    headers = {key.lower(): value for key, value in request.headers.items()}
    # Nobody sends megabytes whose head says already that they are not signed.
    await _require_signature(service, row, None, headers)
    body = await read_bytes(request)
    seen: dict[str, Any] = {}
    admit = partial(admitted, service, caller=f"hook/{name}")
    for _ in range(_TRIES):
        await _require_signature(service, row, body, headers)
        seen = seen or {
            **await _content(request, body),
            "headers": {key: value for key, value in headers.items() if key not in HIDDEN_HEADERS},
            "query": _query(request),
        }
        done = await fire_webhook(row, seen, service.ports, admit=admit)
        if done is not None:
            return answer(_effect(done), status=202)
        row = await _hook(service, name)
    raise ProblemError(
        503, "unavailable", f"trigger {name} is being changed by others", headers={"Retry-After": "1"}
    )


async def _hook(service: Service, name: str) -> TriggerRow:
    row = None
    if NAME_PATTERN.fullmatch(name):
        row = await service.ports.catalog.trigger(name, namespace=DEFAULT_NAMESPACE)
    if row is None or row.trigger.webhook is None or not row.trigger.enabled:
        raise NotFoundError(f"there is no webhook {name[:200]!r}")
    return row


async def _require_signature(
    service: Service, row: TriggerRow, body: bytes | None, headers: dict[str, str]
) -> None:
    """Raise unless the request proves that its sender knows the secret of the trigger.

    ``body`` None: raise if it does not, whatever its body is.
    """
    webhook = row.trigger.webhook
    assert webhook is not None
    scheme, secret = webhook.scheme, secret_of(webhook.secret)
    now_seconds = service.ports.clock.now() // MICROSECONDS
    if secret is None:
        is_good = False
    elif body is None:
        is_good = may_be_signed(scheme, secret, headers, now_seconds=now_seconds)
    else:
        check = partial(is_signed, scheme, secret, body, headers, now_seconds=now_seconds)
        is_good = check() if len(body) <= _AT_ONCE_BYTES else await service.run_in_thread(check)
    if not is_good:
        service.rate_limited_log.warning("hook.refused", trigger=row.name, scheme=str(scheme))
        raise unauthenticated(f"the request is not signed as its scheme ({scheme}) asks for")


async def _content(request: Request, body: bytes) -> dict[str, Any]:
    """Return the body as templates see it: JSON, else text, else base64."""
    try:
        return {"body": await parse(request, body, read_json)}
    except DocumentError:
        if len(body) <= _AT_ONCE_BYTES:
            return _text(body)
        return await service_of(request).run_in_thread(_text, body)


def _text(body: bytes) -> dict[str, Any]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "body_encoding": "base64"}


def _query(request: Request) -> dict[str, Any]:
    """Return the query parameters: a string each, or a list of those that came more than once."""
    query: dict[str, Any] = {}
    for key in request.query_params:
        values = request.query_params.getlist(key)
        query[key] = values[0] if len(values) == 1 else values
    return query
