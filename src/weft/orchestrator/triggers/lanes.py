"""Lanes: executions that follow one another, those of a trigger or of a batch.

The commit that accepts an execution may put it into the queue of its lane: it stays PENDING, and nothing
starts it. When one of the lane has ended, a commit takes the next out of the queue. From then on it is like
any other execution that was accepted while the store was away, and a rebuild installs it.

=============================  ==================================  ==================================
a crash after                  leaves                              repaired by
=============================  ==================================  ==================================
the commit of an end           one in a queue whose turn it is     the sweep (``release_stalled``)
release                        one that is PENDING in no store     recovery
=============================  ==================================  ==================================

Whoever puts one into a queue looks once more behind its commit: the one that ran may have ended in between,
and found nothing in the queue.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from weft.core.state import TERMINAL
from weft.errors import StoreError
from weft.orchestrator.recover import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterable

    from weft.core.rows import ExecutionRow
    from weft.ports import Ports

log = logging.getLogger("weft.orchestrator")

# Lanes that one sweep looks after; the next sweep has the others.
_STALLED_AT_ONCE = 100


async def release_behind(rows: Iterable[ExecutionRow], ports: Ports) -> None:
    """Release the next executions of the lanes in which one of these has ended."""
    ended = {
        (row.namespace, row.lane): row.lane for row in rows if row.lane is not None and row.state in TERMINAL
    }
    for (namespace, _), lane in ended.items():
        await release_lane(lane, ports, namespace=namespace)


async def release_lane(lane: str, ports: Ports, *, namespace: str) -> None:
    """Take the executions of a lane whose turn has come out of its queue, and start them."""
    for execution_id in await ports.journal.release_queued(lane, namespace=namespace):
        try:
            await rebuild(execution_id, ports)
        except StoreError as error:
            # Recovery takes it up when the store is back.
            log.warning("store.unavailable", extra={"error": str(error)})


async def release_stalled(ports: Ports) -> None:
    """Release what a crash has left in the queues of lanes."""
    for namespace, lane in await ports.journal.stalled_lanes(limit=_STALLED_AT_ONCE):
        await release_lane(lane, ports, namespace=namespace)
