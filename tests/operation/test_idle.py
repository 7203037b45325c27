"""A server with nothing to do."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.operation.serving import PATIENCE_SECONDS, serving
from tests.operation.usage import cpu_seconds, memory, written_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator


_QUIET_SECONDS = 3


def nap(seconds: float) -> dict[str, Any]:
    return {"nodes": [{"id": "nap", "handler": "sleep", "config": {"seconds": seconds}}]}


async def _written_out(pid: int) -> None:
    """Return when the process has written nothing for some seconds.

    On a machine with much else to do the last commit, or the bytecode of a module that is loaded late, may be
    written more than a second after the work.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        before = -1
        while before != (before := written_bytes(pid)):  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(_QUIET_SECONDS)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder on a disk: of files in memory nothing is counted as written."""
    with tempfile.TemporaryDirectory(prefix="weft-idle-", dir="/var/tmp") as name:
        yield Path(name)


async def test_an_idle_server_is_small_asks_for_little_and_writes_nothing(folder: Path) -> None:
    async with serving(folder / "data") as (server, api):
        await api.terminal(await api.start(nap(0)))
        pid = server.process.pid
        assert written_bytes(pid) > 0
        await _written_out(pid)
        cpu, written = cpu_seconds(pid), written_bytes(pid)
        await asyncio.sleep(6)
        assert written_bytes(pid) == written
        assert cpu_seconds(pid) - cpu < 0.06
        assert memory(pid) < 120 * 2**20
