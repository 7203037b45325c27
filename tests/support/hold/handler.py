"""``hold``: its output is its config, after ``seconds`` on the worker's loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from weft.handlers.contract import Handler, HandlerContext, HandlerKind
from weft.handlers.sleep import CONFIG_SCHEMA

if TYPE_CHECKING:
    from weft.core.payload import Json


async def hold(config: Json, context: HandlerContext) -> Json:
    await asyncio.sleep(config["seconds"])
    return config


HANDLER = Handler("hold", HandlerKind.NATIVE, hold, CONFIG_SCHEMA)
