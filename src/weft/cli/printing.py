"""Prints the results of commands on stdout and their messages on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from weft.drawing.escaping import escaped
from weft.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.errors import Problem
    from weft.settings import Settings

MAX_PROBLEMS = 20


def say(message: str) -> None:
    """Write a message for the user to stderr."""
    write_error(f"weft: {message}\n")


def write_error(text: str) -> None:
    """Write lines for the user to stderr."""
    sys.stderr.write(escaped(text))


def located(file: str, problem: Problem, kind: str = "") -> str:
    """Write a problem behind its place, as compilers do: editors and terminals make a link of it."""
    place = file if problem.line is None else f"{file}:{problem.line}"
    return f"{place}: {kind}{replace(problem, line=None)}"


def definition_error(file: str, problems: Sequence[Problem]) -> DocumentError:
    """Return an error with the problems of a definition, each behind its place; of many, the first ones."""
    if len(problems) == 1:
        return DocumentError(located(file, problems[0]))
    lines = [f"{file} has {len(problems):,} problems:"]
    lines += [f"  {located(file, problem)}" for problem in problems[:MAX_PROBLEMS]]
    if (more := len(problems) - MAX_PROBLEMS) > 0:
        lines.append(f"  … and {more:,} more")
    return DocumentError("\n".join(lines))


def print_text(text: str) -> None:
    # UTF-8 whatever the locale says: JSON and SVG are.
    sys.stdout.flush()
    sys.stdout.buffer.write(escaped(text).encode())
    sys.stdout.buffer.flush()


def print_json(value: Any, *, pretty: bool = True) -> None:
    """Print one JSON document; not ``pretty``: on one line, as one of many."""
    import json

    print_text(json.dumps(value, ensure_ascii=False, indent=2 if pretty else None) + "\n")


@contextmanager
def masked_stderr(settings: Settings) -> Iterator[None]:
    """Mask every secret in what is written to stderr here: by weft, by a logger, by the user's modules."""
    from weft.handlers.secrets import process_mask
    from weft.logs import MaskedStream

    stream = MaskedStream(sys.stderr, process_mask(settings.secrets()))
    try:
        with redirect_stderr(stream):
            yield
    finally:
        stream.finish()
