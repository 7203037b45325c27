"""Takes executions in which only waits are open out of the hot state: a wait of months costs a row.

The commit of the eviction raises the epoch and compares the number of the last event, so everything that the
store has of the execution is of the past from then on. What ends a wait later is recorded as always; its
apply finds an execution that the store does not know, and a rebuild brings it back. The rebuild knows
that no attempt was in anybody's hand (``Halt``): what follows on the wait starts at once.

=================  ============================================  =========================================
a crash after      leaves                                        repaired by
=================  ============================================  =========================================
the commit         the execution in the store, of an old epoch   recovery (``orchestrator/recover.py``)
the end of a wait  the execution in the journal alone            the sweep, which finds the end of the wait
=================  ============================================  =========================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import HotStateEvicted
from weft.core.ledger.changes import Verdict
from weft.core.time import micros

if TYPE_CHECKING:
    from weft.ports import Ports

# A commit is to stay short.
_AT_ONCE = 256


async def evict(ports: Ports, *, idle_seconds: float) -> int:
    """Evict the executions in which nothing but waits has happened for so long; return their number."""
    waiting = await ports.journal.waiting(not_updated_since=ports.clock.now() - micros(idle_seconds))
    evicted = 0
    for start in range(0, len(waiting), _AT_ONCE):
        some = waiting[start : start + _AT_ONCE]
        merged = await ports.store.evictable([one.id for one in some])
        events = [
            HotStateEvicted(execution_id=one.id, generation=one.generation, epoch=one.epoch, seq=one.seq)
            for one, seq in zip(some, merged, strict=True)
            if seq == one.seq
        ]
        recorded_events = await ports.journal.record(events) if events else ()
        gone = [
            one.execution
            for one in recorded_events
            if one.verdict is Verdict.ACCEPTED and one.execution is not None
        ]
        if gone:
            await ports.store.evict(gone)
            evicted += len(gone)
    return evicted
