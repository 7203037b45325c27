"""Step 3: a decision becomes a task, a ticket in a wait queue, or an event of its own."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, TypeVar, assert_never

from msgspec.structs import replace

from weft.core.attempt import AttemptRef
from weft.core.decide import (
    CallWorkflow,
    Decision,
    DispatchNode,
    FailNode,
    FreeNode,
    InputNotLoadedError,
    ParkNode,
    SkipNode,
    StartWait,
    decide,
)
from weft.core.event import (
    AttemptIssued,
    AttemptParked,
    ChildEnded,
    Event,
    ExecutionStarted,
    NodeCached,
    NodeFailed,
    NodeSkipped,
    Running,
    WaitDue,
    WaitStarted,
)
from weft.core.ledger.changes import Verdict
from weft.core.payload import weight_of
from weft.core.rows import READABLE, payload_in, size_of
from weft.core.snapshot import RowUpdate
from weft.core.task import PRIORITIES, Task, Wake
from weft.definition.model import FailurePolicy
from weft.errors import JournalError, StoreError
from weft.expressions.budget import Allowance, LongEvaluationError
from weft.feed.contract import node_queued
from weft.orchestrator.children.call import start_call
from weft.orchestrator.context import DECIDED_ON_LOOP_BYTES, STEPS_ON_LOOP
from weft.orchestrator.recover import rebuild
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.core.rows import ExecutionRow, NodeRow
    from weft.definition.model import Node
    from weft.definition.plan import Plan
    from weft.orchestrator.context import Context, Payloads
    from weft.ports import Ports


# How an attempt starts: in a worker, or without one.
Start = TypeVar("Start", DispatchNode, ParkNode)

# By a name of this module: Python 3.11 takes ten times as long to find a member by its enum.
_YES = Answer.YES
_WITHOUT_ROOM = (Answer.NO_SLOT, Answer.NO_MEMORY)
# Of one execution, so many nodes are decided in vain for want of memory. Each is filled in to learn how large
# it is; the store lists it again when there is room, and the others with it.
_MOST_REFUSED = 2
# Outputs that a batch takes from the cache; one that is larger is taken alone.
_MOST_CACHED_BYTES = 16 * 1024 * 1024
# So many large configs of one execution are made in one go: messages of others are served in between.
_MOST_TURNS = 1


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
    changed: dict[str, None] = {}
    # How many nodes of an execution were refused for want of memory.
    refused: dict[str, int] = {}
    # A config that could not be stored: the others go on, and then the batch is kept for later.
    failure: JournalError | None = None
    # How many large configs of an execution were made, or long evaluations.
    turns: dict[str, int] = {}
    most = ports.large_config_bytes
    rest = free
    while rest:
        decided, rest = await _decide(rest, events, context)
        wanted: list[tuple[FreeNode, DispatchNode]] = []
        parked: list[tuple[FreeNode, ParkNode]] = []
        # Whether nothing but a task follows for any of the nodes; a tag may have no limit after all.
        are_plain = True
        for node, decision in decided:
            if isinstance(decision, DispatchNode):
                if len(decision.config) > most and not await _has_memory(node, decision, ports):
                    _note_refusal(node.execution.id, refused, changed)
                    continue
                wanted.append((node, decision))
                if node.node.is_issued or node.node.resource_tag is not None:
                    are_plain = False
            elif isinstance(decision, ParkNode):
                parked.append((node, decision))
            elif isinstance(decision, StartWait):
                events.append(_wait_started(node, decision))
            elif isinstance(decision, CallWorkflow):
                events.append(await with_running(await start_call(node, decision, context), node.plan, ports))
            else:
                events.append(await with_running(_settling_event(node, decision), node.plan, ports))
        if not are_plain:
            wanted = await _answer_from_cache(wanted, events, context)
            wanted = await _throttle(wanted, changed, context)
            wanted = await _issue(wanted, changed, context)
        if parked:
            parked = await _answer_from_cache(parked, events, context)
            parked = await _throttle(parked, changed, context)
            await _park(parked, events, context)
        unstored = await _send(wanted, changed, context) if wanted else None
        failure = unstored or failure
        if rest:
            # A config took long to fill in: others have a turn.
            await ports.clock.sleep(0)
            last = decided[-1][0].execution.id if decided else ""
            # One that could not be stored took no turn: put off behind it, the others would wait for ever.
            turns[last] = turns.get(last, 0) + (unstored is None)
            rest = [node for node in rest if refused.get(node.execution.id, 0) < _MOST_REFUSED]
            await _put_off([node for node in rest if turns.get(node.execution.id, 0) >= _MOST_TURNS], ports)
            rest = [node for node in rest if turns.get(node.execution.id, 0) < _MOST_TURNS]
            # Nodes of executions that had a turn come behind those of executions that had none.
            rest.sort(key=lambda node: turns.get(node.execution.id, 0))
    if failure is not None:
        raise failure
    return list(changed)


async def _put_off(nodes: Sequence[FreeNode], ports: Ports) -> None:
    """Leave free nodes for a later batch: one with a large config takes long, and outputs take memory."""
    rows = {node.execution.id: node.execution for node in nodes}
    if rows:
        await ports.transport.publish([Wake(row.id, row.generation, row.digest) for row in rows.values()])


def _note_refusal(execution_id: str, refused: dict[str, int], changed: dict[str, None]) -> None:
    refused[execution_id] = refused.get(execution_id, 0) + 1
    # The concurrency slot that a refused node was listed for is there for another.
    changed[execution_id] = None


async def _decide(
    free: Sequence[FreeNode], events: list[Event], context: Context
) -> tuple[list[tuple[FreeNode, Decision]], Sequence[FreeNode]]:
    """Decide free nodes of executions whose start is recorded; a start that is not becomes an event.

    Return with the decisions the nodes that are left: a part ends behind the first large config, so that one
    lies in memory at a time, behind the first long evaluation, and before the outputs that the nodes read are
    too large together.
    """
    payloads, ports = context.payloads, context.ports
    max_bytes, most = ports.bounds.max_payload_bytes, ports.large_config_bytes
    part, names = _readable(free, max_bytes)
    blobs = await payloads.fetch(names, ports.journal)
    value_of = partial(payloads.value_of, blobs=blobs) if blobs else payloads.value_of
    unstarted: set[str] = set()
    decided: list[tuple[FreeNode, Decision]] = []
    decide_node = partial(
        decide,
        decode=payloads.decode,
        value_of=value_of,
        payload_of=partial(payload_in, blobs=blobs),
        max_bytes=max_bytes,
        settled=context.cascades.known,
        allowance=payloads.allowance,
    )
    payloads.allowance.steps = STEPS_ON_LOOP
    for index, node in enumerate(part):
        row = node.execution
        if row.started_at is not None:
            is_long = False
            try:
                is_likely = blobs or len(node.seen) > READABLE or len(row.input) > DECIDED_ON_LOOP_BYTES
                if is_likely and _reads_much(node):
                    decision, is_long = await _decide_in_thread(node, decide_node, context)
                else:
                    decision = decide_node(node)
            except InputNotLoadedError:
                # The decision is kept without the input: those of a batch may be larger than the memory.
                loaded = await _with_input(node, context)
                decision, is_long = await _decide_in_thread(loaded, decide_node, context)
                del loaded
            except LongEvaluationError:
                decision, _ = await _decide_in_thread(node, decide_node, context)
                is_long = True
            decided.append((node, decision))
            if is_long or (isinstance(decision, DispatchNode | ParkNode) and len(decision.config) > most):
                return decided, free[index + 1 :]
        # Nothing of an execution runs before its start is recorded: the hint that it was submitted may be
        # lost, or have come while it was paused.
        elif row.id not in unstarted:
            unstarted.add(row.id)
            events.append(ExecutionStarted(execution_id=row.id, generation=row.generation))
    return decided, free[len(part) :]


def _reads_much(node: FreeNode) -> bool:
    """True if the input of a node's execution and the outputs it reads would hold up the loop."""
    read = sum([size_of(row) for row in node.seen.values()])
    return len(node.execution.input) + read > DECIDED_ON_LOOP_BYTES


async def _decide_in_thread(
    node: FreeNode, decide_node: Callable[..., Decision], context: Context
) -> tuple[Decision, bool]:
    """Decide a node beside the loop; return the decision and whether it would have held up the loop."""
    row, all_steps = node.execution, Allowance(sys.maxsize)
    # Read here: what is remembered of skips belongs to the loop.
    settled = context.cascades.known(row.id, row.generation)
    decision = await asyncio.to_thread(decide_node, node, settled=lambda *_: settled, allowance=all_steps)
    return decision, sys.maxsize - all_steps.steps > STEPS_ON_LOOP


def _readable(free: Sequence[FreeNode], max_bytes: int) -> tuple[Sequence[FreeNode], Collection[str]]:
    """Return the first of these nodes, and the blobs they read: at least one, and no more than fit together.

    What one node may not read together is not listed: deciding the node fails it.
    """
    names: set[str] = set()
    total = 0
    for index, node in enumerate(free):
        for row in node.seen.values():
            if row.blob is not None:
                break
        else:  # it reads no blob, as most nodes
            continue
        own = {row.blob: size_of(row) for row in node.seen.values() if row.blob is not None}
        size = sum(own.values())
        if size > READABLE * max_bytes:
            continue
        total += sum([size for name, size in own.items() if name not in names])
        if names and total > max_bytes:
            return free[:index], names
        names.update(own)
    return free, names


async def _with_input(node: FreeNode, context: Context) -> FreeNode:
    """Return a free node with its execution's input, which the store did not hold for its size."""
    row = node.execution
    payload = await context.payloads.input_of(row.id, context.ports.journal)
    return replace(node, execution=replace(row, input=payload))


async def _has_memory(node: FreeNode, decision: DispatchNode, ports: Ports) -> bool:
    """True if there is room for a large config; the store lists the node again once there is."""
    answer = await ports.store.admit(
        AttemptRef(*_attempt_of(node)), epoch=node.execution.epoch, weight=weight_of(decision.config)
    )
    if answer is not Answer.NO_MEMORY:
        # Whatever else is in the way, the store says so when the task is to be queued.
        return True
    await _leave_wait_queue(AttemptRef(*_attempt_of(node)), node.node.resource_tag, ports)
    return False


async def _leave_wait_queue(ticket: AttemptRef, tag: str | None, ports: Ports) -> None:
    """Leave the token of a node that is not queued now to another; the node joins the queue again later."""
    if tag is not None and ports.limits.limited(tag):
        await ports.limits.leave(tag, ticket)


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


def _wait_started(node: FreeNode, decision: StartWait) -> WaitStarted:
    """Return the event that begins a wait: what records it is all that there is to do."""
    terms = decision.terms
    return WaitStarted(
        *_attempt_of(node),
        epoch=node.execution.epoch,
        wait=decision.wait,
        seconds=terms.seconds,
        due_at=terms.due_at,
        default=terms.default,
        lookback_seconds=terms.lookback_seconds,
    )


async def with_running(event: Event, plan: Plan, ports: Ports) -> Event:
    """Add the running attempts to a failure that may stop its execution, for the history."""
    if not isinstance(event, NodeFailed | NodeSkipped | WaitDue | ChildEnded):
        return event
    if plan.definition.failure_policy is not FailurePolicy.FAIL_FAST:
        return event
    return replace(event, running=await running_now(event.execution_id, ports))


async def running_now(execution_id: str, ports: Ports) -> dict[str, Running]:
    """Return the running attempts of an execution, for the history; empty if the store cannot be asked."""
    try:
        return without_lost_starts(await ports.store.running(execution_id), ports)
    except StoreError:
        return {}


def without_lost_starts(running: dict[str, Running], ports: Ports) -> dict[str, Running]:
    """Leave out attempts from before the database lost commits: they may rest on what was lost."""
    began_at = ports.incarnation_began()
    return {
        name: one for name, one in running.items() if one.started_at is None or one.started_at >= began_at
    }


def _attempt_of(node: FreeNode) -> tuple[str, int, str, int]:
    """Return the fields that name the attempt a free node is for."""
    return node.execution.id, node.execution.generation, node.node_id, node.attempt


def _is_plain(node: Node, ports: Ports) -> bool:
    """True if nothing comes before the task of a node: no look into the cache, no token, no commit."""
    return not node.is_issued and (node.resource_tag is None or not ports.limits.limited(node.resource_tag))


async def _answer_from_cache(
    wanted: list[tuple[FreeNode, Start]], events: list[Event], context: Context
) -> list[tuple[FreeNode, Start]]:
    """Complete the nodes whose outputs are in the cache; return those that it has nothing for.

    Nodes whose outputs are larger together than a batch may hold are left for a later one.
    """
    journal = context.ports.journal
    keys = [decision.cache_key for _, decision in wanted if decision.cache_key is not None]
    sizes = await journal.cached_sizes(keys) if keys else {}
    if not sizes:
        return wanted
    left: list[tuple[FreeNode, Start]] = []
    hits: list[tuple[FreeNode, str]] = []
    later: list[FreeNode] = []
    held = sum([len(event.output) for event in events if isinstance(event, NodeCached)])
    for node, decision in wanted:
        key = decision.cache_key
        # An attempt that was issued may be running.
        if key is None or key not in sizes or node.issued == node.attempt:
            left.append((node, decision))
        elif held and held + sizes[key] > _MOST_CACHED_BYTES:
            later.append(node)
        else:
            held += sizes[key]
            hits.append((node, key))
    outputs = await journal.cached([key for _, key in hits]) if hits else {}
    for node, key in hits:
        if key in outputs:
            events.append(NodeCached(*_attempt_of(node), output=outputs[key]))
        else:
            later.append(node)  # too old since a moment
    await _put_off(later, context.ports)
    return left


async def _throttle(
    wanted: list[tuple[FreeNode, Start]], changed: dict[str, None], context: Context
) -> list[tuple[FreeNode, Start]]:
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
    # refused the issue: the process that committed the settlement has died before it told the store.
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


async def _park(wanted: Sequence[tuple[FreeNode, ParkNode]], events: list[Event], context: Context) -> None:
    """Add the starts of nodes that no worker runs: what records the event starts the attempt."""
    ports = context.ports
    for node, decision in wanted:
        attempt, tag = _attempt_of(node), node.node.resource_tag
        # Token first, as at any start. Without one the node stays free, and the sweep finds it.
        if tag is not None and ports.limits.limited(tag):
            if not await ports.limits.spend(tag, AttemptRef(*attempt)):
                continue
            ports.timers_changed()
        output, blob = decision.config, None
        if len(output) > ports.inline_bytes:
            blob = await ports.journal.put_blob(output)
        events.append(
            AttemptParked(
                *attempt,
                epoch=node.execution.epoch,
                seconds=decision.seconds,
                output=output if blob is None else None,
                blob=blob,
                output_bytes=len(output),
                cache_key=decision.cache_key,
            )
        )


async def _send(
    wanted: list[tuple[FreeNode, DispatchNode]], changed: dict[str, None], context: Context
) -> JournalError | None:
    """Move free nodes to queued and send their tasks: the first to move one sends it.

    Return the error of a large config that could not be stored: its node stays free.
    """
    ports = context.ports
    most, now = ports.large_config_bytes, ports.clock.now()
    tasks = []
    failure = None
    for free, decision in wanted:
        task = make_task(free, decision, ports, now)
        if len(decision.config) > most:
            try:
                task = await _large_task(task, ports)
            except JournalError as error:
                failure = error
                continue
        tasks.append(task)
    for task, answer in zip(tasks, await queue(tasks, ports), strict=True):
        if answer is _YES:
            continue
        if answer is Answer.UNKNOWN:
            await rebuild(task.execution_id, ports)
        elif answer is Answer.NO_MEMORY:
            changed[task.execution_id] = None
        if answer in _WITHOUT_ROOM:
            await _leave_wait_queue(task.ref, task.resource_tag, ports)
        if task.config_blob is not None:
            await ports.journal.drop_blobs([task.config_blob])
    return failure


async def _large_task(task: Task, ports: Ports) -> Task:
    """Return a task with the size of its large config, and with a reference in place of a very large one."""
    config, blob = task.config, None
    if ports.stores_configs and len(config) > ports.inline_config_bytes:
        blob = await ports.journal.put_blob(config)
    return replace(
        task,
        config=b"" if blob is not None else config,
        config_blob=blob,
        config_bytes=len(config),
        config_weight=weight_of(config),
    )


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
    if len(seen) > READABLE and _reads_much(free):
        return None
    try:
        decision = decide(
            free,
            decode=payloads.decode,
            value_of=payloads.value_of,
            max_bytes=ports.bounds.max_payload_bytes,
            allowance=payloads.allowance,
        )
    except (InputNotLoadedError, LongEvaluationError):
        return None
    if not isinstance(decision, DispatchNode) or len(decision.config) > ports.large_config_bytes:
        return None
    return make_task(free, decision, ports, ports.clock.now())


def make_task(free: FreeNode, decision: DispatchNode, ports: Ports, now: int) -> Task:
    """Make the task for an attempt of a node."""
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
        config=decision.config,
        timeout_seconds=node.timeout_seconds,
        queued_at=now,
        failures=free.failures,
        losses=free.losses,
        resource_tag=node.resource_tag,
        namespace=execution.namespace,
        epoch=execution.epoch,
    )
    if sign is not None or decision.secrets or node.secrets or decision.cache_key is not None:
        task = replace(
            task,
            secrets=decision.secrets,
            granted=node.secrets,
            cache_key=decision.cache_key,
            signature=b""
            if sign is None
            else sign(execution.id, execution.generation, node.id, free.attempt),
        )
    if node.poll is not None:
        # The attempts of one look have one number: a failure or a loss raises both sides.
        task = replace(task, look=free.attempt - free.failures - free.losses)
    if ports.tracing is not None:
        traceparent = ports.tracing.of_execution(execution)
        return replace(task, traceparent=traceparent, workflow=execution.workflow, version=execution.version)
    if execution.traceparent is not None:
        # Passed on as it came: what the node calls is in the caller's trace all the same.
        return replace(task, traceparent=execution.traceparent)
    return task


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
