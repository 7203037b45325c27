"""Step 5: results become events, and go all the way; then they are acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import Event, ExecutionStarted, NodeCompleted
from weft.core.judge import judge
from weft.core.task import Wake
from weft.errors import JournalError
from weft.orchestrator.advance import advance, record
from weft.orchestrator.inhand import with_running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.plan import Plan
    from weft.orchestrator.service import Orchestrator
    from weft.transport.contract import Message, MessageDelivery


async def collect(orchestrator: Orchestrator, *, limit: int, wait_seconds: float) -> int:
    """Read a batch of messages and take it all the way; give its size."""
    transport, unfinished = orchestrator.ports.transport, orchestrator.unfinished
    if unfinished:
        deliveries = unfinished.pop()
    else:
        deliveries = await transport.read(orchestrator.name, limit=limit, wait_seconds=wait_seconds)
    try:
        await take(deliveries, orchestrator)
    except JournalError:
        # They are still ours, and nobody else looks for them before they are stale.
        unfinished.append(deliveries)
        raise
    return len(deliveries)


async def take(deliveries: Sequence[MessageDelivery], orchestrator: Orchestrator) -> None:
    """Take messages all the way. Acknowledged last: until then a crash means that they come again."""
    if not deliveries:
        return
    await advance(await _judge([delivery.message for delivery in deliveries], orchestrator), orchestrator)
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
        results = [delivery.message for delivery in deliveries if not isinstance(delivery.message, Wake)]
        await record(await _judge(results, orchestrator), orchestrator)
        await transport.ack(name, [delivery.id for delivery in deliveries])


async def _judge(messages: Sequence[Message], orchestrator: Orchestrator) -> list[Event]:
    """Make events of messages; what names nothing that exists is put aside."""
    ports, cascades = orchestrator.ports, orchestrator.cascades
    plans: dict[str, Plan | None] = {}
    events: list[Event] = []
    for message in messages:
        if isinstance(message, Wake):
            events.append(ExecutionStarted(execution_id=message.execution_id, generation=message.generation))
            continue
        if message.digest not in plans:
            plans[message.digest] = await ports.journal.plan(message.digest)
        plan = plans[message.digest]
        if plan is None or message.node_id not in plan.nodes:
            orchestrator.quarantine(message)
            continue
        event = judge(
            message,
            plan,
            draw=ports.draw(),
            max_deliveries=ports.max_deliveries,
            settled=cascades.known(message.execution_id, message.generation),
        )
        if not isinstance(event, NodeCompleted):
            event = await with_running(event, plan, ports)
        events.append(event)
    return events
