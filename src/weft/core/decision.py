"""Decisions, in the imperative: the result of ``decide`` for a free node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from weft.core.event import Skip


class DispatchNode(msgspec.Struct, frozen=True, gc=False):
    """Hand the attempt out, with this config. ``cache_key``: look there first."""

    node_id: str
    config: bytes
    secrets: tuple[Any, ...] = ()
    cache_key: str | None = None


class ParkNode(msgspec.Struct, frozen=True, gc=False):
    """Start the attempt without a worker: after so many seconds it completes with this config."""

    node_id: str
    seconds: float
    config: bytes
    cache_key: str | None = None


class SkipNode(msgspec.Struct, frozen=True, gc=False):
    """Settle it as skipped, with what can no longer run behind it."""

    node_id: str
    reason: str
    cause: str | None
    skips: tuple[Skip, ...]


class FailNode(msgspec.Struct, frozen=True, gc=False):
    """Settle it as failed, before any attempt, with what can no longer run behind it."""

    node_id: str
    error: dict[str, Any]
    skips: tuple[Skip, ...]


Decision: TypeAlias = DispatchNode | ParkNode | SkipNode | FailNode
