"""Loads a definition from a YAML or JSON file, from stdin, or from a variable of a Python file."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.definition.bounds import DEFAULT_BOUNDS
from weft.definition.document import read_json, read_yaml
from weft.errors import DocumentError
from weft.handlers import usercode
from weft.handlers.usercode import UserCode
from weft.sdk.declaration import Declaration

if TYPE_CHECKING:
    from types import ModuleType

    from weft.core.payload import Json
    from weft.definition.bounds import Bounds
    from weft.errors import Problem
    from weft.handlers.registry import Registry

STDIN = "-"

# A Python file, and the variable of it that is meant.
PYTHON_FILE = re.compile(r"(?P<path>.+\.py)(?::(?P<variable>[\w.]*))?")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A definition as it was written, not yet checked."""

    source: str
    document: Json
    code: UserCode  # the modules beside it, whose functions it may call
    workflow: Any = None  # the object a Python file gave, where it was one
    text: bytes = b""  # of a YAML or JSON file, for the lines of its problems

    def with_lines(self, problems: list[Problem]) -> list[Problem]:
        """Return problems of the definition with their places, in a YAML or JSON file or among functions."""
        if problems and isinstance(self.workflow, Declaration):
            return self.workflow.located(problems)
        if not problems or not self.text:
            return problems
        from weft.definition.source_lines import with_lines

        return with_lines(problems, self.text)


def load(
    source: str, registry: Registry, *, bounds: Bounds = DEFAULT_BOUNDS, trusts_folder: bool = True
) -> Loaded:
    """Read the definition that ``source`` names.

    From then on it may call the functions of modules in its own folder. A Python file is imported, and
    may register handlers. ``trusts_folder`` False: nothing is imported from a YAML or JSON file's folder.

    Raises ``DocumentError`` where there is none: no such file, no such variable, not JSON or YAML.
    """
    if match := PYTHON_FILE.fullmatch(source):
        return _load_python(source, Path(match["path"]), match["variable"], registry)
    text = read_bytes(source, max_bytes=bounds.max_body_bytes)
    document = parse(source, text, bounds)
    # Nothing lies beside stdin.
    code = UserCode() if source == STDIN or not trusts_folder else usercode.beside(Path(source))
    usercode.load(code, registry)
    return Loaded(source, document, code, text=text)


def read_value(source: str, *, bounds: Bounds = DEFAULT_BOUNDS) -> Json:
    """Read one JSON or YAML document from a file, or from stdin where ``source`` is ``-``."""
    return parse(source, read_bytes(source, max_bytes=bounds.max_body_bytes), bounds)


def parse(source: str, text: bytes, bounds: Bounds) -> Json:
    """Return the value of a file's text, or of stdin's; raises DocumentError, which names the file."""
    limits: dict[str, Any] = {"max_bytes": bounds.max_body_bytes, "max_depth": bounds.max_depth}
    suffix = Path(source).suffix.lower()
    try:
        if suffix == ".json":
            return read_json(text, **limits)
        if suffix in (".yaml", ".yml") or not text.lstrip().startswith((b"{", b"[")):
            return read_yaml(text, **limits)
        return _read_either(text, limits)
    except DocumentError as error:
        raise DocumentError(f"{'stdin' if source == STDIN else source}: {error}") from error


def _read_either(text: bytes, limits: dict[str, Any]) -> Json:
    """Read text that begins like JSON, which YAML in its flow style does too."""
    try:
        return read_json(text, **limits)
    except DocumentError as not_json:
        try:
            return read_yaml(text, **limits)
        except DocumentError:
            raise not_json from None


def read_bytes(source: str, *, max_bytes: int) -> bytes:
    """Read a file, or stdin. One byte more than allowed is enough to know, however large the file is."""
    try:
        if source == STDIN:
            return sys.stdin.buffer.read(max_bytes + 1)
        with Path(source).open("rb") as file:
            return file.read(max_bytes + 1)
    except FileNotFoundError:
        raise DocumentError(f"{source}: no such file") from None
    except OSError as error:
        raise DocumentError(f"{source}: {error.strerror or error}") from error


def _load_python(source: str, path: Path, variable: str | None, registry: Registry) -> Loaded:
    if not path.is_file():
        raise DocumentError(f"{source}: no such file")
    code = usercode.beside(path)
    problems = usercode.load(code, registry)
    if problems:
        raise DocumentError(f"{source}: it {problems[0].removeprefix(f'{path.resolve()} ')}")
    module = sys.modules[path.stem]
    declared = workflows_of(module)
    value: Any = module
    if not variable:
        if len(set(map(id, declared.values()))) != 1:
            found = ", ".join(f"{path.name}:{name}" for name in declared)
            raise DocumentError(f"{source}: name the workflow in it: {found or f'{path.name}:variable'}")
        value = next(iter(declared.values()))
    for name in variable.split(".") if variable else ():
        value = getattr(value, name, None)
    if isinstance(value, dict):
        return Loaded(source, value, code)
    if not _is_workflow(value):
        found = ", ".join(declared)
        hint = f"; it has: {found}" if found else ""
        raise DocumentError(f"{source}: {path.name} has no workflow {variable!r}{hint}")
    return Loaded(source, value.definition(), code, value)


def workflows_of(module: ModuleType) -> dict[str, Any]:
    """Return the workflows of a module by the names of their variables."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and _is_workflow(value)
    }


def _is_workflow(value: object) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "definition", None))
