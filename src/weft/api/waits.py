"""Lists the nodes that wait for an answer, and receives answers and signals."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import APIRouter, Query, Request, Response

from weft.api import schema
from weft.api.answer import answer, filled_page, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model
from weft.api.executions import SHOW, require_execution
from weft.api.idempotency import KEY_PARAMETER, once, read_key
from weft.api.service import service_of
from weft.journal.contract import LOCAL_ACTOR, WaitQuery
from weft.orchestrator.waits import answers
from weft.views.describe import describe_node
from weft.views.summary import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.rows import ExecutionRow
    from weft.journal.contract import Claim, OpenWait
    from weft.ports import ApiPorts

router = APIRouter(tags=["waits"])

# So many events are read in one step.
_READ_AT_ONCE = 500
_ANSWERED = "answered; or answered before, by the same request with the same key"
_RECEIVED = "received; or received before, by the same request with the same key"


class WaitsQuery(schema.PageQuery):
    workflow: str | None = None
    execution: str | None = None
    signal: str | None = None


@router.get(
    "/v1/waits",
    operation_id="listWaits",
    responses={**schema.answers(200, schema.Waits), **schema.problems(422)},
)
async def list_waits(request: Request, query: Annotated[WaitsQuery, Query()]) -> Response:
    """List the nodes that wait for an answer, those that have waited longest first."""
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    sought = WaitQuery(workflow=query.workflow, execution_id=query.execution, signal=query.signal)

    async def read(after: tuple[int, str, str] | tuple[()], limit: int) -> Sequence[OpenWait]:
        return await ports.catalog.open_waits(sought, namespace=namespace, after=after or None, limit=limit)

    cursor = cast("tuple[int, str, str] | None", read_cursor(query.cursor, int, str, str))
    return await filled_page(
        read,
        partial(_described, ports=ports),
        lambda wait: (wait.since, wait.execution_id, wait.node_id),
        turn=service_of(request).load.history_turn,
        after=cursor or (),
        limit=query.limit,
    )


async def _described(wait: OpenWait, ports: ApiPorts) -> dict[str, Any]:
    plan = await ports.catalog.plan(wait.digest)
    rule = None if plan is None else plan.waits.get(wait.node_id)
    return {
        "execution": wait.execution_id,
        "workflow": wait.workflow,
        "node": wait.node_id,
        "signal": wait.signal,
        "prompt": wait.prompt,
        "schema": None if rule is None or rule.schema is None else rule.schema.document,
        "since": time_of(wait.since),
        "expires_at": time_of(wait.expires_at),
    }


@router.post(
    "/v1/executions/{execution_id}/nodes/{node_id}/answer",
    operation_id="answerWait",
    status_code=202,
    responses={
        **schema.answers(202, schema.NodeDetail, _ANSWERED),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={**schema.takes(schema.AnswerWait), "parameters": [KEY_PARAMETER]},
)
async def answer_wait(execution_id: str, node_id: str, request: Request) -> Response:
    """Answer a node that waits for a signal: the first answer counts."""
    body = await read_model(request, schema.AnswerWait)
    await require_execution(request, execution_id)
    ports = service_of(request).ports

    async def start(claim: Claim | None) -> ExecutionRow:
        actor, by = _names(request)
        return await answers.answer(execution_id, node_id, body.value, ports, actor=actor, by=by, claim=claim)

    await once(read_key(request, body), f"execution/{execution_id}", ports, start)
    namespace = caller_of(request).namespace
    shown = await describe_node(execution_id, node_id, ports, namespace=namespace, show=SHOW)
    return answer(shown, status=202)


@router.post(
    "/v1/executions/{execution_id}/signals/{name}",
    operation_id="sendSignal",
    status_code=202,
    responses={
        **schema.answers(202, schema.SignalAnswer, _RECEIVED),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={**schema.takes(schema.AnswerWait), "parameters": [KEY_PARAMETER]},
)
async def send_signal(execution_id: str, name: str, request: Request) -> Response:
    """Send a signal: it answers the node that has waited for it longest, or is kept for one that will."""
    body = await read_model(request, schema.AnswerWait)
    await require_execution(request, execution_id)
    ports = service_of(request).ports
    actor, by = _names(request)
    answered: str | None = None

    async def start(claim: Claim | None) -> None:
        nonlocal answered
        answered = await answers.signal(
            execution_id, name, body.value, ports, actor=actor, by=by, claim=claim
        )

    known = await once(read_key(request, body), f"execution/{execution_id}", ports, start)
    if isinstance(known, str):
        answered = await _answered_before(execution_id, name, actor, ports)
    return answer({"answered": answered}, status=202)


async def _answered_before(execution_id: str, name: str, actor: str, ports: ApiPorts) -> str | None:
    """Return the node that the last signal of this name by the same caller answered; None: it was kept."""
    after, node = 0, None
    while events := await ports.catalog.events(execution_id, after=after, limit=_READ_AT_ONCE):
        for event in events:
            if (event.type, event.signal, event.actor) == ("signal.received", name, actor):
                node = event.node
        after = events[-1].seq
    return node


def _names(request: Request) -> tuple[str, str | None]:
    """Return who sends a request: as the history has it, and as the output of a wait has it."""
    actor = caller_of(request).actor
    return actor, None if actor == LOCAL_ACTOR else actor
