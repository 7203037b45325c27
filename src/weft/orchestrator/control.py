"""Cancel, pause, resume, retry: committed first, then told to the store, then announced.

Each is idempotent. If the announcement is lost, the sweep finds what the commit made true.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import CancelRequested, PauseRequested, ResumeRequested, RetryRequested
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.retry_plan import RetryPlan, plan_retry
from weft.core.rows import ExecutionRow, NodeRow
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.state import ExecutionState
from weft.core.task import Wake
from weft.errors import NotAllowedError, NotFoundError, Problem, RequestError, StoreError
from weft.journal.contract import ExecutionQuery, group_busy
from weft.orchestrator.children.follow import (
    end_descendants,
    pause_children,
    resume_children,
    tell_parents,
)
from weft.orchestrator.context import begin_step
from weft.orchestrator.dispatch import running_now
from weft.orchestrator.recover import observe_pause, rebuild
from weft.orchestrator.triggers.lanes import release_behind, release_groups, release_lane
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weft.definition.plan import Plan
    from weft.journal.contract import Claim, Journal
    from weft.ports import Ports

# One commit cancels so many executions, and about so many nodes: others wait for it.
_CANCELLED_AT_ONCE = 500
_NODES_AT_ONCE = 10_000

_RETRIED = (ExecutionState.FAILED, ExecutionState.CANCELLED)
_NOT_TERMINAL = (ExecutionState.PENDING, ExecutionState.RUNNING, ExecutionState.PAUSED)


async def cancel(execution_id: str, ports: Ports, *, actor: str | None = None) -> ExecutionRow:
    """Settle everything as cancelled. No attempt starts after this returns: a start asks the store.

    StoreError: the cancel is recorded, but workers could not be notified. A repeated call does no harm.
    """
    begin_step(ports)
    running = await running_now(execution_id, ports)
    request = CancelRequested(execution_id=execution_id, generation=0, running=running, actor=actor)
    recorded_event = await _record(request, ports)
    execution = _allowed(recorded_event, "cancelled")
    await _close(execution, recorded_event.plan, ports)
    await release_behind([execution], ports)
    if recorded_event.plan is not None and recorded_event.plan.calls:
        await end_descendants(execution.id, ports)
    await tell_parents([execution], ports)
    return execution


async def cancel_offline(execution_id: str, journal: Journal, *, actor: str | None = None) -> ExecutionRow:
    """Settle everything as cancelled in a journal that no engine has open: there is no store to tell."""
    (recorded_event,) = await journal.record(
        [CancelRequested(execution_id=execution_id, generation=0, running={}, actor=actor)]
    )
    return _allowed(recorded_event, "cancelled")


async def cancel_all(rows: Sequence[ExecutionRow], ports: Ports, *, actor: str | None = None) -> None:
    """Cancel executions in one commit; those that have ended meanwhile stay as they are."""
    begin_step(ports)
    requests = [
        CancelRequested(
            execution_id=row.id, generation=0, running=await running_now(row.id, ports), actor=actor
        )
        for row in rows
    ]
    recorded_events = await ports.journal.record(requests)
    ports.announce(recorded_events)
    for recorded_event in recorded_events:
        if recorded_event.execution is not None and recorded_event.execution.is_terminal:
            await _close(recorded_event.execution, recorded_event.plan, ports)
            if recorded_event.plan is not None and recorded_event.plan.calls:
                await end_descendants(recorded_event.execution.id, ports)
    ended = [one.execution for one in recorded_events if one.execution is not None]
    await release_behind(ended, ports)
    await tell_parents(ended, ports)


async def cancel_batch(batch_id: str, ports: Ports, *, namespace: str, actor: str | None = None) -> None:
    """Cancel every execution of a batch that is not terminal."""
    query = ExecutionQuery(batch=batch_id, states=_NOT_TERMINAL)
    before: tuple[int, str] | None = None
    while True:
        # The position in the list goes on, so one that a retry opens again meanwhile is not cancelled twice.
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


async def pause(execution_id: str, ports: Ports, *, actor: str | None = None) -> ExecutionRow:
    """Let no further attempt start; running ones finish and count."""
    begin_step(ports)
    request = PauseRequested(execution_id=execution_id, generation=0, actor=actor)
    recorded_event = await _record(request, ports)
    execution = _allowed(recorded_event, "paused")
    if await _tell(recorded_event, ports) is Answer.YES:
        await observe_pause(execution, ports)
    if recorded_event.plan is not None and recorded_event.plan.calls:
        await pause_children(execution.id, ports)
    return execution


async def resume(execution_id: str, ports: Ports, *, actor: str | None = None) -> ExecutionRow:
    """Let attempts start again."""
    begin_step(ports)
    request = ResumeRequested(execution_id=execution_id, generation=0, actor=actor)
    recorded_event = await _record(request, ports)
    execution = _allowed(recorded_event, "resumed")
    if execution.lanes and execution.started_at is None:
        # Its turn may have come, and it was passed over.
        for lane in execution.lanes:
            await release_lane(lane, ports, namespace=execution.namespace)
    await _tell(recorded_event, ports)
    await _wake(execution, ports)
    if recorded_event.plan is not None and recorded_event.plan.calls:
        await resume_children(execution.id, ports)
    return execution


async def retry(
    execution_id: str,
    ports: Ports,
    *,
    nodes: tuple[str, ...] = (),
    actor: str | None = None,
    claim: Claim | None = None,
) -> ExecutionRow:
    """Open the next generation of a failed or cancelled execution."""
    _refuse_child((await _known_nodes(execution_id, nodes, ports))[0])
    try:
        incarnation_id: str | None = await ports.store.incarnation_id()
    except StoreError:
        # The commit alone counts, as with a submit: the sweep tells the store of it.
        incarnation_id = None
    request = RetryRequested(execution_id=execution_id, generation=0, nodes=nodes, actor=actor)
    recorded_event = await _record(request, ports, claim=claim)
    if recorded_event.verdict is Verdict.REFUSED and recorded_event.execution is not None:
        refused, plan = recorded_event.execution, recorded_event.plan
        if refused.state in _RETRIED and plan is not None and plan.definition.concurrency is not None:
            raise group_busy(refused.group_name or "", plan.definition.concurrency.limit)
    execution = _allowed(recorded_event, "retried")
    assert recorded_event.plan is not None
    if execution.started_at is None:
        # It waits for its turn in its group.
        await release_groups([execution], ports)
        return await ports.journal.execution(execution.id) or execution
    if incarnation_id is not None:
        rows = await ports.journal.nodes(execution_id)
        # Everything of the old generation is stale from the commit on, so what is ready is free at once.
        snapshot = Snapshot(execution, recorded_event.plan, list(rows.values()))
        with suppress(StoreError):
            await ports.store.install([snapshot], incarnation_id=incarnation_id, fresh=True)
            await _wake(execution, ports)
    return execution


async def retry_plan(
    execution_id: str, ports: Ports, *, nodes: tuple[str, ...] = ()
) -> tuple[int, RetryPlan]:
    """Return the generation that a retry would open, with what it would run and keep; change nothing."""
    execution, plan = await _known_nodes(execution_id, nodes, ports)
    _refuse_child(execution)
    if execution.state not in _RETRIED:
        raise _not_allowed(execution, "retried")
    stored = await ports.journal.node_states(execution_id)
    rows = {node_id: stored.get(node_id) or NodeRow(node_id=node_id) for node_id in plan.graph.ids}
    return execution.generation + 1, plan_retry(plan, rows, nodes)


async def _record(
    request: CancelRequested | PauseRequested | ResumeRequested | RetryRequested,
    ports: Ports,
    *,
    claim: Claim | None = None,
) -> RecordedEvent:
    recorded_events = await ports.journal.record([request], claim=claim)
    ports.announce(recorded_events)
    return recorded_events[0]


async def _tell(recorded_event: RecordedEvent, ports: Ports) -> Answer:
    assert recorded_event.execution is not None
    assert recorded_event.plan is not None
    row_update = RowUpdate(recorded_event.execution, recorded_event.plan, ())
    (applied,) = await ports.store.apply([row_update])
    if applied.answer is Answer.UNKNOWN:
        await rebuild(recorded_event.execution.id, ports, seen_epoch=recorded_event.execution.epoch)
    return applied.answer


async def _close(row: ExecutionRow, plan: Plan | None, ports: Ports) -> None:
    await ports.store.close(row.id, generation=row.generation, epoch=row.epoch, plan=plan)


async def _wake(execution: ExecutionRow, ports: Ports) -> None:
    await ports.transport.publish([Wake(execution.id, execution.generation, execution.digest)])


async def _known_nodes(execution_id: str, nodes: tuple[str, ...], ports: Ports) -> tuple[ExecutionRow, Plan]:
    execution = await ports.journal.execution(execution_id)
    plan = None if execution is None else await ports.journal.plan(execution.digest)
    if execution is None or plan is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    unknown = [
        Problem(f"/nodes/{index}", f"the execution has no node {node_id!r}")
        for index, node_id in enumerate(nodes)
        if node_id not in plan.nodes
    ]
    if unknown:
        raise RequestError(unknown)
    return execution, plan


async def root_of(execution_id: str, ports: Ports) -> str:
    """Return the execution that is above a child and all others above it; of any other, its own id."""
    row = await ports.journal.execution(execution_id)
    while row is not None and row.parent is not None:
        execution_id = row.parent.execution
        row = await ports.journal.execution(execution_id)
    return execution_id


def _refuse_child(execution: ExecutionRow) -> None:
    if execution.parent is not None:
        message = f"execution {execution.id} is a child: retry its parent, {execution.parent.execution}"
        raise NotAllowedError(message, state=execution.state)


def _allowed(recorded_event: RecordedEvent, done: str) -> ExecutionRow:
    execution = recorded_event.execution
    if execution is None:
        raise NotFoundError(f"there is no execution {recorded_event.event.execution_id}")
    if recorded_event.verdict is Verdict.REFUSED:
        raise _not_allowed(execution, done)
    return execution


def _not_allowed(execution: ExecutionRow, done: str) -> NotAllowedError:
    return NotAllowedError(
        f"execution {execution.id} is {execution.state} and cannot be {done}", state=execution.state
    )
