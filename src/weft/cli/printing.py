"""What commands print: results on stdout, messages on stderr."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from weft.settings import Settings


# Controls of both ranges (C0 and C1: a terminal obeys U+009B as it does ESC [), DEL, line separators, what
# turns the direction of text, what nobody sees, and halves of surrogate pairs. Line ends and tabs are the
# commands' own; the joiners U+200C and U+200D belong to words of some languages, and to emoji.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def escaped(text: str) -> str:
    """Return text that no terminal obeys: what it would is shown as JSON writes it, such as ``\\u009b``.

    JSON stays the same JSON.
    """
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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
