"""Records which attempts are in somebody's hand while none can start: a rebuild takes no other for lost.

A rebuild orphans every ready node, because an earlier store may have handed it out, and gives it
another attempt when nobody is heard of. While an execution is paused the store starts nothing: the attempts
that it has in hand after it was told of the pause are all there are, and become fewer. The same is so of an
embedded engine whose worker has stopped.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import HaltObserved
from weft.core.state import ExecutionState
from weft.errors import JournalError, StoreError

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow
    from weft.ports import Ports
    from weft.store.contract import ExecutionStatus

# A task that is queued was not started: its start is refused while the execution is paused.
_IN_HAND = frozenset({"running", "orphaned"})


async def observe_pause(execution: ExecutionRow, ports: Ports) -> None:
    """Record the attempts in hand of an execution whose pause the store was told of.

    A failure is of no consequence: a rebuild then knows less, and gives some nodes another attempt.
    """
    halt = execution.halt
    if execution.state is not ExecutionState.PAUSED or halt is None or halt.in_hand is not None:
        return
    with suppress(StoreError, JournalError):
        status = await ports.store.inspect(execution.id)
        # Not there: whoever rebuilds it raises the epoch.
        if status is not None and status.paused:
            observed = HaltObserved(
                execution_id=execution.id,
                generation=execution.generation,
                epoch=execution.epoch,
                paused_seq=halt.paused_seq,
                in_hand=_in_hand(status),
            )
            await ports.journal.record([observed])


async def observe_stop(ports: Ports) -> None:
    """Record the attempts in hand of every execution. To be called when no worker can start one any more."""
    held = list(await ports.store.idle_since(ports.clock.now()))
    events = []
    for execution_id, epoch in zip(held, await ports.store.epochs(held), strict=True):
        status = await ports.store.inspect(execution_id)
        if status is None or epoch is None:
            continue
        events.append(
            HaltObserved(
                execution_id=execution_id,
                generation=0,
                epoch=epoch,
                paused_seq=0,
                in_hand=_in_hand(status),
            )
        )
    if events:
        await ports.journal.record(events)


def _in_hand(status: ExecutionStatus) -> dict[str, int]:
    return {name: node.attempt for name, node in status.nodes.items() if node.phase in _IN_HAND}
