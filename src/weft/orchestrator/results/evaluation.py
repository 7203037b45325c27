"""Evaluates an expression about a result: the end of a poll, and whether a failure retries.

Results are judged in batches on the loop. What an expression needs beyond its own words is read from the
journal, and an expression that takes long, or reads much, is evaluated in a thread.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from weft.core.decide import ExecutionValues
from weft.core.rows import payload_in, refuse_reading, size_of
from weft.errors import JournalError
from weft.expressions.budget import LongEvaluationError
from weft.expressions.scope import Scope
from weft.orchestrator.context import DECIDED_ON_LOOP_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weft.core.attempt import EndedAttempt
    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.expressions.budget import Allowance
    from weft.expressions.expression import Expression
    from weft.orchestrator.context import Context


class Pace:
    """Whether an evaluation took long: then whoever waits for a collector comes first."""

    def __init__(self) -> None:
        self.is_long = False


async def evaluate(
    expression: Expression,
    attempt: EndedAttempt,
    *,
    words: Mapping[str, Json],
    payloads: Mapping[str, bytes],
    rows: Mapping[str, NodeRow],
    context: Context,
    pace: Pace,
) -> Any:
    """Return the value of an expression; raises EvaluationError or PayloadError.

    ``payloads``: words that are JSON still. ``rows``: at least those of the nodes that the expression names.
    """
    decoded, journal = context.payloads, context.ports.journal
    max_bytes = context.ports.bounds.max_payload_bytes
    seen = [rows[name] for name in expression.nodes if name in rows and rows[name].is_settled]
    refuse_reading(seen, max_bytes=max_bytes, payload_of=None)
    blobs = await decoded.fetch([row.blob for row in seen if row.blob is not None], journal)
    execution = await _execution(expression, attempt, context)

    def value(allowance: Allowance | None) -> Any:
        refuse_reading(seen, max_bytes=max_bytes, payload_of=lambda row: payload_in(row, blobs))
        scope = Scope(
            b"{}" if execution is None else execution.input,
            {} if execution is None else ExecutionValues(execution),
            {row.node_id: decoded.value_of(row, blobs) for row in seen},
            decoded.decode,
            allowance,
            {**words, **{name: decoded.decode(payload) for name, payload in payloads.items()}},
        )
        return expression.evaluate(scope)

    read = sum(map(size_of, seen)) + sum(map(len, payloads.values()))
    if read + (0 if execution is None else len(execution.input)) <= DECIDED_ON_LOOP_BYTES:
        try:
            return value(decoded.allowance)
        except LongEvaluationError:
            pass
    pace.is_long = True
    return await asyncio.to_thread(value, None)


async def _execution(expression: Expression, attempt: EndedAttempt, context: Context) -> ExecutionRow | None:
    """Return the execution where the expression names it, or its input: few do."""
    if not expression.reads_input and not expression.reads_execution:
        return None
    execution = await context.ports.journal.execution(attempt.execution_id)
    if execution is None:
        raise JournalError(f"execution {attempt.execution_id} is gone since its attempt has ended")
    return execution
