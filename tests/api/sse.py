"""Reading server-sent events as a browser does."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp
    from tests.api.conftest import Server


@dataclass(frozen=True)
class Told:
    """One event of a stream, or a comment (which has no type)."""

    id: str | None
    type: str | None
    data: Any
    comment: str | None = None


class Stream:
    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.status = response.status

    async def next(self) -> Told | None:
        """Return the next event or comment; None: the stream has ended."""
        fields: dict[str, str] = {}
        while line := (await self.response.content.readline()).decode():
            assert line.endswith("\n"), f"the stream broke off in {line!r}"
            if line == "\n":
                data = json.loads(fields["data"]) if "data" in fields else None
                return Told(fields.get("id"), fields.get("event"), data, fields.get(""))
            name, _, value = line[:-1].partition(":")
            assert name not in fields, f"{name} twice in one event"
            fields[name] = value.removeprefix(" ")
        assert not fields, f"the stream broke off in an event: {fields}"
        return None

    async def event(self) -> Told:
        """Return the next event, comments left out."""
        while (told := await self.next()) is not None:
            if told.type is not None:
                return told
        raise AssertionError("the stream has ended")

    async def until(self, type_: str) -> Told:
        """Return the next event of a type, with the ones before it left out."""
        while (told := await self.event()).type != type_:
            pass
        return told

    async def rest(self) -> list[Told]:
        """Return all events up to the end of the stream."""
        events = []
        while (told := await self.next()) is not None:
            if told.type is not None:
                events.append(told)
        return events


@asynccontextmanager
async def watch(
    server: Server, path: str, *, last_event_id: str | None = None, key: str | None = None
) -> AsyncIterator[Stream]:
    """Open a stream; leaving the block closes the connection, whatever is still to come."""
    headers = {"Accept": "text/event-stream"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id
    response = await server.session.get(server.url + path, headers=headers)
    try:
        yield Stream(response)
    finally:
        response.close()
