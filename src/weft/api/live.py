"""The stream of an execution for drawings: a snapshot with a letter for each node, and then the changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from weft.api.executions import require_execution
from weft.api.frames import CHANGES_EXAMPLE, SNAPSHOT_EXAMPLE
from weft.api.live_hub import LiveViewer
from weft.api.schema import problems
from weft.api.service import service_of
from weft.api.stream import MEDIA_TYPE, EventStream, opened
from weft.errors import NotFoundError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from weft.api.service import Service

router = APIRouter()


def _example(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {msgspec.json.encode(data).decode()}\n\n"


@router.get(
    "/v1/executions/{execution_id}/live",
    operation_id="watchExecution",
    tags=["executions"],
    responses={
        200: {
            "description": "server-sent events, at most ten times a second: `snapshot` with a letter for "
            "each node in the order of the topology, then `changes` with pairs of an index and a letter, or "
            "another snapshot where that is shorter or the execution was retried; after its end "
            "a last `changes`, and `end`. A comment comes every five seconds. A connection begins with a "
            "snapshot, so there is nothing to resume",
            "content": {
                MEDIA_TYPE: {
                    "schema": {"type": "string"},
                    "example": _example("snapshot", SNAPSHOT_EXAMPLE)
                    + _example("changes", CHANGES_EXAMPLE)
                    + "event: end\ndata: {}\n\n",
                }
            },
        },
        **problems(404, 503),
    },
    response_class=Response,
)
async def watch_execution(execution_id: str, request: Request) -> Response:
    """Watch the states of an execution's nodes, for a drawing: compact, and as they change."""
    await require_execution(request, execution_id)
    return opened(request, LiveStream(service_of(request), execution_id))


class LiveStream(EventStream[LiveViewer]):
    """The frames of one execution for one viewer."""

    def __init__(self, service: Service, execution_id: str) -> None:
        super().__init__(service)
        self._id = execution_id

    def subscribe(self) -> AbstractAsyncContextManager[LiveViewer]:
        return LiveViewer(self._service, self._id)

    async def tell(self, source: LiveViewer) -> None:
        hub, number, has_ended = source.hub, 0, False
        while not has_ended:
            try:
                frames, number = await hub.frames_after(number)
            except NotFoundError:
                return  # it was removed meanwhile
            # Read together with the frames: what comes while these are sent is sent with the next.
            has_ended = hub.has_ended
            if frames:
                await self.send_bytes(frames)
