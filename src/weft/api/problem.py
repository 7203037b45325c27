"""Error responses: ``application/problem+json`` (RFC 9457), all with the same fields.

``detail`` says what a caller may know. The internal cause is in the log alone, under the ``trace_id`` of the
response.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from weft import errors
from weft.core.payload import pointer
from weft.definition.fields import kind, unknown_field
from weft.definition.suggestion import Suggester
from weft.errors import Problem
from weft.tracing.context import read_traceparent

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fastapi import FastAPI
    from starlette.requests import HTTPConnection
    from starlette.routing import BaseRoute
    from starlette.types import Scope

    from weft.tracing.context import SpanContext

log = logging.getLogger("weft.api")

MEDIA_TYPE = "application/problem+json"

# Every code there is, with the status it comes with and its title.
CODES: Mapping[str, tuple[int, str]] = {
    "bad_syntax": (400, "The body cannot be read"),
    "unauthenticated": (401, "A key is needed"),
    "forbidden": (403, "Not permitted"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "Method not allowed"),
    "not_allowed": (409, "The state forbids it"),
    "mailbox_full": (409, "The execution keeps no more signals"),
    "group_busy": (409, "The group has as many executions as may run"),
    "idempotency_conflict": (409, "The idempotency key stands for another request"),
    "too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "Unsupported media type"),
    "invalid_definition": (422, "The definition has problems"),
    "invalid_input": (422, "The input has problems"),
    "invalid_request": (422, "The request has problems"),
    "rate_limited": (429, "Too many requests"),
    "internal": (500, "Internal error"),
    "overloaded": (503, "Overloaded"),
    "unavailable": (503, "Unavailable"),
}

_RETRY_AFTER_SECONDS = 1
_TRACE_ID = "weft.trace_id"


class ProblemError(Exception):
    """A problem to answer with. ``extra`` are fields beside those that every problem has."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        problems: Sequence[Problem] = (),
        headers: Mapping[str, str] | None = None,
        **extra: object,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.problems = problems
        self.headers = dict(headers or {})
        self.extra = extra
        super().__init__(detail)


def invalid_request(problems: Sequence[Problem]) -> ProblemError:
    """Refuse a request for its fields or query parameters."""
    return ProblemError(422, "invalid_request", _counted("request", problems), problems=problems)


def store_away(detail: str) -> ProblemError:
    """Return the problem for a store that cannot be reached; ``detail`` says what that means for the call."""
    return ProblemError(503, "unavailable", detail, headers={"Retry-After": str(_RETRY_AFTER_SECONDS)})


def log_away(scope: Scope, error: errors.WeftError) -> None:
    """Write down why a request could not be served: the message may name an address, the answer does not."""
    log.warning("api.unavailable", extra={"trace_id": trace_id_of(scope), "error": str(error)})


def trace_id_of(scope: Scope) -> str:
    """Return the trace id under which the log has this request."""
    trace_id: str | None = scope.get(_TRACE_ID)
    if trace_id is None:
        caller = caller_span(scope)
        trace_id = scope[_TRACE_ID] = secrets.token_hex(16) if caller is None else caller.trace_id
    return trace_id


def caller_span(scope: Scope) -> SpanContext | None:
    """Return the span that a request belongs to, by its header ``traceparent``; None: it names none."""
    given = [value for name, value in scope["headers"] if name == b"traceparent"]
    # Several of them are none, says W3C.
    return read_traceparent(given[0].decode("latin-1")) if len(given) == 1 else None


def traceparent_of(scope: Scope) -> str | None:
    """Return the header ``traceparent`` of a request that starts something, if it is valid."""
    caller = caller_span(scope)
    return None if caller is None else caller.traceparent


def problem_response(scope: Scope, error: ProblemError) -> Response:
    """Write a problem down as the answer to a request."""
    content = {
        "type": f"/docs#problem-{error.code}",
        "title": CODES[error.code][1],
        "status": error.status,
        "code": error.code,
        "detail": error.detail,
        "instance": _instance(scope),
        "trace_id": trace_id_of(scope),
        "problems": [{"pointer": problem.pointer, "message": problem.message} for problem in error.problems],
        **error.extra,
    }
    return Response(
        msgspec.json.encode(content), status_code=error.status, headers=error.headers, media_type=MEDIA_TYPE
    )


def internal_response(scope: Scope, error: BaseException) -> Response:
    """Answer for a fault of our own: nothing of it in the answer, all of it in the log."""
    trace_id = trace_id_of(scope)
    log.error(
        "api.internal",
        exc_info=error,
        extra={"trace_id": trace_id, "method": scope["method"], "path": _instance(scope)},
    )
    detail = "something went wrong inside; the log of the server has it under the trace_id"
    return problem_response(scope, ProblemError(500, "internal", detail))


def _instance(scope: Scope) -> str:
    # As it was sent: percent-encoded, so that it is a URI reference whatever is in it.
    raw: bytes | None = scope.get("raw_path")
    return raw.decode("ascii", "replace") if raw else "/"


# --- Errors that become problems.


def to_problem(error: Exception) -> ProblemError | None:
    """Return the problem that a caller gets for an error of weft, or None for a fault of the server."""
    match error:
        case ProblemError():
            return error
        case errors.DocumentTooLargeError():
            return ProblemError(413, "too_large", f"the body has {error}")
        case errors.DocumentError():
            return ProblemError(400, "bad_syntax", str(error))
        case errors.DefinitionError():
            detail = _counted("definition", error.problems)
            return ProblemError(422, "invalid_definition", detail, problems=error.problems)
        case errors.InputError():
            detail = _counted("input", error.problems)
            return ProblemError(422, "invalid_input", detail, problems=error.problems)
        case errors.RequestError():
            return invalid_request(error.problems)
        case errors.PayloadError():
            return invalid_request([Problem("", str(error))])
        case errors.NotFoundError():
            return ProblemError(404, "not_found", str(error))
        case errors.NotAllowedError():
            return ProblemError(409, error.code, str(error), state=error.state)
        case errors.UnstorableError():
            return None
        case errors.SchemaError():
            return store_away("the schema of the database is behind this server: run `weft migrate`")
        case errors.JournalError():
            # The message may name a file or an address, so it goes to the log and not to the caller.
            return ProblemError(
                503,
                "unavailable",
                "the journal cannot be reached now; try again",
                headers={"Retry-After": str(_RETRY_AFTER_SECONDS)},
            )
        case errors.StoreError():
            return store_away("the store of live states cannot be reached now; try again")
        case RequestValidationError():
            found = [_query_fault(dict(fault)) for fault in error.errors()]
            return invalid_request(found)
        case _:
            return None


def _counted(subject: str, problems: Sequence[Problem]) -> str:
    """Sum problems up in one line; the first is often the only one."""
    if len(problems) == 1:
        return f"the {subject} has 1 problem: {problems[0]}"
    return f"the {subject} has {len(problems):,} problems"


def install(app: FastAPI) -> None:
    """Let every error that a route raises be answered as a problem."""

    async def answer_error(request: HTTPConnection, error: Exception) -> Response:
        problem = to_problem(error)
        if problem is None:
            return internal_response(request.scope, error)
        if isinstance(error, errors.JournalError | errors.StoreError):
            log_away(request.scope, error)
        return problem_response(request.scope, problem)

    async def answer_http(request: HTTPConnection, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            found = ProblemError(404, "not_found", "there is nothing at this path")
        elif error.status_code == 405:
            allow = ", ".join(methods_at(app.router.routes, request.scope))
            if request.scope["method"] == "OPTIONS":
                return Response(status_code=204, headers={"Allow": allow})
            found = ProblemError(
                405, "method_not_allowed", f"this path takes {allow}", headers={"Allow": allow}
            )
        else:  # raised by the framework itself; none of our routes does
            return internal_response(request.scope, error)
        return problem_response(request.scope, found)

    app.exception_handler(HTTPException)(answer_http)
    for kind_of_error in (ProblemError, errors.WeftError, RequestValidationError):
        app.exception_handler(kind_of_error)(answer_error)


def methods_at(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """List the methods that a path takes, all routes together.

    A path that a route names as it is, such as ``/v1/dead-letters/groups``, is none of another route's ids.
    """
    matching = [route for route in routes if route.matches(scope)[0].value]
    exact = [route for route in matching if getattr(route, "path", None) == scope["path"]]
    found = {"OPTIONS"}
    for route in exact or matching:
        methods: Collection[str] | None = getattr(route, "methods", None)
        if methods:
            found.update(methods)
    if "GET" in found:
        found.add("HEAD")
    return sorted(found)


# --- What pydantic finds wrong, in our words.

_WORDS = {
    "bool_type": "true or false",
    "dict_type": "an object",
    "int_type": "an integer",
    "list_type": "a list",
    "model_type": "an object",
    "string_type": "a string",
}


def fault_of(fault: Mapping[str, Any], fields: Collection[str] = ()) -> Problem:
    """Return pydantic's fault in a body as a problem with a pointer; ``fields``: those of the body itself."""
    path = fault["loc"]
    if path[-1:] == ("[key]",):  # it is the key itself that is wrong
        path = path[:-1]
    given, context = fault.get("input"), fault.get("ctx", {})
    match fault["type"]:
        case "missing":
            return Problem(pointer(path[:-1]), f"{path[-1]} is missing")
        case "extra_forbidden":
            known = fields if len(path) == 1 else ()
            return Problem(pointer(path), _unknown(str(path[-1]), known))
        case "value_error":
            return Problem(pointer(path), str(context["error"]))
        case "int_parsing":
            return Problem(pointer(path), f"must be an integer, not {kind(given)}")
        case "string_pattern_mismatch":
            return Problem(pointer(path), f"must match {context['pattern']}")
        case "string_too_long":
            return Problem(pointer(path), f"must have at most {context['max_length']} characters")
        case "too_short":
            return Problem(pointer(path), f"must have at least {context['min_length']} of them")
        case "too_long":
            return Problem(pointer(path), f"must have at most {context['max_length']} of them")
        case type_ if type_ in _WORDS:
            return Problem(pointer(path), f"must be {_WORDS[type_]}, not {kind(given)}")
        case _:
            return Problem(pointer(path), _in_our_words(fault["msg"]))


def _query_fault(fault: Mapping[str, Any]) -> Problem:
    # ("query", "limit"): where it was looked for, then its name.
    path = fault["loc"][1:]
    if fault["type"] == "extra_forbidden":
        return Problem(pointer(path), "there is no such query parameter")
    return fault_of({**fault, "loc": path})


def _unknown(name: str, fields: Collection[str]) -> str:
    return unknown_field(name, fields, Suggester()) if fields else "unknown field"


def _in_our_words(message: str) -> str:
    message = message.removeprefix("Value error, ").replace("Input should be", "must be")
    return message[:1].lower() + message[1:]
