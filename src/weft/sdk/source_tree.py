"""The Python files that a server serves and the modules beside them, read again when one of them changes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What a file with a workflow has: files below a folder that do not are not imported.
_DECLARES = re.compile(rb"\bWorkflow(DAG)?\(")
_NOT_LOOKED_INTO = frozenset({"node_modules", "venv", "site-packages", "__pycache__"})
# Beyond so many a look would take longer than the pause between two; and every child process is sent the
# sources. What exceeds these is imported from its file, and not watched.
_MAX_FILES = 2_000
_MAX_FOLDERS = 4_000
_MAX_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sources:
    """Python files at one moment."""

    # The files that declare the served workflows.
    files: tuple[Path, ...] = ()
    # Path → source, of these and of the modules beside them.
    texts: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class SourceTree:
    """Files that were named, and all below the folders that were named, as they are at each look."""

    def __init__(self, given: Sequence[Path]) -> None:
        for path in given:
            if not path.exists():
                raise DocumentError(f"{path}: no such file")
        paths = [path.resolve() for path in given or [Path()]]
        self._folders = [path for path in paths if path.is_dir()]
        self._named = [path for path in paths if not path.is_dir()]
        self._where = ", ".join(map(str, given)) or "this folder"
        self._stamps: dict[str, tuple[int, int]] = {}
        self._texts: dict[str, bytes] = {}

    def read(self) -> Sources:
        """Return the files as they are now; raises DocumentError if there is none to serve."""
        found = self.look()
        if found is None or not found.files:
            raise DocumentError(
                f"no Python file in {self._where} declares a weft.Workflow; name one: weft dev flows.py"
            )
        return found

    def look(self) -> Sources | None:
        """Return the files as they are now; None if nothing has changed since the look before."""
        stamps = self._stamp()
        if stamps == self._stamps:
            return None
        texts = {}
        for name, stamp in stamps.items():
            if self._stamps.get(name) == stamp:
                texts[name] = self._texts[name]
            else:
                try:
                    texts[name] = Path(name).read_bytes()
                except OSError:  # an editor replaces it in this moment: the next look finds it
                    continue
        self._stamps = {name: stamp for name, stamp in stamps.items() if name in texts}
        if texts == self._texts:
            return None
        self._texts = texts
        return Sources(tuple(self._files()), dict(texts))

    def _files(self) -> Iterator[Path]:
        yield from self._named
        named = set(self._named)
        for name, text in sorted(self._texts.items()):
            path = Path(name)
            if path not in named and _DECLARES.search(text) and self._is_below(path):
                yield path

    def _is_below(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._folders)

    def _stamp(self) -> dict[str, tuple[int, int]]:
        """Return what tells one state of each file from another: those named first."""
        stamps: dict[str, tuple[int, int]] = {}
        size = 0
        for path in self._candidates():
            if path in stamps:
                continue
            try:
                stat = os.stat(path)
            except OSError:
                continue
            size += stat.st_size
            if len(stamps) == _MAX_FILES or size > _MAX_BYTES:
                break
            stamps[path] = (stat.st_mtime_ns, stat.st_size)
        return stamps

    def _candidates(self) -> Iterator[str]:
        yield from map(str, self._named)
        for folder in dict.fromkeys((*self._folders, *(path.parent for path in self._named))):
            for number, (place, inner, names) in enumerate(os.walk(folder)):
                if number == _MAX_FOLDERS:
                    break
                inner[:] = sorted(
                    name for name in inner if name not in _NOT_LOOKED_INTO and not name.startswith(".")
                )
                for name in sorted(names):
                    if name.endswith(".py") and not name.startswith("."):
                        yield os.path.join(place, name)
