"""Ends the waits whose time has come, in every orchestrator: the fence lets each end once.

The journal alone knows when waits are due: no timer of theirs is in the store, so nothing has to be rebuilt
for the months in which an execution waits. An orchestrator asks the journal when the next wait that it knows
of is due, and with every sweep, which finds the waits that its peers have recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import DeadlinePassed, WaitDue
from weft.core.skip_propagation import skips_behind_failure
from weft.definition.waits import WaitKind
from weft.journal.contract import EndedWait
from weft.orchestrator.advance import advance
from weft.orchestrator.dispatch import with_running

if TYPE_CHECKING:
    from weft.core.event import Event
    from weft.journal.contract import DueWait
    from weft.orchestrator.context import Context

# Ten thousand waits may be due at once; a commit is to stay short.
AT_ONCE = 256


async def end_due_waits(context: Context) -> int | None:
    """Record the end of waits whose time has come; return when to look again."""
    ports, timer = context.ports, context.wait_timer
    now = ports.clock.now()
    if not timer.is_due(now, sweep_seconds=ports.sweep_seconds):
        return timer.next_at
    found = await ports.journal.due_waits(limit=AT_ONCE)
    if found.deadlines:
        # No attempt is in hand of what has left the hot state.
        late = [
            DeadlinePassed(execution_id=id_, generation=generation, running={})
            for id_, generation in found.deadlines
        ]
        await advance(late, context)
    if found.due:
        await advance([await _ended(one, context) for one in found.due], context)
        # The store was told. Where a process dies before this, the sweep tells the store.
        await ports.journal.forget_waits(
            [EndedWait(one.execution_id, one.generation, one.node_id) for one in found.due]
        )
    # Where those were not all, the next look is at once.
    are_all = max(len(found.due), len(found.deadlines)) < AT_ONCE
    next_in_seconds = found.next_in_seconds if are_all else 0.0
    timer.asked(now, next_in_seconds)
    return timer.next_at


async def _ended(due: DueWait, context: Context) -> Event:
    """Return the event that ends a wait; where it fails its node, with what can no longer run behind it."""
    event = WaitDue(due.execution_id, due.generation, due.node_id, due.attempt)
    plan = await context.ports.journal.plan(due.digest)
    if plan is None:
        return event
    rule = plan.waits.get(due.node_id)
    is_call = due.node_id in plan.calls
    if not is_call and (rule is None or rule.kind is WaitKind.TIMER or rule.has_default):
        return event
    known = context.cascades.known(due.execution_id, due.generation)
    skips = skips_behind_failure(plan, due.node_id, cause=due.node_id, settled=known)
    failing = WaitDue(due.execution_id, due.generation, due.node_id, due.attempt, skips=skips)
    return await with_running(failing, plan, context.ports)
