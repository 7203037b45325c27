"""The workflows of Python files, read in a process of their own: ``python -m weft.sdk.flow_files FILE…``.

A server that takes up changed files cannot import them itself: what a process has imported once stays. So a
program that lives for one reading imports them, and prints what it found as one JSON document. What the files
print while they are imported goes to stderr.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence  # noqa: TC003 - msgspec reads the annotations
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import DocumentError
from weft.handlers import usercode
from weft.handlers.contract import HandlerKind
from weft.handlers.registry import default_registry
from weft.handlers.user_traceback import user_traceback
from weft.handlers.usercode import UserCode
from weft.sdk.loading import workflows_of

# A file that is not imported by then waits for something, and would hold the server up.
_READ_SECONDS = 60.0
# What a file with a workflow has: files below a folder that do not are not imported.
_DECLARES = re.compile(rb"\bWorkflow(DAG)?\(")
_NOT_LOOKED_INTO = frozenset({"node_modules", "venv", "site-packages", "__pycache__"})


class FoundWorkflow(msgspec.Struct, frozen=True):
    file: str
    variable: str
    document: dict[str, Any]


class FoundHandler(msgspec.Struct, frozen=True):
    name: str
    config_schema: Any = None


class FlowFiles(msgspec.Struct, frozen=True):
    """What Python files declare, or why one of them could not be read."""

    workflows: list[FoundWorkflow] = []
    handlers: list[FoundHandler] = []
    # That the files let ``python`` call: ``module:name`` or ``module:*``.
    functions: list[str] = []
    problem: str | None = None


def find_files(given: Sequence[Path]) -> list[Path]:
    """Return the files to serve: those named, and below a folder those that declare a workflow."""
    found: dict[Path, None] = {}
    for path in given or [Path()]:
        if path.is_dir():
            found.update(dict.fromkeys(_below(path)))
        elif path.is_file():
            found[path.resolve()] = None
        else:
            raise DocumentError(f"{path}: no such file")
    if not found:
        where = ", ".join(map(str, given)) or "this folder"
        raise DocumentError(
            f"no Python file in {where} declares a weft.Workflow; name one: weft dev flows.py"
        )
    return list(found)


def _below(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        if _NOT_LOOKED_INTO.intersection(parts) or any(part.startswith(".") for part in parts):
            continue
        if _DECLARES.search(path.read_bytes()):
            yield path.resolve()


def code_of(files: Iterable[Path]) -> UserCode:
    """Return the code that child processes load to run the functions of these files."""
    beside = [usercode.beside(file) for file in files]
    return UserCode(
        folders=_joined(code.folders for code in beside),
        files=_joined(code.files for code in beside),
        allow=_joined(code.allow for code in beside),
    )


def _joined(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for part in parts for one in part))


def read_files(files: Sequence[Path]) -> FlowFiles:
    """Import the files in a new process, and return what they declare."""
    command = [sys.executable, "-P", "-m", "weft.sdk.flow_files", *map(str, files)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, timeout=_READ_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return FlowFiles(problem=f"the files were not imported within {_READ_SECONDS:g} s")
    if done.returncode:
        return FlowFiles(problem=f"the import of the files ended with exit code {done.returncode}")
    return msgspec.json.decode(done.stdout, type=FlowFiles)


def _read(files: Sequence[Path]) -> FlowFiles:
    registry = default_registry()
    before = set(registry.names())
    workflows: dict[str, FoundWorkflow] = {}
    for file in files:
        try:
            module = usercode.import_file(file, registry)
            declared = workflows_of(module)
            for variable, workflow in declared.items():
                document = workflow.definition()
                name = str(document.get("name"))
                known = workflows.get(name)
                if known is not None and known.document != document:
                    return FlowFiles(
                        problem=f"{file.name}:{variable} and {Path(known.file).name}:{known.variable} "
                        f"are two workflows of the name {name!r}"
                    )
                workflows.setdefault(name, FoundWorkflow(str(file), variable, document))
        except (Exception, SystemExit) as error:
            trace = user_traceback(error)
            return FlowFiles(problem=trace or f"{file}: {type(error).__name__}: {error}")
    handlers = [
        FoundHandler(handler.name, handler.config_schema)
        for name in registry.names()
        if name not in before and (handler := registry.get(name)).kind is HandlerKind.USER
    ]
    return FlowFiles(list(workflows.values()), handlers, sorted(registry.functions()))


if __name__ == "__main__":
    with redirect_stdout(sys.stderr):
        read = _read([Path(name) for name in sys.argv[1:]])
    sys.stdout.buffer.write(msgspec.json.encode(read))
