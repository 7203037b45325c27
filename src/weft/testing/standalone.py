"""Serves from a command line until Ctrl-C or SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.testing.http_server import HttpServer


def serve(
    make: Callable[[str, int], HttpServer],
    arguments: Sequence[str] | None,
    *,
    description: str,
    path: str = "",
) -> None:
    """Serve what ``make`` gives for a host and port; its URL with ``path`` is the first line printed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default: any that is free")
    options = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with make(options.host, options.port) as server:
        sys.stdout.write(f"{server.url}{path}\n")
        sys.stdout.flush()
        ended.wait()
