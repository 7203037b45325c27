"""A feed across processes, by Redis' channels. Its events are hints: the journal has what is lost.

Each subscription has a channel. The name of the channel says what it is about: an execution or a namespace,
and the types of the events. A publisher has to know which channels have subscribers, because publishing must
cost nothing where there are none. So a process that subscribes or unsubscribes announces the channel on one
control channel, to which all processes listen. A process that unsubscribes may not have been the last one. So
the publishers then ask the server for the number of subscribers, as they do from time to time. A new
connection asks for all channels.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from weft.core.rows import History  # noqa: TC001 - the decoder reads the annotations
from weft.errors import StoreError
from weft.feed.memory import HELD_EVENTS, MemorySubscription
from weft.redis.connection import ReplyError
from weft.redis.subscription import Channels

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from weft.redis.connection import Command, Redis

log = logging.getLogger("weft.feed")

# Events on their way to Redis. Telling does not wait: over that the oldest are missed.
BUFFERED_EVENTS = 10_000
# Events in one message: a busy engine's of a moment, and no more than a server likes to copy.
_TOLD_AT_ONCE = 256
# After an unsubscribe the server is asked so much later for the subscribers: many leave at once.
_ASK_SECONDS = 1.0
# A killed process announces nothing; the server knows.
_ASK_ALL_SECONDS = 15.0
# A new subscriber waits no longer than this for Redis: it reads the journal besides.
_ENTER_SECONDS = 2.0
_ASKED_AT_ONCE = 500

_EXECUTION, _NAMESPACE = "x", "n"
_ALL_TYPES = "*"


class _Told(msgspec.Struct, array_like=True, frozen=True):
    # How many of this channel's events were missed before these.
    missed: int
    events: list[History]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Told).decode


def _messages(events: list[History], missed: int) -> Iterator[bytes]:
    """Yield events of one channel as encoded messages; events that cannot be encoded count as missed."""
    for start in range(0, len(events), _TOLD_AT_ONCE):
        some = events[start : start + _TOLD_AT_ONCE]
        try:
            yield _encode(_Told(missed, some))
        except (TypeError, ValueError, OverflowError):
            yield _encode(_Told(missed + len(some), []))
        missed = 0


class _Channel(NamedTuple):
    """Something to listen for: all of it is in the name of its channel."""

    kind: str
    key: str
    types: frozenset[str] | None

    @property
    def name(self) -> str:
        return f"{self.kind}:{_ALL_TYPES if self.types is None else ','.join(sorted(self.types))}:{self.key}"


def _read_channel(name: str) -> _Channel | None:
    kind, _, rest = name.partition(":")
    types, _, key = rest.partition(":")
    if kind not in (_EXECUTION, _NAMESPACE) or not key:
        return None
    return _Channel(kind, key, None if types == _ALL_TYPES else frozenset(types.split(",")))


class RedisFeed:
    def __init__(
        self,
        redis: Redis,
        *,
        held_events: int = HELD_EVENTS,
        buffered_events: int = BUFFERED_EVENTS,
    ) -> None:
        self._redis = redis
        self._held_events = held_events
        self._buffered_events = buffered_events
        self._prefix = f"{redis.prefix}:feed:"
        self._news = self._prefix + "listeners"
        self._me = token_hex(8)
        self._channels = Channels(redis, on_message=self._on_message, connected=self._catch_up)
        # Subscribers of this process, by channel.
        self._listeners: dict[str, set[MemorySubscription]] = {}
        # Channels that other processes listen to, as far as is known.
        self._elsewhere: set[str] = set()
        # Channels of either: by kind and key.
        self._wanted: dict[str, dict[str, dict[str, _Channel]]] = {_EXECUTION: {}, _NAMESPACE: {}}
        self.has_listeners = False
        # Channels that a process has unsubscribed from, and those announced since the server was asked.
        self._doubted: set[str] = set()
        self._named: set[str] = set()
        self._buffer: dict[str, deque[History]] = {}
        self._buffered = 0
        self._missed: dict[str, int] = {}
        self._filled = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to hear; where Redis is away, as soon as it is back."""
        await self._channels.add(self._news)
        await self._channels.open(wait_seconds=_ENTER_SECONDS)
        self._loops = [asyncio.create_task(self._publishing()), asyncio.create_task(self._asking())]

    async def close(self) -> None:
        for loop in (*self._loops, *self._leaving):
            loop.cancel()
        for loop in (*self._loops, *self._leaving):
            with suppress(asyncio.CancelledError):
                await loop
        await self._channels.close()

    # -- telling -----------------------------------------------------------------------------------

    def publish(self, events: Sequence[History], *, namespace: str) -> None:
        if not self.has_listeners:
            return
        executions = self._wanted[_EXECUTION]
        everything = self._wanted[_NAMESPACE].get(namespace, {})
        for event in events:
            for name, channel in (*executions.get(event.execution, {}).items(), *everything.items()):
                if channel.types is None or event.type in channel.types:
                    self._put(name, event)

    def has_subscriber(self, execution_id: str) -> bool:
        if self._wanted[_NAMESPACE]:
            return True
        listeners = self._wanted[_EXECUTION].get(execution_id)
        return listeners is not None and any(one.types is None for one in listeners.values())

    def _put(self, name: str, event: History) -> None:
        if self._buffered >= self._buffered_events:
            # The newest say best where things stand.
            oldest = next(iter(self._buffer))
            self._buffer[oldest].popleft()
            if not self._buffer[oldest]:
                del self._buffer[oldest]
            self._buffered -= 1
            self._missed[oldest] = self._missed.get(oldest, 0) + 1
        self._buffer.setdefault(name, deque()).append(event)
        self._buffered += 1
        self._filled.set()

    async def _publishing(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            told, self._buffer, self._buffered = self._buffer, {}, 0
            missed, self._missed = self._missed, {}
            try:
                await self._redis.run(
                    [
                        ("PUBLISH", self._prefix + name, message)
                        for name, events in told.items()
                        for message in _messages(list(events), missed.get(name, 0))
                    ]
                )
            except StoreError:
                # Redis is away, and every listener notices that by its own connection.
                await asyncio.sleep(_ASK_SECONDS)

    # -- listening ---------------------------------------------------------------------------------

    def subscribe(
        self,
        *,
        namespace: str | None = None,
        execution_id: str | None = None,
        types: Collection[str] | None = None,
    ) -> RedisSubscription:
        kind, key = (_NAMESPACE, namespace) if execution_id is None else (_EXECUTION, execution_id)
        assert key is not None, "a subscription is for an execution or for a namespace"
        channel = _Channel(kind, key, None if types is None else frozenset(types))
        return RedisSubscription(self, self._listeners, channel.name, types, held_events=self._held_events)

    async def enter(self, name: str) -> None:
        """Subscribe this process to a channel, and announce the subscriber to all publishers."""
        self._see(name)
        with suppress(TimeoutError, StoreError):
            async with asyncio.timeout(_ENTER_SECONDS):
                await self._channels.add(self._prefix + name)
                await self._say("+", [name])

    def left(self, name: str) -> None:
        """Unsubscribe from a channel if its last subscriber in this process has left."""
        if name in self._listeners:
            return
        self._see(name)
        self._channels.remove(self._prefix + name)
        if self._channels.is_connected:
            leaving = asyncio.create_task(self._leave(name))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _leave(self, name: str) -> None:
        with suppress(StoreError):
            await self._say("-", [name])

    async def _say(self, word: str, names: Iterable[str]) -> None:
        commands: list[Command] = [("PUBLISH", self._news, f"{word}{self._me}:{name}") for name in names]
        await self._redis.run(commands)

    def _on_message(self, channel: str, message: bytes) -> None:
        if channel == self._news:
            self._hear_news(message.decode(errors="replace"))
            return
        listeners = self._listeners.get(channel.removeprefix(self._prefix))
        if not listeners:
            return
        try:
            told = _decode(message)
        except msgspec.MsgspecError:
            log.warning("feed.garbage", extra={"channel": channel})
            return
        for listener in listeners:
            listener.miss(told.missed)
            for event in told.events:
                listener.put(event)

    # -- who listens where -------------------------------------------------------------------------

    def _hear_news(self, news: str) -> None:
        who, _, name = news[1:].partition(":")
        word = news[:1]
        if who == self._me or _read_channel(name) is None:
            return
        if word == "+":
            self._named.add(name)
            self._elsewhere.add(name)
            self._see(name)
        elif word == "-" and name in self._elsewhere:
            self._doubted.add(name)

    def _see(self, name: str) -> None:
        """Update whether a channel has a subscriber, here or elsewhere."""
        channel = _read_channel(name)
        assert channel is not None
        of_kind = self._wanted[channel.kind]
        if name in self._listeners or name in self._elsewhere:
            of_kind.setdefault(channel.key, {})[name] = channel
        elif (of_key := of_kind.get(channel.key)) is not None:
            of_key.pop(name, None)
            if not of_key:
                del of_kind[channel.key]
        self.has_listeners = bool(self._wanted[_EXECUTION] or self._wanted[_NAMESPACE])

    async def _catch_up(self) -> None:
        """On a new connection: ask for all channels, and announce those of this process."""
        self._named.clear()
        found = await self._redis.call("PUBSUB", "CHANNELS", self._prefix + "[xn]:*")
        await self._say("+", self._listeners)
        there = {one.decode(errors="replace").removeprefix(self._prefix) for one in found}
        there = {name for name in there if _read_channel(name) is not None}
        gone = self._elsewhere - there - self._named
        self._elsewhere = (self._elsewhere | {name for name in there if name not in self._listeners}) - gone
        self._doubted |= there & self._listeners.keys()
        for name in there | gone:
            self._see(name)
        for listeners in self._listeners.values():
            for listener in listeners:
                # How many messages were missed in between is not known.
                listener.miss(1)

    async def _asking(self) -> None:
        """Ask the server, at intervals, whether channels still have subscribers."""
        loop = asyncio.get_running_loop()
        all_at = loop.time() + _ASK_ALL_SECONDS
        while True:
            await asyncio.sleep(_ASK_SECONDS)
            if loop.time() >= all_at:
                self._doubted |= self._elsewhere
                all_at = loop.time() + _ASK_ALL_SECONDS
            if self._doubted:
                with suppress(StoreError, ReplyError):
                    await self._ask()

    async def _ask(self) -> None:
        self._named.clear()
        names = list(self._doubted)
        self._doubted.clear()
        for start in range(0, len(names), _ASKED_AT_ONCE):
            some = names[start : start + _ASKED_AT_ONCE]
            ours = {name for name in some if name in self._listeners}
            counts = await self._redis.call("PUBSUB", "NUMSUB", *(self._prefix + name for name in some))
            for name, count in zip(some, counts[1::2], strict=True):
                # One is this process itself, if it listened all the time.
                own = name in ours and name in self._listeners
                if count > own:
                    self._elsewhere.add(name)
                elif name not in self._named:
                    self._elsewhere.discard(name)
                if own != (name in ours):
                    self._doubted.add(name)
                self._see(name)


class RedisSubscription(MemorySubscription):
    def __init__(
        self,
        feed: RedisFeed,
        listeners: dict[str, set[MemorySubscription]],
        channel: str,
        types: Collection[str] | None,
        *,
        held_events: int,
    ) -> None:
        super().__init__(listeners, channel, types, held_events=held_events)
        self._feed = feed
        self._channel = channel

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._feed.enter(self._channel)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        self._feed.left(self._channel)
