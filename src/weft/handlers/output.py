"""``output``: its output is its resolved config, and thereby the execution's output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerKind

if TYPE_CHECKING:
    from weft.core.payload import Json


def output(config: Json) -> Json:
    return config


HANDLER = Handler("output", HandlerKind.INSTANT, output)
