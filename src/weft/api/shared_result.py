"""Results that many callers ask for at once: computed once, and the results used last are kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from weft.lru import Lru

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

Value = TypeVar("Value")


class SharedResults(Generic[Value]):
    """Keeps results by key while their weights sum to at most ``limit``."""

    def __init__(self, limit: int, weigh: Callable[[Value], int] = lambda value: 1) -> None:
        self._kept: Lru[str, Value] = Lru(limit, weigh)
        self._under_way: dict[str, asyncio.Task[Value]] = {}

    async def get(self, key: str, compute: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        """Return the result of a key; callers that ask while it is computed wait for the same computation."""
        kept = self._kept.get(key)
        if kept is not None:
            return kept
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._compute(key, compute))
        # A caller that leaves does not take the result from the others.
        return await asyncio.shield(task)

    async def _compute(self, key: str, compute: Callable[[], Coroutine[Any, Any, Value]]) -> Value:
        try:
            value = await compute()
            self._kept.put(key, value)
            return value
        finally:
            del self._under_way[key]
