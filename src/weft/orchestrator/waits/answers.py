"""Answers and signals from outside: committed first, then told to the store, then announced.

The commit is the answer: from then on nobody else answers, and the wait does not expire. The store frees what
follows when it is told. If whoever brought the answer dies before that, the sweep finds the answer in the
journal and tells the store.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from weft.core.event import SignalReceived, WaitAnswered
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.ledger.waits import MAILBOX_SIGNALS, wait_output
from weft.core.payload import encode
from weft.core.snapshot import RowUpdate
from weft.core.task import Wake
from weft.definition.waits import SIGNAL_FORM, SIGNAL_PATTERN, WaitKind
from weft.errors import (
    InputError,
    NotAllowedError,
    NotFoundError,
    PayloadError,
    Problem,
    RequestError,
    StoreError,
)
from weft.journal.contract import EndedWait
from weft.orchestrator.children.follow import tell_parents
from weft.orchestrator.recover import rebuild
from weft.store.contract import Answer
from weft.validator.check import problems_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.plan import Plan
    from weft.journal.contract import Claim
    from weft.ports import Ports

# The sweep tells the store of so many untold answers in one call.
_TOLD_AT_ONCE = 256


async def answer(
    execution_id: str,
    node_id: str,
    value: Json,
    ports: Ports,
    *,
    actor: str | None = None,
    by: str | None = None,
    claim: Claim | None = None,
) -> ExecutionRow:
    """Answer the wait of a node; raises NotAllowedError where it does not wait, InputError for a bad value.

    ``by``: the name that the output has for whoever answers.
    """
    execution, plan = await _find(execution_id, ports)
    if node_id not in plan.nodes:
        raise NotFoundError(f"execution {execution_id} has no node {node_id!r}")
    rule = plan.waits.get(node_id)
    if rule is None or rule.kind is not WaitKind.SIGNAL:
        raise _not_waiting(execution, node_id)
    payload = _encoded(value, ports)
    problems = await problems_of(rule.schema, value, payload) if rule.schema is not None else []
    if problems:
        raise _bad_value(problems)
    output, blob = await _stored(payload, by, ports)
    event = WaitAnswered(
        execution_id=execution_id,
        generation=0,
        node_id=node_id,
        output=None if blob is not None else output,
        blob=blob,
        output_bytes=len(output),
        actor=actor,
    )
    recorded_event = await _record(event, ports, claim, blob)
    if recorded_event.verdict is not Verdict.ACCEPTED:
        raise _not_waiting(recorded_event.execution or execution, node_id)
    assert recorded_event.execution is not None
    return recorded_event.execution


async def signal(
    execution_id: str,
    name: str,
    value: Json,
    ports: Ports,
    *,
    actor: str | None = None,
    by: str | None = None,
    claim: Claim | None = None,
) -> str | None:
    """Send a signal to an execution; return the node that it answered, or None: it is kept.

    Raises NotAllowedError where the execution has ended or its mailbox is full, InputError where the value
    does not fit the node that waits for it.
    """
    execution, plan = await _find(execution_id, ports)
    if not SIGNAL_PATTERN.fullmatch(name):
        raise RequestError([Problem("/name", f"{name[:200]!r} is not allowed: use {SIGNAL_FORM}")])
    payload = _encoded(value, ports)
    misfits = await _misfits(plan, name, value, payload)
    fits = [node_id for node_id in plan.waits_by_signal.get(name, ()) if node_id not in misfits]
    output, blob = await _stored(payload, by, ports)
    event = SignalReceived(
        execution_id=execution_id,
        generation=0,
        name=name,
        output=None if blob is not None else output,
        blob=blob,
        output_bytes=len(output),
        fits=tuple(fits),
        actor=actor,
    )
    recorded_event = await _record(event, ports, claim, blob)
    row = recorded_event.rows[0] if recorded_event.rows else None
    if recorded_event.verdict is Verdict.ACCEPTED:
        return None if row is None else row.node_id
    if row is not None:
        raise _bad_value(misfits[row.node_id])
    now = recorded_event.execution or execution
    if now.is_terminal:
        raise NotAllowedError(
            f"execution {execution_id} is {now.state}: it takes no signals", state=now.state
        )
    raise NotAllowedError(
        f"the mailbox of execution {execution_id} is full: {MAILBOX_SIGNALS:,} signals that nobody waits for",
        state=now.state,
        code="mailbox_full",
    )


async def _misfits(plan: Plan, name: str, value: Json, payload: bytes) -> dict[str, list[Problem]]:
    """Return why a signal does not fit the wait nodes of its name, of those that it does not fit."""
    misfits: dict[str, list[Problem]] = {}
    # Thousands of nodes may wait for one signal, and most of them have the same schema.
    checked: dict[bytes, list[Problem]] = {}
    for node_id in plan.waits_by_signal.get(name, ()):
        schema = plan.waits[node_id].schema
        if schema is None:
            continue
        if schema.text not in checked:
            checked[schema.text] = await problems_of(schema, value, payload)
            # A check on the loop takes some milliseconds at most: others have their turn in between.
            await asyncio.sleep(0)
        if problems := checked[schema.text]:
            misfits[node_id] = problems
    return misfits


async def _record(
    event: WaitAnswered | SignalReceived, ports: Ports, claim: Claim | None, blob: str | None
) -> RecordedEvent:
    """Commit an answer, and tell the store of the wait that it ended."""
    (recorded_event,) = await ports.journal.record([event], claim=claim)
    ports.announce([recorded_event])
    if recorded_event.verdict is not Verdict.ACCEPTED:
        if blob is not None:
            await ports.journal.drop_blobs([blob])
    elif recorded_event.rows:
        # The answer is recorded: a store that is away is told by the sweep.
        with suppress(StoreError):
            await tell([recorded_event], ports)
    return recorded_event


async def tell(recorded_events: Sequence[RecordedEvent], ports: Ports) -> None:
    """Apply answers to the store, wake an orchestrator for what follows, and note that the store knows."""
    for recorded_event in recorded_events:
        assert recorded_event.execution is not None
        assert recorded_event.plan is not None
        execution, rows = recorded_event.execution, recorded_event.rows
        await _apply(execution, recorded_event.plan, rows, ports)
        await ports.journal.forget_waits(
            [EndedWait(execution.id, execution.generation, row.node_id) for row in rows]
        )
        # The answer may have ended the execution.
        await tell_parents([execution], ports)


async def tell_untold(ports: Ports) -> None:
    """Tell the store of waits whose ends a process recorded before it died, or while the store was away."""
    untold = await ports.journal.untold_waits(older_than_seconds=2 * ports.sweep_seconds, limit=_TOLD_AT_ONCE)
    by_execution: dict[str, list[EndedWait]] = {}
    for one in untold:
        by_execution.setdefault(one.execution_id, []).append(one)
    for execution_id, ended in by_execution.items():
        execution, plan = await _find(execution_id, ports)
        rows = await ports.journal.nodes(execution_id, names=[one.node_id for one in ended])
        await _apply(execution, plan, [row for row in rows.values() if row.is_settled], ports)
        await ports.journal.forget_waits(ended)


async def _apply(execution: ExecutionRow, plan: Plan, rows: Sequence[NodeRow], ports: Ports) -> None:
    (applied,) = await ports.store.apply([RowUpdate(execution, plan, rows)])
    if applied.answer is Answer.UNKNOWN:
        await rebuild(execution.id, ports, seen_epoch=execution.epoch)
    if not execution.is_terminal:
        await ports.transport.publish([Wake(execution.id, execution.generation, execution.digest)])


async def _find(execution_id: str, ports: Ports) -> tuple[ExecutionRow, Plan]:
    execution = await ports.journal.execution(execution_id)
    plan = None if execution is None else await ports.journal.plan(execution.digest)
    if execution is None or plan is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    return execution, plan


def _encoded(value: Json, ports: Ports) -> bytes:
    try:
        return encode(value, max_bytes=ports.bounds.max_payload_bytes, max_depth=ports.bounds.max_depth)
    except PayloadError as error:
        raise _bad_value([Problem("", str(error))]) from None


async def _stored(payload: bytes, by: str | None, ports: Ports) -> tuple[bytes, str | None]:
    """Return the output that an answer gives its node, and where it is large, the blob that holds it."""
    output = wait_output(payload, by=by, at=ports.clock.now())
    blob = await ports.journal.put_blob(output) if len(output) > ports.inline_bytes else None
    return output, blob


def _bad_value(problems: Sequence[Problem]) -> InputError:
    return InputError([Problem(f"/value{problem.pointer}", problem.message) for problem in problems])


def _not_waiting(execution: ExecutionRow, node_id: str) -> NotAllowedError:
    return NotAllowedError(
        f"node {node_id} of execution {execution.id} does not wait for an answer", state=execution.state
    )
