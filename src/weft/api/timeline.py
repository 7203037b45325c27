"""The timeline of an execution: attempts, critical path, and the expected end."""

from __future__ import annotations

import gzip
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from weft.api.answer import accepts_gzip
from weft.api.auth import caller_of
from weft.api.executions import require_execution
from weft.api.schema import Request as QueryModel
from weft.api.schema import answers, problems
from weft.api.service import service_of
from weft.api.timeline_columns import Timeline
from weft.core.time import micros
from weft.views.timeline import read_durations, read_timeline, timeline_of

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.core.rows import ExecutionRow
    from weft.views.prediction import NodeDurations

router = APIRouter()

# What is under way is read anew after so long, however many ask; a second for each 10,000 nodes besides.
_FRESH_SECONDS = 1.0
_FRESH_NODES = 10_000
# What the nodes took in earlier executions is read anew after so long.
_DURATIONS_SECONDS = 30.0
# The fastest, as for graphs.
_LEVEL = 1
# A small one is built and compressed in less time than a thread takes to be called.
_BUILT_ON_LOOP = 500


class TimelineQuery(QueryModel):
    attempts: Annotated[
        Literal["all", "none"], Field(description="`none`: without attempts and workers, for the rest alone")
    ] = "all"


@router.get(
    "/v1/executions/{execution_id}/timeline",
    operation_id="getTimeline",
    tags=["executions"],
    responses={**answers(200, Timeline), **problems(404, 422)},
)
async def get_timeline(
    execution_id: str, request: Request, query: Annotated[TimelineQuery, Query()]
) -> Response:
    """Show the attempts of an execution as columns, its critical path, and its expected end."""
    service = service_of(request)
    row = await require_execution(request, execution_id)
    moment = row.seq if row.is_terminal else _period(service, row)
    key = f"{row.id}/{row.generation}/{row.state}/{moment}/{query.attempts}"
    namespace, whole = caller_of(request).namespace, query.attempts == "all"
    body = await service.timelines.get(key, partial(_encoded, service, row, namespace, whole=whole))
    headers = {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        headers["Content-Encoding"] = "gzip"
    else:
        body = await service.run_in_thread(gzip.decompress, body)
    return Response(body, headers=headers, media_type="application/json")


def _period(service: Service, row: ExecutionRow) -> int:
    """Return the number of the stretch of time in which all callers are answered the same."""
    seconds = _FRESH_SECONDS + row.total // _FRESH_NODES
    return service.ports.clock.now() // micros(seconds)


async def _encoded(service: Service, row: ExecutionRow, namespace: str, *, whole: bool) -> bytes:
    durations = None if row.is_terminal else await _durations(service, row, namespace)
    reading = await read_timeline(row, service.ports, durations)

    def encode() -> bytes:
        return gzip.compress(msgspec.json.encode(timeline_of(reading, whole=whole)), _LEVEL, mtime=0)

    return encode() if row.total <= _BUILT_ON_LOOP else await service.run_in_thread(encode)


async def _durations(service: Service, row: ExecutionRow, namespace: str) -> NodeDurations:
    # Where nothing is known yet, the next execution to complete changes that.
    key = f"{namespace}/{row.workflow}/{row.digest}"
    found = await _durations_of_period(service, row, namespace, key, _DURATIONS_SECONDS)
    return (
        found if found.samples else await _durations_of_period(service, row, namespace, key, _FRESH_SECONDS)
    )


async def _durations_of_period(
    service: Service, row: ExecutionRow, namespace: str, key: str, seconds: float
) -> NodeDurations:
    period = service.ports.clock.now() // micros(seconds)
    key = f"{key}/{seconds}/{period}"
    return await service.durations.get(key, partial(read_durations, row, service.ports, namespace=namespace))
