"""Asks the server when a running execution will end, which it predicts from earlier executions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.cli.table import moment
from weft.errors import ApiError, UnreachableError
from weft.sdk import calls
from weft.sdk.progress import seconds_text

if TYPE_CHECKING:
    from weft.cli.server import RemoteServer

# The nodes that decide it: so many are named.
_NAMED = 3


async def expected_end(execution_id: str, server: RemoteServer) -> dict[str, Any] | None:
    """Return the expected end; None if nothing is known of it, as by a server of an earlier release."""
    try:
        timeline = await server.ask(calls.expected(execution_id))
    except (ApiError, UnreachableError):
        return None
    found: dict[str, Any] | None = timeline["expected"]
    return found


def expected_text(expected: dict[str, Any] | None) -> str | None:
    """Write an expected end with its spread and the nodes that decide it."""
    if expected is None:
        return None
    finish, low, high = (moment(expected[name]) for name in ("finish_at", "low_at", "high_at"))
    assert low is not None
    assert high is not None
    left = seconds_text(expected["remaining_seconds"])
    # Of the bounds, the clock times alone: they are of the same days.
    spread = f"{low.split()[1][:8]} to {high.split()[1][:8]}"
    deciding = expected["deciding"]
    more = f" and {len(deciding) - _NAMED:,} more" if len(deciding) > _NAMED else ""
    decided = f", decided by {', '.join(deciding[:_NAMED])}{more}" if deciding else ""
    return f"{finish}, in about {left} ({spread}){decided}"
