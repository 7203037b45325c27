"""Batches: many executions of one version, submitted, looked at and cancelled as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Query, Request, Response

from weft.api import schema
from weft.api.admission import admitted
from weft.api.answer import answer, cursor_of, page, page_of, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model
from weft.api.executions import SHOW, moved, not_told
from weft.api.idempotency import KEY_PARAMETER, once, read_key
from weft.api.load import load_of
from weft.api.problem import invalid_request, traceparent_of
from weft.api.service import service_of
from weft.errors import InputError, NotFoundError, Problem, StoreError
from weft.journal.contract import NewBatch
from weft.orchestrator.control import cancel_batch
from weft.orchestrator.submit import SubmitOptions, find_source, limited, make_batch, submit
from weft.views.summary import batch_fields, result_fields

if TYPE_CHECKING:
    from weft.journal.contract import Batch, Claim

router = APIRouter(tags=["batches"])

# The outputs of a page take as much without asking whether there is room for them.
_FREE_BYTES = 256 * 1024


@router.post(
    "/v1/batches",
    operation_id="startBatch",
    status_code=202,
    responses={
        **schema.answers(202, schema.Batch, "accepted and stored"),
        **schema.answers(200, schema.Batch, "started before, by the same request with the same key"),
        **schema.problems(400, 404, 409, 413, 415, 422),
    },
    openapi_extra={**schema.takes(schema.SubmitBatch), "parameters": [KEY_PARAMETER]},
)
async def start_batch(request: Request) -> Response:
    """Start as many executions of a stored workflow as there are inputs: all of them, or none."""
    body = await read_model(request, schema.SubmitBatch)
    service, namespace = service_of(request), caller_of(request).namespace
    ports = service.ports
    if len(body.inputs) > ports.bounds.max_batch:
        message = f"{len(body.inputs):,} inputs; the limit is {ports.bounds.max_batch:,}"
        raise invalid_request([Problem("/inputs", message)])
    options = SubmitOptions(
        namespace=namespace,
        labels=body.labels,
        priority=body.priority,
        actor=caller_of(request).actor,
        traceparent=traceparent_of(request.scope),
    )
    batch_id = ports.new_id()

    async def start(claim: Claim | None) -> None:
        source = await find_source(body.workflow, body.version, ports, namespace=namespace)
        try:
            submissions = await make_batch(
                batch_id, source, body.inputs, options, ports, run_in_thread=service.run_in_thread
            )
        except InputError as error:
            raise InputError(moved(error.problems, "/inputs")) from None
        assert source.version is not None
        batch = NewBatch(id=batch_id, workflow=body.workflow, version=source.version, namespace=namespace)
        nodes = len(submissions) * len(source.plan.nodes)
        async with admitted(service, nodes, caller=caller_of(request).name):
            await submit(limited(submissions, batch_id, body.max_running), ports, claim=claim, batch=batch)

    key = await service.run_in_thread(read_key, request, body)
    known = await once(key, f"batch/{batch_id}", ports, start)
    batch_id = batch_id if known is None else known.removeprefix("batch/")
    shown = batch_fields(await _require(request, batch_id))
    return answer(
        shown, status=202 if known is None else 200, headers={"Location": f"/v1/batches/{batch_id}"}
    )


@router.get(
    "/v1/batches",
    operation_id="listBatches",
    responses={**schema.answers(200, schema.Batches), **schema.problems(422)},
)
async def list_batches(request: Request, query: Annotated[schema.PageQuery, Query()]) -> Response:
    """List batches, newest first, each with the number of its executions in each state."""
    batches = await service_of(request).ports.catalog.batches(
        namespace=caller_of(request).namespace,
        before=cast("tuple[int, str] | None", read_cursor(query.cursor, int, str)),
        limit=query.limit + 1,
    )
    return page_of(batches, query.limit, shown=batch_fields, place=lambda batch: (batch.created_at, batch.id))


@router.get(
    "/v1/batches/{batch_id}",
    operation_id="getBatch",
    responses={**schema.answers(200, schema.Batch), **schema.problems(404)},
)
async def get_batch(batch_id: str, request: Request) -> Response:
    """Show a batch: how many of its executions are in which state."""
    return answer(batch_fields(await _require(request, batch_id)))


@router.get(
    "/v1/batches/{batch_id}/results",
    operation_id="listBatchResults",
    responses={**schema.answers(200, schema.BatchResults), **schema.problems(404, 422)},
)
async def list_results(
    batch_id: str, request: Request, query: Annotated[schema.PageQuery, Query()]
) -> Response:
    """List what became of the inputs, in their order. A page of large outputs ends before it is full."""
    (after,) = cast("tuple[int]", read_cursor(query.cursor, int) or (-1,))
    total = (await _require(request, batch_id)).total
    service = service_of(request)
    # In turn: how much a page takes is known when it is read.
    async with service.load.history_turn:
        found = await service.ports.catalog.batch_results(batch_id, after=after, limit=query.limit)
        size = sum(len(row.output or b"") for _, row in found)
        if size > _FREE_BYTES:
            load_of(request).hold_values(size)
        items = [result_fields(index, row, show=SHOW) for index, row in found]
        more = bool(items) and items[-1]["index"] + 1 < total
        return page(items, next_cursor=cursor_of(items[-1]["index"]) if more else None)


@router.post(
    "/v1/batches/{batch_id}/cancel",
    operation_id="cancelBatch",
    status_code=202,
    responses={**schema.answers(202, schema.Batch, "every execution is terminal"), **schema.problems(404)},
)
async def cancel(batch_id: str, request: Request) -> Response:
    """Cancel every execution of a batch that is not terminal."""
    await _require(request, batch_id)
    caller, ports = caller_of(request), service_of(request).ports
    try:
        await cancel_batch(batch_id, ports, namespace=caller.namespace, actor=caller.actor)
    except StoreError as error:
        raise not_told(request, error) from error
    return answer(batch_fields(await _require(request, batch_id)), status=202)


async def _require(request: Request, batch_id: str) -> Batch:
    namespace = caller_of(request).namespace
    batch = await service_of(request).ports.catalog.batch(batch_id, namespace=namespace)
    if batch is None:
        raise NotFoundError(f"there is no batch {batch_id}")
    return batch
