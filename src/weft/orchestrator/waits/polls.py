"""Judges the looks of polls: a look that shows what was waited for completes its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.decide import ExecutionValues
from weft.core.event import AttemptPolled, Event, NodeFailed
from weft.core.payload import decode
from weft.core.rows import NodeRow, payload_in, refuse_reading
from weft.core.skip_propagation import skips_behind_failure
from weft.core.time import micros
from weft.definition.plan import POLL_OUTPUT
from weft.errors import EvaluationError, JournalError, PayloadError
from weft.expressions.scope import NodeValue, Scope

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.event import NodeCompleted
    from weft.definition.model import Poll
    from weft.definition.plan import Plan
    from weft.orchestrator.context import Context


async def judge_look(event: NodeCompleted, poll: Poll, plan: Plan, context: Context) -> Event:
    """Return the event of a look: the node is done, looks again, or fails because its time is over."""
    journal = context.ports.journal
    rows = await journal.nodes(event.execution_id, names={event.node_id, *plan.references[event.node_id]})
    own = rows.get(event.node_id) or NodeRow(node_id=event.node_id)
    try:
        is_done = await _is_done(event, plan, rows, context)
    except (EvaluationError, PayloadError) as problem:
        text = f"poll.until {poll.until!r}: {problem}"
        return _failed(event, plan, context, "condition_error", text)
    if is_done:
        return event
    ended_at = event.finished_at or context.ports.clock.now()
    since = own.polled.since if own.polled is not None else event.queued_at or ended_at
    timeout = poll.timeout_seconds
    if timeout is not None and ended_at + micros(poll.every_seconds) > since + micros(timeout):
        text = f"poll.until {poll.until!r} did not hold within {timeout:g} s"
        return _failed(event, plan, context, "expired", text)
    return AttemptPolled.of(event, delay_seconds=poll.every_seconds)


async def _is_done(event: NodeCompleted, plan: Plan, rows: Mapping[str, NodeRow], context: Context) -> bool:
    """Evaluate the end of a poll on the output of a look, and on all that a condition of its node sees."""
    payloads, journal = context.payloads, context.ports.journal
    execution = await journal.execution(event.execution_id)
    if execution is None:
        raise JournalError(f"execution {event.execution_id} is gone since its node has looked")
    seen = {name: rows[name] for name in plan.references[event.node_id] if name in rows}
    max_bytes = context.ports.bounds.max_payload_bytes
    refuse_reading(seen.values(), max_bytes=max_bytes, payload_of=None)
    names = [row.blob for row in seen.values() if row.blob is not None]
    blobs = await payloads.fetch([*names, event.blob] if event.blob is not None else names, journal)
    refuse_reading(seen.values(), max_bytes=max_bytes, payload_of=lambda row: payload_in(row, blobs))
    output = event.output if event.blob is None else blobs[event.blob]
    assert output is not None
    nodes = {name: payloads.value_of(row, blobs) for name, row in seen.items() if row.is_settled}
    nodes[POLL_OUTPUT] = NodeValue("COMPLETED", decode(output), None, None)
    scope = Scope(execution.input, ExecutionValues(execution), nodes, payloads.decode)
    return bool(plan.untils[event.node_id].evaluate(scope))


def _failed(event: NodeCompleted, plan: Plan, context: Context, code: str, message: str) -> NodeFailed:
    known = context.cascades.known(event.execution_id, event.generation)
    skips = skips_behind_failure(plan, event.node_id, cause=event.node_id, settled=known)
    error = {"code": code, "message": message, "retryable": False}
    return NodeFailed.of(event, error=error, skips=skips)
