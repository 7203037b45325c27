"""Handles what is due and what a crash left: timers, expired leases, free nodes nobody dispatched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from weft.core.event import DeadlinePassed, Event, ParkedDue
from weft.core.judge import judge_loss
from weft.orchestrator.advance import advance, advance_free
from weft.orchestrator.collect import has_seen_lost_outcome, take
from weft.orchestrator.dispatch import with_running, without_lost_starts
from weft.orchestrator.waits.due import end_due_waits
from weft.store.contract import Answer

if TYPE_CHECKING:
    from weft.orchestrator.context import Context
    from weft.store.contract import Expired

_CLAIM_LIMIT = 256
# Ten thousand nodes may be due at once; a commit is to stay short.
_PARKED_AT_ONCE = 256


async def sweep(context: Context) -> int | None:
    """Process expired leases, deadlines and due nodes once; return when to sweep again at the latest.

    Nothing is taken out of the store before its consequence is committed: a sweep that dies midway
    leaves everything to the next, and two at once agree, because the fence takes one.
    """
    ports = context.ports
    due = await ports.store.due(idle_seconds=ports.sweep_seconds)
    events = [event for expired in due.expired if (event := await _judge(expired, context)) is not None]
    for execution_id, generation in due.deadlines:
        running = without_lost_starts(await ports.store.running(execution_id), ports)
        events.append(DeadlinePassed(execution_id=execution_id, generation=generation, running=running))
    await advance(events, context)
    for start in range(0, len(due.parked), _PARKED_AT_ONCE):
        some = due.parked[start : start + _PARKED_AT_ONCE]
        await advance(
            [ParkedDue(one.execution_id, one.generation, one.node_id, one.attempt) for one in some], context
        )
    await advance_free([execution_id for execution_id, _ in due.woken], context)
    next_at = _earlier(due.next_at, await end_due_waits(context))
    return _earlier(next_at, await release(context))


async def release(context: Context) -> int | None:
    """Release the nodes that a token is there for from the wait queues; return when the next token is due."""
    ports = context.ports
    freed: dict[str, None] = {}
    given_up = True
    while given_up:
        # A token that was meant for a node that is gone is for the next ticket in the wait queue, now.
        given_up = False
        released = await ports.limits.release()
        for tag, ticket in released.tickets:
            answer = await ports.store.release(
                ticket.execution_id,
                generation=ticket.generation,
                node_id=ticket.node_id,
                attempt=ticket.attempt,
            )
            if answer is Answer.YES:
                freed[ticket.execution_id] = None
            else:
                await ports.limits.leave(tag, ticket)
                given_up = True
    await advance_free(list(freed), context)
    return released.next_at


async def reclaim(context: Context) -> None:
    """Take over what a peer took and did not finish: results go all the way, tasks are sent again."""
    ports = context.ports
    messages, tasks = await ports.transport.claim(
        context.name, idle_seconds=ports.stale_result_seconds, limit=_CLAIM_LIMIT
    )
    await take(messages, context)
    if tasks:
        await ports.transport.send([delivery.task for delivery in tasks])
        await ports.transport.ack_tasks(context.name, [delivery.id for delivery in tasks])


async def _judge(expired: Expired, context: Context) -> Event | None:
    plan = await context.ports.journal.plan(expired.digest)
    if plan is None:
        return None
    event = judge_loss(
        expired,
        plan,
        losses=expired.losses,
        # No worker is known to have started an orphaned attempt: the loss of a store counts against no node.
        started=expired.worker is not None,
        issued=expired.issued == expired.attempt,
        max_deliveries=context.ports.max_deliveries,
        settled=context.cascades.known,
    )
    if await has_seen_lost_outcome(expired, context.ports):
        # It started in a history that the database has lost: in this one it has not.
        event = replace(event, worker=None, queued_at=None, started_at=None)
    return await with_running(event, plan, context.ports)


def _earlier(one: int | None, other: int | None) -> int | None:
    times = [at for at in (one, other) if at is not None]
    return min(times, default=None)
