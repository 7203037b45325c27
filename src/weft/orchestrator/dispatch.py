"""Step 3: a decision becomes a task, a ticket in a wait queue, or an event of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from weft.core.attempt import AttemptRef
from weft.core.decide import FreeNode, decide
from weft.core.decision import Decision, DispatchNode, FailNode, SkipNode
from weft.core.event import (
    AttemptIssued,
    Event,
    ExecutionStarted,
    NodeCached,
    NodeFailed,
    NodeSkipped,
    Running,
)
from weft.core.ledger.changes import Verdict
from weft.core.snapshot import RowUpdate
from weft.core.task import PRIORITIES, Task
from weft.definition.model import FailurePolicy
from weft.errors import StoreError
from weft.feed.contract import node_queued
from weft.orchestrator.recover import rebuild
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.model import Node
    from weft.definition.plan import Plan
    from weft.orchestrator.context import Context, Payloads
    from weft.ports import Ports


# By a name of this module: Python 3.11 takes ten times as long to find a member by its enum.
_YES = Answer.YES


async def dispatch(free: Sequence[FreeNode], context: Context) -> list[Event]:
    """Decide free nodes and carry the decisions out; give the events that are still to be recorded."""
    events: list[Event] = []
    decided: set[tuple[str, str]] = set()
    while free:
        changed = await _carry_out(free, events, context)
        if not changed:
            break
        # A throttled node holds no concurrency slot, so another node of its execution may take it; and a node
        # that is settled after all frees its children.
        decided.update((node.execution.id, node.node_id) for node in free)
        free = [
            node
            for applied in await context.ports.store.free(changed)
            for node in applied.free
            if (node.execution.id, node.node_id) not in decided
        ]
    return events


async def _carry_out(free: Sequence[FreeNode], events: list[Event], context: Context) -> Sequence[str]:
    """Decide free nodes once; return the executions whose free nodes are to be listed again."""
    ports = context.ports
    decided = await _decide(free, events, context)
    changed: dict[str, None] = {}
    wanted: list[tuple[FreeNode, DispatchNode]] = []
    # Whether all that follows for each node is a task.
    are_plain = True
    for node, decision in decided:
        if isinstance(decision, DispatchNode):
            wanted.append((node, decision))
            are_plain = are_plain and _is_plain(node.node, ports)
        else:
            events.append(await with_running(_settling_event(node, decision), node.plan, ports))
    if not are_plain:
        wanted = await _answer_from_cache(wanted, events, context)
        wanted = await _throttle(wanted, changed, context)
        wanted = await _issue(wanted, changed, context)
    if wanted:
        await _send(wanted, context)
    return list(changed)


async def _decide(
    free: Sequence[FreeNode], events: list[Event], context: Context
) -> list[tuple[FreeNode, Decision]]:
    """Decide free nodes of executions whose start is recorded; a start that is not becomes an event."""
    payloads = context.payloads
    names = {row.blob for node in free for row in node.seen.values() if row.blob is not None}
    blobs = await payloads.fetch(names, context.ports.journal)
    max_bytes = context.ports.bounds.max_payload_bytes
    value_of = partial(payloads.value_of, blobs=blobs) if blobs else payloads.value_of
    unstarted: set[str] = set()
    decided: list[tuple[FreeNode, Decision]] = []
    for node in free:
        row = node.execution
        if row.started_at is not None:
            decision = decide(
                node,
                decode=payloads.decode,
                value_of=value_of,
                max_bytes=max_bytes,
                settled=context.cascades.known,
            )
            decided.append((node, decision))
        # Nothing of an execution runs before its start is recorded: the hint that it was submitted may be
        # lost, or have come while it was paused.
        elif row.id not in unstarted:
            unstarted.add(row.id)
            events.append(ExecutionStarted(execution_id=row.id, generation=row.generation))
    return decided


def _settling_event(node: FreeNode, decision: SkipNode | FailNode) -> NodeSkipped | NodeFailed:
    """Return the event of a node that is settled without an attempt."""
    attempt = _attempt_of(node)
    match decision:
        case SkipNode():
            return NodeSkipped(*attempt, reason=decision.reason, cause=decision.cause, skips=decision.skips)
        case FailNode():
            return NodeFailed(*attempt, error=decision.error, skips=decision.skips)
        case _:
            assert_never(decision)


async def with_running(event: Event, plan: Plan, ports: Ports) -> Event:
    """Add the running attempts to a failure that may stop its execution, for the history."""
    if not isinstance(event, NodeFailed | NodeSkipped):
        return event
    if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST:
        return event
    return replace(event, running=await running_now(event.execution_id, ports))


async def running_now(execution_id: str, ports: Ports) -> dict[str, Running]:
    """Return the running attempts of an execution, for the history; empty if the store cannot be asked."""
    try:
        return await ports.store.running(execution_id)
    except StoreError:
        return {}


def _attempt_of(node: FreeNode) -> tuple[str, int, str, int]:
    """Return the fields that name the attempt a free node is for."""
    return node.execution.id, node.execution.generation, node.node_id, node.attempt


def _is_plain(node: Node, ports: Ports) -> bool:
    """True if nothing comes before the task of a node: no look into the cache, no token, no commit."""
    return not node.is_issued and (node.resource_tag is None or not ports.limits.limited(node.resource_tag))


async def _answer_from_cache(
    wanted: list[tuple[FreeNode, DispatchNode]], events: list[Event], context: Context
) -> list[tuple[FreeNode, DispatchNode]]:
    """Complete the nodes whose outputs are in the cache."""
    keys = [decision.cache_key for _, decision in wanted if decision.cache_key is not None]
    if not keys:
        return wanted
    hits = await context.ports.journal.cached(keys)
    left = []
    for node, decision in wanted:
        key = decision.cache_key
        output = hits.get(key) if key is not None else None
        # An attempt that was issued may be running.
        if output is None or node.issued == node.attempt:
            left.append((node, decision))
            continue
        events.append(NodeCached(*_attempt_of(node), output=output))
    return left


async def _throttle(
    wanted: list[tuple[FreeNode, DispatchNode]], changed: dict[str, None], context: Context
) -> list[tuple[FreeNode, DispatchNode]]:
    """Append nodes of a limited resource tag to the wait queue of their bucket: the sweep releases them."""
    ports = context.ports
    left = []
    for node, decision in wanted:
        tag = node.node.resource_tag
        if tag is None or node.released or not ports.limits.limited(tag):
            left.append((node, decision))
            continue
        ticket = AttemptRef(*_attempt_of(node))
        # Join first: a node that is throttled and in no wait queue would wait for ever.
        await ports.limits.join(tag, ticket)
        await ports.store.throttle(
            ticket.execution_id,
            generation=ticket.generation,
            node_id=ticket.node_id,
            attempt=ticket.attempt,
        )
        changed[ticket.execution_id] = None
        ports.timers_changed()
    return left


async def _issue(
    wanted: list[tuple[FreeNode, DispatchNode]], changed: dict[str, None], context: Context
) -> list[tuple[FreeNode, DispatchNode]]:
    """Commit the attempts of ``at_most_once`` nodes, and of nodes with a cache, before their tasks exist.

    Two orchestrators may decide a node with a cache at once, and one of them finds no output while the other
    does. The journal takes either the output or the attempt.
    """
    unissued = [
        (node, decision) for node, decision in wanted if node.node.is_issued and node.issued != node.attempt
    ]
    if not unissued:
        return wanted
    ports = context.ports
    recorded_events = await ports.journal.record(
        [AttemptIssued(*_attempt_of(node), epoch=node.execution.epoch) for node, _ in unissued]
    )
    # The store has to know: if the lease runs out, an issued attempt may have run. It may also not know what
    # refused the issue: whoever committed that the node is settled has died before it told the store.
    await ports.store.apply(
        [
            RowUpdate(recorded_event.execution, recorded_event.plan, recorded_event.rows)
            for recorded_event in recorded_events
            if recorded_event.verdict in (Verdict.ACCEPTED, Verdict.KNOWN)
            and recorded_event.execution
            and recorded_event.plan
        ]
    )
    refused: set[tuple[str, str]] = set()
    for (node, _), recorded_event in zip(unissued, recorded_events, strict=True):
        if recorded_event.verdict is not Verdict.ACCEPTED:
            refused.add((node.execution.id, node.node_id))
            changed[node.execution.id] = None
    return [pair for pair in wanted if (pair[0].execution.id, pair[0].node_id) not in refused]


async def _send(wanted: list[tuple[FreeNode, DispatchNode]], context: Context) -> None:
    """Move free nodes to queued and send their tasks: the first to move one sends it."""
    ports = context.ports
    tasks = []
    for free, decision in wanted:
        blob = None
        if _is_large(decision, ports):
            blob = await ports.journal.put_blob(decision.config)
        tasks.append(make_task(free, decision, ports, config_blob=blob))
    for task, answer in zip(tasks, await queue(tasks, ports), strict=True):
        if answer is _YES:
            continue
        if answer is Answer.UNKNOWN:
            await rebuild(task.execution_id, ports)
        elif answer is Answer.NO_SLOT and task.resource_tag is not None:
            # Without a concurrency slot it would keep a token that another node could use: it joins the wait
            # queue again later.
            ticket = task.ref
            await ports.limits.leave(task.resource_tag, ticket)


def plain_task(
    execution: ExecutionRow,
    plan: Plan,
    name: str,
    rows: Mapping[str, NodeRow],
    ports: Ports,
    payloads: Payloads,
) -> Task | None:
    """Return the first task of a node whose visible nodes settled as ``rows`` say.

    None where more than a task follows: a skip or a failure, a commit before the task (``at_most_once``), a
    look into the cache, a token of a resource tag, a blob. That node is dispatched once the store lists it
    as free.
    """
    node = plan.nodes[name]
    if not _is_plain(node, ports):
        return None
    seen = {other: rows[other] for other in plan.references[name]}
    for row in seen.values():
        if row.blob is not None:
            return None
    parents = tuple([rows[other] for other in plan.graph.parents[name]])
    free = FreeNode(execution, plan, node, parents, seen)
    decision = decide(
        free,
        decode=payloads.decode,
        value_of=payloads.value_of,
        max_bytes=ports.bounds.max_payload_bytes,
    )
    if not isinstance(decision, DispatchNode) or _is_large(decision, ports):
        return None
    return make_task(free, decision, ports)


def _is_large(decision: DispatchNode, ports: Ports) -> bool:
    """True if a node's config is too large for its task: the journal stores it, and the task names it."""
    return ports.inline_config_bytes is not None and len(decision.config) > ports.inline_config_bytes


def make_task(
    free: FreeNode, decision: DispatchNode, ports: Ports, *, config_blob: str | None = None
) -> Task:
    """Write down an attempt of a node for whoever is to run it."""
    execution, node, sign = free.execution, free.node, ports.sign
    # Keywords count twice: beyond 30, Python packs them into a dict, which takes longer than the rest.
    task = Task(
        execution.id,
        execution.generation,
        node.id,
        free.attempt,
        digest=execution.digest,
        handler=node.handler,
        queue=node.queue,
        priority=PRIORITIES[execution.priority],
        config=decision.config if config_blob is None else b"",
        timeout_seconds=node.timeout_seconds,
        queued_at=ports.clock.now(),
        failures=free.failures,
        losses=free.losses,
        resource_tag=node.resource_tag,
        namespace=execution.namespace,
        epoch=execution.epoch,
    )
    if (
        sign is None
        and not decision.secrets
        and not node.secrets
        and decision.cache_key is None
        and config_blob is None
    ):
        return task
    return replace(
        task,
        secrets=decision.secrets,
        granted=node.secrets,
        cache_key=decision.cache_key,
        config_blob=config_blob,
        signature=b"" if sign is None else sign(execution.id, execution.generation, node.id, free.attempt),
    )


async def queue(tasks: Sequence[Task], ports: Ports) -> Sequence[Answer]:
    """Move nodes to queued, each under the epoch of its task, and send the tasks of those that moved."""
    answers = await ports.store.queue(tasks)
    if not ports.transport.joint or (ports.feed is not None and ports.feed.has_listeners):
        moved = [task for task, answer in zip(tasks, answers, strict=True) if answer is _YES]
        await send(moved, ports)
    return answers


async def send(queued: Sequence[Task], ports: Ports) -> None:
    """Publish that nodes were queued, and send their tasks unless the store has sent them."""
    if ports.feed is not None and ports.feed.has_listeners:
        for task in queued:
            if ports.feed.has_subscriber(task.execution_id):
                ports.feed.publish([node_queued(task)], namespace=task.namespace)
    if not ports.transport.joint:
        await ports.transport.send(queued)
