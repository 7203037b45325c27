"""An execution as people see it: the journal's rows, and what the store knows of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core.explain import Position, explain
from weft.core.expression import Scope
from weft.core.output import execution_facts, node_value
from weft.core.payload import decode
from weft.core.readiness import READY, WAIT, readiness
from weft.core.row import DeadLetter, ExecutionRow, History, NodeRow
from weft.core.state import NodeState
from weft.core.time import rfc3339
from weft.errors import EvaluationError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from weft.core.payload import Json
    from weft.core.plan import Plan
    from weft.ports import Ports
    from weft.store.contract import NodeSight, Sight

# A larger output is shown only where one node is asked for.
SHOWN_OUTPUT_BYTES = 256 * 1024

_PHASES = {
    "queued": NodeState.QUEUED,
    "lined": NodeState.QUEUED,
    "timer": NodeState.QUEUED,
    "limbo": NodeState.QUEUED,
    "running": NodeState.RUNNING,
    "reported": NodeState.RUNNING,
}
_ENDS = {
    "node.completed": "completed",
    "node.failed": "failed",
    "node.retrying": "failed",
    "node.lost": "lost",
    "node.cancelled": "cancelled",
}


async def describe_execution(execution_id: str, ports: Ports) -> dict[str, Any]:
    """Give an execution with its nodes, in the order of the definition."""
    execution, plan, rows, sight = await _read(execution_id, ports)
    nodes = [_node(node_id, rows.get(node_id), plan, sight) for node_id in plan.graph.ids]
    counts = dict.fromkeys(NodeState, 0)
    for node in nodes:
        counts[node["state"]] += 1
    return {
        "id": execution.id,
        "workflow": execution.workflow,
        "version": execution.version,
        "digest": execution.digest,
        "generation": execution.generation,
        "state": execution.state,
        "live": execution.is_terminal or sight is not None,
        "input": decode(execution.input),
        "output": None if execution.output is None else decode(execution.output),
        "error": execution.error,
        "labels": execution.labels,
        "priority": execution.priority,
        "batch": execution.batch,
        "created_at": _time(execution.created_at),
        "started_at": _time(execution.started_at),
        "finished_at": _time(execution.finished_at),
        "counts": counts,
        "nodes": nodes,
    }


async def describe_node(execution_id: str, node_id: str, ports: Ports) -> dict[str, Any]:
    """Give one node with its config, all its attempts and its whole output."""
    execution, plan, rows, sight = await _read(execution_id, ports)
    _require_node(execution, plan, node_id)
    row = rows.get(node_id)
    node = _node(node_id, row, plan, sight)
    if row is not None and row.blob is not None:
        node["output"] = decode((await ports.journal.blobs([row.blob]))[row.blob])
    elif row is not None and row.output is not None:
        node["output"] = decode(row.output)
    generation = execution.generation if row is None else row.generation
    node["config"] = await _config(node_id, execution, plan, rows, ports, generation=generation)
    node["generation"] = execution.generation
    node["attempts"] = await attempts_of(execution_id, node_id, ports)
    return node


async def describe_dead_letter(letter: DeadLetter, ports: Ports) -> dict[str, Any]:
    """Give a dead letter with the config and the attempts of its generation."""
    execution, plan = await _find(letter.execution_id, ports)
    rows = await ports.journal.nodes(letter.execution_id)
    attempts = await attempts_of(letter.execution_id, letter.node_id, ports)
    return {
        "id": letter.id,
        "execution": letter.execution_id,
        "workflow": letter.workflow,
        "node": letter.node_id,
        "generation": letter.generation,
        "attempt": letter.attempt,
        "handler": letter.handler,
        "queue": letter.queue,
        "config": await _config(letter.node_id, execution, plan, rows, ports, generation=letter.generation),
        "error": letter.error,
        "attempts": [attempt for attempt in attempts if attempt["generation"] == letter.generation],
        "state": letter.state,
        "created_at": _time(letter.created_at),
    }


async def attempts_of(execution_id: str, node_id: str, ports: Ports) -> list[dict[str, Any]]:
    """Read a node's attempts from the history: the end of each is an event."""
    attempts: dict[int, dict[str, Any]] = {}
    after = 0
    while True:
        page = await ports.journal.events(execution_id, after=after)
        for event in page:
            outcome = _ENDS.get(event.type)
            if event.node == node_id and outcome is not None and event.attempt:
                if outcome == "failed" and attempts.get(event.attempt, {}).get("outcome") == "lost":
                    continue  # a node that failed because this attempt was lost
                if outcome == "cancelled" and event.started_at is None:
                    continue  # no attempt was in hand
                attempts[event.attempt] = _attempt(event, outcome)
        if not page:
            return [attempts[number] for number in sorted(attempts)]
        after = page[-1].seq


async def explain_node(
    execution_id: str, node_id: str, ports: Ports, *, queues: Collection[str] | None
) -> dict[str, Any]:
    """Say why a node is not running. ``queues``: those that a living worker serves (None: all)."""
    execution, plan, rows, sight = await _read(execution_id, ports)
    _require_node(execution, plan, node_id)
    row = rows.get(node_id) or NodeRow(node_id=node_id)
    position = None
    if sight is not None:
        seen = sight.nodes.get(node_id)
        position = Position(
            seen.phase if seen else None,
            seen.awaited if seen else (),
            seen.due_at if seen else None,
            sight.places_taken,
            sight.places,
        )
    limit = plan.definition.max_concurrency
    reasons = explain(
        plan,
        execution,
        row,
        position,
        settled={settled.node_id for settled in rows.values() if settled.is_settled},
        served=queues is None or plan.nodes[node_id].queue in queues,
        max_concurrency_binds=sight is not None and limit is not None and limit <= sight.places,
    )
    shown = []
    for reason in reasons:
        item: dict[str, Any] = {"code": reason.code, "message": reason.message}
        if reason.until is not None:
            item["until"] = _time(reason.until)
        if reason.nodes is not None:
            item["nodes"] = list(reason.nodes)
        shown.append(item)
    return {"state": _node(node_id, rows.get(node_id), plan, sight)["state"], "reasons": shown}


async def _read(
    execution_id: str, ports: Ports
) -> tuple[ExecutionRow, Plan, Mapping[str, NodeRow], Sight | None]:
    """Read all that is shown of an execution, so that the parts fit together.

    They are read one after the other while the execution goes on. The store comes first: a node that
    leaves it meanwhile has a row by then, so nothing is shown further back than it was before.
    """
    while True:
        sight = await ports.store.look(execution_id)
        execution, plan = await _find(execution_id, ports)
        rows = await ports.journal.nodes(execution_id)
        now, _ = await _find(execution_id, ports)
        if now.generation != execution.generation:
            continue  # the rows may be of either
        if now.is_terminal and sum(row.is_settled for row in rows.values()) == len(plan.nodes):
            return now, plan, rows, None
        return execution, plan, rows, sight


def _require_node(execution: ExecutionRow, plan: Plan, node_id: str) -> None:
    if node_id not in plan.nodes:
        raise NotFoundError(f"execution {execution.id} has no node {node_id!r}")


async def _config(
    node_id: str,
    execution: ExecutionRow,
    plan: Plan,
    rows: Mapping[str, NodeRow],
    ports: Ports,
    *,
    generation: int,
) -> Json:
    """Give the config as the handler got it in a generation, with secrets redacted.

    It is stored nowhere and filled again from the rows. None: it is not filled yet, could not be filled,
    or an output in it has been replaced in a later generation.
    """
    template = plan.templates[node_id]
    if template.is_static:
        return template.value
    seen = _seen(node_id, plan, rows, generation)
    if seen is None or any(name in rows and rows[name].generation > generation for name in template.nodes):
        return None
    named = {name: seen[name] for name in template.nodes if name in seen}
    blobs = await ports.journal.blobs([row.blob for row in named.values() if row.blob is not None])
    scope = Scope(
        input=decode(execution.input),
        execution={**execution_facts(execution), "generation": generation},
        nodes={name: node_value(row, blobs.__getitem__) for name, row in named.items()},
    )
    try:
        return template.fill(scope, max_bytes=ports.bounds.max_payload_bytes).value
    except EvaluationError:
        return None


def _seen(
    node_id: str, plan: Plan, rows: Mapping[str, NodeRow], generation: int
) -> Mapping[str, NodeRow] | None:
    """Give the outcomes that were fixed when the node became free; None: it was not, or was skipped."""
    settled = [row for name in plan.wanted[node_id] if (row := rows.get(name)) is not None and row.is_settled]
    # What an earlier generation left was there at once, the others came in the order of their events.
    seen = {row.node_id: row for row in settled if row.generation < generation}
    others = sorted((row for row in settled if row.generation == generation), key=lambda row: row.seq)
    node, parents = plan.nodes[node_id], plan.graph.parents[node_id]
    while True:
        known = [seen[parent] for parent in parents if parent in seen]
        ready = readiness(node_id, node.trigger_rule, known, waiting=len(parents) - len(known))
        if ready is READY:
            return seen
        if ready is not WAIT or not others:
            return None
        row = others.pop(0)
        seen[row.node_id] = row


async def _find(execution_id: str, ports: Ports) -> tuple[ExecutionRow, Plan]:
    execution = await ports.journal.execution(execution_id)
    plan = None if execution is None else await ports.journal.plan(execution.digest)
    if execution is None or plan is None:
        raise NotFoundError(f"there is no execution {execution_id}")
    return execution, plan


def _node(node_id: str, row: NodeRow | None, plan: Plan, sight: Sight | None) -> dict[str, Any]:
    row = row or NodeRow(node_id=node_id)
    seen = sight.nodes.get(node_id) if sight is not None and row.state is None else None
    state = row.state or (NodeState.PENDING if seen is None else _PHASES.get(seen.phase, NodeState.PENDING))
    # In flight: the attempt under way. Otherwise the latest that ended.
    now = seen if seen is not None and seen.queued_at is not None else None
    has_output = row.output is not None and len(row.output) <= SHOWN_OUTPUT_BYTES
    return {
        "id": node_id,
        "handler": plan.nodes[node_id].handler,
        "state": state,
        # From the cache it came without an attempt, whatever was tried before.
        "attempt": 0 if row.cached else now.attempt if now else row.ended,
        "queued_at": _time(now.queued_at if now else row.queued_at),
        "started_at": _time(now.started_at if now else row.started_at),
        "finished_at": _time(None if now else row.finished_at),
        "due_at": _time(_due_at(row, seen)),
        "worker": now.worker if now else row.worker,
        "reason": row.reason,
        "cause": row.cause,
        "cached": row.cached,
        "error": row.error,
        "output": decode(row.output) if has_output and row.output is not None else None,
        "output_bytes": row.output_bytes,
    }


def _due_at(row: NodeRow, seen: NodeSight | None) -> int | None:
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
        "queued_at": _time(event.queued_at),
        "started_at": _time(event.started_at),
        "finished_at": _time(event.finished_at),
        "outcome": outcome,
        "error": event.error,
    }


def _time(at: int | None) -> str | None:
    return None if at is None else rfc3339(at)
