"""``input``: its output is the execution's input.

A definition gives it no config. The engine resolves the config of such a node to the execution's
input, so that a worker needs to know nothing but the task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerKind

if TYPE_CHECKING:
    from weft.core.payload import Json

# Of the definition; the resolved config is the execution's input, and may be anything.
CONFIG_SCHEMA = {"type": ["object", "null"], "maxProperties": 0}


def input(config: Json) -> Json:  # noqa: A001 - the handler's name
    return config


HANDLER = Handler("input", HandlerKind.INSTANT, input, CONFIG_SCHEMA)
