"""Hot state rebuilt from the journal, by one builder at a time.

The order matters: read the incarnation of the store, commit the higher epoch and read the rows, install. A
store that was flushed in between has another incarnation, a quicker builder a higher epoch: either way a
late builder is refused, and the highest epoch wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.snapshot import RowUpdate
from weft.core.task import Wake
from weft.core.time import micros
from weft.store.contract import Answer

if TYPE_CHECKING:
    from weft.ports import Ports


async def rebuild(execution_id: str, ports: Ports, *, seen_epoch: int | None = None) -> Answer:
    """Rebuild an execution in the store from the journal; REFUSED: another orchestrator was quicker.

    ``seen_epoch``: the epoch that the execution had when the store was found not to have it.
    """
    incarnation_id = await ports.store.incarnation_id()
    row = await ports.journal.execution(execution_id)
    if row is None:
        return Answer.UNKNOWN
    if not row.is_terminal:
        seen_epoch = row.epoch if seen_epoch is None else seen_epoch
        snapshot = await ports.journal.rebuild(execution_id, seen_epoch=seen_epoch)
        if snapshot is None:
            return Answer.REFUSED
        row = snapshot.execution
        if not row.is_terminal:
            # Never taken up: nothing of it was handed out, and the hint that it is there may be lost.
            never_started = row.started_at is None
            (answer,) = await ports.store.install(
                [snapshot], incarnation_id=incarnation_id, fresh=never_started
            )
            if never_started or row.halt is not None:
                # Its free nodes wait for no lease: wake an orchestrator for them now.
                await ports.transport.publish([Wake(row.id, row.generation, row.digest)])
            ports.timers_changed()
            return answer
    return await ports.store.close(execution_id, generation=row.generation, epoch=row.epoch)


async def recover(ports: Ports, *, grace_seconds: float) -> int:
    """Rebuild every execution that the journal has running and the store does not have; give their number.

    Close what the store has open and the journal does not: whoever cancelled it died before saying so. And
    tell the store what it has missed: whoever paused or resumed an execution may have died there, too.
    ``grace_seconds``: an execution that changed so lately may be on its way into the store just now.
    """
    not_updated_since = ports.clock.now() - micros(grace_seconds)
    active = await ports.journal.active(not_updated_since=not_updated_since)
    epochs = await ports.store.epochs([execution.id for execution in active])
    unchanged = await ports.store.idle_since(not_updated_since)
    rebuilt = 0
    for execution, epoch in zip(active, epochs, strict=True):
        if epoch is None or epoch < execution.epoch:
            # A peer may have rebuilt it since the list was read: once more would hold its nodes for a lease.
            rebuilt += await rebuild(execution.id, ports, seen_epoch=execution.epoch) is Answer.YES
        elif unchanged.get(execution.id, execution.updated_at) < execution.updated_at:
            await _tell(execution.id, ports)
    still_active = {execution.id for execution in active}
    for execution_id in unchanged:
        if execution_id not in still_active:
            await _close_if_terminal(execution_id, ports)
    return rebuilt


async def _tell(execution_id: str, ports: Ports) -> None:
    """Apply an execution's row of the journal to the store, and wake an orchestrator to go on from there."""
    row = await ports.journal.execution(execution_id)
    plan = None if row is None else await ports.journal.plan(row.digest)
    if row is None or plan is None or row.is_terminal:
        return
    await ports.store.apply([RowUpdate(row, plan, ())])
    await ports.transport.publish([Wake(row.id, row.generation, row.digest)])


async def _close_if_terminal(execution_id: str, ports: Ports) -> None:
    row = await ports.journal.execution(execution_id)
    if row is None:
        # Purged since: what is left of it is a name in a list, or the store refuses.
        await ports.store.close(execution_id, generation=0, epoch=0)
    elif row.is_terminal:
        await ports.store.close(execution_id, generation=row.generation, epoch=row.epoch)
