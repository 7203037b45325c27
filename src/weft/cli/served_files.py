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
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from weft.cli.printing import say
from weft.core.payload import MAX_DOCUMENT_VALUES, encode
from weft.definition.validation import check
from weft.errors import DefinitionError, DocumentError
from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.python import uncallable
from weft.journal.contract import LOCAL_ACTOR
from weft.sdk.flow_files import FlowFiles, code_of, read_files
from weft.sdk.source_tree import Sources, SourceTree

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence

    from weft.definition.plan import Plan
    from weft.engine import Engine
    from weft.handlers.registry import Registry
    from weft.handlers.usercode import UserCode
    from weft.sdk.flow_files import FoundWorkflow
    from weft.settings import Settings

log = logging.getLogger("weft.server")

# A saved file is taken up within a second: this, and the time that the import of the files takes.
_LOOK_SECONDS = 0.25


class OpenEngine(Protocol):
    """Makes a server's engine whose child processes load ``code``."""

    def __call__(self, settings: Settings, registry: Registry, *, code: UserCode) -> Engine: ...


class ServedFiles:
    """The Python files that a server serves, as they were read last."""

    def __init__(self, given: Sequence[Path], open_engine: OpenEngine) -> None:
        self._tree = SourceTree(given)
        self._sources = self._tree.read()
        self._open_engine = open_engine

    async def serve(self, settings: Settings, bound: socket.socket, *, watches: bool) -> int:
        """Serve until a signal comes. ``watches``: take up saved files, and outlive a broken one."""
        from weft.cli.local import load_registry
        from weft.cli.serving import Front, serve

        read = read_files(self._sources)
        if read.problem is not None and not watches:
            raise DocumentError(read.problem)
        registry = load_registry(settings)
        _register(read, registry)
        engine = self._open_engine(settings, registry, code=self._code(settings))
        plans = _checked(read, registry, settings) if read.problem is None or not watches else []
        front = Front(role="up", bound=bound, is_shared=False, about={"data": str(settings.data)})
        return await serve(
            engine, registry, front, beside=[self._work(engine, registry, read, plans, watches)]
        )

    async def _work(
        self,
        engine: Engine,
        registry: Registry,
        read: FlowFiles,
        plans: Sequence[tuple[FoundWorkflow, Plan]],
        watches: bool,
    ) -> None:
        if read.problem is not None:
            _tell_problem(read.problem)
        await _deploy(plans, engine, registry)
        while watches:
            await asyncio.sleep(_LOOK_SECONDS)
            sources = await asyncio.to_thread(self._tree.look)
            if sources is not None:
                await self._take_up(sources, engine, registry)

    async def _take_up(self, sources: Sources, engine: Engine, registry: Registry) -> None:
        """Serve the files as they are now; a broken one is told, and what was served before goes on."""
        read = await asyncio.to_thread(read_files, sources)
        try:
            if read.problem is not None:
                raise DocumentError(read.problem)
            _register(read, registry)
            plans = await asyncio.to_thread(_checked, read, registry, engine.settings)
        except (DocumentError, DefinitionError) as error:
            _tell_problem(str(error))
            return
        self._sources = sources
        engine.replace_code(self._code(engine.settings))
        await _deploy(plans, engine, registry)
        _tell("the files changed: functions run as they are now", "code.replaced")

    def _code(self, settings: Settings) -> UserCode:
        return code_of(self._sources).joined(modules=settings.imports, allow=settings.python_allow)


def _register(read: FlowFiles, registry: Registry) -> None:
    """Let definitions name the handlers and functions of the files; these run in child processes alone."""
    registry.declare_functions(read.functions)
    for found in read.handlers:
        registry.add(Handler(found.name, HandlerKind.USER, _runs_in_a_child, found.config_schema))


def _runs_in_a_child(config: object, context: object) -> None:
    raise AssertionError("a handler of a user runs in a child process")


def _checked(read: FlowFiles, registry: Registry, settings: Settings) -> list[tuple[FoundWorkflow, Plan]]:
    """Check the definitions; raises DefinitionError with the problems of the first that is wrong."""
    plans = []
    for found in read.workflows:
        checked = check(
            found.document,
            handlers=registry,
            bounds=settings.bounds(),
            named=True,
            resource_limits=settings.resource_limits,
        )
        if checked.plan is None:
            raise DefinitionError(checked.problems)
        plans.append((found, checked.plan))
    return plans


async def _deploy(plans: Iterable[tuple[FoundWorkflow, Plan]], engine: Engine, registry: Registry) -> None:
    """Store the definitions; content that is stored already keeps its version."""
    bounds = engine.settings.bounds()
    for found, plan in plans:
        document = encode(
            found.document,
            max_bytes=bounds.max_body_bytes,
            max_depth=bounds.max_depth,
            max_values=MAX_DOCUMENT_VALUES,
        )
        name = str(plan.definition.name)
        catalog = engine.ports.catalog
        latest = await catalog.workflow(name)
        if latest is not None and latest.latest.digest == plan.digest:
            continue
        version, _ = await catalog.put_version(name, plan, document, actor=LOCAL_ACTOR)
        where = f"{Path(found.file).name}:{found.variable}"
        for warning in uncallable(found.document, registry.functions()):
            _tell_warning(f"{where}: {warning}", name)
        _tell(f"{name} version {version.version} ({where})", "workflow.deployed", name, version.version)


def _tell(line: str, event: str, workflow: str | None = None, version: int | None = None) -> None:
    """Print a line for people, or log an event where nobody looks on."""
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


def _tell_problem(problem: str) -> None:
    if sys.stderr.isatty():
        say(f"the files cannot be served as they are; what was served before goes on:\n{problem}")
    else:
        log.error("code.broken", extra={"problem": problem})
