"""Carries what is recorded of one execution over to others: to its children, and to its parent.

The commit that begins a call creates the child; here the child is installed. The commit that ends a child is
of the child alone; here the parent is told. The commit that ends a parent, or its wait, is of the parent
alone; here its children are cancelled. Each step may be lost with its process, and the sweep repairs it
(``children.mend``): the child is in no store (recovery finds it), the parent was not told of an end, a child
works for nobody.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import (
    CallStarted,
    CancelRequested,
    ChildEnded,
    ExecutionStarted,
    PauseRequested,
    ResumeRequested,
    WaitDue,
)
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.ledger.waits import child_error
from weft.core.skip_propagation import skips_behind_failure
from weft.core.snapshot import RowUpdate, Snapshot
from weft.core.task import Wake
from weft.errors import StoreError
from weft.journal.contract import EndedWait
from weft.orchestrator.context import check_step
from weft.orchestrator.dispatch import running_now, with_running
from weft.orchestrator.recover import observe_pause, rebuild
from weft.orchestrator.submit import install_new
from weft.orchestrator.triggers.lanes import release_behind
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weft.core.event import Event
    from weft.core.rows import ExecutionRow
    from weft.ports import Ports

# One commit ends or pauses so many children: others wait for it.
_AT_ONCE = 200
_RECORDED = (Verdict.ACCEPTED, Verdict.KNOWN)


async def follow(recorded_events: Sequence[RecordedEvent], ports: Ports) -> list[Event]:
    """Carry recorded events over to parents and children; return the events that tell parents of ends.

    The store has been told of the recorded events.
    """
    ended: dict[str, ExecutionRow] = {}
    bereft: dict[str, None] = {}
    for one in recorded_events:
        execution, plan = one.execution, one.plan
        if execution is None or plan is None or one.verdict not in _RECORDED:
            continue
        for child in one.children:
            await _install(child, one, ports)
            if child.execution is not None and child.execution.is_terminal:
                ended[child.execution.id] = child.execution
        if execution.is_terminal and execution.parent is not None:
            ended[execution.id] = execution
        if plan.calls and (execution.is_terminal or isinstance(one.event, WaitDue)):
            bereft[execution.id] = None
    await _forget_ends(recorded_events, ports)
    for execution_id in bereft:
        await end_children(execution_id, ports)
    return [await end_of(row, ports) for row in ended.values()]


async def _forget_ends(recorded_events: Sequence[RecordedEvent], ports: Ports) -> None:
    """Note that the store knows of the waits for children that have ended."""
    ended = [
        EndedWait(one.event.execution_id, one.event.generation, one.event.node_id)
        for one in recorded_events
        if isinstance(one.event, ChildEnded) and one.verdict in _RECORDED
    ]
    if ended:
        await ports.journal.forget_waits(ended)


async def _install(child: RecordedEvent, parent: RecordedEvent, ports: Ports) -> None:
    """Announce a child that was created or opened again, and install it in the store."""
    row, plan, event = child.execution, child.plan, parent.event
    assert row is not None
    assert plan is not None
    assert isinstance(event, CallStarted)
    ports.announce([child])
    if event.incarnation_id is None or row.started_at is None or row.is_terminal:
        return
    if isinstance(child.event, ExecutionStarted):
        await install_new([Snapshot(row, plan, ())], event.incarnation_id, ports)
        return
    with suppress(StoreError):
        snapshot = Snapshot(row, plan, child.rows)
        # Everything of the old generation is stale from the commit on, so what is ready is free at once.
        await ports.store.install([snapshot], incarnation_id=event.incarnation_id, fresh=True)
        await ports.transport.publish([Wake(row.id, row.generation, row.digest)])


async def end_of(child: ExecutionRow, ports: Ports) -> Event:
    """Return the event that tells a parent that its child has ended."""
    link = child.parent
    assert link is not None
    attempt = (link.execution, link.generation, link.node, link.attempt)
    if child.has_succeeded:
        # A list of children comes without their outputs.
        stored = await ports.journal.execution(child.id) if child.output is None else child
        output = b"null" if stored is None or stored.output is None else stored.output
        if len(output) <= ports.inline_bytes:
            return ChildEnded(*attempt, child=child.id, output=output, output_bytes=len(output))
        blob = await ports.journal.put_blob(output)
        return ChildEnded(*attempt, child=child.id, blob=blob, output_bytes=len(output))
    parent = await ports.journal.execution(link.execution)
    plan = None if parent is None else await ports.journal.plan(parent.digest)
    error = child_error(child)
    if plan is None:
        return ChildEnded(*attempt, child=child.id, error=error)
    skips = skips_behind_failure(plan, link.node, cause=link.node)
    return await with_running(ChildEnded(*attempt, child=child.id, error=error, skips=skips), plan, ports)


async def tell_parents(rows: Iterable[ExecutionRow], ports: Ports) -> None:
    """Tell the parents of ended executions, their parents in turn, and all children of what ends with them.

    For whoever has no loop to go on with: an orchestrator is woken for what follows.
    """
    ended = [row for row in rows if row.is_terminal and row.parent is not None]
    while ended:
        recorded_events = await _record([await end_of(row, ports) for row in ended], ports)
        for one in recorded_events:
            if one.execution is not None and one.plan is not None and one.verdict is Verdict.ACCEPTED:
                await _tell_store(one, ports)
        await _forget_ends(recorded_events, ports)
        ended = await _carried(recorded_events, ports)


async def _record(events: Sequence[Event], ports: Ports) -> Sequence[RecordedEvent]:
    """Commit what follows from another commit, unless the database has lost that since, and announce it."""
    check_step(ports)
    recorded_events = await ports.journal.record(events)
    ports.announce(recorded_events)
    return recorded_events


async def _carried(recorded_events: Sequence[RecordedEvent], ports: Ports) -> list[ExecutionRow]:
    """End the children of executions that ended; return those that are children themselves."""
    rows = [
        one.execution
        for one in recorded_events
        if one.execution is not None and one.execution.is_terminal and one.verdict is Verdict.ACCEPTED
    ]
    for row in rows:
        await end_children(row.id, ports)
    await release_behind(rows, ports)
    return [row for row in rows if row.parent is not None]


async def _tell_store(recorded_event: RecordedEvent, ports: Ports) -> None:
    """Apply what was recorded of an execution to the store, and wake an orchestrator for what follows."""
    row, plan = recorded_event.execution, recorded_event.plan
    assert row is not None
    assert plan is not None
    with suppress(StoreError):
        (applied,) = await ports.store.apply([RowUpdate(row, plan, recorded_event.rows)])
        if applied.answer is Answer.UNKNOWN:
            await rebuild(row.id, ports, seen_epoch=row.epoch)
        if not row.is_terminal:
            await ports.transport.publish([Wake(row.id, row.generation, row.digest)])


# -- from a parent to its children ---------------------------------------------------------------------


async def end_children(execution_id: str, ports: Ports) -> None:
    """Cancel all children of an execution that work for it no more, and theirs."""
    while children := await ports.journal.idle_children(execution_id, limit=_AT_ONCE):
        await cancel_children(children, ports)
        if len(children) < _AT_ONCE:
            return


async def end_descendants(execution_id: str, ports: Ports) -> None:
    """End all that works below an execution that was cancelled, whatever a crash has left there.

    Whoever ended a child earlier may have died before it told the store, or before it ended the children of
    that child. The sweep repairs both, but the caller of a cancel is told that nothing starts any more.
    """
    await end_children(execution_id, ports)
    after = ""
    while rows := await ports.journal.ended_children(execution_id, after=after, limit=_AT_ONCE):
        epochs = await ports.store.epochs([row.id for row in rows])
        for row, epoch in zip(rows, epochs, strict=True):
            plan = await ports.journal.plan(row.digest)
            if epoch is not None:
                await ports.store.close(row.id, generation=row.generation, epoch=row.epoch, plan=plan)
            if plan is not None and plan.calls:
                await end_descendants(row.id, ports)
        after = rows[-1].id


async def cancel_children(rows: Sequence[ExecutionRow], ports: Ports) -> None:
    """Cancel executions whose parent has ended, in one commit, and then their children."""
    requests = [
        CancelRequested(
            execution_id=row.id,
            # A retry of the parent has opened it again since then.
            generation=row.generation,
            running=await running_now(row.id, ports),
            by_parent=True,
        )
        for row in rows
    ]
    recorded_events = await _record(requests, ports)
    for one in recorded_events:
        row = one.execution
        if row is not None and row.is_terminal:
            await ports.store.close(row.id, generation=row.generation, epoch=row.epoch, plan=one.plan)
    for one in recorded_events:
        if one.plan is not None and one.plan.calls:
            await end_children(one.event.execution_id, ports)


async def pause_children(execution_id: str, ports: Ports) -> None:
    """Pause the children of an execution, and theirs: it was paused."""
    for row in await ports.journal.open_children(execution_id):
        await pause_child(row, ports)


async def pause_child(row: ExecutionRow, ports: Ports) -> None:
    """Pause an execution with its parent."""
    request = PauseRequested(execution_id=row.id, generation=row.generation, by_parent=True)
    paused = await _told(request, ports)
    if paused is not None:
        await observe_pause(paused, ports)
        await pause_children(row.id, ports)


async def resume_children(execution_id: str, ports: Ports) -> None:
    """Resume the children of an execution, and theirs."""
    for row in await ports.journal.open_children(execution_id):
        await resume_child(row, ports)


async def resume_child(row: ExecutionRow, ports: Ports) -> None:
    """Resume an execution with its parent."""
    resumed = await _told(ResumeRequested(execution_id=row.id, generation=row.generation), ports)
    if resumed is not None:
        await ports.transport.publish([Wake(resumed.id, resumed.generation, resumed.digest)])
        await resume_children(row.id, ports)


async def _told(request: PauseRequested | ResumeRequested, ports: Ports) -> ExecutionRow | None:
    """Record a pause or a resume, and tell the store; None: the execution has ended."""
    (recorded_event,) = await _record([request], ports)
    row, plan = recorded_event.execution, recorded_event.plan
    if row is None or plan is None or recorded_event.verdict not in _RECORDED:
        return None
    (applied,) = await ports.store.apply([RowUpdate(row, plan, ())])
    if applied.answer is Answer.UNKNOWN:
        await rebuild(row.id, ports, seen_epoch=row.epoch)
    return row
