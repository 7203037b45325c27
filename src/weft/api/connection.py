"""One connection to the API, from its first byte to the end of a request's head.

Whatever comes before a request is handed on is held here and nowhere else: so the head of a request, and the
time that it takes to come, have their bounds here. Both hold for callers of whom nothing is known yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from weft.api.problem import CODES, MEDIA_TYPE

if TYPE_CHECKING:
    import asyncio

# The path with its query, and all headers together.
MAX_HEAD_BYTES = 64 * 1024
# A head comes in one piece, or nearly so; whoever takes longer only wants to keep the connection.
HEAD_SECONDS = 20.0
# What the loop reads at once. So much may have come before anybody counts.
_READ_BYTES = 256 * 1024


class ClientConnection(HttpToolsProtocol):
    """uvicorn's, with bounds."""

    _head_bytes = 0
    # What has come since the parser last said a word: part of a header or trailer that does not end.
    _silent_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._silent_bytes += len(data)
        super().data_received(data)
        is_too_large = self._head_bytes > MAX_HEAD_BYTES or self._silent_bytes > MAX_HEAD_BYTES + _READ_BYTES
        if is_too_large and not self.transport.is_closing():
            self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._silent_bytes = 0
        if self._head_timer is None:  # a connection that was kept for another request
            self._await_head()

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
        self._end_wait()
        # One that is too large goes to no route: its connection is closed when the parser is through.
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._silent_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._silent_bytes = 0
        if self._head_bytes <= MAX_HEAD_BYTES:
            super().on_message_complete()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _end_wait(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self) -> None:
        """Answer 431 and close the connection; in the middle of another request's response, only close it."""
        if self.cycle is None or self.cycle.response_complete:
            content = msgspec.json.encode(
                {
                    "type": "/docs#problem-too_large",
                    "title": CODES["too_large"][1],
                    "status": 431,
                    "code": "too_large",
                    "detail": f"the path and headers are longer than {MAX_HEAD_BYTES:,} bytes",
                    "problems": [],
                }
            )
            head = (
                "HTTP/1.1 431 Request Header Fields Too Large\r\n"
                f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + content)
        self.transport.close()
