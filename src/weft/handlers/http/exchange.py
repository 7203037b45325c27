"""Sends a request and returns the whole response. Each redirect is checked as the first URL was."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

import aiohttp
from yarl import URL

from weft.handlers.contract import BadConfig
from weft.handlers.http.failure import (
    BadResponse,
    HttpStatus,
    NetworkError,
    is_retryable,
    read_retry_after,
)
from weft.handlers.http.outgoing import OutgoingRequest, read_url, same_origin, spelled_address
from weft.handlers.http.response import Received, headers_of, read_body, read_excerpt
from weft.open_files import OutOfFilesError, has_free_file, is_exhausted

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from weft.handlers.http.outbound import Outbound

MAX_REDIRECTS = 5

_REDIRECTS = frozenset({301, 302, 303, 307, 308})


async def exchange(
    request: OutgoingRequest,
    outbound: Outbound,
    *,
    is_success: Callable[[int], bool],
    trusted: bool = False,
) -> Received:
    """Send a request and give the response, or raise the HandlerError that says why there is none.

    ``trusted``: the operator named the URL, so the guard does not watch it. It watches again where a
    redirect leads elsewhere.
    """
    for hop in range(MAX_REDIRECTS + 1):
        try:
            answer = await _send(request, outbound, is_success=is_success, trusted=trusted)
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError, of the connection, is an OSError
            if _is_out_of_files(error):
                raise OutOfFilesError("call", began=hop > 0) from None
            raise _failure(request, error) from None
        if isinstance(answer, Received):
            return answer
        status, target = answer
        trusted = trusted and same_origin(request.url, target)
        request = request.redirected(status, target)
    raise HttpStatus(f"{request.shown}: more than {MAX_REDIRECTS} redirects", status=status, retryable=False)


async def _send(
    request: OutgoingRequest, outbound: Outbound, *, is_success: Callable[[int], bool], trusted: bool
) -> Received | tuple[int, URL]:
    """Return the response of one request, or the status and target of a redirect, or raise HttpStatus."""
    async with _sent(request, outbound, trusted=trusted) as response:
        status = response.status
        if is_success(status):
            body = await read_body(response, outbound)
            return Received(status, headers_of(response), body, request.url)
        location = response.headers.get("Location")
        if status in _REDIRECTS and location is not None:
            return status, _target(request, status, location)
        retryable = is_retryable(status)
        raise HttpStatus(
            f"{request.shown} answered {_named(status)}",
            status=status,
            retryable=retryable,
            retry_after_seconds=read_retry_after(
                response.headers.get("Retry-After") if retryable else None, now=outbound.clock.now()
            ),
            body=await read_excerpt(response, outbound),
        )


async def post_once(
    request: OutgoingRequest, outbound: Outbound, *, trusted: bool, given_up_at: frozenset[int]
) -> None:
    """Send a request whose response says no more than whether it was taken; redirects are not followed.

    Raises a HandlerError, whose message does not name the URL, for every status but 2xx: one that may be
    tried again, but for the statuses ``given_up_at``.
    """
    try:
        async with _sent(request, outbound, trusted=trusted) as response:
            # The body is not read: the connection is closed, however long the body is.
            status, retry_after = response.status, response.headers.get("Retry-After")
    except (aiohttp.ClientError, OSError) as error:
        kind, reason = _reason(request, error)
        raise kind(f"the receiver could not be reached: {reason}") from None
    if not is_success_status(status):
        raise HttpStatus(
            f"the receiver answered {_named(status)}",
            status=status,
            retryable=status not in given_up_at,
            retry_after_seconds=read_retry_after(retry_after, now=outbound.clock.now()),
        )


def _sent(
    request: OutgoingRequest, outbound: Outbound, *, trusted: bool
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    """Send a request, whose redirects are not followed; the guard checks where it goes unless ``trusted``."""
    if not trusted:
        # aiohttp does not look up what is an address already.
        address = spelled_address(request.url)
        if address is not None:
            outbound.guard.check_address(address, request.url.port or 0)
    session = outbound.trusted() if trusted else outbound.guarded()
    return session.request(
        request.method, request.url, headers=request.headers, data=request.body, allow_redirects=False
    )


def is_success_status(status: int) -> bool:
    return 200 <= status <= 299


def _target(request: OutgoingRequest, status: int, location: str) -> URL:
    try:
        if "://" not in location.partition("?")[0]:
            location = str(request.url.join(URL(location)))
        return read_url(location)
    except (BadConfig, ValueError) as error:
        raise HttpStatus(
            f"{request.shown} redirects to what cannot be called: {error}", status=status, retryable=False
        ) from None


def _is_out_of_files(error: Exception) -> bool:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        # The resolver of the system does not say why it could not open its files.
        return not has_free_file()
    return is_exhausted(error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error)


def _failure(request: OutgoingRequest, error: Exception) -> NetworkError | BadResponse:
    kind, reason = _reason(request, error)
    return kind(f"{request.shown}: {reason}")


def _reason(request: OutgoingRequest, error: Exception) -> tuple[type[NetworkError | BadResponse], str]:
    """Return the kind of an aiohttp error, and its reason: its own text would repeat the URL."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            reason = f"the name {request.url.host} cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            reason = f"the certificate does not hold: {error.certificate_error}"
        case aiohttp.ClientConnectorError():
            reason = f"no connection: {error.os_error.strerror or 'refused or unreachable'}"
        case aiohttp.ServerDisconnectedError():
            reason = "the connection was closed before the response came"
        case aiohttp.ClientPayloadError():
            reason = "the connection broke in the middle of the response"
        case aiohttp.ClientResponseError():
            # The lines behind the first repeat what came.
            reason = error.message.partition("\n")[0].rstrip(": ")
            return BadResponse, f"the response is not HTTP: {reason}"
        case TimeoutError():
            reason = "no connection in time"
        case OSError():
            reason = f"the connection broke: {error.strerror or 'no reason was given'}"
        case _:
            reason = type(error).__name__
    return NetworkError, reason


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
