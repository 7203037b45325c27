"""The OpenAPI document: what FastAPI reads off the routes, and what holds for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from weft.api.auth import SESSION_COOKIE, is_open
from weft.api.schema import NAMED, example_of, problems

if TYPE_CHECKING:
    from fastapi import FastAPI

_DESCRIPTION = """\
Workflows are DAGs of nodes; an execution is one run of one version of a workflow. Lists come in pages:
`limit` items, and `next_cursor` for the next page. Every error is a problem (RFC 9457) with a `code`."""

_TAGS = {
    "workflows": "Definitions, their versions, and names for versions",
    "executions": "Runs of workflows: start, look, steer",
    "waits": "Nodes that wait for an answer, answers and signals",
    "events": "What happens: as a history, and as it happens",
    "logs": "What nodes print and log",
    "batches": "Many executions as one",
    "triggers": "What starts executions by itself: schedules, inbound events, webhooks",
    "dead letters": "Nodes that failed for good",
    "fleet": "Workers and queues, and everything at a glance",
    "session": "Signing a browser in: a cookie instead of a key",
    "health": "Whether this server is alive and ready, and its numbers",
    "pages": "This document, and pages for people",
}


def describe(app: FastAPI) -> dict[str, Any]:
    """Write the document of an application."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=_DESCRIPTION,
        routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
    )
    open_operations = {getattr(route, "operation_id", None) for route in app.routes if is_open(route)}
    for path in document["paths"].values():
        for operation in path.values():
            _complete(operation, is_open=operation["operationId"] in open_operations)
    components = document.setdefault("components", {})
    components["schemas"] = {
        name: model
        for name, model in sorted({**components.get("schemas", {}), **_models()}.items())
        if name not in ("HTTPValidationError", "ValidationError")
    }
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "needed where WEFT_API_KEYS is set"},
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": SESSION_COOKIE,
            "description": "of a browser that is signed in; what is not a `GET` needs `X-CSRF-Token` too",
        },
    }
    # Without keys none is asked for: the empty alternative.
    document["security"] = [{"key": []}, {"session": []}, {}]
    return document


def _complete(operation: dict[str, Any], *, is_open: bool) -> None:
    """Add what every route may answer, whatever it declares itself."""
    declared = operation["responses"]
    # FastAPI's own notion of a bad parameter, which is not what the problem handler makes of it.
    validation = declared.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if "HTTPValidationError" in validation.get("$ref", ""):
        del declared["422"]
    always = [403, 429, 500, 503] if is_open else [401, 403, 429, 500, 503]
    if any(parameter["in"] == "query" for parameter in operation.get("parameters", ())):
        always.append(422)
    if "requestBody" in operation:
        always += [400, 413, 415, 422]
    for status, response in problems(*always).items():
        declared.setdefault(str(status), response)
    operation["responses"] = dict(sorted(declared.items()))
    for declared_body in (operation.get("requestBody", {}), *declared.values()):
        for content in declared_body.get("content", {}).values():
            _give_example(content)
    if is_open:
        operation["security"] = []


def _give_example(content: dict[str, Any]) -> None:
    """Restore the example of a model: FastAPI has removed every null from the example."""
    model = NAMED.get(content.get("schema", {}).get("$ref", "").rpartition("/")[2])
    if model is not None and "example" in content:
        content["example"] = example_of(model)


def _models() -> dict[str, Any]:
    """Return the schemas of all models that routes refer to by name, with the schemas behind those."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in NAMED.values()],
        ref_template="#/components/schemas/{model}",
    )
    found: dict[str, Any] = definitions["$defs"]
    # The class has another name than the schema: errors.Problem is there already.
    found["Problem"] = found.pop("ProblemShape")
    for name, schema in found.items():
        schema["title"] = name
    return found
