"""Deploys the workflows of Python files for ``weft dev`` and ``weft up FILE.py``.

The server imports none of the files. A process of its own reads them (``sdk.flow_files``), and the child
processes that run their functions import them. When a file is saved, the files are read again: definitions
that changed become new versions, and the child processes are replaced after what they run. Both import the
sources that the server has read and sends them, never the files: a child process that starts after a file
was broken runs what was served before.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from weft.cli.printing import say
from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.definition.validation import check
from weft.errors import DefinitionError, DocumentError, JournalError
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.python import uncallable
from weft.handlers.usercode import UserCode
from weft.journal.contract import LOCAL_ACTOR
from weft.sdk.flow_files import FileProblem, FlowFiles, code_of, read_files
from weft.sdk.source_tree import Sources, SourceTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.api.service import Process
    from weft.definition.plan import Plan
    from weft.handlers.registry import Registry
    from weft.sdk.flow_files import FoundWorkflow
    from weft.settings import Settings

ReplaceCode: TypeAlias = Callable[[UserCode], None]

log = logging.getLogger("weft.server")

# A saved file is taken up within a second: this, and the time that the import of the files takes.
_LOOK_SECONDS = 0.25
# While the journal is away, it is tried this often.
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _CheckedFiles:
    """Sources with the definitions that they declare, checked."""

    sources: Sources
    found: FlowFiles
    plans: list[tuple[FoundWorkflow, Plan]]
    problems: list[FileProblem]


_NOTHING = _CheckedFiles(Sources(), FlowFiles(), [], [])


class ServedFiles:
    """The Python files that a server serves, as they were when they could be served last."""

    def __init__(self, given: Sequence[Path], *, watches: bool) -> None:
        """``watches``: take up saved files, and serve what can be served where a file is broken."""
        self._tree = SourceTree(given)
        self._watches = watches
        self._serving = _NOTHING
        self._newest = self._tree.read()
        self._problems: list[FileProblem] = []
        # What was told of each file that is broken.
        self._told: dict[str, str] = {}

    async def load(self, settings: Settings, registry: Registry) -> UserCode:
        """Read the files for the first time, and return the code that child processes load.

        Raises DocumentError for a broken file, unless it may be mended while the server runs.
        """
        if self._watches:
            await self._take_newest(settings, registry)
            self._tell_problems()
        else:
            reading = await _read(self._newest, settings, registry)
            if reading.problems:
                raise DocumentError("\n".join(map(_in_a_sentence, reading.problems)))
            self._serving = reading
        return self._code(settings)

    async def deploy(self, process: Process, registry: Registry) -> None:
        """Store the definitions that are new, as soon as the journal can be reached."""
        while True:
            try:
                return await _deploy(self._serving.plans, process, registry)
            except JournalError as error:
                log.warning("journal.unavailable", extra={"error": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)

    async def watch(self, process: Process, registry: Registry, replace_code: ReplaceCode) -> None:
        """Take up what is saved, if this server does that."""
        while self._watches:
            await asyncio.sleep(_LOOK_SECONDS)
            newest = await asyncio.to_thread(self._tree.look)
            if newest is None:
                continue
            self._newest = newest
            is_changed = await self._take_newest(process.settings, registry)
            self._tell_problems()
            if is_changed:
                replace_code(self._code(process.settings))
                await self.deploy(process, registry)
                _tell("the files changed: functions run as they are now", "code.replaced")

    async def _take_newest(self, settings: Settings, registry: Registry) -> bool:
        """Serve the files as they are now; True if that is something else than before.

        A broken file, and what it imports, stay as they were, and the other files are taken up. Where those
        cannot be imported together, all stay as they were.
        """
        before = self._serving
        reading = await _read(self._newest, settings, registry)
        self._problems = reading.problems
        if reading.problems:
            mixed = self._without(reading.problems)
            if mixed != before.sources:
                reading = await _read(mixed, settings, registry)
        if reading.problems:
            _register(before.found, registry)
            return False
        self._serving = reading
        return reading.sources != before.sources

    def _without(self, problems: Sequence[FileProblem]) -> Sources:
        """Return the newest sources; those of broken files as they are served, or not at all."""
        serving, newest = self._serving.sources, self._newest
        broken = {problem.file for problem in problems}
        if "" in broken:
            return serving
        names = {name for problem in problems for name in problem.read}
        kept = {name: text for name, text in serving.texts.items() if name in names}
        files = [file for file in newest.files if str(file) not in broken or file in serving.files]
        return Sources(tuple(files), {**serving.texts, **newest.texts, **kept})

    def _tell_problems(self) -> None:
        """Log each problem once, however often other files are saved meanwhile."""
        found = {problem.file: problem.text for problem in self._problems}
        for file, text in found.items():
            if self._told.get(file) != text:
                _tell_problem(file, text)
        self._told = found

    def _code(self, settings: Settings) -> UserCode:
        code = code_of(self._serving.sources)
        return code.joined(modules=settings.imports, allow=settings.python_allow)


def _in_a_sentence(problem: FileProblem) -> str:
    """Return a problem with its file; a traceback alone has only the files of its frames."""
    named = problem.text.startswith(problem.file)
    return problem.text if named else f"{problem.file} cannot be loaded:\n{problem.text}"


async def _read(sources: Sources, settings: Settings, registry: Registry) -> _CheckedFiles:
    found = await asyncio.to_thread(read_files, sources)
    _register(found, registry)
    plans, problems = await asyncio.to_thread(_checked, found, registry, settings)
    return _CheckedFiles(sources, found, plans, [*found.problems, *problems])


def _register(read: FlowFiles, registry: Registry) -> None:
    """Let definitions name the handlers and functions of the files; these run in child processes alone."""
    registry.declare_functions(read.functions)
    for found in read.handlers:
        registry.add(Handler(found.name, HandlerKind.USER, _runs_in_a_child, found.config_schema))


def _runs_in_a_child(config: object, context: object) -> None:
    raise AssertionError("a handler of a user runs in a child process")


def _checked(
    read: FlowFiles, registry: Registry, settings: Settings
) -> tuple[list[tuple[FoundWorkflow, Plan]], list[FileProblem]]:
    """Check the definitions; return the plans of the right ones, and what is wrong with the others."""
    plans, problems = [], []
    for found in read.workflows:
        checked = check(
            found.document,
            handlers=registry,
            bounds=settings.bounds(),
            named=True,
            resource_limits=settings.resource_limits,
        )
        if checked.plan is None:
            text = f"{found.file}:{found.variable}: {DefinitionError(checked.problems)}"
            problems.append(FileProblem(found.file, text, [found.file]))
        else:
            plans.append((found, checked.plan))
    return plans, problems


async def _deploy(plans: Iterable[tuple[FoundWorkflow, Plan]], process: Process, registry: Registry) -> None:
    """Store the definitions; content that is stored already keeps its version."""
    bounds = process.settings.bounds()
    for found, plan in plans:
        document = encode(
            found.document,
            max_bytes=bounds.max_body_bytes,
            max_depth=bounds.max_depth,
            max_values=MAX_DOCUMENT_VALUES,
        )
        name = str(plan.definition.name)
        catalog = process.ports.catalog
        latest = await catalog.workflow(name)
        if latest is not None and latest.latest.digest == plan.digest:
            continue
        version, _ = await catalog.put_version(name, plan, document, actor=LOCAL_ACTOR)
        where = f"{Path(found.file).name}:{found.variable}"
        for warning in uncallable(found.document, registry.functions()):
            _tell_warning(f"{where}: {warning}", name)
        _tell(f"{name} version {version.version} ({where})", "workflow.deployed", name, version.version)


def _tell(line: str, event: str, workflow: str | None = None, version: int | None = None) -> None:
    """Print a line on a terminal, or log an event where there is none."""
    if sys.stderr.isatty():
        say(line)
    else:
        fields = {"workflow": workflow, "version": version} if workflow is not None else {}
        log.info(event, extra=fields)


def _tell_warning(text: str, workflow: str) -> None:
    if sys.stderr.isatty():
        say(f"warning: {text}")
    else:
        log.warning("function.unknown", extra={"workflow": workflow, "problem": text})


def _tell_problem(file: str, problem: str) -> None:
    if sys.stderr.isatty():
        name = Path(file).name if file else "the files"
        say(f"{name} cannot be served now; what was served before goes on:\n{problem}")
    else:
        log.error("code.broken", extra={"problem": problem})
