"""Prints the results of commands on stdout and their messages on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

from weft.drawing.escaping import escaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.settings import Settings


def say(message: str) -> None:
    """Write a message for the user to stderr."""
    write_error(f"weft: {message}\n")


def write_error(text: str) -> None:
    """Write lines for the user to stderr."""
    sys.stderr.write(escaped(text))


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
