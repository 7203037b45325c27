"""The commands that need no server: ``run``, ``validate``, ``graph``."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from weft.cli.main import FAILED, USAGE
from weft.cli.pairs import Input, InputFile, read_input
from weft.cli.printing import (
    definition_error,
    located,
    masked_stderr,
    print_json,
    print_text,
    say,
    write_error,
)
from weft.core.payload import canonical
from weft.errors import DocumentError, InputError, Problem, SettingsError
from weft.handlers.contract import PYTHON

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from weft.cli.follow import Followed
    from weft.definition.plan import Plan
    from weft.definition.validation import Checked
    from weft.handlers.registry import Registry
    from weft.sdk.loading import Loaded
    from weft.settings import Settings

# `-` is stdin, not a flag that was left unfinished.
File = Annotated[str, Parameter(allow_leading_hyphen=True, help="YAML, JSON, - (stdin), or path.py:variable")]


Trust = Annotated[
    bool, Parameter(help="import what the weft.toml of this folder names, and modules beside FILE")
]


def run(
    file: File,
    /,
    *,
    input: Input = (),  # noqa: A002 - the name of the flag
    input_file: InputFile = None,
    data: Annotated[
        Path | None, Parameter(metavar="DIR", help="keep state and history in this folder")
    ] = None,
    as_json: Annotated[
        bool, Parameter("--json", help="print the whole execution, not its output alone")
    ] = False,
    concurrency: Annotated[int | None, Parameter(metavar="N", help="nodes in flight at once")] = None,
    quiet: Annotated[bool, Parameter(help="show no progress")] = False,
) -> int:
    """Run one definition in this process, and print its output."""
    from weft.handlers.secrets import short_ones
    from weft.sdk.run import run_to_end

    settings = _settings(concurrency=concurrency)
    for problem in short_ones():
        say(f"warning: {problem}")
    with masked_stderr(settings):
        # What a user's code prints, at its import too, is for people; stdout is for the output alone.
        with redirect_stdout(sys.stderr):
            registry = load_registry(settings)
            loaded, checked = _check(file, registry, settings, named=False)
            for warning in checked.warnings:
                say(located(file, warning, "warning: "))
            if checked.plan is None:
                raise definition_error(file, checked.problems)
            value = read_input(input, input_file, settings.bounds(), stdin_taken=file == "-")
            _check_input(checked.plan, value)
            followed = run_to_end(
                _follow(settings, registry, loaded, checked.plan, value, data=data, quiet=quiet),
                new_loop=loop_factory(),
            )
        serve = None if data is None else _serving_command(loaded, checked.plan, data)
        return _finish(followed, serve=serve, as_json=as_json, quiet=quiet)


def validate(
    *files: File,
    as_json: Annotated[bool, Parameter("--json", help="print one JSON object per file, a line each")] = False,
    trust: Trust = False,
) -> int:
    """Check definitions, and list every problem."""
    if not files:
        raise DocumentError("name at least one file to check")
    settings = _settings(trust=trust)
    registry = load_registry(settings)
    code = 0
    for file in files:
        try:
            _, checked = _check(file, registry, settings, named=True, trust=trust)
            problems, warnings, layers = checked.problems, checked.warnings, checked.layers
        except DocumentError as error:
            problems, warnings, layers = [Problem("", str(error).removeprefix(f"{file}: "))], [], []
        if problems:
            code = USAGE
        if as_json:
            print_json(
                {
                    "file": file,
                    "valid": not problems,
                    "problems": [asdict(problem) for problem in problems],
                    "warnings": [asdict(warning) for warning in warnings],
                    "layers": layers,
                },
                pretty=False,
            )
        else:
            _print_verdict(file, problems, warnings, layers)
    return code


def graph(
    file: File,
    /,
    *,
    mermaid: Annotated[bool, Parameter(help="as a Mermaid flowchart")] = False,
    svg: Annotated[bool, Parameter(help="as an SVG picture")] = False,
    trust: Trust = False,
) -> int:
    """Draw a definition as text, Mermaid or SVG."""
    if mermaid and svg:
        raise DocumentError("--mermaid and --svg exclude each other")
    settings = _settings(trust=trust)
    _, checked = _check(file, load_registry(settings), settings, named=False, trust=trust)
    if checked.plan is None:
        raise definition_error(file, checked.problems)
    plan = checked.plan
    labels = {node.id: node.handler for node in plan.definition.nodes}
    if mermaid:
        from weft.drawing.mermaid import draw_mermaid

        print_text(draw_mermaid(plan.graph, labels))
    elif svg:
        from weft.drawing.svg import draw_svg

        print_text(draw_svg(plan.graph, labels, title=plan.definition.name or file))
    else:
        from weft.drawing.text import draw_text

        print_text(draw_text(plan.graph, labels))
    return 0


# --- What they share.


def _settings(*, concurrency: int | None = None, trust: bool = True) -> Settings:
    from weft.settings import read_settings

    settings, warnings = read_settings(flags={"worker_concurrency": concurrency}, trusts_folder=trust)
    for warning in warnings:
        say(f"warning: {warning}")
    return settings


def see_current_folder() -> None:
    """Let the modules of the folder a command is run in be imported, behind all that is installed."""
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.append(folder)


def load_registry(settings: Settings) -> Registry:
    """Return this process's handlers, with those of the modules that the settings name."""
    from weft.handlers import usercode
    from weft.handlers.registry import default_registry

    registry = default_registry()
    if settings.imports or settings.python_allow:
        # Not otherwise: a module that weft looks for and does not find must not come from any folder.
        see_current_folder()
    code = usercode.UserCode(modules=settings.imports, allow=settings.python_allow)
    problems = usercode.load(code, registry)
    if problems:
        raise SettingsError("\n".join(problems))
    return registry


def _check(
    file: str, registry: Registry, settings: Settings, *, named: bool, trust: bool = True
) -> tuple[Loaded, Checked]:
    """Load a definition and check it; ``trust``: its code may be looked for in the definition's folder."""
    from weft.definition.validation import check
    from weft.sdk.loading import load

    bounds = settings.bounds()
    loaded = load(file, registry, bounds=bounds, trusts_folder=trust)
    checked = check(loaded.document, handlers=registry, bounds=bounds, named=named)
    problems, warnings = loaded.with_lines(checked.problems), loaded.with_lines(checked.warnings)
    return loaded, replace(checked, problems=problems, warnings=warnings)


def _check_input(plan: Plan, value: dict[str, Any]) -> None:
    from weft.definition.validation import check_input

    payload = canonical(value)
    problems = check_input(plan, value, payload)
    if problems is None:
        from weft.validator import wire
        from weft.validator.check import faults_in_process

        assert plan.input_schema is not None
        problems = faults_in_process(wire.CheckKind.VALUE, plan.input_schema, payload)
    if problems:
        raise InputError(problems)


# --- Running.


async def _follow(
    settings: Settings,
    registry: Registry,
    loaded: Loaded,
    plan: Plan,
    value: dict[str, Any],
    *,
    data: Path | None,
    quiet: bool,
) -> Followed:
    """Take one execution through the embedded engine.

    A data folder may hold an execution of the same definition and input that an earlier process did not
    finish: then that one is taken to its end. Users' code runs in child processes, as on a server.
    """
    from weft.cli.follow import follow
    from weft.cli.notices import NodeNotices
    from weft.engine import Engine, EngineParts
    from weft.sdk.progress import open_progress
    from weft.tracing.opening import open_tracing

    total = len(plan.nodes)
    code = loaded.code.joined(modules=settings.imports, allow=settings.python_allow)
    attempts = {name: node.max_retries + 1 for name, node in plan.nodes.items()}
    notices = NodeNotices(attempts, waits=not quiet)
    serve = None if data is None else _serving_command(loaded, plan, data)

    def how_to_answer(execution_id: str, node_id: str) -> str:
        if serve is None:
            return "nobody can answer it here: run it on a server (weft up), or with --data"
        return f"to answer it: Ctrl-C, {serve}, then weft answer {execution_id} {node_id} VALUE"

    notices.how_to_answer = how_to_answer
    async with Engine(
        settings=settings,
        registry=registry,
        data=data,
        code=code,
        recovers=False,
        listen=None if quiet else notices.receive,
        parts=EngineParts(show=notices.show, tracing=open_tracing),
    ) as engine:
        execution_id = await engine.go_on(plan, input=value)
        if execution_id is None:
            execution_id = await engine.submit(plan, document=loaded.document, input=value)
        elif not quiet:
            say(f"going on with execution {execution_id}, which was not finished")
        progress = open_progress(total, stream=sys.stderr, quiet=quiet, environ=os.environ)
        return await follow(
            engine,
            execution_id,
            total=total,
            progress=progress,
            parents=plan.graph.parents,
            notices=notices,
            keeps=data is not None,
        )


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    try:
        from uvloop import new_event_loop
    except ImportError:  # there is none for Windows
        return None
    return new_event_loop


def _serving_command(loaded: Loaded, plan: Plan, data: Path) -> str:
    """Return the command that serves the data folder with the functions of a definition.

    A server does not import what lies beside a definition, but what its Python files and the modules beside
    these hold.
    """
    from weft.sdk.loading import PYTHON_FILE

    words = ["weft", "up", "--data", str(data)]
    if match := PYTHON_FILE.fullmatch(loaded.source):
        words.insert(2, match["path"])
    else:
        configs = [node.config for node in plan.definition.nodes if node.handler == PYTHON]
        functions = [str(config.get("function")) for config in configs if isinstance(config, dict)]
        modules = [name.partition(":")[0].partition(".")[0] for name in functions]
        files = (Path(folder, f"{name}.py") for folder in loaded.code.folders for name in modules)
        words[2:2] = [str(file) for file in files if file.is_file()][:1]
    return shlex.join(words)


def _finish(followed: Followed, *, serve: str | None, as_json: bool, quiet: bool) -> int:
    """Print what is asked for on stdout, and how it ended on stderr, and return the exit code.

    ``serve``: the command behind which the execution can be retried; None: it was kept nowhere.
    """
    from weft.core.state import TERMINAL, ExecutionState
    from weft.sdk.report import report

    execution = followed.execution
    if execution["state"] not in TERMINAL:
        assert followed.signal is not None
        say(f"execution {execution['id']} waits on; to go on with it: {serve}")
        return 128 + followed.signal
    completed = execution["state"] == ExecutionState.COMPLETED
    if not (quiet and completed and execution["error"] is None):
        retry = None if serve is None else f"{serve}, then weft retry {execution['id']}"
        write_error(report(execution, elapsed_seconds=followed.elapsed_seconds, retry=retry) + "\n")
    if as_json:
        print_json(execution)
    elif completed:
        print_json(execution["output"])
    if completed:
        return 0
    return FAILED if followed.signal is None else 128 + followed.signal


# --- Printing.


def _print_verdict(
    file: str, problems: Sequence[Problem], warnings: Sequence[Problem], layers: Sequence[Sequence[str]]
) -> None:
    for warning in warnings:
        say(located(file, warning, "warning: "))
    for problem in problems:
        say(located(file, problem))
    if not problems:
        print_text(f"{file}: valid; nodes: {sum(map(len, layers)):,}, layers: {len(layers):,}\n")
