"""Step 5: results become events, and go all the way; then they are acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import Event, ExecutionStarted, NodeCompleted
from weft.core.judge import judge
from weft.core.task import Wake
from weft.orchestrator.advance import advance, record
from weft.orchestrator.inhand import with_running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.orchestrator.service import Orchestrator
    from weft.transport.contract import MessageDelivery


async def collect(orchestrator: Orchestrator, *, limit: int, wait_seconds: float) -> int:
    """Read a batch of messages and take it all the way; give its size."""
    transport = orchestrator.ports.transport
    deliveries = await transport.read(orchestrator.name, limit=limit, wait_seconds=wait_seconds)
    await take(deliveries, orchestrator)
    return len(deliveries)


async def take(deliveries: Sequence[MessageDelivery], orchestrator: Orchestrator) -> None:
    """Take messages all the way. Acknowledged last: until then a crash means that they come again."""
    if not deliveries:
        return
    events = [event for delivery in deliveries if (event := await _judge(delivery, orchestrator)) is not None]
    await advance(events, orchestrator)
    await orchestrator.ports.transport.ack(orchestrator.name, [delivery.id for delivery in deliveries])


async def drain(orchestrator: Orchestrator, *, limit: int) -> None:
    """Record every result that is still there, and start nothing: what follows is for the next life.

    For an engine of its own that closes: nobody else reads its messages, so what was read and not
    acknowledged is its own too.
    """
    transport, name = orchestrator.ports.transport, orchestrator.name
    while True:
        claimed, _ = await transport.claim(name, idle_seconds=0, limit=limit)
        deliveries = [*claimed, *await transport.read(name, limit=limit, wait_seconds=0)]
        if not deliveries:
            return
        results = [delivery for delivery in deliveries if not isinstance(delivery.message, Wake)]
        events = [
            event for delivery in results if (event := await _judge(delivery, orchestrator)) is not None
        ]
        await record(events, orchestrator)
        await transport.ack(name, [delivery.id for delivery in deliveries])


async def _judge(delivery: MessageDelivery, orchestrator: Orchestrator) -> Event | None:
    message, ports = delivery.message, orchestrator.ports
    if isinstance(message, Wake):
        return ExecutionStarted(execution_id=message.execution_id, generation=message.generation)
    plan = await ports.journal.plan(message.digest)
    if plan is None or message.node_id not in plan.nodes:
        orchestrator.quarantine(message)
        return None
    event = judge(
        message,
        plan,
        now=ports.clock.now(),
        draw=ports.draw(),
        max_deliveries=ports.max_deliveries,
        settled=orchestrator.cascades.known(message.execution_id, message.generation),
    )
    return event if isinstance(event, NodeCompleted) else await with_running(event, plan, ports)
