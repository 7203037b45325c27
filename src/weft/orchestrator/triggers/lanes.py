"""Lanes: executions that follow one another, those of a trigger, of a batch, or of a group.

The commit that accepts an execution may put it into the queue of its lane: it stays PENDING, and nothing
starts it. When one of the lane has ended, a commit takes the next out of the queue. From then on it is like
any other execution that was accepted while the store was away, and a rebuild installs it. All executions with
a group come by the queue of the group: who runs there is decided by that commit alone, one behind the other.
One that waits in another lane before goes on from there to the queue of its group.

=============================  ==================================  ==================================
a crash after                  leaves                              repaired by
=============================  ==================================  ==================================
the commit of an end           one in a queue whose turn it is     the sweep (``release_stalled``)
the commit of a newcomer       the same, and what it cancels       the same
release                        one that is PENDING in no store     recovery
=============================  ==================================  ==================================

Whoever puts one into a queue looks once more behind its commit: the one that ran may have ended in between,
and found nothing in the queue.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import CancelRequested
from weft.core.ledger.changes import Verdict
from weft.core.state import TERMINAL
from weft.errors import StoreError
from weft.orchestrator.dispatch import running_now
from weft.orchestrator.recover import rebuild

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.core.rows import ExecutionRow
    from weft.ports import Ports

log = logging.getLogger("weft.orchestrator")

# Lanes that are read at once.
_STALLED_AT_ONCE = 100
# Groups that whoever submits executions looks after; the sweep has the others.
_RELEASED_AT_ONCE = 100


async def release_behind(rows: Iterable[ExecutionRow], ports: Ports) -> None:
    """Release the next executions of the lanes in which one of these has ended."""
    ended = [row for row in rows if row.state in TERMINAL]
    for namespace, lane in dict.fromkeys((row.namespace, lane) for row in ended for lane in row.lanes):
        await release_lane(lane, ports, namespace=namespace)


async def release_groups(rows: Iterable[ExecutionRow], ports: Ports) -> None:
    """Start those of these executions whose turn in their group has come."""
    groups = [(row.namespace, row.group_lane) for row in rows if row.started_at is None]
    for namespace, lane in [*dict.fromkeys(groups)][:_RELEASED_AT_ONCE]:
        if lane is not None:
            await release_lane(lane, ports, namespace=namespace)


async def release_lane(lane: str, ports: Ports, *, namespace: str) -> None:
    """Take the executions of a lane whose turn has come out of its queue, and start them."""
    lanes = [lane]
    while lanes:
        released = await ports.journal.release_queued(lanes[0], namespace=namespace)
        for execution_id in released.started:
            try:
                await rebuild(execution_id, ports)
            except StoreError as error:
                # Recovery takes it up when the store is back.
                log.warning("store.unavailable", extra={"error": str(error)})
        if not await _cancel(released.doomed, ports):
            # Those that go on are cancelled already, or end later: then their end looks here again.
            lanes.pop(0)
        lanes += [other for other in released.lanes if other not in lanes]


async def _cancel(execution_ids: Sequence[str], ports: Ports) -> bool:
    """Cancel executions whose place another takes; True if one of them has ended by that."""
    if not execution_ids:
        return False
    requests = []
    for id_ in execution_ids:
        running = await running_now(id_, ports)
        requests.append(CancelRequested(execution_id=id_, generation=0, running=running, actor="group"))
    recorded_events = await ports.journal.record(requests)
    ports.announce(recorded_events)
    ended = False
    for one in recorded_events:
        row = one.execution
        if row is not None and row.is_terminal:
            ended = ended or one.verdict is Verdict.ACCEPTED
            # The cancel is recorded: the sweep tells a store that is away.
            with suppress(StoreError):
                await ports.store.close(row.id, generation=row.generation, epoch=row.epoch, plan=one.plan)
    return ended


async def release_stalled(ports: Ports) -> None:
    """Release what a crash has left in the queues of lanes."""
    after = ("", "")
    while True:
        stalled = await ports.journal.stalled_lanes(limit=_STALLED_AT_ONCE, after=after)
        for namespace, lane in stalled:
            await release_lane(lane, ports, namespace=namespace)
        if len(stalled) < _STALLED_AT_ONCE:
            return
        after = stalled[-1]
