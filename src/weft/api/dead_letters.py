"""Dead letters: nodes that failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Query, Request, Response

from weft.api import schema
from weft.api.answer import answer, cursor_behind, no_content, page, read_cursor
from weft.api.auth import caller_of
from weft.api.executions import SHOW, retry_once
from weft.api.idempotency import KEY_PARAMETER
from weft.api.load import load_of
from weft.api.service import service_of
from weft.errors import NotFoundError
from weft.journal.contract import LetterQuery
from weft.orchestrator import control
from weft.views.describe import describe_dead_letter, describe_dead_letters

if TYPE_CHECKING:
    from weft.core.rows import DeadLetter

router = APIRouter(tags=["dead letters"])


class LettersQuery(schema.PageQuery):
    workflow: str | None = None
    state: schema.LetterStateName | None = None
    code: str | None = None
    node: str | None = None
    q: schema.SearchText = None


@router.get(
    "/v1/dead-letters",
    operation_id="listDeadLetters",
    responses={**schema.answers(200, schema.DeadLetters), **schema.problems(422)},
)
async def list_dead_letters(request: Request, query: Annotated[LettersQuery, Query()]) -> Response:
    """List dead letters, newest first."""
    ports = service_of(request).ports
    found = await ports.catalog.search_letters(
        LetterQuery(
            workflow=query.workflow, state=query.state, code=query.code, node=query.node, text=query.q
        ),
        namespace=caller_of(request).namespace,
        before=cast("tuple[int, str] | None", read_cursor(query.cursor, int, str)),
        limit=query.limit + 1,
    )
    items = await describe_dead_letters(
        found.rows[: query.limit], ports, show=SHOW, room=load_of(request).room
    )
    return page(items, next_cursor=cursor_behind(found, query.limit))


@router.get(
    "/v1/dead-letters/{letter_id}",
    operation_id="getDeadLetter",
    responses={**schema.answers(200, schema.DeadLetter), **schema.problems(404)},
)
async def get_dead_letter(letter_id: str, request: Request) -> Response:
    """Show a dead letter with the config and the attempts of its generation."""
    letter = await _require(request, letter_id)
    room = load_of(request).room
    return answer(await describe_dead_letter(letter, service_of(request).ports, show=SHOW, room=room))


@router.post(
    "/v1/dead-letters/{letter_id}/retry",
    operation_id="retryDeadLetter",
    status_code=202,
    responses={
        **schema.answers(202, schema.Execution, "the next generation of its execution is open"),
        **schema.answers(200, schema.Execution, "retried before, by the same request with the same key"),
        **schema.problems(404, 409, 422),
    },
    openapi_extra={"parameters": [KEY_PARAMETER]},
)
async def retry_dead_letter(letter_id: str, request: Request) -> Response:
    """Retry the execution of a dead letter."""
    letter = await _require(request, letter_id)
    # Of a child: the retry of the execution that nobody calls opens the child again.
    root = await control.root_of(letter.execution_id, service_of(request).ports)
    return await retry_once(request, root, schema.RetryExecution())


@router.delete(
    "/v1/dead-letters/{letter_id}",
    operation_id="dropDeadLetter",
    status_code=204,
    responses={**schema.answers(204, description="it is dropped"), **schema.problems(404)},
)
async def drop_dead_letter(letter_id: str, request: Request) -> Response:
    """Mark a dead letter as dropped: nobody will retry it."""
    catalog, caller = service_of(request).ports.catalog, caller_of(request)
    if not await catalog.drop_letter(letter_id, namespace=caller.namespace, actor=caller.actor):
        raise _no_letter(letter_id)
    return no_content()


async def _require(request: Request, letter_id: str) -> DeadLetter:
    namespace = caller_of(request).namespace
    letter = await service_of(request).ports.catalog.dead_letter(letter_id, namespace=namespace)
    if letter is None:
        raise _no_letter(letter_id)
    return letter


def _no_letter(letter_id: str) -> NotFoundError:
    return NotFoundError(f"there is no dead letter {letter_id}")
