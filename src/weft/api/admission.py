"""Admission control: bounds the number of unsettled nodes of all executions.

A submit over the bound is refused at once with 503 ``overloaded`` and ``Retry-After``, and nothing of the
submit is stored.

Without turns, free room would go to the caller that retries most often. So a refused caller gets a turn: the
room that it has asked for is kept from later callers until it retries.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from weft.api.load import RETRY_AFTER_SECONDS, OverloadedError
from weft.api.problem import ProblemError
from weft.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from weft.api.service import Service


@asynccontextmanager
async def admitted(service: Service, nodes: int, *, caller: str) -> AsyncIterator[bool]:
    """Let executions with so many nodes in all be submitted in this block, or raise the problem to answer.

    Gives whether the store is there: they are accepted without it too, and wait for it. A server with
    nothing to do takes up anything, or a bound set too low would refuse one large execution for ever.
    """
    if service.stopping.is_set():
        raise ProblemError(
            503,
            "unavailable",
            "this server is stopping",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    load, now = service.load, service.ports.clock.now()
    # With those on their way into the store: calls side by side must not pass the bound together.
    try:
        load.known_backlog = await service.ports.store.backlog()
        is_there = True
    except StoreError:
        is_there = False
    backlog = load.known_backlog + load.coming
    ahead = load.refused_callers.ahead_of(caller, now=now)
    if backlog + ahead and backlog + ahead + nodes > service.settings.max_backlog:
        load.refused_callers.join(caller, nodes, now=now)
        others = f", {ahead:,} more are for callers who have waited longer" if ahead else ""
        raise OverloadedError(
            f"{backlog:,} nodes are waiting or running{others}, and {nodes:,} more would pass the limit of "
            f"{service.settings.max_backlog:,} (WEFT_MAX_BACKLOG); try again when some have settled"
        )
    load.refused_callers.leave(caller)
    load.coming += nodes
    try:
        yield is_there
        load.known_backlog += nodes
    finally:
        load.coming -= nodes
