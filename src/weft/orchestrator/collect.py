"""Step 5: results become events, and go all the way; then they are acknowledged."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from weft.core.event import AttemptFailed, Event, NodeCompleted
from weft.core.judge import judge
from weft.core.task import Result, Wake
from weft.envelope import verify
from weft.errors import JournalError, StoreError
from weft.orchestrator.advance import advance, advance_free, record
from weft.orchestrator.context import STEPS_ON_LOOP
from weft.orchestrator.dispatch import with_running
from weft.orchestrator.recover import rebuild
from weft.orchestrator.results.evaluation import Pace
from weft.orchestrator.results.retries import judge_retry
from weft.orchestrator.waits.polls import judge_look

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.definition.plan import Plan
    from weft.envelope import Signer
    from weft.orchestrator.context import Context
    from weft.ports import Ports
    from weft.store.contract import Expired, NodeStatus
    from weft.transport.contract import MessageDelivery

log = logging.getLogger("weft.orchestrator")

# So many times a batch may be in hand: what came behind a wide execution's messages is seen among them.
_READ_AHEAD = 4
# All that is in hand waits for a definition that a peer of this process compiles: it is looked at this often.
_COMPILING_SECONDS = 0.05
# At most so many batches are taken before an orchestrator recovers and starts its loops.
_MOST_WAITING_BATCHES = 1000


class _Conditional(NamedTuple):
    """A result that an expression of its node judges: the end of a poll, or whether a failure retries."""

    result: Result
    event: Event
    plan: Plan


async def collect(context: Context, *, limit: int, wait_seconds: float) -> None:
    """Read a batch of messages and take it all the way."""
    await take_or_keep(await next_batch(context, limit=limit, wait_seconds=wait_seconds), context)


async def next_batch(context: Context, *, limit: int, wait_seconds: float) -> Sequence[MessageDelivery]:
    """Return a batch that could not be finished before, or else the next batch of the fair queue."""
    if context.unfinished:
        return context.unfinished.pop()
    queue, name = context.fair_queue, context.name
    # One at a time: nobody waits for messages while there are some in hand.
    async with context.reading:
        in_hand = len(queue)
        room = _READ_AHEAD * limit - in_hand
        if in_hand:
            wait_seconds = 0 if queue.is_ready else min(wait_seconds, _COMPILING_SECONDS)
        if room > 0:
            queue.put(await context.ports.transport.read(name, limit=room, wait_seconds=wait_seconds))
        elif wait_seconds > 0:
            await context.ports.clock.sleep(wait_seconds)
        return queue.take(limit)


async def take_or_keep(deliveries: Sequence[MessageDelivery], context: Context) -> None:
    """Take messages all the way, or keep them for later where a port is away."""
    try:
        await take(deliveries, context)
    except (JournalError, StoreError):
        # The deliveries are still ours, and nobody else claims them before they are stale.
        context.unfinished.append(deliveries)
        raise
    finally:
        context.fair_queue.done(deliveries)


async def take(deliveries: Sequence[MessageDelivery], context: Context) -> None:
    """Take messages all the way. Acknowledged last: until then a crash means that they come again."""
    if not deliveries:
        return
    woken: dict[str, None] = {}
    results: list[Result] = []
    if context.ports.incarnation is not None:
        whole = await without_orphans(deliveries, context.ports)
    else:
        whole = deliveries
    for delivery in whole:
        if isinstance(delivery.message, Wake):
            woken[delivery.message.execution_id] = None
        else:
            results.append(delivery.message)
    events, conditional = await _judge(results, context)
    await advance(events, context)
    put_back = await _advance_conditional(conditional, context) if conditional else ()
    if woken:
        await advance_free(list(woken), context)
        # Perhaps of a new execution, with a deadline that the sweep does not know of.
        context.ports.timers_changed()
    left = {id(result) for result in put_back}
    done = [delivery.id for delivery in deliveries if id(delivery.message) not in left]
    await context.ports.transport.ack(context.name, done)
    if left:
        context.fair_queue.put(delivery for delivery in deliveries if id(delivery.message) in left)


async def without_orphans(deliveries: Sequence[MessageDelivery], ports: Ports) -> Sequence[MessageDelivery]:
    """Leave out the results of attempts that rest on commits which the database has lost.

    A result of an attempt that was started on an earlier incarnation of the database counts only if the
    attempt was orphaned and then adopted, and no parent of its node has finished since the attempt started:
    then the journal has all that the attempt was started on. A parent that has finished since did so for the
    second time, because the database has lost its first end. A rebuild after the second end orphans the node
    under the number of the attempt that saw the first.
    """
    began_at = ports.incarnation_began()
    old: dict[str, list[Result]] = {}
    for delivery in deliveries:
        message = delivery.message
        if isinstance(message, Result) and message.started_at < began_at:
            old.setdefault(message.execution_id, []).append(message)
    if not old:
        return deliveries
    orphans: set[int] = set()
    for execution_id, results in old.items():
        names = [result.node_id for result in results]
        status = await ports.store.inspect(execution_id, names=names)
        if status is None:
            await rebuild(execution_id, ports)
            status = await ports.store.inspect(execution_id, names=names)
        nodes = {} if status is None else status.nodes
        blobs = await ports.journal.blobs([result.blob for result in results if result.blob is not None])
        freed_at = await _freed_at(results, ports)
        orphans |= {
            id(result)
            for result in results
            if not _is_adopted(result, nodes.get(result.node_id))
            or freed_at.get(result.node_id, 0) > result.started_at
            or (result.blob is not None and result.blob not in blobs)
        }
    return [delivery for delivery in deliveries if id(delivery.message) not in orphans]


async def has_seen_lost_outcome(attempt: Expired, ports: Ports) -> bool:
    """True if an attempt started on the end of a parent that the database has lost, and recorded again."""
    if attempt.started_at is None or attempt.started_at >= ports.incarnation_began():
        return False
    freed_at = await _freed_at([attempt], ports)
    return freed_at.get(attempt.node_id, 0) > attempt.started_at


async def _freed_at(results: Sequence[Result | Expired], ports: Ports) -> Mapping[str, int]:
    """Return for each node of these results, of one execution, when the last of its parents finished."""
    plan = await ports.journal.plan(results[0].digest)
    if plan is None:
        return {}
    parents = {
        result.node_id: plan.graph.parents[result.node_id]
        for result in results
        if result.node_id in plan.graph.parents
    }
    names = {parent for of_node in parents.values() for parent in of_node}
    rows = await ports.journal.nodes(results[0].execution_id, names=names)
    ends = {name: row.finished_at or 0 for name, row in rows.items()}
    return {
        node_id: max((ends.get(parent, 0) for parent in of_node), default=0)
        for node_id, of_node in parents.items()
    }


def _is_adopted(result: Result, node: NodeStatus | None) -> bool:
    """True if the attempt was orphaned on this incarnation: its parents are settled in the journal."""
    if node is None or node.attempt != result.attempt:
        return False
    if node.phase == "orphaned":
        return True
    start = (node.worker, node.started_at)
    return node.phase == "running" and start == (result.worker, result.started_at)


async def take_waiting(context: Context, *, limit: int) -> None:
    """Take the messages all the way that were in the stream before this call.

    Peers and workers may never let the stream run empty, so this ends with the first batch whose results are
    all younger than the call. A wake has no time: a stream of wakes alone is followed for a bounded while.
    """
    began_at = context.ports.clock.now()
    for _ in range(_MOST_WAITING_BATCHES):
        deliveries = await next_batch(context, limit=limit, wait_seconds=0)
        if not deliveries:
            return
        await take_or_keep(deliveries, context)
        messages = [delivery.message for delivery in deliveries]
        if not any(isinstance(message, Wake) or message.finished_at <= began_at for message in messages):
            return


async def drain(context: Context, *, limit: int) -> None:
    """Record every result that is still there, and start nothing: the next process goes on from there.

    For an engine of its own that closes: nobody else reads its messages, so what was read and not
    acknowledged is its own too.
    """
    transport, name = context.ports.transport, context.name
    while True:
        claimed, _ = await transport.claim(name, idle_seconds=0, limit=limit)
        deliveries = [*claimed, *await transport.read(name, limit=limit, wait_seconds=0)]
        if not deliveries:
            return
        results = [delivery.message for delivery in deliveries if not isinstance(delivery.message, Wake)]
        events, conditional = await _judge(results, context)
        events += [await _judge_conditional(one, context, Pace()) for one in conditional]
        await record(events, context)
        await transport.ack(name, [delivery.id for delivery in deliveries])


async def finish(context: Context, *, limit: int) -> None:
    """Take all the way what this orchestrator has read and not acknowledged: it is about to leave."""
    transport, name = context.ports.transport, context.name
    context.unfinished.clear()
    context.fair_queue.clear()
    while deliveries := await transport.unacknowledged(name, limit=limit):
        await take(deliveries, context)


def _quarantine(result: Result) -> None:
    """Drop a message that names what does not exist, with a line in the log."""
    fields = {"execution": result.execution_id, "node": result.node_id, "attempt": result.attempt}
    log.warning("result.quarantined", extra=fields)


def _is_signed(result: Result, sign: Signer) -> bool:
    """True if a result answers a task that was sent: anybody might write into a stream."""
    expected = sign(result.execution_id, result.generation, result.node_id, result.attempt)
    return verify(result.signature, expected)


async def _judge(results: Sequence[Result], context: Context) -> tuple[list[Event], list[_Conditional]]:
    """Return the events of results, and those that an expression is to judge further.

    A result that names nothing that exists is put aside.
    """
    ports, cascades = context.ports, context.cascades
    plans: dict[str, Plan | None] = {}
    events: list[Event] = []
    conditional: list[_Conditional] = []
    for result in results:
        if result.digest not in plans:
            plans[result.digest] = await ports.journal.plan(result.digest)
        plan = plans[result.digest]
        if (
            plan is None
            or result.node_id not in plan.nodes
            or (ports.sign is not None and not _is_signed(result, ports.sign))
        ):
            _quarantine(result)
            continue
        event = judge(
            result,
            plan,
            draw=ports.draw(),
            max_deliveries=ports.max_deliveries,
            max_retry_after_seconds=ports.max_retry_after_seconds,
            settled=cascades.known,
        )
        is_look = isinstance(event, NodeCompleted) and plan.nodes[result.node_id].poll is not None
        if is_look or (isinstance(event, AttemptFailed) and result.node_id in plan.retries):
            conditional.append(_Conditional(result, event, plan))
            continue
        if not isinstance(event, NodeCompleted):
            event = await with_running(event, plan, ports)
        events.append(event)
    return events, conditional


async def _advance_conditional(conditional: Sequence[_Conditional], context: Context) -> Sequence[Result]:
    """Take results all the way that an expression judges; return those behind one that took long.

    These come again: the other results of the batch are recorded by then, and those that wait for a collector
    are not to wait for all long expressions of one execution.
    """
    context.payloads.allowance.steps = STEPS_ON_LOOP
    pace = Pace()
    events: list[Event] = []
    for one in conditional:
        events.append(await _judge_conditional(one, context, pace))
        if pace.is_long:
            break
    if events:
        await advance(events, context)
    return [one.result for one in conditional[len(events) :]]


async def _judge_conditional(one: _Conditional, context: Context, pace: Pace) -> Event:
    event, plan = one.event, one.plan
    if isinstance(event, NodeCompleted):
        poll = plan.nodes[event.node_id].poll
        assert poll is not None
        event = await judge_look(event, poll, plan, context, pace)
    elif isinstance(event, AttemptFailed):
        event = await judge_retry(event, one.result, plan.retries[event.node_id], plan, context, pace)
    return event if isinstance(event, NodeCompleted) else await with_running(event, plan, context.ports)
