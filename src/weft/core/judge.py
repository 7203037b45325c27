"""Judges a result or a lost attempt: the node is done, gets another attempt, or has failed for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import AttemptFailed, AttemptLost, Event, NodeCompleted, NodeFailed
from weft.core.rows import shown_error
from weft.core.skip_propagation import SettledNodes, no_nodes, skips_behind_failure
from weft.core.time import MICROSECONDS
from weft.definition.model import Delivery

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.attempt import EndedAttempt
    from weft.core.task import Result
    from weft.definition.model import RetryPolicy
    from weft.definition.plan import Plan

# The code of an error that a service's status made: only a service's answer has a ``Retry-After``.
SERVICE_STATUS = "http_status"
# What a service may ask for at most, unless the settings or the node's policy say more (MAX_RETRY_AFTER).
DEFAULT_MAX_RETRY_AFTER_SECONDS = 3600.0


def judge(
    result: Result,
    plan: Plan,
    *,
    draw: float,
    max_deliveries: int,
    max_retry_after_seconds: float = DEFAULT_MAX_RETRY_AFTER_SECONDS,
    settled: SettledNodes = no_nodes,
) -> Event:
    """Make an event of a result. ``settled``: nodes known to be settled, where a cascade of skips ends."""
    if result.lost:
        return judge_loss(
            result,
            plan,
            losses=result.losses,
            started=result.charged,
            issued=True,
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
        asked = allowed_retry_after(
            result.error, node.retry, result.retry_after_seconds, most_seconds=max_retry_after_seconds
        )
        delay = delay_seconds(node.retry, failures=failures, draw=draw, retry_after_seconds=asked)
        return AttemptFailed.of(result, error=result.error, delay_seconds=delay)
    return final_failure(result, plan, result.error, settled=settled)


def retry_words(result: Result) -> dict[str, Any]:
    """Return what ``retry.when`` sees of a failure beside the execution: ``plan.RETRY_WORDS``."""
    return {
        "error": shown_error(result.error),
        "attempt": result.failures + 1,
        "attempt_seconds": max(0, result.finished_at - result.started_at) / MICROSECONDS,
    }


def unstorable(event: NodeCompleted | AttemptFailed | NodeFailed, plan: Plan, *, reason: str) -> NodeFailed:
    """Make of a result that the journal can never store the failure of its node."""
    error = {
        "code": "output_not_json",
        "message": f"the result cannot be stored: {reason}",
        "retryable": False,
    }
    return final_failure(event, plan, error)


def judge_loss(
    attempt: EndedAttempt,
    plan: Plan,
    *,
    losses: int,
    started: bool,
    issued: bool,
    max_deliveries: int,
    settled: SettledNodes = no_nodes,
) -> Event:
    """Make an event of an attempt that ended without a result.

    ``started``: a worker is known to have started it, so it counts as a delivery. ``issued``: an
    ``at_most_once`` attempt was marked as handed out, so it may have run and must not run again. A database
    that loses commits may lose that mark, and the attempt has started all the same.
    """
    at_most_once = plan.nodes[attempt.node_id].delivery is Delivery.AT_MOST_ONCE
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
        return AttemptLost.of(attempt, counted=started)
    return final_failure(attempt, plan, error, settled=settled, lost=True)


def final_failure(
    attempt: EndedAttempt,
    plan: Plan,
    error: dict[str, Any],
    *,
    settled: SettledNodes = no_nodes,
    lost: bool = False,
) -> NodeFailed:
    """Return the failure of the attempt's node, with the nodes behind it that can no longer run."""
    node_id = attempt.node_id
    known = settled(attempt.execution_id, attempt.generation)
    skips = skips_behind_failure(plan, node_id, cause=node_id, settled=known)
    return NodeFailed.of(attempt, error=error, skips=skips, lost=lost)


def allowed_retry_after(
    error: Mapping[str, Any], policy: RetryPolicy, asked: float | None, *, most_seconds: float
) -> float | None:
    """Return the wait that was asked for, cut to the ceiling where a service asked for it.

    A service outside could hold a node for a year. What a user's own function asks for by ``weft.RetryAfter``
    is the word of whoever wrote the workflow, and stays.
    """
    if asked is None or error.get("code") != SERVICE_STATUS:
        return asked
    return min(asked, max(most_seconds, policy.max_delay_seconds))


def delay_seconds(
    policy: RetryPolicy, *, failures: int, draw: float, retry_after_seconds: float | None = None
) -> float:
    """Return the wait after the ``failures``-th failure of a generation; ``draw`` is from [0, 1).

    The jitter is added to the capped delay: under the cap, all that wait at it would come back together.
    """
    backoff = policy.base_delay_seconds
    if backoff > 0:
        try:
            backoff *= policy.multiplier ** (failures - 1)
        except OverflowError:
            backoff = policy.max_delay_seconds
    backoff = min(policy.max_delay_seconds, backoff) * (1 + draw * policy.jitter)
    return max(backoff, retry_after_seconds or 0.0)
