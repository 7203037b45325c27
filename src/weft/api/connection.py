"""One connection to the API: the bounds of a request's head, and the time that each phase of a request has.

The connection keeps the head of a request until it hands the request to the application, and knows nothing of
the caller until then. So the size of the head, and the time in which it has to arrive, are bounded here. So
are the rest of a body that no route reads, the time that a caller takes to read a response, and the idle time
between two requests. ``body.py`` bounds the body.
"""

from __future__ import annotations

from enum import Enum, auto
from math import inf
from typing import TYPE_CHECKING, Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.api.auth import address_group
from weft.api.problem import CODES, MEDIA_TYPE

if TYPE_CHECKING:
    import asyncio

    from starlette.types import Scope

    from weft.api.connection_table import ConnectionTable

# The path with its query, and all headers together.
MAX_HEAD_BYTES = 64 * 1024
# A head comes in one piece, or nearly so; a client that takes longer only wants to keep the connection.
HEAD_SECONDS = 20.0
# Between two requests. Clients keep idle connections for less: it is they who let go, and never in the moment
# of a request. Where keys are set, a connection that has shown none has less: it may be anybody's.
IDLE_SECONDS = 75.0
ANONYMOUS_IDLE_SECONDS = 30.0
# The rest of a body after an early answer is read and dropped, so that the caller, who still sends, can read
# the answer. Whoever sends for longer has had the time to read it.
LEFTOVER_SECONDS = 10.0
# A caller reads at least so many bytes of an answer in so many seconds, or is hung up on.
UNREAD_SECONDS = 60.0
MIN_READ_BYTES = 64 * 1024
# A connection that is closed may still send what is written, for so long.
LINGER_SECONDS = 10.0
# What the loop reads at once. So much may have come before anybody counts.
_READ_BYTES = 256 * 1024

_CONNECTION = "weft.connection"


class _Phase(Enum):
    """The phase of a connection; each phase but the first has a time limit."""

    # A request is worked on: its time is that of its route.
    REQUEST = auto()
    HEAD = auto()
    LEFTOVER = auto()
    IDLE = auto()
    CLOSING = auto()


class ClientConnection(HttpToolsProtocol):
    """uvicorn's, with bounds."""

    _head_bytes = 0
    # What has come since the parser last said a word: part of a header or trailer that does not end.
    _silent_bytes = 0
    _phase = _Phase.HEAD
    # When the phase is over, by the loop's clock.
    _phase_ends_at = inf
    _is_body_complete = True
    # While the caller reads too slowly: what it had not read at the last look, and when the next look is.
    _unread_bytes = 0
    _unread_ends_at = inf
    address = ""
    caller: str | None = None

    def __init__(self, *, table: ConnectionTable, **uvicorn: Any) -> None:
        """``table``: the connections of this server."""
        super().__init__(**uvicorn)
        self.table = table

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = address_group(self.client[0]) if self.client else "a socket in the file system"
        if self.table.admit(self):
            self._enter(_Phase.HEAD, HEAD_SECONDS)
        else:
            self._refuse(503, "overloaded", "too many connections are open; try again", "retry-after: 1\r\n")

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.remove(self)
        super().connection_lost(exc)

    def identify(self, caller: str) -> None:
        """Count this connection as a known caller's from now on."""
        self.table.identify(self, caller)

    def check(self, now: float) -> None:
        """Close the connection if the time of its phase is over, or if its caller does not read."""
        if self._phase is _Phase.CLOSING:
            if self._phase_ends_at <= now:
                self.abort()
        elif self.transport.is_closing():
            self._enter(_Phase.CLOSING, LINGER_SECONDS)
        elif self._phase_ends_at <= now:
            self.table.closed(self._phase.name.lower())
            self.transport.close()
            self._enter(_Phase.CLOSING, LINGER_SECONDS)
        elif self._unread_ends_at <= now:
            self._check_reading(now)

    def abort(self) -> None:
        """Close the connection now; what was not sent is lost."""
        self.transport.abort()

    # -- what comes ----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._silent_bytes += len(data)
        super().data_received(data)
        is_too_large = self._head_bytes > MAX_HEAD_BYTES or self._silent_bytes > MAX_HEAD_BYTES + _READ_BYTES
        if is_too_large and not self.transport.is_closing():
            self._refuse_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._silent_bytes = 0
        self._is_body_complete = False
        cast("Scope", self.scope)[_CONNECTION] = self
        if self._phase is not _Phase.HEAD:  # a connection that was kept for another request
            self._enter(_Phase.HEAD, HEAD_SECONDS)

    def on_url(self, url: bytes) -> None:
        self._silent_bytes = 0
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._silent_bytes = 0
        self._head_bytes += len(name) + len(value)
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # One that is too large goes to no route: its connection is closed when the parser is through.
        if self._head_bytes <= MAX_HEAD_BYTES:
            self._phase, self._phase_ends_at = _Phase.REQUEST, inf
            self.table.busy(self)
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        self._is_body_complete = True
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_message_complete()
        if self._phase is _Phase.LEFTOVER:
            self._rest()

    # -- what goes -----------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        has_next = bool(self.pipeline)
        super().on_response_complete()
        if has_next:
            return
        # Else the head of the next request has begun to come, and has its time.
        if self._phase is _Phase.REQUEST and self._is_body_complete:
            self._rest()
        elif self._phase is _Phase.REQUEST:
            self._enter(_Phase.LEFTOVER, LEFTOVER_SECONDS)
        self.table.idle(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_bytes = self.transport.get_write_buffer_size()
        self._unread_ends_at = self.loop.time() + UNREAD_SECONDS

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread_ends_at = inf

    def _check_reading(self, now: float) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread > self._unread_bytes - MIN_READ_BYTES:
            self.table.closed("unread")
            self.abort()
        else:
            self._unread_bytes, self._unread_ends_at = unread, now + UNREAD_SECONDS

    # -- phases --------------------------------------------------------------------------------------

    def _rest(self) -> None:
        is_unknown = self.caller is None and self.table.has_keys
        self._enter(_Phase.IDLE, ANONYMOUS_IDLE_SECONDS if is_unknown else IDLE_SECONDS)

    def _enter(self, phase: _Phase, seconds: float) -> None:
        self._phase = phase
        self._phase_ends_at = self.loop.time() + seconds

    def _refuse_head(self) -> None:
        """Answer 431 and close the connection; in the middle of another request's response, only close it."""
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(431, "too_large", f"the path and headers are longer than {MAX_HEAD_BYTES:,} bytes")
        else:
            self.transport.close()

    def _refuse(self, status: int, code: str, detail: str, header: str = "") -> None:
        """Write a problem past the application, and close the connection."""
        content = msgspec.json.encode(
            {
                "type": f"/docs#problem-{code}",
                "title": CODES[code][1],
                "status": status,
                "code": code,
                "detail": detail,
                "problems": [],
            }
        )
        phrase = {431: "Request Header Fields Too Large", 503: "Service Unavailable"}[status]
        head = (
            f"HTTP/1.1 {status} {phrase}\r\n{header}"
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()


def connection_of(scope: Scope) -> ClientConnection | None:
    """Return the connection that a request came on; None: it came on none of this server's."""
    connection: ClientConnection | None = scope.get(_CONNECTION)
    return connection
