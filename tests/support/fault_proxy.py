"""A proxy for TCP that misbehaves as it is told: in front of Redis, PostgreSQL or a server of HTTP.

It runs on a thread and loop of its own, so that a test may be synchronous or not, and may block. Every method
returns when what it asks for is in place.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from tests.support.servers.process import free_port

from weft.clock import RealClock
from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any, TypeVar

    T = TypeVar("T")

_PIECE_BYTES = 64 * 2**10
# Pieces on their way in one direction of a connection; then the sender waits, as on a real wire.
_PIECES = 64
_ANSWER_SECONDS = 10.0
_PORTS = {"redis": 6379, "postgresql": 5432, "postgres": 5432, "http": 80}
_CLOCK = RealClock()


class Direction(Enum):
    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


class FaultProxy:
    """Stands in front of the server of a URL for the time of a ``with``; ``url`` leads through it.

    It passes everything on until a method says otherwise, and again after ``heal()``.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or _PORTS[parts.scheme])
        self.port = free_port()
        account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        self.url = parts._replace(netloc=f"{account}127.0.0.1:{self.port}").geturl()
        # When each connection was asked for, in microseconds since 1970; those that were refused as well.
        self.attempts: list[int] = []
        self._latency_seconds = 0.0
        self._refuses = False
        self._cuts: list[_Cut] = []
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self._open: dict[Direction, asyncio.Event] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait_for(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wait_for(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- What it can be told.

    def heal(self) -> None:
        """Pass everything on again. What was held back arrives now, late, as after a break of the network."""

        def healed() -> None:
            self._latency_seconds = 0.0
            self._refuses = False
            self._cuts.clear()
            for gate in self._open.values():
                gate.set()

        self._do(healed)

    def delay(self, seconds: float) -> None:
        """Let every piece, in both directions, arrive so much later; the order stays."""

        def delayed() -> None:
            self._latency_seconds = seconds

        self._do(delayed)

    def blackhole(self, *directions: Direction) -> None:
        """Let nothing more arrive in these directions (both, if none is named); connections stay open."""

        def closed() -> None:
            for direction in directions or tuple(Direction):
                self._open[direction].clear()

        self._do(closed)

    def reset(self) -> None:
        """Reset every connection there is now."""

        def reset() -> None:
            for link in list(self._links):
                link.reset()

        self._do(reset)

    def refuse(self) -> None:
        """Reset every new connection at once. Those there are go on.

        They are accepted for a moment, so that they can be counted.
        """

        def refused() -> None:
            self._refuses = True

        self._do(refused)

    def reset_after(self, count: int, direction: Direction) -> threading.Event:
        """Reset the connection on which, from now on, so many bytes in all have arrived; give when.

        Exactly so many arrive, and then nothing.
        """
        return self._cut(_Cut(direction, count=count))

    def reset_on(
        self, pattern: bytes, direction: Direction = Direction.TO_SERVER, *, delivered: bool
    ) -> threading.Event:
        """Reset, once, the connection on which these bytes come by next; give when.

        ``delivered``: they still arrive, with all that was sent in one piece with them, and only what would
        answer them is lost.
        """
        assert pattern, "an empty pattern is everywhere"
        return self._cut(_Cut(direction, pattern=pattern, delivered=delivered))

    # --- What it has seen.

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    @property
    def most_in_a_second(self) -> int:
        """The largest number of connections that were asked for in any one second."""
        times, first, most = list(self.attempts), 0, 0
        for last, at in enumerate(times):
            while times[first] <= at - MICROSECONDS:
                first += 1
            most = max(most, last - first + 1)
        return most

    # --- Inside: all below runs on the proxy's own loop.

    def _do(self, function: Callable[[], None]) -> None:
        async def done() -> None:
            function()

        self._wait_for(done())

    def _wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_ANSWER_SECONDS)

    def _cut(self, cut: _Cut) -> threading.Event:
        self._do(lambda: self._cuts.append(cut))
        return cut.happened

    async def _start(self) -> None:
        self._open = {direction: asyncio.Event() for direction in Direction}
        for gate in self._open.values():
            gate.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_PIECE_BYTES)

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.reset()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = self._loop.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.attempts.append(_CLOCK.now())
        if self._refuses:
            _reset(writer)
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target, limit=_PIECE_BYTES)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, server_writer)
        self._links.add(link)
        try:
            async with asyncio.TaskGroup() as pumps:
                link.pumps = [
                    pumps.create_task(self._pass(link, reader, server_writer, Direction.TO_SERVER)),
                    pumps.create_task(self._pass(link, server_reader, writer, Direction.TO_CLIENT)),
                ]
        finally:
            self._links.discard(link)
            link.close()

    async def _pass(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Carry one direction of a connection to its end."""
        pieces: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(_PIECES)

        async def read() -> None:
            with suppress(OSError):
                while piece := await reader.read(_PIECE_BYTES):
                    await pieces.put((_CLOCK.now(), piece))
            await pieces.put((_CLOCK.now(), b""))

        reading = asyncio.create_task(read())
        try:
            with suppress(OSError):
                while True:
                    read_at, piece = await pieces.get()
                    await self._hold(read_at, direction)
                    if not piece:
                        # One side may have no more to say, and wait for what the other says.
                        writer.write_eof()
                        return
                    if not self._deliver(link, writer, piece, direction):
                        return
                    await writer.drain()
        finally:
            reading.cancel()

    async def _hold(self, read_at: int, direction: Direction) -> None:
        """Return when a piece that was read then may arrive."""
        wait = read_at + int(self._latency_seconds * MICROSECONDS) - _CLOCK.now()
        if wait > 0:
            await asyncio.sleep(wait / MICROSECONDS)
        await self._open[direction].wait()

    def _deliver(self, link: _Link, writer: asyncio.StreamWriter, piece: bytes, direction: Direction) -> bool:
        """Let a piece arrive, or as much of it as comes before a cut; say whether the connection stands."""
        for cut in list(self._cuts):
            length = cut.length_of(piece, link) if cut.direction is direction else None
            if length is not None:
                self._cuts.remove(cut)
                if length:
                    writer.write(piece[:length])
                # To who received it this is an ordinary end: a reset might overtake the last bytes.
                link.reset(gently=writer)
                cut.happened.set()
                return False
        writer.write(piece)
        return True


@dataclass(eq=False, slots=True)
class _Cut:
    """A reset that waits for its moment."""

    direction: Direction
    count: int = 0
    pattern: bytes = b""
    delivered: bool = False
    happened: threading.Event = field(default_factory=threading.Event)
    # What has gone by already of each connection: its number of bytes, or as much as may begin a pattern.
    _passed: int = 0
    _tails: dict[_Link, bytes] = field(default_factory=dict)

    def length_of(self, piece: bytes, link: _Link) -> int | None:
        """Return how much of a piece arrives before the reset; ``None``: no reset yet."""
        if not self.pattern:
            if self._passed + len(piece) < self.count:
                self._passed += len(piece)
                return None
            return self.count - self._passed
        tail = self._tails.get(link, b"")
        seen = tail + piece
        at = seen.find(self.pattern)
        if at < 0:
            kept = len(self.pattern) - 1
            self._tails[link] = seen[-kept:] if kept else b""
            return None
        return len(piece) if self.delivered else max(at - len(tail), 0)


class _Link:
    """One connection: the client's side and the server's."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._sides = (client, server)
        self.pumps: list[asyncio.Task[None]] = []

    def reset(self, *, gently: asyncio.StreamWriter | None = None) -> None:
        """Reset both sides; the one of ``gently`` is closed after what was written to it."""
        for side in self._sides:
            if side is gently:
                side.close()
            else:
                _reset(side)
        for pump in self.pumps:
            pump.cancel()

    def close(self) -> None:
        for side in self._sides:
            side.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    # To linger for no time is how a reset is asked for.
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
