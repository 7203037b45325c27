"""HTTP over a plain socket, for what no client library would send, and to see when a connection is cut."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    # By their names in lower case.
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """Write a request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Connection:
    """One connection. Whatever breaks off in the middle of an answer raises IncompleteReadError."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, *, address: str | None = None) -> AsyncIterator[Self]:
        """Open a connection, from this address if it is given."""
        parts = urlsplit(url)
        local = None if address is None else (address, 0)
        connection = cls(*await asyncio.open_connection(parts.hostname, parts.port, local_addr=local))
        try:
            yield connection
        finally:
            connection._writer.close()
            with suppress(ConnectionError):
                await connection._writer.wait_closed()

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> Answer:
        """Read one whole answer; raises where the other side closes instead."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
            fields = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in fields}
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
            return Answer(int(first.split()[1]), headers, body)

    async def ask(self, data: bytes) -> Answer:
        await self.send(data)
        return await self.answer()

    async def closed(self) -> bytes:
        """Return once the other side has closed the connection, with what it still said."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                return await self._reader.read()
        return b""
