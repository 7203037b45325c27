"""Did the engine run this graph as it is drawn?

A trace is one record per node: ``{id, state, reason, attempts, queued_at, started_at, finished_at,
output}`` with RFC 3339 times, as an execution shows them. ``check`` compares it with the graph alone, so
it knows nothing of how the engine came to it, and lists what cannot be:

=========================  ===========================================================================
missing unknown duplicate  the trace has a node not at all, one that is not drawn, or one twice
state                      a node is not settled
time                       an executed node lacks a time, or its times are out of order
attempts                   executed without an attempt, with too many, or not executed and yet with one
order                      queued or started before a parent that it waits for had finished
poisoned                   executed although its parents' outcomes forbid it
idle                       not executed although its parents' outcomes demand it
ghost                      not executed, and yet with a time of its own
output                     completed without an output
dataflow                   the output is not the one that its parents' outputs make
parallel                   more nodes at once than there are slots
=========================  ===========================================================================

Data flow is checked by hashes: a replayed node's output is ``merkle(its id, its parents' outputs)``, so a
value that was lost, mixed up or taken from elsewhere changes every output behind it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# Under these a node may run while some of its parents have not settled; the first parent in the state
# named here wakes it.
EARLY = {"one_success": "COMPLETED", "one_failed": "FAILED"}

_EXECUTED = frozenset({"COMPLETED", "FAILED"})
_SETTLED = _EXECUTED | {"SKIPPED", "CANCELLED"}


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A node as it is drawn."""

    id: str
    parents: tuple[str, ...]
    rule: str = "all_success"


@dataclass(frozen=True, slots=True)
class Violation:
    code: str
    node_id: str | None
    why: str


def merkle(node_id: str, outputs: Iterable[str]) -> str:
    """Return the output of a replayed node; a parent without an output stands there as nothing."""
    return hashlib.sha256(f"{node_id}|{','.join(outputs)}".encode()).hexdigest()[:16]


def check(
    graph: Sequence[DrawnNode],
    trace: Sequence[Mapping[str, Any]],
    *,
    slots: int | None = None,
    max_attempts: int = 1,
) -> list[Violation]:
    """List every way in which the trace is not a run of the graph."""
    records, violations = _match(graph, trace)
    for node in graph:
        record = records.get(node.id)
        if record is None:
            continue
        violations += _check_record(record, max_attempts)
        parents = [records[parent] for parent in node.parents if parent in records]
        if len(parents) == len(node.parents):
            violations += _check_edges(node, record, parents)
    if slots is not None:
        violations += _check_slots(records.values(), slots)
    return violations


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    state: str
    reason: str | None
    attempts: int
    queued_at: int | None
    started_at: int | None
    finished_at: int | None
    output: Any

    @property
    def executed(self) -> bool:
        return self.state in _EXECUTED

    @property
    def is_bad(self) -> bool:
        """Failed, in the sense of the trigger rules."""
        return self.state == "FAILED" or (self.state == "SKIPPED" and self.reason == "upstream_failed")


def _match(
    graph: Sequence[DrawnNode], trace: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, _Record], list[Violation]]:
    drawn = {node.id for node in graph}
    violations = []
    records: dict[str, _Record] = {}
    for item in trace:
        node_id = item["id"]
        if node_id not in drawn:
            violations.append(Violation("unknown", node_id, "is not in the graph"))
        elif node_id in records:
            violations.append(Violation("duplicate", node_id, "has more than one record"))
        else:
            records[node_id] = _Record(
                id=node_id,
                state=item["state"],
                reason=item.get("reason"),
                attempts=item["attempts"],
                queued_at=_micros(item.get("queued_at")),
                started_at=_micros(item.get("started_at")),
                finished_at=_micros(item.get("finished_at")),
                output=item.get("output"),
            )
    violations += [Violation("missing", node.id, "has no record") for node in graph if node.id not in records]
    return records, violations


def _micros(time: str | None) -> int | None:
    return None if time is None else round(datetime.fromisoformat(time).timestamp() * 1_000_000)


def _check_record(record: _Record, max_attempts: int) -> Iterable[Violation]:
    times = (record.queued_at, record.started_at, record.finished_at)
    if record.state not in _SETTLED:
        yield Violation("state", record.id, f"is {record.state}")
    elif not record.executed:
        if any(time is not None for time in times):
            yield Violation("ghost", record.id, f"is {record.state} and has times")
        if record.attempts:
            yield Violation("attempts", record.id, f"is {record.state} after {record.attempts} attempts")
    else:
        known = [time for time in times if time is not None]
        if len(known) < len(times):
            yield Violation("time", record.id, "was executed and lacks a time")
        elif sorted(known) != known:
            yield Violation("time", record.id, "has its times out of order")
        if not 1 <= record.attempts <= max_attempts:
            yield Violation("attempts", record.id, f"took {record.attempts} attempts")
        if record.state == "COMPLETED" and record.output is None:
            yield Violation("output", record.id, "completed without an output")


def _check_edges(node: DrawnNode, record: _Record, parents: Sequence[_Record]) -> Iterable[Violation]:
    may_run = not parents or _may_run(node.rule, parents)
    if record.executed and not may_run:
        states = dict(Counter(parent.state for parent in parents))
        yield Violation("poisoned", node.id, f"was executed under {node.rule} behind {states}")
    if record.state == "SKIPPED" and may_run:
        yield Violation("idle", node.id, f"was not executed under {node.rule}")
    if record.executed:
        ready_at = _ready_at(node.rule, parents)
        for what, at in (("queued", record.queued_at), ("started", record.started_at)):
            if ready_at is not None and at is not None and at < ready_at:
                yield Violation("order", node.id, f"was {what} {ready_at - at} µs before it was ready")
    if record.state == "COMPLETED" and record.output is not None:
        expected = merkle(node.id, seen_outputs(node, {parent.id: parent.output for parent in parents}))
        if record.output != expected:
            yield Violation("dataflow", node.id, f"gave {record.output!r}, not {expected!r}")


def seen_outputs(node: DrawnNode, outputs: Mapping[str, str | None]) -> list[str]:
    """Return what a node's own output is made of.

    Which parents an early rule did not wait for is a matter of chance, so such a node stands for itself.
    """
    return [] if node.rule in EARLY else [outputs[parent] or "" for parent in node.parents]


def _may_run(rule: str, parents: Sequence[_Record]) -> bool:
    completed = sum(parent.state == "COMPLETED" for parent in parents)
    failed = sum(parent.state == "FAILED" for parent in parents)
    bad = sum(parent.is_bad for parent in parents)
    return {
        "all_success": completed == len(parents),
        "all_done": True,
        "none_failed": bad == 0,
        "none_failed_min_one_success": bad == 0 and completed > 0,
        "one_success": completed > 0,
        "one_failed": failed > 0,
    }[rule]


def _ready_at(rule: str, parents: Sequence[_Record]) -> int | None:
    """Return the earliest moment at which the rule can have been met; None where no parent was executed."""
    waking = EARLY.get(rule)
    ends = [
        parent.finished_at
        for parent in parents
        if parent.finished_at is not None and waking in (None, parent.state)
    ]
    if not ends:
        return None
    return max(ends) if waking is None else min(ends)


def _check_slots(records: Iterable[_Record], slots: int) -> Iterable[Violation]:
    moves = []
    for record in records:
        if record.started_at is not None and record.finished_at is not None:
            moves += [(record.started_at, 1), (record.finished_at, -1)]
    running = most = 0
    # At one and the same moment ends come first: a slot is handed on without a gap.
    for _, change in sorted(moves):
        running += change
        most = max(most, running)
    if most > slots:
        yield Violation("parallel", None, f"{most} nodes ran at once in {slots} slots")
