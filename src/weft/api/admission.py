"""What is let in: so many requests at once, so many bytes of bodies, so many nodes not yet settled.

Whatever is over a bound is refused at once with 503 ``overloaded`` and ``Retry-After``, and nothing of it is
stored. A server that says no keeps what it has promised; one that takes everything ends by losing it.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weft.api.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import HTTPConnection

    from weft.api.service import Service

# Requests that are being worked on. They share two cores or so: more at once are only later, each of them.
MAX_REQUESTS = 1000
# Streams, and calls that wait for an execution: they cost a socket and a few kilobytes, and no work.
MAX_WAITING = 10_000
# Bodies in memory. One of the greatest size is always let in.
MAX_HELD_BYTES = 256 * 2**20

RETRY_AFTER_SECONDS = 1

_PLACE = "weft.place"


class OverloadedError(ProblemError):
    """There is no room for it now; a repetition later may find some."""

    def __init__(self, detail: str) -> None:
        super().__init__(503, "overloaded", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


@dataclass(slots=True)
class Load:
    """How much the requests of one API have in hand."""

    requests: int = 0
    waiting: int = 0
    streams: int = 0
    held_bytes: int = 0


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
        """Give back all it has."""
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


async def admit(service: Service, nodes: int) -> None:
    """Return if executions with so many nodes in all may be submitted now, else raise the problem to answer.

    A server with nothing to do takes up anything, or a bound set too low would refuse one large execution
    for ever. The count is of a moment ago: calls side by side may pass it together, each by its own nodes.
    """
    if service.stopping.is_set():
        raise ProblemError(
            503,
            "unavailable",
            "this server is stopping",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    backlog = await service.ports.store.backlog()
    if backlog and backlog + nodes > service.settings.max_backlog:
        raise OverloadedError(
            f"{backlog:,} nodes are waiting or running, and {nodes:,} more would pass the limit of "
            f"{service.settings.max_backlog:,} (WEFT_MAX_BACKLOG); try again when some have settled"
        )
