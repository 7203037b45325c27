"""The command ``weft``: a table of commands, each imported only when it is asked for.

``weft --help`` is the page most often read, and answering it needs nothing but this table; so it comes
before anything is imported, the parser included.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cyclopts import App

    from weft.errors import WeftError

FAILED, USAGE, NOT_FOUND, UNREACHABLE, INTERRUPTED = 1, 2, 3, 4, 130
EXIT_CODES = {
    0: "done; `run`, `start --wait`, `watch`: the execution completed; `batch`: all of them did",
    FAILED: "an execution failed or was cancelled; or the journal could not be written",
    USAGE: "bad input or usage: a file, a definition, an input, a setting, a call that the state forbids",
    NOT_FOUND: "not found: no such workflow, execution, node or dead letter",
    UNREACHABLE: "the server cannot be reached, or cannot answer now",
    INTERRUPTED: "interrupted by Ctrl-C (143: ended by SIGTERM)",
}


@dataclass(frozen=True, slots=True)
class Command:
    name: str  # of two words: the second is a command of the first
    function: str  # where it is, for a lazy import
    summary: str

    @property
    def example(self) -> str:
        return f"weft {self.name} {EXAMPLES.get(self.name, '')}".rstrip()


# In the order and the groups of the overview.
GROUPS = {
    "in this process": (
        Command("run", "weft.cli.local:run", "Run one definition, and print its output."),
        Command("validate", "weft.cli.local:validate", "Check definitions, and list every problem."),
        Command("graph", "weft.cli.local:graph", "Draw a definition as text, Mermaid or SVG."),
        Command("schema", "weft.cli.editors:schema", "Print the JSON Schema of a definition, for editors."),
        Command("docs", "weft.cli.pages:docs", "Print a page of the documentation."),
        Command("completion", "weft.cli.editors:completion", "Print the completion script of a shell."),
    ),
    "serving": (
        Command("dev", "weft.cli.roles:dev", "Serve the workflows of Python files, and take up changes."),
        Command("up", "weft.cli.roles:up", "Serve workflows: API, orchestrator and worker in one process."),
        Command("api", "weft.cli.roles:api", "Serve the API of a fleet."),
        Command("orchestrator", "weft.cli.roles:orchestrator", "Move the executions of a fleet forward."),
        Command("worker", "weft.cli.roles:worker", "Run tasks of a fleet."),
        Command("doctor", "weft.cli.admin:doctor", "Check the set-up, and say what to do."),
        Command("migrate", "weft.cli.admin:migrate", "Bring the schema of the journal up to date."),
        Command("keys new", "weft.cli.keys:new", "Make a key for the API."),
        Command("keys list", "weft.cli.keys:list_", "List the keys that the settings have."),
        Command("bench", "weft.cli.admin:bench", "Measure this machine."),
    ),
    "on a server": (
        Command("deploy", "weft.cli.workflows:deploy", "Store a definition, and print its version."),
        Command("workflows", "weft.cli.workflows:workflows", "List workflows, or the versions of one."),
        Command("alias", "weft.cli.workflows:alias", "Let an alias stand for a version."),
        Command("start", "weft.cli.remote:start", "Start an execution of a stored workflow."),
        Command("batch", "weft.cli.batch:batch", "Start an execution for each line of a file."),
        Command("batches", "weft.cli.batch:batches", "List batches, newest first."),
        Command("triggers apply", "weft.cli.triggers:apply", "Store the triggers of files."),
        Command("triggers list", "weft.cli.triggers:list_", "List triggers by name."),
        Command("triggers show", "weft.cli.triggers:show", "Show a trigger and its last executions."),
        Command("triggers enable", "weft.cli.triggers:enable", "Let a trigger start executions."),
        Command("triggers disable", "weft.cli.triggers:disable", "Let a trigger start nothing."),
        Command("triggers fire", "weft.cli.triggers:fire", "Let a trigger start an execution now."),
        Command("triggers backfill", "weft.cli.triggers:backfill", "Start the due times of a span."),
        Command("triggers delete", "weft.cli.triggers:delete", "Delete a trigger."),
        Command("list", "weft.cli.remote:list_", "List executions, newest first."),
        Command("show", "weft.cli.remote:show", "Show one execution, or one node of it."),
        Command("watch", "weft.cli.watch:watch", "Follow an execution to its end."),
        Command("logs", "weft.cli.logs:logs", "Show what the nodes of an execution printed and logged."),
        Command("explain", "weft.cli.remote:explain", "Explain why a node is not running."),
        Command("events", "weft.cli.history:events", "Show the history of an execution."),
        Command("open", "weft.cli.browse:open_", "Open the server's page in a browser."),
        Command("waits", "weft.cli.waits:waits", "List the nodes that wait for an answer."),
        Command("answer", "weft.cli.waits:answer", "Answer a node that waits for an answer."),
        Command("signal", "weft.cli.waits:signal", "Send a signal to an execution."),
        Command("cancel", "weft.cli.remote:cancel", "Cancel an execution."),
        Command("pause", "weft.cli.remote:pause", "Pause an execution: nothing more of it starts."),
        Command("resume", "weft.cli.remote:resume", "Go on with a paused execution."),
        Command("retry", "weft.cli.remote:retry", "Run again what failed or was cancelled."),
        Command("fork", "weft.cli.remote:fork", "Start a new execution from one that has ended."),
        Command("dlq list", "weft.cli.dead_letters:list_", "List the nodes that failed for good."),
        Command("dlq show", "weft.cli.dead_letters:show", "Show one dead letter with its attempts."),
        Command("dlq retry", "weft.cli.dead_letters:retry", "Retry the execution of a dead letter."),
        Command("dlq drop", "weft.cli.dead_letters:drop", "Mark a dead letter as dealt with."),
        Command("changes", "weft.cli.changes:changes", "List who changed workflows and aliases."),
        Command("workers", "weft.cli.remote:workers", "List the workers and their load."),
        Command("queues", "weft.cli.remote:queues", "List the queues and what waits in them."),
    ),
}
# What the commands of two words have in common.
SUBJECTS = {
    "dlq": "Nodes that failed for good, their dead letters.",
    "keys": "The keys of the API.",
    "triggers": "What starts executions by itself: schedules, events, webhooks.",
}
# The arguments in the example that the help of each command shows.
EXAMPLES = {
    "run": "order.yaml --input number=7",
    "validate": "order.yaml flows.py:flow",
    "graph": "order.yaml --mermaid",
    "docs": "tutorial",
    "completion": "bash",
    "dev": "flows.py",
    "up": "flows.py --port 8700",
    "api": "--host 0.0.0.0 --port 8700",
    "worker": "--queues llm,default --concurrency 16",
    "migrate": "--check",
    "deploy": "flows.py:flow --alias prod",
    "workflows": "order",
    "alias": "order prod 3",
    "start": "order --input number=7 --wait",
    "batch": "order inputs.jsonl",
    "triggers apply": "nightly.yaml",
    "triggers show": "nightly",
    "triggers enable": "nightly",
    "triggers disable": "nightly",
    "triggers fire": "nightly",
    "triggers backfill": "nightly --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --dry-run",
    "triggers delete": "nightly",
    "list": "--state FAILED",
    "show": "0198c5a2 fetch",
    "watch": "0198c5a2",
    "logs": "0198c5a2 fetch --follow",
    "explain": "0198c5a2",
    "events": "0198c5a2",
    "open": "0198c5a2",
    "waits": "--workflow release",
    "answer": "0198c5a2 approval approve",
    "signal": "0198c5a2 paid '{\"amount\": 7}'",
    "cancel": "0198c5a2",
    "pause": "0198c5a2",
    "resume": "0198c5a2",
    "retry": "0198c5a2 --dry-run",
    "fork": "0198c5a2 --from fetch",
    "dlq show": "0198c5a2",
    "dlq retry": "0198c5a2",
    "dlq drop": "0198c5a2",
    "queues": "--json",
}
COMMANDS = tuple(command for commands in GROUPS.values() for command in commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or bool(os.environ.get("WEFT_DEBUG"))
    given = [argument for argument in given if argument != "--debug"]
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    if given in ([], ["--help"], ["-h"]):
        sys.stdout.write(_overview())
        return 0
    if given in (["--version"], ["-V"], ["version"]):
        sys.stdout.write(f"weft {_version()}\n")
        return 0
    return _call(given, debug=debug)


def _call(given: Sequence[str], *, debug: bool) -> int:
    from cyclopts import CycloptsError

    from weft.errors import WeftError

    try:
        code = parser()(given, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        from weft.cli.usage import usage_text

        examples = {command.name: command.example for command in COMMANDS}
        _explain(usage_text(error, given, examples), error, debug=debug)
        return USAGE
    except WeftError as error:
        _explain(_message_of(error), error, debug=debug)
        return _code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone. The interpreter's last flush must not fail, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def parser() -> App:
    """Return the parser of all commands; the parser imports a command when that command is asked for."""
    from cyclopts import App, Parameter

    def app(name: str, summary: str | None = None) -> App:
        # Plain help: the parser's own formats need a Markdown renderer, which takes longer to load than
        # everything else together. And `--version` belongs to the commands: it names that of a workflow.
        return App(
            name=name,
            help=summary,
            version_flags=(),
            help_format="plaintext",
            result_action="return_value",
            suppress_keyboard_interrupt=False,
            default_parameter=Parameter(negative=(), show_default=False),
        )

    whole = app("weft")
    groups: dict[str, App] = {}
    for command in COMMANDS:
        first, _, second = command.name.partition(" ")
        if second and first not in groups:
            groups[first] = app(first, SUBJECTS[first])
            whole.command(groups[first])
        parent = groups[first] if second else whole
        parent.command(
            command.function,
            name=second or first,
            help=command.summary,
            help_epilogue=f"Example: {command.example}",
        )
    return whole


def _message_of(error: WeftError) -> str:
    from weft.errors import ApiError

    if isinstance(error, ApiError) and error.status == 401:
        return f"{error}; a command takes it from WEFT_API_KEY"
    return str(error)


def _code_of(error: WeftError) -> int:
    from weft.errors import ApiError, JournalError, NotFoundError, UnreachableError

    match error:
        case NotFoundError() | ApiError(code="not_found"):
            return NOT_FOUND
        # The server is there, and cannot answer now; or something else answers in its place.
        case UnreachableError() | ApiError(status=429 | 502 | 503 | 504) | ApiError(code="bad_answer"):
            return UNREACHABLE
        case JournalError() | ApiError(status=500):
            return FAILED
        case _:
            return USAGE


def _explain(message: str, error: Exception, *, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exception(error)
    from weft.cli.printing import say

    say(message)


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    groups = "\n\n".join(
        f"{title}:\n" + "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in commands)
        for title, commands in GROUPS.items()
    )
    return f"""\
weft runs workflows: a DAG of calls and functions, run exactly as drawn.

usage: weft COMMAND [arguments]

{groups}

  weft COMMAND --help  the arguments of one command
  weft --version       the version
  --debug              with any command: show the traceback of an error

The server is that of WEFT_URL (http://127.0.0.1:8700), with the key of WEFT_API_KEY where it needs one.
Exit codes: 0 done, 1 the execution failed or was cancelled, 2 bad input or usage, 3 not found,
4 the server cannot be reached, 130 interrupted.
Documentation: `weft docs`; the API: /docs of a server.
"""


def _version() -> str:
    from importlib.metadata import version

    return version("weft")


if __name__ == "__main__":
    sys.exit(main())
