"""Deletes executions past their retention, and large outputs that no row names.

Retention is never urgent, so it must not delay other work: each removal is small, and the journal has at
least as long for its other work before the next one. Where there is nothing to remove, nothing is written.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from weft.core.time import MICROSECONDS, micros

if TYPE_CHECKING:
    from weft.ports import Ports

log = logging.getLogger("weft.orchestrator")

# Executions removed before others have their turn. A journal does it in several commits, each of them short.
PURGED_AT_ONCE = 200
# Interval between purges of executions past their retention; shorter where the retention is short.
_LOOK_SECONDS = 60.0
_LOOKS_PER_RETENTION = 4
# Interval between blob sweeps, and the least age of a blob that a sweep deletes: by then no task and no
# result that could name the blob is still on its way.
BLOB_LOOK_SECONDS = 3600.0
BLOB_AGE_SECONDS = 86_400.0


def look_seconds(retention_seconds: float) -> float:
    """Return the interval between searches for executions that are past their retention."""
    return min(_LOOK_SECONDS, retention_seconds / _LOOKS_PER_RETENTION)


async def purge(ports: Ports, *, retention_seconds: float) -> None:
    """Remove every execution that has been terminal for longer than the retention."""
    finished_before = ports.clock.now() - micros(retention_seconds)
    removed = 0
    while True:
        begun = ports.clock.now()
        count = await ports.journal.purge(finished_before=finished_before, limit=PURGED_AT_ONCE)
        removed += count
        if count < PURGED_AT_ONCE:
            break
        await asyncio.sleep((ports.clock.now() - begun) / MICROSECONDS)
    if removed:
        log.info("history.purged", extra={"executions": removed})


async def purge_events(ports: Ports, *, retention_seconds: float) -> None:
    """Remove every inbound event that has been kept for longer than the retention."""
    received_before = ports.clock.now() - micros(retention_seconds)
    removed = PURGED_AT_ONCE
    while removed == PURGED_AT_ONCE:
        removed = await ports.journal.purge_events(received_before=received_before, limit=PURGED_AT_ONCE)


async def sweep_blobs(ports: Ports) -> None:
    """Remove what workers stored and no result came to name."""
    removed = await ports.journal.sweep_blobs(older_than=ports.clock.now() - micros(BLOB_AGE_SECONDS))
    if removed:
        log.info("blobs.swept", extra={"blobs": removed})
