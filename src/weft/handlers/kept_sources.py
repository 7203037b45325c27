"""Imports modules from sources that were read earlier, whatever their files hold by now.

``weft dev`` serves the last sources that could be imported. A child process that starts after a file was
broken, because the one before it was killed or recycled, has to run those too.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import decode_source, spec_from_file_location
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

_LOADERS = (
    (ExtensionFileLoader, EXTENSION_SUFFIXES),
    (SourceFileLoader, SOURCE_SUFFIXES),
    (SourcelessFileLoader, BYTECODE_SUFFIXES),
)


class KeptSources:
    def __init__(self, texts: Mapping[str, bytes]) -> None:
        """Keep the sources of files: path → source."""
        self.texts = texts
        # The paths of those that were imported.
        self.read: set[str] = set()

    def install(self) -> None:
        """Let every import of these files, in this process, take the source that is kept."""
        if not self.texts:
            return
        folders = {os.path.dirname(file) for file in self.texts}

        def hook(path: str) -> FileFinder:
            if path not in folders:
                raise ImportError(path=path)  # the next hook takes it
            return _KeptFolder(path, self)

        sys.path_hooks.insert(0, hook)
        for folder in folders:
            sys.path_importer_cache.pop(folder, None)

    def spec_of_file(self, name: str, path: str) -> ModuleSpec | None:
        """Return how a file is loaded as a module: from its kept source if there is one."""
        if path not in self.texts:
            return spec_from_file_location(name, path)
        return spec_from_file_location(name, path, loader=_KeptSource(name, path, self))


class _KeptFolder(FileFinder):
    """A folder on ``sys.path``, or of a package; files of which no source is kept are found as usual."""

    def __init__(self, path: str, sources: KeptSources) -> None:
        super().__init__(path, *_LOADERS)
        self._sources = sources

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        base = os.path.join(self.path, fullname.rpartition(".")[2])
        for file in (os.path.join(base, "__init__.py"), f"{base}.py"):
            if file in self._sources.texts:
                return self._sources.spec_of_file(fullname, file)
        return super().find_spec(fullname, target)


class _KeptSource(SourceFileLoader):
    def __init__(self, name: str, path: str, sources: KeptSources) -> None:
        super().__init__(name, path)
        self._sources = sources

    def path_stats(self, path: str) -> NoReturn:
        # Bytecode belongs to the file as it is now: none is read or written.
        raise OSError("a kept source has no file")

    def get_data(self, path: str) -> bytes:
        if path != self.path:
            return super().get_data(path)
        source = self._sources.texts[path]
        self._sources.read.add(path)
        # Tracebacks and ``inspect`` show the lines that run, not those of the file.
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):
            lines = decode_source(source).splitlines(keepends=True)
            linecache.cache[path] = (len(source), None, lines, path)
        return source
