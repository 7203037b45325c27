"""``docs/commands.md``: every command with its arguments, as the table and the parser have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.cli.main import EXIT_CODES, GROUPS, parser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cyclopts import App

    from weft.cli.main import Command

_PAGE = """\
# Commands

<!-- Written by `python -m weft.cli.reference`; a test compares. -->

What each command takes. [The command line](cli.md) shows how they are used.

`--debug` with any command shows the traceback of an error. Results go to stdout, messages to stderr.

| exit code | meaning |
|---|---|
CODES

COMMANDS"""


def commands_page() -> str:
    """Write the page."""
    app = parser()
    sections = [
        _section(command, _find(app, command.name)) for commands in GROUPS.values() for command in commands
    ]
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())
    return _PAGE.replace("CODES", codes).replace("COMMANDS", "\n".join(sections))


def _find(app: App, name: str) -> App:
    for word in name.split():
        app = app[word]
    return app


def _section(command: Command, app: App) -> str:
    rows = "".join(_rows(app))
    table = f"\n| argument | |\n|---|---|\n{rows}" if rows else ""
    return f"## weft {command.name}\n\n{command.summary} Example: `{command.example}`\n{table}"


def _rows(app: App) -> Iterator[str]:
    for argument in app.assemble_argument_collection():
        if argument.show:
            yield f"| `{_name(argument)}` | {argument.parameter.help or ''} |\n"


def _name(argument: Any) -> str:
    if argument.is_flag():
        return str(argument.name)
    # A choice is written out, and its bars kept from being those of the table.
    value = argument.parameter.metavar or "\\|".join(argument.get_choices() or ())
    return f"{argument.name} {value}".strip()


if __name__ == "__main__":
    import sys

    sys.stdout.write(commands_page())
