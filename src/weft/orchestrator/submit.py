"""Steps 1 and 2: inputs become submissions; one commit accepts and starts them, and first tasks are sent."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from weft.core.event import ExecutionStarted
from weft.core.ledger.changes import RecordedEvent, Verdict
from weft.core.payload import decode
from weft.core.retry_plan import plan_fork, unfit_for_fork
from weft.core.rows import History, NodeRow, partition_of, size_of
from weft.core.snapshot import Snapshot
from weft.core.state import ExecutionState
from weft.core.task import Wake
from weft.definition.fields import shown
from weft.errors import (
    EvaluationError,
    InputError,
    JournalError,
    NotAllowedError,
    Problem,
    RequestError,
    StoreError,
)
from weft.expressions.budget import Allowance, LongEvaluationError
from weft.expressions.scope import Scope
from weft.journal.contract import DEFAULT_NAMESPACE, LOCAL_ACTOR, Submission
from weft.orchestrator.context import STEPS_ON_LOOP, Payloads
from weft.orchestrator.dispatch import plain_task, send
from weft.orchestrator.starting.source import MAX_PROBLEMS, incarnation_of, partitions_away
from weft.orchestrator.starting.source import ResolvedDefinition as ResolvedDefinition
from weft.orchestrator.starting.source import find_source as find_source
from weft.orchestrator.starting.source import read_input as read_input
from weft.orchestrator.starting.source import read_inputs as read_inputs
from weft.orchestrator.triggers.lanes import release_groups
from weft.store.contract import Answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    from weft.core.payload import Json
    from weft.core.rows import ExecutionRow
    from weft.core.task import Task
    from weft.definition.plan import Plan
    from weft.journal.contract import Claim, NewBatch
    from weft.ports import Ports

    RunInThread: TypeAlias = Callable[..., Awaitable[Any]]

log = logging.getLogger("weft.orchestrator")

# So many executions are put into the store before others have a turn on the loop.
_INSTALLED_AT_ONCE = 500
# Of one execution, so many roots are sent with its submit: a wide one is dispatched by an orchestrator, whose
# batches leave room for others.
_SENT_AT_ONCE = 100
# Outputs that a fork takes over from the rows: they lie in memory until they are written. Larger ones are
# shared as blobs.
_MAX_KEPT_BYTES = 128 * 1024 * 1024
# The name of a group is a part of the name of its lane, which an index holds.
_MAX_GROUP_CHARACTERS = 256
_MAX_GROUP_BYTES = 64 * 1024


class SubmitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the executions of a submit, and their owner."""

    namespace: str = DEFAULT_NAMESPACE
    labels: dict[str, str] = {}
    priority: str = "normal"
    # The caller that submits the executions, for the history.
    actor: str = LOCAL_ACTOR
    # The caller's place in a trace: a valid ``traceparent``, or None.
    traceparent: str | None = None


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a fork: nodes that run again, differences from the first execution, and the caller."""

    # Nodes that run again, with all behind them; none named: everything runs.
    nodes: tuple[str, ...] = ()
    has_input: bool = False
    input: Any = None
    version: int | str | None = None
    actor: str = LOCAL_ACTOR
    traceparent: str | None = None


def make_submission(
    execution_id: str,
    source: ResolvedDefinition,
    payload: bytes,
    options: SubmitOptions,
    *,
    batch: str | None = None,
) -> Submission:
    return Submission(
        id=execution_id,
        plan=source.plan,
        document=source.document,
        input=payload,
        namespace=options.namespace,
        workflow=source.workflow,
        version=source.version,
        labels=options.labels,
        priority=options.priority,
        batch=batch,
        actor=options.actor,
        traceparent=options.traceparent,
        group_name=_group_of(source, payload),
    )


def _group_of(source: ResolvedDefinition, payload: bytes) -> str | None:
    """Return the group of an execution with this input; raises InputError where it has no name."""
    template = source.plan.group
    if template is None:
        return None
    scope = Scope(payload, {}, {}, decode, Allowance(STEPS_ON_LOOP))
    try:
        name = template.fill(scope, max_bytes=_MAX_GROUP_BYTES).value
    except LongEvaluationError:
        raise InputError(
            [Problem("", "the group of the workflow takes too long: use a simpler one")]
        ) from None
    except EvaluationError as error:
        raise InputError([Problem("", f"the group of the workflow: {error}")]) from None
    if not isinstance(name, str) or len(name) > _MAX_GROUP_CHARACTERS or not name.isprintable():
        wanted = f"a string of at most {_MAX_GROUP_CHARACTERS} printable characters"
        raise InputError([Problem("", f"the group of the workflow must be {wanted}, not {shown(name)}")])
    return name


async def make_batch(
    batch_id: str,
    source: ResolvedDefinition,
    inputs: Sequence[Json],
    options: SubmitOptions,
    ports: Ports,
    *,
    run_in_thread: RunInThread = asyncio.to_thread,
) -> list[Submission]:
    """Make the submissions of a batch; raises InputError with pointers into the list of inputs.

    ``run_in_thread`` is given what takes a while for many inputs.
    """
    payloads = await read_inputs(inputs, source.plan, ports.bounds, run_in_thread=run_in_thread)

    def make() -> list[Submission]:
        return [
            make_submission(ports.new_id(), source, payload, options, batch=batch_id) for payload in payloads
        ]

    # Each reads its input for the name of its group.
    return make() if source.plan.group is None else await run_in_thread(make)


def limited(submissions: Sequence[Submission], batch_id: str, max_running: int | None) -> list[Submission]:
    """Return the submissions of a batch of which no more than ``max_running`` are to run at once."""
    if max_running is None:
        return list(submissions)
    lane = f"batch/{batch_id}"
    return [
        replace(one, lane=lane, queue_slots=0 if place < max_running else max_running)
        for place, one in enumerate(submissions)
    ]


async def make_fork(
    execution_id: str, forked: ExecutionRow, request: ForkRequest, ports: Ports
) -> Submission:
    """Make a new execution of one that is terminal, with the settled nodes that the request lets it keep.

    Raises NotAllowedError where it is not terminal, RequestError where a kept node does not fit the request.
    """
    if not forked.is_terminal:
        message = f"execution {forked.id} is {forked.state}: it cannot be forked before it has ended"
        raise NotAllowedError(message, state=forked.state)
    plan = await ports.journal.plan(forked.digest)
    if plan is None:
        raise JournalError(f"the journal has no definition {forked.digest}, though an execution names it")
    source = await _source_of_fork(forked, plan, request.version, ports)
    unknown = [
        Problem(f"/from/{index}", f"the execution has no node {name!r}")
        for index, name in enumerate(request.nodes)
        if name not in plan.nodes
    ]
    if unknown:
        raise RequestError(unknown)
    stored = await ports.journal.node_states(forked.id)
    rows = {node_id: stored.get(node_id) or NodeRow(node_id=node_id) for node_id in plan.graph.ids}
    kept = plan_fork(plan, rows, request.nodes)
    payload = forked.input
    if request.has_input or source.plan is not plan:
        value = request.input if request.has_input else decode(forked.input)
        try:
            payload = await read_input(value, source.plan, ports.bounds)
        except InputError as error:
            moved = [Problem(f"/input{problem.pointer}", problem.message) for problem in error.problems]
            raise InputError(moved) from None
    new_input = payload != forked.input
    unfit = unfit_for_fork(kept, plan, source.plan, new_input=new_input)
    if unfit:
        problems = [
            Problem("/from", f"{name} would be kept, but {why}: name it, or a node before it, in `from`")
            for name, why in unfit.items()
        ]
        raise RequestError(problems[:MAX_PROBLEMS])
    options = SubmitOptions(
        namespace=forked.namespace,
        labels=forked.labels,
        priority=forked.priority,
        actor=request.actor,
        traceparent=request.traceparent,
    )
    submission = make_submission(execution_id, source, payload, options)
    names = [node_id for node_id in kept if node_id in source.plan.nodes]
    taken = await _whole_rows(forked, {name: rows[name] for name in names}, ports)
    return replace(submission, forked_from=forked.id, kept=taken)


async def _whole_rows(forked: ExecutionRow, rows: Mapping[str, NodeRow], ports: Ports) -> tuple[NodeRow, ...]:
    """Return the rows that a fork keeps, with their outputs; ``rows``: the same without them."""
    size = sum([size_of(row) for row in rows.values() if row.blob is None])
    if size > _MAX_KEPT_BYTES:
        message = (
            f"the outputs that would be kept are {size:,} bytes together; the limit is {_MAX_KEPT_BYTES:,}: "
            "name earlier nodes"
        )
        raise RequestError([Problem("/from", message)])
    whole = await ports.journal.nodes(forked.id, names=list(rows)) if rows else {}
    taken = tuple([whole.get(name, row) for name, row in rows.items()])
    if any(row.seq != rows[row.node_id].seq for row in taken):
        message = f"execution {forked.id} was retried meanwhile: it cannot be forked before it has ended"
        raise NotAllowedError(message, state=ExecutionState.RUNNING)
    return taken


async def _source_of_fork(
    forked: ExecutionRow, plan: Plan, version: int | str | None, ports: Ports
) -> ResolvedDefinition:
    if forked.workflow is None or forked.version is None:
        if version is not None:
            raise RequestError(
                [Problem("/version", "the execution is of no stored workflow: it has no versions")]
            )
        return ResolvedDefinition(plan=plan, workflow=forked.workflow)
    # Also where the version stays: a workflow that was deleted starts nothing new.
    wanted = forked.version if version is None else version
    return await find_source(forked.workflow, wanted, ports, namespace=forked.namespace)


async def submit(
    submissions: Sequence[Submission],
    ports: Ports,
    *,
    claim: Claim | None = None,
    batch: NewBatch | None = None,
) -> Sequence[ExecutionRow]:
    """Accept executions: durable when this returns. A crash after the commit is repaired by the sweep."""
    submissions, incarnation_id = await prepare(submissions, ports)
    began_at = ports.clock.now()
    rows = await ports.journal.submit(submissions, claim=claim, batch=batch)
    if ports.committed is not None:
        ports.committed(len(rows), ports.clock.now() - began_at)
    await take_up(rows, submissions, incarnation_id, ports)
    if any(row.group_name is not None for row in rows):
        await release_groups(rows, ports)
    return rows


async def prepare(submissions: Sequence[Submission], ports: Ports) -> tuple[Sequence[Submission], str | None]:
    """Return the submissions with their partitions, and whether each starts with the commit that accepts it.

    With them comes the incarnation of the store, which was asked before; None: the store is away.
    """
    if ports.partitions > 1:
        submissions = [replace(one, partition=partition_of(one.id, ports.partitions)) for one in submissions]
    incarnation_id = await incarnation_of(ports)
    if incarnation_id is not None:
        away = partitions_away(incarnation_id)
        # A fork starts when an orchestrator takes it up: the store learns its kept rows by a rebuild.
        submissions = [replace(one, starts=one.partition not in away and not one.kept) for one in submissions]
    return submissions, incarnation_id


async def take_up(
    rows: Sequence[ExecutionRow],
    submissions: Sequence[Submission],
    incarnation_id: str | None,
    ports: Ports,
) -> None:
    """Announce executions that were accepted, install those that have started, and send their first tasks."""
    for start in range(0, len(rows), _INSTALLED_AT_ONCE):
        if start:
            await asyncio.sleep(0)
        part = rows[start : start + _INSTALLED_AT_ONCE]
        new = submissions[start : start + _INSTALLED_AT_ONCE]
        plans = [submission.plan for submission in new]
        # Subscribers hear of the start before they hear of the first nodes.
        _announce(part, new, ports)
        if incarnation_id is not None:
            incarnation_id = await _install(part, plans, incarnation_id, ports)
    await _wake_forks(submissions, ports)


async def _wake_forks(submissions: Sequence[Submission], ports: Ports) -> None:
    """Wake an orchestrator for each execution with kept rows: it rebuilds the execution in the store."""
    forks = [Wake(one.id, 1, one.plan.digest) for one in submissions if one.kept]
    if forks:
        # The sweep finds them where the announcement is lost.
        with suppress(StoreError):
            await ports.transport.publish(forks)


async def _install(
    rows: Sequence[ExecutionRow], plans: Sequence[Plan], incarnation_id: str, ports: Ports
) -> str | None:
    """Install new executions in the store and queue their first tasks; return the incarnation of the store.

    None where the store is away. The executions are accepted all the same, for the commit alone counts: the
    sweep tells the store later. So it does where a partition was away and they are not started.
    """
    snapshots = [
        Snapshot(row, plan, ()) for row, plan in zip(rows, plans, strict=True) if row.started_at is not None
    ]
    try:
        await _install_and_send(snapshots, incarnation_id, ports)
    except StoreError as error:
        log.warning("store.unavailable", extra={"error": str(error)})
        return None
    return incarnation_id


async def install_new(started: Sequence[Snapshot], incarnation_id: str, ports: Ports) -> None:
    """Install executions that were created and started; the sweep does where the store is away."""
    try:
        await _install_and_send(started, incarnation_id, ports)
    except StoreError as error:
        log.warning("store.unavailable", extra={"error": str(error)})


async def _install_and_send(started: Sequence[Snapshot], incarnation_id: str, ports: Ports) -> None:
    """Install executions with the tasks of their roots; wake an orchestrator for each that needs more now.

    That is one with a root that takes more than a task, with a root without a concurrency slot, or with a
    deadline (an orchestrator's sweep may have planned to look later), and one that the store refused.
    """
    payloads = Payloads()
    tasks: list[Task] = []
    woken: dict[str, Wake] = {}
    for snapshot in started:
        row, plan = snapshot.execution, snapshot.plan
        roots = plan.graph.roots
        most = min(_SENT_AT_ONCE, plan.definition.max_concurrency or _SENT_AT_ONCE)
        if len(row.input) > ports.large_config_bytes:
            # Every root may have a large config: an orchestrator makes one at a time.
            most = 0
        ready = [
            task
            for name in roots[:most]
            if (task := plain_task(row, plan, name, {}, ports, payloads)) is not None
        ]
        tasks += ready
        if len(ready) < len(roots) or row.deadline_at is not None:
            woken[row.id] = Wake(row.id, row.generation, row.digest)
    answers = await ports.store.install(started, incarnation_id=incarnation_id, fresh=True, ahead=tasks)
    installed = set()
    for snapshot, answer in zip(started, answers, strict=True):
        row = snapshot.execution
        if answer is Answer.YES:
            installed.add(row.id)
        else:
            woken[row.id] = Wake(row.id, row.generation, row.digest)
    await send([task for task in tasks if task.execution_id in installed], ports)
    if woken:
        await ports.transport.publish(list(woken.values()))


def _announce(rows: Sequence[ExecutionRow], submissions: Sequence[Submission], ports: Ports) -> None:
    """Announce that executions were created, and which of them were started."""
    recorded_events = []
    for row, submission in zip(rows, submissions, strict=True):
        created = History(
            seq=1,
            at=row.created_at,
            type="execution.created",
            execution=row.id,
            generation=row.generation,
            actor=submission.actor,
        )
        history = [created]
        if row.started_at is not None:
            history.append(replace(created, seq=2, type="execution.started", state=row.state, actor=None))
        event = ExecutionStarted(execution_id=row.id, generation=row.generation)
        recorded_events.append(
            RecordedEvent(event, Verdict.ACCEPTED, row, submission.plan, (), tuple(history))
        )
    ports.announce(recorded_events)
