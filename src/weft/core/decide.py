"""Decides what happens to a free node: run, park, wait, skip or fail."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from weft.core.event import Skip
from weft.core.payload import canonical, encode
from weft.core.readiness import READY, readiness
from weft.core.rows import READABLE, ExecutionRow, NodeRow, Wait, payload_in, refuse_reading
from weft.core.skip_propagation import SettledNodes, no_nodes, skips_behind_failure, skips_behind_skip
from weft.core.state import NodeState, Reason
from weft.core.time import rfc3339
from weft.definition.model import TriggerRule, sleep_seconds
from weft.definition.waits import WaitTerms, wait_terms, without_literals
from weft.errors import EvaluationError, PayloadError
from weft.expressions.compiler import EXECUTION_FIELDS
from weft.expressions.scope import NodeValue, Scope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json
    from weft.definition.model import Node
    from weft.definition.plan import Plan
    from weft.expressions.budget import Allowance
    from weft.expressions.template import SecretSlot


# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_COMPLETED, _ONE_FAILED = NodeState.COMPLETED, TriggerRule.ONE_FAILED


class DispatchNode(msgspec.Struct, frozen=True, gc=False):
    """Hand the attempt out, with this config. ``cache_key``: look there first."""

    node_id: str
    config: bytes
    secrets: tuple[Any, ...] = ()
    cache_key: str | None = None


class ParkNode(msgspec.Struct, frozen=True, gc=False):
    """Start the attempt without a worker: after so many seconds it completes with this config."""

    node_id: str
    seconds: float
    config: bytes
    cache_key: str | None = None


class StartWait(msgspec.Struct, frozen=True, gc=False):
    """Have the node wait: for its time, or until somebody or something answers."""

    node_id: str
    wait: Wait
    terms: WaitTerms


class CallWorkflow(msgspec.Struct, frozen=True, gc=False):
    """Have the node wait for an execution of its workflow with this input."""

    node_id: str
    input: bytes


class SkipNode(msgspec.Struct, frozen=True, gc=False):
    """Settle it as skipped, with what can no longer run behind it."""

    node_id: str
    reason: str
    cause: str | None
    skips: tuple[Skip, ...]


class FailNode(msgspec.Struct, frozen=True, gc=False):
    """Settle it as failed, before any attempt, with what can no longer run behind it."""

    node_id: str
    error: dict[str, Any]
    skips: tuple[Skip, ...]


Decision: TypeAlias = DispatchNode | ParkNode | StartWait | CallWorkflow | SkipNode | FailNode


# Payloads are decoded where they are needed and at most once: the caller knows what it has decoded.
Decode = Callable[[bytes], Any]
ValueOf = Callable[[NodeRow], NodeValue]
# The text of the output of a completed node.
PayloadOf = Callable[[NodeRow], bytes]


class InputNotLoadedError(Exception):
    """An expression names the input of its execution, and the row came without it: load it, decide again."""


def _own_payload(row: NodeRow) -> bytes:
    return payload_in(row, {})


def _not_loaded(payload: bytes) -> Any:
    raise InputNotLoadedError


class FreeNode(msgspec.Struct, frozen=True, gc=False):
    """A node whose parents are settled as its rule asks, and what it sees of its execution.

    ``parents`` are the settled ones its rule is asked about, ``seen`` the nodes its expressions name. Both
    are fixed when the node becomes free: two orchestrators that decide it see the same. ``waiting`` counts
    the parents an early rule did not wait for.
    """

    execution: ExecutionRow
    plan: Plan
    node: Node
    parents: tuple[NodeRow, ...]
    seen: Mapping[str, NodeRow]
    waiting: int = 0
    attempt: int = 1
    failures: int = 0
    losses: int = 0
    issued: int = 0
    # A token of its resource tag is reserved for it: it is queued, and does not join the wait queue.
    released: bool = False

    @property
    def node_id(self) -> str:
        return self.node.id

    def scope(
        self,
        decode: Decode,
        value_of: ValueOf,
        max_bytes: int,
        payload_of: PayloadOf,
        allowance: Allowance | None = None,
    ) -> Scope:
        """Return what the expressions of the node see; raises PayloadError if that is too much at once."""
        if len(self.seen) > READABLE:  # so few cannot be too large together
            refuse_reading(self.seen.values(), max_bytes=max_bytes, payload_of=payload_of)
        nodes = {node_id: value_of(row) for node_id, row in self.seen.items()}
        payload = self.execution.input
        read = decode if payload else _not_loaded
        return Scope(payload, ExecutionValues(self.execution), nodes, read, allowance)


class ExecutionValues(Mapping[str, Any]):
    """The values of ``execution.…`` in a template, each made when a template names it: few nodes do."""

    __slots__ = ("_execution",)

    def __init__(self, execution: ExecutionRow) -> None:
        self._execution = execution

    def __getitem__(self, fact: str) -> Any:
        if fact not in EXECUTION_FIELDS:
            raise KeyError(fact)
        value = getattr(self._execution, fact)
        return rfc3339(value) if fact == "created_at" else value

    def __iter__(self) -> Iterator[str]:
        return iter(EXECUTION_FIELDS)

    def __len__(self) -> int:
        return len(EXECUTION_FIELDS)


def decide(
    free: FreeNode,
    *,
    decode: Decode,
    value_of: ValueOf,
    max_bytes: int,
    payload_of: PayloadOf = _own_payload,
    settled: SettledNodes = no_nodes,
    allowance: Allowance | None = None,
) -> Decision:
    """Return the decision for a free node, without side effects: rule first, then condition, then templates.

    Raises InputNotLoadedError where it needs the execution's input and the row came without it, and
    LongEvaluationError where its expressions take more steps than ``allowance`` has left.

    ``settled``: nodes of an execution known to be settled, where a cascade of skips ends.
    """
    node, plan = free.node, free.plan
    is_plain = not free.waiting and node.trigger_rule is not _ONE_FAILED
    for row in free.parents:
        is_plain = is_plain and row.state is _COMPLETED
    if not is_plain:
        # Every other rule is content with parents that have all completed, and needs no closer look.
        ready = readiness(node.id, node.trigger_rule, free.parents, waiting=free.waiting)
        if ready is not READY:
            assert isinstance(ready, Skip), f"{node.id} is free, yet its rule waits"
            return _skip(free, ready.reason, ready.cause, settled)
    scope: Scope | None = None
    condition = plan.conditions.get(node.id)
    if condition is not None:
        try:
            scope = free.scope(decode, value_of, max_bytes, payload_of, allowance)
            wanted = condition.evaluate(scope)
        except (EvaluationError, PayloadError) as problem:
            return _fail(free, "condition_error", f"condition {condition.source!r}: {problem}", settled)
        if not wanted:
            return _skip(free, Reason.CONDITION, None, settled)
    if node.handler == "input":
        if not free.execution.input:
            raise InputNotLoadedError
        return DispatchNode(node.id, free.execution.input)
    static = plan.static_configs.get(node.id)
    if static is not None:
        key = None if node.cache_ttl_seconds is None else _cache_key(free, node.config)
        if node.is_parked:
            return _start_without_worker(free, node.config, static, key, settled)
        return DispatchNode(node.id, static, (), key)
    try:
        scope = scope or free.scope(decode, value_of, max_bytes, payload_of, allowance)
        filled = plan.templates[node.id].fill(scope, max_bytes=max_bytes)
        config = encode(filled.value, max_bytes=max_bytes)
    except (EvaluationError, PayloadError) as problem:
        return _fail(free, "template_error", f"config: {problem}", settled)
    key = None if node.cache_ttl_seconds is None else _cache_key(free, filled.value, filled.secrets)
    if node.is_parked:
        # The filled value hides its secrets: of a sleep only the seconds are read, and a wait has none.
        return _start_without_worker(free, filled.value, config, key, settled)
    return DispatchNode(node.id, config, filled.secrets, key)


def _start_without_worker(
    free: FreeNode, config: Json, payload: bytes, cache_key: str | None, settled: SettledNodes
) -> ParkNode | StartWait | CallWorkflow | FailNode:
    """Return the decision for a node that no worker runs: it runs a workflow, it waits, or it sleeps."""
    if free.node.id in free.plan.calls:
        return CallWorkflow(free.node.id, payload)
    rule = free.plan.waits.get(free.node.id)
    if rule is not None:
        try:
            terms = wait_terms(rule, without_literals(config))
        except ValueError as fault:
            return _fail(free, "bad_config", str(fault), settled)
        return StartWait(free.node.id, Wait(rule.kind, rule.name, terms.prompt, terms.match), terms)
    seconds = config.get("seconds") if isinstance(config, dict) else None
    try:
        due_after = sleep_seconds(seconds, free.node.timeout_seconds)
    except ValueError as fault:
        return _fail(free, "bad_config", f"config at /seconds: {fault}", settled)
    return ParkNode(free.node.id, due_after, payload, cache_key)


def _skip(free: FreeNode, reason: str, cause: str | None, settled: SettledNodes) -> SkipNode:
    node_id = free.node.id
    known = settled(free.execution.id, free.execution.generation)
    if reason == Reason.UPSTREAM_FAILED:
        assert cause is not None
        skips = skips_behind_failure(free.plan, node_id, cause=cause, settled=known)
    else:
        skips = skips_behind_skip(free.plan, node_id, cause=cause or node_id, settled=known)
    return SkipNode(node_id, reason, cause, skips)


def _fail(free: FreeNode, code: str, message: str, settled: SettledNodes) -> FailNode:
    node_id = free.node.id
    known = settled(free.execution.id, free.execution.generation)
    error: dict[str, Any] = {"code": code, "message": message, "retryable": False}
    return FailNode(node_id, error, skips_behind_failure(free.plan, node_id, cause=node_id, settled=known))


def _cache_key(free: FreeNode, config: Json, secrets: Sequence[SecretSlot] = ()) -> str:
    # A secret counts by its name: the value is known to the worker alone.
    slots = [
        [
            list(slot.pointer),
            [part if isinstance(part, str) else {"secret": part.name} for part in slot.parts],
        ]
        for slot in secrets
    ]
    namespace, handler, granted = free.execution.namespace, free.node.handler, free.node.secrets
    # Without granted secrets the key is that of earlier releases.
    asked = [config, slots, sorted(granted)] if granted else [config, slots]
    key = b"\0".join((namespace.encode(), handler.encode(), canonical(asked)))
    return hashlib.sha256(key).hexdigest()
