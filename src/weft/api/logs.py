"""The lines that nodes print and log: in pages, and as server-sent events while an execution runs.

A worker writes lines into the journal about twice a second, and those of an attempt before its result. A
stream reads the journal as often, and when an attempt has ended, from the last line that it has sent. So a
stream works with a worker in any process, and has the lines of an attempt as soon as its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator, Field
from starlette.responses import Response  # noqa: TC002 - FastAPI reads the annotations

from weft.api.answer import no_content, page
from weft.api.executions import require_execution
from weft.api.schema import Limit, Logs, answers, problems
from weft.api.schema import Request as QueryModel
from weft.api.service import service_of
from weft.api.stream import (
    MEDIA_TYPE,
    NUMBER,
    EventStream,
    opened,
    pace_seconds,
    read_number,
    wants_stream,
)
from weft.api.waiting import ENDS
from weft.errors import NotFoundError
from weft.views.logs import read_lines

if TYPE_CHECKING:
    from weft.api.service import Service
    from weft.feed.contract import Subscription

router = APIRouter(tags=["logs"])

# Between two reads of the journal for a stream: as often as a worker writes.
LOOK_SECONDS = 0.5
# Attempts may end a thousand times a second: at least so long between two reads.
PACE_SECONDS = 0.1
# What follows the last lines of an attempt.
_ATTEMPT_ENDS = frozenset(
    f"node.{how}" for how in ("completed", "failed", "retrying", "lost", "cancelled", "polled")
)
# Lines in one read and one write.
PAGE_LINES = 500

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]

_EXAMPLE = (
    'id: 2\nevent: log\ndata: {"seq": 2, "at": "2026-01-31T09:30:00.000000Z", "node": "report", '
    '"attempt": 1, "stream": "stdout", "level": null, "logger": null, "message": "3 orders read"}\n\n'
)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "the lines, oldest first; as server-sent events where the client accepts them: each "
        "line as it comes, and an event `end` behind the last one of an execution that has ended",
        "content": {
            **answers(200, Logs)[200]["content"],
            MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE},
        },
    },
    **answers(204, description="server-sent events: the execution has ended, and all lines were sent"),
    **problems(404, 422, 503),
}
_LAST_ID = {
    "parameters": [
        {
            "name": "Last-Event-ID",
            "in": "header",
            "required": False,
            "description": "the same as `after`, and goes before it",
            "schema": {"type": "string", "pattern": NUMBER},
        }
    ]
}


class NodeLogsQuery(QueryModel):
    # The largest number that both journals have in a column of attempts.
    attempt: Annotated[int | None, Field(ge=1, le=2**31 - 1, description="of this attempt alone")] = None
    level: Annotated[
        Level | None,
        BeforeValidator(lambda given: given.upper() if isinstance(given, str) else given),
        Field(description="logged at this level or above, in either case; what was printed has no level"),
    ] = None
    limit: Limit = 50
    after: Annotated[
        str,
        Field(
            description="the number of a line, or `next_cursor`: what came after it",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = "0"


class LogsQuery(NodeLogsQuery):
    node: Annotated[str | None, Field(description="of this node alone")] = None


@router.get(
    "/v1/executions/{execution_id}/logs",
    operation_id="listLogs",
    responses=_ANSWERS,
    openapi_extra=_LAST_ID,
)
async def list_logs(execution_id: str, request: Request, query: Annotated[LogsQuery, Query()]) -> Response:
    """Read what the nodes of an execution printed and logged, page by page or as it comes."""
    return await _answer(execution_id, query.node, request, query)


@router.get(
    "/v1/executions/{execution_id}/nodes/{node_id}/logs",
    operation_id="listNodeLogs",
    responses=_ANSWERS,
    openapi_extra=_LAST_ID,
)
async def list_node_logs(
    execution_id: str, node_id: str, request: Request, query: Annotated[NodeLogsQuery, Query()]
) -> Response:
    """Read what one node printed and logged, page by page or as it comes."""
    return await _answer(execution_id, node_id, request, query)


async def _answer(execution_id: str, node_id: str | None, request: Request, query: NodeLogsQuery) -> Response:
    service = service_of(request)
    row = await require_execution(request, execution_id)
    if node_id is not None:
        plan = await service.ports.catalog.plan(row.digest)
        if plan is None or node_id not in plan.nodes:
            raise NotFoundError(f"execution {execution_id} has no node {node_id!r}")
    after = read_number("after", query.after)
    if "last-event-id" in request.headers:
        after = read_number("Last-Event-ID", request.headers["last-event-id"])
    wanted: dict[str, Any] = {"node_id": node_id, "attempt": query.attempt, "level": query.level}
    if not wants_stream(request):
        lines, last = await read_lines(
            execution_id, service.ports.catalog, after=after, limit=query.limit, **wanted
        )
        return page(lines, next_cursor=None if last is None else str(last))
    if row.is_terminal:
        lines, _ = await read_lines(execution_id, service.ports.catalog, after=after, limit=1, **wanted)
        if after and not lines:
            return no_content()
    return opened(request, LogStream(service, execution_id, after=after, wanted=wanted))


class LogStream(EventStream["Subscription"]):
    """The lines of one execution from a number on, until it has ended."""

    def __init__(self, service: Service, execution_id: str, *, after: int, wanted: dict[str, Any]) -> None:
        super().__init__(service)
        self._id = execution_id
        self._after = after
        self._wanted = wanted

    def subscribe(self) -> Subscription:
        return self._service.feed.subscribe(execution_id=self._id, types=ENDS | _ATTEMPT_ENDS)

    async def tell(self, source: Subscription) -> None:
        catalog = self._service.ports.catalog
        while True:
            # Asked before the lines are: a worker writes them before the result that may end it all.
            row = await catalog.execution(self._id)
            has_ended = row is None or row.is_terminal
            while await self._send_lines():
                pass
            if has_ended:
                await self.send_bytes(b"event: end\ndata: {}\n\n")
                return
            await self._clock.sleep(max(PACE_SECONDS, pace_seconds(self._service.load.streams.in_use)))
            await self.pause(source, LOOK_SECONDS)

    async def _send_lines(self) -> bool:
        """Send some lines; True if more are there."""
        lines, last = await read_lines(
            self._id, self._service.ports.catalog, after=self._after, limit=PAGE_LINES, **self._wanted
        )
        if lines:
            self._after = lines[-1]["seq"]
            await self.send_bytes(b"".join(map(_framed, lines)))
        return last is not None


def _framed(line: dict[str, Any]) -> bytes:
    return f"id: {line['seq']}\nevent: log\ndata: ".encode() + msgspec.json.encode(line) + b"\n\n"
