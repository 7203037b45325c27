"""What a closing engine takes back: ``at_most_once`` attempts that were marked as handed out, and never were.

The mark is committed before the task is sent, so after a crash nobody can tell whether it ran. Here nothing
has crashed: the only worker has stopped, the store is about to go, and it says of each task whether anybody
started it. One that nobody did is lost without a start, and has another attempt in the next life.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.definition import Delivery
from weft.core.event import AttemptLost
from weft.orchestrator.advance import record

if TYPE_CHECKING:
    from weft.core.event import Event
    from weft.orchestrator.service import Orchestrator


async def withdraw(orchestrator: Orchestrator) -> None:
    """Record every ``at_most_once`` attempt in a queue as lost. To be called when no worker can start one."""
    ports = orchestrator.ports
    events: list[Event] = []
    held = list(await ports.store.unchanged(ports.clock.now()))
    in_flight = await ports.store.in_flight(held)
    # Most of a long backlog has nothing in a queue, and is not worth a read.
    for execution_id in [name for name, counts in zip(held, in_flight, strict=True) if counts and counts[0]]:
        row = await ports.journal.execution(execution_id)
        plan = None if row is None else await ports.journal.plan(row.digest)
        if row is None or plan is None:
            continue
        once = [name for name, node in plan.nodes.items() if node.delivery is Delivery.AT_MOST_ONCE]
        sight = await ports.store.look(execution_id, names=once) if once else None
        events += [
            AttemptLost(
                execution_id=execution_id,
                generation=row.generation,
                node_id=name,
                attempt=seen.attempt,
                queued_at=seen.queued_at,
                counted=False,
            )
            for name, seen in (sight.nodes if sight else {}).items()
            if seen.phase == "queued"
        ]
    await record(events, orchestrator)
