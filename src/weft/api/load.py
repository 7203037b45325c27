"""Limits the load of one API: requests at once, bytes of bodies in memory, requests that wait.

A request over a bound is refused at once with 503 ``overloaded`` and ``Retry-After``: a server that refuses
work can still finish the work that it has accepted.

Callers share each bound; a caller is an API key, or an address where there is no key. No caller may hold more
than is left free. So one caller gets at most half, two get a third each, and something is left for the next
one.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.api.problem import ProblemError
from weft.core.time import micros
from weft.views.describe import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.requests import HTTPConnection
    from starlette.types import Scope

# Requests that are being worked on. They share two cores or so: more at once are only later, each of them.
_MAX_REQUESTS = 2000
# Requests to routes that are open to all: health, and pages. They end at once.
_MAX_OPEN_REQUESTS = 200
# Streams, and calls that wait for an execution: they cost a socket and a few kilobytes, and no work.
_MAX_WAITING = 10_000
# Streams alone. Each has a socket, a subscription, and a few reads a second while something happens.
_MAX_STREAMS = 2000
# Bodies in memory. One of the greatest size is always let in.
_MAX_HELD_BYTES = 256 * 2**20
# Bodies that nobody has vouched for yet: a webhook's is read before its signature can be checked.
_MAX_UNPROVEN_BYTES = 64 * 2**20
# What was made of large bodies: many times the bytes of their text. Small ones are as nothing beside them,
# and are not refused for them.
_MAX_VALUE_BYTES = 256 * 2**20

# Between two pages of histories, of any readers: a page takes some milliseconds of the loop, and a hundred
# callers who read on without a pause kept all others waiting for seconds.
_HISTORY_PAUSE_SECONDS = 0.01

# So few rows have at most 8 MiB of outputs.
_FEW_NODES = 32

RETRY_AFTER_SECONDS = 1
# A caller that has not come again by then has given up its turn.
TURN_SECONDS = 5

_REQUEST_LOAD = "weft.request_load"

# The caller whose request the current task serves.
current_caller: ContextVar[str] = ContextVar("weft_caller", default="")


class OverloadedError(ProblemError):
    """There is no room for it now; a repetition later may find some."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "overloaded", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


@dataclass(slots=True)
class _Turn:
    nodes: int
    until: int


class RefusedCallers:
    """Callers that were turned away, the one who has waited longest first."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}

    def ahead_of(self, caller: str, *, now: int) -> int:
        """Return how many nodes the callers want whose turn comes before this caller's."""
        ahead = 0
        for name, turn in list(self._turns.items()):
            if name == caller:
                break
            if turn.until < now:
                del self._turns[name]
            else:
                ahead += turn.nodes
        return ahead

    def join(self, caller: str, nodes: int, *, now: int) -> None:
        """Take a turn, or keep the turn that an earlier refusal gave."""
        turn = _Turn(nodes, now + micros(TURN_SECONDS))
        is_kept = caller in self._turns and self._turns[caller].until >= now
        if not is_kept:
            self._turns.pop(caller, None)
        self._turns[caller] = turn

    def leave(self, caller: str) -> None:
        self._turns.pop(caller, None)


class Share:
    """A number of places, or of bytes, that callers share; see the head of this module."""

    __slots__ = ("_in_use_by", "in_use", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self._in_use_by: dict[str, int] = {}

    def take(self, caller: str, count: int = 1) -> bool:
        """Let a caller hold so many more; False: there are too few left, or the caller has its share."""
        own = self._in_use_by.get(caller, 0)
        if own + count > self.limit - self.in_use:
            return False
        self.force(caller, count)
        return True

    def force(self, caller: str, count: int) -> None:
        """Let a caller hold so many more, however many are left."""
        self.in_use += count
        self._in_use_by[caller] = self._in_use_by.get(caller, 0) + count

    def give_back(self, caller: str, count: int = 1) -> None:
        self.in_use -= count
        left = self._in_use_by[caller] - count
        if left:
            self._in_use_by[caller] = left
        else:
            del self._in_use_by[caller]


class Turn(AbstractAsyncContextManager[None]):
    """Lets one task at a time into a block, in order; the next one enters a pause after the last has left."""

    def __init__(self, pause_seconds: float) -> None:
        self._free = asyncio.Semaphore(1)
        self._pause_seconds = pause_seconds

    async def __aenter__(self) -> None:
        await self._free.acquire()

    async def __aexit__(self, *failure: object) -> None:
        asyncio.get_running_loop().call_later(self._pause_seconds, self._free.release)


def _nobody(reason: str) -> None:
    """Ignore a refusal: there are no metrics."""


class Load:
    """The load of one API: its requests, the bytes of their bodies, and those that wait.

    ``connections``: how many there may be. Requests, streams and waits take three quarters of them at most,
    so that a new caller finds one. ``refused``: called with the bound that a request was refused for.
    """

    def __init__(self, *, connections: int, refused: Callable[[str], None] = _nobody) -> None:
        self._refused = refused
        self.requests = Share(max(1, min(_MAX_REQUESTS, connections // 4)))
        self.open_requests = Share(_MAX_OPEN_REQUESTS)
        # Webhooks, and those who sign in with a key: their bodies may come slowly, and health is not to wait
        # behind them.
        self.unproven = Share(_MAX_OPEN_REQUESTS)
        self.waiting = Share(max(1, min(_MAX_WAITING, connections // 2)))
        self.streams = Share(max(1, min(_MAX_STREAMS, connections // 4)))
        self.history_turn = Turn(_HISTORY_PAUSE_SECONDS)
        # Of calls that take over all rows of an execution, with their outputs: a retry, a fork.
        self._takeover_turn = Turn(_HISTORY_PAUSE_SECONDS)
        self.held_bytes = Share(_MAX_HELD_BYTES)
        self.unproven_bytes = Share(_MAX_UNPROVEN_BYTES)
        self.value_bytes = Share(_MAX_VALUE_BYTES)
        # Nodes that were let in and are not in the store yet.
        self.coming = 0
        # The backlog when the store last told it, with what was let in since: it counts while the store is
        # away.
        self.known_backlog = 0
        self.refused_callers = RefusedCallers()

    def take(self, share: Share, caller: str, *, reason: str, what: str) -> None:
        """Let a caller have one more of a share, or raise OverloadedError."""
        if not share.take(caller):
            raise self.refuse(reason, f"{share.in_use:,} {what}, and you have your share of {share.limit:,}")

    def takeover_of(self, nodes: int) -> AbstractAsyncContextManager[None]:
        """Return the context to take over the rows of an execution with so many nodes in."""
        return self._takeover_turn if nodes > _FEW_NODES else nullcontext()

    def refuse(self, reason: str, detail: str) -> OverloadedError:
        """Count a refusal, and return what to answer."""
        self._refused(reason)
        return OverloadedError(f"{detail}; try again")


class RequestLoad:
    """The share of one request in the load, from its beginning to its end."""

    __slots__ = ("_caller", "_held_bytes", "_in_use_bytes", "_load", "_share", "_value_bytes", "_waiting")

    def __init__(self, load: Load, caller: str, *, is_open: bool = False, is_unproven: bool = False) -> None:
        """``is_open``: the route is open to all; ``is_unproven``: what it reads says who is let in."""
        self._share = load.unproven if is_unproven else load.open_requests if is_open else load.requests
        self._held_bytes = load.unproven_bytes if is_unproven else load.held_bytes
        load.take(
            self._share,
            caller,
            reason="open_requests" if is_open else "requests",
            what="requests are under way",
        )
        self._load = load
        self._caller = caller
        self._in_use_bytes = 0
        self._value_bytes = 0
        self._waiting = False

    def leave(self) -> None:
        """Release what the request takes up of the load: its count, its body bytes and its wait."""
        (self._load.waiting if self._waiting else self._share).give_back(self._caller)
        self._waiting = False
        if self._in_use_bytes:
            self._held_bytes.give_back(self._caller, self._in_use_bytes)
            self._in_use_bytes = 0
        self.release_values()

    def hold(self, count: int) -> None:
        """Take up memory for so many more bytes of the request's body."""
        if not count:
            return
        held_bytes = self._held_bytes
        if held_bytes.in_use == self._in_use_bytes:
            held_bytes.force(self._caller, count)
        elif not held_bytes.take(self._caller, count):
            raise self._load.refuse("bodies", "the requests under way, or yours, hold too much data")
        self._in_use_bytes += count

    def hold_values(self, count: int) -> None:
        """Take up memory for what is made of a large body; the first of all is always let in."""
        value_bytes = self._load.value_bytes
        if not value_bytes.in_use:
            value_bytes.force(self._caller, count)
        elif not value_bytes.take(self._caller, count):
            raise self._load.refuse("values", "the requests under way, or yours, hold too many values")
        self._value_bytes += count

    def release_values(self) -> None:
        """Release the memory for what was made of a large body, once nobody needs that any more."""
        if self._value_bytes:
            self._load.value_bytes.give_back(self._caller, self._value_bytes)
            self._value_bytes = 0

    @property
    def room(self) -> Room:
        """Return what the request gets for large reads: a part of the caller's share, and turns."""
        return Room(self.hold_values, self._load.history_turn)

    def wait(self) -> None:
        """Count as one that waits from now on, not as one that is worked on."""
        if self._waiting:
            return
        load = self._load
        load.take(load.waiting, self._caller, reason="waiting", what="streams and waiting calls are open")
        self._waiting = True
        self._share.give_back(self._caller)

    def stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._load.waiting.give_back(self._caller)
            # The request was let in once, and is answered now.
            self._share.force(self._caller, 1)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Count as an open stream in this block."""
        load = self._load
        load.take(load.streams, self._caller, reason="streams", what="event streams are open")
        try:
            yield
        finally:
            load.streams.give_back(self._caller)


def load_of(request: HTTPConnection) -> RequestLoad:
    return load_in(request.scope)


def load_in(scope: Scope) -> RequestLoad:
    request_load: RequestLoad = scope[_REQUEST_LOAD]
    return request_load


@contextmanager
def waiting(request: HTTPConnection) -> Iterator[None]:
    """Let a request wait for something to happen without counting among those that are worked on.

    A stream need not leave it: call ``load_of(request).wait()`` and let the end of the request do the rest.
    """
    request_load = load_of(request)
    request_load.wait()
    try:
        yield
    finally:
        request_load.stop_waiting()
