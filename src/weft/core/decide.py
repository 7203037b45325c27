"""A free node → what to do with it. Every branch of the engine that is not about failure is here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from weft.core.decision import Decision, DispatchNode, FailNode, SkipNode
from weft.core.event import Skip
from weft.core.payload import canonical, encode
from weft.core.readiness import READY, readiness
from weft.core.skip_propagation import SettledNodes, no_nodes, skips_behind_failure, skips_behind_skip
from weft.core.state import NodeState, Reason
from weft.definition.model import TriggerRule
from weft.errors import EvaluationError, PayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weft.core.payload import Json
    from weft.core.view import Decode, FreeNode, ValueOf
    from weft.expressions.scope import Scope
    from weft.expressions.template import SecretSlot


# By names of this module: Python 3.11 takes ten times as long to find a member by its enum.
_COMPLETED, _ONE_FAILED = NodeState.COMPLETED, TriggerRule.ONE_FAILED


def decide(
    free: FreeNode,
    *,
    decode: Decode,
    value_of: ValueOf,
    max_bytes: int,
    settled: SettledNodes = no_nodes,
) -> Decision:
    """Return the decision for a free node, without side effects: rule first, then condition, then templates.

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
        scope = free.scope(decode, value_of)
        try:
            wanted = condition.evaluate(scope)
        except EvaluationError as problem:
            return _fail(free, "condition_error", f"condition {condition.source!r}: {problem}", settled)
        if not wanted:
            return _skip(free, Reason.CONDITION, None, settled)
    if node.handler == "input":
        return DispatchNode(node.id, free.execution.input)
    static = plan.static_configs.get(node.id)
    if static is not None:
        key = None if node.cache_ttl_seconds is None else _cache_key(free, node.config)
        return DispatchNode(node.id, static, (), key)
    try:
        filled = plan.templates[node.id].fill(scope or free.scope(decode, value_of), max_bytes=max_bytes)
        config = encode(filled.value, max_bytes=max_bytes)
    except (EvaluationError, PayloadError) as problem:
        return _fail(free, "template_error", f"config: {problem}", settled)
    key = None if node.cache_ttl_seconds is None else _cache_key(free, filled.value, filled.secrets)
    return DispatchNode(node.id, config, filled.secrets, key)


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
    namespace, handler = free.execution.namespace, free.node.handler
    key = b"\0".join((namespace.encode(), handler.encode(), canonical([config, slots])))
    return hashlib.sha256(key).hexdigest()
