"""docs/walk.md names every file that a hop touches."""

from __future__ import annotations

import re
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.hops import embedded_hop, fleet_hop

from weft.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PAGE = (Path(__file__).parents[2] / "docs" / "walk.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([\w/]+\.py)` \| (x?) ?\| (x?) ?\| .+ \|$", PAGE, re.MULTILINE)


# A machine that stops for a moment adds files to a trace (an empty read, a renewed lease), never to all.
MOST_TRACES = 5


def named(column: int) -> set[str]:
    return {row[0] for row in ROWS if row[column]}


def files_of_every_trace(trace: Callable[[], Iterable[str]], wanted: set[str]) -> set[str]:
    """Return the files that every trace has, tracing again while there are more of them than wanted."""
    files = set(trace())
    for _ in range(MOST_TRACES - 1):
        if files <= wanted:
            break
        files &= set(trace())
    return files


def test_the_table_names_the_files_of_an_embedded_hop(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())
    wanted = named(1)
    assert files_of_every_trace(lambda: embedded_hop(next(folders)), wanted) == wanted


def test_the_table_names_the_files_of_a_hop_in_a_fleet(redis_url: str, postgres_url: str) -> None:
    settings = Settings(redis_url=redis_url, database_url=postgres_url)
    wanted = named(2)
    assert files_of_every_trace(lambda: fleet_hop(settings), wanted) == wanted
