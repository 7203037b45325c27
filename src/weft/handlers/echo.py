"""``echo``: its output is its resolved config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerKind

if TYPE_CHECKING:
    from weft.core.payload import Json


def echo(config: Json) -> Json:
    return config


HANDLER = Handler("echo", HandlerKind.INSTANT, echo)
