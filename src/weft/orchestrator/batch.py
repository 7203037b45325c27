"""Many executions as one: made of a list of inputs, and cancelled together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.core.state import ExecutionState
from weft.journal.contract import ExecutionQuery
from weft.orchestrator.control import cancel_all
from weft.orchestrator.submit import make_submission, read_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow
    from weft.journal.contract import Submission
    from weft.orchestrator.submit import ResolvedDefinition, SubmitOptions
    from weft.ports import Ports

# One commit cancels so many executions, and about so many nodes: others wait for it.
_CANCELLED_AT_ONCE = 500
_NODES_AT_ONCE = 10_000

_NOT_TERMINAL = (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED)


def make_batch(
    batch_id: str, source: ResolvedDefinition, inputs: Sequence[Json], options: SubmitOptions, ports: Ports
) -> list[Submission]:
    """Make the submissions of a batch; raises InputError with pointers into the list of inputs.

    It waits for nothing, and takes a while for many inputs: call it in a thread.
    """
    payloads = read_inputs(inputs, source.plan, ports.bounds)
    return [make_submission(ports.new_id(), source, payload, options, batch=batch_id) for payload in payloads]


async def cancel_batch(batch_id: str, ports: Ports, *, namespace: str, actor: str | None = None) -> None:
    """Cancel every execution of a batch that is not terminal."""
    query = ExecutionQuery(batch=batch_id, states=_NOT_TERMINAL)
    before: tuple[int, str] | None = None
    while True:
        # The place in the list goes on, so one that a retry opens again meanwhile is not cancelled twice.
        rows = await ports.journal.executions(
            query, namespace=namespace, before=before, limit=_CANCELLED_AT_ONCE
        )
        for part in _parts(rows):
            await cancel_all(part, ports, actor=actor)
        if len(rows) < _CANCELLED_AT_ONCE:
            return
        before = (rows[-1].created_at, rows[-1].id)


def _parts(rows: Sequence[ExecutionRow]) -> Iterator[list[ExecutionRow]]:
    part: list[ExecutionRow] = []
    nodes = 0
    for row in rows:
        part.append(row)
        nodes += row.unsettled
        if nodes >= _NODES_AT_ONCE:
            yield part
            part, nodes = [], 0
    if part:
        yield part
