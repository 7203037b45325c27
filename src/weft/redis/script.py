"""Lua scripts, one file each, known to the server by their digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: bytes
    sha: bytes


@cache
def load_script(package: str, name: str, *, after: tuple[str, ...] = ()) -> Script:
    """Read ``lua/NAME.lua`` of a package, put behind the files ``after`` that it builds on."""
    folder = files(package) / "lua"
    parts = [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in (*after, name)]
    return make_script(name, "\n".join(parts).encode())


def make_script(name: str, source: bytes) -> Script:
    # SHA-1 is how Redis names a script; nothing rests on its strength.
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest().encode())
