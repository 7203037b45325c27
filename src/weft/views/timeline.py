"""The attempts of an execution in time, as columns, with what decided its end or will decide it.

Columns of numbers take a fifth of the text that an object for each attempt takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from weft.core.state import ExecutionState, NodeState
from weft.core.time import rfc3339
from weft.errors import NotFoundError, StoreError
from weft.journal.contract import DEFAULT_NAMESPACE, ExecutionQuery
from weft.views.critical_path import critical_path
from weft.views.describe import PHASE_STATES
from weft.views.prediction import NodeDurations, expect, gather, merged, remaining_seconds
from weft.views.summary import time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weft.core.rows import ExecutionRow, History, NodeRow
    from weft.definition.plan import Plan
    from weft.ports import ApiPorts
    from weft.store.contract import NodeStatus
    from weft.views.prediction import Expectation

# Attempts that are shown: a drawing of more has several in each pixel, and they take 10 MB of text.
MAX_ATTEMPTS = 100_000
# Executions that a prediction is made from, and their nodes in all: rows take 5 µs each to read.
SAMPLES = 20
_SAMPLED_NODES = 100_000
# Events, and names of nodes, that are asked for at once.
_READ_EVENTS = 1000
_ASKED_NODES = 2000

_OUTCOMES = {
    "node.completed": "C",
    "node.failed": "F",
    "node.retrying": "F",
    "node.polled": "P",
    "node.lost": "L",
    "node.cancelled": "X",
}
_OUTCOME_OF_STATE = {NodeState.COMPLETED: "C", NodeState.FAILED: "F", NodeState.CANCELLED: "X"}


class AttemptTimes(NamedTuple):
    """One attempt of a node; times in microseconds since 1970."""

    node_id: str
    number: int
    generation: int
    queued_at: int | None
    started_at: int | None
    finished_at: int | None
    # C completed, F failed, L lost, P polled, X cancelled; None while it is under way.
    outcome: str | None
    worker: str | None


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, statuses and attempts that a timeline is made of."""

    execution: ExecutionRow
    plan: Plan
    rows: Mapping[str, NodeRow]
    # Where the store has the nodes that are open.
    statuses: Mapping[str, NodeStatus]
    # Attempts before the last of each node.
    earlier: Sequence[AttemptTimes]
    # Whether there are more earlier attempts than were read.
    is_cut: bool
    # What the nodes took in executions that have completed; None: this one is not under way.
    durations: NodeDurations | None
    now: int


# --- Reading.


async def read_timeline(execution: ExecutionRow, ports: ApiPorts, durations: NodeDurations | None) -> Reading:
    """Read the attempts of an execution; ``execution`` is its row as it was a moment ago."""
    while True:
        plan = await ports.catalog.plan(execution.digest)
        rows = dict(await ports.catalog.node_states(execution.id))
        statuses = {} if execution.is_terminal else await _statuses(execution, plan, rows, ports)
        again = await ports.catalog.execution(execution.id)
        if plan is None or again is None:
            raise NotFoundError(f"there is no execution {execution.id}")
        if again.generation == execution.generation:
            break
        execution = again  # the rows may be of either
    execution = msgspec.structs.replace(execution, input=b"", output=None)
    retried = [name for name, row in rows.items() if row.attempt > 1]
    earlier, is_cut = await _earlier(execution.id, retried, ports)
    return Reading(
        execution=execution,
        plan=plan,
        rows=rows,
        statuses=statuses,
        earlier=earlier,
        is_cut=is_cut,
        durations=durations,
        now=ports.clock.now(),
    )


async def _statuses(
    execution: ExecutionRow, plan: Plan | None, rows: dict[str, NodeRow], ports: ApiPorts
) -> dict[str, NodeStatus]:
    """Read where the store has the nodes that may be open, and bring ``rows`` up to date with it.

    Without the store nothing is known of them, and nothing fails.
    """
    names = [] if plan is None else may_be_open(plan, rows)
    found: dict[str, NodeStatus] = {}
    try:
        for start in range(0, len(names), _ASKED_NODES):
            status = await ports.store.inspect(execution.id, names=names[start : start + _ASKED_NODES])
            found |= {} if status is None else status.nodes
    except StoreError:
        return {}
    # What the store has no more has settled since the rows were read.
    missing = [name for name in names if name not in found]
    if missing and found:
        rows |= await ports.catalog.node_states(execution.id, names=missing)
    return found


def may_be_open(plan: Plan, rows: Mapping[str, NodeRow]) -> list[str]:
    """Return the unsettled nodes that an attempt may be under way of: not those that wait for all parents."""
    settled = {name for name, row in rows.items() if row.is_settled}
    parents = plan.graph.parents
    return [
        name
        for name in plan.graph.ids
        if name not in settled
        and (name in rows or not parents[name] or not settled.isdisjoint(parents[name]))
    ]


async def _earlier(
    execution_id: str, names: Sequence[str], ports: ApiPorts
) -> tuple[list[AttemptTimes], bool]:
    """Read the attempts of nodes from the history; True: there are more than may be shown."""
    attempts: dict[tuple[str, int], AttemptTimes] = {}
    for start in range(0, len(names), _ASKED_NODES):
        some = names[start : start + _ASKED_NODES]
        after = 0
        while page := await ports.catalog.events(execution_id, after=after, limit=_READ_EVENTS, nodes=some):
            for event in page:
                attempt = _attempt_of(event)
                if attempt is not None:
                    # A node that fails because an attempt was lost names that attempt again.
                    attempts.setdefault((attempt.node_id, attempt.number), attempt)
            if len(attempts) > MAX_ATTEMPTS:
                return list(attempts.values())[:MAX_ATTEMPTS], True
            if len(page) < _READ_EVENTS:
                break
            after = page[-1].seq
    return list(attempts.values()), False


def _attempt_of(event: History) -> AttemptTimes | None:
    outcome = _OUTCOMES.get(event.type)
    if outcome is None or not event.attempt or event.node is None:
        return None
    if outcome in ("F", "X") and event.started_at is None:
        return None  # it was decided without an attempt
    finished_at = event.at if event.finished_at is None else event.finished_at
    times = event.queued_at, event.started_at, finished_at
    return AttemptTimes(event.node, event.attempt, event.generation, *times, outcome, event.worker)


async def read_durations(
    execution: ExecutionRow, ports: ApiPorts, *, namespace: str = DEFAULT_NAMESPACE
) -> NodeDurations:
    """Read what the nodes took in the last executions of the same version that completed.

    For nodes that these say nothing of, the last executions of other versions are read.
    """
    found = gather([])
    if execution.workflow is None:
        return found
    query = ExecutionQuery(
        workflow=execution.workflow, version=execution.version, states=(ExecutionState.COMPLETED,)
    )
    most = max(1, min(SAMPLES, _SAMPLED_NODES // max(1, execution.total)))
    listed = await ports.catalog.executions(query, namespace=namespace, limit=SAMPLES)
    same = [row for row in listed if row.digest == execution.digest and row.id != execution.id]
    found = await _gather(same[:most], ports)
    if len(found.of_node) < execution.total:
        query = msgspec.structs.replace(query, version=None)
        listed = await ports.catalog.executions(query, namespace=namespace, limit=SAMPLES)
        others = [row for row in listed if row.digest != execution.digest]
        found = merged(found, await _gather(others[:most], ports))
    return found


async def _gather(executions: Sequence[ExecutionRow], ports: ApiPorts) -> NodeDurations:
    read = [await ports.catalog.node_states(row.id) for row in executions]
    return gather([rows.values() for rows in read])


# --- Showing.


def timeline_of(reading: Reading, *, whole: bool = True) -> dict[str, Any]:
    """Return the timeline of an execution as it is shown. Pure, and linear in nodes and attempts.

    ``whole``: with its attempts.
    """
    execution = reading.execution
    origin = execution.created_at if execution.started_at is None else execution.started_at
    attempts = attempts_of_rows(reading) if whole else []
    shown = attempts[:MAX_ATTEMPTS]
    return {
        "execution": execution.id,
        "workflow": execution.workflow,
        "version": execution.version,
        "state": execution.state,
        "generation": execution.generation,
        "created_at": time_of(execution.created_at),
        "started_at": time_of(execution.started_at),
        "finished_at": time_of(execution.finished_at),
        "now": rfc3339(reading.now),
        **_columns(shown, reading.plan, origin),
        "is_cut": reading.is_cut or len(attempts) > len(shown),
        "critical_path": _path(reading, origin),
        "expected": _expected(reading),
    }


def attempts_of_rows(reading: Reading) -> list[AttemptTimes]:
    """Return all attempts: the last of each node by its row, or by the store, and the earlier ones."""
    last = {attempt[:2]: attempt for attempt in _last_attempts(reading)}
    earlier = [attempt for attempt in reading.earlier if attempt[:2] not in last]
    return [*last.values(), *earlier]


def _last_attempts(reading: Reading) -> Iterable[AttemptTimes]:
    for row in reading.rows.values():
        if row.state is None:
            if row.parked is not None:
                yield _of_row(row, row.attempt, None)
        elif row.started_at is not None and not row.reused:
            # An attempt that was lost gave no answer.
            was_lost = row.state is NodeState.FAILED and row.answered < row.ended
            outcome = "L" if was_lost else _OUTCOME_OF_STATE.get(row.state)
            yield _of_row(row, 0 if row.has_no_attempt else row.ended, outcome)
    for node_id, status in reading.statuses.items():
        known = reading.rows.get(node_id)
        is_open = known is None or (known.state is None and known.parked is None)
        if is_open and status.queued_at is not None and status.phase in PHASE_STATES:
            yield AttemptTimes(
                node_id,
                status.attempt,
                reading.execution.generation,
                status.queued_at,
                status.started_at,
                None,
                None,
                status.worker,
            )


def _of_row(row: NodeRow, number: int, outcome: str | None) -> AttemptTimes:
    times = row.queued_at, row.started_at, row.finished_at
    return AttemptTimes(row.node_id, number, row.generation, *times, outcome, row.worker)


def _columns(attempts: Sequence[AttemptTimes], plan: Plan, origin: int) -> dict[str, Any]:
    index_of = {node_id: index for index, node_id in enumerate(plan.graph.ids)}
    workers: dict[str, int] = {}

    def since(at: int | None) -> int | None:
        return None if at is None else round((at - origin) / 1000)

    return {
        "attempts": {
            "node": [index_of[one.node_id] for one in attempts],
            "number": [one.number for one in attempts],
            "generation": [one.generation for one in attempts],
            "queued": [since(one.queued_at) for one in attempts],
            "started": [since(one.started_at) for one in attempts],
            "finished": [since(one.finished_at) for one in attempts],
            "outcome": [one.outcome for one in attempts],
            "worker": [
                None if one.worker is None else workers.setdefault(one.worker, len(workers))
                for one in attempts
            ],
        },
        "workers": list(workers),
    }


def _path(reading: Reading, origin: int) -> list[dict[str, Any]]:
    execution = reading.execution
    if not execution.is_terminal:
        return []
    earlier: dict[str, int] = {}
    for one in reading.earlier:
        is_earlier = one.number < reading.rows[one.node_id].ended and one.generation == execution.generation
        if is_earlier and one.started_at is not None and one.finished_at is not None:
            earlier[one.node_id] = earlier.get(one.node_id, 0) + one.finished_at - one.started_at
    return [
        {
            "node": step.node,
            "attempt": step.attempt,
            "queued_ms": None if step.queued_at is None else round((step.queued_at - origin) / 1000),
            "started_ms": round((step.started_at - origin) / 1000),
            "finished_ms": round((step.finished_at - origin) / 1000),
            "waiting_ms": round(step.waiting / 1000),
        }
        for step in critical_path(reading.plan, execution, reading.rows, earlier)
    ]


def _expected(reading: Reading) -> dict[str, Any] | None:
    expectation = expectation_of(reading)
    if expectation is None:
        return None
    return {
        "finish_at": rfc3339(expectation.finish_at),
        "low_at": rfc3339(expectation.low_at),
        "high_at": rfc3339(expectation.high_at),
        "remaining_seconds": remaining_seconds(expectation, reading.now),
        "samples": expectation.samples,
        "deciding": expectation.deciding,
    }


def expectation_of(reading: Reading) -> Expectation | None:
    """Return when the execution is expected to end; None unless it runs and something is known."""
    if reading.durations is None or reading.execution.state is not ExecutionState.RUNNING:
        return None
    return expect(reading.plan, reading.rows, reading.statuses, reading.durations, now=reading.now)
