"""Sessions of browsers: whoever signs in with an API key is known by a cookie from then on.

A page must not keep an API key where a script could read it. So the key is sent once, and the browser keeps
a cookie that no script reads and no other site sends. A call that changes something also needs the session's
CSRF token in a header, which only a page of this server can read.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request, Response

from weft.api.answer import answer
from weft.api.auth import (
    ANYBODY,
    SESSION_COOKIE,
    caller_of,
    log_refusal,
    open_to_all,
    require_csrf,
    session_of,
    takes_a_key,
    unauthenticated,
)
from weft.api.body import JSON, read_model
from weft.api.problem import ProblemError
from weft.api.schema import answers, problems, takes
from weft.api.schema_console import SessionState, SignIn
from weft.api.service import service_of
from weft.api.session_token import SESSION_SECONDS
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from weft.api.session_token import ConsoleSession

log = logging.getLogger("weft.api")

router = APIRouter(tags=["session"])

# A key has 500 characters at most. Whoever sends more has none, and is not listened to.
_MAX_BODY_BYTES = 4096
_SET_COOKIE = {"Set-Cookie": {"schema": {"type": "string"}, "description": "the session"}}


@router.get("/v1/session", operation_id="getSession", responses=answers(200, SessionState))
@open_to_all
async def get_session(request: Request) -> Response:
    """Show whether this server has API keys, and who the caller is."""
    caller, session = caller_of(request), session_of(request)
    is_known = caller is not ANYBODY or not service_of(request).settings.api_keys
    return _answer(request, session, name=caller.name if is_known else None)


@router.post(
    "/v1/session",
    operation_id="signIn",
    responses={
        **answers(200, SessionState, "signed in for 12 hours", headers=_SET_COOKIE),
        **problems(401, 409),
    },
    openapi_extra=takes(SignIn, only_json=True),
)
@takes_a_key
async def sign_in(request: Request) -> Response:
    """Sign a browser in with an API key. The cookie it gets stands for the key, for 12 hours.

    Calls that are not `GET` need the `csrf` of the answer as `X-CSRF-Token` then.
    """
    service = service_of(request)
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ProblemError(403, "forbidden", "a page of another site may not sign in here")
    if not service.keys:
        raise ProblemError(409, "not_allowed", "this server has no API keys, so nobody needs to sign in")
    given = await read_model(request, SignIn, media=JSON, max_bytes=_MAX_BODY_BYTES)
    caller = service.keys.find(given.key.strip().encode())
    if caller is None:
        log_refusal(service.rate_limited_log, request.scope, reason="unknown", route="/v1/session")
        raise unauthenticated("this server has no such API key (WEFT_API_KEYS)")
    token, session = service.keys.sessions.sign(caller, now_seconds=service.ports.clock.now() // MICROSECONDS)
    log.info("api.signed_in", extra={"actor": caller.actor, "address": _address(request)})
    response = _answer(request, session, name=caller.name)
    _set_cookie(response, request, token, max_age=SESSION_SECONDS)
    return response


@router.delete(
    "/v1/session",
    operation_id="signOut",
    responses=answers(200, SessionState, "signed out", headers=_SET_COOKIE),
)
@open_to_all
async def sign_out(request: Request) -> Response:
    """Sign a browser out: it forgets the cookie."""
    if session_of(request) is not None:
        require_csrf(request.scope)
    response = _answer(request, None, name=None if service_of(request).keys else ANYBODY.name)
    _set_cookie(response, request, "", max_age=0)
    return response


def _answer(request: Request, session: ConsoleSession | None, *, name: str | None) -> Response:
    return answer(
        {
            "keys": bool(service_of(request).keys),
            "signed_in": session is not None,
            "csrf": None if session is None else session.csrf,
            "name": name,
        }
    )


def _set_cookie(response: Response, request: Request, value: str, *, max_age: int) -> None:
    # A proxy speaks TLS for this server. The browser says by Origin what the page came by; whoever forges it
    # changes only its own cookie.
    is_encrypted = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
    response.set_cookie(
        SESSION_COOKIE,
        value,
        max_age=max_age,
        path="/",
        secure=is_encrypted,
        httponly=True,
        samesite="strict",
    )


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else "local socket"
