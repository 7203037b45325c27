"""What time it is at the server at least, by what it said last: most often that is enough to know."""

from __future__ import annotations

import asyncio

from weft.core.time import MICROSECONDS

# No two clocks are further apart after a second than this part of it.
_DRIFT = 1e-3
# Beyond this the server is asked again: somebody may have set its clock.
_GOOD_SECONDS = 1.0


class ServerTime:
    def __init__(self) -> None:
        self._said = 0
        self._heard_at = 0.0

    def heard(self, now: int) -> int:
        """Note what the server has just said, and give it back."""
        self._said, self._heard_at = now, asyncio.get_running_loop().time()
        return now

    def at_least(self) -> int:
        """Give a time that has passed at the server; 0: nothing is known."""
        since = asyncio.get_running_loop().time() - self._heard_at
        if since > _GOOD_SECONDS:
            return 0
        return self._said + int(since * (1 - _DRIFT) * MICROSECONDS)
