"""What commands print: results on stdout, messages on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.handlers.secrets import Mask
    from weft.settings import Settings


def say(message: str) -> None:
    """Write a message for the user to stderr."""
    sys.stderr.write(f"weft: {message}\n")


def print_text(text: str) -> None:
    # UTF-8 whatever the locale says: JSON and SVG are.
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def print_json(value: Any, *, pretty: bool = True) -> None:
    """Print one JSON document; not ``pretty``: on one line, as one of many."""
    import json

    print_text(json.dumps(value, ensure_ascii=False, indent=2 if pretty else None) + "\n")


def mask_of(settings: Settings) -> Mask:
    """Return what hides every secret of this process: those of nodes, and those among its settings."""
    from weft.handlers.secrets import Mask, known

    return Mask([*known(), *settings.secrets()])


@contextmanager
def masked_stderr(settings: Settings) -> Iterator[None]:
    """Hide every secret in what is written to stderr here: by weft, by a logger, by the user's modules."""
    from weft.logs import MaskedStream

    with redirect_stderr(MaskedStream(sys.stderr, mask_of(settings).text)):
        yield
