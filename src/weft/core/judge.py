"""What a result, or the lack of one, means for its node: done, again, or failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.consequence import SettledNodes, no_nodes, skips_behind_failure
from weft.core.event import AttemptFailed, AttemptLost, Event, NodeCompleted, NodeFailed
from weft.core.retry import delay_seconds
from weft.definition.model import Delivery

if TYPE_CHECKING:
    from weft.core.task import Result
    from weft.definition.plan import Plan


def judge(
    result: Result,
    plan: Plan,
    *,
    draw: float,
    max_deliveries: int,
    settled: SettledNodes = no_nodes,
) -> Event:
    """Make an event of a result. ``settled``: nodes known to be settled, where a cascade of skips ends."""
    if result.lost:
        return judge_loss(
            plan,
            execution_id=result.execution_id,
            generation=result.generation,
            node_id=result.node_id,
            attempt=result.attempt,
            losses=result.losses,
            started=result.charged,
            issued=True,
            worker=result.worker,
            queued_at=result.queued_at,
            started_at=result.started_at,
            finished_at=result.finished_at,
            max_deliveries=max_deliveries,
            settled=settled,
        )
    if result.error is None:
        size = len(result.output) if result.output is not None else 0
        return NodeCompleted(
            execution_id=result.execution_id,
            generation=result.generation,
            node_id=result.node_id,
            attempt=result.attempt,
            worker=result.worker,
            queued_at=result.queued_at,
            started_at=result.started_at,
            finished_at=result.finished_at,
            output=result.output,
            blob=result.blob,
            output_bytes=result.output_bytes or size,
            cache_key=result.cache_key,
        )
    node = plan.nodes[result.node_id]
    failures = result.failures + 1
    if (
        result.error["retryable"]
        and failures <= node.max_retries
        and node.delivery is not Delivery.AT_MOST_ONCE
    ):
        delay = delay_seconds(
            node.retry, failures=failures, draw=draw, retry_after_seconds=result.retry_after_seconds
        )
        return AttemptFailed(
            execution_id=result.execution_id,
            generation=result.generation,
            node_id=result.node_id,
            attempt=result.attempt,
            worker=result.worker,
            queued_at=result.queued_at,
            started_at=result.started_at,
            finished_at=result.finished_at,
            error=result.error,
            delay_seconds=delay,
        )
    return NodeFailed(
        execution_id=result.execution_id,
        generation=result.generation,
        node_id=result.node_id,
        attempt=result.attempt,
        worker=result.worker,
        queued_at=result.queued_at,
        started_at=result.started_at,
        finished_at=result.finished_at,
        error=result.error,
        skips=skips_behind_failure(
            plan,
            result.node_id,
            cause=result.node_id,
            settled=settled(result.execution_id, result.generation),
        ),
    )


def unstorable(event: NodeCompleted | AttemptFailed | NodeFailed, plan: Plan, *, reason: str) -> NodeFailed:
    """Make of a result that the journal can never store the failure of its node."""
    return NodeFailed(
        execution_id=event.execution_id,
        generation=event.generation,
        node_id=event.node_id,
        attempt=event.attempt,
        worker=event.worker,
        queued_at=event.queued_at,
        started_at=event.started_at,
        finished_at=event.finished_at,
        error={
            "code": "output_not_json",
            "message": f"the result cannot be stored: {reason}",
            "retryable": False,
        },
        skips=skips_behind_failure(plan, event.node_id, cause=event.node_id),
    )


def judge_loss(
    plan: Plan,
    *,
    execution_id: str,
    generation: int,
    node_id: str,
    attempt: int,
    losses: int,
    started: bool,
    issued: bool,
    worker: str | None,
    queued_at: int | None,
    started_at: int | None,
    finished_at: int | None,
    max_deliveries: int,
    settled: SettledNodes = no_nodes,
) -> Event:
    """Make an event of an attempt that ended without a result.

    ``started``: a worker is known to have started it, so it counts as a delivery. ``issued``: an
    ``at_most_once`` attempt was marked as handed out, so it may have run and must not run again. A database
    that loses commits may lose that mark, and the attempt has started all the same.
    """
    at_most_once = plan.nodes[node_id].delivery is Delivery.AT_MOST_ONCE
    error: dict[str, Any] | None = None
    if at_most_once and (issued or started):
        error = {
            "code": "lost",
            "message": "the attempt was lost and may have run; an at_most_once node does not run again",
            "retryable": False,
        }
    elif started and losses + 1 >= max_deliveries:
        error = {
            "code": "deliveries_exhausted",
            "message": f"{losses + 1} started attempts in a row were lost with their worker",
            "retryable": False,
        }
    if error is None:
        return AttemptLost(
            execution_id=execution_id,
            generation=generation,
            node_id=node_id,
            attempt=attempt,
            worker=worker,
            queued_at=queued_at,
            started_at=started_at,
            finished_at=finished_at,
            counted=started,
        )
    return NodeFailed(
        execution_id=execution_id,
        generation=generation,
        node_id=node_id,
        attempt=attempt,
        worker=worker,
        queued_at=queued_at,
        started_at=started_at,
        finished_at=finished_at,
        error=error,
        skips=skips_behind_failure(plan, node_id, cause=node_id, settled=settled(execution_id, generation)),
        lost=True,
    )
