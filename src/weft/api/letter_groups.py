"""Lists, retries and drops dead letters by group."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Query, Request, Response

from weft.api import schema
from weft.api.answer import answer, cursor_behind, cursor_of, page, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model
from weft.api.executions import SHOW
from weft.api.idempotency import KEY_PARAMETER, once, read_key
from weft.api.load import load_of
from weft.api.problem import invalid_request
from weft.api.service import service_of
from weft.errors import NotAllowedError, NotFoundError, Problem
from weft.journal.contract import LetterQuery
from weft.orchestrator import control
from weft.views.describe import ALL_ROOM, Room, describe_dead_letters
from weft.views.summary import time_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from weft.core.rows import DeadLetter, ExecutionRow
    from weft.journal.contract import Claim
    from weft.journal.search import LetterGroup
    from weft.ports import ApiPorts

router = APIRouter(tags=["dead letters"])

# A retry is a commit of its own and reads the rows of its execution: so many take about a second.
MAX_LETTERS = 200
_MAX_REFUSED = 20
_KEY = {**KEY_PARAMETER, "description": "sent again with the same body, the request retries nothing twice"}
_DONE = {**schema.answers(202, schema.LettersDone), **schema.problems(400, 413, 415, 422)}


class GroupsQuery(schema.PageQuery):
    workflow: str | None = None
    state: schema.LetterStateName = "open"


@router.get(
    "/v1/dead-letters/groups",
    operation_id="listDeadLetterGroups",
    responses={**schema.answers(200, schema.LetterGroups), **schema.problems(422)},
)
async def list_groups(request: Request, query: Annotated[GroupsQuery, Query()]) -> Response:
    """List groups of dead letters by workflow, node and error code, each with its newest letter."""
    ports = service_of(request).ports
    (after,) = cast("tuple[str]", read_cursor(query.cursor, str) or (None,))
    groups = await ports.catalog.letter_groups(
        namespace=caller_of(request).namespace,
        state=query.state,
        workflow=query.workflow,
        after=after,
        limit=query.limit + 1,
    )
    shown = groups[: query.limit]
    more = len(groups) > query.limit
    items = await describe_groups(shown, ports, room=load_of(request).room)
    return page(items, next_cursor=cursor_of(shown[-1].key) if more else None)


async def describe_groups(
    groups: Sequence[LetterGroup], ports: ApiPorts, *, room: Room = ALL_ROOM
) -> list[dict[str, Any]]:
    """Return groups as shown to callers; one whose newest letter is gone meanwhile is left out."""
    samples = await describe_dead_letters([group.sample for group in groups], ports, show=SHOW, room=room)
    by_id = {sample["id"]: sample for sample in samples}
    return [
        {
            "workflow": group.workflow,
            "node": group.node_id,
            "code": group.code,
            "count": group.count,
            "executions": group.executions,
            "first_at": time_of(group.first_at),
            "last_at": time_of(group.last_at),
            "sample": by_id[group.sample.id],
        }
        for group in groups
        if group.sample.id in by_id
    ]


@router.post(
    "/v1/dead-letters/retry",
    operation_id="retryDeadLetters",
    status_code=202,
    responses={**_DONE, **schema.problems(400, 409, 413, 415, 422)},
    openapi_extra={**schema.takes(schema.SelectLetters, required=False), "parameters": [_KEY]},
)
async def retry_letters(request: Request) -> Response:
    """Retry the executions of up to 200 open dead letters, each once; no condition: of any of them."""
    ports, caller = service_of(request).ports, caller_of(request)
    body = await read_model(request, schema.SelectLetters, empty=True)
    letters, refused, next_cursor = await _select(request, body)
    key = read_key(request, body)
    outcomes: dict[str, tuple[str, str] | None] = {}
    # The letter of a child is retried by the execution that nobody calls.
    roots = {letter.execution_id: await control.root_of(letter.execution_id, ports) for letter in letters}
    for execution_id in dict.fromkeys(roots.values()):
        # One key stands for one resource: of this call's key, each execution has one of its own.
        own = None if key is None else replace(key, text=f"{key.text}/{execution_id}")

        async def retry(claim: Claim | None, execution_id: str = execution_id) -> ExecutionRow:
            return await control.retry(execution_id, ports, actor=caller.actor, claim=claim)

        try:
            await once(own, f"execution/{execution_id}", ports, retry)
            outcomes[execution_id] = None
        except NotAllowedError as error:
            outcomes[execution_id] = "not_allowed", str(error)
        except NotFoundError as error:
            outcomes[execution_id] = "not_found", str(error)
    done = 0
    for letter in letters:
        if (problem := outcomes[roots[letter.execution_id]]) is None:
            done += 1
        else:
            refused.append(_refused(letter.id, *problem))
    return _answer(done, refused, next_cursor)


@router.post(
    "/v1/dead-letters/drop",
    operation_id="dropDeadLetters",
    status_code=202,
    responses=_DONE,
    openapi_extra=schema.takes(schema.SelectLetters, required=False),
)
async def drop_letters(request: Request) -> Response:
    """Mark up to 200 open dead letters as dropped; no condition: any of them."""
    caller = caller_of(request)
    body = await read_model(request, schema.SelectLetters, empty=True)
    letters, refused, next_cursor = await _select(request, body)
    await service_of(request).ports.catalog.drop_letters(
        [letter.id for letter in letters], namespace=caller.namespace, actor=caller.actor
    )
    return _answer(len(letters), refused, next_cursor)


async def _select(
    request: Request, body: schema.SelectLetters
) -> tuple[Sequence[DeadLetter], list[dict[str, str]], str | None]:
    """Return the letters that a call is about, those that there are none of, and where the rest begins."""
    given = body.model_fields_set
    catalog, namespace = service_of(request).ports.catalog, caller_of(request).namespace
    before = cast("tuple[int, str] | None", read_cursor(body.cursor, int, str))
    if "ids" in given:
        if others := sorted(given - {"ids"}):
            raise invalid_request([Problem(f"/{name}", "does not go with ids") for name in others])
        letters, refused = [], []
        for letter_id in dict.fromkeys(body.ids):
            letter = await catalog.dead_letter(letter_id, namespace=namespace)
            if letter is None:
                refused.append(_refused(letter_id, "not_found", f"there is no dead letter {letter_id}"))
            else:
                letters.append(letter)
        return letters, refused, None
    query = LetterQuery(
        # Of a group without a workflow or a code, these are null.
        workflow=(body.workflow or "") if "workflow" in given else None,
        node=body.node,
        code=(body.code or "") if "code" in given else None,
        state="open",
    )
    found = await catalog.search_letters(query, namespace=namespace, before=before, limit=MAX_LETTERS + 1)
    return found.rows[:MAX_LETTERS], [], cursor_behind(found, MAX_LETTERS)


def _refused(letter_id: str, code: str, message: str) -> dict[str, str]:
    return {"id": letter_id, "code": code, "message": message}


def _answer(done: int, refused: list[dict[str, str]], next_cursor: str | None) -> Response:
    return answer(
        {
            "matched": done + len(refused),
            "done": done,
            "refused": refused[:_MAX_REFUSED],
            "next_cursor": next_cursor,
        },
        status=202,
    )
