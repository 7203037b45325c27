"""A feed in this process's memory. Without subscribers, publishing costs one comparison."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from weft.core.rows import History

# So many events wait for one subscriber: what a busy engine tells between two looks of a stream. They are
# shared by all who hear them, so a subscriber that never looks costs this many references, and at worst about
# half a megabyte.
HELD_EVENTS = 1000


class MemoryFeed:
    def __init__(self, *, held_events: int = HELD_EVENTS) -> None:
        self._held_events = held_events
        self._of_execution: dict[str, set[MemorySubscription]] = {}
        self._of_namespace: dict[str, set[MemorySubscription]] = {}
        self.has_listeners = False

    def publish(self, events: Sequence[History], *, namespace: str) -> None:
        if not self.has_listeners:
            return
        everything = self._of_namespace.get(namespace, ())
        for event in events:
            for subscription in self._of_execution.get(event.execution, ()):
                subscription.put(event)
            for subscription in everything:
                subscription.put(event)

    def has_subscriber(self, execution_id: str) -> bool:
        if self._of_namespace:
            return True
        listeners = self._of_execution.get(execution_id)
        return listeners is not None and any(one.types is None for one in listeners)

    def subscribe(
        self,
        *,
        namespace: str | None = None,
        execution_id: str | None = None,
        types: Collection[str] | None = None,
    ) -> MemorySubscription:
        listeners, key = (
            (self._of_namespace, namespace) if execution_id is None else (self._of_execution, execution_id)
        )
        assert key is not None, "a subscription is for an execution or for a namespace"
        return MemorySubscription(
            listeners, key, types, held_events=self._held_events, changed=self._listeners_changed
        )

    def _listeners_changed(self) -> None:
        self.has_listeners = bool(self._of_execution or self._of_namespace)


class MemorySubscription:
    def __init__(
        self,
        listeners: dict[str, set[MemorySubscription]],
        key: str,
        types: Collection[str] | None,
        *,
        held_events: int,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """``changed`` is called after this subscription has joined or left ``listeners``."""
        self.types = types
        self._changed = changed
        self._listeners, self._key = listeners, key
        self._events: deque[History] = deque(maxlen=held_events)
        self._dropped = 0
        self._missed = 0
        self._sleeper: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Self:
        self._listeners.setdefault(self._key, set()).add(self)
        self._changed()
        return self

    async def __aexit__(self, *_: object) -> None:
        others = self._listeners[self._key]
        others.discard(self)
        if not others:
            del self._listeners[self._key]
        self._changed()

    def put(self, event: History) -> None:
        if self.types is not None and event.type not in self.types:
            return
        # A full deque lets the oldest go: the newest say best where things stand.
        self._dropped += len(self._events) == self._events.maxlen
        self._events.append(event)
        self._wake()

    def miss(self, count: int) -> None:
        """Count events that were lost before they reached this process."""
        if count:
            self._dropped += count
            self._wake()

    def _wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def receive(self, *, wait_seconds: float) -> Sequence[History]:
        if not self._events and wait_seconds > 0:
            await self._told(wait_seconds)
        heard = list(self._events)
        self._events.clear()
        self._missed, self._dropped = self._dropped, 0
        return heard

    async def _told(self, wait_seconds: float) -> None:
        loop = asyncio.get_running_loop()
        sleeper = self._sleeper = loop.create_future()
        alarm = loop.call_later(wait_seconds, lambda: None if sleeper.done() else sleeper.set_result(None))
        try:
            await sleeper
        finally:
            alarm.cancel()
            self._sleeper = None

    @property
    def missed(self) -> int:
        return self._missed
