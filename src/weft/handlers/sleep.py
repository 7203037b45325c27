"""``sleep``: its output is its resolved config, after ``seconds``.

The orchestrator parks such a node (``core.decide``), and no worker runs it. The function is for tasks that an
earlier release has sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerContext, HandlerKind

if TYPE_CHECKING:
    from weft.core.payload import Json

CONFIG_SCHEMA = {
    "type": "object",
    "required": ["seconds"],
    # The longest timeout a node may have.
    "properties": {"seconds": {"type": "number", "minimum": 0, "maximum": 604_800}},
}


async def sleep(config: Json, context: HandlerContext) -> Json:
    await asyncio.sleep(config["seconds"])
    return config


HANDLER = Handler("sleep", HandlerKind.NATIVE, sleep, CONFIG_SCHEMA)
