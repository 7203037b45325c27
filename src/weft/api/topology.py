"""The graph of an execution or of a workflow, for drawings; a client fetches it once for each definition."""

from __future__ import annotations

import gzip
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from weft.api.answer import accepts_gzip, has_tag
from weft.api.auth import caller_of
from weft.api.executions import require_execution
from weft.api.schema import answers, problems
from weft.api.schema_console import Topology
from weft.api.service import service_of
from weft.api.workflows import VersionQuery, find_workflow, no_version, read_version
from weft.errors import NotFoundError
from weft.views.topology import topology_of

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.definition.plan import Plan

router = APIRouter()

# The fastest: a graph of 50,000 nodes shrinks to a fifth in 20 ms, and the best to a seventh in 300 ms.
_LEVEL = 1
_ETAG = {
    "ETag": {"schema": {"type": "string"}, "description": "of the definition; the same graph has the same"}
}
_ANSWERS = {
    **answers(200, Topology, headers=_ETAG),
    **answers(304, None, "the client has this graph (`If-None-Match`)"),
    **problems(404),
}
_IF_NONE_MATCH = {
    "parameters": [
        {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "description": "the `ETag` of the graph that the client has",
            "schema": {"type": "string"},
        }
    ]
}


@router.get(
    "/v1/executions/{execution_id}/topology",
    operation_id="getExecutionTopology",
    tags=["executions"],
    responses=_ANSWERS,
    openapi_extra=_IF_NONE_MATCH,
)
async def execution_topology(execution_id: str, request: Request) -> Response:
    """Show the graph of an execution: nodes, handlers and dependencies as columns, without states."""
    row = await require_execution(request, execution_id)
    return await _answer(request, row.digest)


@router.get(
    "/v1/workflows/{name}/topology",
    operation_id="getWorkflowTopology",
    tags=["workflows"],
    responses=_ANSWERS,
    openapi_extra=_IF_NONE_MATCH,
)
async def workflow_topology(name: str, request: Request, query: Annotated[VersionQuery, Query()]) -> Response:
    """Show the graph of a version of a workflow as columns."""
    await find_workflow(name, request)
    wanted, namespace = read_version(name, query.version), caller_of(request).namespace
    version = await service_of(request).ports.catalog.version(name, wanted, namespace=namespace)
    if version is None:
        raise no_version(name, query.version)
    return await _answer(request, version.digest)


async def _answer(request: Request, digest: str) -> Response:
    service, tag = service_of(request), f'W/"{digest}"'
    # A browser keeps the graph and asks each time whether it is still the one: a version never changes.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if has_tag(request, digest):
        return Response(status_code=304, headers=headers)
    body = await service.topologies.get(digest, partial(_encoded, service, digest))
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
    else:
        body = await service.run_in_thread(gzip.decompress, body)
    return Response(body, headers=headers, media_type="application/json")


async def _encoded(service: Service, digest: str) -> bytes:
    plan = await service.ports.catalog.plan(digest)
    if plan is None:
        raise NotFoundError(f"there is no definition {digest}")
    return await service.run_in_thread(_encode, plan)


def _encode(plan: Plan) -> bytes:
    # Without the time in its head: the same graph is the same bytes.
    return gzip.compress(msgspec.json.encode(topology_of(plan)), _LEVEL, mtime=0)
