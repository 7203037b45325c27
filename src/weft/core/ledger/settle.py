"""Settles nodes without a result, and ends executions: skip, fail fast, cancel, finish; notes who is told.

The commit that leaves no node unsettled also writes the verdict, the output and the terminal state of the
execution: there is no later step that a crash could lose or double.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.event import NodeFailed, Running, WaitDue, WaitStarted
from weft.core.ledger.changes import move_execution
from weft.core.output import execution_output
from weft.core.rows import NodeRow, Notification, Told
from weft.core.state import ExecutionState, NodeState, Reason
from weft.definition.model import FailurePolicy, NotifyOn, TriggerRule
from weft.definition.waits import WaitKind
from weft.errors import EvaluationError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from weft.core.event import Event, Skip
    from weft.core.ledger.changes import Change, Changes
    from weft.core.output import LoadBlob, LoadInput
    from weft.core.rows import ExecutionRow, Wait
    from weft.definition.model import NotifyTarget


_ENDS = {ExecutionState.COMPLETED: NotifyOn.COMPLETED, ExecutionState.FAILED: NotifyOn.FAILED}
# Of a message or a prompt: the execution has all of it.
_MAX_TOLD_CHARACTERS = 4_000


def skip_nodes(changes: Changes, skips: Sequence[Skip], change: Change) -> tuple[NodeRow, ...]:
    """Skip nodes that are unsettled; return the rows of all that were named."""
    rows = []
    for skip in skips:
        row = change.row_of(skip.node_id)
        if row.state is None:
            row = _settle_unrun(changes, change, row, NodeState.SKIPPED, skip.reason, skip.cause)
        rows.append(row)
    return tuple(rows)


def _settle_unrun(
    changes: Changes,
    change: Change,
    row: NodeRow,
    state: NodeState,
    reason: str,
    cause: str | None,
    running: Running | None = None,
) -> NodeRow:
    """Settle a node without a result; ``running`` is the attempt that was in hand, if one was."""
    execution = change.row
    if row.parked is not None:
        # The store need not be asked: its start is a commit.
        running = Running(row.attempt, None, row.queued_at, row.started_at)
    times = _times_in_hand(running, row, changes.now)
    ended = row.attempt if times else row.ended
    seq = changes.note(
        execution,
        "node.skipped" if state is NodeState.SKIPPED else "node.cancelled",
        node=row.node_id,
        attempt=ended,
        state=state,
        reason=reason,
        cause=cause,
        **times,
    )
    settled = NodeRow(
        node_id=row.node_id,
        attempt=row.attempt,
        ended=ended,
        answered=row.answered,
        state=state,
        generation=execution.generation,
        reason=reason,
        cause=cause,
        failures=row.failures,
        losses=row.losses,
        issued=row.issued,
        seq=seq,
        called=row.called,
        **times,
    )
    changes.put(change, row, settled)
    execution.unsettled -= 1
    if state is NodeState.SKIPPED:
        execution.skipped += 1
    else:
        execution.cancelled += 1
    return settled


def _times_in_hand(running: Running | None, row: NodeRow, now: int) -> dict[str, Any]:
    """Return the times of the attempt that was in hand when its node was settled; empty: none was."""
    if running is None or running.attempt != row.attempt or running.started_at is None:
        return {}
    started_at = min(running.started_at, now)
    return {
        "worker": running.worker,
        "queued_at": None if running.queued_at is None else min(running.queued_at, started_at),
        "started_at": started_at,
        "finished_at": now,
    }


def stop_if_fatal(changes: Changes, node_id: str, change: Change, running: Mapping[str, Running]) -> None:
    """Under ``fail_fast``, stop at a failure that nothing handles and nothing still can."""
    plan = change.plan
    if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST or not change.row.failed:
        return
    suspects = [node_id]
    if plan.nodes[node_id].trigger_rule is TriggerRule.ONE_FAILED:
        # The node was to handle these failures, and did not complete.
        suspects = [*plan.graph.parents[node_id], node_id]
    fatal = [
        row
        for suspect in suspects
        if (row := change.row_of(suspect)).state is NodeState.FAILED
        and not has_handler_in(change, suspect, None, NodeState.COMPLETED)
    ]
    if fatal:
        first = min(fatal, key=lambda row: row.seq)
        error = _node_error(first)
        stop(changes, change, ExecutionState.FAILED, Reason.FAIL_FAST, first.node_id, error, running)


def stop(
    changes: Changes,
    change: Change,
    state: ExecutionState,
    reason: Reason,
    cause: str | None,
    error: dict[str, Any] | None,
    running: Mapping[str, Running],
    actor: str | None = None,
) -> None:
    """Settle all that is unsettled, and the execution with it, in this one commit."""
    for node_id in change.plan.graph.ids:
        row = change.row_of(node_id)
        if row.state is None:
            _settle_unrun(changes, change, row, NodeState.CANCELLED, reason, cause, running.get(node_id))
    assert change.row.unsettled == 0
    _close(changes, change.row, state, error, actor)


def finish(
    changes: Changes,
    change: Change,
    load_blob: LoadBlob,
    load_input: LoadInput,
    max_payload_bytes: int,
) -> None:
    """End an execution of which every node is settled."""
    execution = change.row
    if execution.failed:
        failures = [
            row
            for row in change.every_row().values()
            if row.state is NodeState.FAILED and not has_handler_in(change, row.node_id, NodeState.COMPLETED)
        ]
        if failures:
            first = min(failures, key=lambda row: row.seq)
            _close(changes, execution, ExecutionState.FAILED, _node_error(first))
            return
    error = None
    try:
        execution.output = execution_output(
            change.plan,
            execution,
            change.row_of,
            load_blob,
            load_input=load_input,
            max_bytes=max_payload_bytes,
        )
    except (EvaluationError, PayloadError) as problem:
        error = {"code": "output_error", "message": str(problem), "retryable": False}
    _close(changes, execution, ExecutionState.COMPLETED, error)


def _close(
    changes: Changes,
    execution: ExecutionRow,
    state: ExecutionState,
    error: dict[str, Any] | None,
    actor: str | None = None,
) -> None:
    move_execution(execution, state)
    execution.error = error
    execution.finished_at = changes.now
    changes.note(execution, f"execution.{state.lower()}", state=state, error=error, actor=actor)


def notify(
    changes: Changes,
    event: Event,
    change: Change,
    targets: Sequence[NotifyTarget],
    new_id: Callable[[], str],
) -> None:
    """Add what an accepted event gives to tell: to the targets of the operator, and to those of the workflow.

    A URL that both name is told once. The operator is not told of children: what they come to is told of the
    execution that they belong to.
    """
    execution = change.row
    if execution.parent is not None:
        targets = ()
    told: set[tuple[str, NotifyOn]] = set()
    for target in (*targets, *change.plan.definition.notify):
        for on, facts in _reasons(changes, event, change, target):
            if (target.url, on) in told:
                continue
            told.add((target.url, on))
            changes.notifications.append(
                Notification(
                    id=new_id(),
                    execution_id=execution.id,
                    namespace=execution.namespace,
                    generation=execution.generation,
                    on=on,
                    url=target.url,
                    told=facts,
                    created_at=changes.now,
                    due_at=changes.now,
                )
            )


def _reasons(
    changes: Changes, event: Event, change: Change, target: NotifyTarget
) -> Iterator[tuple[NotifyOn, Told]]:
    """Return the occasions of an event that a target is told of, each with its facts."""
    execution = change.row
    end = _ENDS.get(execution.state)
    is_told = end is not None and end in target.on
    if end is not None and is_told:
        yield end, _told(execution, execution.error)
    # The first dead letter of a generation: ten thousand nodes that fail alike are one message. And a failure
    # that ends the execution is told as that alone.
    is_first = isinstance(event, NodeFailed | WaitDue) and execution.failed == 1 and changes.letters
    if is_first and NotifyOn.DEAD_LETTER in target.on and not (is_told and end is NotifyOn.FAILED):
        letter = next(one for one in reversed(changes.letters) if one.execution_id == execution.id)
        yield (
            NotifyOn.DEAD_LETTER,
            _told(execution, letter.error, node=letter.node_id, dead_letter=letter.id),
        )
    if isinstance(event, WaitStarted) and NotifyOn.WAITING in target.on:
        parked = change.row_of(event.node_id).parked
        # A wait that its mailbox has answered asks nobody, and nobody can answer a time or an event.
        if parked is not None and parked.wait is not None and parked.wait.kind is WaitKind.SIGNAL:
            yield NotifyOn.WAITING, _asked(execution, event.node_id, parked.wait, parked.due_at)


def _told(execution: ExecutionRow, error: dict[str, Any] | None, **facts: Any) -> Told:
    error = error or {}
    message = error.get("message")
    facts.setdefault("node", error.get("node"))
    return Told(
        workflow=execution.workflow,
        version=execution.version,
        state=execution.state,
        code=code if isinstance(code := error.get("code"), str) else None,
        message=None if message is None else _cut(str(message)),
        **facts,
    )


def _asked(execution: ExecutionRow, node_id: str, wait: Wait, expires_at: int | None) -> Told:
    prompt = None if wait.prompt is None else _cut(wait.prompt)
    return _told(execution, None, node=node_id, signal=wait.name, prompt=prompt, expires_at=expires_at)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TOLD_CHARACTERS else f"{text[:_MAX_TOLD_CHARACTERS]}…"


def has_handler_in(change: Change, node_id: str, *states: NodeState | None) -> bool:
    """True if a node that handles the failure of this one is in one of the states."""
    handlers = change.plan.failure_handlers.get(node_id, ())
    return any(change.row_of(handler).state in states for handler in handlers)


def _node_error(row: NodeRow) -> dict[str, Any]:
    cause = row.error or {}
    return {
        "code": "node_failed",
        "message": f"node {row.node_id} failed: {cause.get('message', '')}",
        "retryable": False,
        "node": row.node_id,
        "details": {"code": cause.get("code")},
    }
