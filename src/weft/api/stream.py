"""Events: the history of an execution page by page, and events as they happen, as server-sent events.

A stream of one execution loses nothing. It subscribes to the feed first. Then it reads the journal from the
last number that it has sent, after every event of the feed and every few seconds. So an event that the feed
has lost is read from the journal; only live events, which the journal does not have, come from the feed
alone.

A database may lose its last commits (``DURABILITY=relaxed``, a restored copy). A stream that is ahead of the
history then starts again at the first event: each read includes the last event that was sent, and that event
is missing or another one.

A slow client delays only its own stream: the feed holds a bounded number of events for each stream. A client
that does not read at all is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from weft.api.answer import no_content, page
from weft.api.auth import caller_of
from weft.api.load import load_in, load_of
from weft.api.problem import ProblemError, invalid_request
from weft.api.schema import Events, Limit, answers, problems
from weft.api.schema import Request as QueryModel
from weft.api.service import service_of
from weft.api.waiting import ENDS, unless
from weft.core.rows import shown_error
from weft.core.time import MICROSECONDS, micros, rfc3339
from weft.errors import JournalError, NotFoundError, Problem
from weft.views.summary import progress_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from weft.api.service import Service
    from weft.core.rows import ExecutionRow, History
    from weft.feed.contract import Subscription

log = logging.getLogger("weft.api")

router = APIRouter(tags=["events"])

MEDIA_TYPE = "text/event-stream"
# A line that says nothing, so that a proxy does not take a quiet stream for a dead one.
COMMENT_SECONDS = 15.0
# The journal is read this often even if nothing is told: the feed is a hint.
LOOK_SECONDS = 5.0
# Between two writes. A busy execution tells thousands of events a second; nobody watches that closely, and
# many events in one write cost a fraction of as many writes.
PACE_SECONDS = 0.05
# All streams together write so often: with a thousand of them, each writes every two seconds.
PACE_SECONDS_OF_ONE = 0.002
# A client that takes nothing for so long is told no more. It finds its place again with Last-Event-ID.
SLOWEST_SECONDS = 30.0
# Events read from the journal at once: so much of the history lies in memory for one client.
PAGE_EVENTS = 200

_TIMES = ("queued_at", "started_at", "finished_at", "due_at")
_PLAIN = (
    "node",
    "attempt",
    "state",
    "reason",
    "cause",
    "error",
    "worker",
    "output_digest",
    "signal",
    "actor",
)
NUMBER = r"^[0-9]{1,18}$"
_EXAMPLE = (
    'event: execution.created\ndata: {"seq": 1, "at": "2026-01-31T09:30:00.000000Z", '
    '"type": "execution.created", "execution": "0198c5a2-6f1e-7c3a-9d2b-5e8f0a1b2c3d", "generation": 1}\n\n'
)


class EventsQuery(QueryModel):
    limit: Limit = 50
    after: Annotated[
        str,
        Field(
            description="the number of an event, or `next_cursor`: what came after it",
            json_schema_extra={"pattern": NUMBER},
        ),
    ] = "0"


@router.get(
    "/v1/executions/{execution_id}/events",
    operation_id="listEvents",
    responses={
        200: {
            "description": "the history; as server-sent events where the client accepts them",
            "content": {
                **answers(200, Events)[200]["content"],
                MEDIA_TYPE: {"schema": {"type": "string"}, "example": f"id: 1\n{_EXAMPLE}"},
            },
        },
        **answers(204, description="server-sent events: the execution has ended, and all of it was told"),
        **problems(404, 422, 503),
    },
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "the same as `after`, and goes before it",
                "schema": {"type": "string", "pattern": NUMBER},
            }
        ]
    },
)
async def list_events(
    execution_id: str, request: Request, query: Annotated[EventsQuery, Query()]
) -> Response:
    """Read the history of an execution, page by page or as it happens."""
    service = service_of(request)
    after = read_number("after", query.after)
    if "last-event-id" in request.headers:
        # A browser that connects again sends the address it had, and where it was beside it.
        after = read_number("Last-Event-ID", request.headers["last-event-id"])
    catalog = service.ports.catalog
    row = await catalog.execution(execution_id, namespace=caller_of(request).namespace)
    if row is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    if not wants_stream(request):
        async with service.load.history_turn:
            events = await catalog.events(execution_id, after=after, limit=query.limit + 1)
            shown = [describe_event(event) for event in events[: query.limit]]
            more = len(events) > query.limit
            return page(shown, next_cursor=str(shown[-1]["seq"]) if more else None)
    if row.is_terminal and after == row.seq:
        return no_content()
    return opened(request, ExecutionStream(service, row, after=after))


@router.get(
    "/v1/events",
    operation_id="watchEvents",
    responses={
        200: {
            "description": "events of all executions, as they happen",
            "content": {MEDIA_TYPE: {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **problems(503),
    },
    response_class=Response,
)
async def watch_events(request: Request) -> Response:
    """Hear of all executions as things happen: live only, as server-sent events without ids."""
    return opened(request, NamespaceStream(service_of(request), caller_of(request).namespace))


def opened(request: Request, stream: EventStream[Any]) -> EventStream[Any]:
    """Return a stream that may be answered now; raises ProblemError while the server stops."""
    if service_of(request).stopping.is_set():
        raise ProblemError(503, "unavailable", "this server is stopping", headers={"Retry-After": "1"})
    load_of(request).wait()
    return stream


def pace_seconds(streams: int) -> float:
    """Return the time between two writes of a stream where so many are open."""
    return max(PACE_SECONDS, streams * PACE_SECONDS_OF_ONE)


def wants_stream(request: Request) -> bool:
    """True if a client asks for server-sent events by name: browsers and tools accept ``*/*``."""
    ranges = ",".join(request.headers.getlist("accept")).lower().split(",")
    return any(one.partition(";")[0].strip() == MEDIA_TYPE for one in ranges)


def read_number(name: str, text: str) -> int:
    """Read a place in a stream; raises ProblemError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise invalid_request([Problem(f"/{name}", "must be the number of an event, as in its seq")])
    return int(text)


def describe_event(event: History) -> dict[str, Any]:
    """Show an event; what it does not have is left out, and the number of one that is not recorded too."""
    shown: dict[str, Any] = {"seq": event.seq} if event.seq else {}
    shown |= {
        "at": rfc3339(event.at),
        "type": event.type,
        "execution": event.execution,
        "generation": event.generation,
    }
    for name in _PLAIN:
        value = getattr(event, name)
        if value is not None:
            shown[name] = shown_error(value) if name == "error" else value
    for name in _TIMES:
        at = getattr(event, name)
        if at is not None:
            shown[name] = rfc3339(at)
    if event.progress is not None:
        shown["progress"] = progress_of(event.progress)
    return shown


# --- Streams.


# What a stream is made of: a subscription to the feed, or frames that are made for many.
Source = TypeVar("Source")


class EventStream(Response, ABC, Generic[Source]):
    """An answer that goes on until there is nothing more to tell, the client leaves, or the server stops."""

    def __init__(self, service: Service) -> None:
        super().__init__(media_type=MEDIA_TYPE)
        self._service = service
        self._clock = service.ports.clock
        self._comment_at = 0
        self.raw_headers = [
            (b"content-type", MEDIA_TYPE.encode()),
            (b"cache-control", b"no-store"),
            # A proxy that gathers an answer before it passes it on would hold back the events.
            (b"x-accel-buffering", b"no"),
        ]

    @abstractmethod
    def subscribe(self) -> AbstractAsyncContextManager[Source]:
        """Listen for what this stream tells of."""

    @abstractmethod
    async def tell(self, source: Source) -> None:
        """Write events until there is nothing more to tell."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with load_in(scope).streaming():
            # A client that has its headers hears all that happens from then on.
            async with self.subscribe() as source:
                self._send = send
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                self._comment_at = self._clock.now() + micros(COMMENT_SECONDS)
                await unless(self._tell(source), _left(receive), self._service.stopping.wait())
        # A client that does not read holds this up, and by now nothing but its own connection.
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, source: Source) -> None:
        try:
            await self.tell(source)
        except TimeoutError:
            log.info("stream.dropped", extra={"seconds": SLOWEST_SECONDS})
        except OSError:
            pass  # the client has gone, or was never to get more than the headers
        except JournalError as error:
            # The client comes again, and goes on where it was.
            log.warning("stream.broken", extra={"error": str(error)})

    async def write(self, events: Sequence[History], *, numbered: bool) -> None:
        if events:
            await self.send_bytes(_framed_all(events, numbered=numbered))

    async def comment(self, text: str = "") -> None:
        await self.send_bytes(f": {text}\n\n".encode())

    async def send_bytes(self, body: bytes) -> None:
        async with asyncio.timeout(SLOWEST_SECONDS):
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def pause(self, subscription: Subscription, seconds: float) -> None:
        """Wait so long, or until something is told; comment when it is time to."""
        await subscription.receive(wait_seconds=seconds)
        await self._comment_if_due()

    async def _comment_if_due(self) -> None:
        if self._clock.now() >= self._comment_at:
            self._comment_at = self._clock.now() + micros(COMMENT_SECONDS)
            await self.comment()

    async def receive(self, subscription: Subscription, *, at_once: bool = False) -> Sequence[History]:
        """Wait for something to be told, or for the time to look by oneself; comment when it is time to."""
        await self._clock.sleep(pace_seconds(self._service.load.streams.in_use))
        comment_seconds = (self._comment_at - self._clock.now()) / MICROSECONDS
        look_seconds = self._service.look_seconds(LOOK_SECONDS)
        wait_seconds = 0.0 if at_once else max(0.0, min(look_seconds, comment_seconds))
        heard = await subscription.receive(wait_seconds=wait_seconds)
        await self._comment_if_due()
        return heard


class ExecutionStream(EventStream["Subscription"]):
    """The history of one execution from a number on, with what is live in between."""

    def __init__(self, service: Service, row: ExecutionRow, *, after: int) -> None:
        super().__init__(service)
        self._id = row.id
        self._after = after
        # When the last event that was sent was recorded: another time is another event. None: the client
        # named its number alone.
        self._after_at: int | None = None
        # Whether the last thing that is known of it is its end: a retry takes that back.
        self._ended = row.is_terminal
        # Whether the next read may find a full page, as the first may.
        self._is_behind = True
        # Live events that are told with the next write, see ``_in_order``.
        self._fresh: list[History] = []

    def subscribe(self) -> Subscription:
        return self._service.feed.subscribe(execution_id=self._id)

    async def tell(self, source: Subscription) -> None:
        heard: Sequence[History] = ()
        while not await self._told_all(heard):
            look_at = self._clock.now() + micros(self._service.look_seconds(LOOK_SECONDS))
            heard = await self.receive(source, at_once=bool(self._fresh))
            while self._has_all(heard, source) and self._clock.now() < look_at:
                await self.write(self._in_order(heard, ()), numbered=True)
                heard = await self.receive(source, at_once=bool(self._fresh))

    def _has_all(self, heard: Sequence[History], subscription: Subscription) -> bool:
        """True if the feed's events are no reason to read the journal: none was missed, none is unwritten."""
        return not subscription.missed and all(event.seq <= self._after for event in heard)

    async def _told_all(self, heard: Sequence[History]) -> bool:
        """Write the events that the journal has by now, and return True if the execution has ended."""
        while True:
            # A stream that is up to date reads a few events, and takes no turn.
            turn: AbstractAsyncContextManager[None] = nullcontext()
            if self._is_behind:
                turn = self._service.load.history_turn
            async with turn:
                recorded = await self._read_on()
                self._is_behind = len(recorded) == PAGE_EVENTS
                # A stream that is so far behind drops live events: they are outdated.
                events = recorded if self._is_behind else self._in_order(heard, recorded)
                body = _framed_all(events, numbered=True)
            # Not in its turn: this client may read slowly.
            if body:
                await self.send_bytes(body)
            for event in recorded:
                self._after, self._after_at = event.seq, event.at
                if event.type in ENDS:
                    self._ended = True
                elif event.type == "execution.retried":
                    self._ended = False
            if not self._is_behind:
                return self._ended

    async def _read_on(self) -> Sequence[History]:
        """Return the next recorded events; the first ones if the journal has lost the last event sent."""
        catalog = self._service.ports.catalog
        if self._after == 0:
            return await catalog.events(self._id, limit=PAGE_EVENTS)
        recorded = await catalog.events(self._id, after=self._after - 1, limit=PAGE_EVENTS + 1)
        if recorded and self._after_at in (None, recorded[0].at):
            return recorded[1:]
        self._after, self._after_at, self._ended = 0, None, False
        return await catalog.events(self._id, limit=PAGE_EVENTS)

    def _in_order(self, heard: Sequence[History], recorded: Sequence[History]) -> list[History]:
        """Merge live events into the recorded ones; those of the last moment wait for the next write.

        The ends that came before them may not be recorded yet. Where its own end is, there is nothing to
        wait for.
        """
        fresh_from = self._clock.now() - micros(PACE_SECONDS)
        ended = {(event.node, event.attempt) for event in recorded}
        ripe: list[History] = []
        fresh: list[History] = []
        for event in (*self._fresh, *heard):
            waits = not event.seq and event.at > fresh_from and (event.node, event.attempt) not in ended
            (fresh if waits else ripe).append(event)
        self._fresh = fresh
        return interleave(ripe, recorded, self._after)


class NamespaceStream(EventStream["Subscription"]):
    """All that happens in a namespace, as it happens."""

    def __init__(self, service: Service, namespace: str) -> None:
        super().__init__(service)
        self._namespace = namespace

    def subscribe(self) -> Subscription:
        return self._service.feed.subscribe(namespace=self._namespace)

    async def tell(self, source: Subscription) -> None:
        while True:
            heard = await self.receive(source)
            if source.missed:
                await self.comment(f"{source.missed} events were missed")
            # A number counts within its execution, so it is no place in this stream.
            await self.write(heard, numbered=False)


def interleave(heard: Sequence[History], recorded: Sequence[History], after: int) -> list[History]:
    """Merge live events into the recorded ones, by their times or by the order in which the feed sent them.

    By their times, because an end is recorded a little after it happened, and by then the next attempt has
    started in its slot: more would seem to run than can.

    ``after``: up to this number all was told before. A live event of an attempt whose end is among that comes
    too late: it would show the attempt as running for ever.
    """
    ended = {(event.node, event.attempt) for event in heard if 0 < event.seq <= after}
    waiting = deque(recorded)
    merged: list[History] = []
    for event in heard:
        while waiting and (_was_over(waiting[0], event) if not event.seq else waiting[0].seq <= event.seq):
            end = waiting.popleft()
            ended.add((end.node, end.attempt))
            merged.append(end)
        if not event.seq and (event.node, event.attempt) not in ended:
            merged.append(event)
    merged.extend(waiting)
    return merged


def _was_over(recorded: History, live: History) -> bool:
    """True if a recorded event happened no later than a live one and does not end the live one's attempt."""
    happened_at = recorded.at if recorded.finished_at is None else recorded.finished_at
    is_own = (recorded.node, recorded.attempt) == (live.node, live.attempt)
    return happened_at <= live.at and not is_own


def _framed_all(events: Sequence[History], *, numbered: bool) -> bytes:
    return b"".join([_framed(event, numbered=numbered) for event in events])


def _framed(event: History, *, numbered: bool) -> bytes:
    place = f"id: {event.seq}\n" if numbered and event.seq else ""
    return (
        f"{place}event: {event.type}\ndata: ".encode() + msgspec.json.encode(describe_event(event)) + b"\n\n"
    )


async def _left(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
