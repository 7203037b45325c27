"""Receives the messages of Redis channels, on a connection of its own that is opened again when it is lost.

Messages that are published while there is no connection are lost: subscribers are told of each new
connection.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import hiredis

from weft.errors import StoreError
from weft.redis.batch import ANSWER_SECONDS, BatchConnection, ReplyError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from weft.redis.batch import Reply
    from weft.redis.connection import Redis

log = logging.getLogger("weft.redis")

# A connection on which nothing comes is asked so often whether it is still there.
_PING_SECONDS = 15.0
_PAUSE_SECONDS = 1.0


class _RepliesAlone(hiredis.Reader):
    """Reads replies; messages of channels, which come between them, are handed on."""

    on_message: Callable[[str, bytes], None]

    def gets(self, *_: bool) -> Reply:
        while True:
            match reply := super().gets():
                case [b"message", bytes() as channel, bytes() as message]:
                    self.on_message(channel.decode(errors="replace"), message)
                case _:
                    return reply


class Listening(BatchConnection):
    """A connection on which the server speaks by itself."""

    listens = True

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        super().__init__(answer_seconds)
        self._reader = self._messages = _RepliesAlone()
        self.lost = asyncio.Event()

    async def subscribe(self, channels: Iterable[str], on_message: Callable[[str, bytes], None]) -> None:
        """Subscribe to channels, whose messages go to ``on_message``; the server has confirmed it."""
        self._messages.on_message = on_message
        # One command for each: then each has one reply, as all commands have.
        for reply in await self.run([("SUBSCRIBE", name) for name in channels]):
            if isinstance(reply, ReplyError):
                self._lose(f"the server does not let weft listen: {reply}")

    def unsubscribe(self, channels: Iterable[str]) -> None:
        self.send([("UNSUBSCRIBE", name) for name in channels])

    def _lose(self, why: str) -> None:
        super()._lose(why)
        self.lost.set()


class Channels:
    """The channels that one process listens to."""

    def __init__(
        self,
        redis: Redis,
        *,
        on_message: Callable[[str, bytes], None],
        connected: Callable[[], Awaitable[None]],
    ) -> None:
        """``connected``: called whenever the channels are heard anew; what came before may be missing."""
        self._redis = redis
        self._on_message = on_message
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
            # Lost meanwhile, it is made anew, with all of them.
            with suppress(StoreError):
                await self._connection.subscribe(names, self._on_message)

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
        if self._names:
            await connection.subscribe(self._names, self._on_message)
        await self._connected()
        self._is_new.set()
        while connection.is_open:
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    await connection.lost.wait()
            except TimeoutError:
                await connection.run([("PING",)])
