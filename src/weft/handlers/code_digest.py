"""A digest of the code that a function is made of: its module's source, and those that this imports.

Two attempts of a node may run in different processes, days apart. Their digests tell whether the code changed
in between. Only the user's modules count: a function of an upgraded library is that library's matter.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from typing import TYPE_CHECKING

from weft.handlers.user_traceback import is_users_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

# Enough to tell versions of the same code apart.
_DIGITS = 16
# Beyond so many modules a change in the next one goes unseen.
_MAX_MODULES = 500


class CodeDigests:
    """Digests of modules in this process, of their sources as they were imported."""

    def __init__(self) -> None:
        self._sources: dict[str, bytes | None] = {}
        self._digests: dict[str, str] = {}

    def note_imported(self) -> None:
        """Read the sources of the user's modules that are imported: later their files may have changed."""
        for name, module in list(sys.modules.items()):
            if name not in self._sources and is_users_file(getattr(module, "__file__", None) or ""):
                self._sources[name] = _source_of(module)

    def of(self, module: str) -> str:
        """Return the digest of the code of a module's functions; "" where its source is not known."""
        known = self._digests.get(module)
        if known is None:
            self.note_imported()
            known = self._digests[module] = self._digest(module)
        return known

    def _digest(self, module: str) -> str:
        if self._source(module) is None:
            return ""
        digest = hashlib.sha256()
        for name in sorted(self._with_imports(module)):
            digest.update(f"{name}\n{len(self._source(name) or b'')}\n".encode())
            digest.update(self._source(name) or b"")
        return digest.hexdigest()[:_DIGITS]

    def _with_imports(self, module: str) -> set[str]:
        package = module.partition(".")[0]
        found, open_names = {module}, [module]
        while open_names and len(found) < _MAX_MODULES:
            module = open_names.pop()
            for name in _imports(module, self._source(module)):
                # Of an installed package, what it is made of itself.
                is_own = name in self._sources or name.partition(".")[0] == package
                if name not in found and is_own and self._source(name) is not None:
                    found.add(name)
                    open_names.append(name)
        return found

    def _source(self, name: str) -> bytes | None:
        if name not in self._sources:
            module = sys.modules.get(name)
            self._sources[name] = None if module is None else _source_of(module)
        return self._sources[name]


def _source_of(module: ModuleType) -> bytes | None:
    file = getattr(module, "__file__", None) or ""
    if not file.endswith(".py"):
        return None
    # The loader has the source that was imported where that is not the file's.
    get_data = getattr(getattr(module, "__loader__", None), "get_data", None)
    try:
        return bytes(get_data(os.path.abspath(file))) if get_data is not None else None
    except OSError:
        return None


def _imports(name: str, source: bytes | None) -> Iterator[str]:
    """Yield the modules that a module's source imports when it is imported itself.

    Imports inside of functions are left out: whether they have been made depends on what ran before.
    """
    try:
        tree = ast.parse(source or b"")
    except (SyntaxError, ValueError, RecursionError):
        return
    package = getattr(sys.modules.get(name), "__package__", None) or ""
    statements: list[ast.AST] = [tree]
    while statements:
        node = statements.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.expr)):
            statements.extend(ast.iter_child_nodes(node))


def _base(node: ast.ImportFrom, package: str) -> str:
    """Return the absolute name of the module that ``from … import`` names."""
    if not node.level:
        return node.module or ""
    parents = package.split(".")
    parents = parents[: len(parents) - node.level + 1]
    return ".".join([*parents, *([node.module] if node.module else [])])
