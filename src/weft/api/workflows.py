"""Workflows: definitions stored by name, their versions, and the aliases of versions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from weft.api.answer import answer, no_content, page_of, read_cursor
from weft.api.auth import caller_of
from weft.api.body import read_model, read_value
from weft.api.definition import announced_functions, check_definition
from weft.api.problem import invalid_request
from weft.api.schema import (
    Alias,
    Changes,
    Definition,
    NewAlias,
    PageQuery,
    Stored,
    Verdict,
    Versions,
    WorkflowDetail,
    Workflows,
    answers,
    problems,
    takes,
)
from weft.api.schema import Request as QueryModel
from weft.api.service import service_of
from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.core.time import rfc3339
from weft.definition.model import NAME_PATTERN
from weft.errors import DefinitionError, NotFoundError, Problem
from weft.handlers.python import uncallable
from weft.journal.contract import LATEST
from weft.orchestrator.submit import find_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.definition.plan import Plan
    from weft.journal.contract import Version, WorkflowRow

router = APIRouter(tags=["workflows"])

# Greater numbers are no versions of anything, and no integers of a database.
_MAX_DIGITS = 18
# Of the workflows that one definition names, so many are looked up.
_MAX_LOOKED_UP = 100


class VersionQuery(QueryModel):
    version: Annotated[str, Field(description="a number or an alias")] = LATEST


@router.post(
    "/v1/workflows",
    operation_id="storeWorkflow",
    status_code=201,
    responses={
        **answers(201, Stored, "a new version, the latest from now on"),
        **answers(200, Stored, "this content is stored already: its version, the latest from now on"),
        **problems(400, 413, 415, 422),
    },
    openapi_extra=takes(Definition),
)
async def store_workflow(request: Request) -> Response:
    """Store a definition as the next version of the workflow that it names."""
    service, caller = service_of(request), caller_of(request)
    document = await read_value(request)
    checked = await check_definition(service, document, named=True)
    if checked.plan is None:
        raise DefinitionError(checked.problems)
    name = checked.plan.definition.name
    assert name is not None
    body = await service.run_in_thread(
        encode, document, max_bytes=service.ports.bounds.max_body_bytes, max_values=MAX_DOCUMENT_VALUES
    )
    version, new = await service.ports.catalog.put_version(
        name, checked.plan, body, namespace=caller.namespace, actor=caller.actor
    )
    stored = {"name": name, "version": version.version, "digest": version.digest}
    headers = {"Location": f"/v1/workflows/{name}?version={version.version}"}
    return answer(stored, status=201 if new else 200, headers=headers)


@router.post(
    "/v1/workflows/validate",
    operation_id="validateWorkflow",
    responses={**answers(200, Verdict), **problems(400, 413, 415)},
    openapi_extra=takes(Definition),
)
async def validate_workflow(request: Request) -> Response:
    """Check a definition, list every problem at once, and store nothing."""
    service, document = service_of(request), await read_value(request)
    checked = await check_definition(service, document, named=True)
    functions = await announced_functions(service)
    missing = [] if functions is None else await service.run_in_thread(uncallable, document, functions)
    if checked.plan is not None:
        missing = [*missing, *await _not_stored(checked.plan, request)]
    return answer(
        {
            "valid": checked.plan is not None,
            "problems": _shown(checked.problems),
            "warnings": _shown([*checked.warnings, *missing]),
            "layers": checked.layers,
        }
    )


async def _not_stored(plan: Plan, request: Request, at: str = "") -> list[Problem]:
    """Return a problem for each workflow that a node names and that is not stored: it may be, later."""
    ports, namespace = service_of(request).ports, caller_of(request).namespace
    found = []
    places = {node_id: index for index, node_id in enumerate(plan.graph.ids)}
    for node_id, call in islice(plan.calls.items(), _MAX_LOOKED_UP):
        where = f"{at}/nodes/{places[node_id]}/workflow"
        if call.plan is not None:
            found += await _not_stored(call.plan, request, where)
            continue
        assert call.name is not None
        try:
            await find_source(call.name, call.version, ports, namespace=namespace)
        except NotFoundError as missing:
            found.append(Problem(where, str(missing)))
    return found


def _shown(found: Sequence[Problem]) -> list[dict[str, str]]:
    return [{"pointer": problem.pointer, "message": problem.message} for problem in found]


@router.get("/v1/workflows", operation_id="listWorkflows", responses=answers(200, Workflows))
async def list_workflows(request: Request, query: Annotated[PageQuery, Query()]) -> Response:
    """List the workflows by name, each in its latest version."""
    cursor = read_cursor(query.cursor, str)
    found = await service_of(request).ports.catalog.workflows(
        namespace=caller_of(request).namespace,
        after=str(cursor[0]) if cursor else "",
        limit=query.limit + 1,
    )
    return page_of(
        found,
        query.limit,
        shown=lambda workflow: _workflow(workflow, workflow.latest),
        place=lambda workflow: (workflow.name,),
    )


@router.get(
    "/v1/workflows/{name}",
    operation_id="getWorkflow",
    responses={**answers(200, WorkflowDetail), **problems(404)},
)
async def get_workflow(name: str, request: Request, query: Annotated[VersionQuery, Query()]) -> Response:
    """Show a workflow in one of its versions, with the definition."""
    catalog, namespace = service_of(request).ports.catalog, caller_of(request).namespace
    workflow = await find_workflow(name, request)
    version = await catalog.version(name, read_version(name, query.version), namespace=namespace)
    document = None if version is None else await catalog.document(version.digest)
    if version is None or document is None:
        raise no_version(name, query.version)
    return answer({**_workflow(workflow, version), "definition": msgspec.Raw(document)})


@router.get(
    "/v1/workflows/{name}/versions",
    operation_id="listVersions",
    responses={**answers(200, Versions), **problems(404)},
)
async def list_versions(name: str, request: Request, query: Annotated[PageQuery, Query()]) -> Response:
    """List the versions of a workflow, newest first."""
    cursor = read_cursor(query.cursor, int)
    await find_workflow(name, request)
    found = await service_of(request).ports.catalog.versions(
        name,
        namespace=caller_of(request).namespace,
        before=int(cursor[0]) if cursor else None,
        limit=query.limit + 1,
    )
    return page_of(found, query.limit, shown=_fields, place=lambda version: (version.version,))


@router.put(
    "/v1/workflows/{name}/aliases/{alias}",
    operation_id="putAlias",
    responses={**answers(200, Alias), **problems(400, 404, 413, 415, 422)},
    openapi_extra=takes(NewAlias),
)
async def put_alias(name: str, alias: str, request: Request) -> Response:
    """Let a name mean one version of a workflow from now on."""
    wanted = await read_model(request, NewAlias)
    await find_workflow(name, request)
    if not _is_alias(alias):
        message = f"must be a name like a workflow's, not a number and not {LATEST}"
        raise invalid_request([Problem("/alias", message)])
    caller = caller_of(request)
    done = await service_of(request).ports.catalog.put_alias(
        name, alias, wanted.version, namespace=caller.namespace, actor=caller.actor
    )
    if not done:
        raise no_version(name, str(wanted.version))
    return answer({"name": name, "alias": alias, "version": wanted.version})


@router.delete(
    "/v1/workflows/{name}/aliases/{alias}",
    operation_id="deleteAlias",
    status_code=204,
    responses={**answers(204, None, "the name means nothing any more"), **problems(404)},
)
async def delete_alias(name: str, alias: str, request: Request) -> Response:
    """Take a name away from a version."""
    await find_workflow(name, request)
    caller = caller_of(request)
    catalog = service_of(request).ports.catalog
    if not _is_alias(alias) or not await catalog.delete_alias(
        name, alias, namespace=caller.namespace, actor=caller.actor
    ):
        raise NotFoundError(f"workflow {name} has no alias {alias[:200]!r}")
    return no_content()


@router.delete(
    "/v1/workflows/{name}",
    operation_id="deleteWorkflow",
    status_code=204,
    responses={**answers(204, None, "no new execution starts by this name"), **problems(404)},
)
async def delete_workflow(name: str, request: Request) -> Response:
    """Let no new execution start by this name. Running ones go on, and the history stays."""
    await find_workflow(name, request)
    caller = caller_of(request)
    if not await service_of(request).ports.catalog.delete_workflow(
        name, namespace=caller.namespace, actor=caller.actor
    ):
        raise _no_workflow(name)
    return no_content()


@router.get(
    "/v1/changes",
    operation_id="listChanges",
    responses={**answers(200, Changes), **problems(422)},
)
async def list_changes(request: Request, query: Annotated[PageQuery, Query()]) -> Response:
    """List who stored and deleted workflows, moved aliases and dropped dead letters, newest first."""
    cursor = read_cursor(query.cursor, int)
    found = await service_of(request).ports.catalog.changes(
        namespace=caller_of(request).namespace,
        before=int(cursor[0]) if cursor else None,
        limit=query.limit + 1,
    )
    return page_of(
        found,
        query.limit,
        shown=lambda change: {**msgspec.structs.asdict(change), "at": rfc3339(change.at)},
        place=lambda change: (change.number,),
    )


# --- What they share.


async def find_workflow(name: str, request: Request) -> WorkflowRow:
    """Return a workflow of the caller, or raise NotFoundError."""
    # What cannot be a name is not asked for: it may hold what a database does not take.
    if NAME_PATTERN.fullmatch(name):
        catalog = service_of(request).ports.catalog
        workflow = await catalog.workflow(name, namespace=caller_of(request).namespace)
        if workflow is not None:
            return workflow
    raise _no_workflow(name)


def _no_workflow(name: str) -> NotFoundError:
    return NotFoundError(f"there is no workflow {name[:200]!r}")


def no_version(name: str, version: str) -> NotFoundError:
    """Return the error for a version that a workflow does not have."""
    return NotFoundError(f"workflow {name} has no version {version[:200]!r}")


def read_version(name: str, text: str) -> int | str:
    """Read what names a version: a number, or a name."""
    if _is_number(text) and len(text) <= _MAX_DIGITS:
        return int(text)
    if text == LATEST or _is_alias(text):
        return text
    raise no_version(name, text)


def _is_alias(text: str) -> bool:
    return text != LATEST and not _is_number(text) and NAME_PATTERN.fullmatch(text) is not None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _fields(version: Version) -> dict[str, Any]:
    return {
        "name": version.workflow,
        "version": version.version,
        "digest": version.digest,
        "created_at": rfc3339(version.created_at),
    }


def _workflow(workflow: WorkflowRow, version: Version) -> dict[str, Any]:
    return {**_fields(version), "aliases": workflow.aliases}
