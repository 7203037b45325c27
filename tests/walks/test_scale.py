"""Graphs as large as they get complete, with every edge's data right and in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize(("shape", "nodes"), [("chain", 10_000), ("fan", 10_002), ("layered", 50_000)])
def test_a_large_graph_completes_within_a_gigabyte(shape: str, nodes: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.walks.large", shape, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)

    assert report["state"] == "COMPLETED"
    assert report["completed"] == nodes
    assert report["violations"] == []
    assert report["megabytes"] < 1000
