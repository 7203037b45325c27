"""Rates: a token bucket with a line beside it for resource tags, a sliding window for callers.

A resource tag limits *starts*, as the called service sees them. A token given when a task is sent
would be spent later, together with others, when busy workers come free. So tagged nodes stand in a
line beside their bucket; one is released when a token is there for it; and the token is spent at the
start. Released but not started nodes never exceed the tokens that are there.
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
    # When to look again at the latest: a token is due for somebody, or a release may have come to nothing.
    next_at: int | None


class Limits(Protocol):
    def limited(self, tag: str) -> bool:
        """Say whether a rate is configured for the tag; without one it is unlimited."""

    async def join(self, tag: str, ticket: AttemptRef) -> None:
        """Stand at the end of the line; somebody in it already keeps his place."""

    async def release(self) -> Released:
        """Let go as many from each line as there are tokens nobody else was let go for.

        A release is leased, not final: one that has led to no start after a while is made again, in case
        whoever was told of it has died.
        """

    async def spend(self, tag: str, ticket: AttemptRef) -> bool:
        """Take a token for a start that happens now. False: there is none; wait in line again."""

    async def leave(self, tag: str, ticket: AttemptRef) -> None:
        """Give up a place in the line, or a release that will not be used."""

    async def due(self, tag: str) -> Mapping[AttemptRef, int]:
        """Say of each who waits in the line when his token is there, if all before him start in time.

        It is for those who look from outside: nothing is decided by it.
        """

    async def hit(self, key: str, *, limit: int, window_seconds: float) -> float:
        """Count a call against a sliding window: 0.0 where it is allowed, else the seconds to wait."""
