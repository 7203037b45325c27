"""History is let go when its time is over, and nothing else is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import PATIENCE_SECONDS

from weft.definition.plan import compile_plan
from weft.engine import Engine
from weft.handlers.registry import Registry
from weft.orchestrator import retention as upkeep
from weft.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

ECHO: dict[str, Any] = {"name": "short", "nodes": [{"id": "a", "handler": "echo", "config": 1}]}
LONG: dict[str, Any] = {
    "name": "long",
    "nodes": [{"id": "nap", "handler": "sleep", "config": {"seconds": 300}}],
}
# How long a slow disk takes for one removal.
BUSY_SECONDS = 0.01


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "sqlite" else None


async def finished(engine: Engine, count: int) -> list[str]:
    """Run so many executions to their end."""
    ids = await engine.submit_many(compile_plan(ECHO), document=ECHO, inputs=[{}] * count)
    for execution_id in ids:
        await engine.wait(execution_id)
    return ids


async def gone(engine: Engine, execution_ids: list[str]) -> None:
    """Return once the journal has none of these."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for execution_id in execution_ids:
            while await engine.ports.journal.execution(execution_id) is not None:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)


async def test_what_is_past_its_retention_goes_and_what_is_not_terminal_stays(data: Path | None) -> None:
    settings = Settings(retention_seconds=0.1, worker_grace_seconds=0.0)
    async with Engine(registry=Registry(), settings=settings, data=data) as engine:
        (running,) = await engine.submit_many(compile_plan(LONG), document=LONG, inputs=[{}])
        # Several batches of them, while others come in.
        old = await finished(engine, 2 * upkeep.PURGED_AT_ONCE + 1)
        await gone(engine, old)
        assert await engine.ports.catalog.events(old[0]) == []
        (new,) = await finished(engine, 1)
        row = await engine.ports.journal.execution(running)
        assert row is not None
        assert not row.is_terminal
        await gone(engine, [new])


async def test_without_a_retention_history_stays(data: Path | None) -> None:
    async with Engine(registry=Registry(), data=data) as engine:
        (kept,) = await finished(engine, 1)
        # Inbound events have a loop of their own, which purges them by their own retention.
        assert not any("._purging at " in repr(task.get_coro()) for task in asyncio.all_tasks())
        assert await engine.ports.journal.execution(kept) is not None


async def test_a_purge_removes_little_at_once_and_leaves_the_journal_as_much_time_between(
    data: Path | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Engine(registry=Registry(), data=data) as engine:
        await finished(engine, 2 * upkeep.PURGED_AT_ONCE + 1)
        removed: list[int] = []
        pauses: list[float] = []
        journal = engine.ports.journal
        remove, sleep = journal.purge, asyncio.sleep

        async def counted(*, finished_before: int, limit: int) -> int:
            await sleep(BUSY_SECONDS)
            removed.append(await remove(finished_before=finished_before, limit=limit))
            return removed[-1]

        async def noted(seconds: float) -> None:
            pauses.append(seconds)
            await sleep(0)

        monkeypatch.setattr(journal, "purge", counted)
        monkeypatch.setattr(asyncio, "sleep", noted)
        await upkeep.purge(engine.ports, retention_seconds=0)
        monkeypatch.undo()
        assert removed == [upkeep.PURGED_AT_ONCE, upkeep.PURGED_AT_ONCE, 1]
        assert sum(pause >= BUSY_SECONDS for pause in pauses) == 2


async def test_a_large_output_that_no_result_names_is_swept_when_it_is_old(data: Path | None) -> None:
    async with Engine(registry=Registry(), data=data) as engine:
        journal = engine.ports.journal
        orphan = await journal.put_blob(b'"left by a worker that died"')
        await upkeep.sweep_blobs(engine.ports)
        assert orphan in await journal.blobs([orphan])
        assert await journal.sweep_blobs(older_than=engine.ports.clock.now() + 1) == 1
        assert await journal.blobs([orphan]) == {}


@pytest.mark.parametrize(("retention", "look"), [(7 * 86_400.0, 60.0), (8.0, 2.0)])
def test_a_short_retention_is_looked_after_more_often(retention: float, look: float) -> None:
    assert upkeep.look_seconds(retention) == look
