"""Completions that count before they are committed, and the checkpoints at which they are.

Between two checkpoints the store is the fence, and carries what it has taken: messages are acknowledged at
once. If the store is lost, what it had taken and nobody had recorded runs again. What a crash leaves:

==================  ==================================  =================================================
a crash after       leaves                              repaired by
==================  ==================================  =================================================
settle              nodes free, not queued              redelivery: known, answered with all free nodes
settle of the last  an execution settled, not ended     redelivery: complete, again; the next checkpoint
outcomes            nodes held                          nothing to repair: the journal settles them
record              outcomes marked as not recorded     the next checkpoint: known, and the mark goes
==================  ==================================  =================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.outcome import settled_row
from weft.orchestrator.advance import advance
from weft.orchestrator.ahead import foresee_taken, is_foreseen
from weft.orchestrator.ask import EVENTS_AT_ONCE, outcomes_of
from weft.orchestrator.dispatch import dispatch, send
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.event import Event, NodeCompleted
    from weft.orchestrator.service import Orchestrator
    from weft.store.contract import FreeNode

_EXECUTIONS_AT_ONCE = 100
_MOST_EXECUTIONS = 100_000


async def settle(completions: Sequence[NodeCompleted], orchestrator: Orchestrator) -> list[Event]:
    """Let the store take completions, and go on from there; give the events that are to be recorded now."""
    ports = orchestrator.ports
    rows = [(one.execution_id, one.generation, settled_row(one)) for one in completions]
    ahead = foresee_taken(rows, orchestrator) if ports.sends_ahead else []
    taken = await ports.store.settle(rows, ahead)
    events: list[Event] = []
    free: list[FreeNode] = []
    queued: set[tuple[str, str]] = set()
    complete: list[str] = []
    for event, (execution_id, _, row), applied in zip(completions, rows, taken, strict=True):
        if applied.answer is Answer.YES:
            orchestrator.known.add(execution_id, row)
        else:
            # Late, doubled or of an execution that is not here: the journal knows.
            events.append(event)
        free.extend(applied.free)
        queued.update([(execution_id, node_id) for node_id in applied.queued])
        if applied.complete:
            complete.append(execution_id)
    if queued:
        await send([task for task, _ in ahead if (task.execution_id, task.node_id) in queued], ports)
    for node in free if ports.sends_ahead else ():
        # Somebody else has seen its start.
        if is_foreseen(node.execution, node.plan):
            orchestrator.known.learn(node.execution, node.plan)
    events += await dispatch(free, orchestrator)
    # What ends an execution is not left to the timer, and nobody is shown the end before it is committed.
    events += await outcomes_of(complete, ports)
    return events


async def checkpoint(orchestrator: Orchestrator) -> None:
    """Record all that the store has and the journal has not. Several may do so at once: the fence knows."""
    ports = orchestrator.ports
    waiting = await ports.store.unrecorded(limit=_MOST_EXECUTIONS)
    for start in range(0, len(waiting), _EXECUTIONS_AT_ONCE):
        events = await outcomes_of(waiting[start : start + _EXECUTIONS_AT_ONCE], ports)
        for first in range(0, len(events), EVENTS_AT_ONCE):
            await advance(events[first : first + EVENTS_AT_ONCE], orchestrator)
