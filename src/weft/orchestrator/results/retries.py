"""Decides by ``retry.when`` whether a failure that would retry does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.judge import final_failure, retry_words
from weft.core.rows import shown_error
from weft.errors import EvaluationError, PayloadError
from weft.orchestrator.results.evaluation import evaluate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.event import AttemptFailed, NodeFailed
    from weft.core.rows import NodeRow
    from weft.core.task import Result
    from weft.definition.plan import Plan
    from weft.expressions.expression import Expression
    from weft.orchestrator.context import Context
    from weft.orchestrator.results.evaluation import Pace


async def judge_retry(
    event: AttemptFailed, result: Result, when: Expression, plan: Plan, context: Context, pace: Pace
) -> AttemptFailed | NodeFailed:
    """Return the event as it is, or the failure of the node where the expression does not hold.

    An expression that cannot be evaluated does not hold; the error of the node says why.
    """
    error: dict[str, Any] = event.error
    rows: Mapping[str, NodeRow] = {}
    if when.nodes:
        rows = await context.ports.journal.nodes(event.execution_id, names=when.nodes)
    try:
        words = retry_words(result)
        if await evaluate(when, event, words=words, payloads={}, rows=rows, context=context, pace=pace):
            return event
    except (EvaluationError, PayloadError) as problem:
        shown = shown_error(error)
        assert shown is not None
        error = {**shown, "details": {**shown["details"], "retry_when": f"{when.source!r}: {problem}"}}
    return final_failure(event, plan, error, settled=context.cascades.known)
