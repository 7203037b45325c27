"""The handler of the replays, for servers that load it: ``WEFT_IMPORTS=tests.walks.replay_handler``."""

from __future__ import annotations

from tests.walks.replay import replay_node

from weft.handlers.registry import handler

handler("merkle")(replay_node)
