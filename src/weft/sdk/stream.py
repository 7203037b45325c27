"""Events as they happen, over as many connections as it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.errors import ApiError, UnreachableError
from weft.sdk import calls
from weft.sdk.sse import EventReader

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from weft.sdk.http import HttpConnection
    from weft.sdk.sse import ServerSentEvent

# After one of these the stream of an execution ends, unless a retry has opened it again.
_ENDS = frozenset({"execution.completed", "execution.failed", "execution.cancelled"})


async def follow(
    connection: HttpConnection, execution_id: str | None, *, after: int = 0
) -> AsyncGenerator[ServerSentEvent, None]:
    """Yield each recorded event of an execution behind number ``after`` once and in order, to its end.

    A connection that breaks is opened again behind the last event seen. Events without an id come as they
    are told, and may be missed. Without an execution: the events of all, from now on and without end.
    """
    call = calls.live_events(execution_id)
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
                        if execution_id is not None and event.id:
                            number = int(event.id)
                            if number <= last:
                                continue
                            last, ended = number, event.event in _ENDS
                        yield event
            error = UnreachableError(f"the stream of events from {connection.url} broke off")
        except (ApiError, UnreachableError) as caught:
            error = caught
        if ended:
            return
        if not connection.may_pass(error):
            raise error
        await patience.wait(error)
