"""Step 6: events, all the way. Record, apply, decide, carry out, until nothing more follows.

What a crash between two steps leaves, and who repairs it:

========================  ===============================  ==========================================
a crash after             leaves                           repaired by
========================  ===============================  ==========================================
record                    children not freed               redelivery: known, applied again; the rebuild
apply                     nodes free, not queued           redelivery returns all free nodes; the sweep
issue (once, cache)       a node free and marked issued    the same: issued again under the same epoch
parking (sleep, wait)     a node free, started on record   the same: known, and parked with its time
the end of a wait         the wait over, the store untold  the sweep finds the end and tells the store
the end of a child        its parent untold                redelivery; the sweep of children
queue                     nothing                          (moving and sending are one step)
queue, split from send    a node queued without a task     the sweep sends it again, same attempt
========================  ===============================  ==========================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import (
    AttemptFailed,
    AttemptLost,
    AttemptParked,
    AttemptPolled,
    Event,
    ExecutionStarted,
    NodeCompleted,
    NodeFailed,
)
from weft.core.judge import unstorable
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.snapshot import RowUpdate
from weft.errors import UnstorableError
from weft.feed.contract import node_parked
from weft.orchestrator.children.follow import follow
from weft.orchestrator.context import check_step
from weft.orchestrator.dispatch import dispatch, send
from weft.orchestrator.recover import rebuild
from weft.orchestrator.speculative_dispatch import predict_ready
from weft.orchestrator.triggers.lanes import release_behind
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.decide import FreeNode
    from weft.core.rows import ExecutionRow
    from weft.orchestrator.context import Context
    from weft.ports import Ports

# How an attempt may end, as a worker or a sweep tells it.
_ENDS = (NodeCompleted, AttemptFailed, AttemptPolled, NodeFailed, AttemptLost)
_ACCEPTED = Verdict.ACCEPTED


async def advance(events: Sequence[Event], context: Context) -> None:
    """Take a batch of events all the way."""
    while events:
        # Record first: once applied, any orchestrator may free a dependent, and nothing may start on
        # a result that a crash could take back.
        recorded_events = await record(events, context)
        # Known events are applied too: a crash after their commit must not leave the children to the sweep.
        free = await apply(recorded_events, context)
        ends = await follow(recorded_events, context.ports) if any(map(_has_others, recorded_events)) else ()
        # Skips and failures decided here are events of their own, and go through record a level at a time.
        events = [*await dispatch(free, context), *ends]


def _has_others(recorded_event: RecordedEvent) -> bool:
    """True if the execution of an event is a child, or may have children."""
    execution, plan = recorded_event.execution, recorded_event.plan
    return plan is not None and execution is not None and bool(plan.calls or execution.parent is not None)


async def advance_free(execution_ids: Sequence[str], context: Context) -> None:
    """Carry on executions that have free nodes and no message to say so."""
    free: list[FreeNode] = []
    for execution_id, applied in zip(
        execution_ids, await context.ports.store.free(execution_ids), strict=True
    ):
        if applied.answer is Answer.UNKNOWN:
            await rebuild(execution_id, context.ports)
        free.extend(applied.free)
    await advance(await dispatch(free, context), context)


async def record(events: Sequence[Event], context: Context) -> Sequence[RecordedEvent]:
    """Commit a batch, and publish what it recorded."""
    ports = context.ports
    check_step(ports)
    if ports.committed is None:
        recorded_events = await _commit(events, ports)
    else:
        began_at = ports.clock.now()
        recorded_events = await _commit(events, ports)
        ports.committed(len(events), ports.clock.now() - began_at)
    ports.announce(recorded_events)
    if context.notifier is not None:
        context.notifier.look(recorded_events)
    for recorded_event in recorded_events:
        # Most events are completions: they make no timer and skip nothing.
        if type(recorded_event.event) is not NodeCompleted:
            context.cascades.learn(recorded_event)
            if context.wait_timer.learn(recorded_event, ports.clock.now()):
                ports.timers_changed()
            if _set_a_timer(recorded_event):
                ports.timers_changed()
                _tell_of_start(recorded_event, ports)
    return recorded_events


def _tell_of_start(recorded_event: RecordedEvent, ports: Ports) -> None:
    """Publish that an attempt without a worker has started, as a worker does of its attempts."""
    execution, feed = recorded_event.execution, ports.feed
    if not isinstance(recorded_event.event, AttemptParked) or recorded_event.verdict is not _ACCEPTED:
        return
    assert execution is not None
    if feed is not None and feed.has_listeners and feed.has_subscriber(execution.id):
        (row,) = recorded_event.rows
        feed.publish([node_parked(execution, row)], namespace=execution.namespace)


async def _commit(events: Sequence[Event], ports: Ports) -> Sequence[RecordedEvent]:
    """Record a batch. One result that can never be stored fails its own node, and never the batch."""
    try:
        return await ports.journal.record(events)
    except UnstorableError as refusal:
        if len(events) > 1:
            middle = len(events) // 2
            return [*await _commit(events[:middle], ports), *await _commit(events[middle:], ports)]
        (event,) = events
        execution = await ports.journal.execution(event.execution_id)
        plan = None if execution is None else await ports.journal.plan(execution.digest)
        if plan is None or not isinstance(event, NodeCompleted | AttemptFailed | NodeFailed):
            raise
        return await ports.journal.record([unstorable(event, plan, reason=str(refusal))])


def _set_a_timer(recorded_event: RecordedEvent) -> bool:
    """True if an event made a timer: for another attempt, for a parked one, or for a deadline."""
    event, execution = recorded_event.event, recorded_event.execution
    return isinstance(event, AttemptFailed | AttemptPolled | AttemptParked) or (
        isinstance(event, ExecutionStarted) and execution is not None and execution.deadline_at is not None
    )


async def apply(recorded_events: Sequence[RecordedEvent], context: Context) -> Sequence[FreeNode]:
    """Merge the journal's rows into the store; return the free nodes of the executions concerned.

    Tasks that are sure to follow on the rows are sent with them.
    """
    ports = context.ports
    row_updates, over = _merged(recorded_events)
    ahead = predict_ready(recorded_events, context) if ports.dispatches_speculatively else []
    applications = await ports.store.apply(row_updates, ahead) if row_updates else ()
    free: list[FreeNode] = []
    queued: set[tuple[str, str]] = set()
    unknown: list[ExecutionRow] = []
    for row_update, applied in zip(row_updates, applications, strict=True):
        if applied.answer is Answer.UNKNOWN:
            unknown.append(row_update.execution)
        elif applied.answer is Answer.REFUSED:
            # A peer has closed the execution, or the store has a later epoch of it. The leases of attempts
            # that ended are dropped: their numbers are not given again.
            over += [
                (row_update.execution.id, row.node_id, row.attempt)
                for row in row_update.rows
                if row.answered == row.attempt
            ]
        free.extend(applied.free)
        for node_id in applied.queued:
            queued.add((row_update.execution.id, node_id))
    if queued:
        await send([task for task in ahead if (task.execution_id, task.node_id) in queued], ports)
    if over:
        await ports.store.end_leases(over)
    in_lanes = [row_update.execution for row_update in row_updates if row_update.execution.lanes]
    if in_lanes:
        await release_behind(in_lanes, ports)
    for row in unknown:
        # The snapshot of the rebuild is read after the commit above, so it holds what was to be applied. So
        # does that of a peer who was quicker: once more would orphan what the peer has freed.
        await rebuild(row.id, context.ports, seen_epoch=row.epoch)
    return free


def _merged(recorded_events: Sequence[RecordedEvent]) -> tuple[list[RowUpdate], list[tuple[str, str, int]]]:
    """Return what was recorded, by execution, and the attempts whose leases no row ends.

    The latter started and ended, and the journal does not count their results.
    """
    merged: dict[str, RowUpdate] = {}
    uncounted: list[tuple[str, str, int]] = []
    for recorded_event in recorded_events:
        execution, plan, event = recorded_event.execution, recorded_event.plan, recorded_event.event
        if (
            recorded_event.verdict is not _ACCEPTED
            and isinstance(event, _ENDS)
            and event.started_at is not None
        ):
            uncounted.append((event.execution_id, event.node_id, event.attempt))
        if execution is None or plan is None or recorded_event.verdict is Verdict.UNKNOWN:
            continue
        if event.generation != execution.generation:
            # Nothing of it is in the row. And a retry that has committed may not be in the store yet: taken
            # for lost there, it would be rebuilt, and all of it be orphaned for a lease.
            continue
        known = merged.get(execution.id)
        if known is None:
            merged[execution.id] = RowUpdate(execution, plan, recorded_event.rows)
        else:
            # A batch that was split is several commits; the row of the last one says if the execution ended.
            row = execution if execution.seq > known.execution.seq else known.execution
            rows = known.rows if isinstance(known.rows, list) else list(known.rows)
            rows.extend(recorded_event.rows)
            merged[execution.id] = RowUpdate(row, plan, rows)
    return list(merged.values()), uncounted
