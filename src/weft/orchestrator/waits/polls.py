"""Judges polls: a look whose output meets the condition ``until`` completes its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.event import AttemptPolled, Event, NodeFailed
from weft.core.judge import final_failure
from weft.core.rows import NodeRow
from weft.core.time import micros
from weft.errors import EvaluationError, PayloadError
from weft.orchestrator.results.evaluation import evaluate

if TYPE_CHECKING:
    from weft.core.event import NodeCompleted
    from weft.definition.model import Poll
    from weft.definition.plan import Plan
    from weft.orchestrator.context import Context
    from weft.orchestrator.results.evaluation import Pace


async def judge_look(event: NodeCompleted, poll: Poll, plan: Plan, context: Context, pace: Pace) -> Event:
    """Return the event of a look: the node is done, looks again, or fails because its time is over."""
    until = plan.untils[event.node_id]
    rows = await context.ports.journal.nodes(event.execution_id, names={event.node_id, *until.nodes})
    own = rows.get(event.node_id) or NodeRow(node_id=event.node_id)
    output = event.output
    try:
        if event.blob is not None:
            output = (await context.payloads.fetch([event.blob], context.ports.journal))[event.blob]
        assert output is not None
        is_done = await evaluate(
            until, event, words={}, payloads={"output": output}, rows=rows, context=context, pace=pace
        )
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


def _failed(event: NodeCompleted, plan: Plan, context: Context, code: str, message: str) -> NodeFailed:
    error = {"code": code, "message": message, "retryable": False}
    return final_failure(event, plan, error, settled=context.cascades.known)
