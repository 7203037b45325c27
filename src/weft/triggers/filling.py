"""Fills in the input of a trigger, and asks its condition, for one occasion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.core.time import rfc3339
from weft.errors import EvaluationError
from weft.expressions.expression import compile_expression
from weft.expressions.scope import NodeValue, Scope
from weft.expressions.template import Template
from weft.triggers.definition import compile_input

if TYPE_CHECKING:
    from weft.core.payload import Json
    from weft.definition.bounds import Bounds
    from weft.expressions.budget import Allowance
    from weft.triggers.model import Trigger


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


def is_met(trigger: Trigger, scope: Scope) -> bool:
    """True if the condition of an event's trigger holds; raises EvaluationError."""
    when = None if trigger.event is None else trigger.event.when
    return when is None or bool(compile_expression(when).evaluate(scope))


def fill_input(trigger: Trigger, scope: Scope, bounds: Bounds) -> Json:
    """Return the input that a trigger gives to its execution; raises EvaluationError."""
    template = compile_input(trigger.input, bounds)
    if not isinstance(template, Template):
        # It was checked when it was stored: by a release that read templates otherwise.
        raise EvaluationError(f"the input does not compile: {template[0]}")
    return template.fill(scope, max_bytes=bounds.max_payload_bytes).value
