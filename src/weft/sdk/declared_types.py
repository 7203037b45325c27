"""The types of a workflow's functions, checked where the functions are declared.

Loaded with the first function that is annotated: a module of plain functions need not pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weft.handlers.types.annotations import RETURN, caller_names, hints_of
from weft.handlers.types.fit import why_not
from weft.handlers.types.schema import schema_of
from weft.handlers.types.shape import Anything, KeysAndValues, Unsupported, shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from weft.core.payload import Json
    from weft.handlers.types.shape import Shape

# What an execution's input always is.
_OBJECT = KeysAndValues(Anything(), Anything(), None)
_INPUT = "input"


@dataclass(slots=True)
class DeclaredTypes:
    """The annotated types of the nodes that were declared so far, by node id."""

    # What each node returns, and where it is declared.
    _returned: dict[str, tuple[Shape, str]] = field(default_factory=dict)
    # What each node takes of each parent.
    _taken: dict[str, dict[str, tuple[Shape, str]]] = field(default_factory=dict)
    # The hint of each node's parameter ``input``.
    _inputs: dict[str, Any] = field(default_factory=dict)

    def add(
        self, node_id: str, function: Callable[..., Any], filled: Collection[str], place: str
    ) -> list[str]:
        """Note the types of a node's function; return what is wrong with them, and note nothing then.

        ``filled``: the parameters that receive the input or the output of a parent.
        """
        hints = hints_of(function, caller_names())
        shapes = {name: shape_of(hints[name]) for name in filled if name in hints}
        faults = [
            _unsupported(name, shape.cls) for name, shape in shapes.items() if isinstance(shape, Unsupported)
        ]
        taken_input = shapes.pop(_INPUT, None)
        if taken_input is not None and (reason := why_not(_OBJECT, taken_input)) is not None:
            faults.append(f"parameter 'input' receives an object, the execution's input: {reason}")
        returned = shape_of(hints[RETURN]) if RETURN in hints else Anything()
        faults += [
            _misfit(parent, self._returned[parent][1], reason)
            for parent, shape in shapes.items()
            if parent in self._returned and (reason := why_not(self._returned[parent][0], shape)) is not None
        ]
        for taken in self._taken.values():
            if node_id in taken and (reason := why_not(returned, taken[node_id][0])) is not None:
                faults.append(f"its output does not fit {taken[node_id][1]}: {reason}")
        if faults:
            return faults
        self._returned[node_id] = (returned, place)
        self._taken[node_id] = {parent: (shape, place) for parent, shape in shapes.items()}
        self._inputs[node_id] = hints[_INPUT] if taken_input is not None else Any
        return []

    def input_schema(self) -> dict[str, Json] | None:
        """Return the JSON Schema of the input that the annotated functions take, or None."""
        hints: list[Any] = []
        for hint in self._inputs.values():
            if hint is not Any and hint not in hints:
                hints.append(hint)
        schema = schema_of(*map(shape_of, hints))
        # Every input is an object.
        return None if schema in ({}, {"type": "object"}) else schema


def _unsupported(name: str, cls: Any) -> str:
    home = "" if cls.__module__ in ("builtins", "__main__") else f"{cls.__module__.partition('.')[0]}."
    return (
        f"parameter {name!r}: weft cannot make a {home}{cls.__qualname__} from JSON; annotate what the "
        "parent returns, such as list[dict], or leave the annotation out"
    )


def _misfit(parent: str, place: str, reason: str) -> str:
    return f"parameter {parent!r} cannot take what {place} returns: {reason}"
