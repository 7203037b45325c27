"""Rates on Redis, for a whole fleet: one bucket and one wait queue per tag, whoever asks.

A tag has a hash slot of its own, and each call is one script there: two processes cannot take the same token.
The time is the server's. A tag keeps a few bytes for as long as the server does, and a window expires by
itself.

What is lost with Redis is the memory of who has started: a new bucket is full, so after a flush the called
service may see one burst more than the rate allows, and no more than that. The wait queue is lost too; its
nodes come back with their executions, where those were lost with it and are rebuilt from the journal.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import msgspec

from weft.core.attempt import AttemptRef
from weft.core.time import MICROSECONDS, micros
from weft.errors import StoreError
from weft.limits.contract import Released
from weft.redis.keys import bucket_key, window_key
from weft.redis.script import load_script

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from weft.limits.contract import Rate
    from weft.redis.connection import Redis, Reply

_JOIN, _RELEASE, _SPEND, _LEAVE, _DUE = (
    load_script("weft.limits", name, after=("bucket",))
    for name in ("join", "release", "spend", "leave", "due")
)
_HIT = load_script("weft.limits", "hit")

# As much as a script does in one call; a wait queue may hold every node of a large execution.
_PIECE = 1000
# For tickets behind so many others no time is estimated: it would be a guess about the far future.
_MOST_DUE = 10_000
_NANOSECONDS = 1_000_000_000

_unpack = msgspec.msgpack.Decoder(tuple[str, int, str, int]).decode


class _Tag:
    """A tag's keys, and the beginning of its scripts' arguments."""

    __slots__ = ("burst", "interval", "keys")

    def __init__(self, tag: str, rate: Rate, prefix: str) -> None:
        bucket = bucket_key(tag, prefix=prefix)
        # Live keys: under new names, processes of two releases would have two wait queues beside one bucket.
        self.keys = [bucket, f"{bucket}:line", f"{bucket}:released", f"{bucket}:places"]
        # Rounded up, in whole nanoseconds: a sum of fractions would drift.
        self.interval = math.ceil(_NANOSECONDS / rate.rate_per_second)
        self.burst = rate.burst


class RedisLimits:
    def __init__(
        self,
        redis: Redis,
        rates: Mapping[str, Rate],
        *,
        now: Callable[[], int] | None = None,
        release_seconds: float = 15.0,
    ) -> None:
        """``release_seconds``: how long a released node may take to start before it is released again.

        ``now``: another time than the server's, for tests.
        """
        self._redis = redis
        self._now = now or (lambda: 0)
        self._release = micros(release_seconds)
        self._tags = {tag: _Tag(tag, rate, redis.prefix) for tag, rate in rates.items()}

    def limited(self, tag: str) -> bool:
        return tag in self._tags

    async def join(self, tag: str, ticket: AttemptRef) -> None:
        one = self._tags[tag]
        await self._redis.script(_JOIN, one.keys, self._arguments(one, _pack(ticket)), key=one.keys[0])

    async def release(self) -> Released:
        tags = list(self._tags.items())
        groups = self._redis.servers([tag.keys[0] for _, tag in tags])
        answers = await asyncio.gather(
            *(self._release_from([tags[place] for place in group]) for group in groups),
            return_exceptions=True,
        )
        tickets: list[tuple[str, AttemptRef]] = []
        times: list[int] = []
        failures: list[BaseException] = []
        for answer in answers:
            if isinstance(answer, BaseException):
                failures.append(answer)
                continue
            for tag, (next_at, *packed) in answer:
                tickets += [(tag, AttemptRef(*_unpack(one))) for one in packed]
                if next_at:
                    times.append(int(next_at))
        for failure in failures:
            # A ticket that one server released does not wait because another server is away.
            if not (tickets and isinstance(failure, StoreError)):
                raise failure
        return Released(tickets, min(times, default=None))

    async def spend(self, tag: str, ticket: AttemptRef) -> bool:
        one = self._tags.get(tag)
        if one is None:
            return True
        arguments = self._arguments(one, _pack(ticket))
        return bool(await self._redis.script(_SPEND, one.keys, arguments, key=one.keys[0]))

    async def leave(self, tag: str, ticket: AttemptRef) -> None:
        one = self._tags.get(tag)
        if one is not None:
            await self._redis.script(_LEAVE, one.keys, self._arguments(one, _pack(ticket)), key=one.keys[0])

    async def due(self, tag: str) -> Mapping[AttemptRef, int]:
        one = self._tags.get(tag)
        if one is None:
            return {}
        (now, missing, released, waiting, *tickets), *_ = await self._pieces(one, [0])
        told = min(int(waiting), _MOST_DUE)
        for _, _, _, _, *more in await self._pieces(one, range(_PIECE, told, _PIECE)):
            tickets += more
        # A token for each, and the bucket as full as it is now: see Bucket.next_token_at.
        first = int(missing) - (one.burst - int(released) - 1) * one.interval
        return {
            AttemptRef(*_unpack(packed)): int(now) + max(0, -(-(first + position * one.interval) // 1000))
            for position, packed in enumerate(tickets)
        }

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        name = window_key(key, prefix=self._redis.prefix)
        wait = await self._redis.script(_HIT, [name], [self._now(), limit, micros(window_seconds)], key=name)
        return int(wait) / MICROSECONDS

    def _arguments(self, tag: _Tag, *more: bytes | int) -> list[bytes | str | int]:
        return [self._now(), tag.interval, tag.burst, *more]

    async def _release_from(self, tags: Sequence[tuple[str, _Tag]]) -> list[tuple[str, Reply]]:
        """Release from the wait queues that are on one server, in one go."""
        replies = await self._redis.scripts(
            [(_RELEASE, tag.keys, self._arguments(tag, self._release, _PIECE)) for _, tag in tags],
            key=tags[0][1].keys[0],
        )
        return [(name, reply) for (name, _), reply in zip(tags, replies, strict=True)]

    async def _pieces(self, tag: _Tag, firsts: Sequence[int]) -> list[Reply]:
        return await self._redis.scripts(
            [(_DUE, tag.keys, self._arguments(tag, first, _PIECE)) for first in firsts], key=tag.keys[0]
        )


def _pack(ticket: AttemptRef) -> bytes:
    return msgspec.msgpack.encode((ticket.execution_id, ticket.generation, ticket.node_id, ticket.attempt))
