"""Tells a user in plain words what is wrong with a command line, and how it is written."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cyclopts import CoercionError, MissingArgumentError, UnknownCommandError, UnusedCliTokensError

from weft.definition.suggestion import Suggester

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cyclopts import CycloptsError

_NUMBERS = {int: "a whole number", float: "a number"}


def usage_text(error: CycloptsError, given: Sequence[str], examples: Mapping[str, str]) -> str:
    """Return what is wrong with the arguments, an example of the command that was meant, and its help.

    ``examples``: a command line of each command, by the name of the command.
    """
    lines = [_fault(error, examples)]
    meant = next((name for name in (" ".join(given[:2]), *given[:1]) if name in examples), "")
    if isinstance(error, MissingArgumentError) and meant:
        lines.append(f"for example: {examples[meant]}")
    if not meant and any(name.startswith(f"{given[0]} ") for name in examples):
        meant = given[0]
    lines.append(f"try: {' '.join(filter(None, ('weft', meant, '--help')))}")
    return "\n".join(lines)


def _fault(error: CycloptsError, known: Collection[str]) -> str:
    match error:
        case UnknownCommandError(unused_tokens=[token, *_]):
            group = " ".join(error.command_chain or ())
            beside = {name.removeprefix(group).split()[0] for name in known if name.startswith(group)}
            return f"there is no command {f'{group} {token}'.lstrip()!r}{Suggester().hint(token, beside)}"
        case UnusedCliTokensError(unused_tokens=[*tokens]):
            many = "one argument" if len(tokens) == 1 else f"{len(tokens)} arguments"
            return f"{many} too many: {shlex.join(tokens)}"
        case MissingArgumentError(argument=argument) if argument is not None:
            named = error.keyword or next((token.keyword for token in argument.tokens if token.keyword), None)
            return f"{named} needs a value" if named else f"{argument.name} is missing"
        case CoercionError(token=token, target_type=kind) if token is not None and kind in _NUMBERS:
            return f"{token.keyword or 'the argument'} needs {_NUMBERS[kind]}, not {token.value!r}"
    return str(error)
