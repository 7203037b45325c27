"""Executions: start them, list them, look into them, control them."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from weft.api import schema
from weft.api.admission import admitted
from weft.api.answer import answer, cursor_behind, cursor_of, page, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model
from weft.api.definition import check_definition
from weft.api.idempotency import KEY_PARAMETER, once, read_key
from weft.api.load import OverloadedError, load_of, waiting
from weft.api.problem import ProblemError, invalid_request, log_away, store_away, traceparent_of
from weft.api.service import service_of
from weft.api.waiting import wait_for_end
from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.core.state import ExecutionState, NodeState
from weft.core.time import micros, parse_rfc3339
from weft.errors import DefinitionError, InputError, NotFoundError, Problem, StoreError
from weft.journal.contract import ChildQuery, ExecutionQuery
from weft.orchestrator import control
from weft.orchestrator.submit import (
    ForkRequest,
    ResolvedDefinition,
    SubmitOptions,
    find_source,
    make_fork,
    make_submission,
    read_input,
    submit,
)
from weft.views.describe import (
    describe_children,
    describe_execution,
    describe_node,
    describe_nodes,
    explain_node,
)
from weft.views.summary import (
    NOTHING_IN_FLIGHT,
    in_flight_of,
    summarise,
    summarise_all,
    summary,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.api.service import Service
    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow
    from weft.journal.contract import Claim

router = APIRouter(tags=["executions"])

# The input of a larger body is checked in a thread, so that the event loop goes on.
_AT_ONCE_BYTES = 64 * 1024

# Payloads go into an answer as the text that they are stored as.
SHOW = msgspec.Raw

_MAX_WAIT_SECONDS = 300
_SECONDS = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?")
_WAIT = {
    "name": "wait",
    "in": "query",
    "required": False,
    "schema": {"type": "number", "minimum": 0, "maximum": _MAX_WAIT_SECONDS},
    "description": "how many seconds to wait for the end of the execution",
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_LOCATION = {"Location": {"schema": {"type": "string"}, "description": "where the execution is found"}}
_STARTED = {
    **schema.answers(202, schema.Execution, "accepted and stored", headers=_LOCATION),
    **schema.answers(
        200,
        schema.ExecutionDetail,
        "terminal within `wait`; or started before, by the same request with the same key",
        headers=_LOCATION,
    ),
}


# --- Starting. Most requests do this, so its routes read their parameters themselves: to let FastAPI find out
# --- each time what they take would cost as much as all that is done here.


@router.post(
    "/v1/workflows/{name}/executions",
    operation_id="startExecution",
    status_code=202,
    responses={**_STARTED, **schema.problems(400, 404, 409, 413, 415, 422)},
    openapi_extra={
        **schema.takes(schema.StartExecution, required=False),
        "parameters": [_NAME, _WAIT, KEY_PARAMETER],
    },
)
async def start_execution(request: Request) -> Response:
    """Start an execution of a stored workflow."""
    wait = _read_wait(request)
    body = await read_model(request, schema.StartExecution, empty=True)
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    find = partial(find_source, request.path_params["name"], body.version, ports, namespace=namespace)
    return await _start(request, body, find, wait)


@router.post(
    "/v1/executions",
    operation_id="submitExecution",
    status_code=202,
    responses={**_STARTED, **schema.problems(400, 409, 413, 415, 422)},
    openapi_extra={**schema.takes(schema.SubmitExecution), "parameters": [_WAIT, KEY_PARAMETER]},
)
async def submit_execution(request: Request) -> Response:
    """Start an execution of a definition that is not stored by name."""
    wait = _read_wait(request)
    body = await read_model(request, schema.SubmitExecution)
    return await _start(request, body, partial(_make_source, service_of(request), body.definition), wait)


async def _make_source(service: Service, document: Json) -> ResolvedDefinition:
    checked = await check_definition(service, document, named=False)
    if checked.plan is None:
        raise DefinitionError(moved(checked.problems, "/definition"))
    bounds = service.ports.bounds
    text = await service.run_in_thread(
        encode,
        document,
        max_bytes=bounds.max_body_bytes,
        max_depth=bounds.max_depth,
        max_values=MAX_DOCUMENT_VALUES,
    )
    return ResolvedDefinition(plan=checked.plan, document=text, workflow=checked.plan.definition.name)


async def _start(
    request: Request,
    body: schema.StartExecution | schema.SubmitExecution,
    find: Callable[[], Awaitable[ResolvedDefinition]],
    wait: float | None,
) -> Response:
    service = service_of(request)
    ports = service.ports
    namespace = caller_of(request).namespace
    options = SubmitOptions(
        namespace=namespace,
        labels=body.labels,
        priority=body.priority,
        actor=caller_of(request).actor,
        traceparent=traceparent_of(request.scope),
    )
    execution_id = ports.new_id()
    is_live = True

    async def start(claim: Claim | None) -> ExecutionRow:
        nonlocal is_live
        source = await find()
        run_in_thread = service.run_in_thread if _is_large(request) else None
        try:
            payload = await read_input(body.input, source.plan, ports.bounds, run_in_thread=run_in_thread)
            submission = make_submission(execution_id, source, payload, options)
        except InputError as error:
            raise InputError(moved(error.problems, "/input")) from None
        async with admitted(service, len(source.plan.nodes), caller=caller_of(request).name) as is_live:
            (row,) = await submit([submission], ports, claim=claim)
        return row

    started = await once(read_key(request, body), f"execution/{execution_id}", ports, start)
    # The journal has the input: a request that waits for the end need not hold its values.
    body.input = {}
    load_of(request).release_values()
    if isinstance(started, str):
        return await _answer_start(request, started.removeprefix("execution/"), wait, status=200)
    if wait is not None:
        return await _answer_start(request, execution_id, wait, status=202)
    in_flight = NOTHING_IN_FLIGHT if is_live else None
    shown = summary(started, in_flight, trace_id=ports.trace_id(started), show=SHOW)
    return answer(shown, status=202, headers=_location(execution_id))


async def _answer_start(request: Request, execution_id: str, wait: float | None, *, status: int) -> Response:
    """Answer with the whole execution where it ends in time, else with ``status`` and without nodes."""
    headers = _location(execution_id)
    if wait is not None and await _wait(request, execution_id, wait):
        # Without room for its outputs it is answered like one that has not ended in time: it was accepted.
        with suppress(OverloadedError):
            return answer(await _shown(request, execution_id, "all"), headers=headers)
    return answer(await _shown(request, execution_id, "none"), status=status, headers=headers)


def _read_wait(request: Request) -> float | None:
    given = request.query_params.get("wait")
    if given is None:
        return None
    if not _SECONDS.fullmatch(given) or float(given) > _MAX_WAIT_SECONDS:
        message = f"must be a number of seconds from 0 to {_MAX_WAIT_SECONDS}"
        raise invalid_request([Problem("/wait", message)])
    return float(given)


async def _wait(request: Request, execution_id: str, seconds: float) -> bool:
    with waiting(request):
        return await wait_for_end(service_of(request), execution_id, seconds)


def _location(execution_id: str) -> dict[str, str]:
    return {"Location": f"/v1/executions/{execution_id}"}


def _is_large(request: Request) -> bool:
    declared = request.headers.get("content-length", "")
    return not declared.isdecimal() or int(declared) > _AT_ONCE_BYTES


def moved(problems: list[Problem], base: str) -> list[Problem]:
    """Return the problems of a part of the body with pointers into the whole body."""
    return [Problem(base + problem.pointer, problem.message) for problem in problems]


# --- Looking.


class ExecutionsQuery(schema.PageQuery):
    workflow: str | None = None
    version: int | None = Field(None, ge=1, le=2**31)
    state: list[schema.ExecutionStateName] = Field([], description="any of them")
    label: list[str] = Field([], description="`key:value`, all of them")
    batch: str | None = None
    trigger: str | None = Field(None, description="started by this trigger")
    group: str | None = Field(None, description="in this group (`concurrency` of its workflow)")
    parent: str | None = Field(
        None, description="children of this execution; without it, executions that are no children"
    )
    created_after: str | None = Field(None, description="at or after this time (RFC 3339)")
    created_before: str | None = Field(None, description="before this time (RFC 3339)")
    error: str | None = Field(
        None, min_length=1, description="this code was the error of it or of a node that failed in it"
    )
    node: str | None = Field(None, min_length=1, description="this node failed in it")
    worker: str | None = Field(
        None, min_length=1, description="an attempt of it failed on this worker, or was lost with it"
    )
    q: schema.SearchText = None
    min_seconds: schema.Seconds = Field(None, description="it took as long or longer, or runs as long")
    max_seconds: schema.Seconds = Field(None, description="it took no longer, or has not run longer")


@router.get(
    "/v1/executions",
    operation_id="listExecutions",
    responses={**schema.answers(200, schema.Executions), **schema.problems(422)},
)
async def list_executions(request: Request, query: Annotated[ExecutionsQuery, Query()]) -> Response:
    """List executions, newest first. A search may come to the end of a page before it has filled it."""
    ports = service_of(request).ports
    found = await ports.catalog.search(
        _asked_for(query),
        namespace=caller_of(request).namespace,
        before=cast("tuple[int, str] | None", read_cursor(query.cursor, int, str)),
        limit=query.limit + 1,
    )
    shown = found.rows[: query.limit]
    return page(await summarise_all(shown, ports), next_cursor=cursor_behind(found, query.limit))


def _asked_for(query: ExecutionsQuery) -> ExecutionQuery:
    problems: list[Problem] = []
    labels: list[tuple[str, str]] = []
    for label in query.label:
        key, colon, value = label.partition(":")
        labels.append((key, value))
        if not colon:
            problems.append(Problem("/label", f"must be key:value, not {label[:100]!r}"))
    times: dict[str, int | None] = {}
    for name in ("created_after", "created_before"):
        given = getattr(query, name)
        try:
            times[name] = None if given is None else parse_rfc3339(given)
        except ValueError as error:
            problems.append(Problem(f"/{name}", str(error)))
    if problems:
        raise invalid_request(problems)
    return ExecutionQuery(
        workflow=query.workflow,
        version=query.version,
        states=tuple(ExecutionState(state) for state in query.state),
        labels=tuple(labels),
        batch=query.batch,
        trigger=query.trigger,
        group=query.group,
        parent=query.parent,
        created_after=times["created_after"],
        created_before=times["created_before"],
        error=query.error,
        node=query.node,
        worker=query.worker,
        text=query.q,
        min_microseconds=None if query.min_seconds is None else micros(query.min_seconds),
        max_microseconds=None if query.max_seconds is None else micros(query.max_seconds),
    )


NodesShown = Annotated[
    Literal["all", "brief", "none"],
    Query(description="`brief`: nodes without outputs and errors; `none`: no nodes"),
]


@router.get(
    "/v1/executions/{execution_id}",
    operation_id="getExecution",
    responses={**schema.answers(200, schema.ExecutionDetail), **schema.problems(404, 422)},
    openapi_extra={"parameters": [_WAIT]},
)
async def get_execution(execution_id: str, request: Request, nodes: NodesShown = "all") -> Response:
    """Show an execution, once it is terminal or the time to wait is over."""
    wait = _read_wait(request)
    if wait is not None:
        await require_execution(request, execution_id)
        await _wait(request, execution_id, wait)
    return answer(await _shown(request, execution_id, nodes))


async def _shown(request: Request, execution_id: str, nodes: str) -> dict[str, Any]:
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    if nodes != "none":
        return await describe_execution(
            execution_id,
            ports,
            namespace=namespace,
            brief=nodes == "brief",
            show=SHOW,
            room=load_of(request).room,
        )
    shown = await summarise(execution_id, ports, namespace=namespace, show=SHOW)
    if shown is None:
        raise _no_execution(execution_id)
    return shown


async def require_execution(request: Request, execution_id: str) -> ExecutionRow:
    """Find an execution that the caller may see; raises NotFoundError."""
    namespace = caller_of(request).namespace
    row = await service_of(request).ports.catalog.execution(execution_id, namespace=namespace)
    if row is None:
        raise _no_execution(execution_id)
    return row


def _no_execution(execution_id: str) -> NotFoundError:
    return NotFoundError(f"there is no execution {execution_id}")


class NodesQuery(schema.PageQuery):
    state: list[schema.NodeStateName] = Field([], description="any of them")


@router.get(
    "/v1/executions/{execution_id}/nodes",
    operation_id="listNodes",
    responses={**schema.answers(200, schema.Nodes), **schema.problems(404, 422)},
)
async def list_nodes(execution_id: str, request: Request, query: Annotated[NodesQuery, Query()]) -> Response:
    """List the nodes of an execution, in the order of the definition."""
    (start,) = cast("tuple[int]", read_cursor(query.cursor, int) or (0,))
    nodes, next_start = await describe_nodes(
        execution_id,
        service_of(request).ports,
        namespace=caller_of(request).namespace,
        states=frozenset(NodeState(state) for state in query.state),
        start=max(start, 0),
        limit=query.limit,
        show=SHOW,
        room=load_of(request).room,
    )
    return page(nodes, next_cursor=None if next_start is None else cursor_of(next_start))


@router.get(
    "/v1/executions/{execution_id}/nodes/{node_id}",
    operation_id="getNode",
    responses={**schema.answers(200, schema.NodeDetail), **schema.problems(404)},
)
async def get_node(execution_id: str, node_id: str, request: Request) -> Response:
    """Show a node with all its attempts, its resolved config and its whole output."""
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    room = load_of(request).room
    shown = await describe_node(execution_id, node_id, ports, namespace=namespace, show=SHOW, room=room)
    return answer(shown)


class ChildrenQuery(schema.PageQuery):
    state: list[schema.ExecutionStateName] = Field([], description="any of them")


@router.get(
    "/v1/executions/{execution_id}/nodes/{node_id}/children",
    operation_id="listChildren",
    responses={**schema.answers(200, schema.Children), **schema.problems(404, 422)},
)
async def list_children(
    execution_id: str, node_id: str, request: Request, query: Annotated[ChildrenQuery, Query()]
) -> Response:
    """List the executions that a node runs, or ran in its last attempt, in the order of their items."""
    ports = service_of(request).ports
    (after,) = cast("tuple[int]", read_cursor(query.cursor, int) or (-1,))
    states = tuple(ExecutionState(state) for state in query.state)
    rows, counts = await describe_children(
        ChildQuery(execution_id=execution_id, node_id=node_id, states=states),
        ports,
        namespace=caller_of(request).namespace,
        after=after,
        limit=query.limit + 1,
    )
    shown = rows[: query.limit]
    next_cursor = None
    if len(rows) > query.limit and shown[-1].parent is not None:
        next_cursor = cursor_of(shown[-1].parent.index or 0)
    items = await summarise_all(shown, ports)
    return answer({"items": items, "next_cursor": next_cursor, "counts": counts})


@router.get(
    "/v1/executions/{execution_id}/nodes/{node_id}/explain",
    operation_id="explainNode",
    responses={**schema.answers(200, schema.Explanation), **schema.problems(404)},
)
async def explain(execution_id: str, node_id: str, request: Request) -> Response:
    """Explain why a node is not running."""
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    try:
        workers = await ports.store.workers()
    except StoreError:
        workers = None
    room = load_of(request).room
    return answer(
        await explain_node(execution_id, node_id, ports, namespace=namespace, workers=workers, room=room)
    )


# --- Controlling.

_CONTROLLED = {
    **schema.answers(202, schema.Execution, "done, or nothing was left to do"),
    **schema.problems(404, 409),
}


@router.post(
    "/v1/executions/{execution_id}/cancel",
    operation_id="cancelExecution",
    status_code=202,
    responses=_CONTROLLED,
)
async def cancel_execution(execution_id: str, request: Request) -> Response:
    """Settle every unsettled node as cancelled; no attempt starts after the answer."""
    return await _control(execution_id, request, control.cancel)


@router.post(
    "/v1/executions/{execution_id}/pause",
    operation_id="pauseExecution",
    status_code=202,
    responses=_CONTROLLED,
)
async def pause_execution(execution_id: str, request: Request) -> Response:
    """Let no attempt start; running ones finish and count."""
    return await _control(execution_id, request, control.pause)


@router.post(
    "/v1/executions/{execution_id}/resume",
    operation_id="resumeExecution",
    status_code=202,
    responses=_CONTROLLED,
)
async def resume_execution(execution_id: str, request: Request) -> Response:
    """Let attempts start again."""
    return await _control(execution_id, request, control.resume)


async def _control(
    execution_id: str, request: Request, act: Callable[..., Awaitable[ExecutionRow]]
) -> Response:
    await require_execution(request, execution_id)
    try:
        row = await act(execution_id, service_of(request).ports, actor=caller_of(request).actor)
    except StoreError as error:
        raise not_told(request, error) from error
    return await _answer_row(row, service_of(request))


def not_told(request: Request, error: StoreError) -> ProblemError:
    """Return the problem of a control call that is recorded, and that the workers were not notified of."""
    log_away(request.scope, error)
    return store_away(
        "the request is recorded, but workers could not be notified, so running nodes may go on for a while; "
        "repeat the call"
    )


async def _answer_row(row: ExecutionRow, service: Service) -> Response:
    if not row.input:
        # A journal does not read a large input to record an event.
        row = await service.ports.catalog.execution(row.id) or row
    (in_flight,) = await in_flight_of([row.id], service.ports)
    shown = summary(row, in_flight, trace_id=service.ports.trace_id(row), show=SHOW)
    return answer(shown, status=202)


@router.post(
    "/v1/executions/{execution_id}/retry",
    operation_id="retryExecution",
    status_code=202,
    responses={
        **schema.answers(202, schema.Execution, "the next generation is open"),
        **schema.answers(
            200, schema.RetryAnswer, "what a retry would do (`dry_run`); or this key has opened it before"
        ),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={**schema.takes(schema.RetryExecution, required=False), "parameters": [KEY_PARAMETER]},
)
async def retry_execution(execution_id: str, request: Request) -> Response:
    """Open the next generation of a failed or cancelled execution, or say what that would run."""
    body = await read_model(request, schema.RetryExecution, empty=True)
    if not body.dry_run:
        return await retry_once(request, execution_id, body, nodes=tuple(body.nodes))
    await require_execution(request, execution_id)
    ports = service_of(request).ports
    generation, plan = await control.retry_plan(execution_id, ports, nodes=tuple(body.nodes))
    return answer({"generation": generation, "run": plan.run, "reuse": plan.reuse})


@router.post(
    "/v1/executions/{execution_id}/fork",
    operation_id="forkExecution",
    status_code=202,
    responses={
        **schema.answers(202, schema.Execution, "accepted and stored", headers=_LOCATION),
        **schema.answers(200, schema.Execution, "forked before, by the same request with the same key"),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={**schema.takes(schema.ForkExecution, required=False), "parameters": [KEY_PARAMETER]},
)
async def fork_execution(execution_id: str, request: Request) -> Response:
    """Start a new execution from one that has ended; it keeps what is not in or behind `from`."""
    body = await read_model(request, schema.ForkExecution, empty=True)
    service, ports = service_of(request), service_of(request).ports
    forked = await require_execution(request, execution_id)
    wanted = ForkRequest(
        nodes=tuple(body.from_),
        has_input="input" in body.model_fields_set,
        input=body.input,
        version=body.version,
        actor=caller_of(request).actor,
        traceparent=traceparent_of(request.scope),
    )
    new_id = ports.new_id()
    is_live = True

    async def start(claim: Claim | None) -> ExecutionRow:
        nonlocal is_live
        async with service.load.takeover_of(forked.total):
            submission = await make_fork(new_id, forked, wanted, ports)
            nodes = len(submission.plan.nodes) - len(submission.kept)
            async with admitted(service, nodes, caller=caller_of(request).name) as is_live:
                (row,) = await submit([submission], ports, claim=claim)
        return row

    started = await once(read_key(request, body), f"execution/{new_id}", ports, start)
    if isinstance(started, str):
        return await _answer_start(request, started.removeprefix("execution/"), None, status=200)
    in_flight = NOTHING_IN_FLIGHT if is_live else None
    shown = summary(started, in_flight, trace_id=ports.trace_id(started), show=SHOW)
    return answer(shown, status=202, headers=_location(new_id))


async def retry_once(
    request: Request, execution_id: str, body: schema.RetryExecution, *, nodes: tuple[str, ...] = ()
) -> Response:
    """Retry an execution, or answer as before where the key of the request stands for that already."""
    service, actor = service_of(request), caller_of(request).actor
    total = (await require_execution(request, execution_id)).total

    async def start(claim: Claim | None) -> ExecutionRow:
        async with service.load.takeover_of(total):
            return await control.retry(execution_id, service.ports, nodes=nodes, actor=actor, claim=claim)

    key = read_key(request, body)
    started = await once(key, f"execution/{execution_id}", service.ports, start)
    if isinstance(started, str):
        return answer(await _shown(request, execution_id, "none"))
    return await _answer_row(started, service)
