"""Rebuilds hot state from the journal; of several builders of one execution, one succeeds.

The order matters: read the incarnation of the store, commit the higher epoch and read the rows, install. A
store that was flushed in between has another incarnation, a quicker builder a higher epoch: either way a
late builder is refused, and the highest epoch wins.

A rebuild orphans every ready node, because the store that was lost may have given its task to a worker, and
gives it another attempt when no worker reports it. While an execution is paused the store starts nothing: the
attempts that are running or orphaned after the store was told of the pause are all there are. They are
recorded (``observe_pause``), and a rebuild orphans no others. So it is with an embedded engine whose worker
has stopped (``observe_stop``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import HaltObserved
from weft.core.snapshot import RowUpdate
from weft.core.state import ExecutionState
from weft.core.task import Wake
from weft.core.time import micros
from weft.errors import JournalError, StoreError
from weft.store.contract import Answer

if TYPE_CHECKING:
    from weft.core.rows import ExecutionRow
    from weft.ports import Ports
    from weft.store.contract import ExecutionStatus

# A task that is queued was not started: its start is refused while the execution is paused.
_IN_HAND = frozenset({"running", "orphaned"})


async def rebuild(execution_id: str, ports: Ports, *, seen_epoch: int | None = None) -> Answer:
    """Rebuild an execution in the store from the journal.

    REFUSED: another orchestrator was quicker, or the execution waits for its turn in a lane.

    ``seen_epoch``: the epoch that the execution had when the store was found not to have it.
    """
    incarnation_id = await ports.store.incarnation_id()
    row = await ports.journal.execution(execution_id)
    if row is None:
        return Answer.UNKNOWN
    if row.lanes and row.started_at is None and await ports.journal.is_queued(row.id):
        # Whoever releases it rebuilds it then: also one that was paused meanwhile, or paused and resumed.
        return Answer.REFUSED
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
            await _drop_if_over(execution_id, ports)
    return rebuilt


async def _tell(execution_id: str, ports: Ports) -> None:
    """Apply an execution's row of the journal to the store, and wake an orchestrator to go on from there."""
    row = await ports.journal.execution(execution_id)
    plan = None if row is None else await ports.journal.plan(row.digest)
    if row is None or plan is None or row.is_terminal:
        return
    await ports.store.apply([RowUpdate(row, plan, ())])
    await ports.transport.publish([Wake(row.id, row.generation, row.digest)])


async def _drop_if_over(execution_id: str, ports: Ports) -> None:
    """Drop an execution from the store if it has ended, or has left the hot state."""
    row = await ports.journal.execution(execution_id)
    if row is None:
        # Purged since: what is left of it is a name in a list, or the store refuses.
        await ports.store.close(execution_id, generation=0, epoch=0)
    elif row.is_terminal:
        await ports.store.close(execution_id, generation=row.generation, epoch=row.epoch)
    elif row.evicted:
        await ports.store.evict([row])


async def observe_pause(execution: ExecutionRow, ports: Ports) -> None:
    """Record the attempts in hand of an execution whose pause the store was told of.

    A failure is of no consequence: a rebuild then knows less, and gives some nodes another attempt.
    """
    halt = execution.halt
    if execution.state is not ExecutionState.PAUSED or halt is None or halt.in_hand is not None:
        return
    with suppress(StoreError, JournalError):
        status = await ports.store.inspect(execution.id)
        # Not there: the rebuild raises the epoch.
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
    present = list(await ports.store.idle_since(ports.clock.now()))
    events = []
    for execution_id, epoch in zip(present, await ports.store.epochs(present), strict=True):
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
