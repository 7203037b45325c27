"""Follows the events of a server as they happen, and reconnects when a connection is lost."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from weft.errors import ApiError, UnreachableError
from weft.sdk import calls
from weft.sdk.sse import EventReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection

    from weft.sdk.calls import ApiCall
    from weft.sdk.http import HttpConnection
    from weft.sdk.shapes import LoggedLine
    from weft.sdk.sse import ServerSentEvent

# After one of these the stream of an execution ends, unless a retry has opened it again.
_ENDS = frozenset({"execution.completed", "execution.failed", "execution.cancelled"})
# Sent behind the last line of an execution that has ended.
_LAST_LINE = frozenset({"end"})


async def follow(
    connection: HttpConnection, execution_id: str | None, *, after: int = 0
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield each recorded event of an execution behind number ``after`` once and in order, to its end.

    A connection that breaks is opened again behind the last event seen. Events without an id come as they
    are told, and may be missed. Without an execution: the events of all, from now on and without end.
    """
    call = calls.live_events(execution_id)
    events = _read_on(connection, call, after=after, numbered=execution_id is not None, ends=_ENDS)
    async with aclosing(events):
        async for event in events:
            yield event


async def follow_logs(
    connection: HttpConnection, call: ApiCall[LoggedLine], *, after: int = 0
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield each line of a stream of lines behind number ``after`` once, until its execution has ended."""
    lines = _read_on(connection, call, after=after, numbered=True, ends=_LAST_LINE)
    async with aclosing(lines):
        async for line in lines:
            if line.id:
                yield line


async def _read_on(
    connection: HttpConnection,
    call: ApiCall[Any],
    *,
    after: int,
    numbered: bool,
    ends: Collection[str],
) -> AsyncGenerator[ServerSentEvent, None]:
    patience = connection.patience()
    last, ended = after, False
    while not ended:
        error: ApiError | UnreachableError
        try:
            async with connection.stream(call, last_id=last or None) as response:
                if response is None:
                    return
                reader = EventReader()
                async for piece in response.content.iter_any():
                    patience.renew()
                    for event in reader.read(piece):
                        if numbered and event.id:
                            number = int(event.id)
                            if number <= last:
                                continue
                            last = number
                        if numbered:
                            ended = event.event in ends or (ended and not event.id)
                        yield event
            error = UnreachableError(f"the stream of events from {connection.url} broke off")
        except (ApiError, UnreachableError) as caught:
            error = caught
        if ended:
            return
        if not connection.may_pass(error):
            raise error
        await patience.wait(error)
