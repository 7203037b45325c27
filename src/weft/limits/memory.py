"""Rates in this process's memory: GCRA buckets with their wait queues, sliding windows."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS, micros
from weft.limits.bucket import Bucket
from weft.limits.contract import Released

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.core.attempt import AttemptRef
    from weft.limits.contract import Rate

_MANY_KEYS = 10_000


class _WaitQueue:
    """The tickets that wait for a token of one bucket."""

    __slots__ = ("bucket", "released", "waiting")

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        # A dict as an ordered set: first come, first served.
        self.waiting: dict[AttemptRef, None] = {}
        # Released and not started, and until when the release lasts.
        self.released: dict[AttemptRef, int] = {}

    def take_back(self, now: int) -> None:
        """Move tickets whose release came to nothing (a process died) to the head of the wait queue again."""
        late = [ticket for ticket, until in self.released.items() if until <= now]
        for ticket in late:
            del self.released[ticket]
        if late:
            self.waiting = {**dict.fromkeys(late), **self.waiting}


class _Window:
    """The calls counted against one key."""

    __slots__ = ("hits", "length")

    def __init__(self) -> None:
        self.hits: deque[int] = deque()
        self.length = 0

    def forget(self, now: int) -> None:
        while self.hits and self.hits[0] <= now - self.length:
            self.hits.popleft()


class MemoryLimits:
    def __init__(
        self, rates: Mapping[str, Rate | Bucket], *, now: Callable[[], int], release_seconds: float = 15.0
    ) -> None:
        """``rates``: by tag; a bucket is given where it is shared with others of this process.

        ``release_seconds``: how long a released node may take to start before it is released again.
        """
        self._now = now
        self._release = micros(release_seconds)
        self._queues = {
            tag: _WaitQueue(rate if isinstance(rate, Bucket) else Bucket(rate)) for tag, rate in rates.items()
        }
        self._windows: dict[str, _Window] = {}
        self._look_for_idle_at = _MANY_KEYS

    def limited(self, tag: str) -> bool:
        return tag in self._queues

    async def join(self, tag: str, ticket: AttemptRef) -> None:
        queue = self._queues[tag]
        if ticket not in queue.released:
            queue.waiting.setdefault(ticket)

    async def release(self) -> Released:
        now = self._now()
        tickets = []
        next_at: int | None = None
        for tag, queue in self._queues.items():
            queue.take_back(now)
            room = queue.bucket.tokens(now) - len(queue.released)
            while queue.waiting and room > 0:
                ticket = next(iter(queue.waiting))
                del queue.waiting[ticket]
                queue.released[ticket] = now + self._release
                tickets.append((tag, ticket))
                room -= 1
            times = list(queue.released.values())
            if queue.waiting and len(queue.released) < queue.bucket.burst:
                times.append(queue.bucket.next_token_at(now, taken=len(queue.released)))
            elif queue.waiting:
                times.append(now + queue.bucket.look_again)
            next_at = min(times if next_at is None else [*times, next_at], default=None)
        return Released(tickets, next_at)

    async def spend(self, tag: str, ticket: AttemptRef) -> bool:
        queue = self._queues.get(tag)
        if queue is None:
            return True
        now = self._now()
        queue.released.pop(ticket, None)
        if queue.bucket.tokens(now) - len(queue.released) < 1:
            return False
        queue.waiting.pop(ticket, None)
        queue.bucket.spend(now)
        return True

    async def leave(self, tag: str, ticket: AttemptRef) -> None:
        queue = self._queues.get(tag)
        if queue is not None:
            queue.waiting.pop(ticket, None)
            queue.released.pop(ticket, None)

    async def due(self, tag: str) -> Mapping[AttemptRef, int]:
        queue = self._queues.get(tag)
        if queue is None:
            return {}
        now, before = self._now(), len(queue.released)
        return {
            ticket: queue.bucket.next_token_at(now, taken=before + position)
            for position, ticket in enumerate(queue.waiting)
        }

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        now = self._now()
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window()
        window.length = micros(window_seconds)
        window.forget(now)
        if len(window.hits) >= limit:
            return (window.hits[0] + window.length - now) / MICROSECONDS
        window.hits.append(now)
        if len(self._windows) > self._look_for_idle_at:
            self._forget_idle(now)
        return 0.0

    def _forget_idle(self, now: int) -> None:
        for window in self._windows.values():
            window.forget(now)
        self._windows = {key: window for key, window in self._windows.items() if window.hits}
        # Twice as many before the next look: a look costs all of them.
        self._look_for_idle_at = max(_MANY_KEYS, 2 * len(self._windows))
