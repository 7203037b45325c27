"""Identifies the caller of a request: a key, or anybody on this machine where no keys are set.

Access is denied unless something grants it. A route is open to all only where its endpoint is marked
``@open_to_all``; the mark is looked up on the very route that will serve the request, never by its path.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.routing import BaseRoute, Match, Route

from weft.api.caller import ApiCaller
from weft.api.problem import ProblemError
from weft.api.session_token import SessionTokens
from weft.errors import SettingsError
from weft.journal.contract import DEFAULT_NAMESPACE, LOCAL_ACTOR
from weft.telemetry import OTHER

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Address

    from starlette.requests import HTTPConnection
    from starlette.types import Scope

    from weft.api.session_token import ConsoleSession
    from weft.logs import RateLimitedLog
    from weft.settings import Settings

# Longer ones are no keys of anybody, and are not worth a hash.
_MAX_CREDENTIALS = 1024
# Whatever else is sent as a method is not worth a time series.
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "OPTIONS"})
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_CALLER = "weft.caller"
_SESSION = "weft.session"
SESSION_COOKIE = "weft_session"

_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])
_open: set[Callable[..., Any]] = set()
_takes_key: set[Callable[..., Any]] = set()
_signed: set[Callable[..., Any]] = set()


# Without keys only this machine is let in. Everybody on it is one caller.
ANYBODY = ApiCaller(DEFAULT_NAMESPACE, LOCAL_ACTOR, "anybody")


def caller_of(request: HTTPConnection) -> ApiCaller:
    """Return the caller that sent a request; on an open route, an unknown caller is ``ANYBODY``."""
    caller: ApiCaller = request.scope[_CALLER]
    return caller


def session_of(request: HTTPConnection) -> ConsoleSession | None:
    """Return the session by which the caller is known; None: known by an API key, or not at all."""
    session: ConsoleSession | None = request.scope[_SESSION]
    return session


def open_to_all(endpoint: _Endpoint) -> _Endpoint:
    """Let a route be served without a key, and apart from the rate limit of the keys."""
    _open.add(endpoint)
    return endpoint


def takes_a_key(endpoint: _Endpoint) -> _Endpoint:
    """Let a route be served to callers without a key, which it reads itself: limited as wrong keys are."""
    _takes_key.add(endpoint)
    return open_to_all(endpoint)


def is_signed_by(endpoint: _Endpoint) -> _Endpoint:
    """Let a route be served without a key, because it checks a signature of the request itself."""
    _signed.add(endpoint)
    return open_to_all(endpoint)


def checks_a_signature(route: BaseRoute) -> bool:
    """True if a route checks the signature of a request, which stands for a key."""
    return getattr(route, "endpoint", None) in _signed


def signed_prefixes(routes: Sequence[BaseRoute]) -> tuple[str, ...]:
    """Return how the paths of the routes begin that check a signature: a name follows."""
    signed = [route for route in routes if isinstance(route, Route) and checks_a_signature(route)]
    return tuple(route.path.partition("{")[0] for route in signed)


def is_open(route: BaseRoute) -> bool:
    """True if a route is served without an API key."""
    return getattr(route, "endpoint", None) in _open


def reads_a_key(route: BaseRoute) -> bool:
    """True if a route looks at an API key itself, so that calling it is a way to guess one."""
    return getattr(route, "endpoint", None) in _takes_key


def paths_of_open_routes(routes: Sequence[BaseRoute]) -> frozenset[str]:
    """Return the paths of the open routes. None of them has a parameter, so each is one exact path.

    A route that serves many files has them as its ``open_paths``; ``signed_prefixes`` has those with a name.
    """
    opened = [
        route
        for route in routes
        if isinstance(route, Route) and is_open(route) and not checks_a_signature(route)
    ]
    return frozenset().union(*(getattr(route, "open_paths", (route.path,)) for route in opened))


def open_route_of(routes: Sequence[BaseRoute], scope: Scope) -> BaseRoute | None:
    """Return the route that will serve this request, the first one that matches, if that route is open."""
    found = next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
    return found if found is not None and is_open(found) else None


def route_path(routes: Sequence[BaseRoute], scope: Scope) -> str | None:
    """Return the path of the route that would serve a request, parameters by name; None: no route."""
    found = next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)
    return getattr(found, "path", None)


# --- Keys.


class ApiKeys:
    """The keys that are accepted. Only their hashes are kept."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._callers = [
            (_digest(key.encode()), ApiCaller(DEFAULT_NAMESPACE, name := fingerprint(key), name))
            for key in keys
        ]
        self.sessions = SessionTokens(self._callers)

    def __bool__(self) -> bool:
        return bool(self._callers)

    def identify(self, headers: Sequence[tuple[bytes, bytes]]) -> ApiCaller | None:
        """Find the caller whose key is in the headers of a request; None: the key is unknown."""
        given = [value for name, value in headers if name == b"authorization"]
        # Two of them are two claims, and a proxy may have checked the other one.
        if len(given) != 1 or len(given[0]) > _MAX_CREDENTIALS:
            return None
        scheme, _, key = given[0].partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self.find(key.strip(b" "))

    def find(self, key: bytes) -> ApiCaller | None:
        """Find the caller whose key this is; None: the key is unknown."""
        digest = _digest(key)
        found = None
        # All are compared, whichever it is: the time tells nothing about how near a guess came.
        for known, caller in self._callers:
            if hmac.compare_digest(known, digest):
                found = caller
        return found

    def session(self, headers: Sequence[tuple[bytes, bytes]], *, now_seconds: int) -> ConsoleSession | None:
        """Find the session whose cookie is in the headers of a request; None: there is none that is good."""
        if any(name == b"authorization" for name, _ in headers):
            # A caller that sends a key, also a wrong one, is judged by the key alone.
            return None
        given = [
            value.strip()
            for name, line in headers
            if name == b"cookie"
            for pair in line.decode("latin-1").split(";")
            for key, _, value in (pair.partition("="),)
            if key.strip() == SESSION_COOKIE
        ]
        # Of two, one may have been set by a neighbour of this host name.
        return self.sessions.read(given[0], now_seconds=now_seconds) if len(given) == 1 else None


def require_csrf(scope: Scope) -> None:
    """Raise if a request changes something on the word of a cookie alone, which a browser sends by itself."""
    session: ConsoleSession = scope[_SESSION]
    given = [value for name, value in scope["headers"] if name == b"x-csrf-token"]
    if len(given) != 1 or not hmac.compare_digest(given[0], session.csrf.encode()):
        raise ProblemError(
            403, "forbidden", "send the csrf of GET /v1/session as X-CSRF-Token, or a key as Authorization"
        )


def set_caller(scope: Scope, caller: ApiCaller, session: ConsoleSession | None) -> None:
    """Keep the caller of a request in its scope, and the session that identifies the caller."""
    scope[_CALLER], scope[_SESSION] = caller, session


def is_safe(scope: Scope) -> bool:
    """True if the method of a request changes nothing."""
    return scope["method"] in _SAFE_METHODS


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def fingerprint(key: str) -> str:
    """Name a key in history and log. Too short to find the key from it, long enough to tell a few apart."""
    return "key-" + hashlib.blake2b(key.encode(), digest_size=4, person=b"weft actor").hexdigest()


def unauthenticated(
    detail: str = "send a key of this server as Authorization: Bearer KEY",
) -> ProblemError:
    return ProblemError(
        401,
        "unauthenticated",
        detail,
        headers={"WWW-Authenticate": 'Bearer realm="weft"'},
    )


def log_refusal(log: RateLimitedLog, scope: Scope, *, reason: str, route: str) -> None:
    """Log the address and path of a refused request, at most every few seconds; never its key."""
    client = scope.get("client")
    log.warning(
        "api.key_refused",
        reason=reason,
        address=client[0] if client else "local socket",
        method=scope["method"] if scope["method"] in METHODS else OTHER,
        route=route,
    )


# --- Without keys: this machine alone.


def check_bind(host: str, settings: Settings) -> None:
    """Return if the API may listen on this host; raises SettingsError where that would be open to others."""
    if not settings.api_keys and not is_this_machine(host):
        raise SettingsError(
            f"{host} can be reached from other machines, and no key is set that would keep others out: set "
            "WEFT_API_KEYS (or WEFT_API_KEYS_FILE), or listen on 127.0.0.1"
        )


def is_this_machine(host: str) -> bool:
    """True if a host name or an address belongs to the loopback interface."""
    name = host.lower().rstrip(".").removeprefix("[").removesuffix("]")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def refuse_foreign_pages(scope: Scope) -> None:
    """Raise where a web page of somebody else may be behind a request that needs no key.

    A page can let the user's browser call a server on the user's machine. It gets at the answers where its
    own name leads to this machine (DNS rebinding): then the Host header has that name. It can also send
    what it may not read: then the Origin header has its name.
    """
    hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
    for host in hosts:
        if not is_this_machine(_without_port(host)):
            detail = f"without keys this server answers to localhost alone, not to {host[:200]!r}"
            raise ProblemError(403, "forbidden", detail)
    if scope["method"] not in _SAFE_METHODS:
        for name, value in scope["headers"]:
            if name == b"origin" and value.decode("latin-1").partition("://")[2] not in hosts:
                raise ProblemError(403, "forbidden", "a page of another origin may not send this")


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0]
    return host.partition(":")[0]


def peer_of(scope: Scope) -> str | None:
    """Name whoever sent a request by the address it came from; None: from this machine.

    Headers such as X-Forwarded-For say what their sender likes, so they are not asked.
    """
    client = scope.get("client")
    if client is None:  # a socket in the file system
        return None
    address = _address(client[0])
    return None if address is not None and address.is_loopback else address_group(client[0])


def address_group(host: str) -> str:
    """Return the address that counts as one caller: of IPv6 the network that a household has."""
    address = _address(host)
    if isinstance(address, IPv6Address):
        # There are 2**64 addresses in it to choose from.
        return str(ip_network((address, 64), strict=False))
    return host if address is None else str(address)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
