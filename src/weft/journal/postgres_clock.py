"""The database's clock, by which all processes of a fleet write their times."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Callable


class DatabaseClock:
    """What the database's clock says, asked or known from what it said last."""

    def __init__(self, given: Callable[[], int] | None) -> None:
        """``given``: a time that counts instead, for tests that have one of their own."""
        self._given = given
        # How far it is ahead of the loop's; None: it was not asked yet.
        self._ahead: int | None = None

    def hear(self, said: int) -> int:
        """Note the time that the database has just said; give the time that counts."""
        self._ahead = said - _loop_time()
        return said if self._given is None else self._given()

    def time(self) -> int | None:
        """Give the time without asking; None: it was never asked."""
        if self._given is not None:
            return self._given()
        return None if self._ahead is None else _loop_time() + self._ahead


def _loop_time() -> int:
    return int(asyncio.get_running_loop().time() * MICROSECONDS)
