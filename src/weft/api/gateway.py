"""ASGI middleware around every route: request id, authentication, rate limit, concurrency, headers.

In this order. Behind the route the middleware adds the headers that every answer has, and answers where the
route broke. The middleware is plain ASGI, so a stream passes through as it comes.
"""

from __future__ import annotations

from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect

from weft.api.auth import (
    ANYBODY,
    METHODS,
    address_group,
    checks_a_signature,
    is_safe,
    log_refusal,
    open_route_of,
    paths_of_open_routes,
    peer_of,
    reads_a_key,
    refuse_foreign_pages,
    require_csrf,
    route_path,
    set_caller,
    signed_prefixes,
    unauthenticated,
)
from weft.api.connection import connection_of
from weft.api.load import OverloadedError, RequestLoad, current_caller
from weft.api.problem import ProblemError, internal_response, problem_response
from weft.core.time import MICROSECONDS
from weft.errors import StoreError
from weft.limits.memory import MemoryLimits
from weft.settings import RateLimit
from weft.telemetry import OTHER
from weft.validator.asker import current_asker

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from weft.api.caller import ApiCaller
    from weft.api.service import Service

# A browser shows and runs only what this server sends itself, and nobody frames it.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
)
# Headers of every answer whose route does not set them itself.
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_CLOSE = (b"connection", b"close")
# An answer up to this size is sent at once.
_PIECE_BYTES = 256 * 1024
# Probes of a load balancer and of a node's kubelet are far below it.
OPEN_RATE = RateLimit(600, 60.0)
# Events that are sent here count by a limit of their own.
EVENTS_PATH = "/v1/events"


class Gateway:
    """Stands before the routes of one application."""

    def __init__(self, app: ASGIApp, *, service: Service, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._service = service
        self._routes = routes
        # Most requests go elsewhere, and asking each route whether it matches costs tens of microseconds.
        self._open_paths = paths_of_open_routes(routes)
        self._signed_prefixes = signed_prefixes(routes)
        self._keys = service.keys
        # While the fleet's own counts cannot be reached, each process counts for itself.
        self._own_limits = MemoryLimits({}, now=service.ports.clock.now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:  # there is no route for WebSockets, so nobody is let in by one
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope["method"] == "HEAD"
        if head:
            # Whatever a GET would answer, without its content.
            scope = {**scope, "method": "GET"}
        answers = _Answers(self._counting(scope, send), head=head, stopping=self._service.stopping)
        request_load: RequestLoad | None = None
        try:
            caller, open_route = await self._let_in(scope)
            is_known = caller is not ANYBODY
            name = caller.name if is_known else _address(scope)
            if is_known and (connection := connection_of(scope)) is not None:
                connection.identify(name)
            _refuse_unstorable(scope)
            current_caller.set(name)
            current_asker.set(name)
            request_load = scope["weft.request_load"] = RequestLoad(
                self._service.load,
                name,
                is_open=open_route is not None,
                is_unproven=open_route is not None and _reads_a_proof(open_route),
            )
            answers.request_load = request_load
            await self._app(scope, receive, answers.send)
        except (ClientDisconnect, _AnsweredError):
            pass  # nobody is there to be answered, or nothing is left to say
        except ProblemError as error:
            await self._answer(problem_response(scope, error), scope, receive, answers)
        except _NoRoomError as error:
            await self._answer(problem_response(scope, error.problem), scope, receive, answers)
        except Exception as error:
            response = internal_response(scope, error)
            if answers.started:
                # Too late to say so; an answer that breaks off is not mistaken for a whole one.
                raise
            await self._answer(response, scope, receive, answers)
        finally:
            if request_load is not None:
                request_load.leave()

    def _counting(self, scope: Scope, send: Send) -> Send:
        """Count the request when its answer begins: by then the route that serves it is known."""
        metrics, now = self._service.metrics, self._service.ports.clock.now
        began_at = now()

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                metrics.answered(
                    route=getattr(scope.get("route"), "path", OTHER),
                    method=scope["method"] if scope["method"] in METHODS else OTHER,
                    status=message["status"],
                    microseconds=now() - began_at,
                )
            await send(message)

        return counting

    @staticmethod
    async def _answer(response: Response, scope: Scope, receive: Receive, answers: _Answers) -> None:
        with suppress(_AnsweredError):
            await response(scope, receive, answers.send)

    async def _let_in(self, scope: Scope) -> tuple[ApiCaller, BaseRoute | None]:
        """Return the caller, and the route where it is open to all, or raise if the caller is refused."""
        open_route = None
        path: str = scope["path"]
        if path in self._open_paths or path.startswith(self._signed_prefixes):
            open_route = open_route_of(self._routes, scope)
        caller, session = ANYBODY if not self._keys else None, None
        if self._keys:
            caller = self._keys.identify(scope["headers"])
            session = self._keys.session(
                scope["headers"], now_seconds=self._service.ports.clock.now() // MICROSECONDS
            )
            if session is not None:
                caller = session.caller
        elif open_route is None or not checks_a_signature(open_route):
            # A service outside knows this server by whatever name leads to it; a page has no signature.
            refuse_foreign_pages(scope)
        set_caller(scope, caller or ANYBODY, session)
        if open_route is not None and checks_a_signature(open_route):
            await self._limit_events(scope, f"hooks/{peer_of(scope)}")
            return caller or ANYBODY, open_route
        if open_route is not None:
            await self._limit_open_rate(scope)
            if reads_a_key(open_route):
                await self._limit_rate(scope, None)
            return caller or ANYBODY, open_route
        if caller is None:
            self._log_refusal(scope)
        if caller is not None and scope["method"] == "POST" and path == EVENTS_PATH:
            who = peer_of(scope) if caller is ANYBODY else caller.actor
            await self._limit_events(scope, f"events/{who}")
        else:
            # Before a bad key is refused: guesses of keys count too.
            await self._limit_rate(scope, caller, by_session=session is not None)
        if caller is None:
            raise unauthenticated()
        if session is not None and not is_safe(scope):
            require_csrf(scope)
        return caller, None

    def _log_refusal(self, scope: Scope) -> None:
        given = any(name == b"authorization" for name, _ in scope["headers"])
        log_refusal(
            self._service.rate_limited_log,
            scope,
            reason="unknown" if given else "missing",
            route=route_path(self._routes, scope) or OTHER,
        )

    async def _limit_rate(self, scope: Scope, caller: ApiCaller | None, *, by_session: bool = False) -> None:
        rate = self._service.settings.api_rate_limit
        peer = peer_of(scope)
        if rate is None or peer is None:
            return
        who = peer if caller is None or caller is ANYBODY else caller.actor
        if by_session:
            # A person who looks at pages does not use up what programs with the same key may ask.
            who += "/session"
        await self._hit(f"api/{who}", rate)

    async def _limit_events(self, scope: Scope, name: str) -> None:
        """Bound the events and webhooks that a caller may send, apart from the limit of other calls."""
        rate = self._service.settings.event_rate_limit
        if rate is not None and peer_of(scope) is not None:
            await self._hit(name, rate)

    async def _hit(self, name: str, rate: RateLimit) -> None:
        window = rate.per_seconds
        try:
            wait = await self._service.ports.limits.hit(name, limit=rate.requests, window_seconds=window)
        except StoreError:
            wait = await self._own_limits.hit(name, limit=rate.requests, window_seconds=window)
        _refuse_rate(rate, wait)

    async def _limit_open_rate(self, scope: Scope) -> None:
        """Bound what an address may ask of the routes that are open to all, in this process alone."""
        peer = peer_of(scope)
        if self._service.settings.api_rate_limit is not None and peer is not None:
            rate = OPEN_RATE
            _refuse_rate(
                rate,
                await self._own_limits.hit(
                    f"open/{peer}", limit=rate.requests, window_seconds=rate.per_seconds
                ),
            )


def _reads_a_proof(open_route: BaseRoute) -> bool:
    return checks_a_signature(open_route) or reads_a_key(open_route)


def _refuse_rate(rate: RateLimit, wait: float) -> None:
    if wait > 0:
        raise ProblemError(
            429,
            "rate_limited",
            f"more than {rate.requests:,} requests in {rate.per_seconds:g} s",
            headers={"Retry-After": str(ceil(wait))},
        )


def _address(scope: Scope) -> str:
    """Name a caller without a key: by its address, this machine's included."""
    client = scope.get("client")
    return "local" if client is None else address_group(client[0])


def _refuse_unstorable(scope: Scope) -> None:
    """Raise if the path holds a NUL character, which PostgreSQL takes in no text.

    No name and no id has one, so such a path leads nowhere. The gateway decides it for every route and every
    journal alike; a journal would answer by its own rules. Bytes that are not UTF-8 need no such check,
    because the server has replaced them.
    """
    if "\0" in scope["path"]:
        raise ProblemError(404, "not_found", "no name and no id holds a NUL character, and this path does")


class _AnsweredError(Exception):
    """Ends what answers a HEAD: its content, which may be a stream without an end, is asked for by nobody."""


class _NoRoomError(Exception):
    """Ends an answer for which there is no room. The routes' handlers of errors let it pass.

    They could not answer with the problem itself: for them the answer has begun.
    """

    def __init__(self, problem: ProblemError) -> None:
        self.problem = problem
        super().__init__(problem.detail)


class _Answers:
    """Sends an answer on, with what every answer has.

    A large answer is sent in pieces, each when the caller has read most of those before, and takes up room
    of the caller's share until then: callers that do not read could fill the memory.
    """

    def __init__(self, send: Send, *, head: bool, stopping: asyncio.Event) -> None:
        self._send = send
        self._stopping = stopping
        self.head = head
        self.started = False
        self.request_load: RequestLoad | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            if self.request_load is not None and not self.head:
                _hold_answer(self.request_load, headers)
            self.started = True
            own = {name for name, _ in headers}
            headers += [header for header in _HEADERS if header[0] not in own]
            if self._stopping.is_set():
                # A caller who kept the connection would be cut off when the process ends.
                headers.append(_CLOSE)
            await self._send({**message, "headers": headers})
            if self.head:
                await self._send({"type": "http.response.body"})
                raise _AnsweredError
        elif len(message.get("body", b"")) <= _PIECE_BYTES:
            await self._send(message)
        else:
            body = memoryview(message["body"])
            for start in range(0, len(body), _PIECE_BYTES):
                end = start + _PIECE_BYTES
                more = end < len(body) or message.get("more_body", False)
                await self._send({**message, "body": bytes(body[start:end]), "more_body": more})


def _hold_answer(request_load: RequestLoad, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Take up room for an answer that is sent in pieces, or raise _NoRoomError."""
    for name, value in headers:
        if name == b"content-length" and int(value) > _PIECE_BYTES:
            # The route has returned: of what it made, or was given, the text of the answer is left.
            request_load.release_values()
            try:
                request_load.hold(int(value))
            except OverloadedError as error:
                raise _NoRoomError(error) from None
