"""The value of a missing name in an expression: it can be passed on, and says why it is missing."""

from __future__ import annotations

from weft.errors import EvaluationError


class UndefinedError(EvaluationError):
    """Something undefined stood where a value was needed."""


class Undefined:
    """The result of a path that leads nowhere.

    It has no keys and no items, so a longer path runs into a ``TypeError`` on it and the evaluator passes it
    on. ``default(…)``, ``is defined`` and ``is undefined`` take it; everything else raises ``error()``.
    """

    __slots__ = ("path", "why")

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why

    def error(self) -> UndefinedError:
        return UndefinedError(f"{self.path:.200} is not defined: {self.why}")
