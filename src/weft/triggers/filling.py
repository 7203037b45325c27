"""Fills in the input of a trigger, and asks its condition, for one occasion.

A trigger is kept as it was written, and compiled where it starts something. Long ones take up to some 100 ms:
they are compiled beside the loop, and the last few are kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.payload import decode
from weft.core.time import rfc3339
from weft.errors import EvaluationError
from weft.expressions.expression import compile_expression
from weft.expressions.scope import NodeValue, Scope
from weft.expressions.template import Template
from weft.triggers.definition import compile_input

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.definition.bounds import Bounds
    from weft.errors import Problem
    from weft.expressions.budget import Allowance
    from weft.expressions.expression import Expression
    from weft.triggers.model import Trigger

# Shorter ones compile within some milliseconds.
_SHORT_BYTES = 2 * 1024
# Of long ones, each takes up to some megabytes.
_KEPT = 16


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """The occasion of a start: a due time, with the event or the request that came at it."""

    due_at: int
    event: dict[str, Any] | None = None
    request: dict[str, Any] | None = None


def scope_of(trigger: Trigger, occasion: Occasion, allowance: Allowance | None = None) -> Scope:
    """Return what the expressions of a trigger see."""
    seen: dict[str, Json] = {"trigger": {"name": trigger.name, "due_at": rfc3339(occasion.due_at)}}
    for name in ("event", "request"):
        value = getattr(occasion, name)
        if value is not None:
            seen[name] = value
    nodes = {name: NodeValue("COMPLETED", value) for name, value in seen.items()}
    return Scope(None, {}, nodes, allowance=allowance)


def compiles_quickly(trigger: Trigger) -> bool:
    """True if the templates and the condition of a trigger may be compiled on an event loop."""
    return len(_when(trigger) or "") + len(_source(trigger)) <= _SHORT_BYTES


def is_met(trigger: Trigger, scope: Scope) -> bool:
    """True if the condition of an event's trigger holds; raises EvaluationError."""
    when = _when(trigger)
    if when is None:
        return True
    compiled = compile_expression(when) if len(when) <= _SHORT_BYTES else _kept_condition(when)
    return bool(compiled.evaluate(scope))


def fill_input(trigger: Trigger, scope: Scope, bounds: Bounds, *, max_bytes: int | None = None) -> Json:
    """Return the input that a trigger gives to its execution; raises EvaluationError.

    ``max_bytes``: less than an input may have.
    """
    source = _source(trigger)
    if len(source) <= _SHORT_BYTES:
        template = compile_input(trigger.input, bounds)
    else:
        template = _kept_input(source, bounds)
    if not isinstance(template, Template):
        # It was checked when it was stored: by a release that read templates otherwise.
        raise EvaluationError(f"the input does not compile: {template[0]}")
    return template.fill(scope, max_bytes=bounds.max_payload_bytes if max_bytes is None else max_bytes).value


def _when(trigger: Trigger) -> str | None:
    return None if trigger.event is None else trigger.event.when


def _source(trigger: Trigger) -> bytes:
    return msgspec.json.encode(trigger.input)


@lru_cache(maxsize=_KEPT)
def _kept_condition(when: str) -> Expression:
    return compile_expression(when)


@lru_cache(maxsize=_KEPT)
def _kept_input(source: bytes, bounds: Bounds) -> Template | list[Problem]:
    return compile_input(decode(source), bounds)
