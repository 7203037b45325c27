"""A process of a fleet that cannot take up its work says why, and does not give up."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.operation.serving import PATIENCE_SECONDS

from weft.fleet import Fleet
from weft.handlers.registry import Registry
from weft.orchestrator.service import Orchestrator
from weft.settings import Settings
from weft.worker.lease import HeartbeatThread


class Stumbling(Fleet):
    """Has a bug that shows at its first step."""

    stumbled = False

    async def _open_store(self) -> None:
        if not self.stumbled:
            self.stumbled = True
            raise KeyError("a bug")
        await super()._open_store()


async def test_a_bug_that_shows_at_the_opening_is_said_and_the_process_is_at_work_in_the_end(
    redis_url: str, journal_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(redis_url=redis_url, database_url=journal_url)
    with caplog.at_level(logging.ERROR, logger="weft"):
        async with Stumbling(settings, registry=Registry(), roles={"orchestrator"}) as fleet:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await fleet.started()
            assert set(fleet.faults().values()) == {None}
    assert [record.message for record in caplog.records] == ["fleet.broken"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Orchestrator, "take_over"), (HeartbeatThread, "start")],
    ids=["orchestrator", "worker"],
)
async def test_a_start_that_is_made_again_starts_nothing_twice(
    owner: type,
    name: str,
    redis_url: str,
    journal_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No start is idempotent: an orchestrator that has started is not started again for its worker's sake."""
    step = getattr(owner, name)

    def stumble(member: object) -> None:
        monkeypatch.setattr(owner, name, step)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(owner, name, stumble)
    settings = Settings(redis_url=redis_url, database_url=journal_url)
    with caplog.at_level(logging.ERROR, logger="weft"):
        async with Fleet(settings, registry=Registry(), roles={"orchestrator", "worker"}) as fleet:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await fleet.started()
            assert set(fleet.faults().values()) == {None}
    assert [record.message for record in caplog.records] == ["fleet.broken"]
