"""The same walks on a journal in memory and on SQLite."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from tests.walks.stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from weft.engine import Engine


@pytest.fixture(autouse=True)
def nothing_breaks(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The nets under the engine would hide much; what they catch is in the log."""
    yield
    broken = [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in broken if record.name.startswith("weft")] == []


@pytest.fixture(params=["memory", "sqlite"])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "sqlite" else None


@pytest.fixture
async def stage(data: Path | None) -> Stage:
    """A stage without an engine: the test opens one."""
    return Stage(data)


@pytest.fixture
async def engine(stage: Stage) -> AsyncIterator[Engine]:
    async with stage.open() as engine:
        yield engine
