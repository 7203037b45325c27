"""Hearing what is published on channels, on a connection of its own that is made anew when it is lost.

What is published while there is no connection is not heard, ever: whoever listens is told that it came anew.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import hiredis

from weft.errors import StoreError
from weft.redis.batch import ANSWER_SECONDS, Connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from weft.redis.connection import Redis

log = logging.getLogger("weft.redis")

# A connection on which nothing comes is asked so often whether it is still there.
_PING_SECONDS = 15.0
_PAUSE_SECONDS = 1.0


class Listening(Connection):
    """A connection on which the server speaks by itself."""

    listens = True

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        super().__init__(answer_seconds)
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self.hear: Callable[[str, bytes], None] = lambda _channel, _message: None
        # Channels whose answer is on its way.
        self._asked: dict[str, asyncio.Future[None]] = {}
        self._pong: asyncio.Future[None] | None = None

    def subscribe(self, channels: Iterable[str]) -> list[asyncio.Future[None]]:
        """Ask for channels; each future is done when its channel is heard."""
        names = list(channels)
        for name in names:
            if name not in self._asked:
                self._asked[name] = self.loop.create_future()
        self._say("SUBSCRIBE", *names)
        return [self._asked[name] for name in names]

    def unsubscribe(self, channels: Iterable[str]) -> None:
        self._say("UNSUBSCRIBE", *channels)

    async def ping(self) -> None:
        """Make sure of the server; raises TimeoutError where it does not answer."""
        self._pong = self.loop.create_future()
        self._say("PING")
        async with asyncio.timeout(self._answer_seconds):
            await self._pong

    def _say(self, *command: str) -> None:
        if len(command) > 1 or command == ("PING",):
            assert self._transport is not None
            # Its type says that a command is one word long.
            self._transport.write(hiredis.pack_command(command))  # type: ignore[arg-type]

    def data_received(self, data: bytes) -> None:
        if self.owed:
            # It is being greeted, and not subscribed to anything yet.
            super().data_received(data)
            return
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._take(reply)
        except hiredis.ProtocolError as error:
            self._lose(f"what answers is not Redis: {error}")

    def _take(self, reply: object) -> None:
        match reply:
            case [b"message", bytes() as channel, bytes() as message]:
                self.hear(channel.decode(errors="replace"), message)
            case [b"subscribe", bytes() as channel, _]:
                asked = self._asked.pop(channel.decode(errors="replace"), None)
                if asked is not None and not asked.done():
                    asked.set_result(None)
            case [b"unsubscribe", _, _]:
                pass
            case [b"pong", _] | b"PONG":
                if self._pong is not None and not self._pong.done():
                    self._pong.set_result(None)
            case _:
                self._lose(f"the server does not let weft listen: {reply!r}")

    def _lose(self, why: str) -> None:
        super()._lose(why)
        for asked in self._asked.values():
            asked.cancel()
        if not self.lost.done():
            self.lost.set_result(None)


class Channels:
    """The channels that one process listens to."""

    def __init__(
        self,
        redis: Redis,
        *,
        hear: Callable[[str, bytes], None],
        connected: Callable[[], Awaitable[None]],
    ) -> None:
        """``connected``: called whenever the channels are heard anew; what came before may be missing."""
        self._redis = redis
        self._hear = hear
        self._connected = connected
        self._names: dict[str, None] = {}
        self._connection: Listening | None = None
        self._is_new = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def open(self, *, wait_seconds: float) -> None:
        """Begin to listen. Where the server is away for longer, this returns, and it goes on trying."""
        self._listening = asyncio.create_task(self._listen())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                await self._is_new.wait()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening

    async def add(self, *names: str) -> None:
        """Listen to channels: this returns when they are heard. Without a connection they are later."""
        self._names.update(dict.fromkeys(names))
        if self._connection is not None and self._connection.is_open:
            await asyncio.wait(self._connection.subscribe(names))

    def remove(self, *names: str) -> None:
        for name in names:
            self._names.pop(name, None)
        if self._connection is not None and self._connection.is_open:
            self._connection.unsubscribe(names)

    async def _listen(self) -> None:
        while True:
            try:
                connection = self._connection = await self._redis.connect(Listening)
                try:
                    await self._stay(connection)
                finally:
                    connection.close()
                log.warning("channels.lost")
            except StoreError as error:
                log.warning("channels.unavailable", extra={"error": str(error)})
            except Exception:
                log.exception("channels.broken")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _stay(self, connection: Listening) -> None:
        """Listen on a connection until it is lost."""
        connection.hear = self._hear
        if self._names:
            await asyncio.wait(connection.subscribe(self._names))
        await self._connected()
        self._is_new.set()
        while connection.is_open:
            await asyncio.wait([connection.lost], timeout=_PING_SECONDS)
            if connection.is_open:
                try:
                    await connection.ping()
                except TimeoutError:
                    connection.close()
