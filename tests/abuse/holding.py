"""A handler that holds its worker slot for a moment; servers load it by ``WEFT_IMPORTS``."""

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

from weft import HandlerContext, handler

Json: TypeAlias = Any

HOLD_SECONDS = 0.2


@handler("hold")
async def hold(config: Json, context: HandlerContext) -> None:
    await asyncio.sleep(HOLD_SECONDS)
