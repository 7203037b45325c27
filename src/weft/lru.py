"""Lru: a bounded memory of what was used last."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Key = TypeVar("Key")
Value = TypeVar("Value")


class Lru(Generic[Key, Value]):
    """Keeps the values used last while their weights sum to at most ``limit``, and always the last one.

    ``weigh`` is asked again by ``put`` alone: a value that has grown is put once more.
    """

    __slots__ = ("_limit", "_values", "_weigh", "_weights", "weight")

    def __init__(self, limit: int, weigh: Callable[[Value], int] = lambda value: 1) -> None:
        self._limit = limit
        self._weigh = weigh
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._weights: dict[Key, int] = {}
        # The sum of the weights of all values.
        self.weight = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[Key]:
        """Iterate over the keys, the one used longest ago first."""
        return iter(self._values)

    def get(self, key: Key) -> Value | None:
        """Return a value and count that as its use; None where it is not kept."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value in the place of those used longest ago."""
        weight = self._weigh(value)
        self.weight += weight - self._weights.get(key, 0)
        self._weights[key] = weight
        self._values[key] = value
        self._values.move_to_end(key)
        while self.weight > self._limit and len(self._values) > 1:
            oldest, _ = self._values.popitem(last=False)
            self.weight -= self._weights.pop(oldest)

    def drop(self, key: Key) -> None:
        """Forget a value, if it is kept."""
        if self._values.pop(key, None) is not None:
            self.weight -= self._weights.pop(key)

    def clear(self) -> None:
        self._values.clear()
        self._weights.clear()
        self.weight = 0
