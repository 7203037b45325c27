"""Handlers and functions of a worker that has to be stopped."""

from __future__ import annotations

import time
from typing import Any

from weft.handlers.contract import Handler, HandlerKind
from weft.handlers.registry import default_registry


async def stuck(config: Any, context: Any) -> int:
    """Hold up the worker's loop, which nothing of weft's own can end; but for the last attempt."""
    if context.attempt <= config:
        time.sleep(600)  # noqa: ASYNC251 - that is the point
    return int(context.attempt)


default_registry().add(Handler("stuck", HandlerKind.NATIVE, stuck))


def deaf() -> None:
    """Take no notice of being asked to stop."""
    while True:
        time.sleep(1)


def fails(order: dict[str, int], context: Any) -> int:
    context.progress(1, 2, "reading")
    print("an order of", order["price"])
    return order["prize"]
