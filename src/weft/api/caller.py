"""The sender of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """The sender of a request: the namespace that it may see, and its name in the history."""

    namespace: str
    actor: str
    name: str
