"""A call to a service within its trace: the header that carries the trace, and the span of the call."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.errors import HandlerError
from weft.handlers.http.failure import HttpStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weft.handlers.contract import NativeContext
    from weft.handlers.http.outgoing import OutgoingRequest
    from weft.tracing.contract import Attributes

_HEADER = "traceparent"


@contextmanager
def traced_call(
    request: OutgoingRequest,
    context: NativeContext,
    *,
    name: str | None = None,
    attributes: Attributes | None = None,
) -> Iterator[tuple[OutgoingRequest, Callable[[Attributes], None]]]:
    """Yield the request with the header ``traceparent``, and what adds attributes to the span of the call.

    The span ends with the block, also by an exception. Without tracing there is no span, and the service is
    sent what the execution's caller sent. A config that sets the header itself keeps its own.
    """
    if context.tracing is None:
        yield _with_header(request, context.traceparent), _ignore
        return
    span = context.tracing.begin_call(
        name or request.method,
        {
            "http.request.method": request.method,
            "server.address": request.url.host,
            "server.port": request.url.port,
            # The query and the user information may hold what is secret.
            "url.full": str(request.url.with_query(None)),
            **(attributes or {}),
        },
        traceparent=context.traceparent,
    )
    try:
        yield _with_header(request, span.traceparent), span.add
    except HttpStatus as error:
        span.add({"http.response.status_code": error.status})
        span.end(error=str(error.status))
        raise
    except BaseException as error:
        # Also a timeout and a cancel, which reach a call as CancelledError.
        span.end(error=error.code if isinstance(error, HandlerError) else type(error).__name__)
        raise
    span.end()


def _with_header(request: OutgoingRequest, traceparent: str | None) -> OutgoingRequest:
    if traceparent is None or _HEADER in [name.lower() for name in request.headers]:
        return request
    return replace(request, headers={**request.headers, _HEADER: traceparent})


def _ignore(attributes: Attributes) -> None:
    """Drop the attributes: there is no span."""
