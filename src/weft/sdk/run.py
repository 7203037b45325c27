"""Run a workflow in this process, to its end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from weft.core.state import ExecutionState
from weft.definition.validation import check
from weft.engine import Engine, EngineParts
from weft.errors import DefinitionError, NotAllowedError, SettingsError
from weft.handlers import usercode
from weft.handlers.registry import default_registry
from weft.sdk.declaration import Declaration
from weft.sdk.plain_input import plain_input
from weft.sdk.public import public, public_coroutine
from weft.sdk.result import ExecutionResult, read_result
from weft.settings import Settings, read_settings
from weft.tracing.opening import open_tracing

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from weft.core.ledger.changes import RecordedEvent
    from weft.core.payload import Json
    from weft.definition.plan import Plan
    from weft.handlers.registry import Registry

Runnable: TypeAlias = Declaration | Mapping[str, Any] | str | os.PathLike[str]
NewLoop: TypeAlias = Callable[[], asyncio.AbstractEventLoop]
_Result = TypeVar("_Result")

log = logging.getLogger("weft")

_LONGEST_DEAF_SECONDS = 0.2


@public
def run(
    workflow: Runnable,
    input: Json = None,  # noqa: A002 - the word of the interface
    *,
    data: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> ExecutionResult:
    """Run a workflow to its end and give its result, also where it failed.

    ``workflow``: a Workflow, a definition as a dict, or the path of a file with one (``path.py:variable``
    for a Workflow). ``data``: a folder that keeps the history; without it nothing is kept. Functions run
    in this process, coroutines on one loop and others in threads. Ctrl-C cancels the execution.
    ``progress``: show on stderr how far it has come, as a bar or, where stderr is no terminal, as lines; and
    in the end what failed, with its traceback.

    Raises DefinitionError, InputError or DocumentError before anything has run.
    """
    return run_to_end(execute(workflow, input, data=data, progress=progress))


@public_coroutine
async def execute(
    workflow: Runnable,
    input: Json = None,  # noqa: A002 - the word of the interface
    *,
    data: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> ExecutionResult:
    """Do what ``run`` does, on the running loop. Cancelling this cancels the execution."""
    settings = effective_settings()
    registry = registry_of(settings)
    document, plan = make_plan(workflow, registry, settings)
    input = plain_input(input)  # noqa: A001 - the word of the interface
    folder = None if data is None else Path(data)
    async with Engine(
        registry=registry,
        settings=settings,
        data=folder,
        recovers=False,
        listen=_warn_of_waits if plan.waits else None,
        parts=EngineParts(tracing=open_tracing),
    ) as engine:
        # An earlier process may have died over the same: then that execution is taken to its end.
        execution_id = await engine.go_on(plan, input=input)
        if execution_id is None:
            execution_id = await engine.submit(plan, document=document, input=input)
        if progress:
            await _ended_with_bar(execution_id, engine, plan)
        else:
            await ended(execution_id, engine)
        return await read_result(execution_id, plan, engine.ports)


def _warn_of_waits(recorded_events: Sequence[RecordedEvent]) -> None:
    """Log each node that waits for an answer, because this process has no way to give one."""
    from weft.sdk.waiting import begun_waits

    for recorded_event in recorded_events:
        for one in begun_waits(recorded_event):
            if one.is_for_answer:
                log.warning(
                    "execution %s waits: %s; nobody can answer it here: run it on a server (weft up)",
                    one.execution_id,
                    one.text,
                )


async def ended(execution_id: str, engine: Engine) -> None:
    """Return once an execution is terminal. Who gives up waiting wants it no more: it is cancelled."""
    try:
        await engine.wait(execution_id)
    except asyncio.CancelledError:
        with suppress(NotAllowedError):  # it ended in the same moment
            await engine.cancel(execution_id)
        raise


async def _ended_with_bar(execution_id: str, engine: Engine, plan: Plan) -> None:
    """Return once an execution is terminal; show how far it has come, and in the end what failed."""
    # Loaded late: few ask for it, and the terminal's library takes longer than a small run.
    from weft.sdk.look import LOOK_INTERVAL_SECONDS, ExecutionLook
    from weft.sdk.progress import open_progress
    from weft.sdk.report import report

    loop = asyncio.get_running_loop()
    begun, total = loop.time(), len(plan.nodes)
    look = ExecutionLook(engine, execution_id, total, plan.graph.parents)
    bar = open_progress(total, stream=sys.stderr, quiet=False, environ=os.environ)
    assert bar is not None
    ending = asyncio.create_task(ended(execution_id, engine))
    try:
        while not ending.done():
            bar.show(await look.at(loop.time() - begun))
            await asyncio.wait((ending,), timeout=LOOK_INTERVAL_SECONDS)
        bar.show(await look.at(loop.time() - begun))
    finally:
        bar.close()
        # If the wait was cancelled, the execution is cancelled before this returns.
        ending.cancel()
        await asyncio.wait((ending,))
    ending.result()
    execution = await engine.describe(execution_id)
    if execution["state"] != ExecutionState.COMPLETED:
        sys.stderr.write(report(execution, elapsed_seconds=loop.time() - begun) + "\n")


def effective_settings(given: Mapping[str, object] | None = None) -> Settings:
    """Read the settings; those that are given go before all others."""
    settings, warnings = read_settings(flags=given)
    for warning in warnings:
        log.warning(warning)
    return settings


def registry_of(settings: Settings) -> Registry:
    """Return the registry of the handlers and functions that one run can call."""
    # The handlers are those of the process; the functions of one run are nobody else's.
    registry = default_registry().scoped()
    code = usercode.UserCode(modules=settings.imports, allow=settings.python_allow)
    problems = usercode.load(code, registry)
    if problems:
        raise SettingsError("\n".join(problems))
    return registry


def make_plan(workflow: Runnable, registry: Registry, settings: Settings) -> tuple[Json, Plan]:
    """Return a workflow's document and plan, and register its functions so that the run can call them."""
    bounds = settings.bounds()
    document: Json
    if isinstance(workflow, (str, os.PathLike)):
        # Loaded late: the parser of YAML is worth a noticeable part of a small run.
        from weft.sdk.loading import load

        loaded = load(os.fspath(workflow), registry, bounds=bounds)
        document, declared = loaded.document, loaded.workflow
    elif isinstance(workflow, Declaration):
        document, declared = workflow.document(), workflow
    elif isinstance(workflow, Mapping):
        document, declared = dict(workflow), None
    else:
        raise TypeError(f"a Workflow, a dict or the path of a file is needed, not {workflow!r:.80}")
    checked = check(
        document, handlers=registry, bounds=bounds, named=False, resource_limits=settings.resource_limits
    )
    is_ours = isinstance(declared, Declaration)
    if checked.plan is None:
        raise DefinitionError(declared.located(checked.problems) if is_ours else checked.problems)
    for warning in checked.warnings:
        log.warning(warning)
    if is_ours:
        for reference, function in declared.__weft_functions__().items():
            registry.add_function(reference, function)
    return document, checked.plan


def run_to_end(main: Coroutine[Any, Any, _Result], *, new_loop: NewLoop | None = None) -> _Result:
    """Run a coroutine on a loop of its own, wherever this is called; Ctrl-C cancels it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # and out of here, or every error of the run would be shown as one of this one
    else:
        return _run_in_thread(main, new_loop)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(_boxed(main))()


async def _boxed(main: Coroutine[Any, Any, _Result]) -> Callable[[], _Result]:
    """Return a function that returns the coroutine's result.

    The runner puts the handler of Ctrl-C back by looking it up among the signals, and the error of that
    lookup holds the ``repr`` of the task and of all that it returned, twice.
    """
    result = await main
    return lambda: result


def _run_in_thread(main: Coroutine[Any, Any, _Result], new_loop: NewLoop | None) -> _Result:
    """Run a coroutine on a loop in another thread: the loop of this one is busy calling us."""
    begun: SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = SimpleQueue()
    outcome: Future[_Result] = Future()
    context = copy_context()

    async def supervised() -> _Result:
        begun.put((asyncio.get_running_loop(), asyncio.current_task()))
        return await main

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                result = runner.run(supervised(), context=context)
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=work, name="weft-run", daemon=True).start()
    try:
        _await(outcome)
    except KeyboardInterrupt:
        loop, task = begun.get()
        assert task is not None
        with suppress(RuntimeError):  # the loop is closed: it has ended
            loop.call_soon_threadsafe(task.cancel)
        _await(outcome)
        raise
    return outcome.result()


def _await(outcome: Future[Any]) -> None:
    """Block until there is an outcome; Ctrl-C is heard meanwhile."""
    # Not a join of the thread: one that is interrupted takes the thread for ended from then on. And a
    # signal that comes just before a wait does not end it, so no wait is long.
    while not outcome.done():
        wait((outcome,), timeout=_LONGEST_DEAF_SECONDS)
