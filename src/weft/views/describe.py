"""An execution as people see it: the journal's rows, and what the store knows of the rest."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from weft.core.attempt import AttemptRef
from weft.core.decide import ExecutionValues
from weft.core.output import node_value
from weft.core.payload import decode, encode
from weft.core.readiness import READY, WAIT, Readiness, readiness
from weft.core.rows import (
    READABLE,
    DeadLetter,
    ExecutionRow,
    History,
    NodeRow,
    payload_in,
    refuse_reading,
    shown_error,
    size_of,
)
from weft.core.state import ExecutionState, NodeState
from weft.definition.waits import WaitKind
from weft.errors import EvaluationError, NotFoundError, PayloadError, StoreError
from weft.expressions.scope import Scope
from weft.store.contract import NodeStatus, WorkerState
from weft.views.explain import Position, RetryDelay, awaited_children, explain, waits_for_turn
from weft.views.summary import Show, execution_fields, progress_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from weft.core.payload import Json
    from weft.core.rows import NodeProgress
    from weft.definition.model import Node
    from weft.definition.plan import Plan
    from weft.journal.contract import ChildQuery
    from weft.ports import ApiPorts, Ports
    from weft.store.contract import ExecutionStatus, WorkerStatus

# So many nodes are shown before others have a turn on the loop.
_SHOWN_AT_ONCE = 1000
# Of an execution with so few nodes the rows are read with their outputs, at most 8 MiB, by one query.
_FEW_NODES = 32
# What the outputs of one answer take together: an execution may have more than the memory holds.
SHOWN_OUTPUTS_BYTES = 32 * 1024 * 1024
# What a node takes as a row, and as it is shown, without its output.
_ROW_BYTES = 1024
# So much is read without asking whether there is room for it.
_FREE_BYTES = 256 * 1024
# So many events are read in one step.
_READ_AT_ONCE = 500
# Outputs are read in pieces of so many nodes, and of so many bytes.
_PIECE_NODES = 2000
_PIECE_BYTES = 4 * 1024 * 1024
# A larger output or config is shown only where one node is asked for.
SHOWN_OUTPUT_BYTES = 256 * 1024
# A config that reads more is filled in a thread: a megabyte of small values takes 20 ms.
_FILLED_ON_LOOP_BYTES = 64 * 1024


class Room(NamedTuple):
    """The memory and the turns that a caller of a server gets for reads that may be large."""

    # Called before so many bytes are read; raises an error where there is no room for them.
    hold: Callable[[int], None]
    # Entered for each large read: others have their turn between two of them.
    turn: AbstractAsyncContextManager[None]

    def turn_for(self, count: int) -> AbstractAsyncContextManager[None]:
        """Return the context to read so many bytes in."""
        return self.turn if count > _FREE_BYTES else nullcontext()


# In a process of the caller's own nobody else needs the memory.
ALL_ROOM = Room(lambda count: None, nullcontext())

# The state that a node is shown in while the store has it in a phase; in any other phase it is PENDING.
PHASE_STATES = {
    "queued": NodeState.QUEUED,
    "throttled": NodeState.QUEUED,
    "timer": NodeState.QUEUED,
    "orphaned": NodeState.QUEUED,
    "running": NodeState.RUNNING,
    "parked": NodeState.RUNNING,
}
_ENDS = {
    "node.completed": "completed",
    "node.failed": "failed",
    "node.retrying": "failed",
    "node.polled": "polled",
    "node.lost": "lost",
    "node.cancelled": "cancelled",
}


async def describe_execution(
    execution_id: str,
    ports: ApiPorts,
    *,
    namespace: str | None = None,
    brief: bool = False,
    show: Show = decode,
    room: Room = ALL_ROOM,
) -> dict[str, Any]:
    """Return an execution with its nodes, in the order of the definition.

    ``brief`` leaves out the outputs and errors of the nodes. Outputs over ``SHOWN_OUTPUT_BYTES`` are left
    out, and all behind those that take ``SHOWN_OUTPUTS_BYTES`` together.
    """
    execution, plan, rows, status = await _read(
        execution_id, ports, namespace, room=room, has_outputs=not brief
    )
    told = await ports.catalog.progress(execution_id)
    children = await _child_counts(execution_id, plan, ports)
    counts = dict.fromkeys(NodeState, 0)
    nodes = []
    for index, node_id in enumerate(plan.graph.ids):
        if index and index % _SHOWN_AT_ONCE == 0:
            await asyncio.sleep(0)
        node = _node(node_id, rows.get(node_id), plan, status, show, told, children)
        counts[node["state"]] += 1
        if brief:
            del node["output"], node["error"]
        nodes.append(node)
    live = execution.is_terminal or status is not None
    trace_id = ports.trace_id(execution)
    fields = execution_fields(execution, counts, trace_id=trace_id, live=live, show=show)
    return {**fields, "nodes": nodes}


async def describe_nodes(
    execution_id: str,
    ports: ApiPorts,
    *,
    namespace: str | None = None,
    states: Collection[NodeState] = (),
    start: int = 0,
    limit: int,
    show: Show = decode,
    room: Room = ALL_ROOM,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return up to ``limit`` nodes from index ``start`` of the definition on, and the next index or None.

    ``states``: only nodes that are in one of these; none given: all.
    """
    _, plan, rows, status = await _read(execution_id, ports, namespace, room=room)
    told = await ports.catalog.progress(execution_id)
    shown: list[str] = []
    next_place = None
    for place in range(start, len(plan.graph.ids)):
        node_id = plan.graph.ids[place]
        row = rows.get(node_id)
        if states and _state(row, None if status is None else status.nodes.get(node_id)) not in states:
            continue
        if len(shown) == limit:
            next_place = place
            break
        shown.append(node_id)
    rows = await _with_outputs(execution_id, rows, shown, ports, room)
    children = await _child_counts(execution_id, plan, ports)
    nodes = [_node(node_id, rows.get(node_id), plan, status, show, told, children) for node_id in shown]
    return nodes, next_place


async def describe_node(
    execution_id: str,
    node_id: str,
    ports: ApiPorts,
    *,
    namespace: str | None = None,
    show: Show = decode,
    room: Room = ALL_ROOM,
) -> dict[str, Any]:
    """Return one node with its config, all its attempts and its whole output."""
    execution, plan, rows, status = await _read(execution_id, ports, namespace, node_id=node_id, room=room)
    row = rows.get(node_id)
    if row is not None and row.state is NodeState.COMPLETED:
        if size_of(row) > _FREE_BYTES:
            room.hold(size_of(row))
        # Read again whole: it has not changed, or only by a retry just now.
        rows = {**rows, **await ports.catalog.nodes(execution_id, names=[node_id])}
        row = rows.get(node_id)
    told = await ports.catalog.progress(execution_id, names=[node_id])
    children = await _child_counts(execution_id, plan, ports)
    node = _node(node_id, row, plan, status, show, told, children)
    if row is not None and row.is_settled and row.blob is not None:
        node["output"] = show((await ports.catalog.blobs([row.blob]))[row.blob])
    elif row is not None and row.output is not None:
        node["output"] = show(row.output)
    generation = execution.generation if row is None else row.generation
    reader = _ConfigReader(execution, plan, rows, ports, room)
    config = await reader.config(node_id, generation=generation)
    node["config"] = None if config is None else show(config)
    node["generation"] = execution.generation
    node["max_retries"] = plan.nodes[node_id].max_retries
    node["attempts"] = (await attempts_of(execution_id, [node_id], ports))[node_id]
    return node


async def describe_dead_letters(
    letters: Sequence[DeadLetter],
    ports: ApiPorts,
    *,
    show: Show = decode,
    most_bytes: int = SHOWN_OUTPUT_BYTES,
    room: Room = ALL_ROOM,
) -> list[dict[str, Any]]:
    """Return dead letters in their order, each with the config and the attempts of its generation.

    A config over ``most_bytes``, or one that reads more than four times as much, is None, and so are all
    behind those that take ``SHOWN_OUTPUTS_BYTES`` together: a page may be larger than the memory.
    """
    shown: dict[str, dict[str, Any]] = {}
    left_bytes = SHOWN_OUTPUTS_BYTES
    by_execution: dict[str, list[DeadLetter]] = {}
    for letter in letters:
        by_execution.setdefault(letter.execution_id, []).append(letter)
    # Rows and history of an execution are read once, however many of its nodes have failed.
    for execution_id, own in by_execution.items():
        try:
            execution, plan = await _find(execution_id, ports)
        except NotFoundError:
            continue  # removed meanwhile, with its letters
        failed = {letter.node_id for letter in own}
        names = failed.union(*(plan.visible_nodes[node_id] for node_id in failed))
        rows = await ports.catalog.node_states(execution_id, names=names)
        reader = _ConfigReader(execution, plan, rows, ports, room, most_bytes=most_bytes)
        attempts = await attempts_of(execution_id, failed, ports)
        for letter in own:
            config = await reader.config(letter.node_id, generation=letter.generation)
            value = None
            if config is not None and len(config) <= min(most_bytes, left_bytes):
                left_bytes -= len(config)
                room.hold(len(config))
                value = show(config)
            shown[letter.id] = _letter(letter, value, attempts[letter.node_id])
    return [shown[letter.id] for letter in letters if letter.id in shown]


async def describe_dead_letter(
    letter: DeadLetter, ports: ApiPorts, *, show: Show = decode, room: Room = ALL_ROOM
) -> dict[str, Any]:
    """Return one dead letter as shown to callers, with its whole config, or raise NotFoundError."""
    most_bytes = ports.bounds.max_payload_bytes
    shown = await describe_dead_letters([letter], ports, show=show, most_bytes=most_bytes, room=room)
    if not shown:
        raise NotFoundError(f"there is no dead letter {letter.id}")
    return shown[0]


def _letter(letter: DeadLetter, config: Json, attempts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": letter.id,
        "execution": letter.execution_id,
        "workflow": letter.workflow,
        "node": letter.node_id,
        "generation": letter.generation,
        "attempt": letter.attempt,
        "handler": letter.handler,
        "queue": letter.queue,
        "config": config,
        "error": shown_error(letter.error),
        "attempts": [attempt for attempt in attempts if attempt["generation"] == letter.generation],
        "state": letter.state,
        "created_at": time_of(letter.created_at),
    }


async def attempts_of(
    execution_id: str, node_ids: Collection[str], ports: ApiPorts
) -> dict[str, list[dict[str, Any]]]:
    """Read the attempts of nodes from the history: the end of each is an event."""
    found: dict[str, dict[int, dict[str, Any]]] = {node_id: {} for node_id in node_ids}
    after = 0
    while page := await ports.catalog.events(execution_id, after=after, limit=_READ_AT_ONCE, nodes=found):
        for event in page:
            outcome = _ENDS.get(event.type)
            if outcome is None or not event.attempt:
                continue
            assert event.node is not None
            attempts = found[event.node]
            if outcome == "failed" and attempts.get(event.attempt, {}).get("outcome") == "lost":
                continue  # a node that failed because this attempt was lost
            if outcome == "cancelled" and event.started_at is None:
                continue  # no attempt was in hand
            attempts[event.attempt] = _attempt(event, outcome)
        if len(page) < _READ_AT_ONCE:
            break
        after = page[-1].seq
    return {node_id: [attempts[number] for number in sorted(attempts)] for node_id, attempts in found.items()}


async def explain_node(
    execution_id: str,
    node_id: str,
    ports: ApiPorts,
    *,
    namespace: str | None = None,
    workers: Sequence[WorkerStatus] | None,
    room: Room = ALL_ROOM,
) -> dict[str, Any]:
    """Return a node's state and the reasons why the node is not running.

    ``workers``: those that are known (None: one serves whatever comes).
    """
    execution, plan, rows, status = await _read(execution_id, ports, namespace, node_id=node_id, room=room)
    row = rows.get(node_id) or NodeRow(node_id=node_id)
    position = None
    if status is not None:
        seen = status.nodes.get(node_id)
        position = Position(
            seen.phase if seen else None,
            seen.awaited if seen else (),
            seen.due_at if seen else None,
            status.slots_taken,
            status.slots,
            seen.memory if seen else None,
        )
    limit = plan.definition.max_concurrency
    reasons = explain(
        plan,
        execution,
        row,
        position,
        settled={settled.node_id for settled in rows.values() if settled.is_settled},
        served=workers is None or any(_takes(worker, plan.nodes[node_id]) for worker in workers),
        max_concurrency_binds=status is not None and limit is not None and limit <= status.slots,
        retrying=await _retrying(execution_id, row, ports)
        if position and position.phase == "timer"
        else None,
    )
    if row.wait is not None and row.wait.kind is WaitKind.CHILD:
        children = await _child_counts(execution_id, plan, ports)
        reasons = [awaited_children(row, row.wait, children.get(node_id, {}))]
    place = None
    if reasons and execution.lanes and execution.started_at is None:
        place = await ports.catalog.place_in_queue(execution_id)
    if place is not None:
        reasons = [waits_for_turn(place), *[reason for reason in reasons if reason.code != "starting"]]
    shown = []
    for reason in reasons:
        item: dict[str, Any] = {"code": reason.code, "message": reason.message}
        if reason.until is not None:
            item["until"] = time_of(reason.until)
        if reason.nodes is not None:
            item["nodes"] = list(reason.nodes)
        shown.append(item)
    seen = None if status is None else status.nodes.get(node_id)
    return {"state": _state(rows.get(node_id), seen), "reasons": shown}


async def _child_counts(
    execution_id: str, plan: Plan, ports: ApiPorts
) -> Mapping[str, Mapping[ExecutionState, int]]:
    """Count the children of nodes by their states, where nodes of the definition run workflows."""
    return await ports.catalog.child_counts(execution_id) if plan.calls else {}


async def describe_children(
    query: ChildQuery,
    ports: ApiPorts,
    *,
    namespace: str | None = None,
    after: int = -1,
    limit: int,
) -> tuple[list[ExecutionRow], Mapping[ExecutionState, int]]:
    """Return children of a node in the order of their items, and how many it has by state."""
    execution, plan = await _find(query.execution_id, ports, namespace)
    _require_node(execution, plan, query.node_id)
    rows = await ports.catalog.children(query, after=after, limit=limit)
    counts = await _child_counts(execution.id, plan, ports)
    return list(rows), counts.get(query.node_id, {})


async def _retrying(execution_id: str, row: NodeRow, ports: ApiPorts) -> RetryDelay | None:
    """Return what scheduled a node's next attempt, or None if another event made its row."""
    found = await ports.catalog.events(execution_id, after=row.seq - 1, limit=1, nodes=[row.node_id])
    if not found or found[0].seq != row.seq or found[0].type != "node.retrying":
        return None
    return RetryDelay(found[0], ports.max_retry_after_seconds)


def serves(worker: WorkerStatus, queue: str) -> bool:
    """True if a worker takes tasks of this queue now."""
    return worker.state is WorkerState.ALIVE and (worker.queues is None or queue in worker.queues)


def _takes(worker: WorkerStatus, node: Node) -> bool:
    return serves(worker, node.queue) and node.handler in worker.handlers


async def _read(
    execution_id: str,
    ports: ApiPorts,
    namespace: str | None,
    *,
    node_id: str | None = None,
    room: Room = ALL_ROOM,
    has_outputs: bool = False,
) -> tuple[ExecutionRow, Plan, Mapping[str, NodeRow], ExecutionStatus | None]:
    """Read all that is shown of an execution, so that the parts fit together.

    They are read one after the other while the execution goes on. The store comes first: a node that
    leaves it meanwhile has a row by then, so nothing is shown further back than it was before.

    ``node_id``: only that node, and those whose outcomes it sees; the others may be a hundred thousand.
    ``has_outputs``: the rows come with the outputs that one answer shows.
    """
    has_room = False
    while True:
        status = await _look(execution_id, ports, names=None if node_id is None else [node_id])
        execution, plan = await _find(execution_id, ports, namespace)
        names: Collection[str] = plan.nodes
        if node_id is not None:
            _require_node(execution, plan, node_id)
            names = {node_id, *plan.visible_nodes[node_id]}
        if has_outputs and execution.total <= _FEW_NODES:
            rows = await ports.catalog.nodes(execution_id)
        else:
            size = _ROW_BYTES * len(names)
            if size > _FREE_BYTES and not has_room:
                room.hold(size)
                has_room = True
            async with room.turn_for(size):
                rows = await ports.catalog.node_states(execution_id, names=None if node_id is None else names)
        if has_outputs:
            rows = await _with_outputs(execution_id, rows, plan.graph.ids, ports, room)
        now, _ = await _find(execution_id, ports)
        if now.generation != execution.generation:
            continue  # the rows may be of either
        if now.is_terminal and sum(row.is_settled for row in rows.values()) == len(names):
            return now, plan, rows, None
        return execution, plan, rows, status and await _with_rates(status, execution, ports)


async def _look(execution_id: str, ports: Ports, *, names: Collection[str] | None) -> ExecutionStatus | None:
    """Return the execution's live status in the store, or None.

    A store that is away has nothing to show: what is recorded is shown without it.
    """
    try:
        return await ports.store.inspect(execution_id, names=names)
    except StoreError:
        return None


async def _with_rates(status: ExecutionStatus, execution: ExecutionRow, ports: Ports) -> ExecutionStatus:
    """Add to throttled nodes when their token is due."""
    throttled = {name: node for name, node in status.nodes.items() if node.phase == "throttled"}
    if not throttled:
        return status
    due: dict[AttemptRef, int] = {}
    for tag in {node.resource_tag for node in throttled.values() if node.resource_tag is not None}:
        with suppress(StoreError):
            due |= await ports.limits.due(tag)
    timed = {
        name: replace(
            node, due_at=due.get(AttemptRef(execution.id, execution.generation, name, node.attempt))
        )
        for name, node in throttled.items()
    }
    return replace(status, nodes=status.nodes | timed)


def _require_node(execution: ExecutionRow, plan: Plan, node_id: str) -> None:
    if node_id not in plan.nodes:
        raise NotFoundError(f"execution {execution.id} has no node {node_id!r}")


async def _with_outputs(
    execution_id: str, rows: Mapping[str, NodeRow], names: Sequence[str], ports: ApiPorts, room: Room
) -> Mapping[str, NodeRow]:
    """Return the rows, those of ``names`` with the outputs that one answer shows."""
    # A large read goes in pieces.
    pieces: list[list[str]] = []
    total = piece_bytes = 0
    for name in names:
        row = rows.get(name)
        if row is None or row.state is not NodeState.COMPLETED or row.blob is not None:
            continue
        size = size_of(row)
        if row.output is not None or size > SHOWN_OUTPUT_BYTES:
            continue
        if total + size > SHOWN_OUTPUTS_BYTES:
            break
        total += size
        piece_bytes += size
        if not pieces or piece_bytes > _PIECE_BYTES or len(pieces[-1]) == _PIECE_NODES:
            pieces.append([])
            piece_bytes = size
        pieces[-1].append(name)
    if total > _FREE_BYTES:
        room.hold(total)
    found: dict[str, NodeRow] = {}
    for names_of_piece in pieces:
        async with room.turn_for(total):
            found |= await ports.catalog.nodes(execution_id, names=names_of_piece)
    return {**rows, **found} if found else rows


class _ConfigReader:
    """Fills configs of an execution again from the rows of its nodes, which come without outputs."""

    def __init__(
        self,
        execution: ExecutionRow,
        plan: Plan,
        rows: Mapping[str, NodeRow],
        ports: ApiPorts,
        room: Room,
        *,
        most_bytes: int | None = None,
    ) -> None:
        """``most_bytes``: of the largest config that is wanted; by default that of any payload."""
        self._execution = execution
        self._plan = plan
        self._rows = rows
        self._ports = ports
        self._room = room
        self._most_bytes = ports.bounds.max_payload_bytes if most_bytes is None else most_bytes

    async def config(self, node_id: str, *, generation: int) -> bytes | None:
        """Return the config as the handler got it in a generation, with secrets redacted.

        It is stored nowhere. None: it is not filled yet, could not be filled, reads too much, or an output in
        it has been replaced in a later generation.
        """
        execution, rows, ports = self._execution, self._rows, self._ports
        template = self._plan.templates[node_id]
        if template.is_static:
            return self._plan.static_configs[node_id]
        seen = _seen(node_id, self._plan, rows, generation)
        if seen is None or any(
            name in rows and rows[name].generation > generation for name in template.nodes
        ):
            return None
        named = {name: seen[name] for name in template.nodes if name in seen}
        size = len(execution.input) + sum([size_of(row) for row in named.values()])
        if size > READABLE * self._most_bytes:
            return None
        if size > _FREE_BYTES:
            self._room.hold(size)
        within = [name for name, row in named.items() if row.output is None and row.blob is None]
        async with self._room.turn_for(size):
            if within:
                named |= await ports.catalog.nodes(execution.id, names=within)
            blobs = await ports.catalog.blobs([row.blob for row in named.values() if row.blob is not None])

        def fill() -> bytes | None:
            read = list(named.values())
            try:
                refuse_reading(
                    read,
                    max_bytes=ports.bounds.max_payload_bytes,
                    payload_of=lambda row: payload_in(row, blobs),
                )
            except PayloadError:
                return None
            nodes = {name: node_value(row, blobs.__getitem__) for name, row in named.items()}
            facts = {**ExecutionValues(execution), "generation": generation}
            max_bytes = ports.bounds.max_payload_bytes
            try:
                filled = template.fill(Scope(execution.input, facts, nodes, decode), max_bytes=max_bytes)
                return encode(filled.value, max_bytes=max_bytes)
            except (EvaluationError, PayloadError):
                return None

        return await asyncio.to_thread(fill) if size > _FILLED_ON_LOOP_BYTES else fill()


def _seen(
    node_id: str, plan: Plan, rows: Mapping[str, NodeRow], generation: int
) -> Mapping[str, NodeRow] | None:
    """Return the outcomes that were fixed when the node became ready; None if the node did not."""
    settled = [
        row for name in plan.visible_nodes[node_id] if (row := rows.get(name)) is not None and row.is_settled
    ]
    # What an earlier generation left was there at once, the others came in the order of their events.
    before = {row.node_id: row for row in settled if row.generation < generation}
    others = sorted((row for row in settled if row.generation == generation), key=lambda row: row.seq)
    node, parents = plan.nodes[node_id], plan.graph.parents[node_id]

    def seen(count: int) -> dict[str, NodeRow]:
        return before | {row.node_id: row for row in others[:count]}

    def decided(count: int) -> Readiness:
        rows = seen(count)
        known = [rows[parent] for parent in parents if parent in rows]
        return readiness(node_id, node.trigger_rule, known, waiting=len(parents) - len(known))

    # What is decided stays so. To go through them one by one would take a join of ten thousand minutes.
    count = bisect_left(range(len(others)), True, key=lambda count: decided(count) is not WAIT)
    return seen(count) if decided(count) is READY else None


async def _find(
    execution_id: str, ports: ApiPorts, namespace: str | None = None
) -> tuple[ExecutionRow, Plan]:
    execution = await ports.catalog.execution(execution_id, namespace=namespace)
    plan = None if execution is None else await ports.catalog.plan(execution.digest)
    if execution is None or plan is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    return execution, plan


def _state(row: NodeRow | None, seen: NodeStatus | None) -> NodeState:
    if row is not None and row.state is not None:
        return row.state
    if row is not None and row.parked is not None:
        return NodeState.RUNNING if row.wait is None else NodeState.WAITING
    if row is not None and row.is_between_looks and (seen is None or seen.phase == "timer"):
        return NodeState.WAITING
    return NodeState.PENDING if seen is None else PHASE_STATES.get(seen.phase, NodeState.PENDING)


def _node(
    node_id: str,
    row: NodeRow | None,
    plan: Plan,
    status: ExecutionStatus | None,
    show: Show,
    told: Mapping[str, tuple[int, NodeProgress]],
    children: Mapping[str, Mapping[ExecutionState, int]],
) -> dict[str, Any]:
    row = row or NodeRow(node_id=node_id)
    seen = status.nodes.get(node_id) if status is not None and row.state is None else None
    if row.parked is not None and row.state is None:
        # Its start is recorded: the store need not be asked, and may be away.
        seen = NodeStatus("parked", row.attempt, (), row.parked.due_at, row.queued_at, row.started_at)
    # In flight: the attempt under way. Otherwise the latest that ended.
    now = seen if seen is not None and seen.queued_at is not None else None
    has_output = row.output is not None and len(row.output) <= SHOWN_OUTPUT_BYTES
    # From the cache it came without an attempt, whatever was tried before.
    attempt = 0 if row.has_no_attempt else now.attempt if now else row.ended
    spoke, progress = told.get(node_id, (0, None))
    return {
        "id": node_id,
        "handler": plan.nodes[node_id].handler,
        "state": _state(row, seen),
        "attempt": attempt,
        "queued_at": time_of(now.queued_at if now else row.queued_at),
        "started_at": time_of(now.started_at if now else row.started_at),
        "finished_at": time_of(None if now else row.finished_at),
        "due_at": time_of(_due_at(row, seen)),
        "worker": now.worker if now else row.worker,
        # Of the attempt that is shown, not of one before it.
        "progress": progress_of(progress) if progress is not None and spoke == attempt else None,
        "reason": row.reason,
        "cause": row.cause,
        "cached": row.cached,
        "reused": row.reused,
        "children": {"counts": children.get(node_id, {})} if node_id in plan.calls else None,
        "error": shown_error(row.error),
        "output": show(row.output) if has_output and row.output is not None else None,
        "output_bytes": None if row.state is None else row.output_bytes,
    }


def _due_at(row: NodeRow, seen: NodeStatus | None) -> int | None:
    if row.state is not None:
        return None
    if seen is not None:
        return seen.due_at
    return row.retry_at


def _attempt(event: History, outcome: str) -> dict[str, Any]:
    return {
        "number": event.attempt,
        "generation": event.generation,
        "worker": event.worker,
        "queued_at": time_of(event.queued_at),
        "started_at": time_of(event.started_at),
        "finished_at": time_of(event.finished_at),
        "outcome": outcome,
        "error": shown_error(event.error),
    }
