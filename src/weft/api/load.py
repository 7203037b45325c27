"""How much the requests of one API have in hand: so many at once, so many bytes of bodies, so many that wait.

Whatever is over a bound is refused at once with 503 ``overloaded`` and ``Retry-After``. A server that says no
keeps what it has promised; one that takes everything ends by losing it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weft.api.problem import ProblemError
from weft.core.time import micros

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import HTTPConnection

# Requests that are being worked on. They share two cores or so: more at once are only later, each of them.
MAX_REQUESTS = 1000
# Streams, and calls that wait for an execution: they cost a socket and a few kilobytes, and no work.
MAX_WAITING = 10_000
# Bodies in memory. One of the greatest size is always let in.
MAX_HELD_BYTES = 256 * 2**20

RETRY_AFTER_SECONDS = 1
# A caller that has not come again by then has given up its turn.
TURN_SECONDS = 5

_PLACE = "weft.place"


class OverloadedError(ProblemError):
    """There is no room for it now; a repetition later may find some."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "overloaded", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


@dataclass(slots=True)
class _Turn:
    nodes: int
    until: int


class Line:
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
        """Take a turn, or keep the place that an earlier refusal gave."""
        turn = _Turn(nodes, now + micros(TURN_SECONDS))
        is_kept = caller in self._turns and self._turns[caller].until >= now
        if not is_kept:
            self._turns.pop(caller, None)
        self._turns[caller] = turn

    def leave(self, caller: str) -> None:
        self._turns.pop(caller, None)


@dataclass(slots=True)
class Load:
    """How much the requests of one API have in hand."""

    requests: int = 0
    waiting: int = 0
    streams: int = 0
    held_bytes: int = 0
    # Nodes that were let in and are not in the store yet.
    coming: int = 0
    # The backlog when the store last told it, with what was let in since: it counts while the store is away.
    known_backlog: int = field(default=0, compare=False)
    line: Line = field(default_factory=Line, compare=False)


class Place:
    """What one request takes up of the load, from its beginning to its end."""

    __slots__ = ("_held_bytes", "_load", "_waiting")

    def __init__(self, load: Load) -> None:
        if load.requests >= MAX_REQUESTS:
            raise OverloadedError(f"{load.requests:,} requests are under way; try again")
        load.requests += 1
        self._load = load
        self._held_bytes = 0
        self._waiting = False

    def leave(self) -> None:
        """Release what the request takes up of the load: its count, its body bytes and its wait."""
        self.stop_waiting()
        self._load.requests -= 1
        self._load.held_bytes -= self._held_bytes

    def hold(self, count: int) -> None:
        """Take up memory for so many more bytes of the request's body."""
        held = self._load.held_bytes
        if held > self._held_bytes and held + count > MAX_HELD_BYTES:
            raise OverloadedError("the requests under way hold too much data; try again")
        self._load.held_bytes += count
        self._held_bytes += count

    def wait(self) -> None:
        """Count as one that waits from now on, not as one that is worked on."""
        if self._waiting:
            return
        if self._load.waiting >= MAX_WAITING:
            raise OverloadedError(f"{self._load.waiting:,} streams and waiting calls are open; try again")
        self._waiting = True
        self._load.waiting += 1
        self._load.requests -= 1

    def stop_waiting(self) -> None:
        if self._waiting:
            self._waiting = False
            self._load.waiting -= 1
            self._load.requests += 1


def place_of(request: HTTPConnection) -> Place:
    place: Place = request.scope[_PLACE]
    return place


@contextmanager
def waiting(request: HTTPConnection) -> Iterator[None]:
    """Let a request wait for something to happen without counting among those that are worked on.

    A stream need not leave it: call ``place_of(request).wait()`` and let the end of the request do the rest.
    """
    place = place_of(request)
    place.wait()
    try:
        yield
    finally:
        place.stop_waiting()
