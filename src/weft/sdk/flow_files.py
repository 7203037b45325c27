"""The workflows of Python files, read in a process of their own: ``python -m weft.sdk.flow_files``.

A server that takes up changed files cannot import them itself: what a process has imported once stays. So a
program that lives for one reading imports them, and prints what it found as one JSON document; the sources
come on its stdin. What the files print while they are imported goes to stderr.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping  # noqa: TC003 - msgspec reads the annotations
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import DocumentError
from weft.handlers import usercode
from weft.handlers.contract import HandlerKind
from weft.handlers.kept_sources import KeptSources
from weft.handlers.registry import default_registry
from weft.handlers.user_traceback import user_traceback
from weft.handlers.usercode import UserCode
from weft.sdk.loading import workflows_of
from weft.sdk.source_tree import Sources

# A file that is not imported by then waits for something, and would hold the server up.
_READ_SECONDS = 60.0


class FoundWorkflow(msgspec.Struct, frozen=True):
    file: str
    variable: str
    document: dict[str, Any]


class FoundHandler(msgspec.Struct, frozen=True):
    name: str
    config_schema: Any = None


class FileProblem(msgspec.Struct, frozen=True):
    """Why a file cannot be served."""

    # "": all of them.
    file: str
    text: str
    # The sources that were imported for it, its own among them.
    read: list[str] = []


class FlowFiles(msgspec.Struct, frozen=True):
    """The workflows that Python files declare, and the files that could not be read."""

    workflows: list[FoundWorkflow] = []
    handlers: list[FoundHandler] = []
    # That the files let ``python`` call: ``module:name`` or ``module:*``.
    functions: list[str] = []
    problems: list[FileProblem] = []


class _Order(msgspec.Struct, frozen=True):
    """The request to the process that reads the files."""

    files: list[str]
    texts: dict[str, bytes]


def code_of(sources: Sources) -> UserCode:
    """Return the code that child processes load to run the functions of these files."""
    beside = [usercode.beside(file) for file in sources.files]
    return UserCode(
        folders=_joined(code.folders for code in beside),
        files=_joined(code.files for code in beside),
        allow=_joined(code.allow for code in beside),
        sources=sources.texts,
    )


def _joined(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for part in parts for one in part))


def read_files(sources: Sources) -> FlowFiles:
    """Import the files in a new process, and return what they declare."""
    command = [sys.executable, "-P", "-m", "weft.sdk.flow_files"]
    order = msgspec.msgpack.encode(_Order(list(map(str, sources.files)), dict(sources.texts)))
    try:
        done = subprocess.run(  # noqa: S603 - our own program
            command, input=order, stdout=subprocess.PIPE, timeout=_READ_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"the files were not imported within {_READ_SECONDS:g} s"
        return FlowFiles(problems=[FileProblem("", text)])
    if done.returncode:
        text = f"the import of the files ended with exit code {done.returncode}"
        return FlowFiles(problems=[FileProblem("", text)])
    return msgspec.json.decode(done.stdout, type=FlowFiles)


def _read(sources: Sources) -> FlowFiles:
    kept = KeptSources(sources.texts)
    kept.install()
    registry = default_registry()
    before = set(registry.names())
    workflows: dict[str, FoundWorkflow] = {}
    problems = []
    for file in sources.files:
        kept.read.clear()
        try:
            declared = workflows_of(usercode.import_file(file, registry, kept))
            workflows |= _found(file, declared, workflows)
        except (Exception, SystemExit) as error:
            plain = str(error) if isinstance(error, DocumentError) else f"{type(error).__name__}: {error}"
            text = user_traceback(error) or f"{file}: {plain}"
            problems.append(FileProblem(str(file), text, sorted({str(file), *kept.read})))
    handlers = [
        FoundHandler(handler.name, handler.config_schema)
        for name in registry.names()
        if name not in before and (handler := registry.get(name)).kind is HandlerKind.USER
    ]
    return FlowFiles(list(workflows.values()), handlers, sorted(registry.functions()), problems)


def _found(
    file: Path, declared: Mapping[str, Any], workflows: Mapping[str, FoundWorkflow]
) -> dict[str, FoundWorkflow]:
    """Return the workflows of a file by their names; ``workflows``: those of the files before it."""
    found: dict[str, FoundWorkflow] = {}
    for variable, workflow in declared.items():
        document = workflow.definition()
        name = str(document.get("name"))
        known = found.get(name) or workflows.get(name)
        if known is not None and known.document != document:
            raise DocumentError(
                f"{file.name}:{variable} and {Path(known.file).name}:{known.variable} are two workflows of "
                f"the name {name!r}"
            )
        found[name] = known or FoundWorkflow(str(file), variable, document)
    return found


if __name__ == "__main__":
    order = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Order)
    with redirect_stdout(sys.stderr):
        read = _read(Sources(tuple(map(Path, order.files)), order.texts))
    sys.stdout.buffer.write(msgspec.json.encode(read))
