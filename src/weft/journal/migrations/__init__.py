"""The migrations of each database: SQL, in the order of their numbers."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def read_migrations(database: str) -> Mapping[str, str]:
    """Return the SQL of every migration by its name, in order; the first is number 1."""
    folder = files("weft.journal") / "migrations" / database
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name
    )
    for number, entry in enumerate(found, 1):
        assert entry.name.startswith(f"{number:04d}_"), f"migrations are numbered without gaps: {entry.name}"
    return {entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8") for entry in found}
