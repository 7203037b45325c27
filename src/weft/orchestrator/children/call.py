"""A node that runs a workflow: its definition is found, the input checked, and an event creates the child."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, NamedTuple

from weft.core.event import CallStarted, NewChild, NodeFailed
from weft.core.ledger.waits import child_id
from weft.core.payload import decode
from weft.core.rows import Called, partition_of
from weft.core.skip_propagation import skips_behind_failure
from weft.core.state import ExecutionState
from weft.errors import InputError, NotFoundError
from weft.orchestrator.starting.source import (
    ResolvedDefinition,
    find_source,
    incarnation_of,
    partitions_away,
    read_input,
)

if TYPE_CHECKING:
    from weft.core.decide import CallWorkflow, FreeNode
    from weft.definition.plan import Call
    from weft.orchestrator.context import Context
    from weft.ports import Ports

# An input that is larger is checked beside the loop.
_CHECKED_ON_LOOP_BYTES = 64 * 1024
_SHOWN_PROBLEMS = 5


class _Refused(NamedTuple):
    """Why a node cannot run its workflow."""

    code: str
    message: str


async def start_call(node: FreeNode, decision: CallWorkflow, context: Context) -> CallStarted | NodeFailed:
    """Return the event by which a node begins to wait for its child, or fails before there is one."""
    execution = node.execution
    attempt = (execution.id, execution.generation, node.node_id, node.attempt)
    started = await _prepared(node, decision, context.ports)
    if isinstance(started, CallStarted):
        return started
    known = context.cascades.known(execution.id, execution.generation)
    skips = skips_behind_failure(node.plan, node.node_id, cause=node.node_id, settled=known)
    error = {"code": started.code, "message": started.message, "retryable": False}
    return NodeFailed(*attempt, error=error, skips=skips)


async def _prepared(node: FreeNode, decision: CallWorkflow, ports: Ports) -> CallStarted | _Refused:
    execution, call = node.execution, node.plan.calls[node.node_id]
    depth = 1 if execution.parent is None else execution.parent.depth + 1
    if depth > ports.max_child_depth:
        return _Refused(
            "too_deep", f"{depth:,} executions one inside the other; the limit is {ports.max_child_depth:,}"
        )
    earlier = await _earlier(node, ports)
    try:
        source = await _source(call, earlier, execution.namespace, ports)
    except NotFoundError as missing:
        return _Refused("workflow_not_found", str(missing))
    try:
        beside = asyncio.to_thread if len(decision.input) > _CHECKED_ON_LOOP_BYTES else None
        payload = await read_input(decode(decision.input), source.plan, ports.bounds, run_in_thread=beside)
    except InputError as unfit:
        return _Refused("bad_input", "; ".join(str(problem) for problem in unfit.problems[:_SHOWN_PROBLEMS]))
    digest = hashlib.sha256(payload).hexdigest()
    called = earlier
    if called is None or called.input_digest != digest or not await _may_go_on(called, ports):
        called = Called(
            digest=source.plan.digest,
            workflow=source.workflow,
            version=source.version,
            input_digest=digest,
            attempt=node.attempt,
            child=child_id(execution.id, node.node_id, node.attempt),
        )
    partition = partition_of(called.child, ports.partitions)
    incarnation_id = await incarnation_of(ports)
    starts = incarnation_id is not None and partition not in partitions_away(incarnation_id)
    return CallStarted(
        execution.id,
        execution.generation,
        node.node_id,
        node.attempt,
        epoch=execution.epoch,
        called=called,
        new=NewChild(source.plan, source.document, payload, partition, starts),
        seconds=call.timeout_seconds,
        incarnation_id=incarnation_id,
    )


async def _earlier(node: FreeNode, ports: Ports) -> Called | None:
    """Return what the node called in an earlier generation, where its retry may go on with that."""
    if node.execution.generation == 1:
        return None
    rows = await ports.journal.node_states(node.execution.id, names=[node.node_id])
    return rows[node.node_id].called if node.node_id in rows else None


async def _may_go_on(called: Called, ports: Ports) -> bool:
    """True if a retry goes on with this child: it is there, and it has an output or can have one."""
    child = await ports.journal.execution(called.child)
    return child is not None and (child.state is not ExecutionState.COMPLETED or child.error is None)


async def _source(call: Call, earlier: Called | None, namespace: str, ports: Ports) -> ResolvedDefinition:
    """Return the definition that a node runs: the one that it ran before, if it did."""
    if call.plan is not None:
        name = call.plan.definition.name
        return ResolvedDefinition(plan=call.plan, document=call.document, workflow=name)
    assert call.name is not None
    if earlier is not None:
        plan = await ports.journal.plan(earlier.digest)
        if plan is not None:
            return ResolvedDefinition(plan=plan, workflow=earlier.workflow, version=earlier.version)
    return await find_source(call.name, call.version, ports, namespace=namespace)
