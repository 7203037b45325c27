"""A start that finds its execution paused takes two calls: what may happen between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from weft.errors import StoreError
from weft.store.contract import Answer
from weft.testing.store.contract import free_nodes, installed, phases, queue, start

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from weft.store.redis import RedisStore
    from weft.testing.walk import Walk


async def paused(new_walk: Callable[..., Walk]) -> Walk:
    """Have `a` queued, and its execution paused."""
    walk = new_walk("a")
    await installed(walk)
    (a,) = await free_nodes(walk)
    assert await queue(walk, a) is Answer.YES
    await walk.advance(walk.paused())
    return walk


def before_it_is_taken_back(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, step: Callable[[], Awaitable[Any]]
) -> None:
    unqueue = store._unqueue

    async def delayed(*arguments: Any) -> list[bool]:
        monkeypatch.setattr(store, "_unqueue", unqueue)
        await step()
        return await unqueue(*arguments)

    monkeypatch.setattr(store, "_unqueue", delayed)


async def test_what_goes_on_meanwhile_is_started_by_the_task_in_hand(
    new_walk: Callable[..., Walk], store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task is taken, so nobody else would ever start it."""
    walk = await paused(new_walk)
    before_it_is_taken_back(store, monkeypatch, lambda: walk.advance(walk.resumed()))
    assert await start(walk, "a") is Answer.YES
    assert await phases(walk) == {"a": "running"}


async def test_what_ends_meanwhile_is_refused(
    new_walk: Callable[..., Walk], store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = await paused(new_walk)
    before_it_is_taken_back(store, monkeypatch, lambda: walk.advance(walk.cancelled()))
    assert await start(walk, "a") is Answer.REFUSED


async def test_who_dies_between_them_has_left_the_task_to_others(
    new_walk: Callable[..., Walk], store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = await paused(new_walk)

    async def fail() -> None:
        raise StoreError("gone")

    before_it_is_taken_back(store, monkeypatch, fail)
    with pytest.raises(StoreError):
        await start(walk, "a")
    assert await phases(walk) == {"a": "queued"}
    # The task was not acknowledged, and comes again.
    assert await start(walk, "a") is Answer.REFUSED
    assert await phases(walk) == {"a": "free"}
