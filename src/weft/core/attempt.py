"""The reference that names an attempt, and the fields that its end is recorded with."""

from __future__ import annotations

from typing import Protocol

import msgspec


class AttemptRef(msgspec.Struct, frozen=True, gc=False):
    """Names one attempt of one node. Whatever is about an attempt begins with these fields."""

    execution_id: str
    generation: int
    node_id: str
    attempt: int

    @property
    def ref(self) -> AttemptRef:
        """The name alone: equal for all that is about the same attempt."""
        return AttemptRef(self.execution_id, self.generation, self.node_id, self.attempt)


class EndedAttempt(Protocol):
    """An attempt with its times, as far as they are known: a result, an expired lease, an event."""

    @property
    def execution_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def node_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def worker(self) -> str | None: ...
    @property
    def queued_at(self) -> int | None: ...
    @property
    def started_at(self) -> int | None: ...
    @property
    def finished_at(self) -> int | None: ...
