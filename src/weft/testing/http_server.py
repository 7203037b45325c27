"""A small HTTP server in a thread of its own, that answers as it is told: also late, in pieces, or never.

It parses with httptools and writes each answer in one piece, so that a test of two hundred calls at once
measures the caller.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

import httptools
import msgspec

from weft.clock import RealClock

if TYPE_CHECKING:
    from types import TracebackType

# Two hundred callers that begin in the same moment must not be refused by the system.
_BACKLOG = 1024
_START_SECONDS = 10.0
_CLOCK = RealClock()


class ReceivedRequest(msgspec.Struct, gc=False):
    method: str
    # The path and query, as they were sent.
    target: str
    # By their names in lower case.
    headers: dict[str, str]
    body: bytes
    # When the last byte had come: microseconds since 1970.
    at: int

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    # So long after the request.
    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pieces:
    """Raw bytes, status line and all, one piece after the other; then the connection is closed."""

    pieces: Iterable[bytes]
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer at all; the connection stays open until the caller or the server has enough."""


Behaviour: TypeAlias = Answer | Pieces | Silence
Respond: TypeAlias = Callable[[ReceivedRequest], Behaviour | Awaitable[Behaviour]]


def json_answer(value: object, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, msgspec.json.encode(value), {"Content-Type": "application/json", **(headers or {})})


def encoded(answer: Answer, method: str = "GET") -> bytes:
    """Return an answer as the bytes that go over the wire."""
    lines = [f"HTTP/1.1 {answer.status} {_PHRASES.get(answer.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.status in _WITHOUT_BODY:
        return "\r\n".join([*lines, "", ""]).encode("latin-1")
    head = "\r\n".join([*lines, f"Content-Length: {len(answer.body)}", "", ""]).encode("latin-1")
    return head if method == "HEAD" else head + answer.body


_PHRASES = {int(status): status.phrase for status in HTTPStatus}
_WITHOUT_BODY = frozenset({204, 304})


async def settled(behaviour: Behaviour | Awaitable[Behaviour]) -> Behaviour:
    return behaviour if isinstance(behaviour, Answer | Pieces | Silence) else await behaviour


class HttpServer:
    """Serves on loopback from ``start`` to ``stop``, or for the time of a ``with`` or ``async with``.

    ``respond`` is called on the server's own loop for every request.
    """

    def __init__(self, respond: Respond, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._respond = respond
        self._host = host
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: OSError | None = None
        self._connections: set[_Connection] = set()

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> Self:
        """Serve. Raises OSError where the port is taken."""
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_SECONDS):
            raise TimeoutError("the server did not start")
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Close every connection, and end. Once more does nothing."""
        if self._thread is not None and self._thread.is_alive() and self._ended is not None:
            self.call(self._ended.set)
            self._thread.join()

    def call(self, function: Callable[[], object]) -> None:
        """Have something called on the server's loop."""
        assert self._loop is not None, "the server was not started"
        self._loop.call_soon_threadsafe(function)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            server = await self._loop.create_server(
                lambda: _Connection(self._respond, self._connections),
                self._host,
                self._port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            self._failure = error
            self._started.set()
            return
        self._port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._ended.wait()
        server.close()
        for connection in list(self._connections):
            connection.end()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # there is none for Windows
        return None
    return new_event_loop


class _Connection(asyncio.Protocol):
    """One connection. Callers wait for an answer before they send the next request on it."""

    def __init__(self, respond: Respond, connections: set[_Connection]) -> None:
        self._respond = respond
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._answering: asyncio.Task[None] | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    # -- asyncio ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: the transports of uvloop have no part in asyncio's tree.
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._write(encoded(Answer(400)))
            self.end()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # -- httptools -------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        request = ReceivedRequest(
            self._parser.get_method().decode("latin-1"),
            self._target.decode("latin-1"),
            self._headers,
            b"".join(self._body),
            _CLOCK.now(),
        )
        self._begin()
        behaviour = self._respond(request)
        if isinstance(behaviour, Answer) and not behaviour.delay_seconds:
            self._write(encoded(behaviour, request.method))
        else:
            answering = self._answer(behaviour, request.method)
            self._answering = asyncio.get_running_loop().create_task(answering)

    # -- answering -------------------------------------------------------------------------------------

    async def _answer(self, behaviour: Behaviour | Awaitable[Behaviour], method: str) -> None:
        match await settled(behaviour):
            case Answer() as answer:
                await asyncio.sleep(answer.delay_seconds)
                self._write(encoded(answer, method))
            case Pieces(pieces, pause_seconds):
                for piece in pieces:
                    await self._may_write.wait()
                    self._write(piece)
                    await asyncio.sleep(pause_seconds)
                self.end()
            case Silence():
                pass

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def end(self) -> None:
        if self._transport is not None:
            self._transport.close()
