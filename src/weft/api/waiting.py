"""Waits for the end of an execution by a subscription to the feed, with few reads of the journal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

from weft.core.state import TERMINAL
from weft.core.time import MICROSECONDS
from weft.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from weft.api.service import Service

# The events with which an execution becomes terminal.
ENDS = frozenset(f"execution.{state.lower()}" for state in TERMINAL)

# A feed may miss an end, so the journal is asked now and then. Thousands may wait, and each would ask.
LOOK_SECONDS = 15.0

_T = TypeVar("_T")


async def wait_for_end(service: Service, execution_id: str, seconds: float) -> bool:
    """Return once the execution is terminal, or the time is over, or the server stops; True: it is terminal.

    Raises NotFoundError where there is no such execution.
    """
    return bool(await unless(_wait(service, execution_id, seconds), service.stopping.wait()))


async def _wait(service: Service, execution_id: str, seconds: float) -> bool:
    clock = service.ports.clock
    until = clock.now() + round(seconds * MICROSECONDS)
    # Listen first, then look: the end may come while the journal is being asked.
    async with service.feed.subscribe(execution_id=execution_id, types=ENDS) as subscription:
        while True:
            row = await service.ports.catalog.execution(execution_id)
            if row is None:
                raise NotFoundError(f"there is no execution {execution_id}")
            if row.is_terminal:
                return True
            left_seconds = (until - clock.now()) / MICROSECONDS
            if left_seconds <= 0:
                return False
            wait_seconds = min(left_seconds, service.look_seconds(LOOK_SECONDS))
            if await subscription.receive(wait_seconds=wait_seconds):
                return True


async def unless(work: Coroutine[Any, Any, _T], *others: Coroutine[Any, Any, object]) -> _T | None:
    """Return the result of an awaitable, or None (and cancel it) if one of the others finishes first."""
    working = asyncio.create_task(work)
    tasks = [working, *(asyncio.create_task(other) for other in others)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in tasks:
            task.cancel()
        # Their ends are awaited, so that nothing of them is left when this returns.
        await asyncio.wait(tasks)
