"""Real graphs on two orchestrators and two workers, as ``./dev dags FOLDER --fleet`` runs them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio
from tests.dags_command import AT_ONCE, SLOTS, fleet_members, run_all, runs_of
from tests.operation.serving import ROOT
from tests.walks.replay import FILES, FOLDER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fleet.conftest import Fleets
    from tests.fleet.harness import RunningFleet

GROUPS = sorted({file.partition("/")[0] for file in FILES})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(fleets: Fleets) -> AsyncIterator[RunningFleet]:
    async with fleets() as running:
        await fleet_members(running)
        yield running


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("group", GROUPS)
async def test_the_real_graphs_of_a_group_run_on_a_fleet_as_they_are_drawn(
    group: str, fleet: RunningFleet
) -> None:
    paths = [FOLDER / file for file in FILES if file.startswith(f"{group}/")]
    runs = [run for path in paths for run in runs_of(path, FOLDER, seed=2)]
    failures = await run_all(runs, fleet.api, slots=SLOTS, at_once=AT_ONCE)
    assert {f"{run.file} ({run.options})": wrong for run, wrong in failures.items()} == {}
    # And nothing is left of them.
    await fleet.check()


def test_the_command_runs_every_graph_of_a_folder_on_a_fleet(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    folder.mkdir()
    for file in FILES[:2]:
        shutil.copy(FOLDER / file, folder)
    command = [sys.executable, "-m", "tests.dags_command", str(tmp_path), "--fleet"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "2 DAGs, 4 executions" in ended.stdout
    assert "all as drawn" in ended.stdout
