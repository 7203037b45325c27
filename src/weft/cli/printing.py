"""What commands print: results on stdout, messages on stderr."""

from __future__ import annotations

import sys
from typing import Any


def say(message: str) -> None:
    """Tell people something."""
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
