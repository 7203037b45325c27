"""Calls the server of a command, and returns each answer unchanged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.sdk.http import HttpConnection, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from weft.core.payload import Json
    from weft.sdk.calls import ApiCall

AsJson = Annotated[bool, Parameter("--json", help="print JSON")]


class RemoteServer:
    """The calls that a command makes to its server."""

    def __init__(self, connection: HttpConnection) -> None:
        self.connection = connection

    async def ask(self, call: ApiCall[Any]) -> Json:
        """Send a call, and give the JSON of its answer (None: there is none)."""
        answer = await self.connection.send(call)
        return read(answer, object) if answer.body else None

    async def items(self, call: ApiCall[Any], *, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """Yield the items of a list, from as many pages as needed, at most ``limit`` of them."""
        left = limit
        while left is None or left > 0:
            page = await self.ask(call if left is None else call.sized(left))
            for item in page["items"]:
                yield item
            left = None if left is None else left - len(page["items"])
            if page.get("next_cursor") is None:
                return
            call = call.at(page["next_cursor"])


def on_server(work: Callable[[RemoteServer], Awaitable[int]]) -> int:
    """Do a command's work on the server that ``WEFT_URL`` names, and give its exit code."""

    async def main() -> int:
        connection = HttpConnection(waits=False)
        try:
            return await work(RemoteServer(connection))
        finally:
            await connection.close()

    return asyncio.run(main())
