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

FAILED, USAGE, INTERRUPTED = 1, 2, 130


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    function: str  # where it is, for a lazy import
    summary: str


COMMANDS = (
    Command("run", "weft.cli.local:run", "Run one definition in this process, and print its output."),
    Command("validate", "weft.cli.local:validate", "Check definitions, and list every problem."),
    Command("graph", "weft.cli.local:graph", "Draw a definition as text, Mermaid or SVG."),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or bool(os.environ.get("WEFT_DEBUG"))
    given = [argument for argument in given if argument != "--debug"]
    if given in ([], ["--help"], ["-h"]):
        sys.stdout.write(_overview())
        return 0
    if given == ["--version"]:
        sys.stdout.write(f"weft {_version()}\n")
        return 0
    return _call(given, debug=debug)


def _call(given: Sequence[str], *, debug: bool) -> int:
    from cyclopts import App, CycloptsError, Parameter

    from weft.errors import JournalError, WeftError

    # Plain help: the parser's own formats need a Markdown renderer, which takes longer to load than
    # everything else together.
    app = App(
        name="weft",
        version=_version,
        help_format="plaintext",
        result_action="return_value",
        default_parameter=Parameter(negative=(), show_default=False),
    )
    for command in COMMANDS:
        app.command(command.function, name=command.name, help=command.summary)
    try:
        code = app(given, exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        _explain(f"{error}\ntry: weft --help", error, debug=debug)
        return USAGE
    except WeftError as error:
        _explain(str(error), error, debug=debug)
        return FAILED if isinstance(error, JournalError) else USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone. What the interpreter flushes at its end must not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return code if isinstance(code, int) else 0


def _explain(message: str, error: Exception, *, debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exception(error)
    sys.stderr.write(f"weft: {message}\n")


def _overview() -> str:
    width = max(len(command.name) for command in COMMANDS)
    commands = "\n".join(f"  {command.name:<{width}}  {command.summary}" for command in COMMANDS)
    return f"""\
weft runs workflows: a DAG of calls and functions, run exactly as drawn.

usage: weft COMMAND [arguments]

{commands}

  weft COMMAND --help  the arguments of one command
  weft --version       the version
  --debug              with any command: show the traceback of an error

Exit codes: 0 done, 1 the execution failed or was cancelled, 2 bad input or usage, 130 interrupted.
"""


def _version() -> str:
    from importlib.metadata import version

    return version("weft")


if __name__ == "__main__":
    sys.exit(main())
