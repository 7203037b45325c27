"""Following a path through JSON values, and saying why it leads nowhere.

A step is a subscription of a dict, a list or a string, never an attribute: ``a.items`` is the key.

What nearly every expression is made of are structs that can be called, not closures: a plan of fifty
thousand nodes would hold more than a million objects that Python's collector looks at, while everybody waits.
It looks at a function and at each variable that it holds, and at none of these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from weft.errors import EvaluationError
from weft.expressions import operators
from weft.expressions.operators import kind
from weft.expressions.undefined import Undefined

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weft.expressions.budget import Budget
    from weft.expressions.scope import Scope

    Run: TypeAlias = Callable[[Scope, Budget], Any]
    Step: TypeAlias = Callable[[Any, Scope, Budget], Any]


def walk(base: Run, keys: Sequence[str | int], texts: Sequence[str]) -> Run:
    """Follow constant keys. ``texts`` are the pieces of the path as written, the base's first."""
    return _Walk(base, tuple(keys), tuple(texts)) if keys else base


class _Walk(msgspec.Struct, frozen=True, eq=False, gc=False):
    base: Run
    keys: tuple[str | int, ...]
    texts: tuple[str, ...]

    def __call__(self, scope: Scope, budget: Budget) -> Any:
        value = self.base(scope, budget)
        # Subscription alone decides: a JSON object knows its keys, a list its positions, and everything
        # else, an Undefined among it, raises TypeError.
        try:
            for key in self.keys:
                value = value[key]
        except (KeyError, IndexError, TypeError):
            return _missing(self.base(scope, budget), self.keys, self.texts)
        return value


def _missing(value: Any, keys: Sequence[str | int], texts: Sequence[str]) -> Undefined:
    """Return an Undefined that says where a path ends early, and what there is instead."""
    path = "".join(texts)
    for position, key in enumerate(keys, start=1):
        if isinstance(value, Undefined):
            return Undefined(path, value.why)
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return Undefined(path, _why_missing(value, key, "".join(texts[:position])[:200]))
    raise AssertionError("the path leads somewhere after all")


def _why_missing(value: Any, key: str | int, where: str) -> str:
    match value:
        case Mapping() if isinstance(key, str):
            known = ", ".join(str(known)[:40] for known in islice(value, 10))
            if len(value) > 10:
                known += f" and {len(value) - 10:,} more"
            return f"{where} has no key {key!r:.80}; " + (f"it has: {known}" if known else "it is empty")
        case Mapping():
            return f"{where} is an object, whose keys are strings, and {key!r:.40} is none"
        case list() | str() if not isinstance(key, str):
            count = f"{len(value):,} {'elements' if isinstance(value, list) else 'characters'}"
            return f"{where} has {count}, and none at {key!r:.40}"
        case _:
            return f"{where} is {kind(value)}, which has no key {key!r:.80}"


def key_text(key: str | int) -> str:
    return f"[{json.dumps(key, ensure_ascii=False)}]"


def subscript(index: Run, texts: Sequence[str]) -> Step:
    """One step whose key is computed."""

    def step(value: Any, scope: Scope, budget: Budget) -> Any:
        key = index(scope, budget)
        if type(key) is not int and not isinstance(key, str):
            raise EvaluationError(f"{kind(key)} is no key: it takes a string or a whole number")
        try:
            return value[key]
        except (KeyError, IndexError, TypeError):
            return _missing(value, (key,), texts)

    return step


def slice_step(bounds: Sequence[Run], texts: Sequence[str]) -> Step:
    def step(value: Any, scope: Scope, budget: Budget) -> Any:
        if value.__class__ is Undefined:
            return Undefined("".join(texts), value.why)
        start, stop, stride = [bound(scope, budget) for bound in bounds]
        return operators.part(value, start, stop, stride, budget)

    return step


def in_steps(base: Run, steps: Sequence[Step]) -> Run:
    def run(scope: Scope, budget: Budget) -> Any:
        value = base(scope, budget)
        for step in steps:
            value = step(value, scope, budget)
        return value

    return run


def input_root(scope: Scope, budget: Budget) -> Any:
    return scope.input


def execution_root(scope: Scope, budget: Budget) -> Any:
    return scope.execution


def whole_execution(scope: Scope, budget: Budget) -> Any:
    return dict(scope.execution)


class Word(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A name that means something in this place alone, such as ``error`` where a retry is decided."""

    name: str

    def __call__(self, scope: Scope, budget: Budget) -> Any:
        words = scope.words
        if words is None or self.name not in words:
            return Undefined(self.name, "it has no value here")
        return words[self.name]


class NodeOutput(msgspec.Struct, frozen=True, eq=False, gc=False):
    """The whole output of a node, by whatever path it was asked for."""

    node_id: str
    path: str

    def __call__(self, scope: Scope, budget: Budget) -> Any:
        node = scope.nodes.get(self.node_id)
        if node is None:
            return Undefined(self.path, f"{self.node_id} has not completed")
        if node.state != "COMPLETED":
            return Undefined(self.path, f"{self.node_id} did not complete ({node.state})")
        return node.output


class ShortOutput(msgspec.Struct, frozen=True, eq=False, gc=False):
    """``fetch.output``: the key where the output has it, else the whole output."""

    whole: NodeOutput

    def __call__(self, scope: Scope, budget: Budget) -> Any:
        output = self.whole(scope, budget)
        return output["output"] if isinstance(output, dict) and "output" in output else output


class NodeFact(msgspec.Struct, frozen=True, eq=False, gc=False):
    """``nodes["fetch"].state``, ``.error`` or ``.reason``: known of every settled node."""

    node_id: str
    field: str
    path: str

    def __call__(self, scope: Scope, budget: Budget) -> Any:
        node = scope.nodes.get(self.node_id)
        if node is None:
            return Undefined(self.path, f"{self.node_id} has not settled")
        fact = getattr(node, self.field)
        return str(fact) if isinstance(fact, str) else fact


def nothing(undefined: Undefined) -> Run:
    return lambda scope, budget: undefined
