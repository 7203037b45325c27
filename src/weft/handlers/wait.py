"""``wait``: a node that waits for a time, an answer or an event, for as long as it takes.

No worker ever runs it: the orchestrator records that it waits (``core.decide``). Its config is checked with
the definition (``definition.waits``). The name is registered here, as that of every handler that ships.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.definition.model import WAIT
from weft.handlers.contract import Handler, HandlerKind

if TYPE_CHECKING:
    from weft.core.payload import Json


def wait(config: Json) -> Json:
    raise AssertionError("a wait node has no task")


HANDLER = Handler(WAIT, HandlerKind.INSTANT, wait)
