"""Rates: a token bucket with a wait queue for each resource tag, a sliding window for callers.

A resource tag limits *starts*, as the called service sees them. A token given when a task is sent
would be spent later, together with others, when busy workers come free. So a tagged node
joins the wait queue of its bucket; it is released when a token is there for it; and the token is spent at
the start. Nodes that are released and not started never exceed the tokens that are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.attempt import AttemptRef


class Rate(msgspec.Struct, frozen=True):
    """``rate_per_second`` starts a second on average, at most ``burst`` at once."""

    rate_per_second: float
    burst: int = 1


class Released(msgspec.Struct, frozen=True):
    tickets: Sequence[tuple[str, AttemptRef]]
    # When to look again at the latest: a token is due for a ticket, or a release may have led to no start.
    next_at: int | None


class Limits(Protocol):
    def limited(self, tag: str) -> bool:
        """True if a rate is configured for the tag; a tag without a rate is unlimited."""

    async def join(self, tag: str, ticket: AttemptRef) -> None:
        """Append a ticket to the wait queue; a ticket that is there already keeps its position."""

    async def release(self) -> Released:
        """Release as many tickets of each wait queue as there are tokens that no released ticket waits for.

        A release is leased, not final: one that has led to no start after a while is made again, in case
        whoever was told of it has died.
        """

    async def spend(self, tag: str, ticket: AttemptRef) -> bool:
        """Take a token for a start that happens now. False: there is none; join the wait queue again."""

    async def leave(self, tag: str, ticket: AttemptRef) -> None:
        """Remove a ticket from the wait queue, or give up a release that the ticket will not use."""

    async def due(self, tag: str) -> Mapping[AttemptRef, int]:
        """Estimate when each waiting ticket will get its token, if all tickets before it start in time.

        It is for those who look from outside: nothing is decided by it.
        """

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        """Count a call against a sliding window: 0.0 where it is allowed, else the seconds to wait."""
