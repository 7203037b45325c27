"""docs/walk.md names every file that a hop touches."""

from __future__ import annotations

import re
from pathlib import Path

from bench.hops import embedded_hop, fleet_hop

from weft.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "walk.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w/]+\.py)` \| (x?) ?\| (x?) ?\| .+ \|$", PAGE, re.MULTILINE)


def named(column: int) -> set[str]:
    return {row[0] for row in ROWS if row[column]}


def test_the_table_names_the_files_of_an_embedded_hop(tmp_path: Path) -> None:
    assert set(embedded_hop(tmp_path)) == named(1)


def test_the_table_names_the_files_of_a_hop_in_a_fleet(redis_url: str, postgres_url: str) -> None:
    settings = Settings(redis_url=redis_url, database_url=postgres_url)
    assert set(fleet_hop(settings)) == named(2)
