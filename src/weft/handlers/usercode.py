"""The users' code that a process loads, and which functions of it may be called."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.handlers.kept_sources import KeptSources
from weft.handlers.outcome import described
from weft.handlers.user_traceback import user_traceback

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from weft.handlers.registry import Registry


@dataclass(frozen=True, slots=True)
class UserCode:
    # Imported by name; they register handlers and functions.
    modules: tuple[str, ...] = ()
    # Looked into first when a module is imported, as the folder of a script is.
    folders: tuple[str, ...] = ()
    # Loaded by path, under the name of the file without ``.py``.
    files: tuple[str, ...] = ()
    # ``module:name`` or ``module:*``: what ``python`` may call.
    allow: tuple[str, ...] = ()
    # Path → source: what is imported in place of these files. A file that is not named is read from the disk.
    sources: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def joined(self, *, modules: tuple[str, ...], allow: tuple[str, ...]) -> UserCode:
        """Return this code together with the modules and allowed functions of an operator's settings."""
        return replace(self, modules=(*modules, *self.modules), allow=(*allow, *self.allow))


def beside(file: Path) -> UserCode:
    """Allow the functions of the modules in the same folder as a definition, and of the file itself."""
    folder = file.resolve().parent
    names = {module.name for module in pkgutil.iter_modules([str(folder)])}
    files: tuple[str, ...] = ()
    if file.suffix == ".py":
        files = (str(file.resolve()),)
        names.add(file.stem)
    # A stray os.py must not open the standard library's os.
    allow = tuple(f"{name}:*" for name in sorted(names - sys.stdlib_module_names))
    return UserCode(folders=(str(folder),), files=files, allow=allow)


def load(code: UserCode, registry: Registry) -> list[str]:
    """Import and allow all of it; return what could not be imported: a sentence, then its traceback."""
    sources = KeptSources(code.sources)
    sources.install()
    sys.path[:0] = [folder for folder in code.folders if folder not in sys.path]
    registry.allow(code.allow)
    problems = []
    for module in code.modules:
        try:
            _register_declared(importlib.import_module(module), registry)
        except (Exception, SystemExit) as error:
            problems.append(_problem(f"the module {module!r} cannot be imported", error))
    for file in code.files:
        try:
            _register_declared(_load_file(Path(file), sources), registry)
        except (Exception, SystemExit) as error:
            problems.append(_problem(f"{file} cannot be loaded", error))
    return problems


def _problem(sentence: str, error: BaseException) -> str:
    trace = user_traceback(error)
    return f"{sentence}: {described(error)}" if trace is None else f"{sentence}:\n{trace}"


def import_file(file: Path, registry: Registry, sources: KeptSources) -> ModuleType:
    """Import a file with the modules beside it, as ``load`` does, and let its errors out.

    ``sources`` are installed already; a file that they do not have is read.
    """
    code = beside(file)
    sys.path[:0] = [folder for folder in code.folders if folder not in sys.path]
    registry.allow(code.allow)
    module = _load_file(file, sources)
    _register_declared(module, registry)
    return module


def _register_declared(module: ModuleType, registry: Registry) -> None:
    """Let the functions of the workflows in a module be called, private ones and closures too.

    A workflow says what it calls by ``__weft_functions__``: reference → function.
    """
    for value in list(vars(module).values()):
        declared = getattr(type(value), "__weft_functions__", None)
        if declared is not None:
            for reference, function in declared(value).items():
                registry.add_function(reference, function)


def _load_file(path: Path, sources: KeptSources) -> ModuleType:
    name = path.stem
    if name in sys.stdlib_module_names:
        raise ImportError(f"the standard library has a module {name!r}; rename the file")
    present = sys.modules.get(name)
    if present is not None:
        if Path(getattr(present, "__file__", None) or "").resolve() == path.resolve():
            return present
        raise ImportError(f"another module is loaded as {name!r}; rename the file")
    specification = sources.spec_of_file(name, str(path))
    if specification is None or specification.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(specification)
    # Before it runs, as import does: dataclasses and pickle look their module up.
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
